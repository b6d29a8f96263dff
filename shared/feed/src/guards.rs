//! One row for each stream record that was appended: the guard against appending it again, and its change in the history of
//! its record.

use std::time::Duration;

use jiff::Timestamp;
use nameservice_model::{Address, Change, ChangeKind, ChangePayload, ChangedPart, Identity, Result};
use nameservice_views::{SaveMode, Write};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::{
    payloads::{Held, Unread},
    rows,
};

/// The longest value of a partition key, in bytes.
const MAX_ID_BYTES: usize = 2048;
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

/// Returns the name of a stream record: its sequence number, padded, and its id. So names sort by the order of commits.
pub(crate) fn name_of(sequence_number: &str, event_id: &str) -> String {
    format!("{}{}", padded(sequence_number), rows::event_name(event_id, || event_id.into()))
}

/// Returns until when a stream record is remembered whose change expires at `until`, both in epoch seconds.
pub(crate) fn remembered_until(until: i64, recorded_at: Timestamp) -> i64 {
    until.max(rows::expiry(recorded_at, REMEMBERED_FOR))
}

/// A stream record that was appended. The payload is JSON text: not every JSON value can be an attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Guard {
    id: String,
    /// The name of the stream record.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_at: Option<String>,
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
    /// Returns the write of the row. It fails if the row exists: then the stream record was appended already. `name` is that of the
    /// stream record.
    pub(crate) fn write(name: &str, change: &Change, payload: &Held, until: i64) -> Result<Write> {
        let (payload, payload_omitted, payload_at) = payload.attributes();
        let ttl = remembered_until(until, change.recorded_at);
        let row = Self {
            id: history_id(&change.address),
            position: name.to_owned(),
            at: change.position,
            kind: change.identity.kind.as_str().to_owned(),
            source_type: change.identity.source_type.clone(),
            concern: change.part.as_str().to_owned(),
            change: change.kind.as_str().to_owned(),
            watermark: change.watermark,
            previous: change.previous,
            payload: payload.map(|json| json.get().to_owned()),
            payload_omitted,
            payload_at: payload_at.map(str::to_owned),
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
    pub(crate) fn unread(mut self, address: &Address) -> Result<Unread> {
        let json = self.payload.take().map(RawValue::from_string).transpose().map_err(rows::corrupt)?;
        let payload = Held::stored(json, self.payload_omitted, self.payload_at.take());
        let change = Change {
            position: self.at,
            address: address.clone(),
            part: self.concern.parse::<ChangedPart>().map_err(|_| rows::unknown("concern", &self.concern))?,
            kind: self.change.parse::<ChangeKind>().map_err(|_| rows::unknown("change", &self.change))?,
            watermark: self.watermark,
            previous: self.previous,
            payload: ChangePayload::None,
            occurred_at: rows::moment(self.occurred_at)?,
            recorded_at: rows::moment(self.recorded_at)?,
            identity: self.identity()?,
        };
        Ok(Unread { change, payload })
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
        assert_eq!(name_of("17", "e"), format!("{}17e", "0".repeat(38)));
        assert!(name_of("9", "a") < name_of("10", "a") && name_of("10", "a") < name_of("10", "b"));
        assert!(name_of("1", &"e".repeat(5_000)).len() < 1_024);
    }
}
