//! How a repeated request, and another request under its key, are answered, and how many requests that takes.

use nameservice_tests::prelude::*;

use crate::contract::{born, unborn};

/// Requests of one caller under one key, distinguished by a number.
fn call(n: u8) -> Call {
    Call::with_id(RequestId::from_hashes([7; 16], [n; 8]))
}

fn assert_reused<T: std::fmt::Debug>(answer: Result<T, Error>) {
    assert!(matches!(answer, Err(Error::IdempotencyKeyReused { .. })), "{answer:?}");
}

#[tokio::test]
async fn another_push_under_a_used_key_writes_nothing_and_is_one_request() {
    let table = Proxied::fresh().await;
    let store = &table.store;
    let db = born(table.direct(), "mydb", 1).await;
    store.push_head(&call(1), &db, &older(head(2))).await.unwrap().applied();
    store.push_index(&call(1), &db, &older(index(2))).await.unwrap().applied();
    store.push_status(&call(1), &db, &cas(status(1, "ready"), status(2, "busy"))).await.unwrap().applied();
    let config = cas(Config::unborn(), new_config(json!({ "n": 1 })));
    store.push_config(&call(1), &db, &config).await.unwrap().applied();
    let before = table.rows(db.as_str()).await;
    table.proxy.take_operations();

    assert_reused(store.push_head(&call(2), &db, &older(head(3))).await);
    assert_eq!(table.proxy.take_operations(), ["UpdateItem"]);
    // Also where the push would be stale, a conflict, or current already.
    assert_reused(store.push_head(&call(2), &db, &older(head(1))).await);
    assert_reused(store.push_head(&call(2), &db, &cas(head(9), head(10))).await);
    assert_reused(store.push_head(&call(2), &db, &older(head(2))).await);
    assert_eq!(table.proxy.take_operations(), ["UpdateItem"; 3]);
    assert_reused(store.push_index(&call(2), &db, &older(index(3))).await);
    assert_reused(store.push_status(&call(2), &db, &cas(status(2, "busy"), status(3, "x"))).await);
    let next = cas(Config::stored(1, None), new_config(json!({ "n": 2 })));
    assert_reused(store.push_config(&call(2), &db, &next).await);
    assert_eq!(table.proxy.take_operations(), ["UpdateItem"; 3]);
    let operations = [Operation::new(db.clone(), older(head(3)))];
    assert_reused(store.commit(&call(2), &transaction(&operations)).await);
    assert_eq!(table.proxy.take_operations(), ["TransactWriteItems"]);
    assert_eq!(table.rows(db.as_str()).await, before, "nothing was written");

    // The same request is answered as before.
    assert_eq!(store.push_head(&call(1), &db, &older(head(2))).await.unwrap(), replayed(head(2)));
}

#[tokio::test]
async fn a_key_is_forgotten_after_four_writes() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 1).await;
    table.store.push_head(&call(1), &db, &older(head(2))).await.unwrap().applied();
    for t in 3..=5 {
        table.store.push_head(&Call::fresh(), &db, &older(head(t))).await.unwrap().applied();
        assert_reused(table.store.push_head(&call(2), &db, &older(head(9))).await);
    }
    table.store.push_head(&Call::fresh(), &db, &older(head(6))).await.unwrap().applied();
    assert_eq!(table.store.push_head(&call(2), &db, &older(head(9))).await.unwrap(), updated(head(9)));
}

#[tokio::test]
async fn every_other_write_under_a_used_key_is_rejected_too() {
    let table = Table::fresh().await;
    let store = &table.store;
    let db = at("mydb");
    store.create_ledger(&call(1), &db, None, None).await.unwrap().applied();
    assert_reused(store.create_ledger(&call(2), &db, Some(&new_head(1)), None).await);
    assert_reused(store.push_head(&call(2), &db, &first(head(1))).await);
    assert_reused(store.acquire_lease(&call(2), &db, &index_lock("one", 60)).await);
    assert_reused(store.retract(&call(2), &db, None).await);
    assert_reused(store.reset_head(&call(2), &db, &to_head(1)).await);
    let held = store.acquire_lease(&Call::fresh(), &db, &index_lock("one", 60)).await.unwrap();
    let Leased::Held(Held { token, .. }) = held else { panic!("{held:?}") };
    assert_reused(store.refresh_lease(&call(2), &db, &index_lock("one", 60), token).await);
    assert_reused(store.release_lease(&call(2), &db, &claim_of(LeaseName::INDEX, "one", token)).await);
    store.publish_graph_source(&call(1), &bm25("search", json!({ "n": 1 }), &[])).await.unwrap().applied();
    assert_reused(store.publish_graph_source(&call(2), &bm25("search", json!({ "n": 2 }), &[])).await);
    let record = store.lookup(&at("search")).await.unwrap().unwrap();
    assert_eq!(record.config, Config::new(1, json!({ "n": 1 })));
}

/// Fluree replaces values and leaves the ids of our calls where they are.
#[tokio::test]
async fn a_repeated_push_is_answered_with_its_own_value_though_fluree_has_written_since() {
    let table = Table::fresh().await;
    let (store, fluree) = (&table.store, Fluree::on(&table));
    let db = unborn(store, "mydb").await;
    let pk = db.as_str();

    store.push_head(&call(1), &db, &older(head(1))).await.unwrap().applied();
    assert!(fluree.commit(pk, &cid(2), 2).await);
    assert_eq!(store.push_head(&call(1), &db, &older(head(1))).await.unwrap(), replayed(head(1)));

    store.push_index(&call(1), &db, &older(index(1))).await.unwrap().applied();
    let again = IndexPush::overwrite(index_of(50, 1));
    let overwritten = Index::new(1, IndexRoot { id: index_cid(50), rev: 1, graphs: Default::default() });
    let overwrite = Call::fresh();
    assert_eq!(store.push_index(&overwrite, &db, &again).await.unwrap(), updated(overwritten.clone()));
    assert!(fluree.publish_index(pk, &index_cid(2), 2).await);
    assert_eq!(store.push_index(&overwrite, &db, &again).await.unwrap(), replayed(overwritten));
    assert_eq!(store.push_index(&call(1), &db, &older(index(1))).await.unwrap(), replayed(index_at(1, 0)));

    let push = cas(status(1, "ready"), status_with(2, "busy", json!({ "n": 1 })));
    store.push_status(&call(1), &db, &push).await.unwrap().applied();
    assert!(fluree.push_status(pk, (2, "busy"), (3, "other")).await);
    let repeated = store.push_status(&call(1), &db, &push).await.unwrap();
    assert_eq!(repeated, replayed(status_with(2, "busy", json!({ "n": 1 }))));

    let push = cas(Config::unborn(), new_config(json!({ "n": 1 })));
    store.push_config(&call(1), &db, &push).await.unwrap().applied();
    assert!(fluree.push_config(pk, 1, "fluree:ctx", 2).await);
    assert_eq!(store.push_config(&call(1), &db, &push).await.unwrap(), replayed(Config::new(1, json!({ "n": 1 }))));

    // The same for a creation by a push, and for a transaction.
    let new = at("new");
    store.push_head(&call(1), &new, &first(head(1))).await.unwrap().applied();
    assert!(fluree.commit(new.as_str(), &cid(2), 2).await);
    assert_eq!(store.push_head(&call(1), &new, &first(head(1))).await.unwrap(), replayed(head(1)));
    let both = Call::fresh();
    let operations = [Operation::new(new.clone(), older(head(3)))];
    store.commit(&both, &transaction(&operations)).await.unwrap().applied();
    assert!(fluree.commit(new.as_str(), &cid(4), 4).await);
    let repeated = store.commit(&both, &transaction(&operations)).await.unwrap();
    let own = OperationOutcome::Updated { value: ConcernState::Head(head(3)), replayed: true };
    assert_eq!(repeated, Committed::Committed(vec![own]));
}
