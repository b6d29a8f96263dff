//! Dead letters: stream records that could not be read, stored in the feed's table if no queue is configured.

use jiff::Timestamp;
use nameservice_model::Result;
use nameservice_views::SaveMode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

use crate::{Feed, rows};

const POISON_ID: &str = "poison#0";
/// How long it is kept: as long as the longest retention of a queue.
const KEPT_FOR: Duration = Duration::from_secs(14 * 24 * 3600);

/// A stream record that could not be read.
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// The id of the stream record, or a hash of its content if it has no id.
    pub event_id: String,
    /// The reason why it could not be read.
    pub reason: String,
    /// The record, as JSON text.
    pub record: String,
    /// When it was stored.
    pub recorded_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Row {
    id: String,
    position: String,
    reason: String,
    record: String,
    recorded_at: i64,
}

impl Feed {
    /// Stores a stream record that cannot be read, with the reason, for 14 days. Idempotent.
    ///
    /// The record, which is JSON, is stored whole. Fails if it is larger than a row
    /// ([`Error::TooLarge`](nameservice_model::Error::TooLarge)).
    pub async fn store_dead_letter(&self, event_id: &str, reason: &str, record: &str) -> Result<()> {
        let now = self.now();
        // Of the value: another delivery may write it otherwise.
        let value = || serde_json::from_str::<Value>(record).map_or(record.into(), |value| value.to_string().into());
        let row = Row {
            id: POISON_ID.to_owned(),
            position: rows::event_name(event_id, value).into_owned(),
            reason: reason.to_owned(),
            record: record.to_owned(),
            recorded_at: now.as_millisecond(),
        };
        Ok(self.view.save(&row, SaveMode::Any, Some(rows::expiry(now, KEPT_FOR))).await.map(drop)?)
    }

    /// Returns the stored dead letters.
    pub async fn dead_letters(&self) -> Result<Vec<DeadLetter>> {
        let rows: Vec<Row> = self.view.load(POISON_ID).await?;
        rows.into_iter()
            .map(|row| {
                Ok(DeadLetter {
                    event_id: row.position,
                    reason: row.reason,
                    record: row.record,
                    recorded_at: rows::moment(row.recorded_at)?,
                })
            })
            .collect()
    }
}
