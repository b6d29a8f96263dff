//! What has changed between two states of a record.
//!
//! A change is any difference in id, watermark, revision, named graphs, payload, lease or the marks of a retraction and
//! of a protection. Counters, remembered calls and write times are not part of it.

use jiff::Timestamp;
use nameservice_model::{Change, ChangeKind, ChangePayload, ChangedPart, ConcernKind, Identity};
use serde_json::{Map, Value, json};

use super::record::{Graph, Record, Root, texts};

/// Appends the changes from one state of a record to another, in the order meta, head, index, status, config, under the
/// positions that follow the given one.
pub(super) fn between(
    before: Option<&Record>,
    after: Option<&Record>,
    (occurred_at, recorded_at): (i64, i64),
    position: u64,
    changes: &mut Vec<Change>,
) {
    let Some(record) = after.or(before) else { return };
    let [occurred_at, recorded_at] =
        [occurred_at, recorded_at].map(|ms| Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH));
    let mut position = position;
    for part in ChangedPart::ALL {
        let Some(kind) = kind_of(part, before, after) else { continue };
        position += 1;
        let watermark = |record: &Record| State::of(part, record).map(|state| state.watermark);
        changes.push(Change {
            position,
            address: record.model_address(),
            identity: Identity { kind: record.kind, source_type: record.source_type().map(str::to_owned) },
            part,
            kind,
            watermark: after.and_then(watermark).unwrap_or(0),
            previous: before.filter(|_| part != ChangedPart::Meta).and_then(watermark),
            payload: after.and_then(|after| payload(part, after)).map_or(ChangePayload::None, ChangePayload::of),
            occurred_at,
            recorded_at,
        });
    }
}

/// How a part has changed; `None` if it has not.
fn kind_of(part: ChangedPart, before: Option<&Record>, after: Option<&Record>) -> Option<ChangeKind> {
    let [old, new] = [before, after].map(|record| record.and_then(|record| State::of(part, record)));
    let is_born = |state: &Option<State>| state.as_ref().is_some_and(|state| state.is_born);
    match (before, &old, after, &new) {
        (_, _, _, None) => is_born(&old).then_some(ChangeKind::Purged),
        (_, None, _, Some(_)) => is_born(&new).then_some(ChangeKind::Created),
        (Some(before), Some(_), Some(after), Some(_)) if before.retracted != after.retracted => {
            Some(if after.retracted { ChangeKind::Retracted } else { ChangeKind::Restored })
        }
        (Some(_), Some(state), _, Some(_)) if !state.is_born => is_born(&new).then_some(ChangeKind::Created),
        (Some(before), Some(old), Some(after), Some(new)) => {
            let same_place = old.watermark == new.watermark;
            if same_place && is_same(part, before, after) {
                None
            } else if new.watermark < old.watermark || (same_place && part == ChangedPart::Concern(ConcernKind::Head)) {
                Some(ChangeKind::Reset)
            } else {
                Some(ChangeKind::Updated)
            }
        }
        _ => None,
    }
}

/// The state of a part, as far as it determines the kind of a change.
struct State {
    watermark: i64,
    is_born: bool,
}

impl State {
    /// Returns the state of a part; `None` if the record has no such part.
    fn of(part: ChangedPart, record: &Record) -> Option<Self> {
        let (watermark, has_payload) = match part {
            ChangedPart::Meta => (0, true),
            ChangedPart::Concern(ConcernKind::Head) => {
                let head = record.head.as_ref()?;
                (head.t, head.id.is_some())
            }
            ChangedPart::Concern(ConcernKind::Index) => (record.index.t, record.index.root.is_some()),
            ChangedPart::Concern(ConcernKind::Status) => (record.status.v, true),
            ChangedPart::Concern(ConcernKind::Config) => (record.config.v, record.config.payload.is_some()),
        };
        Some(Self { watermark, is_born: watermark != 0 || has_payload })
    }
}

/// Returns whether two states with the same watermark are equal.
fn is_same(part: ChangedPart, a: &Record, b: &Record) -> bool {
    match part {
        ChangedPart::Meta => a.origin == b.origin && a.protected == b.protected,
        ChangedPart::Concern(ConcernKind::Head) => {
            let id = |record: &Record| record.head.as_ref().and_then(|head| head.id.clone());
            id(a) == id(b)
        }
        ChangedPart::Concern(ConcernKind::Index) => a.index.root == b.index.root,
        ChangedPart::Concern(ConcernKind::Status) => {
            let (a, b) = (&a.status, &b.status);
            a.state == b.state && a.meta == b.meta && a.lease == b.lease
        }
        ChangedPart::Concern(ConcernKind::Config) => a.config.payload == b.config.payload,
    }
}

fn payload(part: ChangedPart, record: &Record) -> Option<Value> {
    match part {
        ChangedPart::Meta => Some(meta_payload(record)),
        ChangedPart::Concern(ConcernKind::Head) => {
            let head = record.head.as_ref()?;
            head.id.as_deref().map(|id| json!({ "id": id, "t": head.t }))
        }
        ChangedPart::Concern(ConcernKind::Index) => {
            record.index.root.as_deref().map(|root| index_payload(record.index.t, root))
        }
        ChangedPart::Concern(ConcernKind::Status) => {
            let payload = record.status.value().payload?;
            let mut members = payload.meta;
            members.insert("state".to_owned(), Value::String(payload.state));
            Some(Value::Object(members))
        }
        ChangedPart::Concern(ConcernKind::Config) => record.config.json(),
    }
}

fn meta_payload(record: &Record) -> Value {
    let mut payload = Map::from_iter([("retracted".to_owned(), Value::Bool(record.retracted))]);
    if record.protected {
        payload.insert("protected".to_owned(), Value::Bool(true));
    }
    if let Some(source_type) = record.source_type() {
        payload.insert("source_type".to_owned(), source_type.into());
        payload.insert("dependencies".to_owned(), texts(record.dependencies()).into());
    }
    if let Some(source) = record.source_branch() {
        payload.insert("source_branch".to_owned(), source.into());
    }
    Value::Object(payload)
}

fn index_payload(t: i64, root: &Root) -> Value {
    let mut payload = json!({ "id": &*root.id, "t": t, "rev": root.rev });
    if !root.graphs.is_empty() {
        let shown = |graph: &Graph| json!({ "id": &*graph.id, "t": graph.t, "rev": graph.rev });
        let graphs = root.graphs.iter().map(|(name, graph)| (name.clone(), graph.as_ref().map_or(Value::Null, shown)));
        payload["graphs"] = Value::Object(graphs.collect());
    }
    payload
}
