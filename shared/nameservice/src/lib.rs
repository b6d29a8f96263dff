//! The nameservice: the heads, indexes, states and configurations of ledgers and graph sources.
//!
//! ```
//! # async fn ten_lines() -> Result<(), nameservice::Error> {
//! # let commit = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
//! use nameservice::{ChangeEvent, PushOutcome};
//!
//! let ns = nameservice::connect("memory:").await?; // or https://…, dynamodb://TABLE, file:///DIR, s3://…
//! let mydb = ns.create_ledger("mydb").await?;
//! match ns.head(&mydb)?.push(commit, 1).expect_unborn().await? {
//!     PushOutcome::Updated { value: head, .. } => println!("at t {}", head.t()),
//!     PushOutcome::Conflict { actual } => eprintln!("overtaken: {actual:?}"),
//!     other => return Err(other.into()),
//! }
//! let mut changes = ns.changes().after(0).address("mydb:*").follow();
//! while let Some(ChangeEvent::Change(change)) = changes.try_next().await? {
//!     println!("{} {} {}", change.position, change.address, change.part);
//! #   if change.watermark == 1 && change.part == nameservice::ChangedPart::Concern(nameservice::ConcernKind::Head) { break }
//! }
//! # Ok(()) }
//! # #[cfg(feature = "embedded")]
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(ten_lines()).unwrap();
//! ```
//!
//! One URL names a backend; [`Place`] lists them, and [`Options`] has what can be set. Each is behind a cargo feature: `client`
//! (on by default), `dynamodb`, `embedded`, `files`. `sync` adds `replica`, which keeps the records of a service in
//! this process and receives each change, and `projector` read models.
//!
//! Every write is a builder that is sent when it is awaited. A push returns its outcome, [`PushOutcome`]: a conflict is no
//! error. [`PushOutcome::updated`] returns the new value, or, by `?`, an [`Error`] that says why it was rejected. The other
//! writes return what they have written, or [`Error::Rejected`] with the [`Rejection`].
//!
//! What is read in pages, or follows, is a [`Stream`]: [lists](Nameservice::list), [snapshots](Nameservice::snapshot),
//! [changes](Nameservice::changes).
//!
//! [`traits`] has the narrow traits that every backend implements, for functions that take one, and [`ConcernPublisher`]
//! reads and pushes any concern by its kind.

#[cfg(feature = "files")]
mod archive;
mod at_least;
#[cfg(any(feature = "dynamodb", feature = "files"))]
mod aws;
mod builder;
mod changes;
mod concerns;
mod connect;
mod create;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod error;
#[cfg(feature = "files")]
mod files;
mod handles;
mod lease;
mod names;
mod place;
mod reads;
#[cfg(feature = "sync")]
mod replica;
#[cfg(feature = "files")]
mod s3;
mod search;
pub mod traits;
mod writes;

pub use nameservice_model::*;

#[cfg(feature = "client")]
pub use nameservice_client as client;
/// Read models that follow the change feed.
///
/// ```
/// # use std::sync::Arc;
/// # async fn example() -> Result<(), nameservice::Error> {
/// # let ns = nameservice::connect("memory:").await?;
/// # ns.create_ledger("acme/books").head("bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi", 3).await?;
/// use nameservice::{Record, projector::{MemoryRows, Projection, Row}};
///
/// #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
/// struct Commits(i64);
/// impl Row for Commits {}
///
/// struct CommitsOfLedgers;
/// impl Projection for CommitsOfLedgers {
///     type Row = Commits;
///     fn name(&self) -> &str { "commits-of-ledgers" }
///     fn row(&self, record: &Record) -> Option<Commits> {
///         record.head.as_ref().map(|head| Commits(head.t()))
///     }
/// }
///
/// let rows = Arc::new(MemoryRows::new());
/// let projector = ns.projector(CommitsOfLedgers, rows.clone());
/// projector.catch_up(None).await?; // or projector.run(), which follows the feed
/// # assert_eq!(rows.get(&"acme/books".parse()?).map(|row| row.0), Some(3));
/// # Ok(()) }
/// # #[cfg(feature = "embedded")]
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[cfg(feature = "projector")]
pub use nameservice_projector as projector;

#[cfg(feature = "files")]
pub use archive::archive;
pub use at_least::AtLeast;
#[cfg(any(feature = "dynamodb", feature = "files"))]
pub use aws::config as aws_config;
pub use changes::{Changes, Following};
pub use concerns::{CasResult, ConcernPublisher, push_with_retry};
#[cfg(all(feature = "dynamodb", feature = "sync"))]
pub use connect::legacy_table;
pub use connect::{Options, connect, connect_with, virtual_graphs};
pub use create::{CreateBranch, CreateLedger, PublishGraphSource};
#[cfg(feature = "dynamodb")]
pub use dynamodb::DynamoDb;
pub use error::{Error, Rejection, Result};
#[cfg(feature = "files")]
pub use files::files;
pub use futures_util::Stream;
pub use handles::{ConfigHandle, HeadHandle, IndexHandle, PushHead, PushIndex, SetConfig, SetStatus, StatusHandle};
pub use lease::{Acquired, LeaseHandle, LeaseKeeper, LeaseLost, Ran, hold_lease};
pub use names::{IntoAddress, Nameservice};
#[cfg(feature = "files")]
pub use nameservice_archive::{Archive, Archiver};
#[cfg(feature = "sync")]
pub use nameservice_sync::ReplicaState;

pub use place::{Cloud, InvalidPlace, Place};
pub use reads::{List, ReadHistory, ReadSnapshot, ResultStream, Snapshot};
#[cfg(feature = "sync")]
pub use replica::{Replica, StartReplica, replica};
pub use search::Search;
pub use writes::{Commit, DropBranch, Protect, Purge, ResetLedger, Restore, Retract};

/// The error of an operation of a backend, as the traits return it. [`Error`] contains it.
pub type BackendError = nameservice_model::Error;
/// The result of an operation of a backend, as the traits return it.
pub type BackendResult<T> = nameservice_model::Result<T>;
