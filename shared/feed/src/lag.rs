//! Checks whether the feed keeps up with its table.

use std::time::Duration;

use nameservice_model::{Change, ChangeFeed as _, ChangedPart, Limit, Result, Run};
use nameservice_store::doctor::Written;

use crate::Feed;

/// How far back the feed is searched for the last change of a concern of a record.
const CHANGES_SEARCHED: usize = 50;

/// How long a stream keeps its records.
const STREAM_KEEPS: Duration = Duration::from_secs(24 * 3600);

/// Which of the last writes to its table a feed holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// The feed holds nothing at all.
    pub is_empty: bool,
    /// How many of the writes were looked for: those that are not older than the feed, or those of the last day if it
    /// is empty.
    pub looked_for: usize,
    /// Those of them that it does not hold, oldest first.
    pub missing: Vec<Written>,
}

impl Feed {
    /// Looks for writes by their watermarks in the last changes of their records. This takes one request for each
    /// write, and up to eight for the oldest change, whatever the size of table and feed. The writes should be old
    /// enough for the feed to have them.
    pub async fn lag(&self, writes: &[Written]) -> Result<Lag> {
        let oldest = self.oldest_change().await?;
        // Older writes may date from before the feed, or may have expired from it.
        let begun_ms = match &oldest {
            Some(oldest) => oldest.recorded_at.as_millisecond(),
            None => self.now().as_millisecond() - i64::try_from(STREAM_KEEPS.as_millis()).unwrap_or(i64::MAX),
        };
        let mut lag = Lag { is_empty: oldest.is_none(), ..Lag::default() };
        for written in writes.iter().filter(|written| written.at_ms >= begun_ms) {
            lag.looked_for += 1;
            if lag.is_empty || !shows(&self.latest(&written.address, CHANGES_SEARCHED).await?, written) {
                lag.missing.push(written.clone());
            }
        }
        lag.missing.sort_by_key(|written| written.at_ms);
        Ok(lag)
    }

    async fn oldest_change(&self) -> Result<Option<Change>> {
        let mut run = self.changes(0, Limit::ONE).await?;
        if let Run::Gone { oldest } = run {
            run = self.changes(oldest.saturating_sub(1), Limit::ONE).await?;
        }
        Ok(match run {
            Run::Changes(changes) => changes.into_iter().next(),
            // It expired just now. The next call finds the next one.
            Run::Gone { .. } => None,
        })
    }
}

fn shows(changes: &[Change], written: &Written) -> bool {
    match changes.iter().find(|change| change.part == ChangedPart::Concern(written.concern)) {
        Some(last) => last.watermark >= written.watermark,
        // With so many other changes since, it is unknown whether the feed holds the write.
        None => changes.len() == CHANGES_SEARCHED,
    }
}
