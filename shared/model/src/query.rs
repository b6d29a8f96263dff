use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::{Address, Record, RecordKind, Summary};

/// Tells which addresses the caller may see.
pub type Visible<'a> = &'a (dyn Fn(&Address) -> bool + Send + Sync);

/// Which records a list shall hold.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    /// Only this kind.
    pub kind: Option<RecordKind>,
    /// Only the branches of this name.
    pub name: Option<String>,
    /// Only graph sources of this type.
    pub source_type: Option<String>,
    /// Only records in this state.
    pub state: Option<String>,
    /// Only retracted, or only live ones.
    pub retracted: Option<bool>,
    /// Whole records instead of summaries.
    pub full: bool,
    /// How many at most, 1 or more.
    pub limit: usize,
    /// Where the last page ended.
    pub cursor: Option<Cursor>,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Listed {
    /// What the index tells.
    Summary(Summary),
    /// The whole record, as it stood when the page was read.
    Full(Box<Record>),
}

impl Listed {
    /// Where a page that ends with this entry goes on.
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
    /// What the page holds.
    pub items: Vec<T>,
    /// Where to go on; `None` at the end.
    pub cursor: Option<Cursor>,
}

/// Where a page ended: opaque text to those who carry it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    #[serde(rename = "k", with = "kind_name")]
    pub(crate) kind: RecordKind,
    #[serde(rename = "a")]
    pub(crate) after: String,
    #[serde(rename = "p", default, skip_serializing_if = "Option::is_none")]
    pub(crate) position: Option<u64>,
}

/// A text that no page has handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not one that this service gave")]
pub struct InvalidCursor;

impl Cursor {
    /// A cursor of a list: after the row of this key.
    pub fn after_row(kind: RecordKind, pk: &str) -> Self {
        Self { kind, after: pk.to_owned(), position: None }
    }

    /// A cursor of a snapshot: after this record, begun at this position of the feed.
    pub fn in_snapshot(record: &Record, position: u64) -> Self {
        Self { kind: record.kind, after: record.address.as_str().to_owned(), position: Some(position) }
    }

    /// In which run of a list (graph sources, then ledgers) it stands.
    pub fn kind(&self) -> RecordKind {
        self.kind
    }

    /// The address of the last record of the page.
    pub fn after(&self) -> &str {
        &self.after
    }

    /// The position of the feed when the snapshot began.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// As text for a query parameter.
    pub fn encode(&self) -> String {
        // Two strings and a number always have a JSON form.
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// From that text.
    pub fn decode(text: &str) -> Result<Self, InvalidCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidCursor)?;
        let cursor: Self = serde_json::from_slice(&bytes).map_err(|_| InvalidCursor)?;
        // DynamoDB refuses keys outside these bounds.
        if cursor.after.is_empty() || cursor.after.len() > 1024 {
            return Err(InvalidCursor);
        }
        Ok(cursor)
    }
}

mod kind_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::RecordKind;

    pub(super) fn serialize<S: Serializer>(kind: &RecordKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(kind.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RecordKind, D::Error> {
        let name = String::deserialize(deserializer)?;
        RecordKind::from_name(&name).ok_or_else(|| D::Error::custom("no such kind"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn cursors_round_trip(after in "\\PC{1,40}", position in any::<Option<u64>>()) {
            let cursor = Cursor { kind: RecordKind::Ledger, after, position };
            prop_assert_eq!(Cursor::decode(&cursor.encode()), Ok(cursor));
        }

        #[test]
        fn other_text_is_refused(text in any::<String>()) {
            prop_assert!(Cursor::decode(&text).is_err());
        }
    }
}
