//! Leases with fencing tokens (contract §6): who holds one, what its holder may do, and what nobody else may.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use nameservice_store::{Ran, RetryPolicy};
use nameservice_tests::{cids::id_of, layout, prelude::*};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::sleep;

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

async fn acquire(store: &Store, holder: &str) -> Leased {
    store.acquire_lease(&Call::fresh(), &at(DB), &wanted(holder)).await.unwrap()
}

async fn held(store: &Store, holder: &str) -> Held {
    match acquire(store, holder).await {
        Leased::Held(held) => held,
        other => panic!("{other:?}"),
    }
}

async fn refresh(store: &Store, holder: &str, token: i64) -> Leased {
    store.refresh_lease(&Call::fresh(), &at(DB), &wanted(holder), token).await.unwrap()
}

async fn release(store: &Store, holder: &str, token: i64) -> Released {
    store.release_lease(&Call::fresh(), &at(DB), &claim(holder, token)).await.unwrap()
}

async fn status_of(store: &Store) -> (i64, String) {
    let status = store.status(&at(DB)).await.unwrap().unwrap();
    (status.v, status.payload.unwrap().state)
}

/// A ledger with a head at 1.
async fn ledger() -> Table {
    let table = Table::fresh().await;
    table.store.create_ledger(&Call::fresh(), &at(DB), Some(&new_head(1)), None).await.unwrap().applied();
    table
}

/// Lets the lease that is there end.
async fn expire(table: &Table) {
    let mut lease = table.row(DB, "status").await.unwrap()["lease"].clone();
    lease["M"]["expires_at"] = rows::n(1_700_000_000);
    table.set(DB, "status", "lease", lease).await;
}

async fn lease_and_token(table: &Table) -> (Option<Value>, Option<Value>) {
    let row = table.row(DB, "status").await.unwrap();
    (row.get("lease").cloned(), row.get("lease_token").cloned())
}

#[tokio::test]
async fn the_first_to_ask_holds_it_and_the_record_shows_it() {
    let table = ledger().await;
    let request = wanted("one").with_target_t(42).unwrap();
    let outcome = table.store.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap();
    let Leased::Held(held) = outcome else { panic!("{outcome:?}") };
    assert_eq!((held.token, &*held.lease.holder, held.lease.target_t), (1, "one", Some(42)));
    assert!((300..=301).contains(&(held.lease.expires_at - held.lease.acquired_at)), "{held:?}");
    let status = table.store.status(&at(DB)).await.unwrap().unwrap();
    let payload = status.payload.unwrap();
    assert_eq!((status.v, &*payload.state), (2, "indexing"));
    let shown = json!({
        "holder": "one", "target_t": 42, "acquired_at": held.lease.acquired_at, "expires_at": held.lease.expires_at,
    });
    assert_eq!(payload.meta["index_lock"], shown);
    layout::assert_ours(table.rows(DB).await.values());
}

#[tokio::test]
async fn each_lease_sets_its_state_and_all_three_are_one_lease() {
    let table = ledger().await;
    for (i, (name, state)) in
        [(LeaseName::INDEX, "indexing"), (LeaseName::REINDEX, "reindexing"), (LeaseName::MAINTENANCE, "maintenance")]
            .into_iter()
            .enumerate()
    {
        let request = LeaseRequest::new(name.clone(), "one").unwrap();
        // The same holder under another name: they take over from themselves.
        let outcome = table.store.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap();
        let Leased::Held(held) = outcome else { panic!("{outcome:?}") };
        assert_eq!((held.token, &held.lease.name), (i as i64 + 1, &name));
        assert_eq!(status_of(&table.store).await, (i as i64 + 2, state.to_owned()));
        for other in LeaseName::KNOWN {
            let request = LeaseRequest::new(other.clone(), "two").unwrap();
            let outcome = table.store.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap();
            assert_eq!(outcome, Leased::Busy(held.lease.clone()), "{other:?}");
        }
    }
}

#[tokio::test]
async fn an_expired_lease_is_taken_over_and_lost_to_whoever_had_it() {
    let table = ledger().await;
    let one = held(&table.store, "one").await;
    expire(&table).await;
    let two = held(&table.store, "two").await;
    assert_eq!((one.token, two.token), (1, 2));
    let lost = Some(two.lease.clone());
    assert_eq!(refresh(&table.store, "one", 1).await, Leased::Lost { lease: lost.clone() });
    assert_eq!(release(&table.store, "one", 1).await, Released::Lost { lease: lost });
    assert_eq!(status_of(&table.store).await, (3, "indexing".into()));
    assert!(matches!(refresh(&table.store, "two", 2).await, Leased::Held(_)));
}

#[tokio::test]
async fn a_restarted_holder_takes_over_from_itself_under_the_next_token() {
    let table = ledger().await;
    assert_eq!(held(&table.store, "one").await.token, 1);
    let again = held(&table.store, "one").await;
    assert_eq!(again.token, 2);
    assert_eq!(refresh(&table.store, "one", 1).await, Leased::Lost { lease: Some(again.lease) });
}

#[tokio::test]
async fn a_refresh_extends_and_keeps_the_token() {
    let table = ledger().await;
    let request = for_seconds("one", 10).with_target_t(7).unwrap();
    let outcome = table.store.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap();
    let Leased::Held(taken) = outcome else { panic!("{outcome:?}") };
    let Leased::Held(extended) = refresh(&table.store, "one", 1).await else { panic!("not held") };
    assert_eq!((extended.token, extended.lease.acquired_at), (1, taken.lease.acquired_at));
    assert_eq!(extended.lease.target_t, Some(7), "what is not named stays");
    assert!(extended.lease.refreshed_at.is_some() && extended.lease.expires_at >= taken.lease.expires_at + 289);
    assert_eq!(status_of(&table.store).await, (3, "indexing".into()));
    let request = wanted("one").with_target_t(9).unwrap();
    let outcome = table.store.refresh_lease(&Call::fresh(), &at(DB), &request, 1).await.unwrap();
    assert!(matches!(&outcome, Leased::Held(held) if held.lease.target_t == Some(9)), "{outcome:?}");
    layout::assert_ours(table.rows(DB).await.values());
}

#[tokio::test]
async fn a_lease_that_has_expired_and_is_nobody_elses_can_be_extended() {
    let table = ledger().await;
    held(&table.store, "one").await;
    expire(&table).await;
    assert!(matches!(refresh(&table.store, "one", 1).await, Leased::Held(Held { token: 1, .. })));
    assert!(matches!(acquire(&table.store, "two").await, Leased::Busy(_)));
}

#[tokio::test]
async fn another_name_holder_or_token_extends_and_releases_nothing() {
    let table = ledger().await;
    let there = held(&table.store, "one").await.lease;
    let before = table.row(DB, "status").await;
    for (name, holder, token) in
        [(LeaseName::REINDEX, "one", 1), (LeaseName::INDEX, "two", 1), (LeaseName::INDEX, "one", 2)]
    {
        let (request, claim) = (LeaseRequest::new(name.clone(), holder).unwrap(), claim_of(name, holder, token));
        let outcome = table.store.refresh_lease(&Call::fresh(), &at(DB), &request, token).await.unwrap();
        assert_eq!(outcome, Leased::Lost { lease: Some(there.clone()) });
        let outcome = table.store.release_lease(&Call::fresh(), &at(DB), &claim).await.unwrap();
        assert_eq!(outcome, Released::Lost { lease: Some(there.clone()) });
    }
    assert_eq!(table.row(DB, "status").await, before);
}

#[tokio::test]
async fn a_released_lease_is_free_and_its_token_is_spent() {
    let table = ledger().await;
    held(&table.store, "one").await;
    assert_eq!(release(&table.store, "one", 1).await, Released::Released);
    assert_eq!(status_of(&table.store).await, (3, "ready".into()));
    assert_eq!(lease_and_token(&table).await, (None, Some(rows::n(1))));
    assert_eq!(release(&table.store, "one", 1).await, Released::Lost { lease: None });
    assert_eq!(refresh(&table.store, "one", 1).await, Leased::Lost { lease: None });
    assert_eq!(status_of(&table.store).await, (3, "ready".into()));
    assert_eq!(held(&table.store, "two").await.token, 2);
}

#[tokio::test]
async fn a_release_leaves_a_state_alone_that_is_no_longer_the_leases() {
    let table = ledger().await.proxied().await;
    let store = &table.store;
    held(store, "one").await;
    let failed = cas(Status::stored(2, None), status_with(3, "error", json!({ "error": "disk full" })));
    store.push_status(&Call::fresh(), &at(DB), &failed).await.unwrap().applied();
    table.proxy.take_operations();
    assert_eq!(release(store, "one", 1).await, Released::Released);
    assert_eq!(table.proxy.take_operations(), ["UpdateItem"; 2], "a second request where the state is another");
    assert_eq!(status_of(store).await, (4, "error".into()));
    let payload = store.status(&at(DB)).await.unwrap().unwrap().payload.unwrap();
    assert_eq!(payload.meta, object(json!({ "error": "disk full" })));
    // Where it is still the lease's, one request is enough.
    held(store, "two").await;
    table.proxy.take_operations();
    assert_eq!(release(store, "two", 2).await, Released::Released);
    assert_eq!(table.proxy.take_operations(), ["UpdateItem"]);
    assert_eq!(status_of(store).await, (6, "ready".into()));
}

#[tokio::test]
async fn a_lease_may_have_any_name_and_carry_metadata() {
    let table = ledger().await.proxied().await;
    let store = &table.store;
    let name = LeaseName::parse("compaction_lock").unwrap();
    let request = LeaseRequest::new(name.clone(), "one").unwrap();
    store.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap().applied();
    assert_eq!(status_of(store).await, (2, "compaction".into()));
    table.proxy.take_operations();
    let progress = request.clone().with_meta(object(json!({ "progress": 0.5 }))).unwrap();
    store.refresh_lease(&Call::fresh(), &at(DB), &progress, 1).await.unwrap().applied();
    assert_eq!(table.proxy.take_operations(), ["UpdateItem"]);
    let payload = store.status(&at(DB)).await.unwrap().unwrap().payload.unwrap();
    assert_eq!((&payload.meta["progress"], &payload.meta["compaction_lock"]["holder"]), (&json!(0.5), &json!("one")));
    // A refresh without metadata leaves it.
    store.refresh_lease(&Call::fresh(), &at(DB), &request, 1).await.unwrap().applied();
    let payload = store.status(&at(DB)).await.unwrap().unwrap().payload.unwrap();
    assert_eq!(payload.meta["progress"], json!(0.5));
    // What was read with its lease can be expected.
    let read = store.status(&at(DB)).await.unwrap().unwrap();
    store.push_status(&Call::fresh(), &at(DB), &cas(read, status(5, "compaction"))).await.unwrap().applied();
    let claim = claim_of(name, "one", 1);
    store.release_lease(&Call::fresh(), &at(DB), &claim).await.unwrap().applied();
    assert_eq!(status_of(store).await, (6, "ready".into()));
    let migration = LeaseRequest::new(LeaseName::MIGRATION, "one").unwrap();
    store.acquire_lease(&Call::fresh(), &at(DB), &migration).await.unwrap().applied();
    assert_eq!(status_of(store).await, (7, "migrating".into()));
}

#[tokio::test]
async fn an_unknown_record_has_no_lease_and_gets_none() {
    let table = Table::fresh().await;
    assert_eq!(acquire(&table.store, "one").await, Leased::Unknown);
    assert_eq!(refresh(&table.store, "one", 1).await, Leased::Unknown);
    assert_eq!(release(&table.store, "one", 1).await, Released::Unknown);
    table.put(&[rows::ghost_meta(DB)]).await;
    assert_eq!(acquire(&table.store, "one").await, Leased::Unknown);
    assert_eq!(table.rows(DB).await.len(), 1);
}

#[tokio::test]
async fn retracting_and_restoring_leave_the_lease_and_its_token_alone() {
    let table = ledger().await;
    held(&table.store, "one").await;
    let before = lease_and_token(&table).await;
    table.store.retract(&Call::fresh(), &at(DB), None).await.unwrap().applied();
    assert_eq!(lease_and_token(&table).await, before);
    assert_eq!(acquire(&table.store, "two").await, Leased::Retracted);
    assert_eq!(refresh(&table.store, "one", 1).await, Leased::Retracted);
    assert_eq!(release(&table.store, "one", 1).await, Released::Retracted);
    let pushed = under(&claim("one", 1), older(head(2)));
    assert_eq!(table.store.push_head(&Call::fresh(), &at(DB), &pushed).await.unwrap(), PushOutcome::Retracted);
    table.store.restore(&Call::fresh(), &at(DB)).await.unwrap().applied();
    assert_eq!(lease_and_token(&table).await, before);
    assert_eq!(status_of(&table.store).await, (4, "ready".into()));
    assert!(matches!(refresh(&table.store, "one", 1).await, Leased::Held(_)));
    assert_eq!(table.store.push_head(&Call::fresh(), &at(DB), &pushed).await.unwrap(), updated(head(2)));
}

#[tokio::test]
async fn a_record_retracted_before_its_status_row_was_made_gives_no_lease() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only(DB)).await;
    Fluree::on(&table).retract(DB).await;
    assert_eq!(acquire(&table.store, "one").await, Leased::Retracted);
    assert_eq!(table.rows(DB).await.len(), 1);
}

#[tokio::test]
async fn an_old_row_without_a_status_item_gets_one_with_the_lease() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only(DB)).await;
    assert_eq!(refresh(&table.store, "one", 1).await, Leased::Lost { lease: None });
    assert_eq!(release(&table.store, "one", 1).await, Released::Lost { lease: None });
    let taken = held(&table.store, "one").await;
    assert_eq!(taken.token, 1);
    assert_eq!(status_of(&table.store).await, (2, "indexing".into()));
    assert_eq!(acquire(&table.store, "two").await, Leased::Busy(taken.lease));
    assert_eq!(release(&table.store, "one", 1).await, Released::Released);
    assert_eq!(held(&table.store, "two").await.token, 2);
}

#[tokio::test]
async fn rows_as_fluree_writes_them_can_be_leased() {
    let table = Table::fresh().await;
    table.put(&rows::ledger(DB).nulls().rows()).await;
    table.set(DB, "status", "lease", rows::null()).await;
    assert_eq!(held(&table.store, "one").await.token, 1);
    let search = table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &[])).await;
    let outcome = table.store.acquire_lease(&Call::fresh(), &at("search"), &wanted("one")).await.unwrap();
    assert!(matches!(outcome, Leased::Held(Held { token: 1, .. })), "{search:?} {outcome:?}");
}

#[tokio::test]
async fn what_others_write_to_the_status_leaves_lease_and_token_alone() {
    let table = ledger().await;
    held(&table.store, "one").await;
    let before = lease_and_token(&table).await;
    let ours = cas(Status::stored(2, None), status_with(3, "busy", json!({ "progress": 1 })));
    table.store.push_status(&Call::fresh(), &at(DB), &ours).await.unwrap().applied();
    assert!(Fluree::on(&table).push_status(DB, (3, "busy"), (4, "indexing")).await);
    assert_eq!(lease_and_token(&table).await, before);
    assert!(matches!(acquire(&table.store, "two").await, Leased::Busy(_)));
    let pushed = under(&claim("one", 1), older(head(2)));
    assert_eq!(table.store.push_head(&Call::fresh(), &at(DB), &pushed).await.unwrap(), updated(head(2)));
    assert!(matches!(refresh(&table.store, "one", 1).await, Leased::Held(Held { token: 1, .. })));
    assert_eq!(status_of(&table.store).await, (5, "indexing".into()));
    assert_eq!(release(&table.store, "one", 1).await, Released::Released);
    assert_eq!(status_of(&table.store).await, (6, "ready".into()));
    let payload = table.store.status(&at(DB)).await.unwrap().unwrap().payload.unwrap();
    assert_eq!(payload.meta["progress"], json!(1), "what others told of it is not the lease's to take away");
}

#[tokio::test]
async fn a_purged_record_begins_again_and_its_leases_with_it() {
    let table = ledger().await;
    held(&table.store, "one").await;
    assert_eq!(table.store.purge(&Call::fresh(), &at(DB)).await.unwrap(), Purged::Purged);
    assert_eq!(refresh(&table.store, "one", 1).await, Leased::Unknown);
    table.store.create_ledger(&Call::fresh(), &at(DB), None, None).await.unwrap().applied();
    assert_eq!(lease_and_token(&table).await, (None, Some(rows::n(0))));
    assert_eq!(held(&table.store, "two").await.token, 1);
}

#[tokio::test]
async fn a_status_item_under_no_record_gives_no_lease() {
    let table = Table::fresh().await;
    table.put(&rows::orphans(DB, cid(1), 1)).await;
    let before = table.rows(DB).await;
    assert_eq!(acquire(&table.store, "one").await, Leased::Unknown);
    table.put(&[rows::ghost_meta(DB)]).await;
    assert_eq!(acquire(&table.store, "one").await, Leased::Unknown);
    table.delete(DB, "meta").await;
    assert_eq!(table.rows(DB).await, before);
    // Not even once one of ours has written to it.
    let pushed = cas(Status::stored(1, None), status(2, "x"));
    table.store.push_status(&Call::fresh(), &at(DB), &pushed).await.unwrap().applied();
    assert_eq!(acquire(&table.store, "one").await, Leased::Unknown);
}

#[tokio::test]
async fn a_record_of_ours_is_leased_in_one_request_and_flurees_from_the_second_time_on() {
    let table = Proxied::fresh().await;
    table.direct().create_ledger(&Call::fresh(), &at(DB), None, None).await.unwrap().applied();
    held(&table.store, "one").await;
    assert_eq!(table.proxy.take_operations(), ["UpdateItem"]);
    table.delete(DB, "meta").await;
    table.put(&rows::ledger(DB).rows()).await;
    held(&table.store, "one").await;
    assert_eq!(table.proxy.take_operations(), ["UpdateItem", "TransactWriteItems"]);
    assert_eq!(held(&table.store, "one").await.token, 2);
    assert_eq!(table.proxy.take_operations(), ["UpdateItem"]);
    assert!(matches!(acquire(&table.store, "two").await, Leased::Busy(_)));
    assert_eq!(table.proxy.take_operations(), ["UpdateItem"]);
}

#[tokio::test]
async fn of_two_who_are_the_first_on_flurees_row_one_holds_the_lease() {
    let table = flurees_ledger().await.proxied().await;
    let direct = table.direct().clone();
    let faster = move || {
        let direct = direct.clone();
        async move { assert_eq!(held(&direct, "two").await.token, 1) }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(faster));
    let Leased::Busy(lease) = acquire(&table.store, "one").await else { panic!("it is another one's") };
    assert_eq!(&*lease.holder, "two");
    assert!(table.proxy.is_spent());
}

#[tokio::test]
async fn what_cannot_be_read_as_a_lease_is_none() {
    let unknown_name = json!({ "M": {
        "name": rows::s("Other lock"), "holder": rows::s("x"), "acquired_at": rows::n(1), "expires_at": rows::n(4_000_000_000),
    } });
    for malformed in [rows::s("mine"), json!({ "M": {} }), rows::texts(&["one"]), unknown_name] {
        for (table, token) in [(ledger().await, 1), (flurees_ledger().await, 1)] {
            table.set(DB, "status", "lease", malformed.clone()).await;
            assert_eq!(refresh(&table.store, "x", 1).await, Leased::Lost { lease: None }, "{malformed}");
            assert_eq!(release(&table.store, "x", 1).await, Released::Lost { lease: None }, "{malformed}");
            let one = held(&table.store, "one").await;
            assert_eq!((one.token, &*one.lease.holder), (token, "one"), "{malformed}");
            assert_eq!(acquire(&table.store, "two").await, Leased::Busy(one.lease), "{malformed}");
        }
    }
}

#[tokio::test]
async fn a_token_that_is_no_number_is_begun_again() {
    let table = ledger().await;
    table.set(DB, "status", "lease_token", rows::s("seven")).await;
    assert_eq!(held(&table.store, "one").await.token, 1);
    assert_eq!(release(&table.store, "one", 1).await, Released::Released);
    assert_eq!(held(&table.store, "two").await.token, 2);
}

async fn flurees_ledger() -> Table {
    let table = Table::fresh().await;
    table.put(&rows::ledger(DB).commit(cid(1), 1).rows()).await;
    table
}

// ---- pushes under a lease ----

/// What became of a push of each concern under a claim: the concern, and the outcome without its value.
async fn push_each(store: &Store, claim: &LeaseClaim, t: i64) -> Vec<(&'static str, String)> {
    fn word<T: std::fmt::Debug>(outcome: PushOutcome<T>) -> String {
        match outcome {
            PushOutcome::LeaseLost { lease } => format!("lost to {:?}", lease.map(|lease| lease.holder)),
            other => format!("{other:?}").split([' ', '(']).next().unwrap().to_owned(),
        }
    }
    let (call, db) = (Call::fresh, at(DB));
    let v = store.status(&db).await.unwrap().map_or(1, |status| status.v);
    let config = store.config(&db).await.unwrap().unwrap_or(Config::unborn());
    let new_config = Config::new(config.v + 1, json!({ "t": t }));
    vec![
        ("head", word(store.push_head(&call(), &db, &under(claim, older(head(t)))).await.unwrap())),
        ("index", word(store.push_index(&call(), &db, &under(claim, older(index(t)))).await.unwrap())),
        ("status", {
            let push = cas(Status::stored(v, None), status(v + 1, "indexing"));
            word(store.push_status(&call(), &db, &under(claim, push)).await.unwrap())
        }),
        ("config", word(store.push_config(&call(), &db, &under(claim, cas(config, new_config))).await.unwrap())),
    ]
}

fn all(word: &str) -> Vec<(&'static str, String)> {
    ["head", "index", "status", "config"].map(|concern| (concern, word.to_owned())).to_vec()
}

#[tokio::test]
async fn only_the_current_token_of_a_live_lease_pushes() {
    let table = ledger().await;
    let store = &table.store;
    held(store, "one").await;
    assert_eq!(push_each(store, &claim("one", 1), 2).await, all("Updated"));
    for wrong in [claim("one", 2), claim("two", 1), claim_of(LeaseName::REINDEX, "one", 1)] {
        assert_eq!(push_each(store, &wrong, 3).await, all("lost to Some(\"one\")"), "{wrong:?}");
    }
    expire(&table).await;
    assert_eq!(push_each(store, &claim("one", 1), 3).await, all("lost to Some(\"one\")"), "expired");
    held(store, "two").await;
    assert_eq!(push_each(store, &claim("one", 1), 3).await, all("lost to Some(\"two\")"), "superseded");
    assert_eq!(push_each(store, &claim("two", 2), 3).await, all("Updated"));
    release(store, "two", 2).await.applied();
    assert_eq!(push_each(store, &claim("two", 2), 4).await, all("lost to None"), "released");
    assert_eq!(store.head(&at(DB)).await.unwrap(), Some(head(3)));
    layout::assert_ours(table.rows(DB).await.values());
}

#[tokio::test]
async fn a_push_under_a_lease_is_refused_for_what_a_push_is_refused_for() {
    let table = ledger().await;
    let store = &table.store;
    held(store, "one").await;
    let mine = claim("one", 1);
    let push = async |push: HeadPush| store.push_head(&Call::fresh(), &at(DB), &under(&mine, push)).await.unwrap();
    assert_eq!(push(older(head(1))).await, replayed(head(1)));
    assert_eq!(push(older(Head::new(1, cid(9)))).await, stale(head(1)));
    assert_eq!(push(cas(head(5), head(6))).await, conflict(head(1)));
    assert_eq!(push(cas(head(1), head(2))).await, updated(head(2)));
    let status_push = cas(Status::stored(9, None), status(10, "x"));
    let outcome = store.push_status(&Call::fresh(), &at(DB), &under(&mine, status_push)).await.unwrap();
    assert!(matches!(&outcome, PushOutcome::Conflict { actual: Some(actual) } if actual.v == 2), "{outcome:?}");
    let nowhere = store.push_head(&Call::fresh(), &at("nowhere"), &under(&mine, older(head(2)))).await.unwrap();
    assert_eq!(nowhere, PushOutcome::Unknown);
    table.put(&rows::meta_only("old:main")).await;
    let old = store.push_head(&Call::fresh(), &at("old"), &under(&mine, older(head(2)))).await.unwrap();
    assert_eq!(old, PushOutcome::LeaseLost { lease: None });
}

#[tokio::test]
async fn an_index_push_under_a_lease_counts_revisions_and_named_graphs() {
    let table = ledger().await;
    let store = &table.store;
    held(store, "one").await;
    let mine = claim("one", 1);
    let push = async |push: IndexPush| store.push_index(&Call::fresh(), &at(DB), &under(&mine, push)).await.unwrap();
    assert_eq!(push(older(index(1))).await, updated(index_at(1, 0)));
    let again = index_of(50, 1);
    let there = Index::new(1, IndexRoot { id: index_cid(50), rev: 1, graphs: BTreeMap::new() });
    assert_eq!(push(cas(index_at(1, 0), again)).await, updated(there.clone()));
    let graphs = |range: std::ops::Range<i64>, t: i64| -> BTreeMap<String, Option<NewGraphIndex>> {
        range.map(|n| (format!("g{n}"), Some(graph(100 + n, t, None)))).collect()
    };
    // More than one expression holds.
    let wide = index(5).with_graphs(graphs(0..90, 5)).unwrap();
    let outcome = push(older(wide.clone())).await;
    let PushOutcome::Updated { value, replayed: false } = outcome else { panic!("{outcome:?}") };
    assert_eq!(value.payload.as_ref().unwrap().graphs.len(), 90);
    assert_eq!(store.index(&at(DB)).await.unwrap(), Some(value.clone()));
    assert_eq!(push(older(wide)).await, replayed(value.clone()), "in place");
    let stale_one = index(4).with_graphs(graphs(0..90, 4)).unwrap();
    assert_eq!(push(older(stale_one)).await, stale(value));
}

#[tokio::test]
async fn a_wide_index_push_never_goes_backwards() {
    let table = ledger().await;
    let graphs = |t: i64| -> BTreeMap<String, Option<NewGraphIndex>> {
        (0..40).map(|n| (format!("g{n}"), Some(graph(100 + t, t, None)))).collect()
    };
    let push = async |push: IndexPush| table.store.push_index(&Call::fresh(), &at(DB), &push).await.unwrap();
    let wide = |t: i64| index(t).with_graphs(graphs(t)).unwrap();
    let PushOutcome::Updated { value, replayed: false } = push(older(wide(5))).await else { panic!("not updated") };
    assert_eq!(push(older(wide(4))).await, stale(value.clone()));
    assert_eq!(push(cas(index_at(3, 0), wide(6))).await, conflict(value.clone()));
    assert_eq!(push(older(wide(5))).await, replayed(value.clone()));
    assert_eq!(table.store.index(&at(DB)).await.unwrap(), Some(value));
    let nowhere = table.store.push_index(&Call::fresh(), &at("nowhere"), &older(wide(1))).await.unwrap();
    assert_eq!(nowhere, PushOutcome::Unknown);
    table.put(&rows::meta_only("old:main")).await;
    let old = table.store.push_index(&Call::fresh(), &at("old"), &older(wide(1))).await.unwrap();
    assert!(matches!(old, PushOutcome::Updated { replayed: false, .. }), "{old:?}");
}

// ---- what it costs ----

#[tokio::test]
async fn each_is_one_request_and_a_fenced_push_is_one_transaction() {
    let table = ledger().await.proxied().await;
    let store = &table.store;
    let took = |expected: &[&str]| assert_eq!(table.proxy.take_operations(), expected);
    let one = ["UpdateItem"];
    held(store, "one").await;
    took(&one);
    assert!(!acquire(store, "two").await.is_applied());
    took(&one);
    refresh(store, "one", 1).await.applied();
    took(&one);
    assert!(!refresh(store, "one", 7).await.is_applied());
    took(&one);
    assert!(!release(store, "one", 7).await.is_applied());
    took(&one);
    held(store, "one").await;
    took(&one);
    let mine = claim("one", 2);
    for (t, words) in [(2, "Updated"), (2, "Updated"), (1, "Stale")] {
        let outcome = store.push_head(&Call::fresh(), &at(DB), &under(&mine, older(head(t)))).await.unwrap();
        assert!(format!("{outcome:?}").starts_with(words), "{outcome:?}");
        // What is in place already is checked once more, together with the lease.
        let transactions = if outcome == replayed(head(2)) { 2 } else { 1 };
        let requests = table.proxy.take_requests();
        assert_eq!(requests.len(), transactions, "{requests:#?}");
        for request in requests {
            assert_eq!(request.operation, "TransactWriteItems");
            assert_eq!(request.body["TransactItems"].as_array().unwrap().len(), 2);
        }
    }
    let push = under(&mine, cas(Status::stored(4, None), status(5, "indexing")));
    let outcome = store.push_status(&Call::fresh(), &at(DB), &push).await.unwrap();
    assert!(matches!(outcome, PushOutcome::Updated { .. }), "{outcome:?}");
    let requests = table.proxy.take_requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].body["TransactItems"].as_array().unwrap().len(), 1, "lease and status are one item");
    let outcome = store.push_head(&Call::fresh(), &at(DB), &under(&claim("x", 1), older(head(9)))).await.unwrap();
    assert!(matches!(outcome, PushOutcome::LeaseLost { .. }), "{outcome:?}");
    took(&["TransactWriteItems"]);
    release(store, "one", 2).await.applied();
    took(&one);
    assert!(!release(store, "one", 2).await.is_applied());
    took(&one);
    table.store.retract(&Call::fresh(), &at(DB), None).await.unwrap().applied();
    table.proxy.take_requests();
    assert!(!acquire(store, "one").await.is_applied());
    took(&one);
    assert!(!refresh(store, "one", 2).await.is_applied());
    took(&one);
    assert!(!release(store, "one", 2).await.is_applied());
    took(&one);
}

// ---- lost answers ----

#[tokio::test]
async fn an_acquisition_whose_reply_is_lost_is_held_and_burns_no_second_token() {
    for fault in [Fault::cut_reply(), Fault::done_but_answer(500, "InternalServerError"), Fault::cut_reply().times(3)] {
        let table = ledger().await.proxied().await;
        table.proxy.on_writes(fault);
        let taken = held(&table.store, "one").await;
        assert_eq!(taken.token, 1);
        assert_eq!(status_of(table.direct()).await, (2, "indexing".into()));
        table.proxy.on_writes(Fault::cut_reply());
        assert_eq!(refresh(&table.store, "one", 1).await, {
            let row = table.direct().status(&at(DB)).await.unwrap().unwrap().payload.unwrap();
            let number = |member: &str| row.meta["index_lock"][member].as_i64();
            let lease = Lease {
                expires_at: number("expires_at").unwrap(),
                refreshed_at: number("refreshed_at"),
                ..taken.lease.clone()
            };
            Leased::Held(Held { lease, token: 1 })
        });
        assert_eq!(status_of(table.direct()).await, (3, "indexing".into()));
        table.proxy.on_writes(Fault::cut_reply());
        assert_eq!(release(&table.store, "one", 1).await, Released::Released);
        assert_eq!(status_of(table.direct()).await, (4, "ready".into()));
        assert!(table.proxy.is_spent());
    }
}

#[tokio::test]
async fn an_acquisition_on_an_old_row_whose_reply_is_lost_is_held_once() {
    for forgetful in [false, true] {
        let table = Table::fresh().await.proxied().await;
        table.put(&rows::meta_only(DB)).await;
        if forgetful {
            table.proxy.forget_tokens();
        }
        table.proxy.on("TransactWriteItems", Fault::cut_reply());
        assert_eq!(held(&table.store, "one").await.token, 1);
        assert!(table.proxy.is_spent());
        assert_eq!(status_of(table.direct()).await, (2, "indexing".into()));
    }
}

#[tokio::test]
async fn an_acquisition_whose_reply_is_lost_and_that_was_overtaken_is_of_unknown_outcome() {
    let table = ledger().await.proxied().await;
    let store = table.direct().clone();
    let overtaken = Fault::cut_request().after(move || {
        let store = store.clone();
        async move { drop(held(&store, "two").await) }
    });
    table.proxy.on("UpdateItem", overtaken);
    let error = table.store.acquire_lease(&Call::fresh(), &at(DB), &wanted("one")).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
}

#[tokio::test]
async fn a_refresh_whose_reply_is_lost_is_held_though_others_have_written_the_status_since() {
    let table = ledger().await.proxied().await;
    held(&table.store, "one").await;
    let store = table.direct().clone();
    let written = Fault::cut_reply().after(move || {
        let store = store.clone();
        async move {
            let push = cas(Status::stored(3, None), status(4, "busy"));
            drop(store.push_status(&Call::fresh(), &at(DB), &push).await.unwrap());
        }
    });
    table.proxy.on("UpdateItem", written);
    assert!(matches!(refresh(&table.store, "one", 1).await, Leased::Held(Held { token: 1, .. })));
    assert_eq!(status_of(table.direct()).await, (4, "busy".into()));
}

#[tokio::test]
async fn a_push_under_a_lease_whose_reply_is_lost_is_updated_once() {
    for forgetful in [false, true] {
        let table = ledger().await.proxied().await;
        held(&table.store, "one").await;
        if forgetful {
            table.proxy.forget_tokens();
        }
        for (t, push) in [(2, cas(head(1), head(2))), (3, older(head(3)))] {
            table.proxy.on("TransactWriteItems", Fault::cut_reply());
            let push = under(&claim("one", 1), push);
            assert_eq!(table.store.push_head(&Call::fresh(), &at(DB), &push).await.unwrap(), updated(head(t)));
        }
        table.proxy.on("TransactWriteItems", Fault::cut_reply());
        let push = under(&claim("one", 1), cas(Status::stored(2, None), status(3, "indexing")));
        let outcome = table.store.push_status(&Call::fresh(), &at(DB), &push).await.unwrap();
        assert!(matches!(&outcome, PushOutcome::Updated { value, replayed: false } if value.v == 3), "{outcome:?}");
        assert!(table.proxy.is_spent());
        assert_eq!(status_of(table.direct()).await.0, 3);
    }
}

// ---- holding a lease around work ----

#[tokio::test]
async fn work_under_a_lease_has_its_token_and_gives_the_lease_back() {
    let table = ledger().await;
    let store = &table.store;
    let ran = store
        .hold_lease(&at(DB), &for_seconds("one", 1), |claim| async move {
            // Longer than the lease lasts without being refreshed.
            sleep(Duration::from_millis(2_300)).await;
            store.push_head(&Call::fresh(), &at(DB), &under(&claim, older(head(2)))).await.unwrap()
        })
        .await
        .unwrap();
    assert!(matches!(&ran, Ran::Done(outcome) if *outcome == updated(head(2))), "{ran:?}");
    assert_eq!(status_of(store).await.1, "ready");
    assert_eq!(lease_and_token(&table).await, (None, Some(rows::n(1))));
    held(store, "two").await;
    let ran = store.hold_lease(&at(DB), &wanted("one"), |_| async { panic!("must not run") }).await.unwrap();
    assert!(matches!(&ran, Ran::NotHeld(Leased::Busy(lease)) if lease.holder == "two"), "{ran:?}");
}

#[tokio::test]
async fn work_ends_when_its_lease_is_another_ones() {
    let table = ledger().await;
    let began = Instant::now();
    let ran = table
        .store
        .hold_lease(&at(DB), &for_seconds("one", 1), |_| async {
            expire(&table).await;
            held(&table.store, "two").await;
            sleep(Duration::from_secs(60)).await;
        })
        .await
        .unwrap();
    assert!(matches!(ran, Ran::Lost), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(matches!(acquire(&table.store, "three").await, Leased::Busy(lease) if lease.holder == "two"));
}

#[tokio::test]
async fn work_goes_on_while_the_store_is_silent_until_the_lease_has_run_out() {
    let table = ledger().await.proxied().await;
    let policy = RetryPolicy { deadline: Duration::from_millis(200), ..RetryPolicy::default() };
    let store = table.store.clone().with_retry_policy(policy);
    let ticks = AtomicUsize::new(0);
    let began = Instant::now();
    let ran = store
        .hold_lease(&at(DB), &for_seconds("one", 1), |_| async {
            table.proxy.on("UpdateItem", Fault::answer(400, "ThrottlingException").always());
            loop {
                sleep(Duration::from_millis(50)).await;
                ticks.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await
        .unwrap();
    let (took, ticks) = (began.elapsed(), ticks.load(Ordering::Relaxed));
    assert!(matches!(ran, Ran::Lost::<()>), "{ran:?}");
    // The release is tried once, too.
    assert!((900..2_000).contains(&took.as_millis()), "{took:?}");
    assert!(ticks >= 12, "the work stood still while refreshes waited: {ticks}");
}

// ---- many holders ----

#[tokio::test]
async fn a_crashed_holder_is_replaced_within_its_time_and_a_second() {
    let table = ledger().await;
    let began = Instant::now();
    table.store.acquire_lease(&Call::fresh(), &at(DB), &for_seconds("crashed", 1)).await.unwrap().applied();
    while !matches!(acquire(&table.store, "next").await, Leased::Held(_)) {
        sleep(Duration::from_millis(20)).await;
    }
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(1), "no lease ends early: {took:?}");
    assert!(took < Duration::from_millis(2_100), "{took:?}");
}

#[derive(Clone, Debug)]
struct Applied {
    token: i64,
    t: i64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_push_of_a_past_holder_is_ever_applied() {
    const HOLDERS: u64 = 24;
    const LASTS: Duration = Duration::from_secs(7);
    // A busy machine may take longer until somebody is late.
    const AT_MOST: Duration = Duration::from_secs(60);
    let table = Table::without_stream().await;
    table.store.create_ledger(&Call::fresh(), &at(DB), None, None).await.unwrap().applied();
    let table = Arc::new(table.proxied().await);
    // Some pushes are on their way for longer than a lease lasts.
    let late = Fault::none().always().before(|| async {
        if rand::random_bool(0.2) {
            sleep(Duration::from_millis(rand::random_range(500..2_500))).await;
        }
    });
    table.proxy.on("TransactWriteItems", late);
    let applied = Arc::new(Mutex::new(Vec::new()));
    let (taken, refused) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let began = Instant::now();
    join_all((0..HOLDERS).map(|n| {
        let (table, applied, taken, refused) = (table.clone(), applied.clone(), taken.clone(), refused.clone());
        tokio::spawn(async move {
            let mut dice = StdRng::seed_from_u64(n);
            let (holder, store) = (format!("holder {n}"), &table.store);
            let nobody_was_late = || refused.load(Ordering::Relaxed) == 0 || taken.lock().unwrap().len() <= 4;
            while began.elapsed() < LASTS || (began.elapsed() < AT_MOST && nobody_was_late()) {
                let outcome = store.acquire_lease(&Call::fresh(), &at(DB), &for_seconds(&holder, 1)).await.unwrap();
                let Leased::Held(held) = outcome else {
                    sleep(Duration::from_millis(dice.random_range(20..200))).await;
                    continue;
                };
                taken.lock().unwrap().push(held.token);
                let mine = claim(&holder, held.token);
                for _ in 0..dice.random_range(1..4) {
                    if dice.random_bool(0.25) {
                        sleep(Duration::from_millis(dice.random_range(800..2_500))).await;
                    }
                    let seen = store.head(&at(DB)).await.unwrap().unwrap();
                    let new = Head::new(seen.v + 1, id_of(&format!("{} after {}", held.token, seen.v)));
                    let push = under(&mine, cas(seen, new.clone()));
                    match store.push_head(&Call::fresh(), &at(DB), &push).await.unwrap() {
                        PushOutcome::Updated { value, replayed: false } => {
                            assert_eq!(value, new);
                            applied.lock().unwrap().push(Applied { token: held.token, t: new.v });
                        }
                        PushOutcome::LeaseLost { .. } => {
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        PushOutcome::Conflict { .. } => {}
                        other => panic!("{other:?}"),
                    }
                }
                // Some crash instead.
                if dice.random_bool(0.6) {
                    drop(store.release_lease(&Call::fresh(), &at(DB), &mine).await.unwrap());
                }
            }
        })
    }))
    .await
    .into_iter()
    .for_each(Result::unwrap);

    let mut applied = applied.lock().unwrap().clone();
    applied.sort_by_key(|push| push.t);
    let (refused, mut taken) = (refused.load(Ordering::Relaxed), taken.lock().unwrap().clone());
    println!("{} pushes under {} leases, {refused} of past holders refused", applied.len(), taken.len());
    let last = table.direct().head(&at(DB)).await.unwrap().unwrap().v;
    assert_eq!(applied.iter().map(|push| push.t).collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());
    assert!(applied.is_sorted_by_key(|push| push.token), "a past holder has pushed: {applied:?}");
    taken.sort_unstable();
    assert_eq!(taken, (1..=taken.len() as i64).collect::<Vec<_>>(), "each token was given once");
    assert!(refused > 0 && taken.len() > 4, "nobody was late: {refused} {}", taken.len());
}
