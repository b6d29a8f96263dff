use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_dynamodb::Client;
use aws_smithy_http_client::{
    Builder as HttpClient,
    tls::{self, rustls_provider::CryptoMode},
};
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
    if let Some(url) = endpoint {
        return Ok(endpoint_client(url));
    }
    let http = HttpClient::new().tls_provider(tls::Provider::Rustls(CryptoMode::Ring)).build_https();
    let mut config = aws_config::defaults(aws_config::BehaviorVersion::v2026_01_12()).http_client(http);
    if let Some(region) = region {
        config = config.region(aws_config::Region::new(region.to_owned()));
    }
    let config = config.load().await;
    if config.region().is_none() {
        return Err("no AWS region is configured: name one with ?region=, or set AWS_REGION".into());
    }
    Ok(sdk_client(&config))
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

/// Hands every method of a trait on.
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

delegate! { feed:
    ChangeFeed {
        fn position() -> u64;
        fn changes(after: u64, limit: Limit) -> Run;
        fn wait(after: u64, at_most: Duration) -> ();
        fn history(address: &Address, query: &HistoryQuery) -> History;
    }
}
