use jiff::Timestamp;
use nameservice_model::{Record, RecordKind, StatusPayload, is_lease_member};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::index;
use crate::{Projection, Row};

/// How many commits an index may be behind before it is due, if the configuration has no `index_threshold`.
pub const DEFAULT_INDEX_THRESHOLD: i64 = 1;

/// The read model of all records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Records;

/// The members of a record that lists need and whose changes are in the feed. The time of the last write is not one of them,
/// since a change of another record can move it, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRow {
    /// What it describes.
    pub kind: RecordKind,
    /// The part of the address before the `:`.
    pub name: String,
    /// The part of the address after the `:`.
    pub branch: String,
    /// Soft-deleted.
    pub retracted: bool,
    /// The branch it was created from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_branch: Option<String>,
    /// The type of a graph source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_type: Option<String>,
    /// What a graph source depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependencies: Vec<String>,
    /// The id of the latest commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_id: Option<String>,
    /// The `t` of the latest commit; 0 before the first, and for graph sources.
    pub commit_t: i64,
    /// The id of the latest index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_id: Option<String>,
    /// The `t` of the latest index; 0 before the first.
    pub index_t: i64,
    /// The state. (A row of another program may have an empty state, which cannot be a key of an index.)
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// The `v` of the status.
    pub status_v: i64,
    /// The `v` of the config.
    pub config_v: i64,
    /// The name of the lease, whether it has expired or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Who holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// When it expires, epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<i64>,
    /// How many commits the index may be behind: `index_threshold` of the config, or [`DEFAULT_INDEX_THRESHOLD`].
    pub index_threshold: i64,
    /// `index` if a live ledger's index is at least `index_threshold` commits behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Due>,
    /// When it was created, epoch milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<i64>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// An index.
    Index,
}

impl Due {
    /// Returns the name in the table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Index => "index",
        }
    }
}

impl Projection for Records {
    type Row = RecordRow;

    fn name(&self) -> &str {
        "records"
    }

    fn row(&self, record: &Record) -> Option<RecordRow> {
        let (commit_id, commit_t) = match &record.head {
            Some(head) => (head.payload.as_ref().map(|id| id.as_str().to_owned()), head.v),
            None => (None, 0),
        };
        let threshold = record.config.payload.as_ref().and_then(|config| config.get("index_threshold"));
        let index_threshold = threshold.and_then(Value::as_i64).filter(|n| *n > 0).unwrap_or(DEFAULT_INDEX_THRESHOLD);
        let is_due = record.kind == RecordKind::Ledger
            && !record.retracted
            && commit_t.saturating_sub(record.index.v) >= index_threshold;
        let status = record.status.payload.as_ref();
        let lease = status.and_then(|status| status.meta.iter().find(|(name, value)| is_lease_member(name, value)));
        let of_lease = |name: &str| lease.and_then(|(_, lease)| lease.get(name));
        Some(RecordRow {
            kind: record.kind,
            name: record.address.name().to_owned(),
            branch: record.address.branch().to_owned(),
            retracted: record.retracted,
            source_branch: record.source_branch.clone(),
            source_type: record.source_type.clone().filter(|name| !name.is_empty()),
            dependencies: record.dependencies.clone(),
            commit_id,
            commit_t,
            index_id: record.index.payload.as_ref().map(|root| root.id.as_str().to_owned()),
            index_t: record.index.v,
            state: status.map_or(StatusPayload::READY, |status| status.state.as_str()).to_owned(),
            status_v: record.status.v,
            config_v: record.config.v,
            lease: lease.map(|(name, _)| name.clone()),
            holder: of_lease("holder").and_then(Value::as_str).filter(|holder| !holder.is_empty()).map(str::to_owned),
            lease_expires_at: of_lease("expires_at").and_then(Value::as_i64),
            index_threshold,
            due: is_due.then_some(Due::Index),
            created_at: record.created_at.map(Timestamp::as_millisecond),
        })
    }
}

impl Row for RecordRow {
    fn keys(&self) -> Vec<(&'static str, String)> {
        let mut keys = vec![(index::BY_KIND, self.kind.as_str().to_owned()), (index::BY_STATE, self.state.clone())];
        keys.extend(self.source_type.clone().map(|source_type| (index::BY_TYPE, source_type)));
        keys.extend(self.holder.clone().map(|holder| (index::BY_HOLDER, holder)));
        keys.extend(self.due.map(|due| (index::BY_DUE, due.as_str().to_owned())));
        keys
    }
}
