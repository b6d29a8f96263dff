//! Rows ↔ values of the feed's table. Times are epoch milliseconds, `ttl` and `until` epoch seconds.

use std::time::Duration;

use jiff::Timestamp;
use nameservice_model::{
    Address, BoxError, Change, ChangeKind, ChangePayload, ChangedPart, Error, Identity, RecordKind, Result,
};
use nameservice_store::Difference;
use nameservice_views::{Description, Index, Item, Key, Projection, RowKey, SaveMode, Write, to_item};
use serde::{Deserialize, Serialize};

const ATTR_ID: &str = "id";
const ATTR_POSITION: &str = "position";
const ATTR_ADDRESS: &str = "address";
const ATTR_TTL: &str = "ttl";
const ATTR_N: &str = "n";

/// The partition of the changes. All of one feed are in one, for only then is there one order.
pub const FEED_ID: &str = "feed#0";
const COUNTER_ID: &str = "counter#0";
/// The sort key of rows that are alone in their partition.
const ALONE: &str = "-";
/// Lists the changes of one address.
pub(crate) const INDEX_BY_ADDRESS: &str = "by-address";

/// How long it is remembered which stream records were appended: twice as long as a stream can deliver them.
const SEEN_FOR: Duration = Duration::from_secs(48 * 3600);

/// The feed's table (docs/specification.md, Change feed).
pub const DESCRIPTION: Description = Description {
    partition_key: ATTR_ID,
    sort_key: Some(ATTR_POSITION),
    indexes: &[Index {
        name: INDEX_BY_ADDRESS,
        partition_key: Key::string(ATTR_ADDRESS),
        sort_key: Some(Key::string(ATTR_POSITION)),
        projection: Projection::All,
    }],
    ttl: Some(ATTR_TTL),
    stream: false,
};

/// A position as a sort key: 20 digits, so that texts sort as numbers do.
pub(crate) fn sort_key(position: u64) -> String {
    format!("{position:020}")
}

/// When what is made now expires, in epoch seconds.
pub(crate) fn expiry(now: Timestamp, after: Duration) -> i64 {
    now.as_second().saturating_add(i64::try_from(after.as_secs()).unwrap_or(i64::MAX))
}

/// Where the feed stands. The first append makes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Counter {
    /// The last position.
    pub(crate) n: u64,
    /// Where the last transaction begins.
    pub(crate) first: u64,
    /// When the changes of the last transaction expire.
    pub(crate) until: i64,
    /// When it was appended.
    pub(crate) recorded_at: i64,
    /// The first position that may be read, 0 for all.
    pub(crate) epoch: u64,
}

impl Counter {
    pub(crate) fn key() -> RowKey {
        RowKey::sorted(COUNTER_ID, ALONE)
    }

    /// The write that moves it over `k` positions, if it still is where it was seen.
    pub(crate) fn advance(n: u64, k: usize, recorded_at: Timestamp, until: i64) -> Result<Write> {
        let moved = Moved { first: n + 1, until, recorded_at: recorded_at.as_millisecond() };
        Self::write(n, n + k as u64, to_item(&moved).map_err(corrupt)?)
    }

    /// The write that leaves out one position, which no reader can have reached, and forbids all before it.
    pub(crate) fn with_new_epoch(&self, now: Timestamp) -> Result<Write> {
        let begun = Begun { epoch: self.n + 2, recorded_at: now.as_millisecond() };
        Self::write(self.n, self.n + 1, to_item(&begun).map_err(corrupt)?)
    }

    fn write(from: u64, to: u64, set: Item) -> Result<Write> {
        let signed = |n: u64| i64::try_from(n).map_err(corrupt);
        Ok(Write::Advance { key: Self::key(), field: ATTR_N.to_owned(), from: signed(from)?, to: signed(to)?, set })
    }
}

#[derive(Serialize)]
struct Moved {
    first: u64,
    until: i64,
    recorded_at: i64,
}

#[derive(Serialize)]
struct Begun {
    epoch: u64,
    recorded_at: i64,
}

/// Remembers where a stream record has gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Seen {
    id: String,
    position: String,
    /// The position of its change.
    pub(crate) at: u64,
    /// When it was appended.
    recorded_at: i64,
    /// What the record was said to be: a later read may return another one under the same address.
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source_type: Option<String>,
}

impl Seen {
    pub(crate) fn write(event_id: &str, change: &Change) -> Result<Write> {
        let row = Self {
            id: format!("seen#{event_id}"),
            position: ALONE.to_owned(),
            at: change.position,
            recorded_at: change.recorded_at.as_millisecond(),
            kind: change.identity.kind.as_str().to_owned(),
            source_type: change.identity.source_type.clone(),
        };
        let ttl = Some(expiry(change.recorded_at, SEEN_FOR));
        Ok(Write::save(&row, SaveMode::Init, ttl)?)
    }

    /// When it was appended.
    pub(crate) fn recorded_at(&self) -> Result<Timestamp> {
        moment(self.recorded_at)
    }

    /// What the record was said to be.
    pub(crate) fn identity(self) -> Result<Identity> {
        Ok(Identity { kind: kind_of(&self.kind)?, source_type: self.source_type })
    }
}

fn kind_of(name: &str) -> Result<RecordKind> {
    name.parse().map_err(|_| unknown("kind", name))
}

fn unknown(what: &str, name: &str) -> Error {
    corrupt(format!("a row of the feed has the unknown {what} `{name}`"))
}

/// A change as a row. The payload is JSON text: not every JSON value can be an attribute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    id: String,
    position: String,
    /// Where the transaction begins that appended it: a reader that sees only a part of one recognises it.
    pub(crate) first: u64,
    address: String,
    kind: String,
    name: String,
    branch: String,
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
    /// Set by the view when the row is written.
    #[serde(default, skip_serializing)]
    pub(crate) ttl: i64,
}

impl Row {
    pub(crate) fn key(position: u64) -> RowKey {
        RowKey::sorted(FEED_ID, sort_key(position))
    }

    pub(crate) fn write(change: &Change, first: u64, until: i64) -> Result<Write> {
        let (payload, payload_omitted) = match &change.payload {
            ChangePayload::None => (None, false),
            ChangePayload::Value(value) => (Some(value.to_string()), false),
            ChangePayload::Omitted => (None, true),
        };
        let row = Self {
            id: FEED_ID.to_owned(),
            position: sort_key(change.position),
            first,
            address: change.address.as_str().to_owned(),
            kind: change.identity.kind.as_str().to_owned(),
            name: change.address.name().to_owned(),
            branch: change.address.branch().to_owned(),
            source_type: change.identity.source_type.clone(),
            concern: change.part.as_str().to_owned(),
            change: change.kind.as_str().to_owned(),
            watermark: change.watermark,
            previous: change.previous,
            payload,
            payload_omitted,
            occurred_at: change.occurred_at.as_millisecond(),
            recorded_at: change.recorded_at.as_millisecond(),
            ttl: 0,
        };
        Ok(Write::save(&row, SaveMode::Init, Some(until))?)
    }

    pub(crate) fn at(&self) -> Result<u64> {
        self.position.parse().map_err(corrupt)
    }

    pub(crate) fn change(self) -> Result<Change> {
        Ok(Change {
            position: self.at()?,
            identity: Identity { kind: kind_of(&self.kind)?, source_type: self.source_type },
            address: Address::stored(self.address),
            part: self.concern.parse::<ChangedPart>().map_err(|_| unknown("concern", &self.concern))?,
            kind: self.change.parse::<ChangeKind>().map_err(|_| unknown("change", &self.change))?,
            watermark: self.watermark,
            previous: self.previous,
            payload: match self.payload {
                _ if self.payload_omitted => ChangePayload::Omitted,
                None => ChangePayload::None,
                Some(text) => ChangePayload::Value(serde_json::from_str(&text).map_err(corrupt)?),
            },
            occurred_at: moment(self.occurred_at)?,
            recorded_at: moment(self.recorded_at)?,
        })
    }
}

/// The change that a difference becomes.
pub(crate) fn change(difference: &Difference, identity: &Identity, position: u64, recorded_at: Timestamp) -> Change {
    Change {
        position,
        address: difference.address.clone(),
        identity: identity.clone(),
        part: difference.part,
        kind: difference.kind,
        watermark: difference.watermark,
        previous: difference.previous,
        payload: difference.payload.clone(),
        // As the row keeps it, so that every telling of a change is the same.
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

/// A row that is not as this crate writes it.
pub(crate) fn corrupt(source: impl Into<BoxError>) -> Error {
    Error::Store { operation: "read the feed", source: source.into() }
}
