//! The embedded nameservice as a copy of another one, under the positions of that one's feed.
//!
//! It takes no writes of its own. Its directory names the upstream, and can only be opened as a replica of that: as an
//! independent nameservice it would assign positions that the upstream assigns to other changes.

use std::path::Path;

use nameservice_model::{Call, Record, Result};

use crate::{
    Embedded, OpenError, Options, RECENT_BYTES_WITHOUT_LOG,
    directory::Directory,
    log::Log,
    state::{Action, Command, Replicated, State},
    writer::Shared,
};

impl Embedded {
    /// Opens the replica in a directory, which is created if it is missing. `upstream` names what it is a replica of.
    pub fn open_replica(directory: impl AsRef<Path>, upstream: &str, options: Options) -> Result<Self, OpenError> {
        let (directory, has_log) = Directory::any(directory.as_ref())?;
        if !has_log {
            Log::create(&directory)?;
        }
        let path = directory.log();
        let started = Log::open_replica(&path, upstream, options.checkpoint_bytes, options.hook.clone())?;
        Self::with_log(started, directory, &options, true)
    }

    /// Returns a replica without a directory.
    pub fn memory_replica(options: Options) -> Result<Self, OpenError> {
        let bytes = options.recent_bytes.unwrap_or(RECENT_BYTES_WITHOUT_LOG);
        Self::start(Shared::new(State::new(), bytes, options.retention), None, None, true)
    }

    /// Returns whether it is a replica, which takes no writes but [`adopt`](Self::adopt) and
    /// [`replicate`](Self::replicate).
    pub fn is_replica(&self) -> bool {
        self.inner.is_replica
    }

    /// Replaces everything with a snapshot of the upstream, at this position of its feed.
    pub async fn adopt(&self, records: Vec<Record>, position: u64) -> Result<()> {
        self.follow("adopt a snapshot", Action::Adopt { records, position }).await
    }

    /// Applies changes of the upstream, which must follow the position of the replica without a gap.
    pub async fn replicate(&self, changes: Vec<Replicated>) -> Result<()> {
        self.follow("take changes", Action::Replicate(changes)).await
    }

    async fn follow(&self, operation: &'static str, action: Action) -> Result<()> {
        self.inner.writer.write(operation, Command::new(&Call::fresh(), action)).await.map(drop)
    }
}
