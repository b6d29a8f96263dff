use nameservice_tests::{layout, prelude::*};

use super::{found, retracted, source, unborn};

async fn push(store: &Store, db: &Address, expected: Config, new: Config) -> PushOutcome<Value> {
    store.push_config(&Call::fresh(), db, &cas(expected, new)).await.unwrap()
}

fn context(n: i64) -> Value {
    json!({ "default_context_id": cid(n).as_str() })
}

#[tokio::test]
async fn the_expected_config_is_replaced_and_both_names_of_the_context_are_written() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    let one = Config::new(1, json!({ "default_context_id": cid(1).as_str(), "a": [1, { "b": null }] }));
    assert_eq!(push(&table.store, &db, Config::unborn(), one.clone()).await, updated(one.clone()));
    assert_eq!(table.store.config(&db).await.unwrap(), Some(one.clone()));
    let row = table.row("mydb:main", "config").await.unwrap();
    assert_eq!(row["default_context_address"], rows::s(cid(1).as_str()));
    layout::assert_ours([&row]);

    let two = Config::new(2, json!({ "c": "only" }));
    assert_eq!(push(&table.store, &db, one, two.clone()).await, updated(two.clone()));
    assert_eq!(found(&table.store, &db).await.config, two);
    let row = table.row("mydb:main", "config").await.unwrap();
    assert!(!row.contains_key("default_context_address") && !row.contains_key("default_context_id"), "{row:?}");
}

#[tokio::test]
async fn another_watermark_or_payload_is_a_conflict_that_shows_it() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    let there = Config::new(2, json!({ "default_context_id": cid(1).as_str(), "a": 1 }));
    push(&table.store, &db, Config::unborn(), there.clone()).await;
    for expected in [
        Config::unborn(),
        Config { v: 1, payload: None },
        Config::new(3, there.payload.clone().unwrap()),
        Config::new(2, json!({ "default_context_id": cid(1).as_str(), "a": 2 })),
        Config::new(2, json!({ "default_context_id": cid(2).as_str(), "a": 1 })),
        Config::new(2, json!({ "a": 1 })),
    ] {
        let outcome = push(&table.store, &db, expected.clone(), Config::new(9, json!({}))).await;
        assert_eq!(outcome, conflict(there.clone()), "{expected:?}");
    }
    for v in [1, 2] {
        let outcome = push(&table.store, &db, there.clone(), Config::new(v, json!({}))).await;
        assert_eq!(outcome, conflict(there.clone()), "the watermark must grow");
    }
    let watermark = Config { v: 2, payload: None };
    let new = Config::new(3, json!({ "a": 2 }));
    assert_eq!(push(&table.store, &db, watermark, new.clone()).await, updated(new));
}

#[tokio::test]
async fn an_unknown_record_is_unknown_and_stays_so() {
    let table = Table::fresh().await;
    let outcome = push(&table.store, &at("mydb"), Config::unborn(), Config::new(1, context(1))).await;
    assert_eq!(outcome, PushOutcome::Unknown);
    assert!(table.rows("mydb:main").await.is_empty());
}

#[tokio::test]
async fn a_retracted_record_takes_no_config() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    retracted(&table.store, &db).await;
    let outcome = push(&table.store, &db, Config::unborn(), Config::new(1, context(1))).await;
    assert_eq!(outcome, PushOutcome::Retracted);
}

#[tokio::test]
async fn a_graph_source_keeps_its_config_for_itself() {
    let table = Table::fresh().await;
    let search = source(&table.store, "search", &[]).await;
    let before = table.row("search:main", "config").await;
    for expected in [Config { v: 1, payload: None }, Config::new(1, json!({ "k1": 1.2 })), Config::unborn()] {
        let outcome = push(&table.store, &search, expected, Config::new(2, context(1))).await;
        assert_eq!(outcome, PushOutcome::WrongKind(RecordKind::GraphSource));
    }
    assert_eq!(table.row("search:main", "config").await, before);
    assert_eq!(table.store.config(&search).await.unwrap(), Some(Config::new(1, json!({ "k1": 1.2 }))));
}

#[tokio::test]
async fn a_graph_source_of_flurees_keeps_its_config_for_itself_too() {
    let table = Table::fresh().await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", r#"{"k1":1.2}"#, &[])).await;
    let outcome = push(&table.store, &at("search"), Config { v: 1, payload: None }, Config::new(2, context(1))).await;
    assert_eq!(outcome, PushOutcome::WrongKind(RecordKind::GraphSource));
}

#[tokio::test]
async fn the_context_that_fluree_sets_or_removes_is_what_counts() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    push(&table.store, &db, Config::unborn(), Config::new(1, context(1))).await;
    assert!(Fluree::on(&table).push_config("mydb:main", 1, cid(2).as_str(), 2).await);
    assert_eq!(table.store.config(&db).await.unwrap(), Some(Config::new(2, context(2))));
    let both = [Config::new(2, context(1)), Config::new(2, context(2))];
    assert_eq!(push(&table.store, &db, both[0].clone(), Config::new(3, context(3))).await, conflict(both[1].clone()));

    assert!(Fluree::on(&table).clear_config("mydb:main", 2, 3).await);
    let cleared = table.store.config(&db).await.unwrap().unwrap();
    let shown = cleared.payload.as_ref().and_then(|payload| payload.get("default_context_id"));
    assert_eq!((cleared.v, shown), (3, None), "the guide's name is left behind, and does not count");
    let expected = Config { v: 3, payload: None };
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
