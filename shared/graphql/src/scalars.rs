//! Scalars and enums.

use async_graphql::{Enum, InputValueError, InputValueResult, Scalar, ScalarType, Value};
use nameservice_api::{
    Kind as ApiKind, SearchField,
    changes::{ChangeKind as ApiChange, ChangedPart},
};

/// A whole number of 64 bits: watermarks and positions. (GraphQL's `Int` has 32.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Long(pub(crate) i64);

#[Scalar]
impl ScalarType for Long {
    fn parse(value: Value) -> InputValueResult<Self> {
        match &value {
            Value::Number(number) => {
                number.as_i64().map(Self).ok_or_else(|| InputValueError::custom("no 64-bit integer"))
            }
            _ => Err(InputValueError::expected_type(value)),
        }
    }

    fn to_value(&self) -> Value {
        Value::Number(self.0.into())
    }
}

impl From<i64> for Long {
    fn from(number: i64) -> Self {
        Self(number)
    }
}

impl From<u64> for Long {
    fn from(number: u64) -> Self {
        // Positions of a feed are far below this.
        Self(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl Long {
    /// The number as a position: a negative number is before the first change.
    pub(crate) fn position(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }
}

/// What a record describes.
#[derive(Enum, Clone, Copy, Debug, PartialEq, Eq)]
#[graphql(remote = "ApiKind")]
pub(crate) enum Kind {
    /// Commits, indexes, named graphs.
    Ledger,
    /// Anything else that can be queried as a graph.
    GraphSource,
}

/// A part of a record that changes: the record itself, or one of its concerns.
#[derive(Enum, Clone, Copy, Debug, PartialEq, Eq)]
#[graphql(remote = "ChangedPart")]
pub(crate) enum Concern {
    /// Its existence, whether it is retracted, what it depends on.
    Meta,
    /// Where its latest commit is.
    Head,
    /// Where its latest index is.
    Index,
    /// Its state.
    Status,
    /// Its configuration.
    Config,
}

/// How a part changed.
#[derive(Enum, Clone, Copy, Debug, PartialEq, Eq)]
#[graphql(remote = "ApiChange")]
pub(crate) enum ChangeKind {
    /// A value was stored where there was none, or an unborn one.
    Created,
    /// A newer value replaced the previous one.
    Updated,
    /// An administrator reset it.
    Reset,
    /// The record was soft-deleted.
    Retracted,
    /// A retraction was undone.
    Restored,
    /// It was deleted.
    Purged,
}

/// Where the words of a search were found.
#[derive(Enum, Clone, Copy, Debug, PartialEq, Eq)]
#[graphql(remote = "SearchField")]
pub(crate) enum Matched {
    /// The address.
    Address,
    /// The type of a graph source.
    SourceType,
    /// The state.
    State,
    /// A value of the configuration.
    Config,
}
