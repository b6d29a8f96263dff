use async_trait::async_trait;
use jiff::Timestamp;
use nameservice_model::{Address, Result};

/// How far a read model has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Everything up to this position of the feed is in the rows.
    pub position: u64,
    /// When the change at this position was recorded; of a snapshot, when it was begun.
    pub recorded_at: Timestamp,
}

/// The row of a record at a version.
#[derive(Clone, Debug, PartialEq)]
pub struct RowWrite<R> {
    /// The record.
    pub address: Address,
    /// The position of the feed that the row includes at least.
    pub version: u64,
    /// The row; `None` removes it.
    pub row: Option<R>,
}

/// Over which stored versions a row is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Only over older ones: a change.
    Older,
    /// Over the same, too: a rebuild.
    SameOrOlder,
}

/// Where the rows of a read model are kept, with its checkpoint.
#[async_trait]
pub trait Rows<R>: Send + Sync {
    /// Returns how far the rows have come; `None` where none were written yet.
    async fn checkpoint(&self) -> Result<Option<Checkpoint>>;

    /// Notes how far the rows have come. It never goes back.
    async fn advance(&self, checkpoint: &Checkpoint) -> Result<()>;

    /// Writes rows, each over older versions of it alone. A row that is removed keeps its version for a time that is longer
    /// than a rebuild takes.
    async fn write(&self, writes: Vec<RowWrite<R>>, over: Over) -> Result<()>;

    /// Returns some of the records that have a row of a version below this one; nothing once there are no more.
    async fn older_than(&self, version: u64) -> Result<Vec<Address>>;

    /// Removes all rows, versions and the checkpoint: they belong to a feed that is gone.
    async fn clear(&self) -> Result<()>;
}
