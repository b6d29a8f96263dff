//! Leases with fencing tokens: who holds one, what its holder may do, and what no other client may.

mod holders;
mod pushes;

use std::time::Duration;

use nameservice_tests::prelude::*;

use super::{Fixture, every_backend, found};

const DB: &str = "mydb:main";

fn wanted(holder: &str) -> LeaseRequest {
    index_lock(holder, 300)
}

fn for_seconds(holder: &str, ttl_seconds: u32) -> LeaseRequest {
    index_lock(holder, ttl_seconds)
}

fn claim(holder: &str, token: i64) -> LeaseClaim {
    claim_of(LeaseName::INDEX, holder, token)
}

fn under<E, N>(claim: &LeaseClaim, push: Push<E, N>) -> Push<E, N> {
    push.under(claim.clone()).unwrap()
}

async fn acquire(ns: &Fixture, holder: &str) -> Leased {
    ns.acquire_lease(&Call::fresh(), &at(DB), &wanted(holder)).await.unwrap()
}

async fn held(ns: &Fixture, holder: &str) -> Held {
    match acquire(ns, holder).await {
        Leased::Held(held) => held,
        other => panic!("{other:?}"),
    }
}

async fn refresh(ns: &Fixture, holder: &str, token: i64) -> Leased {
    ns.refresh_lease(&Call::fresh(), &at(DB), &wanted(holder), token).await.unwrap()
}

async fn release(ns: &Fixture, holder: &str, token: i64) -> Released {
    ns.release_lease(&Call::fresh(), &at(DB), &claim(holder, token)).await.unwrap()
}

async fn status_of(ns: &Fixture) -> (i64, String) {
    let status = ns.status(&at(DB)).await.unwrap().unwrap();
    (status.v, status.payload.unwrap().state)
}

/// A ledger with a head at 1.
async fn ledger(ns: &Fixture) {
    ns.create_ledger(&Call::fresh(), &at(DB), Some(&new_head(1)), None).await.unwrap().applied();
}

/// Lets the current lease expire.
fn expire(ns: &Fixture) {
    ns.clock.advance(Duration::from_secs(3_601));
}

/// The current lease, as the status shows it.
async fn shown(ns: &Fixture) -> Option<Value> {
    let payload = ns.status(&at(DB)).await.unwrap().unwrap().payload.unwrap();
    payload.meta.get("index_lock").cloned()
}

#[every_backend(Leases)]
async fn the_first_to_ask_holds_it_and_the_record_shows_it(ns: &Fixture) {
    ledger(ns).await;
    let request = wanted("one").with_target_t(42).unwrap();
    let outcome = ns.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap();
    let Leased::Held(held) = outcome else { panic!("{outcome:?}") };
    assert_eq!((held.token, &*held.lease.holder, held.lease.target_t), (1, "one", Some(42)));
    assert_eq!(held.lease.acquired_at, ns.clock.epoch_seconds());
    assert!((300..=301).contains(&(held.lease.expires_at - held.lease.acquired_at)), "{held:?}");
    let status = ns.status(&at(DB)).await.unwrap().unwrap();
    let payload = status.payload.unwrap();
    assert_eq!((status.v, &*payload.state), (2, "indexing"));
    let shown = json!({
        "holder": "one", "target_t": 42, "acquired_at": held.lease.acquired_at, "expires_at": held.lease.expires_at,
    });
    assert_eq!(payload.meta["index_lock"], shown);
}

#[every_backend(Leases)]
async fn each_lease_sets_its_state_and_all_three_are_one_lease(ns: &Fixture) {
    ledger(ns).await;
    for (i, (name, state)) in
        [(LeaseName::INDEX, "indexing"), (LeaseName::REINDEX, "reindexing"), (LeaseName::MAINTENANCE, "maintenance")]
            .into_iter()
            .enumerate()
    {
        let request = LeaseRequest::new(name.clone(), "one").unwrap();
        // The same holder under another lease name: it takes over from itself.
        let outcome = ns.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap();
        let Leased::Held(held) = outcome else { panic!("{outcome:?}") };
        assert_eq!((held.token, &held.lease.name), (i as i64 + 1, &name));
        assert_eq!(status_of(ns).await, (i as i64 + 2, state.to_owned()));
        for other in LeaseName::KNOWN {
            let request = LeaseRequest::new(other.clone(), "two").unwrap();
            let outcome = ns.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap();
            assert_eq!(outcome, Leased::Busy(held.lease.clone()), "{other:?}");
        }
    }
}

#[every_backend(Leases)]
async fn an_expired_lease_is_taken_over_and_lost_to_whoever_had_it(ns: &Fixture) {
    ledger(ns).await;
    let one = held(ns, "one").await;
    expire(ns);
    let two = held(ns, "two").await;
    assert_eq!((one.token, two.token), (1, 2));
    let lost = Some(two.lease.clone());
    assert_eq!(refresh(ns, "one", 1).await, Leased::Lost { lease: lost.clone() });
    assert_eq!(release(ns, "one", 1).await, Released::Lost { lease: lost });
    assert_eq!(status_of(ns).await, (3, "indexing".into()));
    assert!(matches!(refresh(ns, "two", 2).await, Leased::Held(_)));
}

#[every_backend(Leases)]
async fn a_restarted_holder_takes_over_from_itself_under_the_next_token(ns: &Fixture) {
    ledger(ns).await;
    assert_eq!(held(ns, "one").await.token, 1);
    let again = held(ns, "one").await;
    assert_eq!(again.token, 2);
    assert_eq!(refresh(ns, "one", 1).await, Leased::Lost { lease: Some(again.lease) });
}

#[every_backend(Leases)]
async fn a_refresh_extends_and_keeps_the_token(ns: &Fixture) {
    ledger(ns).await;
    let request = for_seconds("one", 10).with_target_t(7).unwrap();
    let outcome = ns.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap();
    let Leased::Held(taken) = outcome else { panic!("{outcome:?}") };
    let Leased::Held(extended) = refresh(ns, "one", 1).await else { panic!("not held") };
    assert_eq!((extended.token, extended.lease.acquired_at), (1, taken.lease.acquired_at));
    assert_eq!(extended.lease.target_t, Some(7), "what is not named stays");
    assert!(extended.lease.refreshed_at.is_some() && extended.lease.expires_at >= taken.lease.expires_at + 289);
    assert_eq!(status_of(ns).await, (3, "indexing".into()));
    let request = wanted("one").with_target_t(9).unwrap();
    let outcome = ns.refresh_lease(&Call::fresh(), &at(DB), &request, 1).await.unwrap();
    assert!(matches!(&outcome, Leased::Held(held) if held.lease.target_t == Some(9)), "{outcome:?}");
}

#[every_backend(Leases)]
async fn a_lease_that_has_expired_and_is_nobody_elses_can_be_extended(ns: &Fixture) {
    ledger(ns).await;
    held(ns, "one").await;
    expire(ns);
    assert!(matches!(refresh(ns, "one", 1).await, Leased::Held(Held { token: 1, .. })));
    assert!(matches!(acquire(ns, "two").await, Leased::Busy(_)));
}

#[every_backend(Leases)]
async fn another_name_holder_or_token_extends_and_releases_nothing(ns: &Fixture) {
    ledger(ns).await;
    let there = held(ns, "one").await.lease;
    let before = found(ns, &at(DB)).await;
    for (name, holder, token) in
        [(LeaseName::REINDEX, "one", 1), (LeaseName::INDEX, "two", 1), (LeaseName::INDEX, "one", 2)]
    {
        let (request, claim) = (LeaseRequest::new(name.clone(), holder).unwrap(), claim_of(name, holder, token));
        let outcome = ns.refresh_lease(&Call::fresh(), &at(DB), &request, token).await.unwrap();
        assert_eq!(outcome, Leased::Lost { lease: Some(there.clone()) });
        let outcome = ns.release_lease(&Call::fresh(), &at(DB), &claim).await.unwrap();
        assert_eq!(outcome, Released::Lost { lease: Some(there.clone()) });
    }
    assert_eq!(found(ns, &at(DB)).await, before);
}

#[every_backend(Leases)]
async fn a_released_lease_is_free_and_its_token_is_spent(ns: &Fixture) {
    ledger(ns).await;
    held(ns, "one").await;
    assert_eq!(release(ns, "one", 1).await, Released::Released);
    assert_eq!(status_of(ns).await, (3, "ready".into()));
    assert_eq!(shown(ns).await, None);
    assert_eq!(release(ns, "one", 1).await, Released::Lost { lease: None });
    assert_eq!(refresh(ns, "one", 1).await, Leased::Lost { lease: None });
    assert_eq!(status_of(ns).await, (3, "ready".into()));
    assert_eq!(held(ns, "two").await.token, 2);
}

#[every_backend(Leases)]
async fn an_unknown_record_has_no_lease_and_gets_none(ns: &Fixture) {
    assert_eq!(acquire(ns, "one").await, Leased::Unknown);
    assert_eq!(refresh(ns, "one", 1).await, Leased::Unknown);
    assert_eq!(release(ns, "one", 1).await, Released::Unknown);
    assert_eq!(ns.lookup(&at(DB)).await.unwrap(), None);
}

#[every_backend(Leases)]
async fn retracting_and_restoring_leave_the_lease_and_its_token_alone(ns: &Fixture) {
    ledger(ns).await;
    held(ns, "one").await;
    let before = shown(ns).await;
    ns.retract(&Call::fresh(), &at(DB), None).await.unwrap().applied();
    assert_eq!(shown(ns).await, before);
    assert_eq!(acquire(ns, "two").await, Leased::Retracted);
    assert_eq!(refresh(ns, "one", 1).await, Leased::Retracted);
    assert_eq!(release(ns, "one", 1).await, Released::Retracted);
    let pushed = under(&claim("one", 1), older(head(2)));
    assert_eq!(ns.push_head(&Call::fresh(), &at(DB), &pushed).await.unwrap(), PushOutcome::Retracted);
    ns.restore(&Call::fresh(), &at(DB)).await.unwrap().applied();
    assert_eq!(shown(ns).await, before);
    assert_eq!(status_of(ns).await, (4, "ready".into()));
    assert!(matches!(refresh(ns, "one", 1).await, Leased::Held(_)));
    assert_eq!(ns.push_head(&Call::fresh(), &at(DB), &pushed).await.unwrap(), updated(head(2)));
}

#[every_backend(Leases)]
async fn status_pushes_of_others_leave_the_lease_and_its_token_alone(ns: &Fixture) {
    ledger(ns).await;
    held(ns, "one").await;
    let before = shown(ns).await;
    let ours = cas(Status::stored(2, None), status_with(3, "busy", json!({ "progress": 1 })));
    ns.push_status(&Call::fresh(), &at(DB), &ours).await.unwrap().applied();
    assert_eq!(shown(ns).await, before);
    assert!(matches!(acquire(ns, "two").await, Leased::Busy(_)));
    let pushed = under(&claim("one", 1), older(head(2)));
    assert_eq!(ns.push_head(&Call::fresh(), &at(DB), &pushed).await.unwrap(), updated(head(2)));
    assert!(matches!(refresh(ns, "one", 1).await, Leased::Held(Held { token: 1, .. })));
    assert_eq!(status_of(ns).await, (4, "busy".into()));
    assert_eq!(release(ns, "one", 1).await, Released::Released);
    assert_eq!(status_of(ns).await, (5, "busy".into()), "a state that others wrote stays");
    let payload = ns.status(&at(DB)).await.unwrap().unwrap().payload.unwrap();
    assert_eq!(payload.meta["progress"], json!(1), "a lease does not remove metadata that others wrote");
}

#[every_backend(Leases)]
async fn a_release_keeps_a_state_that_others_wrote_meanwhile(ns: &Fixture) {
    ledger(ns).await;
    held(ns, "one").await;
    let failed = cas(Status::stored(2, None), status(3, "error"));
    ns.push_status(&Call::fresh(), &at(DB), &failed).await.unwrap().applied();
    assert_eq!(release(ns, "one", 1).await, Released::Released);
    assert_eq!(status_of(ns).await, (4, "error".into()));
    assert_eq!(shown(ns).await, None);
}

#[every_backend(Leases)]
async fn a_lease_may_have_any_name_and_sets_a_state_of_that_name(ns: &Fixture) {
    ledger(ns).await;
    for (token, (name, state)) in
        (1..).zip([("migration_lock", "migrating"), ("vacuum_lock", "vacuum"), ("backup", "backup")])
    {
        let name = LeaseName::parse(name).unwrap();
        let request = LeaseRequest::new(name.clone(), "one").unwrap();
        ns.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap().applied();
        assert_eq!(status_of(ns).await.1, state);
        let claim = claim_of(name, "one", token);
        assert_eq!(ns.release_lease(&Call::fresh(), &at(DB), &claim).await.unwrap(), Released::Released);
        assert_eq!(status_of(ns).await.1, "ready");
    }
}

#[every_backend(Leases)]
async fn a_call_that_arrives_twice_takes_extends_and_releases_once(ns: &Fixture) {
    ledger(ns).await;
    let (take, extend, give) = (Call::fresh(), Call::fresh(), Call::fresh());
    let held = ns.acquire_lease(&take, &at(DB), &wanted("one")).await.unwrap();
    assert_eq!(ns.acquire_lease(&take, &at(DB), &wanted("one")).await.unwrap(), held);
    let extended = ns.refresh_lease(&extend, &at(DB), &wanted("one"), 1).await.unwrap();
    assert_eq!(ns.refresh_lease(&extend, &at(DB), &wanted("one"), 1).await.unwrap(), extended);
    assert_eq!(status_of(ns).await.0, 3);
    for _ in 0..2 {
        assert_eq!(ns.release_lease(&give, &at(DB), &claim("one", 1)).await.unwrap(), Released::Released);
    }
    assert_eq!(status_of(ns).await, (4, "ready".into()));
}

#[every_backend(Leases)]
async fn a_purged_record_begins_again_and_its_leases_with_it(ns: &Fixture) {
    ledger(ns).await;
    held(ns, "one").await;
    assert_eq!(ns.purge(&Call::fresh(), &at(DB)).await.unwrap(), Purged::Purged);
    assert_eq!(refresh(ns, "one", 1).await, Leased::Unknown);
    ns.create_ledger(&Call::fresh(), &at(DB), None, None).await.unwrap().applied();
    assert_eq!(shown(ns).await, None);
    assert_eq!(held(ns, "two").await.token, 1);
}
