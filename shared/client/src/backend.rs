//! The traits of the model, over HTTP.

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, StatusCode};
use nameservice_api::{
    self as api, InvalidAnswer, ProblemKind, PushAnswer, PushStatus, leases, requests, transactions,
};
use nameservice_model::{
    Address, AdminPublisher, BranchCreated, Call, Capabilities, Committed, ConcernValue, Config, ConfigPublisher,
    ConfigPush, ContentId, Created, Cursor, Dropped, Error, GraphSourceLookup, GraphSourcePublication,
    GraphSourcePublisher, Head, HeadPush, Hit, Index, IndexPush, IndexRoot, LeaseClaim, LeasePublisher, LeaseRequest,
    Leased, Limit, ListQuery, Listed, NameService, NewHead, NewLedger, Operation, OperationOutcome, Page, Protection,
    Published, Publisher, Purged, PushOutcome, Record, RecordKind, RefPublisher, Released, Reset, ResetTo, Restored,
    Result, Retracted, SearchQuery, Status, StatusPayload, StatusPublisher, StatusPush, Summary, Transaction,
    TransactionPublisher, Visible,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Client, Request,
    client::Repeated,
    outcomes::{invalid, unknown},
};

/// The maximum number of entries on a page of the service.
pub(crate) const MAX_PAGE: usize = 1_000;
/// How many records are read at a time.
const TOGETHER: usize = 16;
/// How many writes of an item the service remembers: a write is recognised until this many others have followed.
const REMEMBERED: i64 = 4;

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

    /// Pushes a concern. `may_hide` returns whether an earlier attempt may have been applied and since superseded by this
    /// current value, which a rejection shows.
    async fn push<W, T>(
        &self,
        operation: &'static str,
        request: Request,
        may_hide: impl Fn(&ConcernValue<T>) -> bool,
    ) -> Result<PushOutcome<T>>
    where
        W: DeserializeOwned,
        ConcernValue<T>: TryFrom<W, Error = InvalidAnswer>,
    {
        let Repeated { answer, maybe_applied, .. } = self.repeat::<PushAnswer<W>>(&request).await;
        let outcome = match answer {
            Ok(PushAnswer { status, value, replayed }) => {
                let value = value.try_into().map_err(invalid(operation))?;
                match status {
                    PushStatus::Updated => PushOutcome::Updated { value, replayed },
                    PushStatus::Stale => PushOutcome::Stale { actual: value },
                }
            }
            Err(error) => error.into_push_outcome::<W, T>(operation)?,
        };
        match &outcome {
            PushOutcome::Stale { actual } | PushOutcome::Conflict { actual: Some(actual) }
                if maybe_applied && may_hide(actual) =>
            {
                Err(unknown(operation))
            }
            // The lease may have expired after an earlier attempt began, which may still be in flight; or that attempt was applied,
            // and the item no longer remembers it.
            PushOutcome::LeaseLost { .. } | PushOutcome::Conflict { actual: None } if maybe_applied => {
                Err(unknown(operation))
            }
            _ => Ok(outcome),
        }
    }

    /// Sends a write, and returns the record in the answer.
    async fn write_record(
        &self,
        operation: &'static str,
        request: &Request,
    ) -> Result<Result<Written, crate::RequestError>> {
        let Repeated { answer, unchanged, .. } = self.repeat::<api::Record>(request).await;
        match answer {
            Ok(record) => {
                let record = Box::new(record.try_into().map_err(invalid(operation))?);
                Ok(Ok(Written { record, unchanged }))
            }
            Err(error) => Ok(Err(error)),
        }
    }
}

/// A record as a write returned it.
struct Written {
    record: Box<Record>,
    /// Whether the write changed nothing.
    unchanged: bool,
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

#[async_trait]
impl Publisher for Client {
    async fn create(&self, call: &Call, ledger: &NewLedger) -> Result<Created> {
        const OPERATION: &str = "create a ledger";
        let body = requests::NewLedger::from(ledger);
        let request = Request::of_call(Method::POST, "ledgers", call).body(&body);
        match self.write_record(OPERATION, &request).await? {
            Ok(Written { record, .. }) => Ok(Created::Created(record)),
            Err(error) if error.problem() == Some(ProblemKind::AlreadyExists) => Ok(Created::AlreadyExists),
            Err(error) => Err(error.into_model(OPERATION)),
        }
    }

    async fn create_branch(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        const OPERATION: &str = "create a branch";
        if branch.name() != source.name() {
            let source = format!("{branch} cannot be a branch of {source}: their names differ").into();
            return Err(Error::Store { operation: OPERATION, source });
        }
        let body = requests::NewBranch::new(branch, source, at);
        let request = Request::of_call(Method::POST, "branches", call).body(&body);
        match self.write_record(OPERATION, &request).await? {
            Ok(Written { record, .. }) => Ok(BranchCreated::Created(record)),
            Err(error) => match error.problem() {
                Some(ProblemKind::AlreadyExists) => Ok(BranchCreated::AlreadyExists),
                Some(ProblemKind::UnknownSource) => Ok(BranchCreated::UnknownSource),
                Some(ProblemKind::UnbornSource) => Ok(BranchCreated::UnbornSource),
                _ => Err(error.into_model(OPERATION)),
            },
        }
    }

    async fn retract(&self, call: &Call, address: &Address, reason: Option<&str>) -> Result<Retracted> {
        const OPERATION: &str = "retract a record";
        let mut request = Request::of_call(Method::POST, "retractions", call).at(address);
        if let Some(reason) = reason {
            request = request.body(&requests::Retraction { reason: Some(reason.to_owned()) });
        }
        match self.write_record(OPERATION, &request).await? {
            Ok(Written { record, unchanged: true }) => Ok(Retracted::Already(record)),
            Ok(Written { record, unchanged: false }) => Ok(Retracted::Retracted(record)),
            Err(error) => match error.problem() {
                Some(ProblemKind::HasDependents) => Ok(Retracted::HasDependents),
                Some(ProblemKind::Protected) => Ok(Retracted::Protected),
                Some(ProblemKind::UnknownRecord) => Ok(Retracted::Unknown),
                _ => Err(error.into_model(OPERATION)),
            },
        }
    }

    async fn restore(&self, call: &Call, address: &Address) -> Result<Restored> {
        const OPERATION: &str = "restore a record";
        let request = Request::of_call(Method::POST, "restorations", call).at(address);
        match self.write_record(OPERATION, &request).await? {
            Ok(Written { record, unchanged: true }) => Ok(Restored::NotRetracted(record)),
            Ok(Written { record, unchanged: false }) => Ok(Restored::Restored(record)),
            Err(error) if error.problem() == Some(ProblemKind::UnknownRecord) => Ok(Restored::Unknown),
            Err(error) => Err(error.into_model(OPERATION)),
        }
    }
}

#[async_trait]
impl AdminPublisher for Client {
    async fn purge(&self, call: &Call, address: &Address) -> Result<Purged> {
        const OPERATION: &str = "purge a record";
        let request = Request::of_call(Method::DELETE, "records", call).at(address);
        let Repeated { answer, maybe_applied, .. } = self.repeat::<Value>(&request).await;
        let Err(error) = answer else { return Ok(Purged::Purged) };
        match error.last_problem() {
            // An earlier attempt has purged it.
            Some(ProblemKind::UnknownRecord) if maybe_applied => Ok(Purged::Purged),
            _ if maybe_applied && error.may_be_applied() => Err(error.into_model(OPERATION)),
            Some(ProblemKind::HasDependents) => Ok(Purged::HasDependents),
            Some(ProblemKind::Protected) => Ok(Purged::Protected),
            Some(ProblemKind::UnknownRecord) => Ok(Purged::Unknown),
            _ => Err(error.into_model(OPERATION)),
        }
    }

    async fn protect(&self, call: &Call, address: &Address, protected: bool) -> Result<Protection> {
        const OPERATION: &str = "protect a record";
        let body = requests::NewProtection { protected };
        let request = Request::of_call(Method::PUT, "protections", call).at(address).body(&body);
        let Repeated { answer, maybe_applied, unchanged, .. } = self.repeat::<api::Protection>(&request).await;
        match answer {
            Ok(_) if unchanged && !maybe_applied => Ok(Protection::Already),
            Ok(_) => Ok(Protection::Set),
            Err(error) if error.problem() == Some(ProblemKind::UnknownRecord) => Ok(Protection::Unknown),
            Err(error) => Err(error.into_model(OPERATION)),
        }
    }

    async fn drop_branch(&self, call: &Call, address: &Address) -> Result<Dropped> {
        const OPERATION: &str = "drop a branch";
        let request = Request::of_call(Method::DELETE, "branches", call).at(address);
        let error = match self.repeat::<api::BranchDropped>(&request).await.answer {
            Ok(api::BranchDropped { parent_branches }) => return Ok(Dropped::Dropped { parent_branches }),
            Err(error) => error,
        };
        match error.problem() {
            Some(ProblemKind::HasDependents) => Ok(Dropped::HasDependents),
            Some(ProblemKind::Protected) => Ok(Dropped::Protected),
            Some(ProblemKind::NotABranch) => Ok(Dropped::NotABranch),
            Some(ProblemKind::UnknownRecord) => Ok(Dropped::Unknown),
            _ => Err(error.into_model(OPERATION)),
        }
    }

    async fn reset_head(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        const OPERATION: &str = "reset a ledger";
        let body = requests::Snapshot::from(to);
        let request = Request::of_call(Method::POST, "resets", call).at(address).body(&body);
        match self.write_record(OPERATION, &request).await? {
            Ok(Written { record, .. }) => {
                let Record { head, index, .. } = *record;
                Ok(Reset::Reset { head: head.unwrap_or_else(Head::unborn), index })
            }
            Err(error) => match error.problem() {
                Some(ProblemKind::UnknownRecord) => Ok(Reset::Unknown),
                Some(ProblemKind::Retracted) => Ok(Reset::Retracted),
                Some(ProblemKind::Protected) => Ok(Reset::Protected),
                Some(ProblemKind::WrongKind) => {
                    Ok(Reset::WrongKind(error.record_kind().unwrap_or(RecordKind::GraphSource)))
                }
                _ => Err(error.into_model(OPERATION)),
            },
        }
    }
}

#[async_trait]
impl RefPublisher for Client {
    async fn head(&self, address: &Address) -> Result<Option<Head>> {
        const OPERATION: &str = "read a head";
        let head = self.record(OPERATION, address, "head").await?.and_then(|record| record.head);
        head.map(Head::try_from).transpose().map_err(invalid(OPERATION))
    }

    async fn index(&self, address: &Address) -> Result<Option<Index>> {
        const OPERATION: &str = "read an index";
        let index = self.record(OPERATION, address, "index").await?.and_then(|record| record.index);
        index.map(Index::try_from).transpose().map_err(invalid(OPERATION))
    }

    async fn push_head(&self, call: &Call, address: &Address, push: &HeadPush) -> Result<PushOutcome<ContentId>> {
        let request = put("heads", call, address, &requests::HeadPush::from(push));
        // Each push adds at least 1 to `t`.
        let may_hide = |actual: &Head| actual.v >= push.desired().t().saturating_add(REMEMBERED);
        self.push::<api::Head, _>("push a head", request, may_hide).await
    }

    async fn push_index(&self, call: &Call, address: &Address, push: &IndexPush) -> Result<PushOutcome<IndexRoot>> {
        let request = put("indexes", call, address, &requests::IndexPush::from(push));
        // Any number of pushes may have the same `t`.
        let may_hide = |actual: &Index| actual.v >= push.desired().t();
        self.push::<api::Index, _>("push an index", request, may_hide).await
    }
}

#[async_trait]
impl StatusPublisher for Client {
    async fn status(&self, address: &Address) -> Result<Option<Status>> {
        const OPERATION: &str = "read a status";
        let status = self.record(OPERATION, address, "status").await?.and_then(|record| record.status);
        status.map(Status::try_from).transpose().map_err(invalid(OPERATION))
    }

    async fn push_status(
        &self,
        call: &Call,
        address: &Address,
        push: &StatusPush,
    ) -> Result<PushOutcome<StatusPayload>> {
        let request = put("statuses", call, address, &requests::StatusPush::from(push));
        let may_hide = |actual: &Status| actual.v >= push.new_v().saturating_add(REMEMBERED);
        self.push::<api::Status, _>("push a status", request, may_hide).await
    }
}

#[async_trait]
impl ConfigPublisher for Client {
    async fn config(&self, address: &Address) -> Result<Option<Config>> {
        const OPERATION: &str = "read a config";
        let config = self.record(OPERATION, address, "config").await?.and_then(|record| record.config);
        config.map(Config::try_from).transpose().map_err(invalid(OPERATION))
    }

    async fn push_config(&self, call: &Call, address: &Address, push: &ConfigPush) -> Result<PushOutcome<Value>> {
        let request = put("configs", call, address, &requests::ConfigPush::from(push));
        let may_hide = |actual: &Config| actual.v >= push.new_v().saturating_add(REMEMBERED);
        self.push::<api::Config, _>("push a config", request, may_hide).await
    }
}

#[async_trait]
impl GraphSourcePublisher for Client {
    async fn publish_graph_source(&self, call: &Call, publication: &GraphSourcePublication) -> Result<Published> {
        const OPERATION: &str = "publish a graph source";
        let body = requests::GraphSource::from(publication);
        let request = put("graph-sources", call, publication.address(), &body);
        let Repeated { answer, maybe_applied, status, .. } = self.repeat::<api::Record>(&request).await;
        let error = match answer {
            Ok(record) => {
                let record = Box::new(record.try_into().map_err(invalid(OPERATION))?);
                let created = status == Some(StatusCode::CREATED);
                return Ok(if created { Published::Created(record) } else { Published::Updated(record) });
            }
            Err(error) => error,
        };
        match error.problem() {
            Some(ProblemKind::Conflict) => {
                let actual: Option<Config> = error.actual::<api::Config, _>().map_err(invalid(OPERATION))?;
                let written = publication.expected_v().map_or(1, |v| v.saturating_add(1));
                match &actual {
                    Some(actual) if maybe_applied && actual.v >= written.saturating_add(REMEMBERED) => {
                        Err(unknown(OPERATION))
                    }
                    None if maybe_applied => Err(unknown(OPERATION)),
                    _ => Ok(Published::Conflict { actual }),
                }
            }
            Some(ProblemKind::MissingDependencies) => Ok(Published::MissingDependencies(error.addresses("missing"))),
            Some(ProblemKind::WrongKind) => Ok(Published::WrongKind {
                kind: error.record_kind().unwrap_or(RecordKind::Ledger),
                source_type: error.member("source_type"),
            }),
            Some(ProblemKind::Retracted) => Ok(Published::Retracted),
            _ => Err(error.into_model(OPERATION)),
        }
    }
}

impl Client {
    async fn lease_write(
        &self,
        operation: &'static str,
        call: &Call,
        address: &Address,
        wanted: &leases::Wanted,
    ) -> Result<Leased> {
        match self.send::<leases::Held>(&put("leases", call, address, wanted)).await {
            Ok(held) => Ok(Leased::Held(held.into())),
            Err(error) => match (error.problem(), error.lease()) {
                (Some(ProblemKind::LeaseHeld), Some(lease)) => Ok(Leased::Busy(lease)),
                (Some(ProblemKind::LeaseLost), lease) => Ok(Leased::Lost { lease }),
                (Some(ProblemKind::UnknownRecord), _) => Ok(Leased::Unknown),
                (Some(ProblemKind::Retracted), _) => Ok(Leased::Retracted),
                _ => Err(error.into_model(operation)),
            },
        }
    }
}

#[async_trait]
impl LeasePublisher for Client {
    async fn acquire_lease(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased> {
        self.lease_write("acquire a lease", call, address, &leases::Wanted::new(request, None)).await
    }

    async fn refresh_lease(
        &self,
        call: &Call,
        address: &Address,
        request: &LeaseRequest,
        token: i64,
    ) -> Result<Leased> {
        self.lease_write("refresh a lease", call, address, &leases::Wanted::new(request, Some(token))).await
    }

    async fn release_lease(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released> {
        let request = Request::of_call(Method::DELETE, "leases", call)
            .at(address)
            .query("name", Some(&claim.name))
            .query("holder", Some(&claim.holder))
            .query("token", Some(claim.token));
        match self.send::<Value>(&request).await {
            Ok(_) => Ok(Released::Released),
            Err(error) => match error.problem() {
                Some(ProblemKind::LeaseLost) => Ok(Released::Lost { lease: error.lease() }),
                Some(ProblemKind::UnknownRecord) => Ok(Released::Unknown),
                Some(ProblemKind::Retracted) => Ok(Released::Retracted),
                _ => Err(error.into_model("release a lease")),
            },
        }
    }
}

#[async_trait]
impl TransactionPublisher for Client {
    async fn commit(&self, call: &Call, transaction: &Transaction) -> Result<Committed> {
        const OPERATION: &str = "commit a transaction";
        let body = transactions::Transaction::try_from(transaction)
            .map_err(|error| Error::Store { operation: OPERATION, source: error.into() })?;
        let request = Request::of_call(Method::POST, "transactions", call).body(&body);
        let Repeated { answer, maybe_applied, .. } = self.repeat::<transactions::TransactionAnswer>(&request).await;
        let operations = transaction.operations();
        match answer {
            Ok(answer) => Ok(Committed::Committed(outcomes(OPERATION, answer.results, operations)?)),
            Err(error) if error.problem() == Some(ProblemKind::TransactionRejected) => {
                if maybe_applied {
                    return Err(unknown(OPERATION));
                }
                let results = error.member("results").unwrap_or_default();
                Ok(Committed::Rejected(outcomes(OPERATION, results, operations)?))
            }
            Err(error) => Err(error.into_model(OPERATION)),
        }
    }
}

fn outcomes(
    operation: &'static str,
    results: Vec<transactions::OperationResult>,
    operations: &[Operation],
) -> Result<Vec<OperationOutcome>> {
    if results.len() != operations.len() {
        let source = format!("{} results of {} operations", results.len(), operations.len()).into();
        return Err(Error::Store { operation, source });
    }
    let outcomes = results.into_iter().zip(operations).map(|(result, of)| result.into_outcome(of.action.concern()));
    outcomes.collect::<Result<_, _>>().map_err(invalid(operation))
}
