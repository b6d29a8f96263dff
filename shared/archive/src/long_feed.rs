use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nameservice_model::{Address, ChangeFeed, History, HistoryQuery, Limit, Result, Run};

use crate::Archive;

/// A change feed with its archive behind it: what the feed no longer holds is read from the archive. Cheap to clone.
///
/// The feed is always asked first, and the archive only for what the feed no longer holds.
#[derive(Clone)]
pub struct LongFeed {
    feed: Arc<dyn ChangeFeed>,
    archive: Archive,
}

impl std::fmt::Debug for LongFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LongFeed").field("archive", &self.archive).finish_non_exhaustive()
    }
}

impl LongFeed {
    /// Returns a feed with its archive.
    pub fn new(feed: Arc<dyn ChangeFeed>, archive: Archive) -> Self {
        Self { feed, archive }
    }

    /// Returns whether the feed holds everything that follows a position.
    async fn holds(&self, after: u64) -> Result<bool> {
        let found = self.feed.changes(after, Limit::ONE).await?;
        Ok(!matches!(found, Run::Gone { oldest } if oldest > after.saturating_add(1)))
    }
}

#[async_trait]
impl ChangeFeed for LongFeed {
    async fn position(&self) -> Result<u64> {
        self.feed.position().await
    }

    fn outage(&self) -> Option<String> {
        self.feed.outage()
    }

    fn is_immediate(&self) -> bool {
        self.feed.is_immediate()
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        match self.feed.changes(after, limit).await? {
            Run::Gone { oldest } if oldest > after.saturating_add(1) => {
                match self.archive.changes(after, limit).await? {
                    // The archive has not reached this position, or is empty.
                    Run::Changes(changes) if changes.is_empty() => Ok(Run::Gone { oldest }),
                    // A gap of the archive, which may end before the feed begins.
                    Run::Gone { oldest: archived } if archived > after.saturating_add(1) => {
                        Ok(Run::Gone { oldest: archived.min(oldest) })
                    }
                    Run::Gone { .. } => Ok(Run::Gone { oldest }),
                    archived => Ok(archived),
                }
            }
            found => Ok(found),
        }
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        self.feed.wait(after, at_most).await
    }

    /// If the feed does not hold the whole answer, the archive is asked for what it holds, and the feed for the rest.
    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        let recent = self.feed.history(address, query).await?;
        // In this order, so that changes that expire meanwhile are not missed.
        if query.newest_first && recent.more_after.is_some() || self.holds(query.after).await? {
            return Ok(recent);
        }
        let end = self.archive.position().await?;
        let archived = HistoryQuery { before: Some(query.before.unwrap_or(u64::MAX).min(end + 1)), ..*query };
        let recent = HistoryQuery { after: query.after.max(end), ..*query };
        // Which of the two may hold changes in the requested range.
        let is_archived = query.after < end;
        let is_recent = query.before.is_none_or(|before| before > end + 1);
        if !is_archived {
            return self.feed.history(address, query).await;
        }
        if !is_recent {
            return self.archive.history(address, &archived).await;
        }
        let (first, second): ((&dyn ChangeFeed, _), (&dyn ChangeFeed, _)) = match query.newest_first {
            true => ((self.feed.as_ref(), recent), (&self.archive, archived)),
            false => ((&self.archive, archived), (self.feed.as_ref(), recent)),
        };
        let mut history = first.0.history(address, &first.1).await?;
        if history.more_after.is_some() {
            return Ok(history);
        }
        let left = query.limit.get().saturating_sub(history.changes.len());
        let Ok(limit) = Limit::new(left) else {
            // The next page begins in the other of the two.
            let more_after = Some(if query.newest_first { end + 1 } else { end });
            return Ok(History { more_after, ..history });
        };
        let rest = second.0.history(address, &HistoryQuery { limit, ..second.1 }).await?;
        history.changes.extend(rest.changes);
        history.more_after = rest.more_after;
        Ok(history)
    }
}
