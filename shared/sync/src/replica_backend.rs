//! A replica as a backend: reads from memory, writes at the upstream.

use std::time::Duration;

use async_trait::async_trait;
use nameservice_client::Client;
use nameservice_model::{
    Address, AdminPublisher, BranchCreated, Call, Capabilities, ChangeFeed, Committed, Config, ConfigPublisher,
    ConfigPush, ContentId, Created, Cursor, Dropped, GraphSourceLookup, GraphSourcePublication, GraphSourcePublisher,
    Head, HeadPush, History, HistoryQuery, Hit, Index, IndexPush, IndexRoot, LeaseClaim, LeasePublisher, LeaseRequest,
    Leased, Limit, ListQuery, Listed, NameService, NewConfig, NewHead, Page, Protection, Published, Publisher, Purged,
    PushOutcome, Record, RefPublisher, Released, Reset, ResetTo, Restored, Result, Retracted, Run, SearchQuery, Status,
    StatusPayload, StatusPublisher, StatusPush, Transaction, TransactionPublisher, Visible,
};
use serde_json::Value;

use crate::Replica;

/// How long a write waits for the replica to catch up.
const SETTLE: Duration = Duration::from_secs(10);

/// A replica and a client of its upstream. Reads are answered from this process. Writes go to the upstream, and are
/// visible here by the time they are answered.
#[derive(Clone, Debug)]
pub struct ReplicaBackend {
    replica: Replica,
    client: Client,
}

impl ReplicaBackend {
    /// Returns the backend of a replica, which writes through this client.
    pub fn new(replica: Replica, client: Client) -> Self {
        Self { replica, client }
    }

    /// Returns the replica.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Waits until the replica is as new as the upstream's records of these addresses, which include the write that was
    /// just answered.
    async fn settled<T>(&self, addresses: &[Address], outcome: Result<T>) -> Result<T> {
        // A replica that is cut off from the feed shows it later; the write itself is done.
        if outcome.is_ok() && !self.replica.shows(addresses, SETTLE).await {
            let age = self.replica.age().map(|age| age.as_secs());
            tracing::warn!(age, "a write was answered before the replica shows it");
        }
        outcome
    }
}

#[async_trait]
impl GraphSourceLookup for ReplicaBackend {
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>> {
        self.replica.names().graph_source(address).await
    }
}

#[async_trait]
impl NameService for ReplicaBackend {
    async fn lookup(&self, address: &Address) -> Result<Option<Record>> {
        self.replica.names().lookup(address).await
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>> {
        self.replica.names().lookup_all(addresses).await
    }

    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        self.replica.names().list(query, visible).await
    }

    async fn snapshot(&self, limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>> {
        self.replica.names().snapshot(limit, after, visible).await
    }

    async fn search(&self, query: &SearchQuery, visible: Visible<'_>) -> Result<Page<Hit>> {
        self.replica.names().search(query, visible).await
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        self.replica.names().capabilities().await
    }

    async fn dependents(&self, address: &Address) -> Result<Vec<Address>> {
        self.replica.names().dependents(address).await
    }

    async fn ping(&self) -> Result<()> {
        self.replica.names().ping().await
    }
}

#[async_trait]
impl Publisher for ReplicaBackend {
    async fn create_ledger(
        &self,
        call: &Call,
        address: &Address,
        head: Option<&NewHead>,
        config: Option<&NewConfig>,
    ) -> Result<Created> {
        self.settled(std::slice::from_ref(address), self.client.create_ledger(call, address, head, config).await).await
    }

    async fn create_branch(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        self.settled(&[branch.clone(), source.clone()], self.client.create_branch(call, branch, source, at).await).await
    }

    async fn retract(&self, call: &Call, address: &Address, reason: Option<&str>) -> Result<Retracted> {
        self.settled(std::slice::from_ref(address), self.client.retract(call, address, reason).await).await
    }

    async fn restore(&self, call: &Call, address: &Address) -> Result<Restored> {
        self.settled(std::slice::from_ref(address), self.client.restore(call, address).await).await
    }
}

#[async_trait]
impl AdminPublisher for ReplicaBackend {
    async fn purge(&self, call: &Call, address: &Address) -> Result<Purged> {
        self.settled(std::slice::from_ref(address), self.client.purge(call, address).await).await
    }

    async fn protect(&self, call: &Call, address: &Address, protected: bool) -> Result<Protection> {
        self.settled(std::slice::from_ref(address), self.client.protect(call, address, protected).await).await
    }

    async fn drop_branch(&self, call: &Call, address: &Address) -> Result<Dropped> {
        self.settled(std::slice::from_ref(address), self.client.drop_branch(call, address).await).await
    }

    async fn reset_head(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        self.settled(std::slice::from_ref(address), self.client.reset_head(call, address, to).await).await
    }
}

#[async_trait]
impl RefPublisher for ReplicaBackend {
    async fn head(&self, address: &Address) -> Result<Option<Head>> {
        self.replica.names().head(address).await
    }

    async fn index(&self, address: &Address) -> Result<Option<Index>> {
        self.replica.names().index(address).await
    }

    async fn push_head(&self, call: &Call, address: &Address, push: &HeadPush) -> Result<PushOutcome<ContentId>> {
        self.settled(std::slice::from_ref(address), self.client.push_head(call, address, push).await).await
    }

    async fn push_index(&self, call: &Call, address: &Address, push: &IndexPush) -> Result<PushOutcome<IndexRoot>> {
        self.settled(std::slice::from_ref(address), self.client.push_index(call, address, push).await).await
    }
}

#[async_trait]
impl StatusPublisher for ReplicaBackend {
    async fn status(&self, address: &Address) -> Result<Option<Status>> {
        self.replica.names().status(address).await
    }

    async fn push_status(
        &self,
        call: &Call,
        address: &Address,
        push: &StatusPush,
    ) -> Result<PushOutcome<StatusPayload>> {
        self.settled(std::slice::from_ref(address), self.client.push_status(call, address, push).await).await
    }
}

#[async_trait]
impl ConfigPublisher for ReplicaBackend {
    async fn config(&self, address: &Address) -> Result<Option<Config>> {
        self.replica.names().config(address).await
    }

    async fn push_config(&self, call: &Call, address: &Address, push: &ConfigPush) -> Result<PushOutcome<Value>> {
        self.settled(std::slice::from_ref(address), self.client.push_config(call, address, push).await).await
    }
}

#[async_trait]
impl GraphSourcePublisher for ReplicaBackend {
    async fn publish_graph_source(&self, call: &Call, publication: &GraphSourcePublication) -> Result<Published> {
        self.settled(
            std::slice::from_ref(publication.address()),
            self.client.publish_graph_source(call, publication).await,
        )
        .await
    }
}

#[async_trait]
impl LeasePublisher for ReplicaBackend {
    async fn acquire_lease(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased> {
        self.settled(std::slice::from_ref(address), self.client.acquire_lease(call, address, request).await).await
    }

    async fn refresh_lease(
        &self,
        call: &Call,
        address: &Address,
        request: &LeaseRequest,
        token: i64,
    ) -> Result<Leased> {
        self.settled(std::slice::from_ref(address), self.client.refresh_lease(call, address, request, token).await)
            .await
    }

    async fn release_lease(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released> {
        self.settled(std::slice::from_ref(address), self.client.release_lease(call, address, claim).await).await
    }
}

#[async_trait]
impl TransactionPublisher for ReplicaBackend {
    async fn commit(&self, call: &Call, transaction: &Transaction) -> Result<Committed> {
        let addresses: Vec<Address> =
            transaction.operations().iter().map(|operation| operation.address.clone()).collect();
        self.settled(&addresses, self.client.commit(call, transaction).await).await
    }
}

#[async_trait]
impl ChangeFeed for ReplicaBackend {
    async fn position(&self) -> Result<u64> {
        ChangeFeed::position(&self.replica).await
    }

    fn is_immediate(&self) -> bool {
        self.replica.is_immediate()
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        self.replica.changes(after, limit).await
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        self.replica.wait(after, at_most).await
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        self.replica.history(address, query).await
    }
}
