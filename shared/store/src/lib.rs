//! The nameservice on one DynamoDB table. Only this crate knows the items of the table. It can be used as a library on
//! its own.
//!
//! ```no_run
//! use nameservice_model::{Address, Call, NameService, Publisher};
//! use nameservice_store::{Store, endpoint_client};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::new(endpoint_client("http://127.0.0.1:8000"), Store::DEFAULT_TABLE);
//! store.ensure_table().await?;
//! let mydb = Address::parse("mydb")?;
//! store.create_ledger(&Call::fresh(), &mydb, None, None).await?;
//! let record = store.lookup(&mydb).await?;
//! # Ok(()) }
//! ```
//!
//! Where to look: the table and its names in [`schema`]; conditions and updates in `expressions`; items and values in
//! `items`; requests in `client` (their retries and outcomes in the crate `nameservice-dynamo`); the one path of all
//! pushes in `push`, and what is particular to each concern in `concern`; then one file per noun.

mod attribute;
mod batches;
mod calls;
mod changes;
mod client;
mod clock;
mod commit_log;
mod concern;
mod creation;
pub mod doctor;
mod expressions;
mod graph_sources;
mod items;
mod leases;
mod ledgers;
mod lists;
mod planned;
mod protections;
mod purges;
mod push;
mod records;
mod references;
mod retractions;
pub mod schema;
mod table;
mod transactions;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::SystemTime,
};

use async_trait::async_trait;
use nameservice_model::{
    Address, AdminPublisher, BranchCreated, Call, Committed, Config, ConfigPublisher, ConfigPush, ContentId, Created,
    Cursor, Dropped, GraphSourceLookup, GraphSourcePublication, GraphSourcePublisher, Head, HeadPush, Index, IndexPush,
    IndexRoot, LeaseClaim, LeasePublisher, LeaseRequest, Leased, Limit, ListQuery, Listed, NameService, NewHead,
    NewLedger, Page, Protection, Published, Publisher, Purged, PushOutcome, Record, RecordKind, RefPublisher, Released,
    Reset, ResetTo, Restored, Result, Retracted, Status, StatusPayload, StatusPublisher, StatusPush, Transaction,
    TransactionPublisher, Visible,
};
use serde_json::Value;

pub use changes::{Difference, Identities, Known, StreamRecord, Unreadable};
pub use nameservice_dynamo::{RetryPolicy, endpoint_client, lambda_client, sdk_client};
pub use table::{DESCRIPTION, TableReport};

use crate::{
    client::Sender,
    clock::Clock,
    concern::{ConfigConcern, HeadConcern, IndexConcern, StatusConcern},
    expressions::Key,
    items::RecordItems,
};

/// The nameservice over one DynamoDB table. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    sender: Sender,
    clock: Clock,
    /// Whether the table was found to lack the indexes by type and by state.
    only_kind_index: Arc<AtomicBool>,
}

impl Store {
    /// The default name of the table.
    pub const DEFAULT_TABLE: &'static str = "fluree-nameservice";

    /// Returns the nameservice over a table. The client must have its own retries turned off, as the clients of
    /// [`endpoint_client`], [`lambda_client`] and [`sdk_client`] have.
    pub fn new(client: aws_sdk_dynamodb::Client, table: impl AsRef<str>) -> Self {
        let sender = Sender::new(client, table.as_ref(), RetryPolicy::default());
        Self { sender, clock: Clock::default(), only_kind_index: Arc::default() }
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn with_retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.sender.set_policy(policy);
        self
    }

    /// Sets another clock than the system's. It times leases and stamps items.
    #[must_use]
    pub fn with_clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Clock::of(clock);
        self
    }

    /// Returns the name of the table.
    pub fn table(&self) -> &str {
        self.sender.table()
    }

    fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }
}

#[async_trait]
impl GraphSourceLookup for Store {
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>> {
        Ok(self.lookup(address).await?.filter(|record| record.kind == RecordKind::GraphSource))
    }
}

#[async_trait]
impl NameService for Store {
    async fn lookup(&self, address: &Address) -> Result<Option<Record>> {
        Ok(self.read_record("read a record", address).await?.record())
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>> {
        let wanted: Vec<_> = addresses.iter().map(|address| (address.clone(), None)).collect();
        let (found, _) = self.read_records("read records", &wanted, usize::MAX).await?;
        Ok(found.iter().filter_map(RecordItems::record).collect())
    }

    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        self.list_records(query, visible).await
    }

    async fn snapshot(&self, limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>> {
        self.snapshot_page(limit, after, visible).await
    }

    async fn dependents(&self, address: &Address) -> Result<Vec<Address>> {
        self.dependents_of(address).await
    }

    async fn approximate_count(&self) -> Result<Option<u64>> {
        self.count_of_records().await
    }

    async fn ping(&self) -> Result<()> {
        // No address is blank, so there is no such item, and the read costs half a unit.
        self.get_item("ping the store", &Key::meta(" ")).await.map(drop)
    }
}

#[async_trait]
impl Publisher for Store {
    async fn create(&self, call: &Call, ledger: &NewLedger) -> Result<Created> {
        self.create_ledger_record(call, ledger).await
    }

    async fn create_branch(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        self.create_branch_record(call, branch, source, at).await
    }

    async fn retract(&self, call: &Call, address: &Address, reason: Option<&str>) -> Result<Retracted> {
        self.retract_record(call, address, reason).await
    }

    async fn restore(&self, call: &Call, address: &Address) -> Result<Restored> {
        self.restore_record(call, address).await
    }
}

#[async_trait]
impl AdminPublisher for Store {
    async fn purge(&self, call: &Call, address: &Address) -> Result<Purged> {
        self.purge_record(call, address).await
    }

    async fn protect(&self, call: &Call, address: &Address, protected: bool) -> Result<Protection> {
        self.protect_record(call, address, protected).await
    }

    async fn drop_branch(&self, call: &Call, address: &Address) -> Result<Dropped> {
        self.drop_branch_record(call, address).await
    }

    async fn reset_head(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        self.reset_head_record(call, address, to).await
    }
}

#[async_trait]
impl RefPublisher for Store {
    async fn head(&self, address: &Address) -> Result<Option<Head>> {
        self.get::<HeadConcern>(address).await
    }

    async fn index(&self, address: &Address) -> Result<Option<Index>> {
        self.get::<IndexConcern>(address).await
    }

    async fn push_head(&self, call: &Call, address: &Address, push: &HeadPush) -> Result<PushOutcome<ContentId>> {
        self.push::<HeadConcern>(call, address, push).await
    }

    async fn push_index(&self, call: &Call, address: &Address, push: &IndexPush) -> Result<PushOutcome<IndexRoot>> {
        self.push::<IndexConcern>(call, address, push).await
    }
}

#[async_trait]
impl StatusPublisher for Store {
    async fn status(&self, address: &Address) -> Result<Option<Status>> {
        self.get::<StatusConcern>(address).await
    }

    async fn push_status(
        &self,
        call: &Call,
        address: &Address,
        push: &StatusPush,
    ) -> Result<PushOutcome<StatusPayload>> {
        self.push::<StatusConcern>(call, address, push).await
    }
}

#[async_trait]
impl ConfigPublisher for Store {
    async fn config(&self, address: &Address) -> Result<Option<Config>> {
        self.get::<ConfigConcern>(address).await
    }

    async fn push_config(&self, call: &Call, address: &Address, push: &ConfigPush) -> Result<PushOutcome<Value>> {
        self.push::<ConfigConcern>(call, address, push).await
    }
}

#[async_trait]
impl GraphSourcePublisher for Store {
    async fn publish_graph_source(&self, call: &Call, publication: &GraphSourcePublication) -> Result<Published> {
        self.publish_graph_source_record(call, publication).await
    }
}

#[async_trait]
impl LeasePublisher for Store {
    async fn acquire_lease(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased> {
        self.acquire(call, address, request).await
    }

    async fn refresh_lease(
        &self,
        call: &Call,
        address: &Address,
        request: &LeaseRequest,
        token: i64,
    ) -> Result<Leased> {
        self.refresh(call, address, request, token).await
    }

    async fn release_lease(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released> {
        self.release(call, address, claim).await
    }
}

#[async_trait]
impl TransactionPublisher for Store {
    async fn commit(&self, call: &Call, transaction: &Transaction) -> Result<Committed> {
        self.commit_operations("commit a transaction", call, transaction.operations()).await
    }
}
