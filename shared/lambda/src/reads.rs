//! Replacements for the store, for functions that need only part of it: code that is not called is not linked, so a function
//! that never reads is smaller by the AWS SDK, and one that never writes by the code that writes.

use std::time::Duration;

use async_trait::async_trait;
use nameservice_model::{
    Address, AdminPublisher, BranchCreated, Call, Capabilities, ChangeFeed, Committed, Config, ConfigPublisher,
    ConfigPush, ContentId, Created, Cursor, Dropped, Error, GraphSourceLookup, GraphSourcePublication,
    GraphSourcePublisher, Head, HeadPush, History, HistoryQuery, Hit, Index, IndexPush, IndexRoot, LeaseClaim,
    LeasePublisher, LeaseRequest, Leased, Limit, ListQuery, Listed, NameService, NewConfig, NewHead, Page, Protection,
    Published, Publisher, Purged, PushOutcome, Record, RefPublisher, Released, Reset, ResetTo, Restored, Result,
    Retracted, Run, SearchQuery, Status, StatusPayload, StatusPublisher, StatusPush, Transaction, TransactionPublisher,
    Visible,
};
use serde_json::Value;

/// An absent store. Every call fails: a route that calls it is in the wrong function.
pub(crate) struct NoStore;

/// A backend that only reads whole records from this store. All other calls fail as above: reads of a single concern, and writes.
pub(crate) struct Reads<S>(pub(crate) S);

fn absent<T>() -> Result<T> {
    let source = "the route was given to a function that reads at most records".into();
    Err(Error::Unavailable { operation: "use the store", source: Some(source) })
}

#[async_trait]
impl GraphSourceLookup for NoStore {
    async fn graph_source(&self, _: &Address) -> Result<Option<Record>> {
        absent()
    }
}

#[async_trait]
impl NameService for NoStore {
    async fn lookup(&self, _: &Address) -> Result<Option<Record>> {
        absent()
    }

    async fn lookup_all(&self, _: &[Address]) -> Result<Vec<Record>> {
        absent()
    }

    async fn list(&self, _: &ListQuery, _: Visible<'_>) -> Result<Page<Listed>> {
        absent()
    }

    async fn snapshot(&self, _: Limit, _: Option<&Cursor>, _: Visible<'_>) -> Result<Page<Record>> {
        absent()
    }

    async fn dependents(&self, _: &Address) -> Result<Vec<Address>> {
        absent()
    }

    async fn ping(&self) -> Result<()> {
        absent()
    }
}

#[async_trait]
impl<S: NameService> GraphSourceLookup for Reads<S> {
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>> {
        self.0.graph_source(address).await
    }
}

#[async_trait]
impl<S: NameService> NameService for Reads<S> {
    async fn lookup(&self, address: &Address) -> Result<Option<Record>> {
        self.0.lookup(address).await
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>> {
        self.0.lookup_all(addresses).await
    }

    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        self.0.list(query, visible).await
    }

    async fn snapshot(&self, limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>> {
        self.0.snapshot(limit, after, visible).await
    }

    async fn dependents(&self, address: &Address) -> Result<Vec<Address>> {
        self.0.dependents(address).await
    }

    async fn ping(&self) -> Result<()> {
        self.0.ping().await
    }

    async fn search(&self, query: &SearchQuery, visible: Visible<'_>) -> Result<Page<Hit>> {
        self.0.search(query, visible).await
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        self.0.capabilities().await
    }
}

#[async_trait]
impl<S: NameService> Publisher for Reads<S> {
    async fn create_ledger(
        &self,
        _: &Call,
        _: &Address,
        _: Option<&NewHead>,
        _: Option<&NewConfig>,
    ) -> Result<Created> {
        absent()
    }

    async fn create_branch(&self, _: &Call, _: &Address, _: &Address, _: Option<&NewHead>) -> Result<BranchCreated> {
        absent()
    }

    async fn retract(&self, _: &Call, _: &Address, _: Option<&str>) -> Result<Retracted> {
        absent()
    }

    async fn restore(&self, _: &Call, _: &Address) -> Result<Restored> {
        absent()
    }
}

#[async_trait]
impl<S: NameService> AdminPublisher for Reads<S> {
    async fn purge(&self, _: &Call, _: &Address) -> Result<Purged> {
        absent()
    }

    async fn protect(&self, _: &Call, _: &Address, _: bool) -> Result<Protection> {
        absent()
    }

    async fn drop_branch(&self, _: &Call, _: &Address) -> Result<Dropped> {
        absent()
    }

    async fn reset_head(&self, _: &Call, _: &Address, _: &ResetTo) -> Result<Reset> {
        absent()
    }
}

#[async_trait]
impl<S: Send + Sync> RefPublisher for Reads<S> {
    async fn head(&self, _: &Address) -> Result<Option<Head>> {
        absent()
    }

    async fn index(&self, _: &Address) -> Result<Option<Index>> {
        absent()
    }

    async fn push_head(&self, _: &Call, _: &Address, _: &HeadPush) -> Result<PushOutcome<ContentId>> {
        absent()
    }

    async fn push_index(&self, _: &Call, _: &Address, _: &IndexPush) -> Result<PushOutcome<IndexRoot>> {
        absent()
    }
}

#[async_trait]
impl<S: Send + Sync> StatusPublisher for Reads<S> {
    async fn status(&self, _: &Address) -> Result<Option<Status>> {
        absent()
    }

    async fn push_status(&self, _: &Call, _: &Address, _: &StatusPush) -> Result<PushOutcome<StatusPayload>> {
        absent()
    }
}

#[async_trait]
impl<S: Send + Sync> ConfigPublisher for Reads<S> {
    async fn config(&self, _: &Address) -> Result<Option<Config>> {
        absent()
    }

    async fn push_config(&self, _: &Call, _: &Address, _: &ConfigPush) -> Result<PushOutcome<Value>> {
        absent()
    }
}

#[async_trait]
impl<S: NameService> GraphSourcePublisher for Reads<S> {
    async fn publish_graph_source(&self, _: &Call, _: &GraphSourcePublication) -> Result<Published> {
        absent()
    }
}

#[async_trait]
impl<S: Send + Sync> LeasePublisher for Reads<S> {
    async fn acquire_lease(&self, _: &Call, _: &Address, _: &LeaseRequest) -> Result<Leased> {
        absent()
    }

    async fn refresh_lease(&self, _: &Call, _: &Address, _: &LeaseRequest, _: i64) -> Result<Leased> {
        absent()
    }

    async fn release_lease(&self, _: &Call, _: &Address, _: &LeaseClaim) -> Result<Released> {
        absent()
    }
}

#[async_trait]
impl<S: Send + Sync> TransactionPublisher for Reads<S> {
    async fn commit(&self, _: &Call, _: &Transaction) -> Result<Committed> {
        absent()
    }
}

#[async_trait]
impl ChangeFeed for NoStore {
    async fn position(&self) -> Result<u64> {
        absent()
    }

    async fn changes(&self, _: u64, _: Limit) -> Result<Run> {
        absent()
    }

    async fn wait(&self, _: u64, _: Duration) -> Result<()> {
        absent()
    }

    async fn history(&self, _: &Address, _: &HistoryQuery) -> Result<History> {
        absent()
    }
}
