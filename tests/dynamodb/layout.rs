//! What we write, row by row. That each row has the attributes of the layout and no others is checked after every test
//! of the contract.

use nameservice_tests::prelude::*;

use crate::contract::{born, branch, retracted, source, unborn};

#[tokio::test]
async fn a_ledger_is_five_rows() {
    let table = Table::fresh().await;
    let db = at("tenant/a/mydb:feature/x");
    let config = json!({ "default_context_id": cid(9).as_str(), "theme": { "dark": true } });
    table
        .store
        .create_ledger(&Call::fresh(), &db, Some(&new_head(7)), Some(&new_config(config.clone())))
        .await
        .unwrap()
        .applied();
    let rows = table.rows(db.as_str()).await;
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["config", "head", "index", "meta", "status"]);
    assert_eq!(rows["meta"]["name"], rows::s("tenant/a/mydb"));
    assert_eq!(rows["meta"]["branch"], rows::s("feature/x"));
    assert_eq!(rows["config"]["default_context_address"], rows::s(cid(9).as_str()));
    assert_eq!(rows["config"]["default_context_id"], rows::s(cid(9).as_str()));
    assert_eq!(rows["config"]["config_meta"], json!({ "M": { "theme": { "M": { "dark": { "BOOL": true } } } } }));
}

#[tokio::test]
async fn a_config_push_writes_and_removes_both_names_of_the_context() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    let one = Config::new(1, json!({ "default_context_id": cid(1).as_str() }));
    table.store.push_config(&Call::fresh(), &db, &cas(Config::unborn(), one.clone())).await.unwrap().applied();
    let row = table.row("mydb:main", "config").await.unwrap();
    assert_eq!(row["default_context_address"], rows::s(cid(1).as_str()));
    assert_eq!(row["default_context_id"], rows::s(cid(1).as_str()));
    let two = Config::new(2, json!({ "c": "only" }));
    table.store.push_config(&Call::fresh(), &db, &cas(one, two)).await.unwrap().applied();
    let row = table.row("mydb:main", "config").await.unwrap();
    assert!(!row.contains_key("default_context_address") && !row.contains_key("default_context_id"), "{row:?}");
}

#[tokio::test]
async fn a_branch_names_its_source_which_counts_it() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 5).await;
    branch(&table.store, "mydb:dev", &db).await;
    branch(&table.store, "mydb:dev2", &db).await;
    assert_eq!(table.row("mydb:dev", "meta").await.unwrap()["bp_source"], rows::s("main"));
    assert_eq!(table.row("mydb:main", "meta").await.unwrap()["branches"], rows::n(2));
}

#[tokio::test]
async fn a_graph_source_is_four_rows_and_one_back_reference_a_dependency() {
    let table = Table::fresh().await;
    for name in ["a", "b"] {
        unborn(&table.store, name).await;
    }
    source(&table.store, "search", &["a", "b"]).await;
    let rows = table.rows("search:main").await;
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["config", "index", "meta", "status"]);
    assert_eq!(rows["meta"]["dependencies"], rows::texts(&["a:main", "b:main"]));
    assert_eq!(rows["meta"]["counted"], rows::texts(&["a:main", "b:main"]));
    let text = rows["config"]["config_json"]["S"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), json!({ "k1": 1.2 }));
    for target in ["a:main", "b:main"] {
        let rows = table.rows(target).await;
        assert_eq!(rows["meta"]["dependents"], rows::n(1));
        assert_eq!(rows["backref#search:main"]["dependent"], rows::s("search:main"));
    }
}

#[tokio::test]
async fn a_graph_without_an_index_is_null() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 9).await;
    let mut update = index(1);
    update = update.with_graph("g", None).unwrap();
    table.store.push_index(&Call::fresh(), &db, &older(update)).await.unwrap().applied();
    assert_eq!(table.row("mydb:main", "index").await.unwrap()["graphs"], json!({ "M": { "g": { "NULL": true } } }));
}

#[tokio::test]
async fn a_retracted_record_is_marked_on_every_row_that_a_push_writes() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 3).await;
    retracted(&table.store, &db).await;
    let rows = table.rows("mydb:main").await;
    for sk in ["meta", "head", "index", "config"] {
        assert_eq!(rows[sk]["retracted"], rows::truth(true), "{sk}");
    }
}
