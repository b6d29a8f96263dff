//! A condition of a transaction.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The value that must be stored now.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Which concern.
    pub concern: ConcernName,
    /// Its value, as a push of that concern expects it.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub expected: Box<RawValue>,
}

/// One of the four concerns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ConcernName {
    /// Where the latest commit is.
    Head,
    /// Where the latest index is.
    Index,
    /// The state.
    Status,
    /// The configuration.
    Config,
}
