//! The model's traits over files.

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nameservice_embedded::state::Command;
use nameservice_model::{
    Address, Call, Capabilities, Capability, Cursor, Error, GraphSourceLookup, Limit, ListQuery, Listed, NameService,
    Page, Record, RecordKind, Result, Visible, Write, WriteAll, Written, check_fluree,
};

use crate::{Files, names, plan::Plan};

/// How many records are read at a time.
const TOGETHER: usize = 32;

impl Files {
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
impl WriteAll for Files {
    async fn write(&self, call: &Call, write: Write) -> Result<Written> {
        // Fluree's servers use the same files.
        check_fluree(self, call, &write).await?;
        if let Write::PushIndex { push, .. } = &write {
            if !push.desired().graphs().is_empty() {
                let reason = "files have no place for the indexes of named graphs";
                return Err(unsupported(Capability::NamedGraphs, reason));
            }
            if push.lease().is_some() && !self.inner.storage.locks() {
                let reason = "in a bucket the index is another object than the lease: push it without the lease";
                return Err(unsupported(Capability::LeasedIndexPushes, reason));
            }
        }
        let Some(plan) = Plan::of(&write) else {
            let reason = "several files cannot be written in one step: push each concern separately";
            return Err(unsupported(Capability::Transactions, reason));
        };
        self.apply(plan, Command::new(call, write)).await
    }
}
