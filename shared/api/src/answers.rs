use std::collections::BTreeMap;

use nameservice_model::{self as model, ContentId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Kind, Record};

/// Where the latest commit of a ledger is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Head {
    /// The commit; null while there is none.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub id: Option<String>,
    /// Its `t`; 0 while there is none.
    pub t: i64,
}

/// Where the latest index of a record is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Index {
    /// The index root; null while there is none.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub id: Option<String>,
    /// The `t` that it covers; 0 while there is none.
    pub t: i64,
    /// How many times this `t` was indexed again.
    pub rev: i64,
    /// The named graphs with an index of their own; null for one that has none yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::map_of_nullable::<GraphIndex>))]
    pub graphs: BTreeMap<String, Option<GraphIndex>>,
}

/// Where the latest index of a named graph is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GraphIndex {
    /// The index root.
    pub id: String,
    /// The `t` that it covers.
    pub t: i64,
    /// How many times this `t` was indexed again.
    pub rev: i64,
}

/// The state of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Status {
    /// Counts the changes, from 1.
    pub v: i64,
    /// `state`, and what the writer adds to it. A live lease is in it under its name.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub payload: Value,
}

/// The configuration of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Config {
    /// Counts the changes; 0 while there is none.
    pub v: i64,
    /// The configuration; null while there is none.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>, required))]
    pub payload: Option<Value>,
}

/// The outcome of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PushStatus {
    /// The value is stored.
    Updated,
    /// Nothing was written: the stored value is as new or newer.
    Stale,
}

/// The answer to a push.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PushAnswer<T> {
    /// The outcome.
    pub status: PushStatus,
    /// The value that is stored now.
    pub value: T,
    /// Whether the value was already stored when this request arrived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}

/// A page of records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Page<T> {
    /// The records of this page.
    pub records: Vec<T>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Where the words of a search were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SearchField {
    /// The address.
    Address,
    /// The type of a graph source.
    SourceType,
    /// The state.
    State,
    /// A value of the configuration.
    Config,
}

/// A record that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hit {
    /// `name:branch`.
    pub address: String,
    /// What it describes.
    pub kind: Kind,
    /// The part of the address before the `:`.
    pub name: String,
    /// The part of the address after the `:`.
    pub branch: String,
    /// Soft-deleted.
    pub retracted: bool,
    /// The type of a graph source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_type: Option<String>,
    /// Its state.
    pub state: String,
    /// Where the words were found.
    pub matched: Vec<SearchField>,
    /// How well it matches; 0 is the best match.
    pub rank: u16,
}

/// A page of search results, best first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Hits {
    /// What was found.
    pub hits: Vec<Hit>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl From<model::SearchField> for SearchField {
    fn from(field: model::SearchField) -> Self {
        match field {
            model::SearchField::Address => Self::Address,
            model::SearchField::SourceType => Self::SourceType,
            model::SearchField::State => Self::State,
            model::SearchField::Config => Self::Config,
        }
    }
}

impl From<SearchField> for model::SearchField {
    fn from(field: SearchField) -> Self {
        match field {
            SearchField::Address => Self::Address,
            SearchField::SourceType => Self::SourceType,
            SearchField::State => Self::State,
            SearchField::Config => Self::Config,
        }
    }
}

impl From<&model::Hit> for Hit {
    fn from(hit: &model::Hit) -> Self {
        Self {
            address: hit.address.as_str().to_owned(),
            kind: hit.kind,
            name: hit.address.name().to_owned(),
            branch: hit.address.branch().to_owned(),
            retracted: hit.retracted,
            source_type: hit.source_type.clone(),
            state: hit.state.clone(),
            matched: hit.matched.iter().copied().map(SearchField::from).collect(),
            rank: hit.rank,
        }
    }
}

fn text(id: ContentId) -> String {
    id.as_str().to_owned()
}

impl From<model::Head> for Head {
    fn from(head: model::Head) -> Self {
        Self { id: head.payload.map(text), t: head.v }
    }
}

impl From<model::Index> for Index {
    fn from(index: model::Index) -> Self {
        let Some(root) = index.payload else {
            return Self { id: None, t: index.v, rev: 0, graphs: BTreeMap::new() };
        };
        let graphs = root.graphs.into_iter().map(|(name, graph)| {
            (name, graph.map(|graph| GraphIndex { id: text(graph.id), t: graph.t, rev: graph.rev }))
        });
        Self { id: Some(text(root.id)), t: index.v, rev: root.rev, graphs: graphs.collect() }
    }
}

impl From<model::Status> for Status {
    fn from(status: model::Status) -> Self {
        let payload = status.payload.map(|payload| {
            let mut object = model::Object::new();
            object.insert("state".into(), payload.state.into());
            object.extend(payload.meta);
            Value::Object(object)
        });
        Self { v: status.v, payload: payload.unwrap_or_default() }
    }
}

impl From<model::Config> for Config {
    fn from(config: model::Config) -> Self {
        Self { v: config.v, payload: config.payload }
    }
}

/// A page of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SnapshotPage {
    /// The position of the change feed before the first page was read: follow the feed from here.
    pub position: u64,
    /// The records of this page.
    pub records: Vec<Record>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A page of branches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Branches {
    /// The branches of this page.
    pub branches: Vec<Record>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// The result of dropping a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BranchDropped {
    /// How many branches its source has left.
    pub parent_branches: i64,
}

/// Whether a record is protected now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Protection {
    /// `name:branch`.
    pub address: String,
    /// Whether the record is protected from retraction, purge and reset.
    pub protected: bool,
}

/// The capabilities of a backend. A request that needs one it lacks is answered with 501 `unsupported`, naming it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Capabilities {
    /// Leases with fencing tokens.
    pub leases: bool,
    /// Index pushes that are valid only under a lease.
    pub leased_index_pushes: bool,
    /// References are counted and enforced atomically with the write that adds or removes them; otherwise they are
    /// checked before it.
    pub atomic_references: bool,
    /// Transactions over several records.
    pub transactions: bool,
    /// Indexes of named graphs.
    pub named_graphs: bool,
    /// Addresses of any form that the grammar allows.
    pub any_address: bool,
    /// Search by words: `GET /v1/search`.
    #[serde(default)]
    pub search: bool,
    /// How a repeated write is recognised: `request_ids` (every concern remembers its last four writes), or
    /// `stored_values` (the same, until another program rebuilds what holds them; then the stored value decides).
    pub lost_replies: String,
    /// Where the changes of the feed come from: `stream` (every write is a change), or `comparison` (several writes of
    /// one concern by another program may be one change).
    pub feed: String,
}

impl From<model::Capabilities> for Capabilities {
    fn from(of: model::Capabilities) -> Self {
        Self {
            leases: of.leases,
            leased_index_pushes: of.leased_index_pushes,
            atomic_references: of.atomic_references,
            transactions: of.transactions,
            named_graphs: of.named_graphs,
            any_address: of.any_address,
            search: of.search,
            lost_replies: match of.lost_replies {
                model::LostReplies::StoredValues => "stored_values",
                _ => "request_ids",
            }
            .to_owned(),
            feed: match of.feed {
                model::FeedKind::Comparison => "comparison",
                _ => "stream",
            }
            .to_owned(),
        }
    }
}
