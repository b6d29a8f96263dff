//! Rows ↔ values of the feed's table. Times are epoch milliseconds, `ttl` and `until` epoch seconds.

use std::{borrow::Cow, time::Duration};

use jiff::Timestamp;
use nameservice_model::{BoxError, Change, ChangePayload, Error, Identity, RecordKind, Result};
use nameservice_store::Difference;
use nameservice_views::{Description, Item, RowKey, Write, to_item};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use sha2::{Digest, Sha256};

const ATTR_ID: &str = "id";
const ATTR_POSITION: &str = "position";
const ATTR_TTL: &str = "ttl";
const ATTR_N: &str = "n";

/// The partition of the changes. All changes of a feed are in one partition, because only then do they have one order.
pub const FEED_ID: &str = "feed#0";
const COUNTER_ID: &str = "counter#0";
/// The sort key of rows that are alone in their partition.
pub(crate) const ALONE: &str = "-";
/// The form of the rows: segments and guards. Rows of the first form, in which each change was a row, have none.
const FORM: u8 = 2;

/// The feed's table (docs/specification.md, Change feed).
pub const DESCRIPTION: Description = Description {
    partition_key: ATTR_ID,
    sort_key: Some(ATTR_POSITION),
    indexes: &[],
    ttl: Some(ATTR_TTL),
    stream: false,
};

/// Returns the name of a stream record: its event id, or a hash of this content if the id is missing, or longer than any stream's. Sort
/// keys have at most 1,024 bytes.
pub(crate) fn event_name<'a>(event_id: &'a str, content: impl FnOnce() -> Cow<'a, str>) -> Cow<'a, str> {
    match event_id.len() {
        1..=256 => event_id.into(),
        _ => format!("sha256:{}", base16ct::lower::encode_string(&Sha256::digest(content().as_ref()))).into(),
    }
}

/// Returns a position as a sort key: 20 digits, so that texts sort like numbers.
pub(crate) fn sort_key(position: u64) -> String {
    format!("{position:020}")
}

/// Returns when a row that is written now expires, in epoch seconds.
pub(crate) fn expiry(now: Timestamp, after: Duration) -> i64 {
    now.as_second().saturating_add(i64::try_from(after.as_secs()).unwrap_or(i64::MAX))
}

/// The end of the feed. The first append creates it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Counter {
    /// The last position.
    pub(crate) n: u64,
    /// Where the last transaction begins.
    #[serde(deserialize_with = "digits")]
    pub(crate) first: u64,
    /// When the changes of the last transaction expire.
    pub(crate) until: i64,
    /// The first position that may be read, 0 for all.
    pub(crate) epoch: u64,
    /// The form of the rows, 0 for the first.
    form: u8,
}

/// `first` is a number in the first form, and text in the second. Code that knows only the first form cannot read the
/// text, and so does not append rows that would never be read.
fn digits<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Number(u64),
        Text(String),
    }
    match Stored::deserialize(deserializer)? {
        Stored::Number(number) => Ok(number),
        Stored::Text(text) => text.parse().map_err(D::Error::custom),
    }
}

impl Counter {
    pub(crate) fn key() -> RowKey {
        RowKey::sorted(COUNTER_ID, ALONE)
    }

    /// Returns the write that advances the counter by `k` positions, if it is still at `n`.
    pub(crate) fn advance(n: u64, k: usize, recorded_at: Timestamp, until: i64) -> Result<Write> {
        let moved = Moved { first: sort_key(n + 1), until, recorded_at: recorded_at.as_millisecond(), form: FORM };
        Self::write(n, n + k as u64, to_item(&moved).map_err(corrupt)?)
    }

    /// Returns the write that begins a new epoch: it skips one position, which no reader can have reached, and makes
    /// all earlier ones unreadable.
    pub(crate) fn with_new_epoch(&self, now: Timestamp) -> Result<Write> {
        let epoch = self.n + 2;
        let begun = Begun { epoch, first: sort_key(epoch), recorded_at: now.as_millisecond(), form: FORM };
        Self::write(self.n, self.n + 1, to_item(&begun).map_err(corrupt)?)
    }

    /// Returns the counter after a write of [`Self::with_new_epoch`].
    pub(crate) fn in_new_epoch(self) -> Self {
        Self { n: self.n + 1, epoch: self.n + 2, form: FORM, ..self }
    }

    /// Returns whether the changes up to this counter are rows of the first form.
    pub(crate) fn is_former(&self) -> bool {
        self.n > 0 && self.form < FORM
    }

    fn write(from: u64, to: u64, set: Item) -> Result<Write> {
        let signed = |n: u64| i64::try_from(n).map_err(corrupt);
        Ok(Write::Advance { key: Self::key(), field: ATTR_N.to_owned(), from: signed(from)?, to: signed(to)?, set })
    }
}

#[derive(Serialize)]
struct Moved {
    first: String,
    until: i64,
    recorded_at: i64,
    form: u8,
}

#[derive(Serialize)]
struct Begun {
    epoch: u64,
    first: String,
    recorded_at: i64,
    form: u8,
}

pub(crate) fn kind_of(name: &str) -> Result<RecordKind> {
    name.parse().map_err(|_| unknown("kind", name))
}

pub(crate) fn unknown(what: &str, name: &str) -> Error {
    corrupt(format!("a row of the feed has the unknown {what} `{name}`"))
}

/// Returns the change for a difference, with this payload.
pub(crate) fn change(
    difference: &Difference,
    identity: &Identity,
    position: u64,
    recorded_at: Timestamp,
    payload: ChangePayload,
) -> Change {
    Change {
        position,
        address: difference.address.clone(),
        identity: identity.clone(),
        part: difference.part,
        kind: difference.kind,
        watermark: difference.watermark,
        previous: difference.previous,
        payload,
        // In the precision of the row, so that a change is the same whenever it is returned.
        occurred_at: whole_milliseconds(difference.occurred_at),
        recorded_at: whole_milliseconds(recorded_at),
    }
}

pub(crate) fn whole_milliseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_millisecond(time.as_millisecond()).unwrap_or(time)
}

pub(crate) fn moment(milliseconds: i64) -> Result<Timestamp> {
    Timestamp::from_millisecond(milliseconds).map_err(corrupt)
}

/// Returns the error for a row that this crate did not write.
pub(crate) fn corrupt(source: impl Into<BoxError>) -> Error {
    Error::Store { operation: "read the feed", source: source.into() }
}
