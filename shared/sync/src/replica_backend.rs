//! A replica as a backend: reads from memory, writes at the upstream.

use std::time::Duration;

use async_trait::async_trait;
use nameservice_client::Client;
use nameservice_model::{
    Address, Call, Config, ConfigPublisher as _, Head, Index, RefPublisher as _, Result, Status, StatusPublisher as _,
    Write, WriteAll, Written, forward_feed, forward_names,
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

forward_names!(impl[] ReplicaBackend, this => this.replica.names());
forward_feed!(impl[] ReplicaBackend, this => &this.replica);

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
