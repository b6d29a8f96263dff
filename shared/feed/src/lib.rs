//! The change feed: the changes of the table's stream, in one order, exactly once, readable from any position.
//!
//! ```text
//! fluree-nameservice-feed                                    id (S), position (S); ttl
//!
//!   id                 position                              what it holds
//!   feed#0             00000000000000000020                  a segment: the changes of one transaction, under the position of
//!   feed#0             00000000000000000021                  the last one: first recorded_at format changes (gzip of JSON)
//!   …
//!   counter#0          -                                     n: the last position; first, until: the last transaction's;
//!                                                            epoch form recorded_at
//!   history#<address>  <sequence number, 40 digits><event id>  a stream record that was appended: at, its position; kind
//!                                                            source_type concern change watermark previous payload
//!                                                            payload_at occurred_at recorded_at
//!   payload#<stream record>  -                               a large payload, to which segment and history refer (gzip of JSON)
//!   poison#0           <event id>                            reason record recorded_at: what could not be read
//!   tried#0            <event id>                            unanswered end: how many tries of a stream record have not ended
//!   passed#0           -                                 name end passed_at: which stream record was passed over last
//!   checkpoint#0       <shard id>                            stream passed finished saved_at: how far a consumer has read
//!   sink#0             <name>                                reached: the position up to which a sink has everything
//! ```
//!
//! A batch is appended in one transaction: the counter goes from n to n + k if it is n, the segment of k changes is
//! put, and for each of them one row that remembers the stream record it came from, if there is none. So a record that
//! is delivered twice is recognised, two writers cannot interleave, and there is no position without a change. The same
//! row is the change's place in the history of its record (docs/specification.md, Change feed).
//!
//! In the first form of these rows, each change was a row, a guard and an entry of an index. The first append to such a
//! feed begins a new epoch.
//!
//! [`append`](Feed::append) is for the stream's consumer; readers use [`nameservice_model::ChangeFeed`].

mod append;
mod checkpoint;
mod guards;
mod history;
mod lag;
mod payloads;
mod poison;
mod read;
mod rows;
mod segments;
mod sinks;
mod tries;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use nameservice_model::{Error, Result};
use nameservice_views::{Outcome, Report, RetryPolicy, View};
use tokio::sync::watch;

pub use append::{Appended, Entry, MAX_TRANSACTION};
pub use checkpoint::Checkpoint;
pub use lag::Lag;
pub use poison::DeadLetter;
pub use rows::{DESCRIPTION, FEED_ID};
pub use tries::{Tried, Tries};

use crate::rows::Counter;

/// How long a change can be read by default.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// How often a waiting reader polls the feed, if no writer in this process notifies it.
const POLL: Duration = Duration::from_millis(250);
/// How often it polls after some seconds without a change.
const MAX_POLL: Duration = Duration::from_secs(1);

/// The feed of one nameservice. Cheap to clone; clones share what they know of its position.
#[derive(Clone, Debug)]
pub struct Feed {
    view: View,
    retention: Duration,
    clock: fn() -> Timestamp,
    /// The last position that this process has read or appended. Readers wait on it; writers start from it.
    moved: Arc<watch::Sender<u64>>,
    /// The counter as the writer in this process last observed it; `u64::MAX` before its first read.
    observed: Arc<AtomicU64>,
    /// Whether another writer had moved the counter when it was last read.
    is_shared: Arc<AtomicBool>,
    /// The reason why the feed delivers nothing, if a consumer in this process has found that out.
    outage: Arc<Mutex<Option<String>>>,
}

impl Feed {
    /// Creates the feed of a table, with a client whose own retries are turned off (as those of `nameservice_store` are).
    pub fn new(client: aws_sdk_dynamodb::Client, table: impl AsRef<str>) -> Self {
        Self {
            view: View::new(client, table.as_ref(), &DESCRIPTION),
            retention: DEFAULT_RETENTION,
            clock: Timestamp::now,
            moved: Arc::new(watch::Sender::new(0)),
            observed: Arc::new(AtomicU64::new(u64::MAX)),
            is_shared: Arc::default(),
            outage: Arc::default(),
        }
    }

    /// Returns the default name of the feed's table: `<table>-feed`.
    pub fn table_of(table: &str) -> String {
        format!("{table}-feed")
    }

    /// Returns the same feed with another retention for changes that are appended from now on.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Returns the same feed with another retry policy.
    #[must_use]
    pub fn with_retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.view = self.view.with_retry_policy(policy);
        self
    }

    /// Returns the same feed with another clock than the system's. It stamps rows and decides what has expired.
    #[must_use]
    pub fn with_clock(mut self, clock: fn() -> Timestamp) -> Self {
        self.clock = clock;
        self
    }

    /// Sets why the feed delivers nothing; `None` once it does again. All clones share this.
    pub fn set_outage(&self, reason: Option<String>) {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Returns the name of its table.
    pub fn table(&self) -> &str {
        self.view.table()
    }

    /// Creates the table, or reports what an existing one lacks.
    pub async fn ensure_table(&self) -> Result<Report> {
        Ok(self.view.ensure_table().await?)
    }

    /// Reports what the table lacks. Returns an error if there is no table.
    pub async fn check_table(&self) -> Result<Report> {
        Ok(self.view.check_table().await?)
    }

    /// Starts a new epoch: readers can no longer use earlier positions, and start again from a snapshot. Returns the
    /// first position of the new epoch.
    ///
    /// This is for a stream whose records expired before they were consumed: a stream keeps them for 24 hours.
    pub async fn begin_epoch(&self) -> Result<u64> {
        Ok(self.begin_epoch_where(|_| true).await?.epoch)
    }

    /// Starts a new epoch if `is_due` holds for the counter. Returns the counter after that.
    async fn begin_epoch_where(&self, is_due: impl Fn(&Counter) -> bool) -> Result<Counter> {
        let mut backoff = self.view.backoff();
        loop {
            let counter = self.counter().await?;
            if !is_due(&counter) {
                return Ok(counter);
            }
            match self.view.transact(vec![counter.with_new_epoch(self.now())?]).await {
                Ok(Outcome::Applied(())) => return Ok(counter.in_new_epoch()),
                // Another writer has appended meanwhile, or the reply was lost: read again.
                Ok(Outcome::Rejected(_)) => {}
                Err(error) if error.is_outcome_unknown() => {}
                Err(error) => return Err(error.into()),
            }
            if !backoff.pause().await {
                return Err(Error::Unavailable { operation: "begin an epoch of the feed", source: None });
            }
        }
    }

    async fn counter(&self) -> Result<Counter> {
        let counter: Option<Counter> = self.view.load_one(&Counter::key()).await?;
        let mut counter = counter.unwrap_or_default();
        if counter.is_former() {
            // Rows of the first form are not read.
            counter.epoch = counter.n + 1;
        }
        self.observed(counter.n);
        Ok(counter)
    }

    /// Notifies waiting readers in this process that the feed has reached this position.
    fn observed(&self, position: u64) {
        self.moved.send_if_modified(|seen| {
            let is_news = position > *seen;
            if is_news {
                *seen = position;
            }
            is_news
        });
    }

    fn observe(&self, position: u64) {
        self.observed.store(position, Ordering::Relaxed);
        self.observed(position);
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }
}
