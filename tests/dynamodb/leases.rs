//! Leases on rows that others left, and what each lease operation costs.

use std::time::{Duration, SystemTime};

use nameservice_tests::prelude::*;

const DB: &str = "mydb:main";

fn wanted(holder: &str) -> LeaseRequest {
    index_lock(holder, 300)
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

async fn lease_and_token(table: &Table) -> (Option<Value>, Option<Value>) {
    let row = table.row(DB, "status").await.unwrap();
    (row.get("lease").cloned(), row.get("lease_token").cloned())
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
async fn a_status_item_under_no_record_gives_no_lease() {
    let table = Table::fresh().await;
    table.put(&rows::orphans(DB, cid(1), 1)).await;
    let before = table.rows(DB).await;
    assert_eq!(acquire(&table.store, "one").await, Leased::Unknown);
    table.put(&[rows::ghost_meta(DB)]).await;
    assert_eq!(acquire(&table.store, "one").await, Leased::Unknown);
    table.delete(DB, "meta").await;
    assert_eq!(table.rows(DB).await, before);
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
        // A push of the current value takes a second transaction, which checks it together with the lease.
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
        let table = Proxied::fresh().await;
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
async fn a_refresh_whose_reply_is_lost_does_not_hold_the_lease_of_whoever_has_taken_it_since() {
    let table = ledger().await.proxied().await;
    held(&table.store, "one").await;
    let direct = table.direct().clone().with_clock(|| SystemTime::now() + Duration::from_secs(3_600));
    let taken = Fault::cut_reply().after(move || {
        let direct = direct.clone();
        async move { assert_eq!(held(&direct, "two").await.token, 2) }
    });
    table.proxy.on("UpdateItem", taken);
    let outcome = table.store.refresh_lease(&Call::fresh(), &at(DB), &wanted("one"), 1).await;
    assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{outcome:?}");
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
        assert_eq!(outcome, updated(status(3, "indexing")));
        assert!(table.proxy.is_spent());
        assert_eq!(status_of(table.direct()).await.0, 3);
    }
}

#[tokio::test]
async fn a_push_that_is_on_its_way_when_its_lease_passes_to_another_is_rejected() {
    let table = ledger().await.proxied().await;
    held(&table.store, "one").await;
    let direct = table.direct().clone().with_clock(|| SystemTime::now() + Duration::from_secs(3_600));
    let taken = move || {
        let direct = direct.clone();
        async move { assert_eq!(held(&direct, "two").await.token, 2) }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(taken));
    let push = under(&claim("one", 1), older(head(2)));
    let outcome = table.store.push_head(&Call::fresh(), &at(DB), &push).await.unwrap();
    assert!(matches!(&outcome, PushOutcome::LeaseLost { lease: Some(lease) } if lease.holder == "two"), "{outcome:?}");
    assert!(table.proxy.is_spent());
    assert_eq!(table.direct().head(&at(DB)).await.unwrap(), Some(head(1)));
}

#[tokio::test]
async fn the_token_outlives_the_lease_and_begins_at_0_in_a_new_record() {
    let table = ledger().await;
    held(&table.store, "one").await;
    release(&table.store, "one", 1).await.applied();
    assert_eq!(lease_and_token(&table).await, (None, Some(rows::n(1))));
    table.store.purge(&Call::fresh(), &at(DB)).await.unwrap().applied();
    table.store.create_ledger(&Call::fresh(), &at(DB), None, None).await.unwrap().applied();
    assert_eq!(lease_and_token(&table).await, (None, Some(rows::n(0))));
}

#[tokio::test]
async fn what_fluree_writes_to_the_status_leaves_the_lease_alone() {
    let table = ledger().await;
    held(&table.store, "one").await;
    let before = lease_and_token(&table).await;
    assert!(Fluree::on(&table).push_status(DB, (2, "indexing"), (3, "busy")).await);
    assert_eq!(lease_and_token(&table).await, before);
    assert!(matches!(acquire(&table.store, "two").await, Leased::Busy(_)));
    assert!(matches!(refresh(&table.store, "one", 1).await, Leased::Held(Held { token: 1, .. })));
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
    // If the state is still the one that the lease set, one request is enough.
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
    // A status that was read with its lease can be the expected value.
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
async fn a_counter_that_is_no_number_is_begun_again() {
    for other in [rows::null(), rows::s("text")] {
        let table = ledger().await;
        table.set("mydb:main", "status", "status_v", other.clone()).await;
        table.set("mydb:main", "meta", "branches", other.clone()).await;
        let token = held(&table.store, "me").await.token;
        assert_eq!(status_of(&table.store).await.0, 2);
        table.set("mydb:main", "status", "status_v", other).await;
        assert_eq!(release(&table.store, "me", token).await, Released::Released);
        assert_eq!(status_of(&table.store).await.0, 2);
        table.store.create_branch(&Call::fresh(), &at("mydb:dev"), &at(DB), None).await.unwrap().applied();
        assert_eq!(table.store.lookup(&at(DB)).await.unwrap().unwrap().branches, 1);
    }
}

/// Such an expiry was set before a clock was set back.
#[tokio::test]
async fn a_lease_that_ends_further_ahead_than_any_holds_nothing() {
    let table = ledger().await;
    held(&table.store, "one").await;
    let Some(mut lease) = lease_and_token(&table).await.0 else { panic!("no lease") };
    lease["M"]["expires_at"]["N"] = json!("9999999999");
    table.set("mydb:main", "status", "lease", lease).await;
    assert_eq!(held(&table.store, "two").await.token, 2);
}
