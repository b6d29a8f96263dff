//! Fetch, pull, push and status.

use std::sync::Arc;

use nameservice_model::{Backend, Observer, Progress};
use serde::Serialize;

use super::{
    mover::{Mover, Way},
    tracking::Tracking,
};
use crate::{BackendSource, Found, Result, Source as _, report::Records};

/// The result of a fetch.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fetched {
    /// The position of the remote's feed before the first record was read, if it has a feed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// How many records the remote has.
    pub records: u64,
    /// How many of them are new or have changed since the last fetch.
    pub changed: u64,
    /// How many the remote no longer has.
    pub gone: u64,
    /// What could not be read as a record.
    pub unreadable: Records,
}

/// How to pull or push.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MoveOptions {
    /// Write nothing, and report what would be written.
    pub dry_run: bool,
    /// If both sides have moved on, treat the value with the higher watermark as the newer one.
    pub by_watermark: bool,
    /// Pull: set heads and indexes back if the remote was set back. No other writer may write the same records
    /// meanwhile.
    pub resets: bool,
}

impl MoveOptions {
    /// Writes nothing, and reports what would be written.
    #[must_use]
    pub const fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// If both sides have moved on, treats the value with the higher watermark as the newer one.
    #[must_use]
    pub const fn by_watermark(mut self, by_watermark: bool) -> Self {
        self.by_watermark = by_watermark;
        self
    }

    /// Sets heads and indexes back if the remote was set back.
    #[must_use]
    pub const fn resets(mut self, resets: bool) -> Self {
        self.resets = resets;
        self
    }
}

/// What a pull or a push has done, or what a status shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Moved {
    /// Nothing was written.
    pub dry_run: bool,
    /// Records that were written: local ones by a pull, the remote's by a push.
    pub moved: Records,
    /// How many records are the same on both sides.
    pub up_to_date: u64,
    /// Records that have moved on at the remote.
    pub behind: Records,
    /// Records that have moved on locally.
    pub ahead: Records,
    /// Records that have moved on at both sides. Nothing of them was written.
    pub diverged: Records,
    /// Records whose config is shown without its secrets on one side: whether it is the same is not known, and it was left
    /// unchanged. The other parts were moved.
    pub unknown: Records,
    /// Records that were changed on the other side since they were fetched or looked at: fetch again.
    pub overtaken: Records,
    /// Records that exist only on one side, because they were purged on the other.
    pub purged: Records,
    /// Records that were rejected by the side that they were to be written to.
    pub rejected: Records,
}

impl Moved {
    /// Returns whether nothing is left for a person to decide.
    pub fn is_settled(&self) -> bool {
        let left = [&self.diverged, &self.unknown, &self.overtaken, &self.purged, &self.rejected];
        left.iter().all(|records| records.is_empty())
    }
}

/// Remembers what a remote has. Nothing local is changed. Passes the records that were read to `observe`.
pub async fn fetch(
    remote: &Arc<dyn Backend>,
    prefix: Option<&str>,
    tracking: &Tracking,
    name: &str,
    observe: Observer<'_>,
) -> Result<Fetched> {
    let source = BackendSource::new(remote.clone()).with_prefix(prefix.map(str::to_owned));
    let number = tracking.begin(name)?;
    let mut reading = source.read().await?;
    let mut fetched = Fetched { position: reading.position(), ..Fetched::default() };
    loop {
        let found = reading.next().await?;
        if found.is_empty() {
            break;
        }
        let records = Found::records(found, &mut fetched.unreadable);
        fetched.records += records.len() as u64;
        fetched.changed += tracking.note(name, number, &records)?;
        observe(Progress { done: fetched.records, total: None });
    }
    // An interrupted fetch does not get here, so records that it has not seen do not count as gone.
    fetched.gone = tracking.end(name, number, fetched.position)?;
    Ok(fetched)
}

/// Compares all records with what was fetched. Writes nothing. Passes the records that were compared to `observe`, as [`pull`] and
/// [`push`] do.
pub async fn status(
    local: &Arc<dyn Backend>,
    remote: Option<&Arc<dyn Backend>>,
    prefix: Option<&str>,
    tracking: &Tracking,
    name: &str,
    observe: Observer<'_>,
) -> Result<Moved> {
    let options = MoveOptions::default().dry_run(true);
    Mover { local, remote, tracking, name, options: &options, way: Way::Nowhere, observe }.run(prefix).await
}

/// Moves local records to what was fetched, as far as they have not moved on: a concern is moved if it still has the
/// value that both sides last had, or one from the remote's history. Everything else is reported, and nothing of it is
/// written.
pub async fn pull(
    local: &Arc<dyn Backend>,
    remote: Option<&Arc<dyn Backend>>,
    prefix: Option<&str>,
    tracking: &Tracking,
    name: &str,
    options: &MoveOptions,
    observe: Observer<'_>,
) -> Result<Moved> {
    Mover { local, remote, tracking, name, options, way: Way::Pull, observe }.run(prefix).await
}

/// Moves the remote's records to the local ones, on the condition that the remote still has what was fetched: a value
/// that was not seen is never overwritten.
pub async fn push(
    local: &Arc<dyn Backend>,
    remote: &Arc<dyn Backend>,
    prefix: Option<&str>,
    tracking: &Tracking,
    name: &str,
    options: &MoveOptions,
    observe: Observer<'_>,
) -> Result<Moved> {
    Mover { local, remote: Some(remote), tracking, name, options, way: Way::Push, observe }.run(prefix).await
}
