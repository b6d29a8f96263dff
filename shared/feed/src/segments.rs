//! Segments: the changes of one transaction as one row, under the position of the last of them.
//!
//! So a Query for what comes after a position begins with the segment that holds the next change, wherever in the
//! segment that is.

use jiff::Timestamp;
use nameservice_model::{Address, Change, ChangeKind, ChangePayload, ChangedPart, Identity, Result};
use nameservice_views::{RowKey, SaveMode, Write};
use serde::{Deserialize, Deserializer, Serialize};
use serde_bytes::ByteBuf;
use serde_json::value::RawValue;

use crate::{
    payloads::{self, Held, Unread},
    rows::{self, FEED_ID, sort_key},
};

/// The largest content of a segment, in bytes. An item has at most 400 KB.
pub(crate) const MAX_BYTES: usize = 300 * 1024;
/// The format of a segment's content: gzip of the JSON of [`Content`].
const FORMAT: u8 = 1;

/// The changes of one transaction.
#[derive(Serialize, Deserialize)]
pub(crate) struct Segment {
    id: String,
    /// The position of its last change, as 20 digits.
    position: String,
    /// The position of its first change.
    pub(crate) first: u64,
    recorded_at: i64,
    /// 0 in a row of the first form, which holds one change in attributes of its own.
    #[serde(default)]
    format: u8,
    #[serde(default)]
    changes: ByteBuf,
    /// Set by the view when the row is written.
    #[serde(default, skip_serializing)]
    pub(crate) ttl: i64,
}

/// The content of a segment, before it is packed.
#[derive(Serialize, Deserialize)]
pub(crate) struct Content {
    /// The lowest and the highest sequence number of its stream records. All of them are from one shard.
    sequence: [String; 2],
    changes: Vec<Packed>,
}

/// A change of a segment. Some numbers are stored as differences to keep them short: compressed, 98 changes take little
/// more than the ids in their payloads.
#[derive(Serialize, Deserialize)]
struct Packed {
    address: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_type: Option<String>,
    concern: String,
    change: String,
    watermark: i64,
    /// The watermark less the previous one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grown: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    payload_omitted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_at: Option<String>,
    /// How long before `recorded_at` it was written, in milliseconds.
    age: i64,
}

/// Reads a member that is `null` as a value, and not as a missing one.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(deserializer).map(Some)
}

impl Content {
    /// Returns the compressed changes, whose stream records have these sequence numbers.
    pub(crate) fn pack<'a>(
        changes: impl IntoIterator<Item = (&'a Change, &'a Held)>,
        sequence: [String; 2],
    ) -> Result<Vec<u8>> {
        let changes = changes.into_iter().map(|(change, payload)| Packed::of(change, payload)).collect();
        payloads::pack(&serde_json::to_vec(&Self { sequence, changes }).map_err(rows::corrupt)?)
    }
}

impl Packed {
    fn of(change: &Change, payload: &Held) -> Self {
        let (payload, payload_omitted, payload_at) = payload.attributes();
        Self {
            address: change.address.as_str().to_owned(),
            kind: change.identity.kind.as_str().to_owned(),
            source_type: change.identity.source_type.clone(),
            concern: change.part.as_str().to_owned(),
            change: change.kind.as_str().to_owned(),
            watermark: change.watermark,
            grown: change.previous.map(|previous| change.watermark.wrapping_sub(previous)),
            payload: payload.map(RawValue::to_owned),
            payload_omitted,
            payload_at: payload_at.map(str::to_owned),
            age: change.recorded_at.as_millisecond() - change.occurred_at.as_millisecond(),
        }
    }

    fn identity(self) -> Result<(Address, Identity)> {
        let identity = Identity { kind: rows::kind_of(&self.kind)?, source_type: self.source_type };
        Ok((Address::stored(self.address), identity))
    }

    fn unread(self, position: u64, recorded_at: Timestamp) -> Result<Unread> {
        let change = Change {
            position,
            identity: Identity { kind: rows::kind_of(&self.kind)?, source_type: self.source_type },
            address: Address::stored(self.address),
            part: self.concern.parse::<ChangedPart>().map_err(|_| rows::unknown("concern", &self.concern))?,
            kind: self.change.parse::<ChangeKind>().map_err(|_| rows::unknown("change", &self.change))?,
            watermark: self.watermark,
            previous: self.grown.map(|grown| self.watermark.wrapping_sub(grown)),
            payload: ChangePayload::None,
            occurred_at: rows::moment(recorded_at.as_millisecond().saturating_sub(self.age))?,
            recorded_at,
        };
        Ok(Unread { change, payload: Held::stored(self.payload, self.payload_omitted, self.payload_at) })
    }
}

impl Segment {
    /// Returns the key of the segment that ends at a position.
    pub(crate) fn key(last: u64) -> RowKey {
        RowKey::sorted(FEED_ID, sort_key(last))
    }

    /// Returns the write of the changes from `first` to `last`, packed.
    pub(crate) fn write(first: u64, last: u64, packed: Vec<u8>, recorded_at: Timestamp, until: i64) -> Result<Write> {
        let row = Self {
            id: FEED_ID.to_owned(),
            position: sort_key(last),
            first,
            recorded_at: recorded_at.as_millisecond(),
            format: FORMAT,
            changes: ByteBuf::from(packed),
            ttl: 0,
        };
        Ok(Write::save(&row, SaveMode::Init, Some(until))?)
    }

    /// Returns whether it is a row of the first form, which only a feed that began in that form has.
    pub(crate) fn is_former(&self) -> bool {
        self.format == 0
    }

    /// Returns the position of its last change.
    pub(crate) fn last(&self) -> Result<u64> {
        self.position.parse().map_err(rows::corrupt)
    }

    /// Returns its content.
    fn content(&self) -> Result<Content> {
        if self.format != FORMAT {
            return Err(rows::corrupt(format!(
                "the segment that ends at {} has the format {}, which this release cannot read: upgrade it",
                self.position, self.format
            )));
        }
        serde_json::from_slice(&payloads::unpack(&self.changes)?).map_err(rows::corrupt)
    }

    /// Returns its changes, with their positions.
    pub(crate) fn changes(&self) -> Result<impl Iterator<Item = Result<Unread>> + use<>> {
        let (packed, recorded_at) = (self.packed()?.changes, rows::moment(self.recorded_at)?);
        Ok((self.first..).zip(packed).map(move |(at, packed)| packed.unread(at, recorded_at)))
    }

    /// Returns the records that it has changes of, and what they were, in the order of the changes.
    pub(crate) fn identities(&self) -> Result<Vec<(Address, Identity)>> {
        self.packed()?.changes.into_iter().map(Packed::identity).collect()
    }

    /// Returns the lowest and the highest sequence number of its stream records, if the change at a position is one of this record.
    pub(crate) fn sequence_of(&self, position: u64, address: &Address) -> Result<Option<[String; 2]>> {
        let Content { sequence, changes } = self.packed()?;
        let is_of_record = |(at, packed): (u64, &Packed)| at == position && packed.address == address.as_str();
        Ok((self.first..).zip(&changes).any(is_of_record).then_some(sequence))
    }

    /// Returns its content, which has as many changes as its positions say.
    fn packed(&self) -> Result<Content> {
        let (content, last) = (self.content()?, self.last()?);
        let held = content.changes.len() as u64;
        if self.first.checked_add(held) != last.checked_add(1) {
            return Err(rows::corrupt(format!("the segment from {} to {last} holds {held} changes", self.first)));
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use nameservice_model::{ConcernKind, RecordKind};
    use serde_json::{Value, json};

    use super::*;

    fn change(position: u64, payload: ChangePayload) -> Change {
        Change {
            position,
            identity: Identity { kind: RecordKind::GraphSource, source_type: Some("f:Bm25Index".into()) },
            address: Address::stored("s:main"),
            part: ChangedPart::Concern(ConcernKind::Config),
            kind: ChangeKind::Updated,
            watermark: i64::MAX,
            previous: Some(i64::MIN),
            payload,
            occurred_at: Timestamp::from_millisecond(1_700_000_000_123).unwrap(),
            recorded_at: Timestamp::from_millisecond(1_700_000_000_100).unwrap(),
        }
    }

    fn unpacked(segment: &Segment) -> Result<Vec<Change>> {
        let read = |Unread { change, payload }| {
            let payload = match payload {
                Held::None => ChangePayload::None,
                Held::Json(json) => ChangePayload::Value(serde_json::from_str(json.get()).unwrap()),
                Held::At(name) => ChangePayload::Value(json!({ "at": name })),
                Held::Omitted => ChangePayload::Omitted,
            };
            Change { payload, ..change }
        };
        segment.changes()?.map(|change| change.map(read)).collect()
    }

    fn segment(changes: &[Change]) -> Segment {
        let held: Vec<Held> = changes.iter().map(|change| Held::of(&change.payload, "n", 5).unwrap().0).collect();
        let packed = Content::pack(changes.iter().zip(&held), ["1".into(), "2".into()]).unwrap();
        let (first, last) = (changes[0].position, changes[changes.len() - 1].position);
        let recorded_at = changes[0].recorded_at.as_millisecond();
        let (id, position, changes) = (FEED_ID.to_owned(), sort_key(last), ByteBuf::from(packed));
        Segment { id, position, first, recorded_at, format: FORMAT, changes, ttl: 0 }
    }

    #[test]
    fn changes_come_out_of_a_segment_as_they_went_in() {
        let payloads = [
            ChangePayload::None,
            ChangePayload::Omitted,
            ChangePayload::Value(Value::Null),
            ChangePayload::Value(json!({ "a": [1.5, null, "ü\u{0}\u{ffff}", ""], "n": u64::MAX })),
        ];
        let changes: Vec<Change> = (41..).zip(payloads).map(|(at, payload)| change(at, payload)).collect();
        assert_eq!(unpacked(&segment(&changes)).unwrap(), changes);
        let large = [change(1, ChangePayload::Value(json!("x".repeat(2_000))))];
        assert_eq!(unpacked(&segment(&large)).unwrap()[0].payload, ChangePayload::Value(json!({ "at": "n#5" })));
    }

    #[test]
    fn a_segment_that_holds_more_or_less_than_it_says_or_is_of_another_format_is_an_error() {
        let whole = || segment(&[change(1, ChangePayload::None), change(2, ChangePayload::None)]);
        assert_eq!(unpacked(&whole()).unwrap().len(), 2);
        assert!(unpacked(&Segment { first: 2, ..whole() }).is_err());
        assert!(unpacked(&Segment { first: u64::MAX, ..whole() }).is_err());
        let error = unpacked(&Segment { format: 2, ..whole() }).unwrap_err();
        assert!(nameservice_model::chain(&error).contains("upgrade"), "{error:?}");
        let cut = whole().changes[..20].to_vec();
        assert!(unpacked(&Segment { changes: ByteBuf::from(cut), ..whole() }).is_err());
    }
}
