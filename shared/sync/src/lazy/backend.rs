//! Implements the traits: reads use both places, writes go to the backend.

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nameservice_model::{
    Address, BranchCreated, Call, Capabilities, Config, Created, Cursor, GraphSourceLookup, Head, Hit, Index, Limit,
    ListQuery, Listed, NameService, NewLedger, Page, Record, RecordKind, Restored, Result, SearchQuery, Status,
    Visible, Write, WriteAll, Written, forward_feed,
};

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
impl WriteAll for LazyBackend {
    /// Takes the records over that the write is about, and writes to the backend.
    async fn write(&self, call: &Call, write: Write) -> Result<Written> {
        match &write {
            Write::CreateLedger(NewLedger { address, .. }) => {
                if self.is_there_alone(address).await? {
                    return Ok(Written::Created(Created::AlreadyExists));
                }
            }
            Write::CreateBranch { branch, source, .. } => {
                if self.is_there_alone(branch).await? {
                    return Ok(Written::BranchCreated(BranchCreated::AlreadyExists));
                }
                self.claim(source).await?;
            }
            Write::PublishGraphSource(publication) => {
                self.claim(publication.address()).await?;
                for dependency in publication.dependencies().unwrap_or_default() {
                    self.claim(dependency).await?;
                }
            }
            Write::Purge { address } | Write::DropBranch { address } => {
                self.must_be_gone_there(address).await?;
                self.claim_dependents(address).await?;
            }
            Write::Retract { address, .. } => {
                self.claim(address).await?;
                self.claim_dependents(address).await?;
            }
            write => {
                for address in write.addresses() {
                    self.claim(&address).await?;
                }
            }
        }
        let written = write.send(call, &*self.names).await?;
        let Written::Restored(restored) = written else { return Ok(written) };
        for address in write.addresses() {
            self.restored(&address).await?;
        }
        Ok(Written::Restored(match restored {
            Restored::Restored(record) => Restored::Restored(Box::new(without_mark(*record))),
            Restored::NotRetracted(record) => Restored::NotRetracted(Box::new(without_mark(*record))),
            other => other,
        }))
    }

    async fn read_head(&self, address: &Address) -> Result<Option<Head>> {
        match self.is_settled(address) {
            true => self.names.head(address).await,
            false => Ok(self.found(address).await?.and_then(|record| record.head)),
        }
    }

    async fn read_index(&self, address: &Address) -> Result<Option<Index>> {
        match self.is_settled(address) {
            true => self.names.index(address).await,
            false => Ok(self.found(address).await?.map(|record| record.index)),
        }
    }

    async fn read_status(&self, address: &Address) -> Result<Option<Status>> {
        match self.is_settled(address) {
            true => self.names.status(address).await,
            false => Ok(self.found(address).await?.map(|record| record.status)),
        }
    }

    async fn read_config(&self, address: &Address) -> Result<Option<Config>> {
        match self.is_settled(address) {
            true => self.names.config(address).await,
            false => Ok(self.found(address).await?.map(|record| record.config)),
        }
    }
}

forward_feed!(impl[] LazyBackend, this => &*this.feed);
