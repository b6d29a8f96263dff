//! The change feed: the recent part of the log from memory, the rest from the file.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nameservice_model::{Address, Change, ChangeFeed, ChangedPart, Error, History, HistoryQuery, Limit, Result, Run};
use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    Embedded,
    log::{Entry, HistoryRange, Readers, rows},
};

const READ: &str = "read the feed";
/// The most changes of one answer. A reader that wants more continues after the last one.
const MAX_CHANGES: usize = 4_096;
/// How many changes a history looks through for one answer if only one part is requested.
const HISTORY_LOOKS: usize = 5_000;

#[async_trait]
impl ChangeFeed for Embedded {
    async fn position(&self) -> Result<u64> {
        Ok(self.inner.shared.published.load().position())
    }

    fn is_immediate(&self) -> bool {
        true
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        let shared = &self.inner.shared;
        let limit = limit.get().min(MAX_CHANGES);
        let position = shared.published.load().position();
        if after == position {
            return Ok(Run::Changes(Vec::new()));
        }
        // This feed has never reached the position: it is from another feed, or from one that was lost.
        if after > position {
            return Ok(Run::Gone { oldest: self.oldest(position).await? });
        }
        // Changes are in memory a moment before they are published.
        let limit = limit.min(usize::try_from(position - after).unwrap_or(usize::MAX));
        let changes = match (shared.recent.after(after, limit), &self.inner.readers) {
            (Some(entries), _) => decode(entries)?,
            (None, Some(readers)) => {
                let readers = readers.clone();
                blocking(move || readers.changes(after, position, limit)).await?
            }
            (None, None) => Vec::new(),
        };
        let expired_before = shared.expired_before();
        match changes.first() {
            Some(first) if first.position == after + 1 && first.recorded_at.as_millisecond() >= expired_before => {
                Ok(Run::Changes(changes))
            }
            _ => Ok(Run::Gone { oldest: self.oldest(position).await? }),
        }
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        let shared = &self.inner.shared;
        let mut moved = shared.moved.subscribe();
        // It falls if a replica takes a new snapshot, perhaps before this call: then nothing may ever follow the position. In
        // each case, the caller checks the position again.
        let _ = timeout(at_most, moved.wait_for(|_| shared.published.load().position() != after)).await;
        Ok(())
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        let position = self.inner.shared.published.load().position();
        let limit = query.limit.get().min(MAX_CHANGES);
        let range = HistoryRange {
            after: query.after,
            // The log may hold changes that are not durable yet.
            until: query.before.map_or(position, |before| position.min(before.saturating_sub(1))),
            newest_first: query.newest_first,
        };
        let looks = if query.part.is_some() { limit.max(HISTORY_LOOKS) } else { limit };
        let found = match &self.inner.readers {
            Some(readers) => {
                let (readers, address) = (readers.clone(), address.clone());
                blocking(move || readers.history(address.as_str(), range, looks)).await?
            }
            None => decode(self.inner.shared.recent.of(address.as_str(), range, looks))?,
        };
        let (looked_at, last) = (found.len(), found.last().map(|change| change.position));
        let expired_before = self.inner.shared.expired_before();
        let wanted = |change: &Change| {
            query.part.is_none_or(|part: ChangedPart| part == change.part)
                && change.recorded_at.as_millisecond() >= expired_before
        };
        let mut changes: Vec<Change> = found.into_iter().filter(wanted).collect();
        let more_after = match changes.len() {
            count if count >= limit => {
                changes.truncate(limit);
                changes.last().map(|change| change.position)
            }
            _ if looked_at == looks => last,
            _ => None,
        };
        Ok(History { changes, more_after })
    }
}

impl Embedded {
    /// Returns the oldest position that can be read; the next one if everything has expired.
    async fn oldest(&self, position: u64) -> Result<u64> {
        let at = self.inner.shared.expired_before();
        let oldest = match &self.inner.readers {
            Some(readers) => {
                let readers = readers.clone();
                blocking(move || readers.oldest(at)).await?
            }
            None => self.inner.shared.recent.oldest(at),
        };
        Ok(oldest.unwrap_or(position + 1))
    }

    pub(crate) fn readers(&self) -> Option<Arc<Readers>> {
        self.inner.readers.clone()
    }
}

fn decode(entries: Vec<Entry>) -> Result<Vec<Change>> {
    let decoded = |entry: Entry| rows::decode_change(entry.position, &entry.address, &entry.body);
    let changes: Result<_, _> = entries.into_iter().map(decoded).collect();
    changes.map_err(|error| Error::Store { operation: READ, source: error.into() })
}

/// Runs a read of a file on a thread where it blocks no other task.
pub(crate) async fn blocking<T: Send + 'static>(read: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(read).await.map_err(|error| Error::Store { operation: READ, source: error.into() })?
}
