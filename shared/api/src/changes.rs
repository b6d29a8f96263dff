//! The change feed on the wire: what lists, streams, histories and published messages carry.

pub use nameservice_model::ChangeKind;
use nameservice_model::{self as model, ChangePayload};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Kind, time::time_text};

/// The part of a record that changed: the record itself, or one of its concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangedPart {
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

/// One entry of the change feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Change {
    /// Its position in the feed: 1, 2, 3, … without a gap.
    pub position: u64,
    /// `name:branch`.
    pub address: String,
    /// What the record describes.
    pub kind: Kind,
    /// The part of the address before the `:`.
    pub name: String,
    /// The part of the address after the `:`.
    pub branch: String,
    /// The type of a graph source, such as `f:Bm25Index`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_type: Option<String>,
    /// The part of the record that changed.
    pub concern: ChangedPart,
    /// How it changed.
    pub change: ChangeKind,
    /// The watermark after the change; 0 for `meta`, and if no value is left.
    pub watermark: i64,
    /// The watermark before the change, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<i64>,
    /// The value after the change, secrets redacted: `{id, t}` for a head, `{id, t, rev, graphs?}` for an index, the
    /// payload of a status or a config, `{retracted, source_type?, dependencies?, source_branch?}` for `meta`. Absent if
    /// no value is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub payload: Option<Value>,
    /// Whether the payload was left out because it is larger than 16 KiB or cannot be read: read the record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub payload_omitted: bool,
    /// When the writer wrote it, RFC 3339 in UTC.
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub occurred_at: String,
    /// When it was appended to the feed, RFC 3339 in UTC.
    #[cfg_attr(feature = "openapi", schema(format = DateTime))]
    pub recorded_at: String,
}

/// A stretch of the feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Changes {
    /// The changes, in the order of the feed.
    pub changes: Vec<Change>,
    /// The feed was read up to this position: send it as `after` to continue.
    pub position: u64,
}

/// The order of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum HistoryOrder {
    /// The oldest change first.
    #[default]
    Oldest,
    /// The newest change first.
    Newest,
}

/// The changes of one record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    /// The changes, in the requested order.
    pub changes: Vec<Change>,
    /// Send it as `after` (with `order=newest`, as `before`) to continue; absent if nothing more follows yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

impl From<&model::Change> for Change {
    fn from(change: &model::Change) -> Self {
        let (payload, payload_omitted) = match &change.payload {
            ChangePayload::None => (None, false),
            ChangePayload::Value(value) => (Some(value.clone()), false),
            ChangePayload::Omitted => (None, true),
        };
        Self {
            position: change.position,
            address: change.address.as_str().to_owned(),
            kind: change.identity.kind,
            name: change.address.name().to_owned(),
            branch: change.address.branch().to_owned(),
            source_type: change.identity.source_type.clone(),
            concern: change.part.into(),
            change: change.kind,
            watermark: change.watermark,
            previous: change.previous,
            payload,
            payload_omitted,
            occurred_at: time_text(change.occurred_at),
            recorded_at: time_text(change.recorded_at),
        }
    }
}

impl From<model::ChangedPart> for ChangedPart {
    fn from(part: model::ChangedPart) -> Self {
        match part {
            model::ChangedPart::Meta => Self::Meta,
            model::ChangedPart::Concern(model::ConcernKind::Head) => Self::Head,
            model::ChangedPart::Concern(model::ConcernKind::Index) => Self::Index,
            model::ChangedPart::Concern(model::ConcernKind::Status) => Self::Status,
            model::ChangedPart::Concern(model::ConcernKind::Config) => Self::Config,
        }
    }
}

impl From<ChangedPart> for model::ChangedPart {
    fn from(part: ChangedPart) -> Self {
        match part {
            ChangedPart::Meta => Self::Meta,
            ChangedPart::Head => Self::Concern(model::ConcernKind::Head),
            ChangedPart::Index => Self::Concern(model::ConcernKind::Index),
            ChangedPart::Status => Self::Concern(model::ConcernKind::Status),
            ChangedPart::Config => Self::Concern(model::ConcernKind::Config),
        }
    }
}
