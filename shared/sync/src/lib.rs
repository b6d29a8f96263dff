//! Everything between two places: copies, comparisons, dumps.
//!
//! A place to read from is a [`Source`]: a backend ([`BackendSource`]) or a dump ([`DumpSource`]). A place to write to is
//! a backend, or a dump by [`export`].
//!
//! - [`copy`] writes what is missing or older at the target and leaves what is newer there or differs. Every write is a
//!   compare-and-set, so a copy can be interrupted and repeated at any point, with writers active on both sides.
//! - [`compare`] reports what differs; [`mirror`] continues with the changes after a copy.
//! - [`lazy`] takes over the records of an older place one by one, when they are first written.
//! - [`export`] writes a dump. Its head contains the position of the source's feed.

mod bring;
mod compare;
mod copy;
mod dump;
mod error;
mod follow;
mod history;
mod judge;
pub mod lazy;
pub mod legacy;
#[cfg(feature = "dynamodb")]
mod legacy_table;
mod older_record;
mod order;
mod pending;
pub mod remotes;
mod replica;
mod replica_backend;
mod replica_writes;
pub mod report;
mod source;

pub use compare::compare;
pub use copy::{CopyObserver, CopyOptions, CopyProgress, copy};
pub use dump::{DumpPlace, DumpSource, Exported, export};
pub use error::{Result, SyncError};
pub use follow::{Mirrored, mirror};
pub use judge::{Difference, Verdict, judge, worst};
pub use lazy::LazyBackend;
#[cfg(feature = "dynamodb")]
pub use legacy_table::LegacyTable;
pub use replica::{Replica, ReplicaState};
pub use replica_backend::ReplicaBackend;
pub use report::{Comparison, Report};
pub use source::{BackendSource, Found, Reading, Source};
