//! What has changed between two states of a record.
//!
//! A change is any difference in id, watermark, revision, named graphs, payload, lease or the marks of a retraction and
//! of a protection. Counters, remembered calls and write times are not part of it.

use jiff::Timestamp;
use nameservice_model::{Change, ChangeKind, ChangePayload, ChangedPart, ConcernKind, Identity, PartState};
use serde_json::Value;

use super::record::{AttributeFields, LeaseItem, Record, Root};

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
        let [old, new] = [before, after].map(|record| record.and_then(|record| state(part, record)));
        let Some(kind) = ChangeKind::between(part, old.as_ref(), new.as_ref()) else { continue };
        position += 1;
        changes.push(Change {
            position,
            address: record.model_address(),
            identity: Identity { kind: record.kind, source_type: record.source_type().map(str::to_owned) },
            part,
            kind,
            watermark: new.map_or(0, |state| state.watermark),
            previous: old.filter(|_| part != ChangedPart::Meta).map(|state| state.watermark),
            payload: after.and_then(|after| payload(part, after)).map_or(ChangePayload::None, ChangePayload::of),
            occurred_at,
            recorded_at,
        });
    }
}

/// What a part contains besides its watermark.
#[derive(PartialEq)]
enum Content<'a> {
    Meta(AttributeFields<'a>),
    Head(&'a str),
    Index(&'a Root),
    Status { state: &'a str, meta: Option<&'a str>, lease: Option<&'a LeaseItem> },
    Config(&'a str),
}

/// Returns the state of a part; `None` if the record has no such part.
fn state(part: ChangedPart, record: &Record) -> Option<PartState<Content<'_>>> {
    let (watermark, content) = match part {
        ChangedPart::Meta => (0, Some(Content::Meta(record.attribute_fields()))),
        ChangedPart::Concern(ConcernKind::Head) => {
            let head = record.head.as_ref()?;
            (head.t, head.id.as_deref().map(Content::Head))
        }
        ChangedPart::Concern(ConcernKind::Index) => (record.index.t, record.index.root.as_deref().map(Content::Index)),
        ChangedPart::Concern(ConcernKind::Status) => {
            let status = &record.status;
            let (meta, lease) = (status.meta.as_deref(), status.lease.as_deref());
            (status.v, Some(Content::Status { state: status.state(), meta, lease }))
        }
        ChangedPart::Concern(ConcernKind::Config) => {
            (record.config.v, record.config.payload.as_deref().map(Content::Config))
        }
    };
    Some(PartState { watermark, content, retracted: record.retracted })
}

fn payload(part: ChangedPart, record: &Record) -> Option<Value> {
    match part {
        ChangedPart::Meta => Some(record.attributes().change_payload(record.retracted)),
        ChangedPart::Concern(ConcernKind::Head) => record.head.as_ref()?.value().change_payload(),
        ChangedPart::Concern(ConcernKind::Index) => {
            record.index.root.as_deref().map(|root| root.value().change_payload(record.index.t))
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
