use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Address, BranchCreated, Call, Capabilities, Capability, Committed, Config, ConfigPush, ContentId, Created, Cursor,
    Dropped, Error, GraphSourcePublication, Head, HeadPush, History, HistoryQuery, Hit, Index, IndexPush, IndexRoot,
    LeaseClaim, LeaseRequest, Leased, Limit, ListQuery, Listed, NewConfig, NewHead, NewLedger, Page, Protection,
    Published, Purged, PushOutcome, Record, Released, Reset, ResetTo, Restored, Result, Retracted, Run, SearchQuery,
    Status, StatusPayload, StatusPush, Transaction, Visible,
};
use serde_json::Value;

/// Looks graph sources up.
#[async_trait]
pub trait GraphSourceLookup: Send + Sync {
    /// Returns the graph source of this address; `None` if there is none, or a ledger.
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>>;
}

/// Reads records.
#[async_trait]
pub trait NameService: GraphSourceLookup {
    /// Returns everything under an address, strongly consistent; `None` if there is no record.
    async fn lookup(&self, address: &Address) -> Result<Option<Record>>;

    /// Returns the records of these addresses, in that order, each of them consistent; those that do not exist are left out.
    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>>;

    /// Returns a page of records by index, eventually consistent, without those that the caller may not see.
    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>>;

    /// Returns a page of a consistent scan of all records.
    async fn snapshot(&self, limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>>;

    /// Returns what prevents a retraction or purge: graph sources that depend on the record (consistent) and
    /// branches made from it (by index, so the youngest may be missing for a moment).
    async fn dependents(&self, address: &Address) -> Result<Vec<Address>>;

    /// Returns about how many records there are, as the store counted them some hours ago at most, retracted ones included; `None`
    /// if it cannot say so without reading them.
    async fn approximate_count(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Reads once, cheaply and consistently: an error means that the store cannot serve.
    async fn ping(&self) -> Result<()>;

    /// Returns a page of the records that contain every word of a search, without those that the caller may not see,
    /// the best first. A backend without a search index rejects it with [`Error::Unsupported`].
    async fn search(&self, query: &SearchQuery, visible: Visible<'_>) -> Result<Page<Hit>> {
        let _ = (query, visible);
        let reason =
            "this backend keeps no search index: list records by prefix, or search in a replica of the service";
        Err(Error::Unsupported { capability: Capability::Search, reason: reason.to_owned() })
    }

    /// Returns what this backend can do: by default, everything but [`NameService::search`]. Operations that it does
    /// not support are rejected with [`Error::Unsupported`].
    async fn capabilities(&self) -> Result<Capabilities> {
        Ok(Capabilities::default())
    }
}

/// Creates, retracts and restores.
#[async_trait]
pub trait Publisher: NameService {
    /// Creates a ledger.
    async fn create(&self, call: &Call, ledger: &NewLedger) -> Result<Created>;

    /// Creates a ledger, with a head and a config if given.
    async fn create_ledger(
        &self,
        call: &Call,
        address: &Address,
        head: Option<&NewHead>,
        config: Option<&NewConfig>,
    ) -> Result<Created> {
        let (head, config) = (head.cloned(), config.cloned());
        let ledger = NewLedger { head, config, ..NewLedger::at(address.clone()) };
        self.create(call, &ledger).await
    }

    /// Creates a branch of a live, born ledger, at its head or at the commit given.
    async fn create_branch(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated>;

    /// Soft-deletes a record on which nothing depends.
    async fn retract(&self, call: &Call, address: &Address, reason: Option<&str>) -> Result<Retracted>;

    /// Undoes a retraction.
    async fn restore(&self, call: &Call, address: &Address) -> Result<Restored>;
}

/// Deletes and resets: for administrators.
#[async_trait]
pub trait AdminPublisher: NameService {
    /// Deletes a record.
    async fn purge(&self, call: &Call, address: &Address) -> Result<Purged>;

    /// Marks a record as protected, or removes the mark. A protected record cannot be retracted, purged or reset; all
    /// other operations work as before. Repeating the call changes nothing.
    async fn protect(&self, call: &Call, address: &Address, protected: bool) -> Result<Protection>;

    /// Deletes a branch.
    async fn drop_branch(&self, call: &Call, address: &Address) -> Result<Dropped>;

    /// Sets head and index of a ledger to a snapshot, backwards too.
    async fn reset_head(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset>;
}

/// Reads and pushes heads and indexes.
#[async_trait]
pub trait RefPublisher: Send + Sync {
    /// Returns the head of a ledger; `None` if there is no record, or a graph source.
    async fn head(&self, address: &Address) -> Result<Option<Head>>;

    /// Returns the index of a record.
    async fn index(&self, address: &Address) -> Result<Option<Index>>;

    /// Pushes a head.
    async fn push_head(&self, call: &Call, address: &Address, push: &HeadPush) -> Result<PushOutcome<ContentId>>;

    /// Pushes an index.
    async fn push_index(&self, call: &Call, address: &Address, push: &IndexPush) -> Result<PushOutcome<IndexRoot>>;
}

/// Reads and pushes states.
#[async_trait]
pub trait StatusPublisher: Send + Sync {
    /// Returns the status of a record.
    async fn status(&self, address: &Address) -> Result<Option<Status>>;

    /// Pushes a status.
    async fn push_status(
        &self,
        call: &Call,
        address: &Address,
        push: &StatusPush,
    ) -> Result<PushOutcome<StatusPayload>>;
}

/// Reads and pushes the configuration of ledgers.
#[async_trait]
pub trait ConfigPublisher: Send + Sync {
    /// Returns the config of a record.
    async fn config(&self, address: &Address) -> Result<Option<Config>>;

    /// Pushes the config of a ledger.
    async fn push_config(&self, call: &Call, address: &Address, push: &ConfigPush) -> Result<PushOutcome<Value>>;
}

/// Creates and reconfigures graph sources.
#[async_trait]
pub trait GraphSourcePublisher: GraphSourceLookup {
    /// Creates a graph source, or replaces the config and dependencies of one.
    async fn publish_graph_source(&self, call: &Call, publication: &GraphSourcePublication) -> Result<Published>;
}

/// Acquires, refreshes and releases leases.
#[async_trait]
pub trait LeasePublisher: Send + Sync {
    /// Acquires a lease that is free, expired, or held by the same holder, and the next token with it.
    async fn acquire_lease(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased>;

    /// Extends a lease whose token is current.
    async fn refresh_lease(&self, call: &Call, address: &Address, request: &LeaseRequest, token: i64)
    -> Result<Leased>;

    /// Releases a lease whose token is current. The state becomes `ready` if it is still the one of the lease.
    async fn release_lease(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released>;
}

/// Applies several operations, all or none.
#[async_trait]
pub trait TransactionPublisher: Send + Sync {
    /// Commits a transaction.
    async fn commit(&self, call: &Call, transaction: &Transaction) -> Result<Committed>;
}

/// Reads the change feed.
///
/// A reader that has read up to a position has seen every change up to it, in the order of the feed, each once.
#[async_trait]
pub trait ChangeFeed: Send + Sync {
    /// Returns the position of the last change, 0 before the first.
    async fn position(&self) -> Result<u64>;

    /// Returns why the feed delivers nothing, if that is known. Makes no request.
    fn outage(&self) -> Option<String> {
        None
    }

    /// Returns whether a write is in the feed before it is answered. If so, a position shows how fresh a read is.
    fn is_immediate(&self) -> bool {
        false
    }

    /// Returns at most `limit` changes after a position, consistent and without a gap. Fewer are not the end: only none are.
    async fn changes(&self, after: u64, limit: Limit) -> Result<Run>;

    /// Waits until something follows the position, which the caller has found to be the end of the feed, or for the given
    /// time. It may return earlier: the caller reads the feed again.
    async fn wait(&self, after: u64, at_most: Duration) -> Result<()>;

    /// Returns the changes of one record that the feed still holds, oldest first; the youngest may be missing for a moment.
    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History>;
}

/// Every operation on records. The change feed of the same nameservice may be another value.
pub trait Records:
    NameService
    + Publisher
    + AdminPublisher
    + RefPublisher
    + StatusPublisher
    + ConfigPublisher
    + GraphSourcePublisher
    + LeasePublisher
    + TransactionPublisher
{
}

impl<T> Records for T where
    T: NameService
        + Publisher
        + AdminPublisher
        + RefPublisher
        + StatusPublisher
        + ConfigPublisher
        + GraphSourcePublisher
        + LeasePublisher
        + TransactionPublisher
        + ?Sized
{
}

/// A whole nameservice: every operation, and the change feed.
pub trait Backend: Records + ChangeFeed {}

impl<T: Records + ChangeFeed + ?Sized> Backend for T {}
