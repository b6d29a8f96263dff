//! What queries return.

use async_graphql::{
    ComplexObject, Context, Json, Result, SimpleObject,
    connection::{Connection, Edge},
};
use nameservice_api as api;
use nameservice_model::{self as model, Address, HistoryQuery};
use serde_json::{Map, Value};

use crate::{
    context::{budget, caller, failed, service},
    pages::{Page, limit, position},
    scalars::{ChangeKind, Concern, Kind, Long, Matched},
};

/// JSON objects, as they are stored.
pub(crate) type JsonObject = Json<Map<String, Value>>;

/// Everything under one address.
#[derive(SimpleObject)]
#[graphql(complex)]
pub(crate) struct Record {
    /// `name:branch`.
    pub(crate) address: String,
    /// What it describes.
    kind: Kind,
    /// The part of the address before the `:`.
    name: String,
    /// The part of the address after the `:`.
    branch: String,
    /// Soft-deleted.
    retracted: bool,
    /// Whether the record is protected from retraction, purge and reset.
    protected: bool,
    /// When it was created, RFC 3339 in UTC; null if Fluree has created it.
    created_at: Option<String>,
    /// When any of its items was last written, RFC 3339 in UTC.
    updated_at: String,
    /// The branch it was created from.
    source_branch: Option<String>,
    /// How many branches were created from it.
    branches: Long,
    /// How many graph sources depend on it.
    dependents: Long,
    /// The type of a graph source, such as `f:Bm25Index`.
    source_type: Option<String>,
    /// What a graph source depends on.
    dependencies: Vec<String>,
    /// The latest commit; null for graph sources.
    head: Option<Head>,
    /// The latest index.
    index: Option<Index>,
    /// The state.
    status: Option<Status>,
    /// The configuration.
    config: Option<Config>,
}

impl From<api::Record> for Record {
    fn from(record: api::Record) -> Self {
        Self {
            address: record.address,
            kind: record.kind.into(),
            name: record.name,
            branch: record.branch,
            retracted: record.retracted,
            protected: record.protected,
            created_at: record.created_at,
            updated_at: record.updated_at,
            source_branch: record.source_branch,
            branches: record.branches.into(),
            dependents: record.dependents.into(),
            source_type: record.source_type,
            dependencies: record.dependencies.unwrap_or_default(),
            head: record.head.map(Head::from),
            index: record.index.map(Index::from),
            status: record.status.map(Status::from),
            config: record.config.map(Config::from),
        }
    }
}

#[ComplexObject]
impl Record {
    /// Its changes that the feed still holds, the oldest first.
    #[graphql(complexity = "10 + first.clamp(1, 200) as usize * child_complexity")]
    async fn history(
        &self,
        context: &Context<'_>,
        #[graphql(default = 20, validator(minimum = 1, maximum = 200), desc = "The maximum number.")] first: i32,
        #[graphql(desc = "Only changes after this cursor.")] after: Option<String>,
    ) -> Result<Page<Change>> {
        let (after, limit) = (position(after.as_deref())?, limit(first)?);
        let query = HistoryQuery { after, limit, ..HistoryQuery::default() };
        let address = Address::stored(&*self.address);
        let found = service(context).feed.history(&address, &query).await;
        let found = found.map_err(|error| failed(context, error))?;
        let changes = found.changes.iter().map(api::changes::Change::from).collect();
        changes_of(context, changes, query.after > 0, found.more_after.is_some())
    }
}

/// Returns the record as the caller may see it.
pub(crate) async fn record(context: &Context<'_>, address: &Address) -> Result<Option<Record>> {
    if !caller(context).sees(address) {
        return Ok(None);
    }
    let found = service(context).names.lookup(address).await.map_err(|error| failed(context, error))?;
    let found = found.map(|record| shown(context, record));
    found.iter().try_for_each(|record| budget(context).take(record))?;
    Ok(found.map(Record::from))
}

/// Returns the part of a record that the caller may see.
pub(crate) fn shown(context: &Context<'_>, record: model::Record) -> api::Record {
    api::Record::from(&caller(context).allowed().shown(record))
}

/// Returns as many changes as fit the answer, each with its position as its cursor.
pub(crate) fn changes_of(
    context: &Context<'_>,
    changes: Vec<api::changes::Change>,
    has_previous: bool,
    has_next: bool,
) -> Result<Page<Change>> {
    let (changes, is_cut) = budget(context).fit(changes, |change| change)?;
    let mut connection = Connection::new(has_previous, has_next || is_cut);
    let edge = |change: api::changes::Change| Edge::new(change.position.to_string(), Change::from(change));
    connection.edges.extend(changes.into_iter().map(edge));
    Ok(connection)
}

/// Where the latest commit of a ledger is.
#[derive(SimpleObject)]
pub(crate) struct Head {
    /// The commit; null before the first.
    id: Option<String>,
    /// Its `t`; 0 before the first.
    t: Long,
}

impl From<api::Head> for Head {
    fn from(head: api::Head) -> Self {
        Self { id: head.id, t: head.t.into() }
    }
}

/// Where the latest index of a record is.
#[derive(SimpleObject)]
pub(crate) struct Index {
    /// The index root; null before the first.
    id: Option<String>,
    /// The `t` that it covers; 0 before the first.
    t: Long,
    /// How many times this `t` was indexed again.
    rev: Long,
    /// The indexes of named graphs.
    graphs: Vec<GraphIndex>,
}

/// The index of a named graph.
#[derive(SimpleObject)]
pub(crate) struct GraphIndex {
    /// The name of the graph.
    name: String,
    /// The index root; null if it has none yet.
    id: Option<String>,
    /// The `t` that it covers.
    t: Long,
    /// How many times this `t` was indexed again.
    rev: Long,
}

impl From<api::Index> for Index {
    fn from(index: api::Index) -> Self {
        let graph = |(name, graph): (String, Option<api::GraphIndex>)| match graph {
            Some(graph) => GraphIndex { name, id: Some(graph.id), t: graph.t.into(), rev: graph.rev.into() },
            None => GraphIndex { name, id: None, t: Long(0), rev: Long(0) },
        };
        let graphs = index.graphs.into_iter().map(graph).collect();
        Self { id: index.id, t: index.t.into(), rev: index.rev.into(), graphs }
    }
}

/// The state of a record.
#[derive(SimpleObject)]
pub(crate) struct Status {
    /// Its version.
    v: Long,
    /// The state and its metadata, with a lease under its name.
    payload: Json<Value>,
    /// The state.
    state: Option<String>,
}

impl From<api::Status> for Status {
    fn from(status: api::Status) -> Self {
        let state = status.payload.get("state").and_then(Value::as_str).map(str::to_owned);
        Self { v: status.v.into(), payload: Json(status.payload), state }
    }
}

/// The configuration of a record.
#[derive(SimpleObject)]
pub(crate) struct Config {
    /// Its version; 0 before the first.
    v: Long,
    /// The configuration. Its secrets are shown to those who may write the record.
    payload: Option<Json<Value>>,
}

impl From<api::Config> for Config {
    fn from(config: api::Config) -> Self {
        Self { v: config.v.into(), payload: config.payload.map(Json) }
    }
}

/// One entry of the change feed.
#[derive(SimpleObject)]
pub(crate) struct Change {
    /// Its position in the feed: 1, 2, 3, … without a gap.
    position: Long,
    /// The record that changed: `name:branch`.
    address: String,
    /// What the record describes.
    kind: Kind,
    /// The type of a graph source.
    source_type: Option<String>,
    /// The part of the record that changed.
    concern: Concern,
    /// How it changed.
    change: ChangeKind,
    /// The watermark after the change; 0 for `META`, and if no value is left.
    watermark: Long,
    /// The watermark before the change, if there was one.
    previous: Option<Long>,
    /// The value after the change, secrets redacted; null if no value is left.
    payload: Option<Json<Value>>,
    /// Whether the payload was left out because it is larger than 16 KiB or cannot be read: read the record.
    payload_omitted: bool,
    /// When the writer wrote it, RFC 3339 in UTC.
    occurred_at: String,
    /// When it was appended to the feed, RFC 3339 in UTC.
    recorded_at: String,
}

impl From<api::changes::Change> for Change {
    fn from(change: api::changes::Change) -> Self {
        Self {
            position: change.position.into(),
            address: change.address,
            kind: change.kind.into(),
            source_type: change.source_type,
            concern: change.concern.into(),
            change: change.change.into(),
            watermark: change.watermark.into(),
            previous: change.previous.map(Long),
            payload: change.payload.map(Json),
            payload_omitted: change.payload_omitted,
            occurred_at: change.occurred_at,
            recorded_at: change.recorded_at,
        }
    }
}

/// A record that a search found.
#[derive(SimpleObject)]
#[graphql(complex)]
pub(crate) struct Hit {
    /// `name:branch`.
    address: String,
    /// What it describes.
    kind: Kind,
    /// Soft-deleted.
    retracted: bool,
    /// The type of a graph source.
    source_type: Option<String>,
    /// Its state.
    state: String,
    /// Where the words were found.
    matched: Vec<Matched>,
    /// How well it matches; 0 is the best match.
    rank: i32,
}

impl From<api::Hit> for Hit {
    fn from(hit: api::Hit) -> Self {
        Self {
            address: hit.address,
            kind: hit.kind.into(),
            retracted: hit.retracted,
            source_type: hit.source_type,
            state: hit.state,
            matched: hit.matched.into_iter().map(Matched::from).collect(),
            rank: hit.rank.into(),
        }
    }
}

#[ComplexObject]
impl Hit {
    /// The whole record; null if it no longer exists.
    #[graphql(complexity = "10 + child_complexity")]
    async fn record(&self, context: &Context<'_>) -> Result<Option<Record>> {
        record(context, &Address::stored(&*self.address)).await
    }
}
