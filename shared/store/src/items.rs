//! Conversion between items and values.
//!
//! Reading is tolerant, because other programs write this table too (docs/specification.md, Table): anything but keys
//! may be missing, and a NULL, or an attribute of an unexpected type, is read as absent. Writing is exact.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::types::AttributeValue;
use jiff::Timestamp;
pub(crate) use nameservice_dynamo::{Item, as_integer};
use nameservice_model::{
    Address, ConcernKind, ConcernValue, Config, ContentId, GraphIndex, Head, Held, Index, IndexRoot, Lease, LeaseName,
    Object, Record, RecordAttribute, RecordAttributes, RecordKind, RequestId, Status, StatusPayload, Summary,
};
use serde_json::{Value, json};

use crate::schema::*;

/// The member of a ledger's config payload that is stored in attributes of its own.
const DEFAULT_CONTEXT_ID: &str = ATTR_DEFAULT_CONTEXT_ID;

// ---- single attributes ----

pub(crate) fn string(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: i64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(crate) fn strings<'a>(values: impl IntoIterator<Item = &'a str>) -> AttributeValue {
    AttributeValue::L(values.into_iter().map(string).collect())
}

pub(crate) fn text<'a>(item: &'a Item, attribute: &str) -> Option<&'a str> {
    item.get(attribute)?.as_s().ok().map(String::as_str)
}

pub(crate) fn flag(item: &Item, attribute: &str) -> bool {
    matches!(item.get(attribute), Some(AttributeValue::Bool(true)))
}

/// Returns a watermark or a counter; `None` if it is absent or not an integer. One beyond 64 bits is read as the nearest
/// of 64 bits: as an absent one, it could run backwards.
pub(crate) fn integer(item: &Item, attribute: &str) -> Option<i64> {
    let value = item.get(attribute)?;
    as_integer(value).or_else(|| {
        let beyond: f64 = value.as_n().ok()?.parse().ok()?;
        (beyond.fract() == 0.0).then_some(beyond as i64)
    })
}

pub(crate) fn list_of_strings(item: &Item, attribute: &str) -> Vec<String> {
    let values = item.get(attribute).and_then(|value| value.as_l().ok());
    values.into_iter().flatten().filter_map(|value| value.as_s().ok().cloned()).collect()
}

/// Returns an attribute that is present and not NULL.
pub(crate) fn present<'a>(item: &'a Item, attribute: &str) -> Option<&'a AttributeValue> {
    item.get(attribute).filter(|value| !matches!(value, AttributeValue::Null(_)))
}

pub(crate) fn pk(item: &Item) -> &str {
    text(item, ATTR_PK).unwrap_or_default()
}

pub(crate) fn sk(item: &Item) -> &str {
    text(item, ATTR_SK).unwrap_or_default()
}

/// Returns about how many bytes an item has in JSON: precise enough to bound memory and pages.
pub(crate) fn weight(item: &Item) -> usize {
    fn of(value: &AttributeValue) -> usize {
        match value {
            AttributeValue::S(text) | AttributeValue::N(text) => text.len() + 2,
            AttributeValue::L(values) => values.iter().map(|value| of(value) + 1).sum::<usize>() + 2,
            AttributeValue::M(members) => {
                members.iter().map(|(name, value)| name.len() + of(value) + 4).sum::<usize>() + 2
            }
            _ => 8,
        }
    }
    item.iter().map(|(name, value)| name.len() + of(value) + 4).sum()
}

// ---- JSON payloads ----

/// JSON as attribute values.
pub(crate) fn attribute(value: &Value) -> AttributeValue {
    match value {
        Value::Null => AttributeValue::Null(true),
        Value::Bool(flag) => AttributeValue::Bool(*flag),
        Value::Number(number) => AttributeValue::N(number.to_string()),
        Value::String(text) => string(text),
        Value::Array(values) => AttributeValue::L(values.iter().map(attribute).collect()),
        Value::Object(members) => map(members),
    }
}

pub(crate) fn map(members: &Object) -> AttributeValue {
    AttributeValue::M(members.iter().map(|(name, value)| (name.clone(), attribute(value))).collect())
}

/// Attribute values as JSON. Sets become arrays, binary becomes an array of numbers (none of ours hold either).
pub(crate) fn value_of(attribute: &AttributeValue) -> Value {
    serde_dynamo::from_attribute_value(attribute.clone()).unwrap_or(Value::Null)
}

fn object(item: &Item, attribute: &str) -> Object {
    match present(item, attribute).map(value_of) {
        Some(Value::Object(members)) => members,
        _ => Object::new(),
    }
}

// ---- concerns: item -> value ----

pub(crate) fn head(item: &Item) -> Head {
    let v = integer(item, ATTR_COMMIT_T).unwrap_or(0);
    ConcernValue::stored(v, text(item, ATTR_COMMIT_ID).map(ContentId::stored))
}

pub(crate) fn index(item: &Item) -> Index {
    let v = integer(item, ATTR_INDEX_T).unwrap_or(0);
    let payload = text(item, ATTR_INDEX_ID).map(|id| IndexRoot {
        id: ContentId::stored(id),
        // When Fluree replaces the index it leaves our `rev` as it is, which then belongs to another index.
        rev: if text(item, ATTR_REV_ID) == Some(id) { integer(item, ATTR_REV).unwrap_or(0) } else { 0 },
        graphs: graphs(item),
    });
    ConcernValue::stored(v, payload)
}

fn graphs(item: &Item) -> BTreeMap<String, Option<GraphIndex>> {
    let entries = present(item, ATTR_GRAPHS).and_then(|value| value.as_m().ok());
    entries.into_iter().flatten().map(|(name, entry)| (name.clone(), entry.as_m().ok().and_then(graph_entry))).collect()
}

fn graph_entry(members: &Item) -> Option<GraphIndex> {
    Some(GraphIndex {
        id: ContentId::stored(text(members, MEMBER_ID)?),
        t: integer(members, MEMBER_T)?,
        rev: integer(members, MEMBER_REV).unwrap_or(0),
    })
}

pub(crate) fn graph_attribute(graph: Option<&GraphIndex>) -> AttributeValue {
    match graph {
        None => AttributeValue::Null(true),
        Some(graph) => AttributeValue::M(HashMap::from([
            (MEMBER_ID.to_owned(), string(graph.id.as_str())),
            (MEMBER_T.to_owned(), number(graph.t)),
            (MEMBER_REV.to_owned(), number(graph.rev)),
        ])),
    }
}

/// The status with its lease shown inside, under the lease's name.
pub(crate) fn status(item: &Item) -> Status {
    let mut value = status_without_lease(item);
    if let (Some(payload), Value::Object(mut lease)) = (&mut value.payload, lease_value(item))
        && let Some(Value::String(name)) = lease.remove(MEMBER_LEASE_NAME)
    {
        payload.meta.insert(name, Value::Object(lease));
    }
    value
}

fn lease_value(item: &Item) -> Value {
    present(item, ATTR_LEASE).map_or(Value::Null, value_of)
}

/// The lease on a status item, with its token.
pub(crate) fn held(item: &Item) -> Option<Held> {
    let lease = lease(item)?;
    Some(Held { lease, token: integer(item, ATTR_LEASE_TOKEN)? })
}

/// The lease on a status item, expired or not.
pub(crate) fn lease(item: &Item) -> Option<Lease> {
    let members = present(item, ATTR_LEASE)?.as_m().ok()?;
    Some(Lease {
        name: LeaseName::parse(text(members, MEMBER_LEASE_NAME)?).ok()?,
        holder: text(members, MEMBER_LEASE_HOLDER)?.to_owned(),
        target_t: integer(members, MEMBER_LEASE_TARGET_T),
        acquired_at: integer(members, MEMBER_LEASE_ACQUIRED_AT)?,
        expires_at: integer(members, MEMBER_LEASE_EXPIRES_AT)?,
        refreshed_at: integer(members, MEMBER_LEASE_REFRESHED_AT),
    })
}

/// A lease as an attribute.
pub(crate) fn lease_attribute(lease: &Lease) -> AttributeValue {
    let mut members = Item::from([
        (MEMBER_LEASE_NAME.to_owned(), string(lease.name.as_str())),
        (MEMBER_LEASE_HOLDER.to_owned(), string(&lease.holder)),
        (MEMBER_LEASE_ACQUIRED_AT.to_owned(), number(lease.acquired_at)),
        (MEMBER_LEASE_EXPIRES_AT.to_owned(), number(lease.expires_at)),
    ]);
    let optional = [(MEMBER_LEASE_TARGET_T, lease.target_t), (MEMBER_LEASE_REFRESHED_AT, lease.refreshed_at)];
    members.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), number(value?)))));
    AttributeValue::M(members)
}

pub(crate) fn status_without_lease(item: &Item) -> Status {
    let state = text(item, ATTR_STATUS).unwrap_or(StatusPayload::READY).to_owned();
    let mut meta = object(item, ATTR_STATUS_META);
    // `state` has an attribute of its own; a member of that name could only contradict it.
    meta.remove("state");
    ConcernValue::new(integer(item, ATTR_STATUS_V).unwrap_or(1), StatusPayload { state, meta }.without_leases())
}

pub(crate) fn config(item: &Item) -> Config {
    let v = integer(item, ATTR_CONFIG_V).unwrap_or(0);
    let payload = match text(item, ATTR_CONFIG_JSON) {
        Some(json) => Some(serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.to_owned()))),
        None => {
            let mut members = object(item, ATTR_CONFIG_META);
            let context = default_context(item);
            let born = v > 0 || !members.is_empty() || context.is_some();
            if let Some(id) = context {
                members.insert(DEFAULT_CONTEXT_ID.to_owned(), json!(id));
            }
            born.then_some(Value::Object(members))
        }
    };
    ConcernValue::stored(v, payload)
}

/// Deployed servers write and remove `default_context_address` alone. The guide's name counts only if we never wrote
/// the item: otherwise it may be a value that a server has since removed (docs/specification.md, Table).
fn default_context(item: &Item) -> Option<&str> {
    text(item, ATTR_DEFAULT_CONTEXT_ADDRESS).or_else(|| text(item, ATTR_DEFAULT_CONTEXT_ID).filter(|_| !is_ours(item)))
}

/// Splits a ledger's config payload into its attributes: the default context, and the rest.
pub(crate) fn split_config(payload: &Value) -> (Option<&str>, Object) {
    let mut rest = payload.as_object().cloned().unwrap_or_default();
    rest.remove(DEFAULT_CONTEXT_ID);
    (payload.get(DEFAULT_CONTEXT_ID).and_then(Value::as_str), rest)
}

/// Returns whether the item belongs to a graph source: only those keep their config as text.
pub(crate) fn is_graph_source_config(item: &Item) -> bool {
    present(item, ATTR_CONFIG_JSON).is_some()
}

/// Returns the calls that the item remembers, the newest first.
pub(crate) fn calls(item: &Item) -> impl Iterator<Item = &str> {
    ATTR_REQUEST_IDS.iter().filter_map(|attribute| text(item, attribute)).filter(|call| *call != NO_REQUEST)
}

/// Returns whether the item remembers this call.
pub(crate) fn remembers(item: &Item, request_id: &RequestId) -> bool {
    calls(item).any(|call| call == request_id.as_str())
}

/// Returns whether the item remembers another request under the key of this call.
pub(crate) fn reuses_key(item: &Item, request_id: &RequestId) -> bool {
    !remembers(item, request_id) && calls(item).any(|call| request_id.shares_key_with(call))
}

/// Returns whether one of our calls has written the item, which they do only under a record.
pub(crate) fn is_ours(item: &Item) -> bool {
    item.contains_key(ATTR_REQUEST_IDS[0])
}

/// Returns whether this call was the last one of ours to write the item.
pub(crate) fn written_last_by(item: &Item, request_id: &RequestId) -> bool {
    text(item, ATTR_REQUEST_IDS[0]) == Some(request_id.as_str())
}

// ---- records ----

/// The items of one record, by sort key.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordItems {
    pub(crate) items: BTreeMap<String, Item>,
}

impl RecordItems {
    pub(crate) fn new(items: impl IntoIterator<Item = Item>) -> Self {
        Self { items: items.into_iter().map(|item| (sk(&item).to_owned(), item)).collect() }
    }

    /// Returns the item that makes the record exist: a meta with a kind.
    pub(crate) fn meta(&self) -> Option<(&Item, RecordKind)> {
        let meta = self.items.get(SK_META)?;
        Some((meta, kind(meta)?))
    }

    pub(crate) fn concern(&self, concern: ConcernKind) -> Option<&Item> {
        self.items.get(sk_of(concern))
    }

    /// Returns the concern's item; an empty one, which reads as the unborn value, if it is missing.
    pub(crate) fn concern_or_empty(&self, concern: ConcernKind) -> Item {
        self.concern(concern).cloned().unwrap_or_default()
    }

    /// Applies a write that was made to the item, which is created if it was missing.
    pub(crate) fn patch(&mut self, sk: &str, change: impl FnOnce(&mut Item)) {
        change(self.items.entry(sk.to_owned()).or_default());
    }

    /// Returns the record; `None` if there is no meta, or one without a kind.
    pub(crate) fn record(&self) -> Option<Record> {
        let (meta, kind) = self.meta()?;
        let concern = |concern| self.concern_or_empty(concern);
        let updated = self.items.values().filter_map(|item| integer(item, ATTR_UPDATED_AT_MS)).max().unwrap_or(0);
        Some(Record {
            retracted: flag(meta, ATTR_RETRACTED),
            created_at: integer(meta, ATTR_CREATED_AT).and_then(|seconds| Timestamp::from_second(seconds).ok()),
            updated_at: Timestamp::from_millisecond(updated).unwrap_or(Timestamp::UNIX_EPOCH),
            branches: integer(meta, ATTR_BRANCHES).unwrap_or(0),
            dependents: integer(meta, ATTR_DEPENDENTS).unwrap_or(0),
            head: (kind == RecordKind::Ledger).then(|| head(&concern(ConcernKind::Head))),
            index: index(&concern(ConcernKind::Index)),
            status: status(&concern(ConcernKind::Status)),
            config: config(&concern(ConcernKind::Config)),
            ..Record::base(Address::stored(pk(meta)), kind, attributes(meta))
        })
    }

    pub(crate) fn weight(&self) -> usize {
        self.items.values().map(weight).sum()
    }
}

/// Returns the attributes of the record that a meta item has.
pub(crate) fn attributes(meta: &Item) -> RecordAttributes {
    let mut attributes = RecordAttributes::default();
    for attribute in RecordAttribute::ALL {
        let value = match (attribute, meta.get(name_of(*attribute))) {
            (_, None) => continue,
            // What is no list of texts counts as empty, as in lists.
            (RecordAttribute::Dependencies, _) => list_of_strings(meta, ATTR_DEPENDENCIES).into(),
            (_, Some(value)) => value_of(value),
        };
        attributes.set(*attribute, value);
    }
    attributes
}

/// Adds the attributes of a record to its new meta item.
pub(crate) fn put_attributes(meta: &mut Item, attributes: &RecordAttributes) {
    meta.extend(attributes.shown().map(|(of, value)| (name_of(of).to_owned(), attribute(&value))));
}

pub(crate) fn kind(meta: &Item) -> Option<RecordKind> {
    text(meta, ATTR_KIND)?.parse().ok()
}

/// Returns what a meta item, or its projection into an index, says about its record.
pub(crate) fn summary(meta: &Item, kind: RecordKind) -> Summary {
    Summary {
        address: Address::stored(pk(meta)),
        kind,
        retracted: flag(meta, ATTR_RETRACTED),
        source_type: text(meta, ATTR_SOURCE_TYPE).map(str::to_owned),
        dependencies: list_of_strings(meta, ATTR_DEPENDENCIES),
    }
}

// ---- new items ----

/// The attributes that all items of a record have.
pub(crate) fn base(address: &Address, sk: &str, now_ms: i64) -> Item {
    Item::from([
        (ATTR_PK.to_owned(), string(address.as_str())),
        (ATTR_SK.to_owned(), string(sk)),
        (ATTR_SCHEMA.to_owned(), number(SCHEMA_VERSION)),
        (ATTR_UPDATED_AT_MS.to_owned(), number(now_ms)),
    ])
}

/// The meta item of a new record.
pub(crate) fn new_meta(address: &Address, kind: RecordKind, request_id: &RequestId, now_ms: i64) -> Item {
    let mut meta = base(address, SK_META, now_ms);
    meta.extend([
        (ATTR_KIND.to_owned(), string(kind.as_str())),
        (ATTR_NAME.to_owned(), string(address.name())),
        (ATTR_BRANCH.to_owned(), string(address.branch())),
        (ATTR_RETRACTED.to_owned(), AttributeValue::Bool(false)),
        (ATTR_CREATED_AT.to_owned(), number(now_ms.div_euclid(1000))),
        (ATTR_LIFE.to_owned(), string(request_id.as_str())),
    ]);
    meta
}

/// Returns a concern item of a new record: without data, and remembering the call that creates it.
pub(crate) fn new_concern(address: &Address, concern: ConcernKind, request_id: &RequestId, now_ms: i64) -> Item {
    let mut item = base(address, sk_of(concern), now_ms);
    item.insert(ATTR_REQUEST_IDS[0].to_owned(), string(request_id.as_str()));
    match concern {
        ConcernKind::Head => item.extend([(ATTR_COMMIT_T.to_owned(), number(0))]),
        ConcernKind::Index => item.extend([
            (ATTR_INDEX_T.to_owned(), number(0)),
            // An empty map, so that a push can set one named graph in it without knowing the others.
            (ATTR_GRAPHS.to_owned(), AttributeValue::M(HashMap::new())),
        ]),
        ConcernKind::Config => item.extend([(ATTR_CONFIG_V.to_owned(), number(0))]),
        ConcernKind::Status => item.extend([
            (ATTR_STATUS.to_owned(), string(StatusPayload::READY)),
            (ATTR_STATUS_V.to_owned(), number(1)),
            // Shows that the item belongs to a record, because it is only ever set under one.
            (ATTR_LEASE_TOKEN.to_owned(), number(0)),
        ]),
    }
    item
}
