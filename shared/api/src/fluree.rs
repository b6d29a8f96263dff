//! The shapes that Fluree's servers and command-line tool exchange with a remote nameservice
//! (docs/specification.md, Fluree wire).
//!
//! Requests are read leniently here: a newer client may send members that this service has no use for.

use jiff::Timestamp;
use nameservice_model::{self as model, Address, ConcernValue, ContentId, IndexRoot, RecordKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::requests::HeadValue;
use crate::{Invalid, time::time_text};

/// A record in Fluree's format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeRecord))]
#[serde(untagged)]
pub enum Record {
    /// A ledger.
    Ledger(Ledger),
    /// A graph source.
    GraphSource(GraphSource),
}

/// A ledger in Fluree's format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeLedger))]
pub struct Ledger {
    /// `name:branch`.
    pub ledger_id: String,
    /// The part before the `:`.
    pub name: String,
    /// The part after the `:`.
    pub branch: String,
    /// The latest commit.
    pub commit_head_id: Option<String>,
    /// Its `t`; 0 while there is none.
    pub commit_t: i64,
    /// The latest index root.
    pub index_head_id: Option<String>,
    /// The `t` that it covers; 0 while there is none.
    pub index_t: i64,
    /// The content id of the default context.
    pub default_context: Option<String>,
    /// Soft-deleted.
    pub retracted: bool,
    /// The content id of the configuration.
    pub config_id: Option<String>,
    /// The branch it was created from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_branch: Option<String>,
    /// How many branches were created from it; left out while there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub branches: i64,
}

fn is_zero(count: &i64) -> bool {
    *count == 0
}

/// A graph source in Fluree's format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeGraphSource))]
pub struct GraphSource {
    /// `name:branch`.
    pub graph_source_id: String,
    /// The part before the `:`.
    pub name: String,
    /// The part after the `:`.
    pub branch: String,
    /// Its type, one of Fluree's own or `{"Unknown": "<type>"}`.
    pub source_type: SourceType,
    /// Its configuration as JSON text.
    pub config: String,
    /// What it depends on.
    pub dependencies: Vec<String>,
    /// Its index root.
    pub index_id: Option<String>,
    /// The `t` that it covers; 0 while there is none.
    pub index_t: i64,
    /// Soft-deleted.
    pub retracted: bool,
}

/// The types of graph sources that Fluree knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeSourceType))]
pub enum SourceType {
    /// `f:Bm25Index`
    Bm25,
    /// `f:HnswIndex`
    Vector,
    /// `f:GeoIndex`
    Geo,
    /// `f:R2rmlMapping`
    R2rml,
    /// `f:IcebergMapping`
    Iceberg,
    /// Any other, as stored.
    Unknown(String),
}

impl SourceType {
    fn stored(text: &str) -> Self {
        match text {
            "f:Bm25Index" => Self::Bm25,
            "f:HnswIndex" => Self::Vector,
            "f:GeoIndex" => Self::Geo,
            "f:R2rmlMapping" => Self::R2rml,
            "f:IcebergMapping" => Self::Iceberg,
            other => Self::Unknown(other.to_owned()),
        }
    }
}

impl From<&model::Record> for Record {
    fn from(record: &model::Record) -> Self {
        match record.kind {
            RecordKind::Ledger => Self::Ledger(record.into()),
            RecordKind::GraphSource => Self::GraphSource(record.into()),
        }
    }
}

/// Returns an id as Fluree's own readers have it: text that is no content id is null. Their HTTP clients would reject the
/// whole answer because of it, with every other record in it.
fn readable(id: &str) -> Option<String> {
    ContentId::parse(id).is_ok().then(|| id.to_owned())
}

fn index(record: &model::Record) -> (Option<String>, i64) {
    (record.index.payload.as_ref().and_then(|root| readable(root.id.as_str())), record.index.v)
}

/// Returns a count as Fluree's readers have it: 32 bits without a sign.
fn count(n: i64) -> i64 {
    n.clamp(0, u32::MAX.into())
}

impl From<&model::Record> for Ledger {
    fn from(record: &model::Record) -> Self {
        let config = record.config.payload.as_ref();
        let named = |member: &str| config.and_then(|config| config.get(member)?.as_str()).and_then(readable);
        let (index_head_id, index_t) = index(record);
        let head = record.head.clone().unwrap_or(ConcernValue::unborn());
        Self {
            ledger_id: record.address.as_str().into(),
            name: record.address.name().into(),
            branch: record.address.branch().into(),
            commit_head_id: head.payload.and_then(|id| readable(id.as_str())),
            commit_t: head.v,
            index_head_id,
            index_t,
            default_context: named("default_context_id"),
            retracted: record.retracted,
            config_id: named("config_id"),
            source_branch: record.source_branch.clone(),
            branches: count(record.branches),
        }
    }
}

impl From<&model::Record> for GraphSource {
    fn from(record: &model::Record) -> Self {
        let (index_id, index_t) = index(record);
        Self {
            graph_source_id: record.address.as_str().into(),
            name: record.address.name().into(),
            branch: record.address.branch().into(),
            source_type: SourceType::stored(record.source_type.as_deref().unwrap_or_default()),
            config: json_text(record.config.payload.as_ref()),
            dependencies: record.dependencies.clone(),
            index_id,
            index_t,
            retracted: record.retracted,
        }
    }
}

/// An event of a stream that follows records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeEvent))]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Event {
    /// The current record.
    NsRecord {
        /// What it describes.
        kind: EventKind,
        /// `name:branch`.
        resource_id: String,
        /// The whole record.
        record: Box<EventRecord>,
        /// When this was sent, RFC 3339 in UTC.
        #[cfg_attr(feature = "openapi", schema(format = DateTime))]
        emitted_at: String,
    },
    /// The record was retracted, or is gone.
    NsRetracted {
        /// What it described.
        kind: EventKind,
        /// `name:branch`.
        resource_id: String,
        /// When this was sent, RFC 3339 in UTC.
        #[cfg_attr(feature = "openapi", schema(format = DateTime))]
        emitted_at: String,
    },
}

impl Event {
    /// The type of the event, which is also its action.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NsRecord { .. } => "ns-record",
            Self::NsRetracted { .. } => "ns-retracted",
        }
    }

    /// The event for the current state of a record. To these readers, retracted records do not exist.
    pub fn of(record: &model::Record, emitted_at: Timestamp) -> Self {
        if record.retracted {
            return Self::retracted(&record.address, record.kind, emitted_at);
        }
        Self::NsRecord {
            kind: record.kind.into(),
            resource_id: record.address.as_str().into(),
            record: Box::new(record.into()),
            emitted_at: time_text(emitted_at),
        }
    }

    /// The event for a record that is retracted or gone.
    pub fn retracted(address: &Address, kind: RecordKind, emitted_at: Timestamp) -> Self {
        Self::NsRetracted { kind: kind.into(), resource_id: address.as_str().into(), emitted_at: time_text(emitted_at) }
    }
}

/// What a record describes, as events call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeEventKind))]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// A ledger.
    Ledger,
    /// A graph source.
    GraphSource,
}

impl From<RecordKind> for EventKind {
    fn from(kind: RecordKind) -> Self {
        match kind {
            RecordKind::Ledger => Self::Ledger,
            RecordKind::GraphSource => Self::GraphSource,
        }
    }
}

/// A record inside an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeEventRecord))]
#[serde(untagged)]
pub enum EventRecord {
    /// A ledger.
    Ledger(Ledger),
    /// A graph source.
    GraphSource(EventGraphSource),
}

/// A graph source inside an event: its type as it is stored, and its configuration without secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeEventGraphSource))]
pub struct EventGraphSource {
    /// `name:branch`.
    pub graph_source_id: String,
    /// The part before the `:`.
    pub name: String,
    /// The part after the `:`.
    pub branch: String,
    /// Its type, such as `f:Bm25Index`.
    pub source_type: String,
    /// Its configuration as JSON text, secrets redacted.
    pub config: String,
    /// What it depends on.
    pub dependencies: Vec<String>,
    /// Its index root.
    pub index_id: Option<String>,
    /// The `t` that it covers; 0 while there is none.
    pub index_t: i64,
    /// Soft-deleted.
    pub retracted: bool,
}

impl From<&model::Record> for EventRecord {
    fn from(record: &model::Record) -> Self {
        match record.kind {
            RecordKind::Ledger => Self::Ledger(record.into()),
            RecordKind::GraphSource => Self::GraphSource(record.into()),
        }
    }
}

impl From<&model::Record> for EventGraphSource {
    fn from(record: &model::Record) -> Self {
        let mut config = record.config.payload.clone();
        if let Some(config) = &mut config {
            model::redact(config);
        }
        let GraphSource { graph_source_id, name, branch, dependencies, index_id, index_t, retracted, .. } =
            record.into();
        Self {
            graph_source_id,
            name,
            branch,
            source_type: record.source_type.clone().unwrap_or_default(),
            config: json_text(config.as_ref()),
            dependencies,
            index_id,
            index_t,
            retracted,
        }
    }
}

/// A configuration as text; an empty object if there is none. Fluree accepts text that is not JSON, and returns it unchanged.
fn json_text(config: Option<&Value>) -> String {
    match config {
        Some(Value::String(text)) => text.clone(),
        Some(config) => config.to_string(),
        None => "{}".into(),
    }
}

/// All records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeSnapshot))]
pub struct Snapshot {
    /// The ledgers.
    pub ledgers: Vec<Ledger>,
    /// The graph sources.
    pub graph_sources: Vec<GraphSource>,
}

/// Where a ref points: `{id: null, t: 0}` while it points nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeRef))]
pub struct Ref {
    /// The commit or index root.
    pub id: Option<String>,
    /// Its `t`.
    pub t: i64,
}

impl From<model::Head> for Ref {
    fn from(head: model::Head) -> Self {
        Self { id: head.payload.and_then(|id| readable(id.as_str())), t: head.v }
    }
}

impl From<model::Index> for Ref {
    fn from(index: model::Index) -> Self {
        Self { id: index.payload.and_then(|root| readable(root.id.as_str())), t: index.v }
    }
}

/// Moves a ref.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureePush))]
pub struct Push {
    /// The value that must be stored now; null: none, which creates the ledger.
    pub expected: Option<Ref>,
    /// The new value.
    pub new: Ref,
}

impl Push {
    /// Returns the push as one of a head. Fluree always compares.
    pub fn into_head(self) -> Result<model::HeadPush, Invalid> {
        let new = HeadValue::from(self.new).born("new")?;
        Ok(match self.expected {
            None => model::HeadPush::create(new),
            Some(expected) => model::HeadPush::cas(HeadValue::from(expected).born_or_not("expected")?, new),
        })
    }

    /// Returns the push as one of an index.
    pub fn into_index(self) -> Result<model::IndexPush, Invalid> {
        let root = |id| IndexRoot { id, rev: 0, graphs: Default::default() };
        let new = HeadValue::from(self.new).born_index("new")?;
        Ok(match self.expected {
            None => model::IndexPush::create(new),
            // Fluree has no `rev`.
            Some(expected) => model::IndexPush::cas(HeadValue::from(expected).born_or_not("expected")?.map(root), new)
                .with_rev_unstated(),
        })
    }
}

impl From<Ref> for HeadValue {
    fn from(at: Ref) -> Self {
        Self { id: at.id, t: at.t }
    }
}

/// The outcome of a push.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureePushAnswer))]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum PushAnswer {
    /// It is stored.
    Updated {
        /// The stored value.
        #[serde(rename = "ref")]
        at: Ref,
    },
    /// Nothing was written.
    Conflict {
        /// The stored value; null if there is no such record.
        actual: Option<Ref>,
    },
}

/// The outcome of an `init`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeInit))]
pub struct Init {
    /// Whether the ledger did not exist before.
    pub created: bool,
}

/// The answer to a request to a ref.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = FlureeRefAnswer))]
#[serde(untagged)]
pub enum RefAnswer {
    /// `commit` and `index`
    Push(PushAnswer),
    /// `init`
    Init(Init),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_an_enum_on_this_wire() {
        assert_eq!(json!(SourceType::stored("f:HnswIndex")), json!("Vector"));
        assert_eq!(json!(SourceType::stored("f:Mine")), json!({"Unknown": "f:Mine"}));
    }

    #[test]
    fn no_push_of_an_index_guesses_a_revision_that_this_wire_does_not_have() {
        let at = |id: &str, t| Ref { id: Some(id.to_owned()), t };
        let [first, second] = [
            "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
            "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy",
        ];
        let push = |expected, t| Push { expected: Some(expected), new: at(second, t) }.into_index().unwrap();
        let again = push(at(first, 2), 2);
        assert!(!again.is_rev_stated());
        assert_eq!(again.assumed_previous(), None);
        // Nothing is counted from the expected index here.
        for known in [push(at(first, 2), 3), push(Ref { id: None, t: 0 }, 2)] {
            assert!(known.assumed_previous().is_some(), "{known:?}");
        }
    }

    #[test]
    fn answers_are_tagged_by_status() {
        let at = Ref { id: Some("a".into()), t: 1 };
        assert_eq!(json!(PushAnswer::Updated { at }), json!({"status": "updated", "ref": {"id": "a", "t": 1}}));
        assert_eq!(json!(PushAnswer::Conflict { actual: None }), json!({"status": "conflict", "actual": null}));
    }
}
