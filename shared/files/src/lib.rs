//! The nameservice in the files that Fluree keeps: under a local directory, or in a bucket.
//!
//! ```no_run
//! use nameservice_files::{Files, Options};
//! use nameservice_model::{Address, Call, NameService, Publisher};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let names = Files::directory("/var/lib/fluree", true, Options::default())?;
//! let mydb = Address::parse("mydb")?;
//! let _ = names.create_ledger(&Call::fresh(), &mydb, None, None).await?;
//! let record = names.lookup(&mydb).await?;
//! # Ok(()) }
//! ```
//!
//! - `codec` reads and writes the files as Fluree 4.1.6 does, member by member, and reads those of earlier versions.
//! - `storage` is the directory (locks of files, staged and renamed writes) or the bucket (conditional writes).
//! - A write reads the files that it needs as records, has the state machine of the embedded backend apply it, and
//!   stores what differs, so every rule is implemented once, there.
//! - `feed` compares what is stored with what was stored before, and keeps the changes in an embedded log.
//! - [`examine`](Files::examine) finds what is wrong with the files, and repairs what can be repaired safely.

mod backend;
mod cache;
mod codec;
mod commit_log;
mod counts;
mod doctor;
mod engine;
mod feed;
mod fluree_config;
mod names;
mod outcomes;
mod plan;
mod scan;
mod slot;
mod storage;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use nameservice_embedded::Embedded;
use nameservice_model::{Capabilities, Capability, FeedKind, LostReplies};

pub use doctor::{CODES, Examined};
pub use fluree_config::{FlureePlace, InvalidFlureeConfig, fluree_place};
pub use nameservice_embedded::{Finding, Fix, Severity};
/// The crate of object stores, for those who bring their own to [`Bucket::over`].
pub use object_store;
pub use storage::{Bucket, BucketError, BucketOptions, DirectoryError};

use crate::{
    cache::Cache,
    feed::Feed,
    storage::{Directory, Storage},
};

/// How long an operation may take.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a directory is compared: one that sends no notifications, and one that does, as a safeguard.
const DIRECTORY_INTERVAL: Duration = Duration::from_secs(2);
/// How often a bucket is compared.
const BUCKET_INTERVAL: Duration = Duration::from_secs(5);

type Clock = dyn Fn() -> SystemTime + Send + Sync;

/// Options for opening files.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    timeout: Option<Duration>,
    interval: Option<Duration>,
    log: Option<Embedded>,
}

impl Options {
    /// Sets how long an operation may take: [`DEFAULT_TIMEOUT`].
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets how often the files are compared with what was last seen.
    #[must_use]
    pub const fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = Some(interval);
        self
    }

    /// Sets where the change feed is kept: an embedded nameservice without other writers. By default, it is in memory.
    #[must_use]
    pub fn with_log(mut self, log: Embedded) -> Self {
        self.log = Some(log);
        self
    }
}

/// The nameservice in files. Cheap to clone.
#[derive(Clone)]
pub struct Files {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) timeout: Duration,
    pub(crate) feed: Feed,
    pub(crate) cache: Cache,
    clock: RwLock<Arc<Clock>>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("storage", &self.inner.storage).finish_non_exhaustive()
    }
}

impl Files {
    /// Opens the files under a directory, the `filePath` of a Fluree server's storage. With `create`, a missing directory
    /// is created.
    pub fn directory(path: impl AsRef<Path>, create: bool, options: Options) -> Result<Self, DirectoryError> {
        let directory = Directory::open(path.as_ref(), create)?;
        if let Some(log) = &options.log {
            directory.expect(log.view().state().addresses());
        }
        let watched = Some(directory.clone());
        Ok(Self::open(Arc::new(directory), options, DIRECTORY_INTERVAL, watched))
    }

    /// Opens the files of a bucket.
    pub fn bucket(bucket: Bucket, options: Options) -> Self {
        Self::open(Arc::new(bucket), options, BUCKET_INTERVAL, None)
    }

    fn open(storage: Arc<dyn Storage>, options: Options, interval: Duration, watched: Option<Directory>) -> Self {
        let interval = options.interval.unwrap_or(interval);
        let inner = Inner {
            storage,
            timeout: options.timeout.unwrap_or(DEFAULT_TIMEOUT),
            feed: Feed::new(options.log, interval, watched),
            cache: Cache::default(),
            clock: RwLock::new(Arc::new(SystemTime::now)),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Sets another clock than the system's: it times leases and stamps records. All clones follow it.
    #[must_use]
    pub fn with_clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        *self.inner.clock.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(clock);
        self
    }

    pub(crate) fn now(&self) -> SystemTime {
        let clock = self.inner.clock.read().unwrap_or_else(PoisonError::into_inner).clone();
        clock()
    }

    /// Returns what files can do.
    pub fn supports(&self) -> Capabilities {
        let mut lacks = vec![
            Capability::AtomicReferences,
            Capability::Transactions,
            Capability::NamedGraphs,
            Capability::AnyAddress,
            Capability::Search,
        ];
        if !self.inner.storage.locks() {
            // An index is another object than the lease.
            lacks.push(Capability::LeasedIndexPushes);
        }
        let mut supports = Capabilities::ALL.without(&lacks);
        supports.lost_replies = LostReplies::StoredValues;
        supports.feed = FeedKind::Comparison;
        supports
    }
}
