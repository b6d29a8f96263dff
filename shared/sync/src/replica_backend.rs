//! A replica as a backend: reads from memory, writes at the upstream.

use std::time::Duration;

use async_trait::async_trait;
use nameservice_client::Client;
use nameservice_model::{
    Address, Call, Capabilities, ChangeFeed, Config, ConfigPublisher as _, Cursor, GraphSourceLookup, Head, History,
    HistoryQuery, Hit, Index, Limit, ListQuery, Listed, NameService, Page, Record, RefPublisher as _, Result, Run,
    SearchQuery, Status, StatusPublisher as _, Visible, Write, WriteAll, Written,
};

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
impl WriteAll for ReplicaBackend {
    async fn write(&self, call: &Call, write: Write) -> Result<Written> {
        let written = write.send(call, &self.client).await?;
        // A replica that is cut off from the feed shows it later; the write itself is done.
        if !self.replica.shows(&write.addresses(), SETTLE).await {
            let age = self.replica.age().map(|age| age.as_secs());
            tracing::warn!(age, "a write was answered before the replica shows it");
        }
        Ok(written)
    }

    async fn read_head(&self, address: &Address) -> Result<Option<Head>> {
        self.replica.names().head(address).await
    }

    async fn read_index(&self, address: &Address) -> Result<Option<Index>> {
        self.replica.names().index(address).await
    }

    async fn read_status(&self, address: &Address) -> Result<Option<Status>> {
        self.replica.names().status(address).await
    }

    async fn read_config(&self, address: &Address) -> Result<Option<Config>> {
        self.replica.names().config(address).await
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
