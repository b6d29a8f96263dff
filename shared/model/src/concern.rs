use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr};

use crate::{Config, Head, Index, InvalidPayload, Status, UnknownName};

/// The greatest watermark, revision, token or position: every number up to it is exact in every JSON reader.
pub const MAX_WATERMARK: i64 = (1 << 53) - 1;

/// Checks a watermark, a revision or a token of a request: at least `min`, at most [`MAX_WATERMARK`].
pub fn check_watermark(path: &str, value: i64, min: i64) -> Result<i64, InvalidPayload> {
    match value {
        _ if value < min => Err(InvalidPayload::new(path, format!("must be {min} or greater"))),
        _ if value > MAX_WATERMARK => Err(InvalidPayload::new(path, format!("must be at most {MAX_WATERMARK}"))),
        _ => Ok(value),
    }
}

/// A concern of a record: a part with its own watermark and payload.
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
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownName, parse_err_fn = Self::unknown)]
pub enum ConcernKind {
    /// The latest commit (`commit_t`). Ledgers only.
    Head,
    /// The latest index (`index_t`).
    Index,
    /// The state of the record (`status_v`).
    Status,
    /// The configuration (`config_v`).
    Config,
}

impl ConcernKind {
    /// Every concern, in the order in which a record shows them.
    pub const ALL: [Self; 4] = [Self::Head, Self::Index, Self::Status, Self::Config];

    /// Returns the name in JSON and in the table.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn unknown(name: &str) -> UnknownName {
        UnknownName::new("concern", name, Self::ALL.map(Self::as_str))
    }
}

/// The value of a concern: a watermark that only grows, and a payload.
///
/// - `v: 0, payload: None`: unborn, the record exists and the concern has no data;
/// - `v` and a payload: the concern has data;
/// - `None` instead of a value: there is no such record.
///
/// The fields are public to read. [`ConcernValue::new`] and [`ConcernValue::unborn`] make the values that a record can
/// have; [`ConcernValue::stored`] is for backends, which also read rows that other programs wrote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ConcernValue<T> {
    /// The watermark: `t` of a head or an index, a counter of a status or a config.
    pub v: i64,
    /// The data, absent while unborn.
    pub payload: Option<T>,
}

impl<T> ConcernValue<T> {
    /// Returns a value with data.
    pub const fn new(v: i64, payload: T) -> Self {
        Self { v, payload: Some(payload) }
    }

    /// Returns the value of a concern without data.
    pub const fn unborn() -> Self {
        Self { v: 0, payload: None }
    }

    /// Returns a value as a backend has read it, or an expected value that leaves the payload open.
    pub const fn stored(v: i64, payload: Option<T>) -> Self {
        Self { v, payload }
    }

    /// Returns whether the concern has no data yet.
    pub const fn is_unborn(&self) -> bool {
        self.payload.is_none()
    }

    /// Applies a function to the payload.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> ConcernValue<U> {
        ConcernValue { v: self.v, payload: self.payload.map(f) }
    }
}

/// The value of any one of the concerns.
#[derive(Clone, Debug, PartialEq)]
pub enum ConcernState {
    /// The value of the head.
    Head(Head),
    /// The value of the index.
    Index(Index),
    /// The value of the status.
    Status(Status),
    /// The value of the config.
    Config(Config),
}

impl ConcernState {
    /// Returns the concern that the value belongs to.
    pub const fn concern(&self) -> ConcernKind {
        match self {
            Self::Head(_) => ConcernKind::Head,
            Self::Index(_) => ConcernKind::Index,
            Self::Status(_) => ConcernKind::Status,
            Self::Config(_) => ConcernKind::Config,
        }
    }

    /// Returns the watermark.
    pub const fn v(&self) -> i64 {
        match self {
            Self::Head(value) => value.v,
            Self::Index(value) => value.v,
            Self::Status(value) => value.v,
            Self::Config(value) => value.v,
        }
    }
}

impl From<Head> for ConcernState {
    fn from(value: Head) -> Self {
        Self::Head(value)
    }
}

impl From<Index> for ConcernState {
    fn from(value: Index) -> Self {
        Self::Index(value)
    }
}

impl From<Status> for ConcernState {
    fn from(value: Status) -> Self {
        Self::Status(value)
    }
}

impl From<Config> for ConcernState {
    fn from(value: Config) -> Self {
        Self::Config(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_has_limits() {
        for watermark in [0, 1, 1 << 31, MAX_WATERMARK] {
            assert_eq!(check_watermark("t", watermark, 0).unwrap(), watermark);
        }
        assert_eq!(check_watermark("t", 0, 1).unwrap_err().reason.to_string(), "must be 1 or greater");
        for bad in [MAX_WATERMARK + 1, i64::MAX] {
            assert_eq!(
                check_watermark("t", bad, 0).unwrap_err().reason.to_string(),
                "must be at most 9007199254740991"
            );
        }
        assert!(check_watermark("t", i64::MIN, 0).is_err());
    }

    #[test]
    fn names_parse_to_what_they_display() {
        for concern in ConcernKind::ALL {
            assert_eq!(concern.to_string().parse(), Ok(concern));
            assert_eq!(serde_json::to_value(concern).unwrap(), concern.as_str());
        }
        let error = "heads".parse::<ConcernKind>().unwrap_err().to_string();
        assert_eq!(error, "`heads` is not a concern: expected one of head, index, status, config");
    }
}
