use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use jiff::Timestamp;
use metrics::{counter, gauge};
use nameservice_model::{Address, Change, ChangeFeed, Cursor, Limit, NameService, Record, Result, Run, chain};
use tokio::time::{Instant, sleep};

use crate::{Checkpoint, Over, Projection, RowWrite, Rows};

/// How many changes are processed together.
const RUN: Limit = match Limit::new(500) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};
/// How many records of a snapshot are read together.
const PAGE: Limit = match Limit::new(500) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};
/// How long a follower waits for the next change before it looks again.
const WAIT: Duration = Duration::from_secs(20);
/// Delays after failures: the first, and the longest.
const DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The progress of a projector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The position of the feed that the rows include.
    pub position: u64,
    /// How many changes were processed.
    pub changes: u64,
    /// How many rows were written for them, or were already stored.
    pub rows: u64,
    /// Whether the rows were read from a snapshot first.
    pub rebuilt: bool,
    /// Whether the feed was read to its end.
    pub is_complete: bool,
}

/// How far a read model is behind its feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The position of the feed that the rows include.
    pub position: u64,
    /// The last position of the feed.
    pub end: u64,
    /// How old the last change in the rows is while others follow it; zero at the end of the feed.
    pub behind: Duration,
}

/// Keeps the rows of a read model up to date with the feed. Any number of projectors may work on the same rows: they
/// repeat each other's work, and the rows are the same.
pub struct Projector<P: Projection> {
    projection: Arc<P>,
    names: Arc<dyn NameService>,
    feed: Arc<dyn ChangeFeed>,
    rows: Arc<dyn Rows<P::Row>>,
}

impl<P: Projection> Clone for Projector<P> {
    fn clone(&self) -> Self {
        let Self { projection, names, feed, rows } = self;
        Self { projection: projection.clone(), names: names.clone(), feed: feed.clone(), rows: rows.clone() }
    }
}

impl<P: Projection> std::fmt::Debug for Projector<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Projector").field("projection", &self.projection.name()).finish_non_exhaustive()
    }
}

/// The outcome of processing a run of changes.
enum Taken {
    /// These were processed.
    Some { checkpoint: Checkpoint, changes: u64, rows: u64 },
    /// There are none yet.
    None,
    /// The feed does not hold what follows.
    Gone,
}

impl<P: Projection> Projector<P> {
    /// Returns the projector of a read model of this backend into these rows.
    pub fn new(
        projection: P,
        names: Arc<dyn NameService>,
        feed: Arc<dyn ChangeFeed>,
        rows: Arc<dyn Rows<P::Row>>,
    ) -> Self {
        Self { projection: Arc::new(projection), names, feed, rows }
    }

    /// Processes the changes after the checkpoint, up to the end of the feed, or until this time. If there is no checkpoint, or
    /// the feed no longer holds the next change, the rows are rebuilt from a snapshot first.
    pub async fn catch_up(&self, until: Option<Instant>) -> Result<Progress> {
        let mut progress = Progress::default();
        let mut checkpoint = match self.rows.checkpoint().await? {
            Some(checkpoint) => checkpoint,
            None => {
                progress.rebuilt = true;
                self.rebuild().await?
            }
        };
        loop {
            progress.position = checkpoint.position;
            if until.is_some_and(|until| Instant::now() >= until) {
                return Ok(progress);
            }
            match self.take(&checkpoint).await? {
                Taken::Some { checkpoint: next, changes, rows } => {
                    (checkpoint, progress.changes, progress.rows) =
                        (next, progress.changes + changes, progress.rows + rows);
                    // There may be more.
                    if changes == RUN.get() as u64
                        && let Ok(end) = self.feed.position().await
                    {
                        self.report(&checkpoint, end);
                    }
                }
                Taken::None => {
                    progress.is_complete = true;
                    self.report(&checkpoint, checkpoint.position);
                    return Ok(progress);
                }
                Taken::Gone => {
                    progress.rebuilt = true;
                    checkpoint = self.rebuild().await?;
                }
            }
        }
    }

    /// Follows the feed until the future is dropped. Failures are logged and retried with backoff.
    pub async fn run(self) {
        let delays = || {
            let builder = ExponentialBuilder::default().with_min_delay(DELAYS.0).with_max_delay(DELAYS.1);
            builder.without_max_times().with_jitter().build()
        };
        let mut delay = delays();
        loop {
            match self.follow(&mut || delay = delays()).await {
                Ok(never) => match never {},
                Err(error) => {
                    counter!("nameservice_projection_failures_total", "projection" => self.name()).increment(1);
                    // As far as that is known while something fails.
                    let _ = self.lag().await;
                    tracing::warn!(
                        projection = self.projection.name(),
                        error = chain(&error),
                        "not projected yet; trying again"
                    );
                    sleep(delay.next().unwrap_or(DELAYS.1)).await;
                }
            }
        }
    }

    async fn follow(&self, done: &mut (impl FnMut() + Send)) -> Result<std::convert::Infallible> {
        loop {
            let position = self.catch_up(None).await?.position;
            done();
            self.feed.wait(position, WAIT).await?;
        }
    }

    /// Writes the row of every record, from a snapshot, while records change, and removes the rows of records that are gone.
    /// Returns the position from which the feed continues.
    pub async fn rebuild(&self) -> Result<Checkpoint> {
        // Read before the position, since another projector of these rows may advance beyond it meanwhile.
        let before = self.rows.checkpoint().await?;
        // Taken before the first page, so that changes made while the pages are read follow it.
        let position = self.feed.position().await?;
        let checkpoint = Checkpoint { position, recorded_at: now() };
        if before.is_some_and(|before| before.position > position) {
            tracing::warn!(
                projection = self.projection.name(),
                position,
                "the feed was replaced: the rows are rebuilt"
            );
            self.rows.clear().await?;
        }
        let (mut cursor, mut count): (Option<Cursor>, u64) = (None, 0);
        loop {
            let page = self.names.snapshot(PAGE, cursor.as_ref(), &|_| true).await?;
            let write = |record: &Record| RowWrite {
                address: record.address.clone(),
                version: position,
                row: self.projection.row(record),
            };
            let writes: Vec<_> = page.items.iter().map(write).collect();
            count += writes.len() as u64;
            self.rows.write(writes, Over::SameOrOlder).await?;
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        loop {
            let gone = self.rows.older_than(position).await?;
            if gone.is_empty() {
                break;
            }
            let removed = gone.into_iter().map(|address| RowWrite { address, version: position, row: None });
            self.rows.write(removed.collect(), Over::Older).await?;
        }
        self.rows.advance(&checkpoint).await?;
        tracing::info!(projection = self.projection.name(), records = count, position, "read from a snapshot");
        Ok(checkpoint)
    }

    /// Returns how far the rows are behind the feed, and records it as metrics. `None` before the first rows.
    pub async fn lag(&self) -> Result<Option<Lag>> {
        let Some(checkpoint) = self.rows.checkpoint().await? else { return Ok(None) };
        let end = self.feed.position().await?;
        Ok(Some(self.report(&checkpoint, end)))
    }

    fn report(&self, checkpoint: &Checkpoint, end: u64) -> Lag {
        let age = now().duration_since(checkpoint.recorded_at).unsigned_abs();
        let behind = if end > checkpoint.position { age } else { Duration::ZERO };
        let position = checkpoint.position;
        gauge!("nameservice_projection_position", "projection" => self.name()).set(position as f64);
        gauge!("nameservice_projection_lag_changes", "projection" => self.name())
            .set(end.saturating_sub(position) as f64);
        gauge!("nameservice_projection_lag_seconds", "projection" => self.name()).set(behind.as_secs_f64());
        Lag { position, end, behind }
    }

    fn name(&self) -> String {
        self.projection.name().to_owned()
    }

    async fn take(&self, from: &Checkpoint) -> Result<Taken> {
        let changes = match self.feed.changes(from.position, RUN).await? {
            Run::Gone { .. } => return Ok(Taken::Gone),
            Run::Changes(changes) => changes,
        };
        let Some(last) = changes.last() else { return Ok(Taken::None) };
        let checkpoint = Checkpoint { position: last.position, recorded_at: last.recorded_at };
        let writes = self.writes(&changes).await?;
        let rows = writes.len() as u64;
        self.rows.write(writes, Over::Older).await?;
        self.rows.advance(&checkpoint).await?;
        let changes = changes.len() as u64;
        counter!("nameservice_projection_changes_total", "projection" => self.name()).increment(changes);
        Ok(Taken::Some { checkpoint, changes, rows })
    }

    /// Returns the rows of the records that changed. Each record is read once, after its last change in the run.
    async fn writes(&self, changes: &[Change]) -> Result<Vec<RowWrite<P::Row>>> {
        let mut versions: BTreeMap<&Address, u64> = BTreeMap::new();
        for change in changes {
            versions.insert(&change.address, change.position);
        }
        let addresses: Vec<Address> = versions.keys().map(|address| (*address).clone()).collect();
        let found = self.names.lookup_all(&addresses).await?;
        let found: BTreeMap<&Address, &Record> = found.iter().map(|record| (&record.address, record)).collect();
        let row = |address: &Address| found.get(address).and_then(|record| self.projection.row(record));
        Ok(versions
            .into_iter()
            .map(|(address, version)| RowWrite { address: address.clone(), version, row: row(address) })
            .collect())
    }
}

fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::UNIX_EPOCH)
}
