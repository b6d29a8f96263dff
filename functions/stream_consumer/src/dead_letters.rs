//! Where stream records go that cannot be read.

use async_trait::async_trait;
use nameservice_feed::Feed;
use nameservice_model::BoxError;
use serde_json::{Value, json};

use crate::Delivery;

/// The longest message, in bytes: what every queue takes.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// Keeps what cannot be read for somebody to look at.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Keeps one record, whole, with the reason. Keeping it twice does no harm.
    async fn bury(&self, delivery: &Delivery, reason: &str) -> Result<(), BoxError>;
}

/// Rows of the feed's table, for 14 days.
#[async_trait]
impl DeadLetters for Feed {
    async fn bury(&self, delivery: &Delivery, reason: &str) -> Result<(), BoxError> {
        Ok(self.bury(delivery.event_id(), reason, &delivery.raw()).await?)
    }
}

/// Messages of an SQS queue.
pub struct QueueOfDeadLetters {
    client: aws_sdk_sqs::Client,
    url: String,
}

impl QueueOfDeadLetters {
    /// To the queue of this URL.
    pub fn new(client: aws_sdk_sqs::Client, url: impl Into<String>) -> Self {
        Self { client, url: url.into() }
    }
}

#[async_trait]
impl DeadLetters for QueueOfDeadLetters {
    async fn bury(&self, delivery: &Delivery, reason: &str) -> Result<(), BoxError> {
        let body = message(reason, delivery.raw());
        self.client.send_message().queue_url(&self.url).message_body(body).send().await?;
        Ok(())
    }
}

/// The record with its reason; of one that is too large for a message, without its images: the stream has them for a
/// day, and the table what is there now.
fn message(reason: &str, mut record: Value) -> String {
    let whole = json!({"reason": reason, "record": &record}).to_string();
    if whole.len() <= MAX_MESSAGE_BYTES {
        return whole;
    }
    if let Some(Value::Object(change)) = record.get_mut("dynamodb") {
        change.retain(|name, _| !matches!(name.as_str(), "OldImage" | "NewImage"));
    }
    let short = json!({"reason": reason, "images_omitted": true, "record": record}).to_string();
    if short.len() <= MAX_MESSAGE_BYTES {
        return short;
    }
    json!({"reason": reason, "record_omitted": true, "event_id": record["eventID"].as_str().unwrap_or_default()})
        .to_string()
}
