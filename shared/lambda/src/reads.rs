//! Replacements for the store, for functions that need only part of it: code that is not called is not linked, so a function
//! that never reads is smaller by the AWS SDK, and one that never writes by the code that writes.

use std::time::Duration;

use async_trait::async_trait;
use nameservice_model::{
    Address, Call, ChangeFeed, Config, Cursor, Error, GraphSourceLookup, Head, History, HistoryQuery, Index, Limit,
    ListQuery, Listed, NameService, Page, Record, Result, Run, Status, Visible, Write, WriteAll, Written,
    forward_names,
};

/// An absent store. Every call fails: a route that calls it is in the wrong function.
pub(crate) struct NoStore;

/// A backend that only reads whole records from this store. All other calls fail as above: reads of a single concern, and writes.
pub(crate) struct Reads<S>(pub(crate) S);

fn absent<T>() -> Result<T> {
    let source = "the route was given to a function that reads at most records".into();
    Err(Error::Unavailable { operation: "use the store", source: Some(source) })
}

#[async_trait]
impl GraphSourceLookup for NoStore {
    async fn graph_source(&self, _: &Address) -> Result<Option<Record>> {
        absent()
    }
}

#[async_trait]
impl NameService for NoStore {
    async fn lookup(&self, _: &Address) -> Result<Option<Record>> {
        absent()
    }

    async fn lookup_all(&self, _: &[Address]) -> Result<Vec<Record>> {
        absent()
    }

    async fn list(&self, _: &ListQuery, _: Visible<'_>) -> Result<Page<Listed>> {
        absent()
    }

    async fn snapshot(&self, _: Limit, _: Option<&Cursor>, _: Visible<'_>) -> Result<Page<Record>> {
        absent()
    }

    async fn dependents(&self, _: &Address) -> Result<Vec<Address>> {
        absent()
    }

    async fn ping(&self) -> Result<()> {
        absent()
    }
}

forward_names!(impl[S: NameService] Reads<S>, this => &this.0);

#[async_trait]
impl<S: NameService> WriteAll for Reads<S> {
    async fn write(&self, _: &Call, _: Write) -> Result<Written> {
        absent()
    }

    async fn read_head(&self, _: &Address) -> Result<Option<Head>> {
        absent()
    }

    async fn read_index(&self, _: &Address) -> Result<Option<Index>> {
        absent()
    }

    async fn read_status(&self, _: &Address) -> Result<Option<Status>> {
        absent()
    }

    async fn read_config(&self, _: &Address) -> Result<Option<Config>> {
        absent()
    }
}

#[async_trait]
impl ChangeFeed for NoStore {
    async fn position(&self) -> Result<u64> {
        absent()
    }

    async fn changes(&self, _: u64, _: Limit) -> Result<Run> {
        absent()
    }

    async fn wait(&self, _: u64, _: Duration) -> Result<()> {
        absent()
    }

    async fn history(&self, _: &Address, _: &HistoryQuery) -> Result<History> {
        absent()
    }
}
