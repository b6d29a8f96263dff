use serde::{Deserialize, Serialize};

/// The shortest lease, in seconds.
pub const MIN_TTL_SECONDS: u32 = 1;
/// The longest lease.
pub const MAX_TTL_SECONDS: u32 = 3_600;
/// The lease of those who name no duration.
pub const DEFAULT_TTL_SECONDS: u32 = 300;

/// The three things that a lease can be held for (seed 003).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LeaseName {
    /// Indexing: the state becomes `indexing`.
    #[serde(rename = "index_lock")]
    Index,
    /// Indexing from scratch: `reindexing`.
    #[serde(rename = "reindex_lock")]
    Reindex,
    /// Administration: `maintenance`.
    #[serde(rename = "maintenance_lock")]
    Maintenance,
}

impl LeaseName {
    /// All three.
    pub const ALL: [Self; 3] = [Self::Index, Self::Reindex, Self::Maintenance];

    /// The name in the table and on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Index => "index_lock",
            Self::Reindex => "reindex_lock",
            Self::Maintenance => "maintenance_lock",
        }
    }

    /// The lease of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lease| lease.as_str() == name)
    }

    /// The state of a record while the lease is held.
    pub const fn state(self) -> &'static str {
        match self {
            Self::Index => "indexing",
            Self::Reindex => "reindexing",
            Self::Maintenance => "maintenance",
        }
    }
}

/// A lease as it is stored. Times are epoch seconds of the service's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// What it is held for.
    pub name: LeaseName,
    /// Who holds it.
    pub holder: String,
    /// The `t` it is held for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_t: Option<i64>,
    /// Since when.
    pub acquired_at: i64,
    /// Until when, rounded up.
    pub expires_at: i64,
    /// When it was last refreshed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed_at: Option<i64>,
}

/// A lease and its fencing token: a number that only grows within one life of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The lease.
    pub lease: Lease,
    /// The token. A push that names it is refused once it is no longer the current one.
    pub token: i64,
}

/// What a push claims to hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseClaim {
    /// Which lease.
    pub name: LeaseName,
    /// Under which name.
    pub holder: String,
    /// By which token.
    pub token: i64,
}

/// What is asked of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Which lease.
    pub name: LeaseName,
    /// Under which name. Who holds it already under this name takes over from themselves.
    pub holder: String,
    /// For how long, from [`MIN_TTL_SECONDS`] to [`MAX_TTL_SECONDS`].
    pub ttl_seconds: u32,
    /// The `t` it is wanted for.
    pub target_t: Option<i64>,
}

/// The outcome of acquiring or refreshing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leased {
    /// Held now.
    Held(Held),
    /// Somebody else holds a lease of the record.
    Busy(Lease),
    /// Refreshing: the token is not the current one.
    Lost {
        /// The lease that is there instead.
        lease: Option<Lease>,
    },
    /// There is no such record.
    Unknown,
    /// The record is retracted.
    Retracted,
}

/// The outcome of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// Nobody holds it now; the state is `ready`.
    Released,
    /// The token is not the current one.
    Lost {
        /// The lease that is there instead.
        lease: Option<Lease>,
    },
    /// There is no such record.
    Unknown,
    /// The record is retracted.
    Retracted,
}
