//! The model's traits over files.

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nameservice_embedded::state::{Action, Outcome};
use nameservice_model::{
    Address, AdminPublisher, BranchCreated, Call, Capabilities, Capability, Committed, Config, ConfigPublisher,
    ConfigPush, ContentId, Created, Cursor, Dropped, Error, GraphSourceLookup, GraphSourcePublication,
    GraphSourcePublisher, Head, HeadPush, Index, IndexPush, IndexRoot, LeaseClaim, LeasePublisher, LeaseRequest,
    Leased, Limit, ListQuery, Listed, NameService, NewConfig, NewHead, Page, Protection, Published, Publisher, Purged,
    PushOutcome, Record, RecordKind, RefPublisher, Released, Reset, ResetTo, Restored, Result, Retracted, Status,
    StatusPayload, StatusPublisher, StatusPush, Transaction, TransactionPublisher, Visible,
};
use serde_json::Value;

use crate::{Files, names, plan::Plan, storage::failed};

/// How many records are read at a time.
const TOGETHER: usize = 32;

/// Extracts the outcome of one kind of command.
macro_rules! outcome {
    ($kind:ident) => {
        |outcome| match outcome {
            Outcome::$kind(outcome) => Some(outcome),
            _ => None,
        }
    };
}

impl Files {
    async fn write<T>(
        &self,
        plan: Plan,
        call: &Call,
        action: Action,
        outcome: impl FnOnce(Outcome) -> Option<T> + Send,
    ) -> Result<T> {
        let operation = plan.operation;
        let written = self.apply(plan, Self::command(call, action)).await?;
        // The outcome is of the same kind as the command.
        outcome(written).ok_or_else(|| failed(operation, "the outcome is of another kind than the command"))
    }

    async fn record(&self, address: &Address) -> Result<Option<Record>> {
        Ok(self.load(address).await?.map(|stored| stored.record()))
    }
}

fn unsupported(capability: Capability, reason: &str) -> Error {
    Error::Unsupported { capability, reason: reason.to_owned() }
}

#[async_trait]
impl GraphSourceLookup for Files {
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>> {
        Ok(self.record(address).await?.filter(|record| record.kind == RecordKind::GraphSource))
    }
}

#[async_trait]
impl NameService for Files {
    async fn lookup(&self, address: &Address) -> Result<Option<Record>> {
        self.record(address).await
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>> {
        let found = stream::iter(addresses.to_vec()).map(|address| async move { self.record(&address).await });
        let found: Vec<_> = found.buffered(TOGETHER).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        self.listed(query, visible).await
    }

    /// Each record of a page is as it was when it was read: files have no snapshot of all.
    async fn snapshot(&self, limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>> {
        self.snapshot_page(limit, after, visible).await
    }

    async fn dependents(&self, address: &Address) -> Result<Vec<Address>> {
        let found = self.referrers(address).await?;
        Ok(found.sources.into_iter().chain(found.branches).collect())
    }

    async fn ping(&self) -> Result<()> {
        self.inner.storage.read(&format!("{}/.ping", names::ROOT)).await.map(drop)
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        Ok(self.supports())
    }
}

#[async_trait]
impl Publisher for Files {
    async fn create_ledger(
        &self,
        call: &Call,
        address: &Address,
        head: Option<&NewHead>,
        config: Option<&NewConfig>,
    ) -> Result<Created> {
        let plan = Plan { creates: true, ..Plan::new("create a ledger", address) };
        let action = Action::CreateLedger { address: address.clone(), head: head.cloned(), config: config.cloned() };
        self.write(plan, call, action, outcome!(Created)).await
    }

    async fn create_branch(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        let plan = Plan { creates: true, parent: Some(source.clone()), ..Plan::new("create a branch", branch) };
        let action = Action::CreateBranch { branch: branch.clone(), source: source.clone(), at: at.cloned() };
        self.write(plan, call, action, outcome!(BranchCreated)).await
    }

    async fn retract(&self, call: &Call, address: &Address, reason: Option<&str>) -> Result<Retracted> {
        let plan = Plan { removes: true, ..Plan::new("retract a record", address) };
        let action = Action::Retract { address: address.clone(), reason: reason.map(str::to_owned) };
        self.write(plan, call, action, outcome!(Retracted)).await
    }

    async fn restore(&self, call: &Call, address: &Address) -> Result<Restored> {
        let action = Action::Restore { address: address.clone() };
        self.write(Plan::new("restore a record", address), call, action, outcome!(Restored)).await
    }
}

#[async_trait]
impl AdminPublisher for Files {
    async fn purge(&self, call: &Call, address: &Address) -> Result<Purged> {
        let plan = Plan { removes: true, ends: true, ..Plan::new("purge a record", address) };
        self.write(plan, call, Action::Purge { address: address.clone() }, outcome!(Purged)).await
    }

    async fn protect(&self, call: &Call, address: &Address, protected: bool) -> Result<Protection> {
        let action = Action::Protect { address: address.clone(), protected };
        self.write(Plan::new("protect a record", address), call, action, outcome!(Protection)).await
    }

    async fn drop_branch(&self, call: &Call, address: &Address) -> Result<Dropped> {
        let plan = Plan { removes: true, ends: true, ..Plan::new("drop a branch", address) };
        self.write(plan, call, Action::DropBranch { address: address.clone() }, outcome!(Dropped)).await
    }

    async fn reset_head(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        let plan = Plan { both: true, ..Plan::new("reset a head", address) };
        let action = Action::ResetHead { address: address.clone(), to: to.clone() };
        self.write(plan, call, action, outcome!(Reset)).await
    }
}

#[async_trait]
impl RefPublisher for Files {
    async fn head(&self, address: &Address) -> Result<Option<Head>> {
        Ok(self.record(address).await?.and_then(|record| record.head))
    }

    async fn index(&self, address: &Address) -> Result<Option<Index>> {
        Ok(self.record(address).await?.map(|record| record.index))
    }

    async fn push_head(&self, call: &Call, address: &Address, push: &HeadPush) -> Result<PushOutcome<ContentId>> {
        let plan = Plan { creates: push.creates(), ..Plan::new("push a head", address) };
        let action = Action::PushHead { address: address.clone(), push: push.clone() };
        self.write(plan, call, action, outcome!(Head)).await
    }

    async fn push_index(&self, call: &Call, address: &Address, push: &IndexPush) -> Result<PushOutcome<IndexRoot>> {
        if !push.desired().graphs().is_empty() {
            let reason = "files have no place for the indexes of named graphs";
            return Err(unsupported(Capability::NamedGraphs, reason));
        }
        if push.lease().is_some() && !self.inner.storage.locks() {
            let reason = "in a bucket the index is another object than the lease: push it without the lease";
            return Err(unsupported(Capability::LeasedIndexPushes, reason));
        }
        let creates = push.creates();
        let plan = Plan { creates, both: creates, ..Plan::new("push an index", address) };
        let action = Action::PushIndex { address: address.clone(), push: push.clone() };
        self.write(plan, call, action, outcome!(Index)).await
    }
}

#[async_trait]
impl StatusPublisher for Files {
    async fn status(&self, address: &Address) -> Result<Option<Status>> {
        Ok(self.record(address).await?.map(|record| record.status))
    }

    async fn push_status(
        &self,
        call: &Call,
        address: &Address,
        push: &StatusPush,
    ) -> Result<PushOutcome<StatusPayload>> {
        let action = Action::PushStatus { address: address.clone(), push: push.clone() };
        self.write(Plan::new("push a status", address), call, action, outcome!(Status)).await
    }
}

#[async_trait]
impl ConfigPublisher for Files {
    async fn config(&self, address: &Address) -> Result<Option<Config>> {
        Ok(self.record(address).await?.map(|record| record.config))
    }

    async fn push_config(&self, call: &Call, address: &Address, push: &ConfigPush) -> Result<PushOutcome<Value>> {
        let action = Action::PushConfig { address: address.clone(), push: push.clone() };
        self.write(Plan::new("push a config", address), call, action, outcome!(Config)).await
    }
}

#[async_trait]
impl GraphSourcePublisher for Files {
    async fn publish_graph_source(&self, call: &Call, publication: &GraphSourcePublication) -> Result<Published> {
        let plan = Plan {
            creates: true,
            targets: publication.dependencies().unwrap_or_default().to_vec(),
            ..Plan::new("publish a graph source", publication.address())
        };
        self.write(plan, call, Action::PublishGraphSource(publication.clone()), outcome!(Published)).await
    }
}

#[async_trait]
impl LeasePublisher for Files {
    async fn acquire_lease(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased> {
        let plan = Plan { holder: Some(request.holder().to_owned()), ..Plan::new("acquire a lease", address) };
        let action = Action::AcquireLease { address: address.clone(), request: request.clone() };
        self.write(plan, call, action, outcome!(Leased)).await
    }

    async fn refresh_lease(
        &self,
        call: &Call,
        address: &Address,
        request: &LeaseRequest,
        token: i64,
    ) -> Result<Leased> {
        let action = Action::RefreshLease { address: address.clone(), request: request.clone(), token };
        self.write(Plan::new("refresh a lease", address), call, action, outcome!(Leased)).await
    }

    async fn release_lease(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released> {
        let action = Action::ReleaseLease { address: address.clone(), claim: claim.clone() };
        self.write(Plan::new("release a lease", address), call, action, outcome!(Released)).await
    }
}

#[async_trait]
impl TransactionPublisher for Files {
    async fn commit(&self, _: &Call, _: &Transaction) -> Result<Committed> {
        let reason = "several files cannot be written in one step: push each concern separately";
        Err(unsupported(Capability::Transactions, reason))
    }
}
