//! Dead letters: stream records that cannot be read, whole and with the secrets that they hold (docs/security.md, Dead letters).

use async_trait::async_trait;
use nameservice_feed::Feed;
use nameservice_model::{BoxError, Error};
use serde_json::{Value, json};

use crate::Delivery;

/// The longest message, in bytes, that every queue accepts.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;
/// The longest record that fits a row, which has at most 400 KB.
const MAX_ROW_BYTES: usize = 300 * 1024;

/// Stores records that cannot be read, for an operator.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Stores one whole record with the reason. Idempotent.
    async fn store(&self, delivery: &Delivery, reason: &str) -> Result<(), BoxError>;
}

/// Rows of the feed's table, for 14 days.
#[async_trait]
impl DeadLetters for Feed {
    async fn store(&self, delivery: &Delivery, reason: &str) -> Result<(), BoxError> {
        let (id, whole) = (delivery.event_id(), delivery.raw());
        match self.store_dead_letter(id, reason, &whole).await {
            // As JSON, the images are larger than they were in the table.
            Err(Error::TooLarge) => Ok(self.store_dead_letter(id, reason, &shortened(whole, MAX_ROW_BYTES)).await?),
            kept => Ok(kept?),
        }
    }
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
    async fn store(&self, delivery: &Delivery, reason: &str) -> Result<(), BoxError> {
        // SQS rejects these two characters, even inside a JSON string.
        let body = message(reason, delivery.raw()).replace('\u{fffe}', "\\ufffe").replace('\u{ffff}', "\\uffff");
        self.client.send_message().queue_url(&self.url).message_body(body).send().await?;
        Ok(())
    }
}

/// The record with its reason.
fn message(reason: &str, record: Value) -> String {
    let whole = json!({"reason": reason, "record": &record}).to_string();
    if whole.len() <= MAX_MESSAGE_BYTES {
        return whole;
    }
    json!({"reason": reason, "record": shortened(record, MAX_MESSAGE_BYTES - 8 * 1024)}).to_string()
}

/// Removes the images from a record that is too large: the stream has them for a day, and the table has the current item.
fn shortened(mut record: Value, max_bytes: usize) -> Value {
    if let Some(Value::Object(change)) = record.get_mut("dynamodb") {
        change.retain(|name, _| !matches!(name.as_str(), "OldImage" | "NewImage"));
        change.insert("images_omitted".to_owned(), true.into());
    }
    if record.to_string().len() <= max_bytes {
        return record;
    }
    let id: String = record["eventID"].as_str().unwrap_or_default().chars().take(256).collect();
    json!({"eventID": id, "record_omitted": true})
}
