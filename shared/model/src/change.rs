use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use strum::{AsRefStr, Display, EnumString, IntoStaticStr};

use crate::{Address, ConcernKind, Limit, RecordKind, UnknownName, redact};

/// The largest payload that a change carries, in bytes of JSON. A larger one is left out and marked, and readers fetch
/// the record instead. This keeps every batch of changes within the limits of what carries it, such as a queue
/// (messages of 256 KiB, ten in one request).
pub const MAX_CHANGE_PAYLOAD_BYTES: usize = 16 * 1024;

/// A part of a record that changes: the record itself, or one of its concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChangedPart {
    /// Its existence, whether it is retracted, what it depends on.
    Meta,
    /// One of its concerns.
    Concern(ConcernKind),
}

impl ChangedPart {
    /// Every part.
    pub const ALL: [Self; 5] = [
        Self::Meta,
        Self::Concern(ConcernKind::Head),
        Self::Concern(ConcernKind::Index),
        Self::Concern(ConcernKind::Status),
        Self::Concern(ConcernKind::Config),
    ];

    /// Returns the name in JSON, where every part is called a concern.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Concern(concern) => concern.as_str(),
        }
    }
}

impl From<ConcernKind> for ChangedPart {
    fn from(concern: ConcernKind) -> Self {
        Self::Concern(concern)
    }
}

impl fmt::Display for ChangedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ChangedPart {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let found = Self::ALL.into_iter().find(|part| part.as_str() == name);
        found.ok_or_else(|| UnknownName::new("part of a record", name, Self::ALL.map(Self::as_str)))
    }
}

impl AsRef<str> for ChangedPart {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// How it changed.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownName, parse_err_fn = Self::unknown)]
pub enum ChangeKind {
    /// A value was stored where there was none, or an unborn one.
    Created,
    /// A newer value replaced the previous one.
    Updated,
    /// The watermark went back, or a head was replaced at the same `t`: an administrator has reset it.
    Reset,
    /// The record was soft-deleted.
    Retracted,
    /// A retraction was undone.
    Restored,
    /// The record was deleted.
    Purged,
}

impl ChangeKind {
    /// Every kind of change.
    pub const ALL: [Self; 6] =
        [Self::Created, Self::Updated, Self::Reset, Self::Retracted, Self::Restored, Self::Purged];

    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn unknown(name: &str) -> UnknownName {
        UnknownName::new("kind of change", name, Self::ALL.map(Self::as_str))
    }
}

/// What a change says about its record, besides the address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// What the record describes.
    pub kind: RecordKind,
    /// The type of a graph source.
    pub source_type: Option<String>,
}

/// A payload as a change carries it.
#[derive(Clone, Debug, PartialEq)]
pub enum ChangePayload {
    /// There is none: the part is unborn, or was deleted.
    None,
    /// The current value, with secrets redacted: `{id, t}` for a head, `{id, t, rev, graphs?}` for an index, the
    /// payload for a status or a config, `{retracted, source_type?, dependencies?, source_branch?}` for a meta.
    Value(Value),
    /// It is larger than [`MAX_CHANGE_PAYLOAD_BYTES`], or could not be read: read the record.
    Omitted,
}

impl ChangePayload {
    /// Returns a stored value as a change carries it. It is measured as it is stored, too, so that no large text is redacted.
    pub fn of(mut value: Value) -> Self {
        // A payload of parsed JSON always has a JSON form.
        let is_small =
            |value: &Value| serde_json::to_vec(value).is_ok_and(|bytes| bytes.len() <= MAX_CHANGE_PAYLOAD_BYTES);
        if !is_small(&value) {
            return Self::Omitted;
        }
        redact(&mut value);
        // What replaces a secret may be longer.
        if is_small(&value) { Self::Value(value) } else { Self::Omitted }
    }

    /// Returns about how many bytes of memory it takes.
    pub fn memory(&self) -> usize {
        match self {
            Self::Value(value) => memory(value),
            Self::None | Self::Omitted => 0,
        }
    }
}

/// What the payloads of changes that are read together take in memory, which is up to a hundred times their JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunMemory(usize);

impl RunMemory {
    /// The most that they take, in bytes, besides the last of them: a small part of a function of 256 MB, which holds several copies.
    pub const MAX: usize = 8 * 1024 * 1024;

    /// Adds a payload.
    pub fn add(&mut self, payload: &ChangePayload) {
        self.0 = self.0.saturating_add(payload.memory());
    }

    /// Returns whether no more payloads should be read with these.
    pub fn is_full(self) -> bool {
        self.0 >= Self::MAX
    }

    /// Returns whether a run has as many changes as were to be read, or as many as may be in memory: more may follow.
    pub fn may_continue(changes: &[Change], limit: usize) -> bool {
        let mut memory = Self::default();
        changes.iter().for_each(|change| memory.add(&change.payload));
        changes.len() >= limit || memory.is_full()
    }
}

/// Returns about how many bytes of memory a value takes.
fn memory(value: &Value) -> usize {
    /// A node of a map has room for eleven members, and five or more unless it is the only one.
    const NODE: usize = 11 * (size_of::<String>() + size_of::<Value>());
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<Value>(),
        Value::String(text) => size_of::<Value>() + text.capacity(),
        Value::Array(values) => {
            let spare = (values.capacity() - values.len()) * size_of::<Value>();
            size_of::<Value>() + spare + values.iter().map(memory).sum::<usize>()
        }
        Value::Object(members) => {
            let of_member = |(name, value): (&String, &Value)| name.capacity() + memory(value);
            size_of::<Value>() + members.len().div_ceil(5) * NODE + members.iter().map(of_member).sum::<usize>()
        }
    }
}

/// One entry of the change feed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its position in the feed: 1, 2, 3, … without a gap.
    pub position: u64,
    /// Which record has changed.
    pub address: Address,
    /// The kind and type of the record.
    pub identity: Identity,
    /// Which part of it has changed.
    pub part: ChangedPart,
    /// How it has changed.
    pub kind: ChangeKind,
    /// The current watermark; 0 for a meta, and for a part that was deleted.
    pub watermark: i64,
    /// The previous watermark, if there was one.
    pub previous: Option<i64>,
    /// The current value.
    pub payload: ChangePayload,
    /// When the writer wrote it.
    pub occurred_at: Timestamp,
    /// When it was appended to the feed.
    pub recorded_at: Timestamp,
}

/// A message of the feed to a reader that follows it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ChangeEvent {
    /// A change.
    Change(Box<Change>),
    /// The changes after the position are no longer in the feed: read a snapshot. The following events begin at `oldest`.
    Gone {
        /// The oldest position that can still be read.
        oldest: u64,
    },
}

/// A contiguous part of the feed.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Run {
    /// The changes after the given position, without a gap; empty if there are none yet.
    Changes(Vec<Change>),
    /// The changes after the position have expired, or were never in this feed: begin again with a snapshot.
    Gone {
        /// The oldest position that can still be read.
        oldest: u64,
    },
}

/// Selects changes of one record, and their order.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryQuery {
    /// Only changes after this position.
    pub after: u64,
    /// Only changes before this position.
    pub before: Option<u64>,
    /// The newest change first; by default, the oldest.
    pub newest_first: bool,
    /// Only changes of this part.
    pub part: Option<ChangedPart>,
    /// The maximum number.
    pub limit: Limit,
}

/// Changes of one record, in the order of the query.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The changes.
    pub changes: Vec<Change>,
    /// The last position that was examined, if more changes may follow it in the order of the query. Pass it as `after`
    /// in the next query, or as `before` if the newest comes first.
    pub more_after: Option<u64>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_payload_is_small_as_it_is_stored_and_as_it_is_carried() {
        let carried = |bytes: usize| ChangePayload::of(json!({ "a": "x".repeat(bytes) }));
        let frame = r#"{"a":""}"#.len();
        assert!(matches!(carried(MAX_CHANGE_PAYLOAD_BYTES - frame), ChangePayload::Value(_)));
        assert_eq!(carried(MAX_CHANGE_PAYLOAD_BYTES - frame + 1), ChangePayload::Omitted);
        let secrets: Vec<_> = (0..1_000).map(|_| json!({ "pin": "x" })).collect();
        assert_eq!(ChangePayload::of(secrets.into()), ChangePayload::Omitted, "a thousand times [redacted]");
        // It was small only without its secret.
        assert_eq!(ChangePayload::of(json!({ "password": "x".repeat(20_000) })), ChangePayload::Omitted);
    }
}
