//! Where stream records go that cannot be read.

use async_trait::async_trait;
use nameservice_feed::Feed;
use nameservice_model::{BoxError, Error};
use serde_json::{Value, json};

use crate::Delivery;

/// The longest message, in bytes: what every queue takes.
const MAX_MESSAGE_BYTES: usize = 256 * 1024;
/// What of a record fits a row, which has at most 400 KB.
const MAX_ROW_BYTES: usize = 300 * 1024;

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
        let (id, whole) = (delivery.event_id(), delivery.raw());
        match self.bury(id, reason, &whole).await {
            // JSON takes more room than the images did in the table.
            Err(Error::TooLarge) => Ok(self.bury(id, reason, &shortened(whole, MAX_ROW_BYTES)).await?),
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
    /// To the queue of this URL.
    pub fn new(client: aws_sdk_sqs::Client, url: impl Into<String>) -> Self {
        Self { client, url: url.into() }
    }
}

#[async_trait]
impl DeadLetters for QueueOfDeadLetters {
    async fn bury(&self, delivery: &Delivery, reason: &str) -> Result<(), BoxError> {
        // SQS takes no text with these two, not even in a string of JSON.
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

/// Of a record that is too large, what is left without its images: the stream has them for a day, and the table what is
/// there now.
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
