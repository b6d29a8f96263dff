use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use nameservice_feed::Feed;
use nameservice_model::{
    Address, AdminPublisher, BoxError, BranchCreated, Call, ChangeFeed, Committed, Config, ConfigPublisher, ConfigPush,
    ContentId, Created, Cursor, Dropped, GraphSourceLookup, GraphSourcePublication, GraphSourcePublisher, Head,
    HeadPush, History, HistoryQuery, Index, IndexPush, IndexRoot, LeaseClaim, LeasePublisher, LeaseRequest, Leased,
    Limit, ListQuery, Listed, NameService, NewConfig, NewHead, Page, Protection, Published, Publisher, Purged,
    PushOutcome, Record, RefPublisher, Released, Reset, ResetTo, Restored, Result, Retracted, Run, Status,
    StatusPayload, StatusPublisher, StatusPush, Transaction, TransactionPublisher, Visible,
};
use nameservice_store::{Store, endpoint_client, sdk_client};
use serde_json::Value;

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
        let client = client(region, endpoint).await?;
        let policy = nameservice_dynamo::RetryPolicy { deadline: timeout, ..Default::default() };
        let feed = Feed::new(client.clone(), Feed::table_of(table));
        Ok(Self { store: Store::new(client, table).with_retry_policy(policy), feed })
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

/// Delegates every method of a trait.
macro_rules! delegate {
    ($part:ident: $($trait:ident { $(fn $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)* })*) => {$(
        #[async_trait]
        impl $trait for DynamoDb {
            $(async fn $method(&self, $($name: $type),*) -> Result<$result> {
                self.$part.$method($($name),*).await
            })*
        }
    )*};
}

delegate! { store:
    GraphSourceLookup { fn graph_source(address: &Address) -> Option<Record>; }
    NameService {
        fn lookup(address: &Address) -> Option<Record>;
        fn lookup_all(addresses: &[Address]) -> Vec<Record>;
        fn list(query: &ListQuery, visible: Visible<'_>) -> Page<Listed>;
        fn snapshot(limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Page<Record>;
        fn dependents(address: &Address) -> Vec<Address>;
        fn ping() -> ();
    }
    Publisher {
        fn create_ledger(
            call: &Call, address: &Address, head: Option<&NewHead>, config: Option<&NewConfig>,
        ) -> Created;
        fn create_branch(call: &Call, branch: &Address, source: &Address, at: Option<&NewHead>) -> BranchCreated;
        fn retract(call: &Call, address: &Address, reason: Option<&str>) -> Retracted;
        fn restore(call: &Call, address: &Address) -> Restored;
    }
    AdminPublisher {
        fn purge(call: &Call, address: &Address) -> Purged;
        fn protect(call: &Call, address: &Address, protected: bool) -> Protection;
        fn drop_branch(call: &Call, address: &Address) -> Dropped;
        fn reset_head(call: &Call, address: &Address, to: &ResetTo) -> Reset;
    }
    RefPublisher {
        fn head(address: &Address) -> Option<Head>;
        fn index(address: &Address) -> Option<Index>;
        fn push_head(call: &Call, address: &Address, push: &HeadPush) -> PushOutcome<ContentId>;
        fn push_index(call: &Call, address: &Address, push: &IndexPush) -> PushOutcome<IndexRoot>;
    }
    StatusPublisher {
        fn status(address: &Address) -> Option<Status>;
        fn push_status(call: &Call, address: &Address, push: &StatusPush) -> PushOutcome<StatusPayload>;
    }
    ConfigPublisher {
        fn config(address: &Address) -> Option<Config>;
        fn push_config(call: &Call, address: &Address, push: &ConfigPush) -> PushOutcome<Value>;
    }
    GraphSourcePublisher {
        fn publish_graph_source(call: &Call, publication: &GraphSourcePublication) -> Published;
    }
    LeasePublisher {
        fn acquire_lease(call: &Call, address: &Address, request: &LeaseRequest) -> Leased;
        fn refresh_lease(call: &Call, address: &Address, request: &LeaseRequest, token: i64) -> Leased;
        fn release_lease(call: &Call, address: &Address, claim: &LeaseClaim) -> Released;
    }
    TransactionPublisher { fn commit(call: &Call, transaction: &Transaction) -> Committed; }
}

#[async_trait]
impl ChangeFeed for DynamoDb {
    async fn position(&self) -> Result<u64> {
        self.feed.position().await
    }

    fn outage(&self) -> Option<String> {
        self.feed.outage()
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        self.feed.changes(after, limit).await
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        self.feed.wait(after, at_most).await
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        self.feed.history(address, query).await
    }
}
