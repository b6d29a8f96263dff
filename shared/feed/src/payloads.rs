//! Payloads of changes, as segments and histories hold them. A large one is stored once, in a row of its own to which both refer.

use std::{
    collections::VecDeque,
    io::{Read as _, Write as _},
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use nameservice_model::{Change, ChangePayload, Result, RunMemory};
use nameservice_views::RowKey;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    Feed,
    rows::{self, ALONE},
};

/// The largest payload that segments and histories hold themselves, in bytes of JSON: with it, a row of a history usually has less than
/// 1 KB. In the transaction each KB of segment and history takes two write units; in a row of its own it takes one.
pub(crate) const MAX_HELD_BYTES: usize = 768;
/// How many rows are read together. If they take too much memory, the last of them are read again with the next page.
const READ_TOGETHER: usize = 25;
const DAY: i64 = 24 * 3600;

/// A payload as a change in a segment or a history holds it.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    /// There is none.
    None,
    /// This JSON.
    Json(Box<RawValue>),
    /// It is in the row of this name. Rows of changes say that it is omitted, too: that is what releases read that do not know such rows.
    At(String),
    /// It is left out.
    Omitted,
}

/// The row of a large payload.
#[derive(Serialize, Deserialize)]
pub(crate) struct Row {
    id: String,
    position: String,
    /// gzip of its JSON.
    payload: ByteBuf,
}

impl Held {
    /// Returns how a payload is held, and its row if it is large. `stream_record` is a name of the stream record; `until` is when the
    /// row expires, in epoch seconds.
    pub(crate) fn of(payload: &ChangePayload, stream_record: &str, until: i64) -> Result<(Self, Option<Row>)> {
        let json = match payload {
            ChangePayload::None => return Ok((Self::None, None)),
            ChangePayload::Omitted => return Ok((Self::Omitted, None)),
            ChangePayload::Value(value) => to_raw_value(value).map_err(rows::corrupt)?,
        };
        if json.get().len() <= MAX_HELD_BYTES {
            return Ok((Self::Json(json), None));
        }
        // Of all rows of a stream record, a change refers to the one that was written for it: none expires before its changes do.
        let name = format!("{stream_record}#{until}");
        let row =
            Row { id: id(&name), position: ALONE.to_owned(), payload: ByteBuf::from(pack(json.get().as_bytes())?) };
        Ok((Self::At(name), Some(row)))
    }

    /// Returns what the attributes of a change say.
    pub(crate) fn stored(json: Option<Box<RawValue>>, omitted: bool, at: Option<String>) -> Self {
        match (at, omitted, json) {
            (Some(name), ..) => Self::At(name),
            (None, true, _) => Self::Omitted,
            (None, false, Some(json)) => Self::Json(json),
            (None, false, None) => Self::None,
        }
    }

    /// Returns the attributes of a change: its JSON, whether it is omitted, and the name of its row.
    pub(crate) fn attributes(&self) -> (Option<&RawValue>, bool, Option<&str>) {
        match self {
            Self::None => (None, false, None),
            Self::Json(json) => (Some(json), false, None),
            Self::At(name) => (None, true, Some(name)),
            Self::Omitted => (None, true, None),
        }
    }
}

/// Returns when the payload of a change expires that expires itself at `until`, both in epoch seconds: at the end of a day, so that a batch
/// that is repeated writes the same rows. That is an hour later at least, since the payload is written first.
pub(crate) fn expiry(until: i64) -> i64 {
    const BEFORE: i64 = 3600;
    (until.saturating_add(BEFORE) / DAY + 1).saturating_mul(DAY)
}

/// A change as a row holds it: its payload is not read yet.
#[derive(Debug)]
pub(crate) struct Unread {
    /// The change, without its payload.
    pub(crate) change: Change,
    pub(crate) payload: Held,
}

fn id(name: &str) -> String {
    format!("payload#{name}")
}

/// Compresses JSON.
pub(crate) fn pack(json: &[u8]) -> Result<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(json).map_err(rows::corrupt)?;
    packed.finish().map_err(rows::corrupt)
}

/// Returns the JSON that was compressed.
pub(crate) fn unpack(packed: &[u8]) -> Result<Vec<u8>> {
    let mut json = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut json).map_err(rows::corrupt)?;
    Ok(json)
}

impl Feed {
    /// Saves the rows of large payloads, which expire at `until`, before the changes that refer to them. Saving one again changes nothing.
    pub(crate) async fn save_payloads(&self, rows: Vec<Row>, until: i64) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = rows.into_iter().map(|row| (row, Some(until))).collect();
        Ok(self.view.save_batch(&rows).await.map_err(nameservice_views::Error::from)?)
    }

    /// Returns the changes with their payloads: as many of the first ones as may be in memory together, and at least one.
    ///
    /// A payload whose row is missing is omitted: readers read the record instead.
    pub(crate) async fn read_payloads(&self, unread: Vec<Unread>) -> Result<Vec<Change>> {
        let mut changes = Vec::with_capacity(unread.len());
        let (mut memory, mut rows) = (RunMemory::default(), VecDeque::new());
        let mut unread = VecDeque::from(unread);
        while let Some(next) = unread.front()
            && !memory.is_full()
        {
            if rows.is_empty() && matches!(next.payload, Held::At(_)) {
                rows.extend(self.payload_rows(&unread).await?);
            }
            let Some(Unread { change, payload }) = unread.pop_front() else { break };
            let value = |json: &[u8]| serde_json::from_slice(json).map(ChangePayload::Value).map_err(rows::corrupt);
            let payload = match payload {
                Held::None => ChangePayload::None,
                Held::Omitted => ChangePayload::Omitted,
                Held::Json(json) => value(json.get().as_bytes())?,
                Held::At(name) => match rows.pop_front().flatten() {
                    Some(Row { payload, .. }) => value(&unpack(&payload)?)?,
                    None => {
                        tracing::warn!(position = change.position, name, "the payload of a change is missing");
                        ChangePayload::Omitted
                    }
                },
            };
            memory.add(&payload);
            changes.push(Change { payload, ..change });
        }
        Ok(changes)
    }

    /// Reads the rows of the first large payloads of these changes.
    async fn payload_rows(&self, unread: &VecDeque<Unread>) -> Result<Vec<Option<Row>>> {
        let at = unread.iter().filter_map(|unread| match &unread.payload {
            Held::At(name) => Some(RowKey::sorted(id(name), ALONE)),
            _ => None,
        });
        let keys: Vec<RowKey> = at.take(READ_TOGETHER).collect();
        Ok(self.view.load_batch(&keys).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_expires_an_hour_to_a_day_and_an_hour_after_its_change() {
        for until in [0, 1, DAY - 3_601, DAY - 3_600, DAY - 1, DAY, 1_800_000_000] {
            let after = expiry(until) - until;
            assert!(expiry(until) % DAY == 0 && (3_600..=DAY + 3_600).contains(&after), "{until}: {after}");
        }
        assert!(expiry(i64::MAX) > i64::MAX - DAY);
    }
}
