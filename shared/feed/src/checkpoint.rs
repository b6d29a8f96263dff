//! Checkpoints of the table's stream, for consumers outside Lambda. (Lambda keeps the function's own.)

use std::time::Duration;

use jiff::Timestamp;
use nameservice_model::Result;
use nameservice_views::{Age, RowKey, SaveMode};
use serde::{Deserialize, Serialize};

use crate::{Feed, guards, rows};

const CHECKPOINT_ID: &str = "checkpoint#0";
/// The attribute that only grows along the progress of a shard, as text. Rows of earlier releases do not have it.
const PROGRESS: &str = "progress";
/// The progress of a finished shard: sorts after every sequence number.
const FINISHED: &str = "finished";
/// How long the checkpoint of a finished shard is kept: twice as long as a stream lists its shards.
const FINISHED_FOR: Duration = Duration::from_secs(48 * 3600);

/// The checkpoint of one shard of the stream.
///
/// Everything up to it is in the feed. What follows may be, too: a checkpoint is saved after its batch. Records that
/// are read again are not appended again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The ARN of the stream: it changes if the stream is switched off and on again, or the table is created again.
    pub stream: String,
    /// The id of the shard.
    pub shard: String,
    /// The sequence number of the last record that was passed; `None` if reading has only begun.
    pub passed: Option<String>,
    /// The shard has ended, it was read to its end, and the shards that follow it have checkpoints of their own.
    pub finished: bool,
    /// When it was saved.
    pub saved_at: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Row {
    id: String,
    position: String,
    stream: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    passed: Option<String>,
    #[serde(default)]
    finished: bool,
    saved_at: i64,
    #[serde(default)]
    progress: String,
}

impl Checkpoint {
    fn progress(&self) -> String {
        match self.finished {
            true => FINISHED.to_owned(),
            false => guards::padded(self.passed.as_deref().unwrap_or_default()),
        }
    }
}

impl Feed {
    /// Returns the checkpoint of each shard that has one.
    pub async fn checkpoints(&self) -> Result<Vec<Checkpoint>> {
        let rows: Vec<Row> = self.view.load(CHECKPOINT_ID).await?;
        rows.into_iter()
            .map(|row| {
                Ok(Checkpoint {
                    stream: row.stream,
                    shard: row.position,
                    passed: row.passed,
                    finished: row.finished,
                    saved_at: rows::moment(row.saved_at)?,
                })
            })
            .collect()
    }

    /// Saves a checkpoint, unless a consumer that is further on has saved its own: what a consumer that lags behind saved
    /// last would be dropped by the stream long before the next start.
    pub async fn set_checkpoint(&self, checkpoint: &Checkpoint) -> Result<()> {
        let row = Row {
            id: CHECKPOINT_ID.to_owned(),
            position: checkpoint.shard.clone(),
            stream: checkpoint.stream.clone(),
            passed: checkpoint.passed.clone(),
            finished: checkpoint.finished,
            saved_at: checkpoint.saved_at.as_millisecond(),
            progress: checkpoint.progress(),
        };
        let ttl = checkpoint.finished.then(|| rows::expiry(self.now(), FINISHED_FOR));
        if self.view.save_newer(&row, PROGRESS, Age::SameOrOlder, ttl).await? {
            return Ok(());
        }
        let stored: Option<Row> = self.view.load_one(&RowKey::sorted(CHECKPOINT_ID, &checkpoint.shard)).await?;
        match stored {
            Some(stored) if stored.stream == row.stream && !stored.progress.is_empty() => Ok(()),
            // A row of an earlier release, or of a shard of another stream that has the same id.
            _ => Ok(self.view.save(&row, SaveMode::Any, ttl).await?),
        }
    }

    /// Deletes the checkpoint of a shard that no longer exists.
    pub async fn remove_checkpoint(&self, shard: &str) -> Result<()> {
        Ok(self.view.delete(&RowKey::sorted(CHECKPOINT_ID, shard)).await?)
    }
}
