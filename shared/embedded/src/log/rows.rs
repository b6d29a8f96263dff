//! The encoding of changes and records in the log's file. [`FORMAT`](crate::directory::FORMAT) is its version: if the
//! encoding changes, so must the version.

use jiff::Timestamp;
use nameservice_model::{Address, Change, ChangeKind, ChangePayload, ChangedPart, ConcernKind, Identity, RecordKind};
use serde::{Deserialize, Serialize};

use crate::state::Record;

/// The error for a row that this version did not write.
#[derive(Debug, thiserror::Error)]
#[error("{what} {id} cannot be read: {reason}")]
pub(crate) struct Unreadable {
    what: &'static str,
    id: u64,
    reason: String,
}

/// A change, without its position and address.
#[derive(Debug, Serialize, Deserialize)]
struct ChangeRow {
    kind: u8,
    source_type: Option<String>,
    part: u8,
    change: u8,
    watermark: i64,
    previous: Option<i64>,
    payload: PayloadRow,
    occurred_at: i64,
    recorded_at: i64,
}

#[derive(Debug, Serialize, Deserialize)]
enum PayloadRow {
    None,
    /// JSON text.
    Value(String),
    Omitted,
}

/// The codes are indexes into these lists: new names must be appended.
const KINDS: [RecordKind; 2] = [RecordKind::Ledger, RecordKind::GraphSource];
const PARTS: [ChangedPart; 5] = [
    ChangedPart::Meta,
    ChangedPart::Concern(ConcernKind::Head),
    ChangedPart::Concern(ConcernKind::Index),
    ChangedPart::Concern(ConcernKind::Status),
    ChangedPart::Concern(ConcernKind::Config),
];
const CHANGES: [ChangeKind; 6] = [
    ChangeKind::Created,
    ChangeKind::Updated,
    ChangeKind::Reset,
    ChangeKind::Retracted,
    ChangeKind::Restored,
    ChangeKind::Purged,
];

fn code<T: PartialEq>(list: &[T], value: &T) -> u8 {
    list.iter().position(|known| known == value).and_then(|at| u8::try_from(at).ok()).unwrap_or(u8::MAX)
}

fn coded<T: Copy>(list: &[T], code: u8) -> Result<T, String> {
    list.get(usize::from(code)).copied().ok_or_else(|| format!("unknown code {code}"))
}

pub(crate) fn encode_change(change: &Change) -> Result<Vec<u8>, Unreadable> {
    let row = ChangeRow {
        kind: code(&KINDS, &change.identity.kind),
        source_type: change.identity.source_type.clone(),
        part: code(&PARTS, &change.part),
        change: code(&CHANGES, &change.kind),
        watermark: change.watermark,
        previous: change.previous,
        payload: match &change.payload {
            ChangePayload::None => PayloadRow::None,
            ChangePayload::Value(value) => PayloadRow::Value(value.to_string()),
            _ => PayloadRow::Omitted,
        },
        occurred_at: change.occurred_at.as_millisecond(),
        recorded_at: change.recorded_at.as_millisecond(),
    };
    postcard::to_stdvec(&row).map_err(|error| unreadable("change", change.position, &error))
}

pub(crate) fn decode_change(position: u64, address: &str, body: &[u8]) -> Result<Change, Unreadable> {
    let decoded = || -> Result<Change, Box<dyn std::error::Error + Send + Sync>> {
        let row: ChangeRow = postcard::from_bytes(body)?;
        Ok(Change {
            position,
            address: Address::stored(address),
            identity: Identity { kind: coded(&KINDS, row.kind)?, source_type: row.source_type },
            part: coded(&PARTS, row.part)?,
            kind: coded(&CHANGES, row.change)?,
            watermark: row.watermark,
            previous: row.previous,
            payload: match row.payload {
                PayloadRow::None => ChangePayload::None,
                PayloadRow::Value(text) => ChangePayload::Value(serde_json::from_str(&text)?),
                PayloadRow::Omitted => ChangePayload::Omitted,
            },
            occurred_at: Timestamp::from_millisecond(row.occurred_at)?,
            recorded_at: Timestamp::from_millisecond(row.recorded_at)?,
        })
    };
    decoded().map_err(|error| unreadable("change", position, &*error))
}

/// The byte that follows the record in the row of a protected one. Other rows end with the record, as they did before
/// protection existed.
const PROTECTED: u8 = 1;

pub(crate) fn encode_record(record: &Record) -> Result<Vec<u8>, Unreadable> {
    let mut row = postcard::to_stdvec(record).map_err(|error| unreadable("record", record.id, &error))?;
    if record.protected {
        row.push(PROTECTED);
    }
    Ok(row)
}

pub(crate) fn decode_record(id: u64, body: &[u8]) -> Result<Record, Unreadable> {
    let (mut record, rest): (Record, _) =
        postcard::take_from_bytes(body).map_err(|error| unreadable("record", id, &error))?;
    record.protected = match rest {
        [] => false,
        [PROTECTED] => true,
        _ => return Err(unreadable("record", id, "it ends with marks that this version does not know")),
    };
    match record.id == id {
        true => Ok(record),
        false => Err(unreadable("record", id, &format!("it says that it is record {}", record.id))),
    }
}

fn unreadable(what: &'static str, id: u64, reason: &(impl ToString + ?Sized)) -> Unreadable {
    Unreadable { what, id, reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use nameservice_model::{Call, RecordKind};

    use super::*;
    use crate::state::Command;

    #[test]
    fn rows_without_a_mark_are_those_of_before_and_unknown_marks_are_not_ignored() {
        let call =
            Command::new(&Call::fresh(), crate::state::Action::Restore { address: Address::stored("a:main") }).call;
        let mut record = Record::new("a:main", RecordKind::Ledger, 7, call, 0);
        let plain = encode_record(&record).unwrap();
        assert_eq!(plain, postcard::to_stdvec(&record).unwrap());
        assert_eq!(decode_record(7, &plain).unwrap(), record);
        record.protected = true;
        let marked = encode_record(&record).unwrap();
        assert_eq!(marked.len(), plain.len() + 1);
        assert_eq!(decode_record(7, &marked).unwrap(), record);
        let unknown = [plain.as_slice(), &[2]].concat();
        assert!(decode_record(7, &unknown).unwrap_err().to_string().contains("marks"));
    }
}
