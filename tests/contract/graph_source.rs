use nameservice_tests::prelude::*;

use super::{Fixture, born, every_backend, found, retracted, source, unborn};

async fn publish(ns: &Fixture, publication: &GraphSourcePublication) -> Published {
    ns.publish_graph_source(&Call::fresh(), publication).await.unwrap()
}

/// The dependents of a record: their count (where the backend keeps one) and their addresses.
async fn counted_at(ns: &Fixture, target: &str) -> (i64, Vec<Address>) {
    let target = at(target);
    let mut dependents = ns.dependents(&target).await.unwrap();
    dependents.sort();
    let counted = match ns.capabilities().await.unwrap().atomic_references {
        true => found(ns, &target).await.dependents,
        false => i64::try_from(dependents.len()).unwrap(),
    };
    (counted, dependents)
}

fn expecting(v: i64, publication: GraphSourcePublication) -> GraphSourcePublication {
    publication.expecting(v).unwrap()
}

#[every_backend]
async fn a_new_graph_source_is_created_and_counted_at_its_dependencies(ns: &Fixture) {
    for name in ["a", "b"] {
        unborn(ns, name).await;
    }
    let config = json!({ "k1": 1.2, "fields": ["x", { "deep": null }] });
    let outcome = publish(ns, &bm25("search", config.clone(), &["a", "b"])).await;
    let Published::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*record, found(ns, &at("search")).await);
    assert_eq!(ns.graph_source(&at("search")).await.unwrap(), Some(*record.clone()));
    assert_eq!((record.kind, record.source_type.as_deref()), (RecordKind::GraphSource, Some("f:Bm25Index")));
    assert_eq!(record.config, Config::new(1, config.clone()));
    assert_eq!((record.head, record.index, record.status), (None, Index::unborn(), status(1, "ready")));
    assert_eq!(record.dependencies, ["a:main", "b:main"]);
    for target in ["a:main", "b:main"] {
        assert_eq!(counted_at(ns, target).await, (1, vec![at("search")]));
    }
}

#[every_backend]
async fn a_graph_source_may_depend_on_nothing_and_on_graph_sources(ns: &Fixture) {
    source(ns, "one", &[]).await;
    source(ns, "two", &["one"]).await;
    assert_eq!(counted_at(ns, "one:main").await, (1, vec![at("two")]));
}

#[every_backend]
async fn ledgers_are_no_graph_sources_and_the_other_way_round(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    let before = found(ns, &db).await;
    assert_eq!(ns.graph_source(&db).await.unwrap(), None);
    let wrong = Published::WrongKind { kind: RecordKind::Ledger, source_type: None };
    assert_eq!(publish(ns, &bm25("mydb", json!({}), &[])).await, wrong);
    assert_eq!(found(ns, &db).await, before);
}

#[every_backend]
async fn the_version_of_a_config_may_be_given_and_only_grows(ns: &Fixture) {
    let at_v = |v: i64, k: i64| bm25("search", json!({ "k": k }), &[]).with_v(v).unwrap();
    let Published::Created(record) = publish(ns, &at_v(7, 1)).await else { panic!() };
    assert_eq!(record.config, Config::new(7, json!({ "k": 1 })));
    for v in [1, 7] {
        let conflict = Published::Conflict { actual: Some(Config::new(7, json!({ "k": 1 }))) };
        assert_eq!(publish(ns, &at_v(v, 2)).await, conflict);
    }
    let Published::Updated(record) = publish(ns, &expecting(7, at_v(12, 3))).await else { panic!() };
    assert_eq!(record.config, Config::new(12, json!({ "k": 3 })));
    // Without a given version it grows by one. A repeated creation is recognised by its version.
    let Published::Updated(record) = publish(ns, &bm25("search", json!({}), &[])).await else { panic!() };
    assert_eq!(record.config.v, 13);
    let (call, new) = (Call::fresh(), bm25("other", json!({}), &[]).with_v(5).unwrap());
    for _ in 0..2 {
        let published = ns.publish_graph_source(&call, &new).await.unwrap();
        assert!(matches!(&published, Published::Created(record) if record.config.v == 5), "{published:?}");
    }
}

#[every_backend]
async fn another_type_is_wrong(ns: &Fixture) {
    source(ns, "search", &[]).await;
    let other = graph_source("search", "f:HnswIndex", json!({}), &[]);
    let wrong = Published::WrongKind { kind: RecordKind::GraphSource, source_type: Some("f:Bm25Index".into()) };
    assert_eq!(publish(ns, &other).await, wrong);
    assert_eq!(found(ns, &at("search")).await.config.v, 1);
}

#[every_backend]
async fn a_republication_replaces_the_config_and_keeps_the_index(ns: &Fixture) {
    let search = source(ns, "search", &[]).await;
    ns.push_index(&Call::fresh(), &search, &older(index(4))).await.unwrap().applied();
    let outcome = publish(ns, &bm25("search", json!({ "b": 2 }), &[])).await;
    let Published::Updated(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*record, found(ns, &search).await);
    assert_eq!(record.config, Config::new(2, json!({ "b": 2 })));
    assert_eq!(record.index, index_at(4, 0));
}

#[every_backend]
async fn the_expected_config_is_compared(ns: &Fixture) {
    let one = bm25("search", json!({ "n": 1 }), &[]);
    assert_eq!(publish(ns, &expecting(1, one.clone())).await, Published::Conflict { actual: None });
    assert_eq!(ns.lookup(&at("search:main")).await.unwrap(), None);
    let outcome = publish(ns, &expecting(0, one.clone())).await;
    assert!(matches!(outcome, Published::Created(_)), "{outcome:?}");
    let there = Published::Conflict { actual: Some(Config::new(1, json!({ "n": 1 }))) };
    let two = bm25("search", json!({ "n": 2 }), &[]);
    assert_eq!(publish(ns, &expecting(0, two.clone())).await, there);
    assert_eq!(publish(ns, &expecting(2, two.clone())).await, there);
    let outcome = publish(ns, &expecting(1, two)).await;
    assert!(matches!(&outcome, Published::Updated(record) if record.config.v == 2), "{outcome:?}");
}

#[every_backend]
async fn every_missing_or_retracted_dependency_is_listed_and_nothing_is_written(ns: &Fixture) {
    unborn(ns, "ok").await;
    let gone = unborn(ns, "gone").await;
    retracted(ns, &gone).await;
    let wanted = bm25("search", json!({}), &["ok", "nobody", "gone", "no:where"]);
    let missing = |outcome: Published| match outcome {
        Published::MissingDependencies(mut missing) => {
            missing.sort();
            missing
        }
        other => panic!("{other:?}"),
    };
    let all = ["gone", "no:where", "nobody"].map(at);
    assert_eq!(missing(publish(ns, &wanted).await), all);
    assert_eq!(ns.lookup(&at("search:main")).await.unwrap(), None);
    assert_eq!(counted_at(ns, "ok:main").await, (0, vec![]));

    source(ns, "search", &["ok"]).await;
    assert_eq!(missing(publish(ns, &wanted).await), all);
    let record = found(ns, &at("search")).await;
    assert_eq!((record.config.v, record.dependencies), (1, vec!["ok:main".into()]));
    assert_eq!(counted_at(ns, "ok:main").await.0, 1);
}

#[every_backend]
async fn changed_dependencies_are_counted_and_uncounted(ns: &Fixture) {
    for name in ["a", "b", "c"] {
        unborn(ns, name).await;
    }
    source(ns, "search", &["a", "b"]).await;
    let outcome = publish(ns, &bm25("search", json!({}), &["b", "c"])).await;
    assert!(matches!(outcome, Published::Updated(_)), "{outcome:?}");
    assert_eq!(counted_at(ns, "a:main").await, (0, vec![]));
    assert_eq!(counted_at(ns, "b:main").await, (1, vec![at("search")]));
    assert_eq!(counted_at(ns, "c:main").await, (1, vec![at("search")]));
    assert_eq!(found(ns, &at("search")).await.dependencies, ["b:main", "c:main"]);

    let unchanged = GraphSourcePublication::new(at("search"), "f:Bm25Index", object(json!({ "n": 3 }))).unwrap();
    let outcome = publish(ns, &unchanged).await;
    let Published::Updated(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.dependencies, ["b:main", "c:main"]);
    assert_eq!(counted_at(ns, "b:main").await.0, 1);

    let outcome = publish(ns, &bm25("search", json!({}), &[])).await;
    assert!(matches!(outcome, Published::Updated(_)), "{outcome:?}");
    for target in ["a:main", "b:main", "c:main"] {
        assert_eq!(counted_at(ns, target).await, (0, vec![]), "{target}");
    }
}

#[every_backend]
async fn as_many_dependencies_as_allowed_can_all_be_replaced_in_one_request(ns: &Fixture) {
    let names: Vec<String> = (0..2 * MAX_DEPENDENCIES).map(|n| format!("d{n:02}:main")).collect();
    for name in &names {
        unborn(ns, name).await;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (one, two) = names.split_at(MAX_DEPENDENCIES);
    source(ns, "search", one).await;
    let outcome = publish(ns, &bm25("search", json!({}), two)).await;
    assert!(matches!(outcome, Published::Updated(_)), "{outcome:?}");
    for target in one {
        assert_eq!(counted_at(ns, target).await, (0, vec![]));
    }
    for target in two {
        assert_eq!(counted_at(ns, target).await, (1, vec![at("search")]));
    }
}

#[every_backend]
async fn dependents_of_many_are_each_counted_once(ns: &Fixture) {
    unborn(ns, "mydb").await;
    for name in ["s1", "s2", "s3"] {
        source(ns, name, &["mydb"]).await;
    }
    assert_eq!(counted_at(ns, "mydb:main").await, (3, ["s1", "s2", "s3"].map(at).to_vec()));
}

#[every_backend]
async fn a_retracted_graph_source_is_not_republished(ns: &Fixture) {
    let search = source(ns, "search", &[]).await;
    retracted(ns, &search).await;
    assert_eq!(publish(ns, &bm25("search", json!({ "n": 2 }), &[])).await, Published::Retracted);
    assert_eq!(found(ns, &search).await.config.v, 1);
}

#[every_backend]
async fn a_call_that_arrives_twice_publishes_once(ns: &Fixture) {
    unborn(ns, "mydb").await;
    let (search, call, wanted) = (at("search"), Call::fresh(), bm25("search", json!({ "n": 1 }), &["mydb"]));
    for _ in 0..2 {
        let outcome = ns.publish_graph_source(&call, &wanted).await.unwrap();
        let (Published::Created(record) | Published::Updated(record)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(record.config.v, 1);
    }
    assert_eq!(found(ns, &search).await.config.v, 1);
    assert_eq!(counted_at(ns, "mydb:main").await.0, 1);
}
