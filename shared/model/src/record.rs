use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{AsRefStr, Display, EnumString, IntoStaticStr};

use crate::{Address, Config, Head, Index, Status, UnknownName};

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

/// Everything that is stored under one address.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its identity.
    pub address: Address,
    /// What it describes.
    pub kind: RecordKind,
    /// Soft-deleted.
    pub retracted: bool,
    /// It cannot be retracted, purged or reset until the mark is removed.
    pub protected: bool,
    /// When it was created, if the row records it (Fluree's do not).
    pub created_at: Option<Timestamp>,
    /// When any of its items was last written; the epoch if no row records it.
    pub updated_at: Timestamp,
    /// The branch it was created from.
    pub source_branch: Option<String>,
    /// How many branches were created from it.
    pub branches: i64,
    /// How many records depend on it.
    pub dependents: i64,
    /// The type of a graph source, such as `f:Bm25Index`.
    pub source_type: Option<String>,
    /// What a graph source depends on, as stored.
    pub dependencies: Vec<String>,
    /// The latest commit; `None` for graph sources.
    pub head: Option<Head>,
    /// The latest index.
    pub index: Index,
    /// The state. A lease is shown inside its payload, under the lease's name.
    pub status: Status,
    /// The configuration.
    pub config: Config,
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
