use async_trait::async_trait;
use jiff::Timestamp;
use nameservice_model::{Address, Result};

/// The progress of a read model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Everything up to this position of the feed is in the rows.
    pub position: u64,
    /// When the change at this position was recorded, or the snapshot was begun.
    pub recorded_at: Timestamp,
}

/// The row of a record at a version.
#[derive(Clone, Debug, PartialEq)]
pub struct RowWrite<R> {
    /// The record.
    pub address: Address,
    /// A position of the feed that the row includes.
    pub version: u64,
    /// The row; `None` removes it.
    pub row: Option<R>,
}

/// Which stored versions a row may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Only older ones: for a change.
    Older,
    /// Also an equal one: for a rebuild.
    SameOrOlder,
}

/// A store for the rows of a read model, with its checkpoint.
#[async_trait]
pub trait Rows<R>: Send + Sync {
    /// Returns the checkpoint; `None` before the first.
    async fn checkpoint(&self) -> Result<Option<Checkpoint>>;

    /// Stores the checkpoint, which never goes back.
    async fn advance(&self, checkpoint: &Checkpoint) -> Result<()>;

    /// Writes rows, each only over the versions that `over` allows. The version of a removed row is kept for longer than a
    /// rebuild takes.
    async fn write(&self, writes: Vec<RowWrite<R>>, over: Over) -> Result<()>;

    /// Returns some of the records that have a row of a version below this one; none once there are no more.
    async fn older_than(&self, version: u64) -> Result<Vec<Address>>;

    /// Removes all rows, versions and the checkpoint: they belong to a feed that is gone.
    async fn clear(&self) -> Result<()>;
}
