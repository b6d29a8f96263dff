use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Address, BranchCreated, Call, Committed, Config, ContentId, Created, Cursor, Dropped, GraphSourcePublication, Head,
    History, HistoryQuery, Index, IndexRoot, IndexUpdate, LeaseClaim, LeaseRequest, Leased, ListQuery, Listed,
    Operation, Page, Published, Purged, Push, PushOutcome, Record, Released, Reset, ResetTo, Restored, Result,
    Retracted, Run, Status, StatusPayload, Visible,
};
use serde_json::Value;

/// Finds graph sources.
#[async_trait]
pub trait GraphSourceLookup: Send + Sync {
    /// The graph source of this address; `None` where there is none, or a ledger.
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>>;
}

/// Reads records.
#[async_trait]
pub trait NameService: GraphSourceLookup {
    /// Everything under an address, strongly consistent; `None` where there is no record.
    async fn lookup(&self, address: &Address) -> Result<Option<Record>>;

    /// The records of these addresses, in that order and each consistent by itself; those that do not exist are left out.
    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>>;

    /// A page of records by index, eventually consistent, without those that the caller may not see.
    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>>;

    /// A page of a consistent scan of all records.
    async fn snapshot(&self, limit: usize, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>>;

    /// What stands in the way of a retraction or purge: graph sources that depend on the record (consistent) and
    /// branches made from it (by index, so the youngest may be missing for a moment).
    async fn dependents(&self, address: &Address) -> Result<Vec<Address>>;

    /// One cheap consistent read: an error tells that the store cannot serve.
    async fn ping(&self) -> Result<()>;
}

/// Creates, retracts and restores.
#[async_trait]
pub trait Publisher: NameService {
    /// Creates a ledger, with a head and a config where given.
    async fn create_ledger(
        &self,
        call: &Call,
        address: &Address,
        head: Option<&Head>,
        config: Option<&Value>,
    ) -> Result<Created>;

    /// Creates a branch of a live, born ledger, at its head or at the commit given.
    async fn create_branch(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&Head>,
    ) -> Result<BranchCreated>;

    /// Soft-deletes a record on which nothing depends.
    async fn retract(&self, call: &Call, address: &Address, reason: Option<&str>) -> Result<Retracted>;

    /// Undoes a retraction.
    async fn restore(&self, call: &Call, address: &Address) -> Result<Restored>;
}

/// What only administrators do.
#[async_trait]
pub trait AdminPublisher: NameService {
    /// Deletes a record for good.
    async fn purge(&self, call: &Call, address: &Address) -> Result<Purged>;

    /// Deletes a branch for good.
    async fn drop_branch(&self, call: &Call, address: &Address) -> Result<Dropped>;

    /// Puts head and index of a ledger where they are wanted, backwards too.
    async fn reset_head(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset>;
}

/// Reads and moves heads and indexes.
#[async_trait]
pub trait RefPublisher: Send + Sync {
    /// The head of a ledger; `None` where there is no record, or a graph source.
    async fn head(&self, address: &Address) -> Result<Option<Head>>;

    /// The index of a record.
    async fn index(&self, address: &Address) -> Result<Option<Index>>;

    /// Moves a head.
    async fn push_head(
        &self,
        call: &Call,
        address: &Address,
        push: &Push<ContentId, Head>,
    ) -> Result<PushOutcome<ContentId>>;

    /// Moves an index.
    async fn push_index(
        &self,
        call: &Call,
        address: &Address,
        push: &Push<IndexRoot, IndexUpdate>,
    ) -> Result<PushOutcome<IndexRoot>>;
}

/// Reads and changes states.
#[async_trait]
pub trait StatusPublisher: Send + Sync {
    /// The status of a record.
    async fn status(&self, address: &Address) -> Result<Option<Status>>;

    /// Changes a status. The expectation must be a value.
    async fn push_status(
        &self,
        call: &Call,
        address: &Address,
        push: &Push<StatusPayload, Status>,
    ) -> Result<PushOutcome<StatusPayload>>;
}

/// Reads and changes the configuration of ledgers.
#[async_trait]
pub trait ConfigPublisher: Send + Sync {
    /// The config of a record.
    async fn config(&self, address: &Address) -> Result<Option<Config>>;

    /// Changes the config of a ledger. The expectation must be a value.
    async fn push_config(
        &self,
        call: &Call,
        address: &Address,
        push: &Push<Value, Config>,
    ) -> Result<PushOutcome<Value>>;
}

/// Creates and reconfigures graph sources.
#[async_trait]
pub trait GraphSourcePublisher: GraphSourceLookup {
    /// Creates a graph source, or replaces the config and dependencies of one.
    async fn publish_graph_source(
        &self,
        call: &Call,
        address: &Address,
        publication: &GraphSourcePublication,
    ) -> Result<Published>;
}

/// Takes and gives back leases.
#[async_trait]
pub trait LeasePublisher: Send + Sync {
    /// Takes a lease that is free, expired, or held under the same name, and the next token with it.
    async fn acquire_lease(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased>;

    /// Extends a lease whose token is current.
    async fn refresh_lease(&self, call: &Call, address: &Address, request: &LeaseRequest, token: i64)
    -> Result<Leased>;

    /// Gives a lease back whose token is current.
    async fn release_lease(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released>;
}

/// Applies several operations, all or none.
#[async_trait]
pub trait TransactionPublisher: Send + Sync {
    /// Commits at most [`crate::MAX_OPERATIONS`], no two of them about one concern of one record.
    async fn commit(&self, call: &Call, operations: &[Operation]) -> Result<Committed>;
}

/// Reads the change feed.
///
/// Whoever has read up to a position has seen every change up to it, in the order of the feed, each once.
#[async_trait]
pub trait ChangeFeed: Send + Sync {
    /// Where the feed stands: the position of its last change, 0 before the first.
    async fn position(&self) -> Result<u64>;

    /// At most `limit` changes after a position, consistent and without a gap.
    async fn changes(&self, after: u64, limit: usize) -> Result<Run>;

    /// Waits until something follows the position, or until the time is over.
    async fn wait(&self, after: u64, at_most: Duration) -> Result<()>;

    /// The changes of one record that the feed still holds, oldest first; the youngest may be missing for a moment.
    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History>;
}
