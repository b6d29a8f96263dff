//! The changes between the before and after images of items: the only reader of stream records.
//!
//! A change is any difference in id, watermark, `rev`, named graphs, payload or `retracted` (docs/specification.md,
//! Change feed). Counters, request ids, write times and the rows beside a record (`commit#`, `backref#`) are not
//! changes. Fluree's writes and ours are treated alike.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use jiff::Timestamp;
use nameservice_dynamo::READ_BATCH;
use nameservice_model::{
    Address, ChangeKind, ChangePayload, ChangedPart, ConcernKind, Identity, PartState, RequestId, Result,
};
use serde_json::Value;

use crate::{
    Store,
    expressions::Key,
    items::{self, Item},
    schema::*,
};

/// One record of the table's stream, whichever way it was delivered.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamRecord {
    /// Identifies this record, however often it is delivered.
    pub event_id: String,
    /// Its position in its shard: a number of up to 40 digits.
    pub sequence_number: String,
    /// About when it was written, by the stream's clock; whole seconds.
    pub written_at: Timestamp,
    /// The key of the item.
    pub keys: HashMap<String, AttributeValue>,
    /// The item before; empty if there was none.
    pub old: HashMap<String, AttributeValue>,
    /// The item after; empty if there is none.
    pub new: HashMap<String, AttributeValue>,
}

/// The error for a stream record that is invalid, so that no change can be read from it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It has no key of this table.
    #[error("the record has no `{0}` of type S")]
    NoKey(&'static str),
    /// An attribute of this part of a record has the wrong type.
    #[error("`{attribute}` is not of type {expected}")]
    WrongType {
        /// The attribute of the new image.
        attribute: &'static str,
        /// The types it may have.
        expected: &'static str,
    },
}

/// A change that a stream record shows, before the identity of the record and the position in the feed are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Which record.
    pub address: Address,
    /// Which part of it.
    pub part: ChangedPart,
    /// How it has changed.
    pub kind: ChangeKind,
    /// The current watermark.
    pub watermark: i64,
    /// The previous watermark, if there was one.
    pub previous: Option<i64>,
    /// The current value.
    pub payload: ChangePayload,
    /// When the writer wrote it.
    pub occurred_at: Timestamp,
}

impl StreamRecord {
    /// Returns the change that the record shows, if it shows one.
    pub fn difference(&self) -> Result<Option<Difference>, Unreadable> {
        let Some((address, part)) = self.part()? else { return Ok(None) };
        check_types(part, &self.new)?;
        let (before, after) = (state(part, &self.old), state(part, &self.new));
        let Some(mut difference) = self.between(address, part, before.as_ref(), after.as_ref()) else {
            return Ok(None);
        };
        difference.payload = after.and_then(|state| state.content).map_or(ChangePayload::None, ChangePayload::of);
        Ok(Some(difference))
    }

    /// Returns the change that reads of the nameservice record show, without its payload: they treat attributes of the wrong type as
    /// absent. `None` if they show no change, or if the key is unknown.
    pub fn without_payload(&self) -> Option<Difference> {
        let (address, part) = self.part().ok()??;
        let (before, after) = (state(part, &self.old), state(part, &self.new));
        self.between(address, part, before.as_ref(), after.as_ref()).map(omitted)
    }

    /// Returns a change without its payload, and does not read what the items hold: whatever else was written, it is taken for a change. `None`
    /// if the key is unknown, or is not that of a part of a record.
    pub fn unread(&self) -> Option<Difference> {
        let (address, part) = self.part().ok()??;
        let state = |image: &Item, is_new: bool| {
            let exists = !image.is_empty() && (part != ChangedPart::Meta || items::kind(image).is_some());
            let watermark = match part {
                ChangedPart::Meta => 0,
                ChangedPart::Concern(concern) => items::integer(image, watermark_of(concern)).unwrap_or(0),
            };
            // Never the same before and after.
            let content = Some(is_new);
            exists.then(|| PartState { watermark, content, retracted: items::flag(image, ATTR_RETRACTED) })
        };
        let (before, after) = (state(&self.old, false), state(&self.new, true));
        self.between(address, part, before.as_ref(), after.as_ref()).map(omitted)
    }

    /// Returns the difference between two states, without its payload.
    fn between<C: PartialEq>(
        &self,
        address: Address,
        part: ChangedPart,
        before: Option<&PartState<C>>,
        after: Option<&PartState<C>>,
    ) -> Option<Difference> {
        // A concern without an item is unborn. Fluree does not write every item: a retraction marks those that are missing, too.
        let unborn = (part != ChangedPart::Meta).then_some(PartState { watermark: 0, content: None, retracted: false });
        let kind = ChangeKind::between(part, before.or(unborn.as_ref()), after)?;
        Some(Difference {
            address,
            part,
            kind,
            watermark: after.map_or(0, |state| state.watermark),
            previous: before.filter(|_| part != ChangedPart::Meta).map(|state| state.watermark),
            payload: ChangePayload::None,
            occurred_at: self.occurred_at(),
        })
    }

    /// Returns what the stream record says about the kind of a nameservice record; `None` unless it is about a meta
    /// item.
    pub fn identities(&self) -> Option<Identities> {
        let (address, ChangedPart::Meta) = self.part().ok()?? else { return None };
        Some(Identities { address, before: identity(&self.old), after: identity(&self.new) })
    }

    /// Returns the call that wrote it. Only our writes of concern items have one: other programs and deletions leave no
    /// new id.
    pub fn call(&self) -> Option<RequestId> {
        let [old, new] = [&self.old, &self.new].map(|image| items::text(image, ATTR_REQUEST_IDS[0]));
        new.filter(|id| Some(*id) != old).map(RequestId::stored)
    }

    /// Returns which part of which record the item is; `None` for an item that is not part of a record.
    fn part(&self) -> Result<Option<(Address, ChangedPart)>, Unreadable> {
        let key = |attribute| items::text(&self.keys, attribute).ok_or(Unreadable::NoKey(attribute));
        let (pk, sk) = (key(ATTR_PK)?, key(ATTR_SK)?);
        let part = match sk {
            SK_META => Some(ChangedPart::Meta),
            _ => ConcernKind::ALL.into_iter().find(|concern| sk_of(*concern) == sk).map(ChangedPart::Concern),
        };
        Ok(part.map(|part| (Address::stored(pk), part)))
    }

    /// Returns the write time that the writer stored in the item. For a deletion, or a writer that stores none, it is
    /// the stream's. A number that cannot be a time of writing is ignored: RFC 3339 has no years before 1.
    fn occurred_at(&self) -> Timestamp {
        let [old, new] = [&self.old, &self.new].map(|image| items::integer(image, ATTR_UPDATED_AT_MS));
        new.filter(|milliseconds| new != old && *milliseconds >= 0)
            .and_then(|milliseconds| Timestamp::from_millisecond(milliseconds).ok())
            .unwrap_or(self.written_at)
    }
}

/// Returns a change with its payload left out, if it can have one.
fn omitted(difference: Difference) -> Difference {
    let payload = match difference.kind {
        ChangeKind::Purged => ChangePayload::None,
        _ => ChangePayload::Omitted,
    };
    Difference { payload, ..difference }
}

/// What the stream record of a meta item says about the nameservice record before and after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Identities {
    /// Which record.
    pub address: Address,
    /// What it was; `None` if there was none.
    pub before: Option<Identity>,
    /// What it is; `None` if there no longer is one.
    pub after: Option<Identity>,
}

/// What a record is, and when it was created.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// What it is.
    pub identity: Identity,
    /// When it was created, in whole seconds; `None` if its writer stored no time.
    pub created_at: Option<Timestamp>,
}

fn identity(meta: &Item) -> Option<Identity> {
    Some(Identity { kind: items::kind(meta)?, source_type: items::text(meta, ATTR_SOURCE_TYPE).map(str::to_owned) })
}

impl Store {
    /// Returns what the records of these addresses are, by one consistent batch read of the meta items for every
    /// hundred. Addresses without a record are left out.
    pub async fn identities(&self, addresses: &[Address]) -> Result<HashMap<Address, Known>> {
        let mut known = HashMap::new();
        for batch in addresses.chunks(READ_BATCH) {
            let found = self.get_all("read what records are", batch.iter().map(Key::meta).collect()).await?;
            known.extend(found.iter().filter_map(|meta| {
                let created_at = items::integer(meta, ATTR_CREATED_AT);
                let created_at = created_at.and_then(|seconds| Timestamp::from_second(seconds).ok());
                Some((Address::stored(items::pk(meta)), Known { identity: identity(meta)?, created_at }))
            }));
        }
        Ok(known)
    }
}

/// Returns the state that an image shows; `None` if it is empty, or a meta without a kind.
fn state(part: ChangedPart, item: &Item) -> Option<PartState<Value>> {
    if item.is_empty() {
        return None;
    }
    let retracted = items::flag(item, ATTR_RETRACTED);
    let (watermark, content) = match part {
        ChangedPart::Meta => {
            // A meta without a kind is not a record.
            items::kind(item)?;
            (0, Some(items::attributes(item).change_payload(retracted)))
        }
        ChangedPart::Concern(ConcernKind::Head) => {
            let head = items::head(item);
            (head.v, head.change_payload())
        }
        ChangedPart::Concern(ConcernKind::Index) => {
            let index = items::index(item);
            (index.v, index.payload.map(|root| root.change_payload(index.v)))
        }
        ChangedPart::Concern(ConcernKind::Status) => {
            let status = items::status(item);
            (status.v, status.payload.and_then(|payload| serde_json::to_value(payload).ok()))
        }
        ChangedPart::Concern(ConcernKind::Config) => {
            let config = items::config(item);
            (config.v, config.payload)
        }
    };
    Some(PartState { watermark, content, retracted })
}

/// Rejects attributes of the wrong type. Reads of records treat those as absent, but a feed that did so would lose
/// changes silently.
fn check_types(part: ChangedPart, item: &Item) -> Result<(), Unreadable> {
    let sk = match part {
        ChangedPart::Meta => SK_META,
        ChangedPart::Concern(concern) => sk_of(concern),
    };
    for Attribute { name, shape, .. } in attributes_of(sk).filter(|attribute| attribute.strict) {
        if items::present(item, name).is_some_and(|value| !shape.is(value)) {
            return Err(Unreadable::WrongType { attribute: name, expected: shape.in_image() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(attributes: Value) -> Item {
        let Value::Object(members) = attributes else { return Item::new() };
        members.into_iter().map(|(name, value)| (name, items::attribute(&value))).collect()
    }

    #[test]
    fn the_call_of_a_record_is_the_one_whose_id_is_new_in_it() {
        let call = |old, new| record("head", old, new).call().map(|id| id.as_str().to_owned());
        let id = |id: &str| json!({"request_id": id});
        assert_eq!(call(json!({}), id("a")).as_deref(), Some("a"));
        assert_eq!(call(id("a"), id("b")).as_deref(), Some("b"));
        // Another program has written the item, and left our id in it.
        assert_eq!(call(id("a"), id("a")), None);
        assert_eq!(call(id("a"), json!({})), None);
    }

    fn record(sk: &str, old: Value, new: Value) -> StreamRecord {
        StreamRecord {
            event_id: "e".into(),
            sequence_number: "1".into(),
            written_at: Timestamp::from_second(1_000).unwrap(),
            keys: item(json!({"pk": "a:main", "sk": sk})),
            old: item(old),
            new: item(new),
        }
    }

    fn kind(sk: &str, old: Value, new: Value) -> Option<(ChangeKind, i64, Option<i64>)> {
        let difference = record(sk, old, new).difference().unwrap()?;
        Some((difference.kind, difference.watermark, difference.previous))
    }

    const NOTHING: Value = Value::Null;

    #[test]
    fn a_change_is_a_difference_in_what_a_part_says() {
        use ChangeKind::*;
        let head = |t: i64, id: &str| json!({"commit_t": t, "commit_id": id});
        let index = |rev: i64, rev_id: &str| json!({"index_t": 1, "index_id": "i", "rev": rev, "rev_id": rev_id});
        let meta = |retracted: bool| json!({"kind": "ledger", "retracted": retracted});
        for (sk, old, new, expected) in [
            ("head", NOTHING, head(1, "a"), Some((Created, 1, None))),
            ("head", NOTHING, json!({"commit_t": 0}), None),
            ("head", json!({"commit_t": 0, "commit_id": null}), head(1, "a"), Some((Created, 1, Some(0)))),
            ("head", head(1, "a"), head(2, "b"), Some((Updated, 2, Some(1)))),
            ("head", head(2, "b"), head(1, "a"), Some((Reset, 1, Some(2)))),
            ("head", head(2, "b"), head(2, "a"), Some((Reset, 2, Some(2)))),
            ("head", head(2, "b"), json!({"commit_t": 0}), Some((Reset, 0, Some(2)))),
            ("head", head(2, "b"), NOTHING, Some((Purged, 0, Some(2)))),
            ("head", json!({"commit_t": 0}), NOTHING, None),
            ("head", head(2, "b"), head(2, "b"), None),
            ("index", index(0, "i"), index(1, "i"), Some((Updated, 1, Some(1)))),
            ("index", index(0, "x"), index(1, "x"), None),
            (
                "index",
                json!({"index_t": 1, "index_id": "i", "graphs": {}}),
                json!({"index_t": 1, "index_id": "i", "graphs": {"g": {"id": "x", "t": 1}}}),
                Some((Updated, 1, Some(1))),
            ),
            ("status", NOTHING, json!({"status": "ready", "status_v": 1}), Some((Created, 1, None))),
            (
                "status",
                json!({"status": "ready", "status_v": 1}),
                json!({"status": "retracted", "status_v": 2, "retracted": true}),
                Some((Retracted, 2, Some(1))),
            ),
            (
                "config",
                json!({"config_v": 1, "config_json": "{}", "request_id": "a"}),
                json!({"config_v": 1, "config_json": "{}", "request_id": "b", "updated_at_ms": 5}),
                None,
            ),
            ("meta", NOTHING, meta(false), Some((Created, 0, None))),
            ("meta", json!({"retracted": false}), meta(false), Some((Created, 0, None))),
            ("meta", meta(false), json!({"kind": "ledger", "retracted": false, "branches": 3, "dependents": 1}), None),
            ("meta", NOTHING, meta(true), Some((Created, 0, None))),
            ("config", NOTHING, json!({"retracted": true}), Some((Retracted, 0, None))),
            ("config", json!({"retracted": true}), json!({"schema": 2}), Some((Restored, 0, Some(0)))),
            (
                "status",
                NOTHING,
                json!({"status": "retracted", "status_v": 2, "retracted": true}),
                Some((Retracted, 2, None)),
            ),
            ("meta", meta(false), meta(true), Some((Retracted, 0, None))),
            ("meta", meta(true), meta(false), Some((Restored, 0, None))),
            ("meta", meta(true), NOTHING, Some((Purged, 0, None))),
            ("meta", NOTHING, json!({"retracted": true}), None),
            ("commit#00000000000000000001", NOTHING, json!({"commit_t": 1}), None),
            ("backref#b:main", NOTHING, json!({"dependent": "b:main"}), None),
        ] {
            assert_eq!(kind(sk, old.clone(), new.clone()), expected, "{sk}: {old} -> {new}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_and_a_null_is_nothing() {
        let wrong = record("head", NOTHING, json!({"commit_t": "one"})).difference().unwrap_err();
        assert_eq!(wrong.to_string(), "`commit_t` is not of type N (i64)");
        let mut keyless = record("head", NOTHING, NOTHING);
        keyless.keys.remove("sk");
        assert_eq!(keyless.difference().unwrap_err(), Unreadable::NoKey("sk"));
        assert_eq!(kind("head", NOTHING, json!({"commit_t": null, "commit_id": null})), None);
    }

    #[test]
    fn what_cannot_be_read_is_a_change_without_payload_if_reads_show_one() {
        use ChangeKind::*;
        let head = |t: Value, id: Value| json!({"commit_t": t, "commit_id": id});
        let meta = json!({"kind": "ledger", "retracted": true});
        for (sk, old, new, expected) in [
            ("head", head(2.into(), "a".into()), head("three".into(), "b".into()), Some((Reset, 0, Some(2)))),
            ("head", head(2.into(), "a".into()), head(3.into(), 5.into()), Some((Updated, 3, Some(2)))),
            ("head", NOTHING, head("one".into(), NOTHING), None),
            ("status", json!({"status_v": 1}), json!({"status_v": 2, "status": 5}), Some((Updated, 2, Some(1)))),
            ("meta", meta.clone(), json!({"kind": "ledger", "retracted": "true"}), Some((Restored, 0, None))),
            ("meta", NOTHING, json!({"kind": 5}), None),
            ("commit#00000000000000000001", NOTHING, json!({"commit_t": "one"}), None),
        ] {
            let shown = record(sk, old.clone(), new.clone()).without_payload().map(|difference| {
                assert_eq!(difference.payload, ChangePayload::Omitted);
                (difference.kind, difference.watermark, difference.previous)
            });
            assert_eq!(shown, expected, "{sk}: {old} -> {new}");
        }
        let gone = record("meta", meta, NOTHING).without_payload().unwrap();
        assert_eq!((gone.kind, gone.payload), (Purged, ChangePayload::None));
        let mut keyless = record("head", NOTHING, head(1.into(), "a".into()));
        keyless.keys.remove("pk");
        assert_eq!((keyless.without_payload(), keyless.unread()), (None, None));
    }

    #[test]
    fn what_is_not_read_is_a_change_whatever_was_written() {
        use ChangeKind::*;
        let status = |v: i64, text: &str| json!({"status_v": v, "status": text, "status_meta": "{"});
        let config = |v: i64| json!({"config_v": v, "config_json": "no JSON"});
        for (sk, old, new, expected) in [
            ("status", NOTHING, status(1, "a"), Some((Created, 1, None))),
            ("status", status(1, "a"), status(2, "b"), Some((Updated, 2, Some(1)))),
            ("status", status(2, "a"), status(2, "a"), Some((Updated, 2, Some(2)))),
            ("config", config(2), config(1), Some((Reset, 1, Some(2)))),
            ("config", config(1), json!({"config_v": 1, "retracted": true}), Some((Retracted, 1, Some(1)))),
            ("config", config(1), NOTHING, Some((Purged, 0, Some(1)))),
            ("meta", NOTHING, json!({"kind": "ledger"}), Some((Created, 0, None))),
            ("commit#00000000000000000001", NOTHING, json!({"commit_t": 1}), None),
        ] {
            let shown = record(sk, old.clone(), new.clone()).unread().map(|difference| {
                assert_eq!(difference.payload == ChangePayload::Omitted, difference.kind != Purged);
                (difference.kind, difference.watermark, difference.previous)
            });
            assert_eq!(shown, expected, "{sk}: {old} -> {new}");
        }
    }

    #[test]
    fn payloads_are_redacted_and_large_ones_left_out() {
        let config = |json: Value| json!({"config_v": 1, "config_json": json.to_string()});
        let payload = |json| record("config", NOTHING, config(json)).difference().unwrap().unwrap().payload;
        assert_eq!(payload(json!({"apiKey": "x"})), ChangePayload::Value(json!({"apiKey": "[redacted]"})));
        assert_eq!(
            payload(json!({"a": "x".repeat(nameservice_model::MAX_CHANGE_PAYLOAD_BYTES)})),
            ChangePayload::Omitted
        );
    }

    #[test]
    fn a_change_has_the_time_of_its_writer_or_else_of_the_stream() {
        let at = |old, new| record("head", old, new).difference().unwrap().unwrap().occurred_at.as_millisecond();
        let head = |t: i64, ms: i64| json!({"commit_t": t, "commit_id": "a", "updated_at_ms": ms});
        assert_eq!(at(head(1, 5), head(2, 7)), 7);
        assert_eq!(at(head(1, 5), head(2, 5)), 1_000_000);
        assert_eq!(at(head(1, 5), NOTHING), 1_000_000);
    }
}
