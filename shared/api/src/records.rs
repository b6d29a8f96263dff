//! Records and their summaries, as JSON and as values of the model.

use nameservice_model::{self as model, ConcernKind, RecordKind};
use serde::{Deserialize, Serialize};

pub use nameservice_model::RecordKind as Kind;

use crate::{
    Config, Head, Index, Status,
    time::time_text,
    to_model::{InvalidAnswer, address, time},
};

/// Everything under one address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Record {
    /// `name:branch`.
    pub address: String,
    /// What it describes.
    pub kind: Kind,
    /// The part of the address before the `:`.
    pub name: String,
    /// The part of the address after the `:`.
    pub branch: String,
    /// Soft-deleted.
    pub retracted: bool,
    /// Present and true if the record cannot be retracted, purged or reset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(default = false))]
    pub protected: bool,
    /// When it was created, RFC 3339 in UTC; absent if Fluree has created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub created_at: Option<String>,
    /// When any of its items was last written, RFC 3339 in UTC.
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub updated_at: String,
    /// The branch it was created from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_branch: Option<String>,
    /// How many branches were created from it.
    pub branches: i64,
    /// How many graph sources depend on it.
    pub dependents: i64,
    /// The type of a graph source, such as `f:Bm25Index`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_type: Option<String>,
    /// What a graph source depends on; absent on ledgers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<Vec<String>>,
    /// The latest commit; absent on graph sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// The latest index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<Index>,
    /// The state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// The configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Config>,
}

/// A record in a list, without its concerns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Summary {
    /// `name:branch`.
    pub address: String,
    /// What it describes.
    pub kind: Kind,
    /// The part of the address before the `:`.
    pub name: String,
    /// The part of the address after the `:`.
    pub branch: String,
    /// Soft-deleted.
    pub retracted: bool,
    /// The type of a graph source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_type: Option<String>,
    /// What a graph source depends on; absent on ledgers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dependencies: Option<Vec<String>>,
}

/// An entry of a list: a summary, or the whole record if `view=full` asks for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Listed {
    /// `view=full`. The first variant, because they are tried in order and a record has all the members of a summary.
    Full(Box<Record>),
    /// `view=summary`
    Summary(Summary),
}

impl From<&model::Record> for Record {
    fn from(record: &model::Record) -> Self {
        let Summary { address, kind, name, branch, retracted, source_type, dependencies } =
            (&model::Summary::from(record)).into();
        Self {
            address,
            kind,
            name,
            branch,
            retracted,
            created_at: record.created_at.map(time_text),
            updated_at: time_text(record.updated_at),
            source_branch: record.source_branch.clone(),
            branches: record.branches,
            dependents: record.dependents,
            protected: record.protected,
            source_type,
            dependencies,
            head: record.head.clone().map(Head::from),
            index: Some(record.index.clone().into()),
            status: Some(record.status.clone().into()),
            config: Some(record.config.clone().into()),
        }
    }
}

impl Record {
    /// Keeps only these concerns.
    pub fn only(mut self, concerns: &[ConcernKind]) -> Self {
        let drop = |kind| !concerns.contains(&kind);
        if drop(ConcernKind::Head) {
            self.head = None;
        }
        if drop(ConcernKind::Index) {
            self.index = None;
        }
        if drop(ConcernKind::Status) {
            self.status = None;
        }
        if drop(ConcernKind::Config) {
            self.config = None;
        }
        self
    }
}

impl From<&model::Summary> for Summary {
    fn from(summary: &model::Summary) -> Self {
        Self {
            address: summary.address.as_str().into(),
            kind: summary.kind,
            name: summary.address.name().into(),
            branch: summary.address.branch().into(),
            retracted: summary.retracted,
            source_type: summary.source_type.clone(),
            dependencies: (summary.kind == RecordKind::GraphSource).then(|| summary.dependencies.clone()),
        }
    }
}

impl From<&model::Listed> for Listed {
    fn from(listed: &model::Listed) -> Self {
        match listed {
            model::Listed::Summary(summary) => Self::Summary(summary.into()),
            model::Listed::Full(record) => Self::Full(Box::new(record.as_ref().into())),
        }
    }
}

impl TryFrom<Record> for model::Record {
    type Error = InvalidAnswer;

    fn try_from(record: Record) -> Result<Self, InvalidAnswer> {
        let missing = |member| move || InvalidAnswer::new(member, "it is missing");
        Ok(Self {
            address: address(&record.address)?,
            kind: record.kind,
            retracted: record.retracted,
            created_at: record.created_at.map(|text| time("created_at", &text)).transpose()?,
            updated_at: time("updated_at", &record.updated_at)?,
            source_branch: record.source_branch,
            branches: record.branches,
            dependents: record.dependents,
            protected: record.protected,
            source_type: record.source_type,
            dependencies: record.dependencies.unwrap_or_default(),
            head: record.head.map(model::Head::try_from).transpose()?,
            index: record.index.ok_or_else(missing("index"))?.try_into()?,
            status: record.status.ok_or_else(missing("status"))?.try_into()?,
            config: record.config.ok_or_else(missing("config"))?.try_into()?,
        })
    }
}

impl TryFrom<Summary> for model::Summary {
    type Error = InvalidAnswer;

    fn try_from(summary: Summary) -> Result<Self, InvalidAnswer> {
        Ok(Self {
            address: address(&summary.address)?,
            kind: summary.kind,
            retracted: summary.retracted,
            source_type: summary.source_type,
            dependencies: summary.dependencies.unwrap_or_default(),
        })
    }
}
