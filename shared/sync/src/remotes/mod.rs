//! Remotes: other nameservices with which records are exchanged by hand, as git does with commits.
//!
//! - [`Remotes`] is the list of them, a TOML file.
//! - [`Tracking`] remembers for each record what the remote had at the last fetch, and the value at which both sides
//!   last were the same. It is an SQLite file beside the list.
//! - [`fetch`] brings the tracking up to date, [`status`] compares, [`pull`] moves local records to what was fetched, and
//!   [`push`] moves the remote's to the local ones.

mod list;
mod mover;
mod ops;
mod sync_state;
mod tracking;

pub use list::{Remote, Remotes};
pub use ops::{Fetched, MoveOptions, Moved, fetch, pull, push, status};
pub use sync_state::{RecordSyncState, SyncState};
pub use tracking::Tracking;
