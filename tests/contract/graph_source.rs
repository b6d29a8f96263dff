use nameservice_tests::{layout, prelude::*};

use super::{born, found, retracted, source, unborn};

async fn publish(store: &Store, address: &str, publication: &GraphSourcePublication) -> Published {
    store.publish_graph_source(&Call::fresh(), &at(address), publication).await.unwrap()
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
    GraphSourcePublication { expected_v: Some(v), ..publication }
}

#[tokio::test]
async fn a_new_graph_source_is_created_and_counted_at_its_dependencies() {
    let table = Table::fresh().await;
    for name in ["a", "b"] {
        unborn(&table.store, name).await;
    }
    let config = json!({ "k1": 1.2, "fields": ["x", { "deep": null }] });
    let outcome = publish(&table.store, "search", &bm25(config.clone(), &["a", "b"])).await;
    let Published::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*record, found(&table.store, &at("search")).await);
    assert_eq!(table.store.graph_source(&at("search")).await.unwrap(), Some(*record.clone()));
    assert_eq!((record.kind, record.source_type.as_deref()), (RecordKind::GraphSource, Some("f:Bm25Index")));
    assert_eq!(record.config, Config::new(1, config.clone()));
    assert_eq!((record.head, record.index, record.status), (None, Index::unborn(), status(1, "ready")));
    assert_eq!(record.dependencies, ["a:main", "b:main"]);

    let rows = table.rows("search:main").await;
    assert_eq!(rows.keys().collect::<Vec<_>>(), ["config", "index", "meta", "status"]);
    layout::assert_ours(rows.values());
    assert_eq!(rows["meta"]["dependencies"], rows::texts(&["a:main", "b:main"]));
    assert_eq!(rows["meta"]["counted"], rows::texts(&["a:main", "b:main"]));
    let text = rows["config"]["config_json"]["S"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(text).unwrap(), config);
    for target in ["a:main", "b:main"] {
        assert_eq!(counted_at(&table, target).await, (1, vec!["search:main".into()]));
        layout::assert_ours(table.rows(target).await.values());
        assert_eq!(found(&table.store, &at(target)).await.dependents, 1);
    }
}

#[tokio::test]
async fn a_graph_source_may_depend_on_nothing_and_on_graph_sources() {
    let table = Table::fresh().await;
    source(&table.store, "one", &[]).await;
    source(&table.store, "two", &["one"]).await;
    assert_eq!(counted_at(&table, "one:main").await, (1, vec!["two:main".into()]));
}

#[tokio::test]
async fn ledgers_are_no_graph_sources_and_the_other_way_round() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 3).await;
    let before = table.rows("mydb:main").await;
    assert_eq!(table.store.graph_source(&db).await.unwrap(), None);
    let wrong = Published::WrongKind { kind: RecordKind::Ledger, source_type: None };
    assert_eq!(publish(&table.store, "mydb", &bm25(json!({}), &[])).await, wrong);
    assert_eq!(table.rows("mydb:main").await, before);
}

#[tokio::test]
async fn another_type_is_wrong() {
    let table = Table::fresh().await;
    source(&table.store, "search", &[]).await;
    let other = GraphSourcePublication { source_type: "f:HnswIndex".into(), ..bm25(json!({}), &[]) };
    let wrong = Published::WrongKind { kind: RecordKind::GraphSource, source_type: Some("f:Bm25Index".into()) };
    assert_eq!(publish(&table.store, "search", &other).await, wrong);
    assert_eq!(found(&table.store, &at("search")).await.config.v, 1);
}

#[tokio::test]
async fn a_republication_replaces_the_config_and_keeps_the_index() {
    let table = Table::fresh().await;
    let search = source(&table.store, "search", &[]).await;
    table.store.push_index(&Call::fresh(), &search, &older(index(4))).await.unwrap();
    let outcome = publish(&table.store, "search", &bm25(json!({ "b": 2 }), &[])).await;
    let Published::Updated(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*record, found(&table.store, &search).await);
    assert_eq!(record.config, Config::new(2, json!({ "b": 2 })));
    assert_eq!(record.index, index_at(4, 0));
    layout::assert_ours(table.rows("search:main").await.values());
}

#[tokio::test]
async fn the_expected_config_is_compared() {
    let table = Table::fresh().await;
    let one = bm25(json!({ "n": 1 }), &[]);
    assert_eq!(publish(&table.store, "search", &expecting(1, one.clone())).await, Published::Conflict { actual: None });
    assert!(table.rows("search:main").await.is_empty());
    let outcome = publish(&table.store, "search", &expecting(0, one.clone())).await;
    assert!(matches!(outcome, Published::Created(_)), "{outcome:?}");
    let there = Published::Conflict { actual: Some(Config::new(1, json!({ "n": 1 }))) };
    let two = bm25(json!({ "n": 2 }), &[]);
    assert_eq!(publish(&table.store, "search", &expecting(0, two.clone())).await, there);
    assert_eq!(publish(&table.store, "search", &expecting(2, two.clone())).await, there);
    let outcome = publish(&table.store, "search", &expecting(1, two)).await;
    assert!(matches!(&outcome, Published::Updated(record) if record.config.v == 2), "{outcome:?}");
}

#[tokio::test]
async fn every_missing_or_retracted_dependency_is_listed_and_nothing_is_written() {
    let table = Table::fresh().await;
    let (store, ok) = (&table.store, unborn(&table.store, "ok").await);
    let gone = unborn(store, "gone").await;
    retracted(store, &gone).await;
    table.put(&[rows::ghost_meta("ghost:main")]).await;
    table.put(&rows::ledger("theirs:main").retracted().rows()).await;
    let wanted = bm25(json!({}), &["ok", "nobody", "gone", "ghost", "theirs", "no:where"]);
    let missing = |outcome: Published| match outcome {
        Published::MissingDependencies(mut missing) => {
            missing.sort();
            missing
        }
        other => panic!("{other:?}"),
    };
    let all = ["ghost", "gone", "no:where", "nobody", "theirs"].map(at);
    assert_eq!(missing(publish(store, "search", &wanted).await), all);
    assert!(table.rows("search:main").await.is_empty());
    assert_eq!(counted_at(&table, "ok:main").await, (0, vec![]));

    source(store, "search", &["ok"]).await;
    assert_eq!(missing(publish(store, "search", &wanted).await), all);
    let record = found(store, &at("search")).await;
    assert_eq!((record.config.v, record.dependencies), (1, vec!["ok:main".into()]));
    assert_eq!(found(store, &ok).await.dependents, 1);
}

#[tokio::test]
async fn changed_dependencies_are_counted_and_uncounted() {
    let table = Table::fresh().await;
    for name in ["a", "b", "c"] {
        unborn(&table.store, name).await;
    }
    source(&table.store, "search", &["a", "b"]).await;
    let outcome = publish(&table.store, "search", &bm25(json!({}), &["b", "c"])).await;
    assert!(matches!(outcome, Published::Updated(_)), "{outcome:?}");
    assert_eq!(counted_at(&table, "a:main").await, (0, vec![]));
    assert_eq!(counted_at(&table, "b:main").await, (1, vec!["search:main".into()]));
    assert_eq!(counted_at(&table, "c:main").await, (1, vec!["search:main".into()]));
    let meta = table.row("search:main", "meta").await.unwrap();
    assert_eq!(meta["dependencies"], rows::texts(&["b:main", "c:main"]));
    assert_eq!(meta["counted"], rows::texts(&["b:main", "c:main"]));

    let unchanged = GraphSourcePublication { dependencies: None, ..bm25(json!({ "n": 3 }), &[]) };
    let outcome = publish(&table.store, "search", &unchanged).await;
    let Published::Updated(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.dependencies, ["b:main", "c:main"]);
    assert_eq!(counted_at(&table, "b:main").await.0, 1);

    let outcome = publish(&table.store, "search", &bm25(json!({}), &[])).await;
    assert!(matches!(outcome, Published::Updated(_)), "{outcome:?}");
    for target in ["a:main", "b:main", "c:main"] {
        assert_eq!(counted_at(&table, target).await, (0, vec![]), "{target}");
    }
}

#[tokio::test]
async fn as_many_dependencies_as_allowed_can_all_be_replaced_at_once() {
    let table = Table::fresh().await;
    let names: Vec<String> = (0..2 * MAX_DEPENDENCIES).map(|n| format!("d{n:02}:main")).collect();
    for name in &names {
        table.put(&rows::meta_only(name)).await;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (one, two) = names.split_at(MAX_DEPENDENCIES);
    source(&table.store, "search", one).await;
    let outcome = publish(&table.store, "search", &bm25(json!({}), two)).await;
    assert!(matches!(outcome, Published::Updated(_)), "{outcome:?}");
    for target in one {
        assert_eq!(counted_at(&table, target).await, (0, vec![]));
    }
    for target in two {
        assert_eq!(counted_at(&table, target).await, (1, vec!["search:main".into()]));
    }
}

#[tokio::test]
async fn dependents_of_many_are_each_counted_once() {
    let table = Table::fresh().await;
    unborn(&table.store, "mydb").await;
    for name in ["s1", "s2", "s3"] {
        source(&table.store, name, &["mydb"]).await;
    }
    let all = ["s1:main", "s2:main", "s3:main"].map(String::from).to_vec();
    assert_eq!(counted_at(&table, "mydb:main").await, (3, all));
    assert_eq!(table.store.dependents(&at("mydb")).await.unwrap(), ["s1", "s2", "s3"].map(at));
}

#[tokio::test]
async fn a_retracted_graph_source_is_not_republished() {
    let table = Table::fresh().await;
    let search = source(&table.store, "search", &[]).await;
    retracted(&table.store, &search).await;
    assert_eq!(publish(&table.store, "search", &bm25(json!({ "n": 2 }), &[])).await, Published::Retracted);
    assert_eq!(found(&table.store, &search).await.config.v, 1);
}

#[tokio::test]
async fn a_call_that_arrives_twice_publishes_once() {
    let table = Table::fresh().await;
    unborn(&table.store, "mydb").await;
    let (search, call, wanted) = (at("search"), Call::fresh(), bm25(json!({ "n": 1 }), &["mydb"]));
    for _ in 0..2 {
        let outcome = table.store.publish_graph_source(&call, &search, &wanted).await.unwrap();
        let (Published::Created(record) | Published::Updated(record)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(record.config.v, 1);
    }
    assert_eq!(found(&table.store, &search).await.config.v, 1);
    assert_eq!(counted_at(&table, "mydb:main").await.0, 1);
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
    let outcome = publish(&table.store, "search", &expecting(1, bm25(json!({ "n": 2 }), &["mydb"]))).await;
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
