//! The lease of a record and its tokens (docs/specification.md, Leases), as a single caller sees them.

use serde_json::Value;

/// The names that clients use, and the state of a record while it is leased under them.
const NAMES: [(&str, &str); 3] =
    [("index_lock", "indexing"), ("reindex_lock", "reindexing"), ("maintenance_lock", "maintenance")];

/// The lease of a record, and the token of the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Fence {
    token: i64,
    lease: Option<Lease>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lease {
    name: String,
    holder: String,
    /// `None` if no answer shows it.
    expires_at: Option<i64>,
}

impl Lease {
    fn is_of(&self, holder: &Value) -> bool {
        *holder == self.holder
    }

    /// Returns whether it may be over at this second.
    fn is_over(&self, at: &Value) -> bool {
        self.expires_at.is_none_or(|end| at.as_i64().is_some_and(|at| at >= end))
    }

    /// The state that it sets.
    fn state(&self) -> &'static str {
        NAMES.iter().find(|(name, _)| *name == self.name).map_or("", |(_, state)| *state)
    }
}

/// Returns the payload of a status without the lease that it shows.
pub(super) fn without(payload: &Value) -> Value {
    let mut payload = payload.clone();
    if let Some(members) = payload.as_object_mut() {
        members.retain(|member, _| NAMES.iter().all(|(name, _)| *name != member.as_str()));
    }
    payload
}

impl Fence {
    pub(super) const fn next_token(&self) -> i64 {
        self.token + 1
    }

    /// Returns whether a claim names the current lease and its token.
    pub(super) fn is_current(&self, claim: &Value) -> bool {
        let names = |lease: &Lease| lease.is_of(&claim["holder"]) && claim["name"] == lease.name;
        claim["token"] == self.token && self.lease.as_ref().is_some_and(names)
    }

    /// Returns whether a holder may acquire the lease; `at` is the current second where the lease's end counts.
    pub(super) fn may_be_taken(&self, holder: &Value, at: Option<&Value>) -> bool {
        let is_free = |lease: &Lease| lease.is_of(holder) || at.is_some_and(|at| lease.is_over(at));
        self.lease.as_ref().is_none_or(is_free)
    }

    /// Returns whether an answer shows the current lease, or that there is none.
    pub(super) fn shows(&self, shown: &Value) -> bool {
        match &self.lease {
            Some(lease) => lease.is_of(&shown["holder"]) && shown["name"] == lease.name,
            None => shown.is_null(),
        }
    }

    /// Returns the same for a status that was read.
    pub(super) fn shows_in(&self, status: &Value) -> bool {
        let payload = &status["payload"];
        let shown = NAMES.iter().find(|(name, _)| payload.get(*name).is_some());
        match (shown, &self.lease) {
            (Some((name, _)), Some(lease)) => *name == lease.name && lease.is_of(&payload[*name]["holder"]),
            (None, None) => true,
            _ => false,
        }
    }

    /// Gives the lease to the holder that asks for it. Returns the state of the record.
    pub(super) fn acquire(&mut self, asked: &Value, expires_at: Option<i64>) -> &'static str {
        let named = |member: &str| asked[member].as_str().unwrap_or_default().to_owned();
        let lease = Lease { name: named("name"), holder: named("holder"), expires_at };
        let state = lease.state();
        *self = Self { token: self.next_token(), lease: Some(lease) };
        state
    }

    pub(super) fn refresh(&mut self, expires_at: Option<i64>) {
        if let Some(lease) = &mut self.lease {
            lease.expires_at = expires_at;
        }
    }

    /// Ends the lease. Returns the state that it had set.
    pub(super) fn release(&mut self) -> Option<&'static str> {
        Some(self.lease.take()?.state())
    }
}
