use std::{convert::Infallible, sync::Arc, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use nameservice_model::{Change, ChangeFeed, ChangePayload, Limit, Observer, Progress, Result, Run, chain};
use tokio::time::{Instant, sleep};

use crate::{Archive, ArchiveError, Segment, objects::failed, segment::line, store::Put};

const OPERATION: &str = "archive the feed";
/// How many changes are read together.
const RUN: Limit = match Limit::new(1000) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};
/// The maximum number of changes in one object, and the sizes in bytes after which no more are added: of their JSON, and of their payloads in
/// memory.
const MAX_CHANGES: usize = 10_000;
const MAX_BYTES: usize = 4 * 1024 * 1024;
const MAX_MEMORY: usize = 8 * MAX_BYTES;
/// How long a follower waits for the next change before it looks again.
const WAIT: Duration = Duration::from_secs(20);
/// Delays after failures: the first, and the longest.
const DELAYS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));

/// The progress of an archiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Archived {
    /// The last position in the archive.
    pub position: u64,
    /// How many changes this archiver has written.
    pub changes: u64,
    /// In how many objects.
    pub objects: u64,
    /// How many positions had expired before this archiver could write them.
    pub lost: u64,
    /// The first and the last position of the first gap among them, unless it is before the beginning of the archive.
    pub gap: Option<(u64, u64)>,
    /// Whether the feed was read to the end that it had at the beginning.
    pub is_complete: bool,
}

impl Archived {
    /// Returns an error that names the gap, if changes were lost after the archive had begun.
    pub fn without_gap(self) -> Result<Self> {
        let Some((first, last)) = self.gap else { return Ok(self) };
        let more = self.lost.saturating_sub(last.saturating_sub(first).saturating_add(1));
        Err(failed(OPERATION, ArchiveError::Lost { first, last, more }))
    }
}

/// Writes a feed to an archive. Any number of archivers may run at the same time: each object is written by one of them.
#[derive(Clone)]
pub struct Archiver {
    feed: Arc<dyn ChangeFeed>,
    archive: Archive,
    max_changes: usize,
}

impl std::fmt::Debug for Archiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archiver").field("archive", &self.archive).finish_non_exhaustive()
    }
}

/// What follows the end of the archive.
enum Next {
    /// An object, and whether the feed may hold more.
    Object(Segment, bool),
    /// Nothing yet.
    Nothing,
}

impl Archiver {
    /// Returns an archiver of a feed.
    pub fn new(feed: Arc<dyn ChangeFeed>, archive: Archive) -> Self {
        Self { feed, archive, max_changes: MAX_CHANGES }
    }

    /// Sets the maximum number of changes in one object: 10,000 by default.
    #[must_use]
    pub const fn with_max_changes(mut self, max_changes: usize) -> Self {
        self.max_changes = if max_changes == 0 { 1 } else { max_changes };
        self
    }

    /// Writes what follows the end of the archive, up to the end that the feed has now, or until this time.
    pub async fn catch_up(&self, until: Option<Instant>) -> Result<Archived> {
        self.catch_up_observed(until, &|_| {}).await
    }

    /// Archives like `catch_up`, and reports how many of the changes that the feed had at the beginning are archived.
    pub async fn catch_up_observed(&self, until: Option<Instant>, observe: Observer<'_>) -> Result<Archived> {
        let begin = self.end_of_this_feed().await?;
        let end = self.feed.position().await?;
        let total = end.checked_sub(begin);
        let mut archived = Archived { position: begin, ..Archived::default() };
        loop {
            observe(Progress { done: archived.position.saturating_sub(begin), total });
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(archived);
            }
            let (object, more) = match self.next(archived.position, end).await? {
                Next::Object(object, more) => (object, more),
                Next::Nothing => {
                    archived.is_complete = true;
                    return Ok(archived);
                }
            };
            match self.archive.put(&object).await? {
                Put::Written => {
                    archived.objects += 1;
                    archived.changes += object.changes().len() as u64;
                    if object.changes().is_empty() {
                        archived.lost += object.last - object.first + 1;
                        let (first, last) = (object.first, object.last);
                        tracing::error!(first, last, "changes had expired before they were archived");
                        if first > 1 {
                            archived.gap.get_or_insert((first, last));
                        }
                    }
                    archived.position = object.last;
                    // Writes continue meanwhile: those are for the next time.
                    if !more || archived.position >= end {
                        archived.is_complete = true;
                        return Ok(archived);
                    }
                }
                // Another archiver has written it, and its object may end at another position.
                Put::Taken => archived.position = self.archive.position().await?,
            }
        }
    }

    /// Follows the feed until the future is dropped: the changes of a period are written at its end. Failures are logged and retried
    /// with backoff.
    pub async fn run(&self, every: Duration) -> Infallible {
        let delays = || {
            let builder = ExponentialBuilder::default().with_min_delay(DELAYS.0).with_max_delay(DELAYS.1);
            builder.without_max_times().with_jitter().build()
        };
        let mut delay = delays();
        loop {
            let followed = async {
                let archived = self.catch_up(None).await?;
                self.feed.wait(archived.position, WAIT).await?;
                Ok::<_, nameservice_model::Error>(archived)
            };
            match followed.await {
                Ok(Archived { position, changes, objects, lost, .. }) => {
                    delay = delays();
                    if objects > 0 {
                        tracing::info!(position, changes, objects, lost, "archived");
                    }
                    sleep(every).await;
                }
                Err(error) => {
                    tracing::warn!(error = chain(&error), "not archived yet; trying again");
                    sleep(delay.next().unwrap_or(DELAYS.1)).await;
                }
            }
        }
    }

    /// Returns the last position of the archive, after checking that it is an archive of this feed: if the feed still holds
    /// the archive's last change, the two must be equal.
    async fn end_of_this_feed(&self) -> Result<u64> {
        let Some(last) = self.archive.last().await? else { return Ok(0) };
        let other = || {
            let archive = self.archive.shown().to_owned();
            failed(OPERATION, ArchiveError::OtherFeed { archive, end: last.last })
        };
        if self.feed.position().await? < last.last {
            return Err(other());
        }
        let Some(archived) = last.changes().last() else { return Ok(last.last) };
        match self.feed.changes(last.last - 1, Limit::ONE).await? {
            Run::Changes(found) => match found.first() {
                Some(change) if is_same(change, archived)? => Ok(last.last),
                _ => Err(other()),
            },
            // It has expired.
            Run::Gone { .. } => Ok(last.last),
        }
    }

    /// Returns what follows the end of the archive. If the feed has reached `until`, later changes are not waited for.
    async fn next(&self, end: u64, until: u64) -> Result<Next> {
        let (mut changes, mut bytes, mut memory) = (Vec::<Change>::new(), 0, 0);
        loop {
            let after = end + changes.len() as u64;
            let limit = Limit::new(RUN.get().min(self.max_changes - changes.len())).unwrap_or(Limit::ONE);
            let found = match self.feed.changes(after, limit).await? {
                Run::Changes(found) => found,
                Run::Gone { oldest } if changes.is_empty() && oldest > end + 1 => {
                    return Ok(Next::Object(Segment::gap(end + 1, oldest - 1), true));
                }
                // If the feed has just been replaced, the next check of the archive's last change reports it.
                Run::Gone { .. } if changes.is_empty() => match self.feed.position().await? > end {
                    true => return Err(failed(OPERATION, ArchiveError::Hidden(end))),
                    false => return Ok(Next::Nothing),
                },
                Run::Gone { .. } => return Ok(object(changes, true)),
            };
            if found.is_empty() {
                return Ok(object(changes, false));
            }
            for change in found {
                let expected = end + 1 + changes.len() as u64;
                if change.position != expected {
                    return Err(failed(OPERATION, ArchiveError::Sparse(expected)));
                }
                bytes += line(&change).map_err(|error| failed(OPERATION, error))?.len();
                memory += change.payload.memory();
                changes.push(change);
                if bytes >= MAX_BYTES || memory >= MAX_MEMORY || changes.len() == self.max_changes {
                    return Ok(object(changes, true));
                }
            }
            if end + changes.len() as u64 >= until {
                return Ok(object(changes, false));
            }
        }
    }
}

fn object(changes: Vec<Change>, more: bool) -> Next {
    match Segment::of(changes) {
        Some(object) => Next::Object(object, more),
        None => Next::Nothing,
    }
}

/// Returns whether two changes are the same. A payload that is omitted in one of them does not count: so a release reads it that does not
/// know how the other stored it.
fn is_same(change: &Change, archived: &Change) -> Result<bool> {
    let is_omitted = [change, archived].map(|change| change.payload == ChangePayload::Omitted).contains(&true);
    let of = |change: &Change| match is_omitted {
        true => line(&Change { payload: ChangePayload::Omitted, ..change.clone() }),
        false => line(change),
    };
    let lines = of(change).and_then(|change| Ok((change, of(archived)?)));
    let (change, archived) = lines.map_err(|error| failed(OPERATION, error))?;
    Ok(change == archived)
}
