use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{InvalidPayload, Object, StatusPayload, check_object, check_watermark};

/// The shortest lease, in seconds.
pub const MIN_TTL_SECONDS: u32 = 1;
/// The longest lease, in seconds.
pub const MAX_TTL_SECONDS: u32 = 3_600;
/// How much longer than the longest lease an expiry may lie ahead, in seconds: what a clock is set back by usually.
const MAX_AHEAD_SECONDS: i64 = 60;
/// The default lease, in seconds.
pub const DEFAULT_TTL_SECONDS: u32 = 300;
/// The longest name of a lease, in bytes.
pub const MAX_LEASE_NAME_BYTES: usize = 64;
/// The longest name of a holder, in bytes.
pub const MAX_HOLDER_BYTES: usize = 256;

/// The suffix that marks a member of a status as a lease.
const LOCK_SUFFIX: &str = "_lock";

/// The name of a lease: 1 to 64 letters `a` to `z`, digits and `_`.
///
/// A record has at most one lease at a time, whatever its name. The name says which state the record is in while the
/// lease is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct LeaseName(Cow<'static, str>);

/// The error for text that is not the name of a lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not the name of a lease: {reason}")]
pub struct InvalidLeaseName {
    name: String,
    reason: String,
}

impl LeaseName {
    /// `index_lock`: indexing; the state becomes `indexing`.
    pub const INDEX: Self = Self(Cow::Borrowed("index_lock"));
    /// `reindex_lock`: indexing from scratch; the state becomes `reindexing`.
    pub const REINDEX: Self = Self(Cow::Borrowed("reindex_lock"));
    /// `maintenance_lock`: administration; the state becomes `maintenance`.
    pub const MAINTENANCE: Self = Self(Cow::Borrowed("maintenance_lock"));
    /// `migration_lock`: moving data; the state becomes `migrating`.
    pub const MIGRATION: Self = Self(Cow::Borrowed("migration_lock"));
    /// The names that have a state of their own.
    pub const KNOWN: [Self; 4] = [Self::INDEX, Self::REINDEX, Self::MAINTENANCE, Self::MIGRATION];

    /// Parses a name. One whose state would be `ready` or `retracted` is an error: those have another meaning.
    pub fn parse(name: &str) -> Result<Self, InvalidLeaseName> {
        let invalid = |reason: String| Err(InvalidLeaseName { name: name.chars().take(80).collect(), reason });
        if name.is_empty() || name.len() > MAX_LEASE_NAME_BYTES {
            return invalid(format!("it must have 1 to {MAX_LEASE_NAME_BYTES} characters"));
        }
        if !name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_')) {
            return invalid("it may contain only a-z, 0-9 and `_`".into());
        }
        let name = Self(Cow::Owned(name.to_owned()));
        match name.state() {
            state @ (StatusPayload::READY | StatusPayload::RETRACTED) => {
                invalid(format!("the state `{state}` is reserved"))
            }
            // A member of this name would hide the state itself.
            _ if name.as_str() == StatusPayload::STATE => invalid("the name `state` is reserved".into()),
            _ => Ok(name),
        }
    }

    /// Returns the name in the table and in JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the state of a record while the lease is held: a fixed word for the known leases, the name without a
    /// trailing `_lock` for others.
    pub fn state(&self) -> &str {
        match self.as_str() {
            "index_lock" => "indexing",
            "reindex_lock" => "reindexing",
            "maintenance_lock" => "maintenance",
            "migration_lock" => "migrating",
            name => name.strip_suffix(LOCK_SUFFIX).filter(|state| !state.is_empty()).unwrap_or(name),
        }
    }
}

/// Returns whether a member of a status is a lease: its name ends in `_lock`, or its value has the shape of a lease.
pub fn is_lease_member(name: &str, value: &Value) -> bool {
    name.ends_with(LOCK_SUFFIX)
        || (LeaseName::parse(name).is_ok()
            && value["holder"].is_string()
            && value["acquired_at"].is_i64()
            && value["expires_at"].is_i64())
}

impl fmt::Display for LeaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for LeaseName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl FromStr for LeaseName {
    type Err = InvalidLeaseName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::parse(name)
    }
}

impl TryFrom<String> for LeaseName {
    type Error = InvalidLeaseName;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::parse(&name)
    }
}

impl<'de> Deserialize<'de> for LeaseName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(&name).map_err(serde::de::Error::custom)
    }
}

/// A lease as it is stored. Times are epoch seconds of the service's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The name of the lease.
    pub name: LeaseName,
    /// The holder.
    pub holder: String,
    /// The `t` that the holder works towards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_t: Option<i64>,
    /// When it was acquired.
    pub acquired_at: i64,
    /// When it expires, rounded up.
    pub expires_at: i64,
    /// When it was last refreshed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refreshed_at: Option<i64>,
}

/// Returns whether an expiry keeps others from the lease at a time, both in epoch seconds. An expiry that is further
/// ahead than the longest lease was set before the clock was set back: it holds nothing.
pub const fn is_held_until(expires_at: i64, now: i64) -> bool {
    expires_at > now && expires_at <= last_expiry(now)
}

/// Returns the latest expiry that holds a lease at a time: see [`is_held_until`].
pub const fn last_expiry(now: i64) -> i64 {
    now.saturating_add(MAX_TTL_SECONDS as i64 + MAX_AHEAD_SECONDS)
}

/// A lease and its fencing token: a number that only grows within one life of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The lease.
    pub lease: Lease,
    /// The token. A push that claims it is rejected once it is no longer the current one.
    pub token: i64,
}

/// The lease that a push, or the release of a lease, claims to hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LeaseClaim {
    /// The name of the lease.
    pub name: LeaseName,
    /// The holder.
    pub holder: String,
    /// The token that came with it.
    pub token: i64,
}

impl LeaseClaim {
    /// Returns a claim. The token is 1 or greater, the holder is not blank.
    pub fn new(name: LeaseName, holder: impl Into<String>, token: i64) -> Result<Self, InvalidPayload> {
        let holder = checked_holder(holder.into())?;
        Ok(Self { name, holder, token: check_watermark("token", token, 1)? })
    }
}

/// A request to acquire or to refresh a lease.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseRequest {
    name: LeaseName,
    holder: String,
    ttl_seconds: u32,
    target_t: Option<i64>,
    meta: Option<Object>,
}

impl LeaseRequest {
    /// Returns a request for a lease of [`DEFAULT_TTL_SECONDS`]. A holder that already has the lease takes it over from
    /// itself.
    pub fn new(name: LeaseName, holder: impl Into<String>) -> Result<Self, InvalidPayload> {
        let holder = checked_holder(holder.into())?;
        Ok(Self { name, holder, ttl_seconds: DEFAULT_TTL_SECONDS, target_t: None, meta: None })
    }

    /// Sets the duration, from [`MIN_TTL_SECONDS`] to [`MAX_TTL_SECONDS`].
    pub fn with_ttl_seconds(mut self, seconds: u32) -> Result<Self, InvalidPayload> {
        if !(MIN_TTL_SECONDS..=MAX_TTL_SECONDS).contains(&seconds) {
            let reason = format!("must be {MIN_TTL_SECONDS} to {MAX_TTL_SECONDS}");
            return Err(InvalidPayload::new("ttl_seconds", reason));
        }
        self.ttl_seconds = seconds;
        Ok(self)
    }

    /// Sets the `t` that the holder works towards, 0 or greater.
    pub fn with_target_t(mut self, t: i64) -> Result<Self, InvalidPayload> {
        self.target_t = Some(check_watermark("target_t", t, 0)?);
        Ok(self)
    }

    /// Sets new metadata for the status, such as `progress`. The same write replaces the status's metadata with it.
    pub fn with_meta(mut self, meta: Object) -> Result<Self, InvalidPayload> {
        StatusPayload::check_meta(&meta).and_then(|()| check_object(&meta)).map_err(|error| error.within("meta"))?;
        self.meta = Some(meta);
        Ok(self)
    }

    /// Returns the name of the lease.
    pub const fn name(&self) -> &LeaseName {
        &self.name
    }

    /// Returns the holder.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Returns the duration.
    pub const fn ttl_seconds(&self) -> u32 {
        self.ttl_seconds
    }

    /// Returns the `t` that the holder works towards.
    pub const fn target_t(&self) -> Option<i64> {
        self.target_t
    }

    /// Returns the new metadata of the status; `None` leaves it unchanged.
    pub const fn meta(&self) -> Option<&Object> {
        self.meta.as_ref()
    }

    /// Returns the claim to this lease with the token that was granted.
    pub fn claim(&self, token: i64) -> LeaseClaim {
        LeaseClaim { name: self.name.clone(), holder: self.holder.clone(), token }
    }
}

fn checked_holder(holder: String) -> Result<String, InvalidPayload> {
    if holder.trim().is_empty() {
        return Err(InvalidPayload::new("holder", "is blank"));
    }
    if holder.len() > MAX_HOLDER_BYTES {
        let reason = format!("has {} bytes, {MAX_HOLDER_BYTES} are allowed", holder.len());
        return Err(InvalidPayload::new("holder", reason));
    }
    Ok(holder)
}

/// The outcome of acquiring or refreshing a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Leased {
    /// The lease is held.
    Held(Held),
    /// Another holder has a lease of the record.
    Busy(Lease),
    /// Refreshing: the token is not the current one.
    Lost {
        /// The current lease, if there is one.
        lease: Option<Lease>,
    },
    /// There is no such record.
    Unknown,
    /// The record is retracted.
    Retracted,
}

/// The outcome of releasing a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Released {
    /// The record no longer has a lease. Its state is `ready`, unless another one was written while the lease was held.
    Released,
    /// The token is not the current one.
    Lost {
        /// The current lease, if there is one.
        lease: Option<Lease>,
    },
    /// There is no such record.
    Unknown,
    /// The record is retracted.
    Retracted,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_expiry_that_no_lease_can_have_holds_nothing() {
        let longest = i64::from(MAX_TTL_SECONDS);
        for (expires_at, is_held) in [
            (99, false),
            (100, false),
            (101, true),
            (101 + longest, true),
            (100 + longest + MAX_AHEAD_SECONDS, true),
            (101 + longest + MAX_AHEAD_SECONDS, false),
            (i64::MAX, false),
            (i64::MIN, false),
        ] {
            assert_eq!(is_held_until(expires_at, 100), is_held, "{expires_at}");
        }
        assert!(!is_held_until(i64::MAX, i64::MIN));
    }

    #[test]
    fn a_lease_has_any_plain_name_and_a_state() {
        for (name, state) in [
            ("index_lock", "indexing"),
            ("reindex_lock", "reindexing"),
            ("maintenance_lock", "maintenance"),
            ("migration_lock", "migrating"),
            ("compaction_lock", "compaction"),
            ("backup", "backup"),
            ("_lock", "_lock"),
        ] {
            let name: LeaseName = name.parse().unwrap();
            assert_eq!(name.state(), state);
            assert_eq!(serde_json::from_value::<LeaseName>(json!(name)).unwrap(), name);
        }
        for name in LeaseName::KNOWN {
            assert_eq!(LeaseName::parse(name.as_str()).unwrap(), name);
        }
        for name in ["", "Index", "a-b", "a b", "ä", "ready", "ready_lock", "retracted", "retracted_lock", "state"] {
            assert!(LeaseName::parse(name).is_err(), "{name}");
        }
        assert!(LeaseName::parse(&"a".repeat(64)).is_ok() && LeaseName::parse(&"a".repeat(65)).is_err());
    }

    #[test]
    fn leases_are_recognised_among_the_members_of_a_status() {
        let lease = json!({"holder": "h", "acquired_at": 1, "expires_at": 2});
        assert!(is_lease_member("index_lock", &json!(1)) && is_lease_member("backup", &lease));
        assert!(!is_lease_member("backup", &json!({"holder": "h"})) && !is_lease_member("Back-up", &lease));
        assert!(!is_lease_member("progress", &json!(0.5)));
    }

    #[test]
    fn requests_have_bounds() {
        let request = || LeaseRequest::new(LeaseName::INDEX, "i1").unwrap();
        assert!(LeaseRequest::new(LeaseName::INDEX, " ").is_err());
        assert!(LeaseRequest::new(LeaseName::INDEX, "h".repeat(257)).is_err());
        assert!(request().with_ttl_seconds(0).is_err() && request().with_ttl_seconds(3_601).is_err());
        assert!(request().with_ttl_seconds(1).is_ok() && request().with_ttl_seconds(3_600).is_ok());
        assert!(request().with_target_t(-1).is_err());
        let meta = json!({"progress": 0.5}).as_object().unwrap().clone();
        assert!(request().with_meta(meta).is_ok());
        let meta = json!({"index_lock": {}}).as_object().unwrap().clone();
        assert_eq!(request().with_meta(meta).unwrap_err().path, "meta.index_lock");
        assert!(LeaseClaim::new(LeaseName::INDEX, "i1", 0).is_err());
    }
}
