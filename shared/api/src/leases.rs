//! Leases on the wire. Times are epoch seconds of the service's clock.

use nameservice_model::{
    self as model, DEFAULT_TTL_SECONDS, InvalidPayload, LeaseClaim, LeaseName, LeaseRequest, MAX_TTL_SECONDS,
    MIN_TTL_SECONDS, Object,
};
use serde::{Deserialize, Serialize};

use crate::Invalid;

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    /// The name of the lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^[a-z0-9_]{1,64}$", example = "index_lock"))]
    pub name: LeaseName,
    /// Who holds it.
    pub holder: String,
    /// The `t` that the holder works towards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_t: Option<i64>,
    /// When it was acquired, epoch seconds.
    pub acquired_at: i64,
    /// When it expires, epoch seconds.
    pub expires_at: i64,
    /// When it was last refreshed, epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed_at: Option<i64>,
}

impl From<model::Lease> for Lease {
    fn from(lease: model::Lease) -> Self {
        Self {
            name: lease.name,
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The name of the lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^[a-z0-9_]{1,64}$", example = "index_lock"))]
    pub name: LeaseName,
    /// The name of the holder. If a holder of this name already has the lease, it is taken over.
    #[cfg_attr(feature = "openapi", schema(example = "indexer-7f3a", max_length = 256))]
    pub holder: String,
    /// The token of the lease to extend; if left out, the lease is taken.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<i64>,
    /// How long the lease lasts, in seconds.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 3600, default = 300))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<i64>,
    /// The `t` that the holder works towards.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_t: Option<i64>,
    /// Metadata for the status, such as `progress`: the same write stores it in place of the status's current metadata.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Object>,
}

impl Wanted {
    /// Returns the request, and the token of a lease to be refreshed.
    pub fn into_request(self) -> Result<(LeaseRequest, Option<i64>), Invalid> {
        let ttl = self.ttl_seconds.unwrap_or(DEFAULT_TTL_SECONDS.into());
        let ttl = u32::try_from(ttl)
            .map_err(|_| Invalid::body("ttl_seconds", format!("must be {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS}")))?;
        let mut request = LeaseRequest::new(self.name, self.holder)?.with_ttl_seconds(ttl)?;
        if let Some(t) = self.target_t {
            request = request.with_target_t(t)?;
        }
        if let Some(meta) = self.meta {
            request = request.with_meta(meta)?;
        }
        if self.token.is_some_and(|token| token < 1) {
            return Err(Invalid::body("token", "must be 1 or greater"));
        }
        Ok((request, self.token))
    }
}

/// The lease that a push is made under.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The name of the lease.
    #[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^[a-z0-9_]{1,64}$", example = "index_lock"))]
    pub name: LeaseName,
    /// Who holds it.
    pub holder: String,
    /// The token it was granted with.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub token: i64,
}

impl Claim {
    /// Returns the claim. `field` is where it is in the body.
    pub fn into_claim(self, field: &str) -> Result<LeaseClaim, Invalid> {
        Ok(LeaseClaim::new(self.name, self.holder, self.token).map_err(|error| error.within(field))?)
    }
}

/// The lease to release.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct Return {
    /// The name of the lease.
    #[cfg_attr(feature = "openapi", param(value_type = String, pattern = "^[a-z0-9_]{1,64}$", example = "index_lock"))]
    pub name: LeaseName,
    /// Who holds it.
    pub holder: String,
    /// The token it was granted with.
    #[cfg_attr(feature = "openapi", param(minimum = 1))]
    pub token: i64,
}

impl Return {
    /// Returns the claim.
    pub fn into_claim(self) -> Result<LeaseClaim, Invalid> {
        let invalid = |error: InvalidPayload| Invalid::parameter(&error.path, error.reason);
        LeaseClaim::new(self.name, self.holder, self.token).map_err(invalid)
    }
}
