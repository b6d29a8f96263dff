//! Checkpoints of sinks that follow the feed: each has its own, so that none waits for another, and the feed for none.

use nameservice_model::Result;
use nameservice_views::{Age, Error, RowKey, SaveMode};
use serde::{Deserialize, Serialize};

use crate::Feed;

const SINK_ID: &str = "sink#0";
const REACHED: &str = "reached";

#[derive(Serialize, Deserialize)]
struct Row {
    id: String,
    /// The sink's name.
    position: String,
    reached: u64,
}

impl Feed {
    /// Returns the position up to which a sink has everything; `None` if it has not begun.
    pub async fn reached(&self, sink: &str) -> Result<Option<u64>> {
        let row: Option<Row> = self.view.load_one(&RowKey::sorted(SINK_ID, sink)).await?;
        Ok(row.map(|row| row.reached))
    }

    /// Saves that a sink begins after a position, unless it has begun. Returns the position up to which it has everything.
    pub async fn begin_sink(&self, sink: &str, position: u64) -> Result<u64> {
        match self.view.save(&row(sink, position), SaveMode::Init, None).await {
            Ok(()) => Ok(position),
            Err(Error::AlreadyExists { .. }) => Ok(self.reached(sink).await?.unwrap_or(position)),
            Err(error) => Err(error.into()),
        }
    }

    /// Saves that a sink has everything up to a position. Returns `false` if it already had.
    pub async fn set_reached(&self, sink: &str, position: u64) -> Result<bool> {
        Ok(self.view.save_newer(&row(sink, position), REACHED, Age::Older, None).await?)
    }

    /// Saves that a sink continues after a position, even if it was further on: that was another feed, or one that was lost.
    pub async fn reset_reached(&self, sink: &str, position: u64) -> Result<()> {
        Ok(self.view.save(&row(sink, position), SaveMode::Any, None).await?)
    }

    /// Returns the position before the segment with a change, for a sink that begins with this segment; the position before the change
    /// if it can no longer be read.
    pub async fn before(&self, position: u64) -> Result<u64> {
        let previous = position.saturating_sub(1);
        let segment = self.next_segment(previous).await?.filter(|found| !found.is_former());
        Ok(segment.map_or(previous, |found| found.first.saturating_sub(1).min(previous)))
    }
}

fn row(sink: &str, reached: u64) -> Row {
    Row { id: SINK_ID.to_owned(), position: sink.to_owned(), reached }
}
