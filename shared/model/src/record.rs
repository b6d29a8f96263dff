use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr};

use crate::{
    Address, Config, Head, Index, NewConfig, NewHead, Object, Status, UnknownName,
    attributes::{Attributable, record},
};

/// What a record describes.
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
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Kind))]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownName, parse_err_fn = Self::unknown)]
pub enum RecordKind {
    /// A ledger: commits, indexes, named graphs.
    Ledger,
    /// Anything else that can be queried as a graph: BM25, vectors, Iceberg, R2RML, JDBC, …
    GraphSource,
}

impl RecordKind {
    /// Both, in the order in which lists return them.
    pub const ALL: [Self; 2] = [Self::GraphSource, Self::Ledger];

    /// Returns the name in the table and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    fn unknown(name: &str) -> UnknownName {
        UnknownName::new("kind of record", name, Self::ALL.map(Self::as_str))
    }
}

record! {
    /// Everything that is stored under one address.
    record {
        /// Its identity.
        address: Address,
        /// What it describes.
        kind: RecordKind,
        /// Soft-deleted.
        retracted: bool,
        /// When it was created, if the row records it (Fluree's do not).
        created_at: Option<Timestamp>,
        /// When any of its items was last written; the epoch if no row records it.
        updated_at: Timestamp,
        /// How many branches were created from it.
        branches: i64,
        /// How many records depend on it.
        dependents: i64,
        /// The latest commit; `None` for graph sources.
        head: Option<Head>,
        /// The latest index.
        index: Index,
        /// The state. A lease is shown inside its payload, under the lease's name.
        status: Status,
        /// The configuration.
        config: Config,
    }
    attributes {
        /// It cannot be retracted, purged or reset until the mark is removed.
        Protected => protected: bool,
        /// The type of a graph source, such as `f:Bm25Index`.
        SourceType => source_type: Option<String>,
        /// What a graph source depends on, as stored.
        Dependencies => dependencies: Vec<String>,
        /// The branch it was created from.
        SourceBranch => source_branch: Option<String>,
    }
}

impl RecordAttributes {
    /// Returns the attributes that say something, as they are stored and shown in changes: one that is absent says nothing.
    /// A graph source that has a type shows what it depends on even if that is nothing.
    pub fn shown(&self) -> impl Iterator<Item = (RecordAttribute, Value)> {
        RecordAttribute::ALL.iter().filter_map(|attribute| {
            let value = match attribute {
                RecordAttribute::Dependencies if self.source_type.is_some() => Some(self.dependencies.clone().into()),
                attribute => self.get(*attribute),
            };
            Some((*attribute, value?))
        })
    }

    /// Returns what a change of the meta of a record shows: `{retracted, protected?, source_type?, dependencies?,
    /// source_branch?}`.
    pub fn change_payload(&self, retracted: bool) -> Value {
        let mut payload = json!({ "retracted": retracted });
        for (attribute, value) in self.shown() {
            payload[attribute.as_str()] = value;
        }
        payload
    }

    /// Reads what a change of a meta shows.
    pub fn of_change(payload: &Object) -> Self {
        let mut attributes = Self::default();
        for attribute in RecordAttribute::ALL {
            if let Some(value) = payload.get(attribute.as_str()) {
                attributes.set(*attribute, value.clone());
            }
        }
        attributes
    }
}

/// A ledger to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct NewLedger {
    /// Its address.
    pub address: Address,
    /// The head that it begins with.
    pub head: Option<NewHead>,
    /// The config that it begins with.
    pub config: Option<NewConfig>,
}

impl NewLedger {
    /// Returns a ledger without data.
    pub const fn at(address: Address) -> Self {
        Self { address, head: None, config: None }
    }

    /// Returns a ledger at the address of another one and with its attributes, as far as a caller can choose them.
    pub fn like(record: &Record) -> Self {
        Self::at(record.address.clone())
    }

    /// Returns the attributes that it begins with: so far, there is none that a caller can choose.
    pub fn attributes(&self) -> RecordAttributes {
        RecordAttributes::default()
    }
}

impl Record {
    /// Returns the `t` of its head; 0 without a commit, and for a graph source.
    pub fn t(&self) -> i64 {
        self.head.as_ref().map_or(0, Head::t)
    }

    /// Returns its state.
    pub fn state(&self) -> Option<&str> {
        self.status.state()
    }
}

/// What a list shows of a record without reading it: the attributes that the indexes carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its identity.
    pub address: Address,
    /// What it describes.
    pub kind: RecordKind,
    /// Soft-deleted.
    pub retracted: bool,
    /// The type of a graph source.
    pub source_type: Option<String>,
    /// What a graph source depends on.
    pub dependencies: Vec<String>,
}

impl From<&Record> for Summary {
    fn from(record: &Record) -> Self {
        Self {
            address: record.address.clone(),
            kind: record.kind,
            retracted: record.retracted,
            source_type: record.source_type.clone(),
            dependencies: record.dependencies.clone(),
        }
    }
}
