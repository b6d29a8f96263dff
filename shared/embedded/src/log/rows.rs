//! The encoding of changes and records in the log's file. [`FORMAT`](crate::directory::FORMAT) is its version: if the
//! encoding changes, so must the version.

use jiff::Timestamp;
use nameservice_model::{Address, Change, ChangeKind, ChangePayload, ChangedPart, ConcernKind, Identity, RecordKind};
use serde::{Deserialize, Serialize};

use crate::state::{Memory, Record};

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
    let row = postcard::from_bytes(body).map_err(|error| unreadable("change", position, &error))?;
    change_of(position, address, row)
}

fn change_of(position: u64, address: &str, row: ChangeRow) -> Result<Change, Unreadable> {
    let decoded = || -> Result<Change, Box<dyn std::error::Error + Send + Sync>> {
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

/// Returns the row of a change: its encoding, its checksum, and that of all changes up to it. Also returns the latter.
pub(crate) fn sealed_change(chain: u32, position: u64, at: i64, address: &str, body: &[u8]) -> (Vec<u8>, u32) {
    let own = sum_of_change(position, at, address, body);
    let chain = chained(chain, own);
    ([body, &own.to_le_bytes(), &chain.to_le_bytes()].concat(), chain)
}

/// Decodes a change if it has the checksum that it was stored with. Also returns the checksum of all changes up to it;
/// `None` if it was stored before there were checksums.
pub(crate) fn checked_change(
    position: u64,
    at: i64,
    address: &str,
    body: &[u8],
) -> Result<(Change, Option<u32>), Unreadable> {
    let (row, rest) = postcard::take_from_bytes(body).map_err(|error| unreadable("change", position, &error))?;
    let change = change_of(position, address, row)?;
    match rest {
        [] => Ok((change, None)),
        [a, b, c, d, e, f, g, h] => {
            let (own, chain) = (u32::from_le_bytes([*a, *b, *c, *d]), u32::from_le_bytes([*e, *f, *g, *h]));
            match sum_of_change(position, at, address, &body[..body.len() - rest.len()]) == own {
                true => Ok((change, Some(chain))),
                false => Err(unreadable("change", position, CHECKSUM)),
            }
        }
        _ => Err(unreadable("change", position, MARKS)),
    }
}

/// Returns the two checksums in the row of a change, whether or not they are right.
pub(crate) fn sums_of(body: &[u8]) -> Option<(u32, u32)> {
    let (_, sums) = body.split_last_chunk::<8>()?;
    let [a, b, c, d, e, f, g, h] = *sums;
    Some((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])))
}

/// Returns the watermark of a part of a record.
pub(crate) fn watermark_of(record: &Record, part: ChangedPart) -> Option<i64> {
    match part {
        ChangedPart::Meta => Some(0),
        ChangedPart::Concern(ConcernKind::Head) => record.head.as_ref().map(|head| head.t),
        ChangedPart::Concern(ConcernKind::Index) => Some(record.index.t),
        ChangedPart::Concern(ConcernKind::Status) => Some(record.status.v),
        ChangedPart::Concern(ConcernKind::Config) => Some(record.config.v),
    }
}

/// Returns whether the last change of a part explains the watermark that the record has; `None` for a part that a change
/// deleted, or that is not there.
pub(crate) fn explains(part: ChangedPart, last: Option<i64>, found: Option<i64>) -> bool {
    // A part that never had data, or lost it in a reset, is at 0.
    last.unwrap_or(0) == found.unwrap_or(0) && (part != ChangedPart::Meta || last.is_some() == found.is_some())
}

/// Returns the checksum of all changes up to one, from that of the changes before it and its own.
pub(crate) fn chained(chain: u32, own: u32) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&chain.to_le_bytes());
    sum.update(&own.to_le_bytes());
    sum.finalize()
}

fn sum_of_change(position: u64, at: i64, address: &str, body: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&position.to_le_bytes());
    sum.update(&at.to_le_bytes());
    sum.update(address.as_bytes());
    sum.update(body);
    sum.finalize()
}

const CHECKSUM: &str = "its checksum is wrong";
const MARKS: &str = "it ends with marks that this version does not know";

/// The marks in the byte that follows a record. Rows that were written before there were checksums end with the record,
/// or with the first mark alone.
const PROTECTED: u8 = 1;
/// A checksum ends the row.
const CHECKED: u8 = 2;
/// The calls that have set or removed the protection follow the byte.
const PROTECTIONS: u8 = 4;

pub(crate) fn encode_record(record: &Record) -> Result<Vec<u8>, Unreadable> {
    let failed = |error| unreadable("record", record.id, &error);
    let mut row = postcard::to_stdvec(record).map_err(failed)?;
    let protections = record.protections.as_ref().map_or(0, |_| PROTECTIONS);
    row.push(CHECKED | protections | if record.protected { PROTECTED } else { 0 });
    if let Some(calls) = &record.protections {
        row = postcard::to_extend(calls, row).map_err(failed)?;
    }
    let sum = sum_of_record(record.id, &row);
    row.extend(sum.to_le_bytes());
    Ok(row)
}

/// Decodes a record. Also returns whether it has a checksum, which is then right.
pub(crate) fn checked_record(id: u64, body: &[u8]) -> Result<(Record, bool), Unreadable> {
    let failed = |error| unreadable("record", id, &error);
    let (mut record, rest): (Record, _) = postcard::take_from_bytes(body).map_err(failed)?;
    let is_checked = match rest {
        [] => false,
        [PROTECTED] => {
            record.protected = true;
            false
        }
        [marks, rest @ ..] if marks & CHECKED != 0 => {
            let (_, sum) = body.split_last_chunk::<4>().ok_or_else(|| unreadable("record", id, MARKS))?;
            if sum_of_record(id, &body[..body.len() - sum.len()]) != u32::from_le_bytes(*sum) {
                return Err(unreadable("record", id, CHECKSUM));
            }
            record.protected = marks & PROTECTED != 0;
            let rest = match marks & PROTECTIONS {
                0 => rest,
                _ => {
                    let (calls, rest) = postcard::take_from_bytes(rest).map_err(failed)?;
                    record.protections = Some(calls);
                    rest
                }
            };
            if marks & !(PROTECTED | CHECKED | PROTECTIONS) != 0 || rest.len() != sum.len() {
                return Err(unreadable("record", id, MARKS));
            }
            true
        }
        _ => return Err(unreadable("record", id, MARKS)),
    };
    match record.id == id {
        true => Ok((record, is_checked)),
        false => Err(unreadable("record", id, &format!("it claims to be record {}", record.id))),
    }
}

fn sum_of_record(id: u64, row: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&id.to_le_bytes());
    sum.update(row);
    sum.finalize()
}

/// Returns the row of what is remembered of an address.
pub(crate) fn encode_memory(address: &str, memory: &Memory) -> Result<Vec<u8>, Unreadable> {
    let mut row = postcard::to_stdvec(memory).map_err(|error| unreadable("memory", 0, &error))?;
    let sum = sum_of_memory(address, &row);
    row.extend(sum.to_le_bytes());
    Ok(row)
}

pub(crate) fn decode_memory(address: &str, body: &[u8]) -> Result<Memory, Unreadable> {
    let failed = |reason: &dyn ToString| Unreadable {
        what: "what is remembered of",
        id: 0,
        reason: format!("`{address}`: {}", reason.to_string()),
    };
    let (row, sum) = body.split_last_chunk::<4>().ok_or_else(|| failed(&"it is too short"))?;
    match sum_of_memory(address, row) == u32::from_le_bytes(*sum) {
        true => postcard::from_bytes(row).map_err(|error| failed(&error)),
        false => Err(failed(&CHECKSUM)),
    }
}

fn sum_of_memory(address: &str, row: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(address.as_bytes());
    sum.update(row);
    sum.finalize()
}

fn unreadable(what: &'static str, id: u64, reason: &(impl ToString + ?Sized)) -> Unreadable {
    Unreadable { what, id, reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use nameservice_model::{Call, RecordKind, Write};

    use super::*;
    use crate::state::Command;

    #[test]
    fn rows_without_a_mark_are_those_of_before_and_unknown_marks_are_not_ignored() {
        let call = Command::new(&Call::fresh(), Write::Restore { address: Address::stored("a:main") }).call;
        let mut record = Record::new("a:main", RecordKind::Ledger, 7, call, 0);
        let plain = postcard::to_stdvec(&record).unwrap();
        assert_eq!(checked_record(7, &plain).unwrap(), (record.clone(), false));
        record.protected = true;
        let marked = [plain.as_slice(), &[PROTECTED]].concat();
        assert_eq!(checked_record(7, &marked).unwrap(), (record.clone(), false));
        for protections in [None, Some(record.index.calls.clone())] {
            for protected in [false, true] {
                (record.protections, record.protected) = (protections.clone(), protected);
                let row = encode_record(&record).unwrap();
                assert_eq!(checked_record(7, &row).unwrap(), (record.clone(), true));
                // Any bit of it.
                for bit in 0..8 * row.len() {
                    let mut damaged = row.clone();
                    damaged[bit / 8] ^= 1 << (bit % 8);
                    let found = checked_record(7, &damaged);
                    assert!(found.as_ref().is_err() || found.as_ref().is_ok_and(|(_, checked)| !checked), "{bit}");
                }
            }
        }
        for marks in [8, 16] {
            let unknown = [plain.as_slice(), &[marks]].concat();
            assert!(checked_record(7, &unknown).unwrap_err().to_string().contains("marks"));
        }
    }
}
