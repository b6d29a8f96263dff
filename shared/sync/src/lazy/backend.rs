//! Implements the traits: reads use both places, writes go to the backend.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nameservice_model::{
    Address, AdminPublisher, BranchCreated, Call, Capabilities, ChangeFeed, Committed, Config, ConfigPublisher,
    ConfigPush, ContentId, Created, Cursor, Dropped, GraphSourceLookup, GraphSourcePublication, GraphSourcePublisher,
    Head, HeadPush, History, HistoryQuery, Hit, Index, IndexPush, IndexRoot, LeaseClaim, LeasePublisher, LeaseRequest,
    Leased, Limit, ListQuery, Listed, NameService, NewConfig, NewHead, Page, Protection, Published, Publisher, Purged,
    PushOutcome, Record, RecordKind, RefPublisher, Released, Reset, ResetTo, Restored, Result, Retracted, Run,
    SearchQuery, Status, StatusPayload, StatusPublisher, StatusPush, Transaction, TransactionPublisher, Visible,
};
use serde_json::Value;

use super::LazyBackend;
use crate::pending::without_mark;

/// How many records are looked up at a time.
const TOGETHER: usize = 16;

impl LazyBackend {
    /// Returns whether only the older place has a record.
    async fn is_there_alone(&self, address: &Address) -> Result<bool> {
        if self.is_settled(address) || self.names.lookup(address).await?.is_some() {
            return Ok(false);
        }
        Ok(self.older.find(address).await?.is_some())
    }

    /// Rejects the deletion of a record that the older place still has, because it would reappear from there.
    async fn must_be_gone_there(&self, address: &Address) -> Result<()> {
        match self.older.find(address).await? {
            None => Ok(()),
            Some(_) => Err(self.rejected(format!(
                "{address} cannot be deleted while the older place has it: delete it there first, or retract it"
            ))),
        }
    }
}

#[async_trait]
impl GraphSourceLookup for LazyBackend {
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>> {
        Ok(self.found(address).await?.filter(|record| record.kind == RecordKind::GraphSource))
    }
}

#[async_trait]
impl NameService for LazyBackend {
    async fn lookup(&self, address: &Address) -> Result<Option<Record>> {
        self.found(address).await
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>> {
        let mut here = self.names.lookup_all(addresses).await?.into_iter().peekable();
        // Both are in the order of the addresses.
        let paired: Vec<(Address, Option<Record>)> = addresses
            .iter()
            .map(|address| (address.clone(), here.next_if(|record| record.address == *address)))
            .collect();
        let shown = stream::iter(paired).map(|(address, record)| async move { self.shown(&address, record).await });
        let shown = shown.buffered(TOGETHER);
        Ok(shown.try_collect::<Vec<_>>().await?.into_iter().flatten().collect())
    }

    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        self.listed(query, visible).await
    }

    async fn snapshot(&self, limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>> {
        self.snapshot_page(limit, after, visible).await
    }

    async fn dependents(&self, address: &Address) -> Result<Vec<Address>> {
        let mut dependents = self.names.dependents(address).await?;
        for dependent in self.dependents_there(address).await? {
            if !dependents.contains(&dependent) && self.is_there_alone(&dependent).await? {
                dependents.push(dependent);
            }
        }
        Ok(dependents)
    }

    async fn ping(&self) -> Result<()> {
        self.names.ping().await
    }

    /// Records of the older place are found only after they were taken over.
    async fn search(&self, query: &SearchQuery, visible: Visible<'_>) -> Result<Page<Hit>> {
        self.names.search(query, visible).await
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        self.names.capabilities().await
    }
}

#[async_trait]
impl Publisher for LazyBackend {
    async fn create_ledger(
        &self,
        call: &Call,
        address: &Address,
        head: Option<&NewHead>,
        config: Option<&NewConfig>,
    ) -> Result<Created> {
        match self.is_there_alone(address).await? {
            true => Ok(Created::AlreadyExists),
            false => self.names.create_ledger(call, address, head, config).await,
        }
    }

    async fn create_branch(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        if self.is_there_alone(branch).await? {
            return Ok(BranchCreated::AlreadyExists);
        }
        self.claim(source).await?;
        self.names.create_branch(call, branch, source, at).await
    }

    async fn retract(&self, call: &Call, address: &Address, reason: Option<&str>) -> Result<Retracted> {
        self.claim(address).await?;
        self.claim_dependents(address).await?;
        self.names.retract(call, address, reason).await
    }

    async fn restore(&self, call: &Call, address: &Address) -> Result<Restored> {
        self.claim(address).await?;
        let restored = self.names.restore(call, address).await?;
        self.restored(address).await?;
        Ok(match restored {
            Restored::Restored(record) => Restored::Restored(Box::new(without_mark(*record))),
            Restored::NotRetracted(record) => Restored::NotRetracted(Box::new(without_mark(*record))),
            other => other,
        })
    }
}

#[async_trait]
impl AdminPublisher for LazyBackend {
    async fn purge(&self, call: &Call, address: &Address) -> Result<Purged> {
        self.must_be_gone_there(address).await?;
        self.claim_dependents(address).await?;
        self.names.purge(call, address).await
    }

    async fn protect(&self, call: &Call, address: &Address, protected: bool) -> Result<Protection> {
        self.claim(address).await?;
        self.names.protect(call, address, protected).await
    }

    async fn drop_branch(&self, call: &Call, address: &Address) -> Result<Dropped> {
        self.must_be_gone_there(address).await?;
        self.claim_dependents(address).await?;
        self.names.drop_branch(call, address).await
    }

    async fn reset_head(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        self.claim(address).await?;
        self.names.reset_head(call, address, to).await
    }
}

#[async_trait]
impl RefPublisher for LazyBackend {
    async fn head(&self, address: &Address) -> Result<Option<Head>> {
        match self.is_settled(address) {
            true => self.names.head(address).await,
            false => Ok(self.found(address).await?.and_then(|record| record.head)),
        }
    }

    async fn index(&self, address: &Address) -> Result<Option<Index>> {
        match self.is_settled(address) {
            true => self.names.index(address).await,
            false => Ok(self.found(address).await?.map(|record| record.index)),
        }
    }

    async fn push_head(&self, call: &Call, address: &Address, push: &HeadPush) -> Result<PushOutcome<ContentId>> {
        self.claim(address).await?;
        self.names.push_head(call, address, push).await
    }

    async fn push_index(&self, call: &Call, address: &Address, push: &IndexPush) -> Result<PushOutcome<IndexRoot>> {
        self.claim(address).await?;
        self.names.push_index(call, address, push).await
    }
}

#[async_trait]
impl StatusPublisher for LazyBackend {
    async fn status(&self, address: &Address) -> Result<Option<Status>> {
        match self.is_settled(address) {
            true => self.names.status(address).await,
            false => Ok(self.found(address).await?.map(|record| record.status)),
        }
    }

    async fn push_status(
        &self,
        call: &Call,
        address: &Address,
        push: &StatusPush,
    ) -> Result<PushOutcome<StatusPayload>> {
        self.claim(address).await?;
        self.names.push_status(call, address, push).await
    }
}

#[async_trait]
impl ConfigPublisher for LazyBackend {
    async fn config(&self, address: &Address) -> Result<Option<Config>> {
        match self.is_settled(address) {
            true => self.names.config(address).await,
            false => Ok(self.found(address).await?.map(|record| record.config)),
        }
    }

    async fn push_config(&self, call: &Call, address: &Address, push: &ConfigPush) -> Result<PushOutcome<Value>> {
        self.claim(address).await?;
        self.names.push_config(call, address, push).await
    }
}

#[async_trait]
impl GraphSourcePublisher for LazyBackend {
    async fn publish_graph_source(&self, call: &Call, publication: &GraphSourcePublication) -> Result<Published> {
        self.claim(publication.address()).await?;
        for dependency in publication.dependencies().unwrap_or_default() {
            self.claim(dependency).await?;
        }
        self.names.publish_graph_source(call, publication).await
    }
}

#[async_trait]
impl LeasePublisher for LazyBackend {
    async fn acquire_lease(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased> {
        self.claim(address).await?;
        self.names.acquire_lease(call, address, request).await
    }

    async fn refresh_lease(
        &self,
        call: &Call,
        address: &Address,
        request: &LeaseRequest,
        token: i64,
    ) -> Result<Leased> {
        self.claim(address).await?;
        self.names.refresh_lease(call, address, request, token).await
    }

    async fn release_lease(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released> {
        self.claim(address).await?;
        self.names.release_lease(call, address, claim).await
    }
}

#[async_trait]
impl TransactionPublisher for LazyBackend {
    async fn commit(&self, call: &Call, transaction: &Transaction) -> Result<Committed> {
        for operation in transaction.operations() {
            self.claim(&operation.address).await?;
        }
        self.names.commit(call, transaction).await
    }
}

#[async_trait]
impl ChangeFeed for LazyBackend {
    async fn position(&self) -> Result<u64> {
        self.feed.position().await
    }

    fn outage(&self) -> Option<String> {
        self.feed.outage()
    }

    fn is_immediate(&self) -> bool {
        self.feed.is_immediate()
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
