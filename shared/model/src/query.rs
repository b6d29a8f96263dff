use std::num::NonZeroUsize;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::{Address, Record, RecordKind, Summary};

/// The most entries of a page, 1 or more; 100 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(NonZeroUsize);

/// The error for a limit of 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a limit must be 1 or greater")]
pub struct InvalidLimit;

impl Limit {
    /// One entry.
    pub const ONE: Self = Self(NonZeroUsize::MIN);
    /// All entries.
    pub const MAX: Self = Self(NonZeroUsize::MAX);

    /// Returns this limit, 1 or greater.
    pub const fn new(limit: usize) -> Result<Self, InvalidLimit> {
        match NonZeroUsize::new(limit) {
            Some(limit) => Ok(Self(limit)),
            None => Err(InvalidLimit),
        }
    }

    /// Returns the number.
    pub const fn get(self) -> usize {
        self.0.get()
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self(const { NonZeroUsize::MIN.saturating_add(99) })
    }
}

impl TryFrom<usize> for Limit {
    type Error = InvalidLimit;

    fn try_from(limit: usize) -> Result<Self, InvalidLimit> {
        Self::new(limit)
    }
}

impl From<NonZeroUsize> for Limit {
    fn from(limit: NonZeroUsize) -> Self {
        Self(limit)
    }
}

/// Decides which addresses the caller may see.
pub type Visible<'a> = &'a (dyn Fn(&Address) -> bool + Send + Sync);

/// Selects the records of a list.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Only this kind.
    pub kind: Option<RecordKind>,
    /// Only the branches of this name.
    pub name: Option<String>,
    /// Only addresses that begin with this.
    pub prefix: Option<String>,
    /// Only graph sources of this type.
    pub source_type: Option<String>,
    /// Only records in this state.
    pub state: Option<String>,
    /// Only retracted, or only live ones.
    pub retracted: Option<bool>,
    /// Whole records instead of summaries.
    pub full: bool,
    /// The maximum number.
    pub limit: Limit,
    /// The cursor of the page before.
    pub cursor: Option<Cursor>,
}

impl ListQuery {
    /// Returns the prefix that all addresses of the list share; `None` if name and prefix exclude each other.
    pub fn beginning(&self) -> Option<String> {
        let name = self.name.as_ref().map(|name| format!("{name}:")).unwrap_or_default();
        let prefix = self.prefix.clone().unwrap_or_default();
        match (name.starts_with(&prefix), prefix.starts_with(&name)) {
            (true, _) => Some(name),
            (false, true) => Some(prefix),
            (false, false) => None,
        }
    }
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Listed {
    /// The attributes of the record that the index carries.
    Summary(Summary),
    /// The whole record, as it was when the page was read.
    Full(Box<Record>),
}

impl Listed {
    /// Returns the address of the record.
    pub const fn address(&self) -> &Address {
        match self {
            Self::Summary(summary) => &summary.address,
            Self::Full(record) => &record.address,
        }
    }

    /// Returns the cursor of a page that ends with this entry.
    pub fn cursor(&self) -> Cursor {
        let (kind, address) = match self {
            Self::Summary(summary) => (summary.kind, &summary.address),
            Self::Full(record) => (record.kind, &record.address),
        };
        Cursor::after_row(kind, address.as_str())
    }
}

/// One page of many.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The entries of the page.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` at the end.
    pub cursor: Option<Cursor>,
}

/// The end of a page, as text that is opaque to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    #[serde(rename = "k")]
    pub(crate) kind: RecordKind,
    #[serde(rename = "a")]
    pub(crate) after: String,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub(crate) position: Option<u64>,
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub(crate) rank: Option<u16>,
    #[serde(rename = "o", default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_older: bool,
}

/// The error for text that is not a cursor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor was not issued by this service")]
pub struct InvalidCursor;

impl Cursor {
    /// Returns the cursor of a list: after the row with this key.
    pub fn after_row(kind: RecordKind, pk: &str) -> Self {
        Self { kind, after: pk.to_owned(), position: None, rank: None, is_older: false }
    }

    /// Returns the cursor of a search: after the hit with this rank.
    pub fn after_hit(kind: RecordKind, pk: &str, rank: u16) -> Self {
        Self { kind, after: pk.to_owned(), position: None, rank: Some(rank), is_older: false }
    }

    /// Returns the cursor of a snapshot that began at this position of the feed: after this record.
    pub fn in_snapshot(record: &Record, position: u64) -> Self {
        let after = record.address.as_str().to_owned();
        Self { kind: record.kind, after, position: Some(position), rank: None, is_older: false }
    }

    /// Sets whether the record is one of an older place. Those come first in a snapshot that includes them.
    #[must_use]
    pub const fn older(mut self, is_older: bool) -> Self {
        self.is_older = is_older;
        self
    }

    /// Returns whether the record is one of an older place.
    pub const fn is_older(&self) -> bool {
        self.is_older
    }

    /// Returns the same cursor after an earlier record of its page.
    #[must_use]
    pub fn back_at(&self, kind: RecordKind, address: &Address) -> Self {
        let after = address.as_str().to_owned();
        Self { kind, after, position: self.position, rank: self.rank, is_older: self.is_older }
    }

    /// Returns the kind that the list is at: graph sources come first, then ledgers.
    pub fn kind(&self) -> RecordKind {
        self.kind
    }

    /// Returns the address of the last record of the page.
    pub fn after(&self) -> &str {
        &self.after
    }

    /// Returns the position of the feed when the snapshot began.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// Returns the rank of the last hit of a page of a search; `None` for other cursors.
    pub fn rank(&self) -> Option<u16> {
        self.rank
    }

    /// Encodes the cursor as text for a query parameter.
    pub fn encode(&self) -> String {
        // Two strings and a number always have a JSON form.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Decodes that text.
    pub fn decode(text: &str) -> Result<Self, InvalidCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidCursor)?;
        let cursor: Self = serde_json::from_slice(&bytes).map_err(|_| InvalidCursor)?;
        // DynamoDB rejects keys outside these bounds.
        if cursor.after.is_empty() || cursor.after.len() > 1024 {
            return Err(InvalidCursor);
        }
        Ok(cursor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn limits_are_never_zero() {
        assert_eq!(Limit::new(0), Err(InvalidLimit));
        assert_eq!((Limit::default().get(), Limit::new(7).unwrap().get()), (100, 7));
    }

    proptest! {
        #[test]
        fn cursors_round_trip(
            after in "\\PC{1,40}",
            position in any::<Option<u64>>(),
            rank in any::<Option<u16>>(),
            is_older in any::<bool>(),
        ) {
            let cursor = Cursor { kind: RecordKind::Ledger, after, position, rank, is_older };
            prop_assert_eq!(Cursor::decode(&cursor.encode()), Ok(cursor));
        }

        #[test]
        fn other_text_is_rejected(text in any::<String>()) {
            prop_assert!(Cursor::decode(&text).is_err());
        }
    }
}
