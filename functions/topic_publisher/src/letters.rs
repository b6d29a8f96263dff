//! Dead letters: what can never be published.

use async_trait::async_trait;
use nameservice_api::changes::Change as Shape;
use nameservice_lambda::{MAX_MESSAGE_BYTES, queue_json};
use nameservice_model::{BoxError, Change};
use serde_json::{Value, json};

const MAX_REASON_CHARS: usize = 1_000;

/// What can never be published.
#[derive(Clone, Copy, Debug)]
pub enum Letter<'a> {
    /// A change that the topic rejects because of what it is. The feed has it.
    Rejected {
        /// The change.
        change: &'a Change,
        /// The topic's reason.
        reason: &'a str,
    },
    /// Changes that had left the feed before they were published; or the feed is another one.
    Lost {
        /// The position up to which everything was published.
        reached: u64,
        /// The position at which it continues.
        oldest: u64,
    },
}

/// Stores what can never be published, for an operator.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Stores a letter, at least once.
    async fn store(&self, letter: Letter<'_>) -> Result<(), BoxError>;
}

/// Messages of an SQS queue.
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
    async fn store(&self, letter: Letter<'_>) -> Result<(), BoxError> {
        self.client.send_message().queue_url(&self.url).message_body(message(letter)?).send().await?;
        Ok(())
    }
}

/// A letter as JSON. A change that is too large is without its payload, or is its position alone: the feed has the rest.
fn message(letter: Letter<'_>) -> Result<String, BoxError> {
    let (change, reason) = match letter {
        Letter::Lost { reached, oldest } => {
            let reason =
                format!("what follows position {reached} is no longer in the feed: the topic continues at {oldest}");
            return Ok(json!({ "reason": reason, "reached": reached, "oldest": oldest }).to_string());
        }
        Letter::Rejected { change, reason } => (change, reason.chars().take(MAX_REASON_CHARS).collect::<String>()),
    };
    let mut shape = serde_json::to_value(Shape::from(change))?;
    let with_reason = |change: &Value| queue_json(json!({ "reason": reason, "change": change }).to_string());
    let whole = with_reason(&shape);
    if whole.len() <= MAX_MESSAGE_BYTES {
        return Ok(whole);
    }
    if let Value::Object(members) = &mut shape {
        members.remove("payload");
        members.insert("payload_omitted".to_owned(), true.into());
    }
    let without_payload = with_reason(&shape);
    if without_payload.len() <= MAX_MESSAGE_BYTES {
        return Ok(without_payload);
    }
    Ok(queue_json(
        json!({ "reason": reason, "change": { "position": change.position }, "change_omitted": true }).to_string(),
    ))
}
