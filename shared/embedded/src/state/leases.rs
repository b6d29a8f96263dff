//! Leases with fencing tokens.

use std::sync::Arc;

use nameservice_model::{
    Address, ConcernKind, Error, Held, LeaseClaim, LeaseRequest, Leased, Released, Result, is_held_until,
};

use super::{
    Now, Record, Step, one_more, outcome_unknown,
    record::{LeaseItem, StatusItem},
    status::STATUS_V,
};

const ACQUIRE: &str = "acquire a lease";
const REFRESH: &str = "refresh a lease";
const RELEASE: &str = "release a lease";

impl Step<'_> {
    pub(super) fn acquire_lease(&mut self, address: &Address, request: &LeaseRequest) -> Result<Leased> {
        let Some(there) = self.get(address) else { return Ok(Leased::Unknown) };
        let status = &there.status;
        if status.calls.remembers(self.call) {
            return self.leased_before(status, ACQUIRE);
        }
        self.check_key(status.calls.knows_key_of(self.call), ACQUIRE)?;
        if there.retracted {
            return Ok(Leased::Retracted);
        }
        let is_free = |lease: &LeaseItem| {
            !is_held_until(lease.expires_at, self.now.seconds()) || *lease.holder == *request.holder()
        };
        if let Some(lease) = status.lease().filter(|_| status.lease.as_ref().is_some_and(|lease| !is_free(lease))) {
            return Ok(Leased::Busy(lease));
        }
        let mut record = Record::clone(&there);
        record.status.lease = Some(Arc::new(LeaseItem {
            name: Box::from(request.name().as_str()),
            holder: Box::from(request.holder()),
            target_t: request.target_t(),
            acquired_at: self.now.seconds(),
            expires_at: expiry(self.now, request.ttl_seconds()),
            refreshed_at: None,
        }));
        record.status.token = one_more("lease_token", record.status.token)?;
        record.status.set_state(request.name().state());
        self.put_status(record, request).map(Leased::Held)
    }

    pub(super) fn refresh_lease(&mut self, address: &Address, request: &LeaseRequest, token: i64) -> Result<Leased> {
        let Some(there) = self.get(address) else { return Ok(Leased::Unknown) };
        let status = &there.status;
        if status.calls.remembers(self.call) {
            return match status.held() {
                // No matter who has written since: the lease is as this call left it, or was extended further.
                Some(held) if held.token == token => Ok(Leased::Held(held)),
                _ => self.leased_before(status, REFRESH),
            };
        }
        self.check_key(status.calls.knows_key_of(self.call), REFRESH)?;
        if there.retracted {
            return Ok(Leased::Retracted);
        }
        let Some(lease) = status.lease.as_ref().filter(|_| claims(status, &request.claim(token))) else {
            return Ok(Leased::Lost { lease: status.lease() });
        };
        let mut lease = LeaseItem::clone(lease);
        lease.expires_at = expiry(self.now, request.ttl_seconds());
        lease.refreshed_at = Some(self.now.seconds());
        lease.target_t = request.target_t().or(lease.target_t);
        let mut record = Record::clone(&there);
        record.status.lease = Some(Arc::new(lease));
        self.put_status(record, request).map(Leased::Held)
    }

    pub(super) fn release_lease(&mut self, address: &Address, claim: &LeaseClaim) -> Result<Released> {
        let Some(there) = self.get(address) else { return Ok(Released::Unknown) };
        let status = &there.status;
        if status.calls.remembers(self.call) {
            return Ok(Released::Released);
        }
        self.check_key(status.calls.knows_key_of(self.call), RELEASE)?;
        if there.retracted {
            return Ok(Released::Retracted);
        }
        if !claims(status, claim) {
            return Ok(Released::Lost { lease: status.lease() });
        }
        let mut record = Record::clone(&there);
        record.status.lease = None;
        // A state that was written meanwhile, such as `error`, stays.
        if status.state() == claim.name.state() {
            record.status.state = None;
        }
        record.status.v = one_more(STATUS_V, record.status.v)?;
        self.remember(&mut record, ConcernKind::Status);
        self.put(record);
        Ok(Released::Released)
    }

    fn put_status(&mut self, mut record: Record, request: &LeaseRequest) -> Result<Held> {
        record.status.v = one_more(STATUS_V, record.status.v)?;
        if let Some(meta) = request.meta() {
            record.status.set_meta(meta);
        }
        self.remember(&mut record, ConcernKind::Status);
        held(&self.put(record).status)
    }

    /// Returns the outcome of a call that the status remembers. The status's token is the one that this call was given
    /// only if no other call has written since.
    fn leased_before(&self, status: &StatusItem, operation: &'static str) -> Result<Leased> {
        match status.calls.ends_with(self.call) {
            true => held(status).map(Leased::Held),
            false => Err(outcome_unknown(operation)),
        }
    }
}

/// Returns whether a claim matches the current lease, expired or not.
fn claims(status: &StatusItem, claim: &LeaseClaim) -> bool {
    status.token == claim.token
        && status
            .lease
            .as_ref()
            .is_some_and(|lease| *lease.name == *claim.name.as_str() && *lease.holder == *claim.holder)
}

fn held(status: &StatusItem) -> Result<Held> {
    let unreadable = || Error::Store { operation: ACQUIRE, source: "the status has no lease".into() };
    status.held().ok_or_else(unreadable)
}

/// Returns when a lease expires, in whole seconds, rounded up so that no holder loses part of a second.
fn expiry(now: Now, ttl_seconds: u32) -> i64 {
    let now = now.seconds().saturating_add(i64::from(now.ms.rem_euclid(1000) > 0));
    now.saturating_add(i64::from(ttl_seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_never_expires_early() {
        for (ms, ttl, expires_at) in [(5_000, 1, 6), (5_001, 1, 7), (5_999, 300, 306)] {
            assert_eq!(expiry(Now::from_millis(ms), ttl), expires_at);
        }
    }
}
