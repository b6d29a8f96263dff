//! The model's traits over the published state and the writer.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use nameservice_model::{
    Address, AdminPublisher, BranchCreated, Call, Capabilities, Committed, Config, ConfigPublisher, ConfigPush,
    ContentId, Created, Cursor, Dropped, Error, GraphSourceLookup, GraphSourcePublication, GraphSourcePublisher, Head,
    HeadPush, Hit, Index, IndexPush, IndexRoot, LeaseClaim, LeasePublisher, LeaseRequest, Leased, Limit, ListQuery,
    Listed, NameService, NewConfig, NewHead, Page, Protection, Published, Publisher, Purged, PushOutcome, Record,
    RecordKind, RefPublisher, Released, Reset, ResetTo, Restored, Result, Retracted, SearchQuery, Status,
    StatusPayload, StatusPublisher, StatusPush, Transaction, TransactionPublisher, Visible,
};
use serde_json::Value;
use tokio::{task::yield_now, time::timeout};

use crate::{
    Embedded,
    state::{Action, Command, Outcome, Portable, Record as Stored, State, Walk},
    writer::Condition,
};

/// How long the log may take for a write before it counts as dead.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const PING: &str = "write to the log";
/// How many records one reader looks at before it yields to others.
const LOOKS: usize = 2_000;
/// How many chunks of texts a search looks through before it yields to others: about a millisecond.
const CHUNKS: usize = 100;

impl Embedded {
    pub(crate) fn state(&self) -> Arc<State> {
        self.inner.shared.published.load_full()
    }

    /// Reads a record without keeping the state.
    fn read<T>(&self, address: &Address, read: impl FnOnce(&Stored) -> T) -> Option<T> {
        self.inner.shared.published.load().get(address).map(|record| read(record))
    }

    async fn write<T>(
        &self,
        operation: &'static str,
        call: &Call,
        action: Action,
        outcome: impl FnOnce(Outcome) -> Option<T> + Send,
    ) -> Result<T> {
        // Held, not entered: nothing below creates spans.
        let _span = tracing::debug_span!("log", otel.name = operation);
        if self.is_replica() {
            return Err(Error::ReadOnly { operation, addresses: action.addresses() });
        }
        let written = self.inner.writer.write(operation, Command::new(call, action)).await?;
        // Every command has an outcome of its own kind, so this is not reached.
        outcome(written).ok_or_else(|| Error::Store {
            operation,
            source: "the writer returned the outcome of another command".into(),
        })
    }
}

impl Embedded {
    /// Stores a record as it is elsewhere. The differences become changes in the feed.
    pub async fn observe(&self, address: &Address, record: Option<Portable>) -> Result<()> {
        let action = Action::Observe { address: address.clone(), record: record.map(Box::new) };
        let done = |outcome| matches!(outcome, Outcome::Observed).then_some(());
        self.write("follow a record", &Call::fresh(), action, done).await
    }
}

/// Extracts the outcome of one kind of command.
macro_rules! outcome {
    ($kind:ident) => {
        |outcome| match outcome {
            Outcome::$kind(outcome) => Some(outcome),
            _ => None,
        }
    };
}

async fn walked<T>(mut walk: Walk<'_, T>) -> Page<T> {
    while !walk.advance(LOOKS) {
        yield_now().await;
    }
    walk.into_page()
}

#[async_trait]
impl GraphSourceLookup for Embedded {
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>> {
        let source = |record: &Stored| (record.kind == RecordKind::GraphSource).then(|| record.to_model());
        Ok(self.read(address, source).flatten())
    }
}

#[async_trait]
impl NameService for Embedded {
    async fn lookup(&self, address: &Address) -> Result<Option<Record>> {
        Ok(self.read(address, Stored::to_model))
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>> {
        let state = self.state();
        Ok(addresses.iter().filter_map(|address| state.get(address)).map(|record| record.to_model()).collect())
    }

    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        let state = self.state();
        Ok(walked(state.list(query, visible)).await)
    }

    /// All pages of a snapshot are at one position, that of their cursors, as long as less than a minute passes between
    /// any two of them.
    async fn snapshot(&self, limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>> {
        let snapshots = &self.inner.shared.snapshots;
        let state = after.and_then(Cursor::position).and_then(|position| snapshots.at(position));
        let state = state.unwrap_or_else(|| self.state());
        let page = walked(state.snapshot(limit.get(), after, visible)).await;
        if page.cursor.is_some() {
            snapshots.keep(state);
        }
        Ok(page)
    }

    async fn search(&self, query: &SearchQuery, visible: Visible<'_>) -> Result<Page<Hit>> {
        let state = self.state();
        let mut hunt = state.search(query, visible);
        while !hunt.advance(CHUNKS) {
            yield_now().await;
        }
        Ok(hunt.into_page())
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        Ok(Capabilities::ALL)
    }

    async fn dependents(&self, address: &Address) -> Result<Vec<Address>> {
        Ok(self.state().dependents(address))
    }

    async fn ping(&self) -> Result<()> {
        let failed = |reason: String| Err(Error::Unavailable { operation: PING, source: Some(reason.into()) });
        match self.inner.shared.condition() {
            Condition::Sound if self.inner.shared.is_sound() => return Ok(()),
            Condition::Sound => {}
            // The writer tries a full disk again by itself.
            Condition::Full(reason) | Condition::Ended(reason) => return failed(reason),
        }
        // Whether a disk is full or dead shows only in a write, which the writer makes once a second at most.
        let probe = self.inner.writer.write(PING, Command::new(&Call::fresh(), Action::Probe));
        match timeout(PING_TIMEOUT, probe).await {
            Ok(probed) => probed.map(drop),
            Err(_) => failed("writing to the log takes too long".to_owned()),
        }
    }
}

#[async_trait]
impl Publisher for Embedded {
    async fn create_ledger(
        &self,
        call: &Call,
        address: &Address,
        head: Option<&NewHead>,
        config: Option<&NewConfig>,
    ) -> Result<Created> {
        let (address, head, config) = (address.clone(), head.cloned(), config.cloned());
        self.write("create a ledger", call, Action::CreateLedger { address, head, config }, outcome!(Created)).await
    }

    async fn create_branch(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        let action = Action::CreateBranch { branch: branch.clone(), source: source.clone(), at: at.cloned() };
        self.write("create a branch", call, action, outcome!(BranchCreated)).await
    }

    async fn retract(&self, call: &Call, address: &Address, reason: Option<&str>) -> Result<Retracted> {
        let action = Action::Retract { address: address.clone(), reason: reason.map(str::to_owned) };
        self.write("retract a record", call, action, outcome!(Retracted)).await
    }

    async fn restore(&self, call: &Call, address: &Address) -> Result<Restored> {
        let action = Action::Restore { address: address.clone() };
        self.write("restore a record", call, action, outcome!(Restored)).await
    }
}

#[async_trait]
impl AdminPublisher for Embedded {
    async fn purge(&self, call: &Call, address: &Address) -> Result<Purged> {
        let action = Action::Purge { address: address.clone() };
        self.write("purge a record", call, action, outcome!(Purged)).await
    }

    async fn protect(&self, call: &Call, address: &Address, protected: bool) -> Result<Protection> {
        let action = Action::Protect { address: address.clone(), protected };
        self.write("protect a record", call, action, outcome!(Protection)).await
    }

    async fn drop_branch(&self, call: &Call, address: &Address) -> Result<Dropped> {
        let action = Action::DropBranch { address: address.clone() };
        self.write("drop a branch", call, action, outcome!(Dropped)).await
    }

    async fn reset_head(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        let action = Action::ResetHead { address: address.clone(), to: to.clone() };
        self.write("reset a head", call, action, outcome!(Reset)).await
    }
}

#[async_trait]
impl RefPublisher for Embedded {
    async fn head(&self, address: &Address) -> Result<Option<Head>> {
        Ok(self.read(address, Stored::head).flatten())
    }

    async fn index(&self, address: &Address) -> Result<Option<Index>> {
        Ok(self.read(address, |record| record.index.value()))
    }

    async fn push_head(&self, call: &Call, address: &Address, push: &HeadPush) -> Result<PushOutcome<ContentId>> {
        let action = Action::PushHead { address: address.clone(), push: push.clone() };
        self.write("push a head", call, action, outcome!(Head)).await
    }

    async fn push_index(&self, call: &Call, address: &Address, push: &IndexPush) -> Result<PushOutcome<IndexRoot>> {
        let action = Action::PushIndex { address: address.clone(), push: push.clone() };
        self.write("push an index", call, action, outcome!(Index)).await
    }
}

#[async_trait]
impl StatusPublisher for Embedded {
    async fn status(&self, address: &Address) -> Result<Option<Status>> {
        Ok(self.read(address, |record| record.status.value()))
    }

    async fn push_status(
        &self,
        call: &Call,
        address: &Address,
        push: &StatusPush,
    ) -> Result<PushOutcome<StatusPayload>> {
        let action = Action::PushStatus { address: address.clone(), push: push.clone() };
        self.write("push a status", call, action, outcome!(Status)).await
    }
}

#[async_trait]
impl ConfigPublisher for Embedded {
    async fn config(&self, address: &Address) -> Result<Option<Config>> {
        Ok(self.read(address, |record| record.config.value()))
    }

    async fn push_config(&self, call: &Call, address: &Address, push: &ConfigPush) -> Result<PushOutcome<Value>> {
        let action = Action::PushConfig { address: address.clone(), push: push.clone() };
        self.write("push a config", call, action, outcome!(Config)).await
    }
}

#[async_trait]
impl GraphSourcePublisher for Embedded {
    async fn publish_graph_source(&self, call: &Call, publication: &GraphSourcePublication) -> Result<Published> {
        let action = Action::PublishGraphSource(publication.clone());
        self.write("publish a graph source", call, action, outcome!(Published)).await
    }
}

#[async_trait]
impl LeasePublisher for Embedded {
    async fn acquire_lease(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased> {
        let action = Action::AcquireLease { address: address.clone(), request: request.clone() };
        self.write("acquire a lease", call, action, outcome!(Leased)).await
    }

    async fn refresh_lease(
        &self,
        call: &Call,
        address: &Address,
        request: &LeaseRequest,
        token: i64,
    ) -> Result<Leased> {
        let action = Action::RefreshLease { address: address.clone(), request: request.clone(), token };
        self.write("refresh a lease", call, action, outcome!(Leased)).await
    }

    async fn release_lease(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released> {
        let action = Action::ReleaseLease { address: address.clone(), claim: claim.clone() };
        self.write("release a lease", call, action, outcome!(Released)).await
    }
}

#[async_trait]
impl TransactionPublisher for Embedded {
    async fn commit(&self, call: &Call, transaction: &Transaction) -> Result<Committed> {
        self.write("commit a transaction", call, Action::Commit(transaction.clone()), outcome!(Committed)).await
    }
}
