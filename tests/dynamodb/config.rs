use nameservice_tests::prelude::*;

use crate::contract::unborn;

async fn push(store: &dyn Records, db: &Address, expected: Config, new: Config) -> PushOutcome<Value> {
    store.push_config(&Call::fresh(), db, &cas(expected, new)).await.unwrap()
}

fn context(n: i64) -> Value {
    json!({ "default_context_id": cid(n).as_str() })
}

#[tokio::test]
async fn a_graph_source_of_flurees_keeps_its_config_for_itself_too() {
    let table = Table::fresh().await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", r#"{"k1":1.2}"#, &[])).await;
    let outcome = push(&table.store, &at("search"), Config::stored(1, None), Config::new(2, context(1))).await;
    assert_eq!(outcome, PushOutcome::WrongKind(RecordKind::GraphSource));
}

#[tokio::test]
async fn the_context_that_fluree_sets_or_removes_is_what_counts() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    push(&table.store, &db, Config::unborn(), Config::new(1, context(1))).await.applied();
    assert!(Fluree::on(&table).push_config("mydb:main", 1, cid(2).as_str(), 2).await);
    assert_eq!(table.store.config(&db).await.unwrap(), Some(Config::new(2, context(2))));
    let both = [Config::new(2, context(1)), Config::new(2, context(2))];
    assert_eq!(push(&table.store, &db, both[0].clone(), Config::new(3, context(3))).await, conflict(both[1].clone()));

    assert!(Fluree::on(&table).clear_config("mydb:main", 2, 3).await);
    let cleared = table.store.config(&db).await.unwrap().unwrap();
    let shown = cleared.payload.as_ref().and_then(|payload| payload.get("default_context_id"));
    assert_eq!((cleared.v, shown), (3, None), "the guide's name is left behind, and does not count");
    let expected = Config::stored(3, None);
    let new = Config::new(4, context(4));
    assert_eq!(push(&table.store, &db, expected, new.clone()).await, updated(new));
}

#[tokio::test]
async fn the_guides_name_counts_on_rows_that_we_have_not_written() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").rows()).await;
    table.set("mydb:main", "config", "default_context_id", rows::s(cid(5).as_str())).await;
    table.set("mydb:main", "config", "config_v", rows::n(1)).await;
    let db = at("mydb");
    let there = Config::new(1, context(5));
    assert_eq!(table.store.config(&db).await.unwrap(), Some(there.clone()));
    let new = Config::new(2, context(6));
    assert_eq!(push(&table.store, &db, there, new.clone()).await, updated(new.clone()));
    assert_eq!(table.store.config(&db).await.unwrap(), Some(new));
}

#[tokio::test]
async fn a_missing_config_item_is_unborn_and_is_made_by_the_first_push() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only("mydb:main")).await;
    let db = at("mydb");
    assert_eq!(table.store.config(&db).await.unwrap(), Some(Config::unborn()));
    let new = Config::new(1, context(1));
    assert_eq!(push(&table.store, &db, Config::unborn(), new.clone()).await, updated(new.clone()));
    assert_eq!(table.store.config(&db).await.unwrap(), Some(new));
}

#[tokio::test]
async fn nulls_are_unborn() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").nulls().rows()).await;
    let db = at("mydb");
    assert_eq!(table.store.config(&db).await.unwrap(), Some(Config::unborn()));
    let new = Config::new(1, context(1));
    assert_eq!(push(&table.store, &db, Config::unborn(), new.clone()).await, updated(new));
}
