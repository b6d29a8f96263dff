//! Dead letters: stream records that cannot be read, whole and with the secrets that they hold (docs/security.md, Dead letters).

use std::collections::BTreeMap;

use async_trait::async_trait;
use nameservice_feed::Feed;
use nameservice_lambda::{MAX_MESSAGE_BYTES, queue_json};
use nameservice_model::{BoxError, Error};
use serde::Serialize;
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

use crate::Delivery;

/// The longest record that fits a row, which has at most 400 KB.
const MAX_ROW_BYTES: usize = 300 * 1024;

/// Stores records that cannot be read, for an operator.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Stores one whole record with the reason. A record that is delivered again may be stored again.
    async fn store(&self, delivery: &Delivery, reason: &str) -> Result<(), BoxError>;
}

/// Rows of the feed's table, for 14 days.
#[async_trait]
impl DeadLetters for Feed {
    async fn store(&self, delivery: &Delivery, reason: &str) -> Result<(), BoxError> {
        let (id, whole) = (delivery.event_id(), delivery.json()?);
        match self.store_dead_letter(id, reason, whole.get()).await {
            // As JSON, the images are larger than they were in the table.
            Err(Error::TooLarge) => {
                let shortened = shortened(delivery, MAX_ROW_BYTES)?;
                Ok(self.store_dead_letter(id, reason, &shortened).await?)
            }
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
        let body = message(delivery, reason)?;
        self.client.send_message().queue_url(&self.url).message_body(body).send().await?;
        Ok(())
    }
}

/// The record with its reason.
fn message(delivery: &Delivery, reason: &str) -> serde_json::Result<String> {
    let with_reason = |record: &RawValue| serde_json::to_string(&Letter { reason, record }).map(queue_json);
    let whole = with_reason(&delivery.json()?)?;
    if whole.len() <= MAX_MESSAGE_BYTES {
        return Ok(whole);
    }
    with_reason(&RawValue::from_string(shortened(delivery, MAX_MESSAGE_BYTES - 8 * 1024)?)?)
}

#[derive(Serialize)]
struct Letter<'a> {
    reason: &'a str,
    record: &'a RawValue,
}

/// The JSON of a record that is too large, without its images: the stream has them for a day, and the table has the current item.
fn shortened(delivery: &Delivery, max_bytes: usize) -> serde_json::Result<String> {
    let mut record: BTreeMap<String, Box<RawValue>> = serde_json::from_str(delivery.json()?.get()).unwrap_or_default();
    if let Some(change) = record.get_mut("dynamodb")
        && let Ok(mut members) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(change.get())
    {
        members.retain(|name, _| !matches!(name.as_str(), "OldImage" | "NewImage"));
        members.insert("images_omitted".to_owned(), to_raw_value(&true)?);
        *change = to_raw_value(&members)?;
    }
    let shortened = serde_json::to_string(&record)?;
    if !record.is_empty() && shortened.len() <= max_bytes {
        return Ok(shortened);
    }
    let id: String = delivery.event_id().chars().take(256).collect();
    Ok(json!({"eventID": id, "record_omitted": true}).to_string())
}
