use std::fmt;

/// Which concern of a record is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConcernKind {
    /// Where the latest commit is (`commit_t`). Ledgers only.
    Head,
    /// Where the latest index is (`index_t`).
    Index,
    /// What state the record is in (`status_v`).
    Status,
    /// How it is configured (`config_v`).
    Config,
}

impl ConcernKind {
    /// All of them, in the order in which a record shows them.
    pub const ALL: [Self; 4] = [Self::Head, Self::Index, Self::Status, Self::Config];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::Index => "index",
            Self::Status => "status",
            Self::Config => "config",
        }
    }

    /// The concern of that wire name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for ConcernKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a concern holds: a watermark that only grows, and a payload.
///
/// - `ConcernValue { v: 0, payload: None }`: unborn, the record exists and the concern has no data;
/// - `ConcernValue { v, payload: Some(_) }`: has data;
/// - `None` around it: there is no such record.
#[derive(Clone, Debug, PartialEq)]
pub struct ConcernValue<T> {
    /// The watermark: `t` of a head or an index, a counter of a status or a config.
    pub v: i64,
    /// The data, absent while unborn.
    pub payload: Option<T>,
}

impl<T> ConcernValue<T> {
    /// A value with data.
    pub const fn new(v: i64, payload: T) -> Self {
        Self { v, payload: Some(payload) }
    }

    /// The value of a concern without data.
    pub const fn unborn() -> Self {
        Self { v: 0, payload: None }
    }
}

/// The outcome of a compare-and-set. A conflict is an outcome, not an error.
#[derive(Clone, Debug, PartialEq)]
pub enum CasResult<T> {
    /// The new value is in place.
    Updated,
    /// The expectation did not hold; nothing was written.
    Conflict {
        /// What is there instead: `None` where there is no such record.
        actual: Option<ConcernValue<T>>,
    },
}
