use nameservice_tests::prelude::*;

use super::{Fixture, every_backend, found, retracted, source, unborn};

async fn push(ns: &Fixture, db: &Address, expected: Status, new: Status) -> PushOutcome<StatusPayload> {
    ns.push_status(&Call::fresh(), db, &cas(expected, new)).await.unwrap()
}

/// An expectation of the watermark alone.
fn at_v(v: i64) -> Status {
    Status::stored(v, None)
}

#[every_backend]
async fn the_expected_status_is_replaced_with_all_its_metadata(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    let syncing = status_with(2, "syncing", json!({ "progress": 0.45, "errors": [null, "x"], "n": { "deep": 1 } }));
    assert_eq!(push(ns, &db, status(1, "ready"), syncing.clone()).await, updated(syncing.clone()));
    assert_eq!(ns.status(&db).await.unwrap(), Some(syncing.clone()));
    assert_eq!(found(ns, &db).await.status, syncing);
    assert_eq!(push(ns, &db, syncing, status(7, "ready")).await, updated(status(7, "ready")));
    assert_eq!(ns.status(&db).await.unwrap(), Some(status(7, "ready")), "old members are gone");
}

#[every_backend]
async fn the_watermark_alone_can_be_expected(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    assert_eq!(push(ns, &db, at_v(1), status(2, "syncing")).await, updated(status(2, "syncing")));
    assert_eq!(push(ns, &db, at_v(1), status(3, "error")).await, conflict(status(2, "syncing")));
}

#[every_backend]
async fn another_watermark_state_or_payload_is_a_conflict_that_shows_it(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    let there = status_with(2, "syncing", json!({ "progress": 1 }));
    push(ns, &db, at_v(1), there.clone()).await.applied();
    for expected in [
        status_with(3, "syncing", json!({ "progress": 1 })),
        status_with(2, "ready", json!({ "progress": 1 })),
        status_with(2, "syncing", json!({ "progress": 2 })),
        status_with(2, "syncing", json!({ "progress": 1, "more": true })),
    ] {
        let outcome = push(ns, &db, expected.clone(), status(9, "ready")).await;
        assert_eq!(outcome, conflict(there.clone()), "{expected:?}");
    }
    assert_eq!(ns.status(&db).await.unwrap(), Some(there));
}

#[every_backend]
async fn a_watermark_that_does_not_grow_is_a_conflict(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    push(ns, &db, at_v(1), status(5, "syncing")).await.applied();
    for v in [4, 5] {
        assert_eq!(push(ns, &db, at_v(5), status(v, "error")).await, conflict(status(5, "syncing")));
    }
}

#[every_backend]
async fn an_unknown_record_is_unknown_and_stays_so(ns: &Fixture) {
    let db = at("mydb");
    assert_eq!(push(ns, &db, at_v(1), status(2, "ready")).await, PushOutcome::Unknown);
    assert_eq!(ns.lookup(&at("mydb:main")).await.unwrap(), None);
}

#[every_backend]
async fn a_retracted_record_takes_no_status(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    retracted(ns, &db).await;
    assert_eq!(push(ns, &db, at_v(2), status(3, "ready")).await, PushOutcome::Retracted);
}

#[every_backend]
async fn a_graph_source_has_a_status_of_the_same_rules(ns: &Fixture) {
    let search = source(ns, "search", &[]).await;
    assert_eq!(push(ns, &search, at_v(1), status(2, "error")).await, updated(status(2, "error")));
    assert_eq!(push(ns, &search, at_v(1), status(2, "x")).await, conflict(status(2, "error")));
}

#[every_backend]
async fn a_status_push_that_arrives_again_after_others_wrote_is_updated_and_applies_once(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    let syncing = status_with(2, "syncing", json!({ "progress": 1 }));
    let (call, pushed) = (Call::fresh(), cas(at_v(1), syncing.clone()));
    assert_eq!(ns.push_status(&call, &db, &pushed).await.unwrap(), updated(syncing.clone()));
    for v in 3..=5 {
        assert_eq!(push(ns, &db, at_v(v - 1), status(v, "ready")).await, updated(status(v, "ready")));
    }
    assert_eq!(ns.push_status(&call, &db, &pushed).await.unwrap(), replayed(syncing), "the value that was written");
    assert_eq!(ns.status(&db).await.unwrap(), Some(status(5, "ready")));
}
