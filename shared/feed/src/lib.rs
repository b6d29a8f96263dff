//! The change feed: what the table's stream tells, in one order, exactly once, to be read from any position on.
//!
//! ```text
//! fluree-nameservice-feed                          id (S), position (S); ttl
//!
//!   id               position                what it holds
//!   feed#0           00000000000000000001    a change: address kind name branch source_type concern change watermark
//!   feed#0           00000000000000000002    previous payload occurred_at recorded_at, and `first`: where the
//!   …                                        transaction begins that appended it
//!   counter#0        -                       n: the last position; first, until: the last transaction's; epoch
//!   seen#<event id>  -                       at recorded_at kind source_type: where the stream record of that id has gone
//!   poison#0         <event id>              reason record recorded_at: what could not be read
//!   checkpoint#0     <shard id>              stream passed finished saved_at: how far a consumer has read
//!
//! by-address         address → position      changes alone, for histories
//! ```
//!
//! A batch is appended in one transaction: the counter goes from n to n + k if it is n, k rows are put, and for each one
//! row that remembers the stream record it came from, if there is none. So a record that is delivered twice is found,
//! two writers cannot interleave, and there is no position without a change (contract §9).
//!
//! [`append`](Feed::append) is for whoever consumes the stream; readers use [`nameservice_model::ChangeFeed`].

mod append;
mod checkpoint;
mod lag;
mod poison;
mod read;
mod rows;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use nameservice_model::{Error, Result};
use nameservice_views::{Report, View};
use tokio::sync::watch;

pub use append::{Appended, Entry, MAX_TRANSACTION};
pub use checkpoint::Checkpoint;
pub use lag::Lag;
pub use poison::DeadLetter;
pub use rows::{DESCRIPTION, FEED_ID};

use crate::rows::Counter;

/// How long a change can be read, unless configured otherwise.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// How often a waiting reader looks whether the feed has moved, where no writer in this process tells it.
const POLL: Duration = Duration::from_millis(250);
/// The same after some seconds without a change.
const MAX_POLL: Duration = Duration::from_secs(1);

/// The feed of one nameservice. Cheap to clone; clones share what they know of its position.
#[derive(Clone, Debug)]
pub struct Feed {
    view: View,
    retention: Duration,
    /// The position that this process has last seen or made. Readers wait on it; writers begin with it.
    moved: Arc<watch::Sender<u64>>,
    /// The counter as the writer in this process believes it to be; `u64::MAX` before it has looked.
    believed: Arc<AtomicU64>,
}

impl Feed {
    /// Over the feed's table, with a client that does not retry by itself (those of `nameservice_store` do not).
    pub fn new(client: aws_sdk_dynamodb::Client, table: impl AsRef<str>) -> Self {
        Self {
            view: View::new(client, table.as_ref(), &DESCRIPTION),
            retention: DEFAULT_RETENTION,
            moved: Arc::new(watch::Sender::new(0)),
            believed: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    /// The feed that belongs to a nameservice table, where no other is configured: `<table>-feed`.
    pub fn table_of(table: &str) -> String {
        format!("{table}-feed")
    }

    /// The same with another time to live for what is appended from now on.
    #[must_use]
    pub fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// The name of its table.
    pub fn table(&self) -> &str {
        self.view.table()
    }

    /// Creates the table, or says what an existing one lacks.
    pub async fn ensure_table(&self) -> Result<Report> {
        Ok(self.view.ensure_table().await?)
    }

    /// Says what the table lacks; an error where there is none.
    pub async fn check_table(&self) -> Result<Report> {
        Ok(self.view.check_table().await?)
    }

    /// Begins a new epoch: what was appended so far answers "gone" to readers, who begin again with a snapshot.
    ///
    /// For when changes have been lost before they came here: a stream keeps its records for 24 hours. Gives the first
    /// position of the new epoch.
    pub async fn begin_epoch(&self) -> Result<u64> {
        let mut backoff = self.view.backoff();
        loop {
            let counter = self.counter().await?;
            match self.view.transact(vec![counter.with_new_epoch(self.now())?]).await {
                Ok(Ok(())) => return Ok(counter.n + 2),
                // Somebody has appended meanwhile, or the answer was lost: look again.
                Ok(Err(_)) => {}
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
        let counter = counter.unwrap_or_default();
        self.saw(counter.n);
        Ok(counter)
    }

    /// Tells those who wait in this process that the feed has come at least this far.
    fn saw(&self, position: u64) {
        self.moved.send_if_modified(|seen| {
            let is_news = position > *seen;
            if is_news {
                *seen = position;
            }
            is_news
        });
    }

    fn believe(&self, position: u64) {
        self.believed.store(position, Ordering::Relaxed);
        self.saw(position);
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
