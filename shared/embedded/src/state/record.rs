//! Records as the state machine keeps them: small, shared between snapshots, and the same on disk.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use nameservice_model::{
    Address, ConcernKind, ConcernValue, Config, ContentId, GraphIndex, Head, Held, Index, IndexRoot, Lease, Object,
    Record as ModelRecord, RecordAttributes, RecordKind, Status, StatusPayload, Summary,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call_id::{CallId, Ring};

/// A record. Its identity is its address; `id` is its row in the log's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) address: Arc<str>,
    /// The position of the change that created it: no other record ever has it.
    pub(crate) id: u64,
    #[serde(with = "kind_code")]
    pub(crate) kind: RecordKind,
    pub(crate) retracted: bool,
    /// Epoch seconds.
    pub(crate) created_at: i64,
    /// Epoch milliseconds.
    pub(crate) updated_at: i64,
    pub(crate) branches: u32,
    pub(crate) dependents: u32,
    /// Absent for a ledger that is not a branch.
    pub(crate) origin: Option<Arc<Origin>>,
    /// Absent for graph sources.
    pub(crate) head: Option<HeadItem>,
    pub(crate) index: IndexItem,
    pub(crate) status: StatusItem,
    pub(crate) config: ConfigItem,
    /// In the log, a mark after the record stands for true, so that rows written before this field existed are still
    /// readable.
    #[serde(skip)]
    pub(crate) protected: bool,
    /// The calls that set or removed the protection; absent if none has. In the log, it follows the record.
    #[serde(skip)]
    pub(crate) protections: Option<Ring>,
}

/// What a branch or a graph source comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) source_branch: Option<Arc<str>>,
    pub(crate) source_type: Option<Arc<str>>,
    pub(crate) dependencies: Vec<Arc<str>>,
}

/// What holds the attributes of a record.
pub(crate) type AttributeFields<'a> = (bool, Option<&'a Origin>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct HeadItem {
    pub(crate) t: i64,
    pub(crate) id: Option<Arc<str>>,
    pub(crate) calls: Ring,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexItem {
    pub(crate) t: i64,
    pub(crate) root: Option<Arc<Root>>,
    pub(crate) calls: Ring,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Root {
    pub(crate) id: Box<str>,
    pub(crate) rev: i64,
    pub(crate) graphs: BTreeMap<String, Option<Graph>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Graph {
    pub(crate) id: Box<str>,
    pub(crate) t: i64,
    pub(crate) rev: i64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StatusItem {
    pub(crate) v: i64,
    /// Absent for `ready`, the state of nearly all records.
    pub(crate) state: Option<Arc<str>>,
    /// The metadata as JSON text; absent if there is none.
    pub(crate) meta: Option<Arc<str>>,
    pub(crate) lease: Option<Arc<LeaseItem>>,
    /// The last fencing token that was given.
    pub(crate) token: i64,
    pub(crate) calls: Ring,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeaseItem {
    pub(crate) name: Box<str>,
    pub(crate) holder: Box<str>,
    pub(crate) target_t: Option<i64>,
    pub(crate) acquired_at: i64,
    pub(crate) expires_at: i64,
    pub(crate) refreshed_at: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConfigItem {
    pub(crate) v: i64,
    /// The payload as JSON text.
    pub(crate) payload: Option<Arc<str>>,
    pub(crate) calls: Ring,
}

impl Record {
    /// A record without data, as a call creates it.
    pub(crate) fn new(address: &str, kind: RecordKind, id: u64, call: CallId, now_ms: i64) -> Self {
        Self::without_data(address, kind, id, Ring::begun_by(call), now_ms)
    }

    /// A record without data and attributes, each of whose concerns remembers these calls.
    pub(super) fn without_data(address: &str, kind: RecordKind, id: u64, calls: Ring, now_ms: i64) -> Self {
        Self {
            address: Arc::from(address),
            id,
            kind,
            retracted: false,
            created_at: now_ms.div_euclid(1000),
            updated_at: now_ms,
            branches: 0,
            dependents: 0,
            origin: None,
            head: (kind == RecordKind::Ledger).then(|| HeadItem { t: 0, id: None, calls: calls.clone() }),
            index: IndexItem { t: 0, root: None, calls: calls.clone() },
            status: StatusItem { v: 1, state: None, meta: None, lease: None, token: 0, calls: calls.clone() },
            config: ConfigItem { v: 0, payload: None, calls },
            protected: false,
            protections: None,
        }
    }

    /// The concerns that records of this kind have.
    pub(crate) const fn concerns(kind: RecordKind) -> &'static [ConcernKind] {
        match kind {
            RecordKind::Ledger => &ConcernKind::ALL,
            RecordKind::GraphSource => &[ConcernKind::Index, ConcernKind::Status, ConcernKind::Config],
        }
    }

    /// The calls that a concern remembers; `None` if the record has no such concern.
    pub(crate) fn calls(&self, concern: ConcernKind) -> Option<&Ring> {
        match concern {
            ConcernKind::Head => self.head.as_ref().map(|head| &head.calls),
            ConcernKind::Index => Some(&self.index.calls),
            ConcernKind::Status => Some(&self.status.calls),
            ConcernKind::Config => Some(&self.config.calls),
        }
    }

    pub(crate) fn calls_mut(&mut self, concern: ConcernKind) -> Option<&mut Ring> {
        match concern {
            ConcernKind::Head => self.head.as_mut().map(|head| &mut head.calls),
            ConcernKind::Index => Some(&mut self.index.calls),
            ConcernKind::Status => Some(&mut self.status.calls),
            ConcernKind::Config => Some(&mut self.config.calls),
        }
    }

    /// Returns what the concerns and the protection remember.
    pub(crate) fn all_calls(&self) -> impl Iterator<Item = &Ring> {
        ConcernKind::ALL.into_iter().filter_map(|concern| self.calls(concern)).chain(&self.protections)
    }

    /// Returns whether any concern remembers the call.
    pub(crate) fn any_remembers(&self, call: CallId) -> bool {
        ConcernKind::ALL.into_iter().filter_map(|concern| self.calls(concern)).any(|calls| calls.remembers(call))
    }

    /// Notes the time of a write. It never goes back, whatever the clock does.
    pub(crate) fn touch(&mut self, now_ms: i64) {
        self.updated_at = self.updated_at.max(now_ms);
    }

    pub(crate) const fn is_referenced(&self) -> bool {
        self.branches > 0 || self.dependents > 0
    }

    pub(crate) fn source_branch(&self) -> Option<&str> {
        self.origin.as_ref()?.source_branch.as_deref()
    }

    pub(crate) fn source_type(&self) -> Option<&str> {
        self.origin.as_ref()?.source_type.as_deref()
    }

    pub(crate) fn dependencies(&self) -> &[Arc<str>] {
        self.origin.as_ref().map_or(&[], |origin| &origin.dependencies)
    }

    pub(crate) fn model_address(&self) -> Address {
        Address::stored(self.address.clone())
    }

    /// The record that this one was branched from.
    pub(crate) fn parent(&self) -> Option<Address> {
        let address = self.model_address();
        address.with_branch(self.source_branch()?).ok().filter(|parent| *parent != address)
    }

    pub(crate) fn head(&self) -> Option<Head> {
        self.head.as_ref().map(HeadItem::value)
    }

    /// The record as its readers see it.
    pub(crate) fn to_model(&self) -> ModelRecord {
        ModelRecord {
            retracted: self.retracted,
            created_at: Timestamp::from_second(self.created_at).ok(),
            updated_at: Timestamp::from_millisecond(self.updated_at).unwrap_or(Timestamp::UNIX_EPOCH),
            branches: self.branches.into(),
            dependents: self.dependents.into(),
            head: self.head(),
            index: self.index.value(),
            status: self.status.value(),
            config: self.config.value(),
            ..ModelRecord::base(self.model_address(), self.kind, self.attributes())
        }
    }

    /// Returns the attributes as the model has them.
    pub(crate) fn attributes(&self) -> RecordAttributes {
        RecordAttributes {
            protected: self.protected,
            source_type: self.source_type().map(str::to_owned),
            dependencies: texts(self.dependencies()),
            source_branch: self.source_branch().map(str::to_owned),
        }
    }

    pub(crate) fn set_attributes(&mut self, attributes: &RecordAttributes) {
        let RecordAttributes { protected, source_type, dependencies, source_branch } = attributes;
        let text = |text: &Option<String>| text.as_deref().map(Arc::from);
        let origin = Origin {
            source_branch: text(source_branch),
            source_type: text(source_type),
            dependencies: dependencies.iter().map(|text| Arc::from(&**text)).collect(),
        };
        self.protected = *protected;
        self.origin = (origin != Origin::default()).then(|| Arc::new(origin));
    }

    /// Returns what holds the attributes, which compares as they do.
    pub(crate) fn attribute_fields(&self) -> AttributeFields<'_> {
        (self.protected, self.origin.as_deref())
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            address: self.model_address(),
            kind: self.kind,
            retracted: self.retracted,
            source_type: self.source_type().map(str::to_owned),
            dependencies: texts(self.dependencies()),
        }
    }

    /// Returns about how many bytes of JSON the record takes.
    pub(crate) fn weight(&self) -> usize {
        /// Names of members, punctuation, times, ids.
        const FIXED: usize = 700;
        /// Names of members and punctuation of a named graph.
        const GRAPH: usize = 90;
        let of_graph = |(name, graph): (&String, &Option<Graph>)| {
            GRAPH + name.len() + graph.as_ref().map_or(0, |graph| graph.id.len())
        };
        let graphs = self.index.root.as_ref().map_or(0, |root| root.graphs.iter().map(of_graph).sum());
        let texts = [&self.config.payload, &self.status.meta].into_iter().flatten().map(|text| text.len());
        FIXED
            + 2 * self.address.len()
            + texts.sum::<usize>()
            + graphs
            + self.dependencies().iter().map(|dependency| dependency.len() + 3).sum::<usize>()
    }
}

pub(crate) fn texts(texts: &[Arc<str>]) -> Vec<String> {
    texts.iter().map(|text| text.to_string()).collect()
}

impl HeadItem {
    pub(crate) fn value(&self) -> Head {
        ConcernValue::stored(self.t, self.id.clone().map(ContentId::stored))
    }
}

impl IndexItem {
    pub(crate) fn value(&self) -> Index {
        ConcernValue::stored(self.t, self.root.as_deref().map(Root::value))
    }
}

impl Root {
    pub(crate) fn value(&self) -> IndexRoot {
        let graphs = self.graphs.iter().map(|(name, graph)| (name.clone(), graph.as_ref().map(Graph::value)));
        IndexRoot { id: ContentId::stored(&*self.id), rev: self.rev, graphs: graphs.collect() }
    }
}

impl Graph {
    pub(crate) fn value(&self) -> GraphIndex {
        GraphIndex { id: ContentId::stored(&*self.id), t: self.t, rev: self.rev }
    }
}

impl StatusItem {
    pub(crate) fn state(&self) -> &str {
        self.state.as_deref().unwrap_or(StatusPayload::READY)
    }

    pub(crate) fn set_state(&mut self, state: &str) {
        self.state = (state != StatusPayload::READY).then(|| Arc::from(state));
    }

    pub(crate) fn set_meta(&mut self, meta: &Object) {
        self.meta = (!meta.is_empty()).then(|| json_text(meta));
    }

    pub(crate) fn meta(&self) -> Object {
        self.meta.as_deref().map(object).unwrap_or_default()
    }

    /// The status with its lease inside, under the lease's name.
    pub(crate) fn value(&self) -> Status {
        let mut payload = StatusPayload { state: self.state().to_owned(), meta: self.meta() };
        if let Some(lease) = &self.lease {
            let mut shown = Object::new();
            shown.insert("holder".to_owned(), Value::from(&*lease.holder));
            if let Some(t) = lease.target_t {
                shown.insert("target_t".to_owned(), Value::from(t));
            }
            shown.insert("acquired_at".to_owned(), Value::from(lease.acquired_at));
            shown.insert("expires_at".to_owned(), Value::from(lease.expires_at));
            if let Some(at) = lease.refreshed_at {
                shown.insert("refreshed_at".to_owned(), Value::from(at));
            }
            payload.meta.insert(lease.name.to_string(), Value::Object(shown));
        }
        ConcernValue::new(self.v, payload)
    }

    pub(crate) fn lease(&self) -> Option<Lease> {
        self.lease.as_ref().and_then(|lease| lease.value())
    }

    pub(crate) fn held(&self) -> Option<Held> {
        Some(Held { lease: self.lease()?, token: self.token })
    }
}

impl LeaseItem {
    pub(crate) fn value(&self) -> Option<Lease> {
        Some(Lease {
            // Only valid names are stored.
            name: self.name.parse().ok()?,
            holder: self.holder.to_string(),
            target_t: self.target_t,
            acquired_at: self.acquired_at,
            expires_at: self.expires_at,
            refreshed_at: self.refreshed_at,
        })
    }
}

impl ConfigItem {
    pub(crate) fn value(&self) -> Config {
        ConcernValue::stored(self.v, self.json())
    }

    pub(crate) fn json(&self) -> Option<Value> {
        self.payload.as_deref().map(|text| serde_json::from_str(text).unwrap_or(Value::Null))
    }
}

/// Returns an object as the text that is stored.
pub(crate) fn json_text(object: &Object) -> Arc<str> {
    // A map of JSON values always has a JSON form.
    Arc::from(serde_json::to_string(object).unwrap_or_default())
}

fn object(text: &str) -> Object {
    serde_json::from_str(text).unwrap_or_default()
}

mod kind_code {
    use nameservice_model::RecordKind;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(kind: &RecordKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(match kind {
            RecordKind::Ledger => 0,
            RecordKind::GraphSource => 1,
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RecordKind, D::Error> {
        match u8::deserialize(deserializer)? {
            0 => Ok(RecordKind::Ledger),
            1 => Ok(RecordKind::GraphSource),
            code => Err(D::Error::custom(format!("{code} is not a kind of record"))),
        }
    }
}
