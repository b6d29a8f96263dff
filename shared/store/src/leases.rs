//! Leases with fencing tokens (docs/specification.md, Leases): attributes of the status item that no status writer touches.

use nameservice_model::{
    Address, Call, ConcernKind, Error, Held, Lease, LeaseClaim, LeaseRequest, Leased, MAX_WATERMARK, Released, Result,
    StatusPayload, is_held_until,
};

use crate::{
    Store,
    client::{Attempts, Failed, MAX_PLANS, Outcome, Reject, contended, key_reused, limit_reached},
    concern::as_seen,
    expressions::{Expression, Key},
    items::{self, Item, number, string},
    push::shows_record,
    records::{Part, rejected_at},
    schema::*,
};

const ACQUIRE: &str = "acquire a lease";
const REFRESH: &str = "refresh a lease";
const RELEASE: &str = "release a lease";

impl Store {
    pub(crate) async fn acquire(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased> {
        let now = self.now_ms();
        let lease = Lease {
            name: request.name().clone(),
            holder: request.holder().to_owned(),
            target_t: request.target_t(),
            acquired_at: now.div_euclid(1000),
            expires_at: expiry(now, request.ttl_seconds()),
            refreshed_at: None,
        };
        let mut attempts = Attempts::default();
        let mut seen = None;
        for _ in 0..MAX_PLANS {
            let mut acquire = take(&lease, request, call, now, seen.as_ref());
            acquire.increment(ATTR_LEASE_TOKEN, 0, None);
            acquire.is_number(ATTR_LEASE_TOKEN);
            acquire.live();
            free_for(&mut acquire, seen.as_ref(), request.holder(), now);
            let item = match self.update(ACQUIRE, acquire, &status_key(address), &mut attempts).await? {
                Outcome::Applied(item) => return held(ACQUIRE, &item),
                Outcome::Rejected(item) => item.unwrap_or_default(),
            };
            if items::remembers(&item, &call.request_id) {
                return repeated(&item, call, ACQUIRE);
            }
            if items::reuses_key(&item, &call.request_id) {
                return Err(key_reused(ACQUIRE, attempts));
            }
            if items::flag(&item, ATTR_RETRACTED) {
                return attempts.reject(ACQUIRE, Leased::Retracted);
            }
            match items::lease(&item) {
                Some(there) if !is_free(&there, request.holder(), now) => {
                    return attempts.reject(ACQUIRE, Leased::Busy(there));
                }
                _ if let Some(counter) = at_limit(&item, &[ATTR_STATUS_V, ATTR_LEASE_TOKEN]) => {
                    return Err(limit_reached(ACQUIRE, counter, attempts));
                }
                _ if items::integer(&item, ATTR_LEASE_TOKEN).is_some() => seen = Some(item),
                _ => {
                    if let Some(leased) =
                        self.acquire_first(call, address, (request, &lease), &item, now, &mut attempts).await?
                    {
                        return Ok(leased);
                    }
                }
            }
        }
        Err(contended(ACQUIRE, attempts))
    }

    /// Acquires the first lease on a status item that is missing, or that we did not create. There may be no record, so
    /// a transaction checks the meta too. Returns `None` if something has changed meanwhile.
    async fn acquire_first(
        &self,
        call: &Call,
        address: &Address,
        (request, lease): (&LeaseRequest, &Lease),
        seen: &Item,
        now: i64,
        attempts: &mut Attempts,
    ) -> Result<Option<Leased>> {
        /// The first token of an item that has none.
        const FIRST: i64 = 1;
        let mut check = Expression::new();
        check.record_exists();
        check.live();
        let mut put = take(lease, request, call, now, Some(seen));
        put.set(ATTR_LEASE_TOKEN, number(FIRST));
        if seen.is_empty() {
            put.not_exists(ATTR_PK);
        } else {
            as_seen(&mut put, seen, &[ATTR_LEASE_TOKEN, ATTR_LEASE]);
            put.live();
        }
        let actions = vec![
            (Part::Meta, check.into_check(&Key::meta(address))),
            (Part::Concern(ConcernKind::Status), put.into_update(&status_key(address))),
        ];
        let failed = match self.transact(ACQUIRE, actions, attempts).await? {
            Outcome::Applied(()) => return Ok(Some(Leased::Held(Held { lease: lease.clone(), token: FIRST }))),
            Outcome::Rejected(failed) => failed,
        };
        match rejected_at(&failed, &Part::Meta) {
            Some(Failed(Some(meta))) if items::flag(meta, ATTR_RETRACTED) && items::kind(meta).is_some() => {
                attempts.reject(ACQUIRE, Some(Leased::Retracted))
            }
            Some(_) => attempts.reject(ACQUIRE, Some(Leased::Unknown)),
            None => Ok(None),
        }
    }

    pub(crate) async fn refresh(
        &self,
        call: &Call,
        address: &Address,
        request: &LeaseRequest,
        token: i64,
    ) -> Result<Leased> {
        let now = self.now_ms();
        let claim = request.claim(token);
        let mut attempts = Attempts::default();
        let mut seen: Option<Item> = None;
        for _ in 0..MAX_PLANS {
            let mut refresh = Expression::new();
            refresh.live();
            refresh.lease_is(&claim);
            refresh.set_member(ATTR_LEASE, MEMBER_LEASE_EXPIRES_AT, number(expiry(now, request.ttl_seconds())));
            refresh.set_member(ATTR_LEASE, MEMBER_LEASE_REFRESHED_AT, number(now.div_euclid(1000)));
            if let Some(t) = request.target_t() {
                refresh.set_member(ATTR_LEASE, MEMBER_LEASE_TARGET_T, number(t));
            }
            put_meta(&mut refresh, request);
            refresh.increment(ATTR_STATUS_V, 1, seen.as_ref());
            refresh.by_call(&call.request_id);
            refresh.touch(now);
            let item = match self.update(REFRESH, refresh, &status_key(address), &mut attempts).await? {
                // A lease that others have damaged is as this call knows it.
                Outcome::Applied(item) => {
                    return Ok(Leased::Held(items::held(&item).unwrap_or_else(|| Held {
                        lease: Lease {
                            name: claim.name,
                            holder: claim.holder,
                            target_t: request.target_t(),
                            acquired_at: now.div_euclid(1000),
                            expires_at: expiry(now, request.ttl_seconds()),
                            refreshed_at: Some(now.div_euclid(1000)),
                        },
                        token,
                    })));
                }
                Outcome::Rejected(Some(item)) if shows_record(&item) => item,
                Outcome::Rejected(_) => {
                    return match self.look_up(REFRESH, address, &mut attempts).await?.meta() {
                        Some((meta, _)) if items::flag(meta, ATTR_RETRACTED) => {
                            attempts.reject(REFRESH, Leased::Retracted)
                        }
                        Some(_) => attempts.reject(REFRESH, Leased::Lost { lease: None }),
                        None => attempts.reject(REFRESH, Leased::Unknown),
                    };
                }
            };
            if items::remembers(&item, &call.request_id) {
                return match items::held(&item) {
                    // No matter who has written since: the lease is as this call left it, or was extended further.
                    Some(held) if held.token == token => Ok(Leased::Held(held)),
                    _ => repeated(&item, call, REFRESH),
                };
            }
            if items::reuses_key(&item, &call.request_id) {
                return Err(key_reused(REFRESH, attempts));
            }
            if items::flag(&item, ATTR_RETRACTED) {
                return attempts.reject(REFRESH, Leased::Retracted);
            }
            if !claims(&item, &claim) {
                return attempts.reject(REFRESH, Leased::Lost { lease: items::lease(&item) });
            }
            if let Some(counter) = at_limit(&item, &[ATTR_STATUS_V]) {
                return Err(limit_reached(REFRESH, counter, attempts));
            }
            seen = Some(item);
        }
        Err(contended(REFRESH, attempts))
    }

    /// Releases a lease. The state becomes `ready` if it is still the one of the lease. The first request expects that;
    /// the item that its rejection returns shows whether a second request may leave the state alone.
    pub(crate) async fn release(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released> {
        let now = self.now_ms();
        let mut attempts = Attempts::default();
        let mut seen: Option<Item> = None;
        for _ in 0..MAX_PLANS {
            let mut release = Expression::new();
            release.live();
            release.lease_is(claim);
            release.remove(ATTR_LEASE);
            match seen.as_ref().filter(|item| items::text(item, ATTR_STATUS) != Some(claim.name.state())) {
                Some(item) => as_seen(&mut release, item, &[ATTR_STATUS]),
                None => {
                    release.equals(ATTR_STATUS, string(claim.name.state()));
                    release.set(ATTR_STATUS, string(StatusPayload::READY));
                }
            }
            release.increment(ATTR_STATUS_V, 1, seen.as_ref());
            release.by_call(&call.request_id);
            release.touch(now);
            let item = match self.update(RELEASE, release, &status_key(address), &mut attempts).await? {
                Outcome::Applied(_) => return Ok(Released::Released),
                Outcome::Rejected(Some(item)) if shows_record(&item) => item,
                Outcome::Rejected(_) => {
                    return match self.look_up(RELEASE, address, &mut attempts).await?.meta() {
                        Some((meta, _)) if items::flag(meta, ATTR_RETRACTED) => {
                            attempts.reject(RELEASE, Released::Retracted)
                        }
                        Some(_) => attempts.reject(RELEASE, Released::Lost { lease: None }),
                        None => attempts.reject(RELEASE, Released::Unknown),
                    };
                }
            };
            if items::remembers(&item, &call.request_id) {
                return Ok(Released::Released);
            }
            if items::reuses_key(&item, &call.request_id) {
                return Err(key_reused(RELEASE, attempts));
            }
            if items::flag(&item, ATTR_RETRACTED) {
                return attempts.reject(RELEASE, Released::Retracted);
            }
            if !claims(&item, claim) {
                return attempts.reject(RELEASE, Released::Lost { lease: items::lease(&item) });
            }
            if let Some(counter) = at_limit(&item, &[ATTR_STATUS_V]) {
                return Err(limit_reached(RELEASE, counter, attempts));
            }
            seen = Some(item);
        }
        Err(contended(RELEASE, attempts))
    }
}

fn status_key(address: &Address) -> Key {
    Key::new(address, sk_of(ConcernKind::Status))
}

/// Returns the update that takes a lease and shows it in the state. The caller sets the token.
fn take(lease: &Lease, request: &LeaseRequest, call: &Call, now: i64, seen: Option<&Item>) -> Expression {
    let mut take = Expression::new();
    take.set(ATTR_LEASE, items::lease_attribute(lease));
    take.set(ATTR_STATUS, string(lease.name.state()));
    put_meta(&mut take, request);
    // A row without a counter reads as v 1.
    take.increment(ATTR_STATUS_V, 1, seen);
    take.by_call(&call.request_id);
    take.touch(now);
    take
}

/// Sets the status's metadata if the request has any.
fn put_meta(expression: &mut Expression, request: &LeaseRequest) {
    if let Some(meta) = request.meta() {
        expression.put(ATTR_STATUS_META, (!meta.is_empty()).then(|| items::map(meta)));
    }
}

/// Adds the condition that the lease is free. A lease attribute that cannot be read as a lease counts as free: it
/// cannot be claimed, and the next token fences off its writer. This is known only if the item was seen.
fn free_for(expression: &mut Expression, seen: Option<&Item>, holder: &str, now: i64) {
    match seen.filter(|item| items::present(item, ATTR_LEASE).is_some() && items::lease(item).is_none()) {
        Some(item) => as_seen(expression, item, &[ATTR_LEASE]),
        None => expression.lease_is_free_for(holder, now.div_euclid(1000)),
    }
}

/// Returns the same for a lease that was read.
fn is_free(lease: &Lease, holder: &str, now: i64) -> bool {
    !is_held_until(lease.expires_at, now.div_euclid(1000)) || lease.holder == holder
}

/// Returns when a lease ends, in whole seconds, rounded up so that it never ends early.
fn expiry(now_ms: i64, ttl_seconds: u32) -> i64 {
    -(-now_ms).div_euclid(1000) + i64::from(ttl_seconds)
}

/// Returns whether a claim matches the lease on a status item, expired or not.
fn claims(item: &Item, claim: &LeaseClaim) -> bool {
    items::held(item).is_some_and(|held| {
        held.token == claim.token && held.lease.name == claim.name && held.lease.holder == claim.holder
    })
}

/// Returns the first of these counters that cannot grow.
fn at_limit(item: &Item, counters: &[&'static str]) -> Option<&'static str> {
    counters.iter().copied().find(|counter| items::integer(item, counter).is_some_and(|n| n >= MAX_WATERMARK))
}

fn held(operation: &'static str, item: &Item) -> Result<Leased> {
    items::held(item).map(Leased::Held).ok_or_else(|| unreadable(operation))
}

/// Returns the outcome of a call that the item remembers. The item's token is the one that this call was given only if
/// no other call has written since.
fn repeated(item: &Item, call: &Call, operation: &'static str) -> Result<Leased> {
    match items::held(item).filter(|_| items::written_last_by(item, &call.request_id)) {
        Some(held) => Ok(Leased::Held(held)),
        None => Err(unreadable(operation)),
    }
}

/// Returns the error for a lease that this call has written, and that others have changed since.
fn unreadable(operation: &'static str) -> Error {
    Error::OutcomeUnknown { operation, source: Some("the lease is not as this call left it".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_never_ends_early() {
        assert_eq!(expiry(5_000, 1), 6);
        assert_eq!(expiry(5_001, 1), 7);
        assert_eq!(expiry(5_999, 300), 306);
    }
}
