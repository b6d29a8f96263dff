use nameservice_tests::prelude::*;

use crate::contract::unborn;

async fn push(store: &dyn Records, db: &Address, expected: Status, new: Status) -> PushOutcome<StatusPayload> {
    store.push_status(&Call::fresh(), db, &cas(expected, new)).await.unwrap()
}

/// An expectation of the watermark alone.
fn at_v(v: i64) -> Status {
    Status::stored(v, None)
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
    table.store.push_head(&Call::fresh(), &db, &older(head(1))).await.unwrap().applied();

    let row = table.row("mydb:main", "status").await.unwrap();
    assert_eq!((&row["lease"], &row["lease_token"]), (&lease, &rows::n(17)));
    assert!(row["status_meta"]["M"].get("index_lock").is_none(), "the lease is not copied into the payload: {row:?}");
    let shown = table.store.status(&db).await.unwrap().unwrap().payload.unwrap();
    assert_eq!(shown.meta["index_lock"]["holder"], json!("indexer-7"));
}
