use nameservice_tests::prelude::*;

use super::{found, retracted, source, unborn};

async fn push(store: &Store, db: &Address, expected: Status, new: Status) -> PushOutcome<StatusPayload> {
    store.push_status(&Call::fresh(), db, &cas(expected, new)).await.unwrap()
}

/// An expectation of the watermark alone.
fn at_v(v: i64) -> Status {
    Status { v, payload: None }
}

#[tokio::test]
async fn the_expected_status_is_replaced_with_all_that_it_told() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    let syncing = status_with(2, "syncing", json!({ "progress": 0.45, "errors": [null, "x"], "n": { "deep": 1 } }));
    assert_eq!(push(&table.store, &db, status(1, "ready"), syncing.clone()).await, updated(syncing.clone()));
    assert_eq!(table.store.status(&db).await.unwrap(), Some(syncing.clone()));
    assert_eq!(found(&table.store, &db).await.status, syncing);
    assert_eq!(push(&table.store, &db, syncing, status(7, "ready")).await, updated(status(7, "ready")));
    assert_eq!(table.store.status(&db).await.unwrap(), Some(status(7, "ready")), "old members are gone");
}

#[tokio::test]
async fn the_watermark_alone_can_be_expected() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    assert_eq!(push(&table.store, &db, at_v(1), status(2, "syncing")).await, updated(status(2, "syncing")));
    assert_eq!(push(&table.store, &db, at_v(1), status(3, "error")).await, conflict(status(2, "syncing")));
}

#[tokio::test]
async fn another_watermark_state_or_payload_is_a_conflict_that_shows_it() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    let there = status_with(2, "syncing", json!({ "progress": 1 }));
    push(&table.store, &db, at_v(1), there.clone()).await;
    for expected in [
        status_with(3, "syncing", json!({ "progress": 1 })),
        status_with(2, "ready", json!({ "progress": 1 })),
        status_with(2, "syncing", json!({ "progress": 2 })),
        status_with(2, "syncing", json!({ "progress": 1, "more": true })),
    ] {
        let outcome = push(&table.store, &db, expected.clone(), status(9, "ready")).await;
        assert_eq!(outcome, conflict(there.clone()), "{expected:?}");
    }
    assert_eq!(table.store.status(&db).await.unwrap(), Some(there));
}

#[tokio::test]
async fn a_watermark_that_does_not_grow_is_a_conflict() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    push(&table.store, &db, at_v(1), status(5, "syncing")).await;
    for v in [4, 5] {
        assert_eq!(push(&table.store, &db, at_v(5), status(v, "error")).await, conflict(status(5, "syncing")));
    }
}

#[tokio::test]
async fn an_unknown_record_is_unknown_and_stays_so() {
    let table = Table::fresh().await;
    let db = at("mydb");
    assert_eq!(push(&table.store, &db, at_v(1), status(2, "ready")).await, PushOutcome::Unknown);
    assert!(table.rows("mydb:main").await.is_empty());
}

#[tokio::test]
async fn a_retracted_record_takes_no_status() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    retracted(&table.store, &db).await;
    assert_eq!(push(&table.store, &db, at_v(2), status(3, "ready")).await, PushOutcome::Retracted);
}

#[tokio::test]
async fn a_graph_source_has_a_status_of_the_same_rules() {
    let table = Table::fresh().await;
    let search = source(&table.store, "search", &[]).await;
    assert_eq!(push(&table.store, &search, at_v(1), status(2, "error")).await, updated(status(2, "error")));
    assert_eq!(push(&table.store, &search, at_v(1), status(2, "x")).await, conflict(status(2, "error")));
}

#[tokio::test]
async fn what_fluree_writes_in_between_is_seen() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    assert!(Fluree::on(&table).push_status("mydb:main", (1, "ready"), (2, "indexing")).await);
    assert_eq!(push(&table.store, &db, status(1, "ready"), status(2, "x")).await, conflict(status(2, "indexing")));
    assert_eq!(push(&table.store, &db, status(2, "indexing"), status(3, "ready")).await, updated(status(3, "ready")));
    assert!(Fluree::on(&table).push_status("mydb:main", (3, "ready"), (4, "error")).await);
}

#[tokio::test]
async fn a_missing_status_item_is_ready_at_1_and_is_made_by_the_first_push() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only("mydb:main")).await;
    let db = at("mydb");
    assert_eq!(table.store.status(&db).await.unwrap(), Some(status(1, "ready")));
    assert_eq!(push(&table.store, &db, at_v(2), status(3, "x")).await, conflict(status(1, "ready")));
    assert_eq!(push(&table.store, &db, status(1, "ready"), status(2, "x")).await, updated(status(2, "x")));
    assert_eq!(table.store.status(&db).await.unwrap(), Some(status(2, "x")));
}

#[tokio::test]
async fn a_null_payload_is_none() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").nulls().rows()).await;
    let db = at("mydb");
    assert_eq!(table.store.status(&db).await.unwrap(), Some(status(1, "ready")));
    assert_eq!(push(&table.store, &db, status(1, "ready"), status(2, "x")).await, updated(status(2, "x")));
}

#[tokio::test]
async fn a_lease_shows_under_its_name_and_no_push_touches_it() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    let lease = json!({ "M": {
        "name": { "S": "index_lock" }, "holder": { "S": "indexer-7" }, "target_t": { "N": "42" },
        "acquired_at": { "N": "1700000000" }, "expires_at": { "N": "1700000300" },
    } });
    table.set("mydb:main", "status", "lease", lease.clone()).await;
    table.set("mydb:main", "status", "lease_token", rows::n(17)).await;

    let shown = table.store.status(&db).await.unwrap().unwrap();
    let payload = shown.payload.clone().unwrap();
    assert_eq!(payload.meta["index_lock"]["holder"], json!("indexer-7"));
    assert_eq!(payload.meta["index_lock"]["target_t"], json!(42));
    assert_eq!(payload.meta["index_lock"]["expires_at"], json!(1_700_000_300));

    let new = status_with(2, "indexing", json!({ "progress": 1 }));
    let outcome = push(&table.store, &db, shown, new).await;
    let PushOutcome::Updated { value, replayed: false } = outcome else { panic!("{outcome:?}") };
    let payload = value.payload.unwrap();
    assert_eq!((payload.state.as_str(), &payload.meta["progress"]), ("indexing", &json!(1)));
    table.store.push_head(&Call::fresh(), &db, &older(head(1))).await.unwrap();

    let row = table.row("mydb:main", "status").await.unwrap();
    assert_eq!((&row["lease"], &row["lease_token"]), (&lease, &rows::n(17)));
    assert!(row["status_meta"]["M"].get("index_lock").is_none(), "the lease is not copied into the payload: {row:?}");
    let shown = table.store.status(&db).await.unwrap().unwrap().payload.unwrap();
    assert_eq!(shown.meta["index_lock"]["holder"], json!("indexer-7"));
}
