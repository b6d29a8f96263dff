use nameservice_tests::prelude::*;

use crate::contract::{found, source, unborn};

async fn publish(store: &dyn Records, publication: &GraphSourcePublication) -> Published {
    store.publish_graph_source(&Call::fresh(), publication).await.unwrap()
}

/// The counts of a target: what its meta says, and the back references in its partition.
async fn counted_at(table: &Table, pk: &str) -> (i64, Vec<String>) {
    let rows = table.rows(pk).await;
    let count = rows
        .get("meta")
        .and_then(|meta| meta.get("dependents"))
        .map_or(0, |count| count["N"].as_str().unwrap().parse().unwrap());
    let backrefs = rows.iter().filter(|(sk, _)| sk.starts_with("backref#"));
    let names = backrefs.map(|(sk, row)| {
        let dependent = row["dependent"]["S"].as_str().unwrap();
        assert_eq!(*sk, format!("backref#{dependent}"));
        dependent.to_owned()
    });
    (count, names.collect())
}

fn expecting(v: i64, publication: GraphSourcePublication) -> GraphSourcePublication {
    publication.expecting(v).unwrap()
}

#[tokio::test]
async fn a_graph_source_that_fluree_made_is_read_and_republished_and_from_then_on_counted() {
    let table = Table::fresh().await;
    unborn(&table.store, "mydb").await;
    let config = r#"{"k1": 1.2, "secret": null}"#;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", config, &["mydb:main"])).await;
    let record = table.store.graph_source(&at("search")).await.unwrap().unwrap();
    assert_eq!(record.config, Config::new(1, json!({ "k1": 1.2, "secret": null })));
    assert_eq!(record.dependencies, ["mydb:main"]);
    assert_eq!(counted_at(&table, "mydb:main").await, (0, vec![]));
    let outcome = publish(&table.store, &expecting(1, bm25("search", json!({ "n": 2 }), &["mydb"]))).await;
    assert!(matches!(outcome, Published::Updated(_)), "{outcome:?}");
    assert_eq!(counted_at(&table, "mydb:main").await, (1, vec!["search:main".into()]));
}

#[tokio::test]
async fn a_graph_source_takes_the_place_of_a_ghost_and_orphans() {
    let table = Table::fresh().await;
    table.put(&[rows::ghost_meta("search:main")]).await;
    table.put(&rows::orphans("search:main", cid(4), 4)).await;
    source(&table.store, "search", &[]).await;
    let record = found(&table.store, &at("search")).await;
    assert_eq!((record.index, record.config.v), (Index::unborn(), 1));
}

#[tokio::test]
async fn a_ghost_and_what_fluree_retracted_are_missing_dependencies() {
    let table = Table::fresh().await;
    table.put(&[rows::ghost_meta("ghost:main")]).await;
    table.put(&rows::ledger("theirs:main").retracted().rows()).await;
    let outcome = publish(&table.store, &bm25("search", json!({}), &["ghost", "theirs"])).await;
    let Published::MissingDependencies(mut missing) = outcome else { panic!("{outcome:?}") };
    missing.sort();
    assert_eq!(missing, ["ghost", "theirs"].map(at));
    assert!(table.rows("search:main").await.is_empty());
}
