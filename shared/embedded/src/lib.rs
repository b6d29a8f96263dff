//! The nameservice on one machine: a state machine in memory, and a log under it.
//!
//! ```no_run
//! use nameservice_embedded::{Embedded, Options};
//! use nameservice_model::{Address, Call, NameService, Publisher};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let names = Embedded::open("./data", Options::default())?;
//! let mydb = Address::parse("mydb")?;
//! let _ = names.create_ledger(&Call::fresh(), &mydb, None, None).await?;
//! let record = names.lookup(&mydb).await?;
//! # Ok(()) }
//! ```
//!
//! - [`state`] applies commands: deterministic, without I/O, clock or randomness.
//! - One thread writes (`writer`): it takes all waiting commands, applies them, writes their changes in one SQLite
//!   transaction with one sync, publishes the new state, and only then answers any of them. A value that can be read is
//!   never lost in a power failure.
//! - The log (`log`) is the change feed: a position is a change's place in it, from 1 without a gap.
//! - Readers take the published state, which never changes under them: they wait neither for the writer nor for a disk.
//!   Only changes that are no longer in memory, and histories, are read from the file.
//!
//! [`Embedded::memory`] is the same without a file.

mod backend;
mod backup;
mod contention;
mod directory;
mod doctor;
mod error;
mod feed;
mod log;
mod owner;
mod pace;
mod queue;
mod recent;
mod replica;
mod restore;
mod snapshots;
pub mod state;
#[cfg(test)]
mod tests;
mod timeline;
mod view;
mod writer;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

pub use backup::{BackupError, backup, backup_observed, copy_observed};
pub use doctor::{CODES, Examined, Scrubbed, examine, examine_observed};
pub use error::OpenError;
pub use nameservice_model::{Finding, Fix, Severity};
pub use restore::{RestoreError, Restored, restore_backup};
pub use state::Replicated;
pub use timeline::Timeline;
pub use view::View;

use crate::{
    directory::Directory,
    log::{CHECKPOINT_BYTES, Hook, Log, Readers, Started},
    state::State,
    writer::{Condition, FULL, Shared, Writer},
};

/// How long a change can be read by default.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);
/// How many bytes of changes are kept in memory beside the log.
const RECENT_BYTES: usize = 64 * 1024 * 1024;
/// How many bytes of changes are kept in memory if there is no log.
const RECENT_BYTES_WITHOUT_LOG: usize = 256 * 1024 * 1024;

/// The options for opening a nameservice.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options {
    /// How long a change can be read. Default: [`DEFAULT_RETENTION`].
    pub retention: Duration,
    recent_bytes: Option<usize>,
    checkpoint_bytes: u64,
    hook: Option<Arc<dyn Hook>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { retention: DEFAULT_RETENTION, recent_bytes: None, checkpoint_bytes: CHECKPOINT_BYTES, hook: None }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("retention", &self.retention).finish_non_exhaustive()
    }
}

impl Options {
    /// Sets how long a change can be read.
    #[must_use]
    pub const fn with_retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Sets how many bytes of changes are kept in memory.
    #[must_use]
    pub const fn with_recent_bytes(mut self, bytes: usize) -> Self {
        self.recent_bytes = Some(bytes);
        self
    }

    /// Sets how much the write-ahead file grows before it is emptied.
    #[must_use]
    pub const fn with_checkpoint_bytes(mut self, bytes: u64) -> Self {
        self.checkpoint_bytes = bytes;
        self
    }

    #[cfg(test)]
    fn with_hook(mut self, hook: Arc<dyn Hook>) -> Self {
        self.hook = Some(hook);
        self
    }
}

/// The nameservice of one directory, or of this process's memory. Cheap to clone; the last clone that is dropped closes
/// it.
#[derive(Clone)]
pub struct Embedded {
    inner: Arc<Inner>,
}

struct Inner {
    // Dropped in this order: the writer finishes, then the directory is free.
    writer: Writer,
    shared: Arc<Shared>,
    readers: Option<Arc<Readers>>,
    _directory: Option<Directory>,
    /// Whether it is fed by another nameservice, and takes no writes.
    is_replica: bool,
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").field("position", &self.view().position()).finish_non_exhaustive()
    }
}

impl Embedded {
    /// Opens the nameservice of a directory. The directory and the log are created if they are missing, but only after
    /// everything that exists was found to be usable.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let (directory, has_log) = Directory::any(directory.as_ref())?;
        if !has_log {
            Log::create(&directory)?;
        }
        Self::of(directory, options)
    }

    /// Opens the nameservice of a directory that has one. Creates nothing.
    pub fn open_existing(directory: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        Self::of(Directory::existing(directory.as_ref())?, options)
    }

    /// Returns an empty nameservice in memory. It is gone when its last clone is dropped.
    pub fn memory(options: Options) -> Result<Self, OpenError> {
        let bytes = options.recent_bytes.unwrap_or(RECENT_BYTES_WITHOUT_LOG);
        Self::start(Shared::new(State::new(), bytes, options.retention), None, None, false)
    }

    /// Sets another clock than the system's, for all clones. It times leases and stamps records and changes.
    #[must_use]
    pub fn with_clock(self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.inner.shared.set_clock(Arc::new(clock));
        self
    }

    /// Returns everything as it is now, at one position. It never changes, and reading it never waits.
    pub fn view(&self) -> View {
        View::new(self.inner.shared.published.load_full())
    }

    /// Completes when this process can no longer write, with the reason: a sync failed, or the writer has panicked. Reads
    /// continue. End the process then, so that its supervisor restarts it: what was answered is in the log.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.inner.shared.ended()
    }

    fn of(directory: Directory, options: Options) -> Result<Self, OpenError> {
        let path = directory.log();
        let started = Log::open(&path, options.checkpoint_bytes, options.hook.clone())?;
        Self::with_log(started, directory, &options, false)
    }

    fn with_log(
        started: Started,
        directory: Directory,
        options: &Options,
        is_replica: bool,
    ) -> Result<Self, OpenError> {
        let Started { log, state, full } = started;
        let shared = Shared::new(state, options.recent_bytes.unwrap_or(RECENT_BYTES), options.retention);
        if let Some(error) = full {
            tracing::warn!(%error, "{FULL}");
            shared.set(Condition::Full(FULL.to_owned()));
        }
        Self::start(shared, Some(log), Some(directory), is_replica)
    }

    fn start(
        shared: Shared,
        log: Option<Log>,
        directory: Option<Directory>,
        is_replica: bool,
    ) -> Result<Self, OpenError> {
        let shared = Arc::new(shared);
        let path = directory.as_ref().map(Directory::log);
        let readers = path.as_ref().map(|path| Arc::new(Readers::new(path)));
        let writer = Writer::start(shared.clone(), log)?;
        Ok(Self { inner: Arc::new(Inner { writer, shared, readers, _directory: directory, is_replica }) })
    }
}
