//! Leases on the wire (contract §6). Times are epoch seconds of the service's clock, as in seed 003.

use nameservice_model::{
    self as model, DEFAULT_TTL_SECONDS, LeaseClaim, LeaseName, LeaseRequest, MAX_TTL_SECONDS, MIN_TTL_SECONDS,
};
use serde::{Deserialize, Serialize};

use crate::Invalid;

/// The longest name of a holder, in bytes.
const MAX_HOLDER_BYTES: usize = 256;

/// What a lease is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Name {
    /// Indexing.
    IndexLock,
    /// Indexing from scratch.
    ReindexLock,
    /// Administration.
    MaintenanceLock,
}

impl From<Name> for LeaseName {
    fn from(name: Name) -> Self {
        match name {
            Name::IndexLock => Self::Index,
            Name::ReindexLock => Self::Reindex,
            Name::MaintenanceLock => Self::Maintenance,
        }
    }
}

impl From<LeaseName> for Name {
    fn from(name: LeaseName) -> Self {
        match name {
            LeaseName::Index => Self::IndexLock,
            LeaseName::Reindex => Self::ReindexLock,
            LeaseName::Maintenance => Self::MaintenanceLock,
        }
    }
}

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    /// What it is held for.
    pub name: Name,
    /// Who holds it.
    pub holder: String,
    /// The `t` it is held for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_t: Option<i64>,
    /// Since when, epoch seconds.
    pub acquired_at: i64,
    /// Until when, epoch seconds.
    pub expires_at: i64,
    /// When it was last refreshed, epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed_at: Option<i64>,
}

impl From<model::Lease> for Lease {
    fn from(lease: model::Lease) -> Self {
        Self {
            name: lease.name.into(),
            holder: lease.holder,
            target_t: lease.target_t,
            acquired_at: lease.acquired_at,
            expires_at: lease.expires_at,
            refreshed_at: lease.refreshed_at,
        }
    }
}

/// A lease that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Held {
    /// The lease.
    pub lease: Lease,
    /// The fencing token: send it with every push, and with every refresh.
    pub token: i64,
}

impl From<model::Held> for Held {
    fn from(held: model::Held) -> Self {
        Self { lease: held.lease.into(), token: held.token }
    }
}

/// Takes a lease, or extends one.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Which lease.
    name: Name,
    /// Under which name. Who holds the lease under this name already takes over from themselves.
    #[cfg_attr(feature = "openapi", schema(example = "indexer-7f3a", max_length = 256))]
    holder: String,
    /// To extend a lease: its token. Left out, the lease is taken.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    token: Option<i64>,
    /// For how long.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 3600, default = 300))]
    ttl_seconds: Option<i64>,
    /// The `t` it is wanted for.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    target_t: Option<i64>,
}

impl Wanted {
    /// Checks it; gives the token of a lease to be extended.
    pub fn into_request(self) -> Result<(LeaseRequest, Option<i64>), Invalid> {
        let ttl = self.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS.into());
        let ttl_seconds = u32::try_from(ttl)
            .ok()
            .filter(|ttl| (MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(ttl))
            .ok_or_else(|| Invalid::body("ttl_seconds", format!("must be {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS}")))?;
        if self.target_t.is_some_and(|t| t < 0) {
            return Err(Invalid::body("target_t", "must be 0 or greater"));
        }
        if self.token.is_some_and(|token| token < 1) {
            return Err(Invalid::body("token", "must be 1 or greater"));
        }
        let holder = holder(self.holder).map_err(|reason| Invalid::body("holder", reason))?;
        let request = LeaseRequest { name: self.name.into(), holder, ttl_seconds, target_t: self.target_t };
        Ok((request, self.token))
    }
}

/// The lease that a push is made under.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Which lease.
    name: Name,
    /// Who holds it.
    holder: String,
    /// The token it was granted with.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    token: i64,
}

impl Claim {
    /// Checks it.
    pub fn into_claim(self, field: &str) -> Result<LeaseClaim, Invalid> {
        if self.token < 1 {
            return Err(Invalid::body(&format!("{field}.token"), "must be 1 or greater"));
        }
        let holder = holder(self.holder).map_err(|reason| Invalid::body(&format!("{field}.holder"), reason))?;
        Ok(LeaseClaim { name: self.name.into(), holder, token: self.token })
    }
}

/// The lease that is given back.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct Return {
    /// Which lease.
    #[cfg_attr(feature = "openapi", param(inline))]
    name: Name,
    /// Who holds it.
    holder: String,
    /// The token it was granted with.
    #[cfg_attr(feature = "openapi", param(minimum = 1))]
    token: i64,
}

impl Return {
    /// Checks it.
    pub fn into_claim(self) -> Result<LeaseClaim, Invalid> {
        if self.token < 1 {
            return Err(Invalid::parameter("token", "must be 1 or greater"));
        }
        let holder = holder(self.holder).map_err(|reason| Invalid::parameter("holder", reason))?;
        Ok(LeaseClaim { name: self.name.into(), holder, token: self.token })
    }
}

fn holder(holder: String) -> Result<String, String> {
    if holder.trim().is_empty() {
        return Err("is blank".into());
    }
    if holder.len() > MAX_HOLDER_BYTES {
        return Err(format!("has {} bytes, {MAX_HOLDER_BYTES} are allowed", holder.len()));
    }
    Ok(holder)
}
