//! The traits of the model, over HTTP.

mod leases;
mod pushes;
mod records;
mod transactions;

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use nameservice_api::{self as api, ProblemKind};
use nameservice_model::{
    Address, Call, Capabilities, Cursor, Error, GraphSourceLookup, Hit, Limit, ListQuery, Listed, NameService, Page,
    Record, RecordKind, Result, SearchQuery, Summary, Visible,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Client, Request, outcomes::invalid};

/// The maximum number of entries on a page of the service.
pub(crate) const MAX_PAGE: usize = 1_000;
/// How many records are read at a time.
const TOGETHER: usize = 16;
impl Client {
    /// Reads a record, or those of its concerns; `None` if there is none.
    async fn record(&self, operation: &'static str, address: &Address, concern: &str) -> Result<Option<api::Record>> {
        let concerns = Some(concern).filter(|concern| !concern.is_empty());
        let request = Request::get("records").at(address).query("concerns", concerns);
        match self.send(&request).await {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.problem() == Some(ProblemKind::UnknownRecord) => Ok(None),
            Err(error) => Err(error.into_model(operation)),
        }
    }
}

fn put<T: Serialize>(path: &str, call: &Call, address: &Address, body: &T) -> Request {
    Request::of_call(Method::PUT, path, call).at(address).body(body)
}

#[async_trait]
impl GraphSourceLookup for Client {
    async fn graph_source(&self, address: &Address) -> Result<Option<Record>> {
        Ok(self.lookup(address).await?.filter(|record| record.kind == RecordKind::GraphSource))
    }
}

#[async_trait]
impl NameService for Client {
    async fn lookup(&self, address: &Address) -> Result<Option<Record>> {
        const OPERATION: &str = "look a record up";
        let record = self.record(OPERATION, address, "").await?;
        record.map(Record::try_from).transpose().map_err(invalid(OPERATION))
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>> {
        let lookups = addresses.iter().cloned().map(|address| async move { self.lookup(&address).await });
        let found = stream::iter(lookups).buffered(TOGETHER);
        let found: Vec<_> = found.try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        const OPERATION: &str = "list records";
        let mut after = query.cursor.clone();
        loop {
            let request = Request::get("records")
                .query("kind", query.kind.map(RecordKind::as_str))
                .query("name", query.name.as_deref())
                .query("prefix", query.prefix.as_deref().filter(|prefix| !prefix.is_empty()))
                .query("source_type", query.source_type.as_deref())
                .query("state", query.state.as_deref())
                .query("retracted", query.retracted)
                .query("view", query.full.then_some("full"))
                .query("limit", Some(query.limit.get().min(MAX_PAGE)))
                .query("cursor", after.as_ref().map(Cursor::encode));
            let page: api::Page<api::Listed> =
                self.send(&request).await.map_err(|error| error.into_model(OPERATION))?;
            let listed = page.records.into_iter().map(|listed| match listed {
                api::Listed::Summary(summary) => summary.try_into().map(Listed::Summary),
                api::Listed::Full(record) => (*record).try_into().map(|record| Listed::Full(Box::new(record))),
            });
            let items = listed.collect::<Result<_, _>>().map_err(invalid(OPERATION))?;
            let key = |listed: &Listed| match listed {
                Listed::Summary(summary) => (summary.kind, summary.address.clone()),
                Listed::Full(record) => (record.kind, record.address.clone()),
            };
            match narrowed(items, cursor(OPERATION, page.cursor.as_deref())?, key, visible) {
                Narrowed::Page(page) => return Ok(page),
                Narrowed::Empty { next } => after = Some(next),
            }
        }
    }

    async fn snapshot(&self, limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>> {
        const OPERATION: &str = "read a snapshot";
        let mut after = after.cloned();
        loop {
            let request = Request::get("snapshot")
                .query("limit", Some(limit.get().min(MAX_PAGE)))
                .query("cursor", after.as_ref().map(Cursor::encode));
            let page: api::SnapshotPage = self.send(&request).await.map_err(|error| error.into_model(OPERATION))?;
            let records = page.records.into_iter().map(Record::try_from);
            let items = records.collect::<Result<_, _>>().map_err(invalid(OPERATION))?;
            let key = |record: &Record| (record.kind, record.address.clone());
            match narrowed(items, cursor(OPERATION, page.cursor.as_deref())?, key, visible) {
                Narrowed::Page(page) => return Ok(page),
                Narrowed::Empty { next } => after = Some(next),
            }
        }
    }

    /// Reads lists, so a dependent that was created a moment ago may be missing.
    async fn dependents(&self, address: &Address) -> Result<Vec<Address>> {
        let branches = ListQuery { name: Some(address.name().to_owned()), full: true, ..ListQuery::default() };
        let sources = ListQuery { kind: Some(RecordKind::GraphSource), ..ListQuery::default() };
        let mut found = Vec::new();
        for mut query in [sources, branches] {
            loop {
                let page = self.list(&query, &|_| true).await?;
                found.extend(page.items.into_iter().filter_map(|listed| match listed {
                    Listed::Full(record) => {
                        let branched =
                            record.address != *address && record.source_branch.as_deref() == Some(address.branch());
                        branched.then_some(record.address)
                    }
                    Listed::Summary(Summary { address: source, dependencies, .. }) => {
                        dependencies.iter().any(|dependency| dependency == address.as_str()).then_some(source)
                    }
                }));
                match page.cursor {
                    Some(cursor) => query.cursor = Some(cursor),
                    None => break,
                }
            }
        }
        found.sort();
        found.dedup();
        Ok(found)
    }

    async fn ping(&self) -> Result<()> {
        let request = Request::get("health").query("deep", Some(true));
        match self.send::<Value>(&request).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.into_model("reach the service")),
        }
    }

    async fn search(&self, query: &SearchQuery, visible: Visible<'_>) -> Result<Page<Hit>> {
        const OPERATION: &str = "search records";
        let mut after = query.cursor.clone();
        loop {
            let request = Request::get("search")
                .query("q", Some(query.words.to_string()))
                .query("kind", query.kind.map(RecordKind::as_str))
                .query("source_type", query.source_type.as_deref())
                .query("state", query.state.as_deref())
                .query("limit", Some(query.limit.get().min(MAX_PAGE)))
                .query("cursor", after.as_ref().map(Cursor::encode));
            let page: api::Hits = self.send(&request).await.map_err(|error| error.into_model(OPERATION))?;
            let hits = page.hits.into_iter().map(Hit::try_from);
            let mut items = hits.collect::<Result<Vec<_>, _>>().map_err(invalid(OPERATION))?;
            items.retain(|hit| visible(&hit.address));
            match (cursor(OPERATION, page.cursor.as_deref())?, items.last().map(Hit::cursor)) {
                (Some(next), None) => after = Some(next),
                // A cursor names the last visible hit.
                (Some(_), last) => return Ok(Page { items, cursor: last }),
                (None, _) => return Ok(Page { items, cursor: None }),
            }
        }
    }

    async fn capabilities(&self) -> Result<Capabilities> {
        /// A service of an earlier version does not report capabilities, and has all of them.
        #[derive(Deserialize)]
        struct Health {
            #[serde(default)]
            capabilities: Capabilities,
        }
        let health = self.send::<Health>(&Request::get("health")).await;
        Ok(health.map_err(|error| error.into_model("ask for the capabilities"))?.capabilities)
    }
}

/// A page without the entries that are not visible.
enum Narrowed<T> {
    /// It is the last one, or holds an entry.
    Page(Page<T>),
    /// It holds no entry, and another follows.
    Empty { next: Cursor },
}

/// Removes the entries that are not visible. The cursor names the last visible one.
fn narrowed<T>(
    mut items: Vec<T>,
    next: Option<Cursor>,
    key: impl Fn(&T) -> (RecordKind, Address),
    visible: Visible<'_>,
) -> Narrowed<T> {
    items.retain(|item| visible(&key(item).1));
    match (next, items.last().map(&key)) {
        (None, _) => Narrowed::Page(Page { items, cursor: None }),
        (Some(next), None) => Narrowed::Empty { next },
        (Some(next), Some((kind, last))) => Narrowed::Page(Page { items, cursor: Some(next.back_at(kind, &last)) }),
    }
}

fn cursor(operation: &'static str, text: Option<&str>) -> Result<Option<Cursor>> {
    let cursor = text.map(Cursor::decode).transpose();
    cursor.map_err(|error| Error::Store { operation, source: error.into() })
}
