use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use nameservice_dynamo::RetryPolicy;
use nameservice_feed::Feed;
use nameservice_model::{
    Address, BoxError, Call, Config, ConfigPublisher as _, Head, Index, RefPublisher as _, Result, Status,
    StatusPublisher as _, Write, WriteAll, Written, forward_feed, forward_names,
};
use nameservice_store::{Store, endpoint_client, sdk_client};

/// Returns a client of a DynamoDB: at an endpoint, or in AWS by the usual chain of region and credentials.
pub(crate) async fn client(region: Option<&str>, endpoint: Option<&str>) -> Result<Client, BoxError> {
    match endpoint {
        Some(url) => Ok(endpoint_client(url)),
        None => Ok(sdk_client(&crate::aws::config(region).await?)),
    }
}

/// A table of DynamoDB and the table of its change feed, as one backend.
#[derive(Clone, Debug)]
pub struct DynamoDb {
    store: Store,
    feed: Feed,
}

impl DynamoDb {
    /// Returns the backend of a store and its feed.
    pub fn new(store: Store, feed: Feed) -> Self {
        Self { store, feed }
    }

    /// Connects to a table: at an endpoint, or in AWS by the usual chain of region and credentials. Nothing is sent yet.
    pub async fn connect(
        table: &str,
        region: Option<&str>,
        endpoint: Option<&str>,
        timeout: Duration,
    ) -> Result<Self, BoxError> {
        let policy = RetryPolicy { deadline: timeout, ..Default::default() };
        Ok(Self::at(client(region, endpoint).await?, table, policy))
    }

    pub(crate) fn at(client: Client, table: &str, policy: RetryPolicy) -> Self {
        let feed = Feed::new(client.clone(), Feed::table_of(table));
        Self { store: Store::new(client, table).with_retry_policy(policy), feed }
    }

    /// Returns the table of the records.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the table of the changes.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }
}

forward_names!(impl[] DynamoDb, this => &this.store);
forward_feed!(impl[] DynamoDb, this => &this.feed);

#[async_trait]
impl WriteAll for DynamoDb {
    async fn write(&self, call: &Call, write: Write) -> Result<Written> {
        write.send(call, &self.store).await
    }

    async fn read_head(&self, address: &Address) -> Result<Option<Head>> {
        self.store.head(address).await
    }

    async fn read_index(&self, address: &Address) -> Result<Option<Index>> {
        self.store.index(address).await
    }

    async fn read_status(&self, address: &Address) -> Result<Option<Status>> {
        self.store.status(address).await
    }

    async fn read_config(&self, address: &Address) -> Result<Option<Config>> {
        self.store.config(address).await
    }
}
