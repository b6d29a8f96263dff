//! Dead letters: messages that cannot be indexed, unchanged, with the reason in an attribute.

use async_trait::async_trait;
use aws_sdk_sqs::types::MessageAttributeValue;
use nameservice_model::BoxError;

use crate::Message;

/// The longest reason, in characters, since it is an attribute of a message.
const MAX_REASON_CHARS: usize = 1_000;

/// Stores messages for an operator.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Stores a message with the reason. The stored message can be sent to the queue again unchanged.
    async fn store(&self, message: &Message, reason: &str) -> Result<(), BoxError>;
}

/// Messages of an SQS queue, with the attribute `reason`.
pub struct QueueOfDeadLetters {
    client: aws_sdk_sqs::Client,
    url: String,
}

impl QueueOfDeadLetters {
    /// Creates dead letters in the queue of this URL.
    pub fn new(client: aws_sdk_sqs::Client, url: impl Into<String>) -> Self {
        Self { client, url: url.into() }
    }
}

#[async_trait]
impl DeadLetters for QueueOfDeadLetters {
    async fn store(&self, message: &Message, reason: &str) -> Result<(), BoxError> {
        // SQS rejects control characters.
        let visible = reason.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
        let reason: String = visible.take(MAX_REASON_CHARS).collect();
        let reason = MessageAttributeValue::builder().data_type("String").string_value(reason).build()?;
        let request = self.client.send_message().queue_url(&self.url).message_body(message.body());
        request.message_attributes("reason", reason).send().await?;
        Ok(())
    }
}
