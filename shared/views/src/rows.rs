//! Rows, their keys, and key values.

use std::{collections::HashSet, fmt};

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};
use nameservice_dynamo::{Description, Item, KeyType};
use serde::{Serialize, de::DeserializeOwned};

use crate::error::{Source, broken};

const WRITE: &str = "write a row as an item";
const READ: &str = "read an item as a row";

/// Converts a row to an item. It must serialize as a map.
pub fn to_item<T: Serialize + ?Sized>(row: &T) -> Result<Item, Source> {
    serde_dynamo::to_item(row).map_err(|error| broken(WRITE, error))
}

/// Converts an item to a row.
pub fn from_item<T: DeserializeOwned>(item: Item) -> Result<T, Source> {
    serde_dynamo::from_item(item).map_err(|error| broken(READ, error))
}

/// The primary key of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowKey {
    /// The value of the partition key.
    pub id: String,
    /// The value of the sort key, if the table has one.
    pub sort: Option<String>,
}

impl RowKey {
    /// Creates a key of a table without a sort key.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), sort: None }
    }

    /// Creates a key of a table with a sort key.
    pub fn sorted(id: impl Into<String>, sort: impl Into<String>) -> Self {
        Self { id: id.into(), sort: Some(sort.into()) }
    }

    /// Converts the key to the map that DynamoDB requires.
    pub(crate) fn item(&self, description: &Description) -> Result<Item, Source> {
        let mut item = Item::from([(description.partition_key.to_owned(), AttributeValue::S(self.id.clone()))]);
        match (description.sort_key, &self.sort) {
            (Some(attribute), Some(sort)) => {
                item.insert(attribute.to_owned(), AttributeValue::S(sort.clone()));
            }
            (None, None) => {}
            (Some(attribute), None) => return Err(broken("take a key", format!("the key lacks `{attribute}`"))),
            (None, Some(_)) => return Err(broken("take a key", "the table has no sort key")),
        }
        Ok(item)
    }

    /// Extracts the key of an item.
    pub(crate) fn of(item: &Item, description: &Description) -> Result<Self, Source> {
        let string = |attribute: &str| match item.get(attribute) {
            Some(AttributeValue::S(value)) if !value.is_empty() => Ok(value.clone()),
            _ => Err(broken(WRITE, format!("the row has no string `{attribute}`, which is its key"))),
        };
        Ok(Self { id: string(description.partition_key)?, sort: description.sort_key.map(string).transpose()? })
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sort {
            Some(sort) => write!(f, "{} {sort}", self.id),
            None => f.write_str(&self.id),
        }
    }
}

/// A value of a key of an index or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyValue {
    /// A string.
    S(String),
    /// A number, as digits.
    N(String),
    /// Bytes.
    B(Vec<u8>),
}

impl KeyValue {
    pub(crate) fn attribute(&self) -> AttributeValue {
        match self {
            Self::S(text) => AttributeValue::S(text.clone()),
            Self::N(digits) => AttributeValue::N(digits.clone()),
            Self::B(bytes) => AttributeValue::B(Blob::new(bytes.clone())),
        }
    }

    pub(crate) fn is_of(&self, key_type: KeyType) -> bool {
        matches!((self, key_type), (Self::S(_), KeyType::S) | (Self::N(_), KeyType::N) | (Self::B(_), KeyType::B))
    }
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::S(text) | Self::N(text) => f.write_str(text),
            Self::B(bytes) => write!(f, "{} bytes", bytes.len()),
        }
    }
}

impl From<&str> for KeyValue {
    fn from(text: &str) -> Self {
        Self::S(text.to_owned())
    }
}

impl From<String> for KeyValue {
    fn from(text: String) -> Self {
        Self::S(text)
    }
}

impl From<i64> for KeyValue {
    fn from(number: i64) -> Self {
        Self::N(number.to_string())
    }
}

impl From<Vec<u8>> for KeyValue {
    fn from(bytes: Vec<u8>) -> Self {
        Self::B(bytes)
    }
}

/// Returns whether two items are equal as DynamoDB stores them: numbers by value, sets without order.
pub(crate) fn same_item(a: &Item, b: &Item) -> bool {
    a.len() == b.len() && a.iter().all(|(name, value)| b.get(name).is_some_and(|other| same(value, other)))
}

fn same(a: &AttributeValue, b: &AttributeValue) -> bool {
    use AttributeValue::{Bs, L, M, N, Ns, Ss};
    match (a, b) {
        (N(a), N(b)) => same_number(a, b),
        (L(a), L(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (M(a), M(b)) => same_item(a, b),
        (Ss(a), Ss(b)) => a.iter().collect::<HashSet<_>>() == b.iter().collect(),
        (Ns(a), Ns(b)) => a.len() == b.len() && a.iter().all(|a| b.iter().any(|b| same_number(a, b))),
        (Bs(a), Bs(b)) => a.len() == b.len() && a.iter().all(|a| b.contains(a)),
        (a, b) => a == b,
    }
}

/// `1.50` is returned as `1.5`; long integers do not fit a float.
fn same_number(a: &str, b: &str) -> bool {
    match (a.parse::<i128>(), b.parse::<i128>()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b || matches!((a.parse::<f64>(), b.parse::<f64>()), (Ok(a), Ok(b)) if a == b),
    }
}
