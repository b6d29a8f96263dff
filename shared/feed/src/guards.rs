//! One row for each stream record that was appended: the guard against appending it again, and its change in the history of
//! its record.

use std::time::Duration;

use jiff::Timestamp;
use nameservice_model::{Address, Change, ChangeKind, ChangePayload, ChangedPart, Identity, Result};
use nameservice_views::{SaveMode, Write};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::rows;

/// The longest value of a partition key, in bytes.
const MAX_ID_BYTES: usize = 2048;
/// The maximum length of an id, longer than any stream's. Sort keys have at most 1,024 bytes.
const MAX_EVENT_ID_BYTES: usize = 256;
/// The shortest time for which appended stream records are remembered: twice as long as a stream can deliver them.
const REMEMBERED_FOR: Duration = Duration::from_secs(48 * 3600);

/// Returns the partition of a record's history. Addresses that Fluree writes may leave no room for a prefix.
pub(crate) fn history_id(address: &Address) -> String {
    let id = format!("history#{}", address.as_str());
    match id.len() <= MAX_ID_BYTES {
        true => id,
        false => format!("history-sha256#{}", base16ct::lower::encode_string(&Sha256::digest(address.as_str()))),
    }
}

/// Returns a sequence number of up to 40 digits with leading zeros, so that texts sort like numbers.
pub(crate) fn padded(sequence_number: &str) -> String {
    format!("{sequence_number:0>40}")
}

fn place(sequence_number: &str, event_id: &str) -> String {
    let sequence = padded(sequence_number);
    match event_id.len() <= MAX_EVENT_ID_BYTES {
        true => format!("{sequence}{event_id}"),
        false => format!("{sequence}sha256:{}", base16ct::lower::encode_string(&Sha256::digest(event_id))),
    }
}

/// A stream record that was appended. The payload is JSON text: not every JSON value can be an attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Guard {
    id: String,
    /// The sequence number of the stream record, padded, and its id: the order of commits.
    position: String,
    /// The position of its change in the feed.
    pub(crate) at: u64,
    /// The kind that was recorded with the change: a later read may find a different record under the same address.
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_type: Option<String>,
    concern: String,
    change: String,
    watermark: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    payload_omitted: bool,
    occurred_at: i64,
    recorded_at: i64,
    /// When its change expires, if that is before the row does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
    /// Set by the view when the row is written.
    #[serde(default, skip_serializing)]
    ttl: i64,
}

impl Guard {
    /// Returns the write of the row. It fails if the row exists: then the stream record was appended already.
    pub(crate) fn write(sequence_number: &str, event_id: &str, change: &Change, until: i64) -> Result<Write> {
        let (payload, payload_omitted) = match &change.payload {
            ChangePayload::None => (None, false),
            ChangePayload::Value(value) => (Some(value.to_string()), false),
            ChangePayload::Omitted => (None, true),
        };
        let ttl = until.max(rows::expiry(change.recorded_at, REMEMBERED_FOR));
        let row = Self {
            id: history_id(&change.address),
            position: place(sequence_number, event_id),
            at: change.position,
            kind: change.identity.kind.as_str().to_owned(),
            source_type: change.identity.source_type.clone(),
            concern: change.part.as_str().to_owned(),
            change: change.kind.as_str().to_owned(),
            watermark: change.watermark,
            previous: change.previous,
            payload,
            payload_omitted,
            occurred_at: change.occurred_at.as_millisecond(),
            recorded_at: change.recorded_at.as_millisecond(),
            until: (until < ttl).then_some(until),
            ttl: 0,
        };
        Ok(Write::save(&row, SaveMode::Init, Some(ttl))?)
    }

    /// Returns whether its change can still be read at a time, in epoch seconds.
    pub(crate) fn is_alive(&self, now: i64) -> bool {
        self.until.unwrap_or(self.ttl) > now
    }

    /// Returns when it was appended.
    pub(crate) fn recorded_at(&self) -> Result<Timestamp> {
        rows::moment(self.recorded_at)
    }

    /// Returns the identity that was recorded with the change.
    pub(crate) fn identity(self) -> Result<Identity> {
        Ok(Identity { kind: rows::kind_of(&self.kind)?, source_type: self.source_type })
    }

    /// Returns the change. `address` is the record whose history the row belongs to.
    pub(crate) fn change(self, address: &Address) -> Result<Change> {
        Ok(Change {
            position: self.at,
            address: address.clone(),
            part: self.concern.parse::<ChangedPart>().map_err(|_| rows::unknown("concern", &self.concern))?,
            kind: self.change.parse::<ChangeKind>().map_err(|_| rows::unknown("change", &self.change))?,
            watermark: self.watermark,
            previous: self.previous,
            payload: match &self.payload {
                _ if self.payload_omitted => ChangePayload::Omitted,
                None => ChangePayload::None,
                Some(text) => ChangePayload::Value(serde_json::from_str(text).map_err(rows::corrupt)?),
            },
            occurred_at: rows::moment(self.occurred_at)?,
            recorded_at: rows::moment(self.recorded_at)?,
            identity: self.identity()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_fit_whatever_address_and_id_they_are_of() {
        let id = |length: usize| history_id(&Address::stored("a".repeat(length)));
        assert_eq!(id(3), "history#aaa");
        assert_eq!(id(2040).len(), 2048);
        assert!(id(2041).starts_with("history-sha256#") && id(2041) != id(2042));
        assert_eq!(place("17", "e"), format!("{}17e", "0".repeat(38)));
        assert!(place("9", "a") < place("10", "a") && place("10", "a") < place("10", "b"));
        assert!(place("1", &"e".repeat(5_000)).len() < 1_024);
    }
}
