//! References, from both sides.

use super::*;

#[tokio::test]
async fn references_that_fluree_wrote_are_adopted() {
    let table = Table::fresh().await;
    let db = ledger(&table, "mydb").await;
    table.put(&rows::ledger("other:main").rows()).await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &["mydb:main", "other"])).await;
    mended(&table, &["search:main references-uncounted"]).await;
    assert_eq!(retract(&table, &db).await, Retracted::HasDependents);
    assert_eq!(table.store.dependents(&at("other")).await.unwrap(), [at("search")]);
    let meta = table.row("search:main", "meta").await.unwrap();
    assert_eq!(meta["counted"], rows::texts(&["mydb:main", "other:main"]));
    assert_eq!(meta["dependencies"], rows::texts(&["mydb:main", "other"]), "Fluree's words stay Fluree's");
    assert_eq!(table.store.purge(&Call::fresh(), &at("search")).await.unwrap(), Purged::Purged);
    assert_references(&table.all_rows().await);
    assert!(matches!(retract(&table, &db).await, Retracted::Retracted(_)));
}

#[tokio::test]
async fn more_references_than_one_transaction_takes_are_adopted_in_several() {
    let table = Table::fresh().await;
    let targets: Vec<String> = (0..60).map(|i| format!("db{i}:main")).collect();
    let all: Vec<Row> = targets.iter().flat_map(|target| rows::meta_only(target)).collect();
    table.put_many(&all).await;
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &targets)).await;
    mended(&table, &["search:main references-uncounted"]).await;
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn references_to_what_is_missing_or_retracted_are_reported_and_not_adopted() {
    let table = Table::fresh().await;
    let (_, old) = (ledger(&table, "mydb").await, ledger(&table, "old").await);
    retract(&table, &old).await.applied();
    table.put(&[rows::ghost_meta("ghost:main")]).await;
    let dependencies = ["mydb:main", "none:main", "old:main", "ghost:main", "no:such:thing", "search:main"];
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &dependencies)).await;
    let all = [
        "ghost:main ghost-meta",
        "search:main dependency-missing",
        "search:main dependency-retracted",
        "search:main dependency-unreadable",
        "search:main references-uncounted",
    ];
    assert_eq!(found(&table).await, all);
    examine(&table.store, true).await;
    assert_eq!(found(&table).await, all[1..4]);
    assert_eq!(table.row("search:main", "meta").await.unwrap()["counted"], rows::texts(&["mydb:main"]));
    assert_eq!(table.rows("none:main").await.len() + table.rows("ghost:main").await.len(), 0);
    // Once the dependencies exist, they are adopted.
    ledger(&table, "none").await;
    table.store.restore(&Call::fresh(), &old).await.unwrap().applied();
    examine(&table.store, true).await;
    assert_eq!(found(&table).await, ["search:main dependency-missing", "search:main dependency-unreadable"]);
    let counted = rows::texts(&["mydb:main", "none:main", "old:main"]);
    assert_eq!(table.row("search:main", "meta").await.unwrap()["counted"], counted);
    assert_eq!(record(&table, &old).await.dependents, 1);
}

#[tokio::test]
async fn a_reference_whose_target_goes_meanwhile_is_not_adopted() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &["mydb:main"])).await;
    let direct = table.direct().clone();
    table.proxy.on(
        "TransactWriteItems",
        Fault::none().before(move || {
            let direct = direct.clone();
            async move { drop(direct.retract(&Call::fresh(), &at(DB), None).await.unwrap()) }
        }),
    );
    let findings = examine(&table.store, true).await;
    assert_eq!((findings[0].code, &findings[0].fix), ("references-uncounted", &Fix::ChangedMeanwhile));
    assert_eq!(record(&table, &db).await.dependents, 0);
    assert_eq!(table.row("search:main", "meta").await.unwrap().get("counted"), None);
    left_alone(&table, &["search:main dependency-retracted"]).await;
}

#[tokio::test]
async fn a_record_that_changes_while_it_is_looked_at_is_looked_at_again() {
    let table = Proxied::fresh().await;
    for name in ["a", "b"] {
        ledger(&table, name).await;
    }
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &["a:main"])).await;
    let direct = table.direct().clone();
    let republish = move || {
        let direct = direct.clone();
        async move {
            let publication = bm25("search", json!({}), &["a", "b"]);
            let outcome = direct.publish_graph_source(&Call::fresh(), &publication).await.unwrap();
            assert!(matches!(outcome, Published::Updated(_)), "{outcome:?}");
        }
    };
    // Between the read of the record and the read of its dependencies.
    table.proxy.on("BatchGetItem", Fault::none().skipping(1).before(republish));
    assert_eq!(examine(&table.store, true).await, []);
    assert!(table.proxy.is_spent());
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn what_fluree_no_longer_depends_on_is_uncounted() {
    let table = Table::fresh().await;
    for name in ["a", "b", "c"] {
        ledger(&table, name).await;
    }
    source(&table, "search", &["a", "b", "c"]).await;
    // Fluree replaces its own list and ignores ours. One target has lost its count, another is gone.
    table.set("search:main", "meta", "dependencies", rows::texts(&[])).await;
    table.set("b:main", "meta", "dependents", rows::n(0)).await;
    for sk in ["meta", "head", "index", "config", "status"] {
        table.delete("c:main", sk).await;
    }
    let all = ["b:main dependents-miscounted", "search:main references-outdated"];
    mended(&table, &all).await;
    assert_references(&table.all_rows().await);
    assert_eq!(table.rows("c:main").await.len(), 0);
}

#[tokio::test]
async fn counts_that_disagree_with_their_rows_are_set() {
    let table = Table::fresh().await;
    for name in ["high", "low", "text"] {
        ledger(&table, name).await;
    }
    source(&table, "search", &["high", "low", "text"]).await;
    table.set("high:main", "meta", "dependents", rows::n(5)).await;
    table.set("low:main", "meta", "dependents", rows::n(0)).await;
    table.set("text:main", "meta", "dependents", rows::s("one")).await;
    let all = ["high:main dependents-miscounted", "low:main dependents-miscounted", "text:main dependents-miscounted"];
    mended(&table, &all).await;
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn a_source_that_is_published_anew_meanwhile_keeps_its_own_count() {
    let table = Proxied::fresh().await;
    for name in ["a", "b"] {
        ledger(&table, name).await;
    }
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &["a:main"])).await;
    publish_before_the_remedy(&table, &["b"]);
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn a_row_that_is_counted_on_again_meanwhile_is_not_deleted() {
    let table = Proxied::fresh().await;
    ledger(&table, "a").await;
    source(&table, "search", &["a"]).await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &[])).await;
    publish_before_the_remedy(&table, &["a"]);
    let findings = examine(&table.store, true).await;
    assert_eq!((findings[0].code, &findings[0].fix), ("backref-stale", &Fix::ChangedMeanwhile), "{findings:?}");
    assert_references(&table.all_rows().await);
}

/// Publishes `search` right before the doctor's next transaction.
fn publish_before_the_remedy(table: &Proxied, dependencies: &'static [&'static str]) {
    let direct = table.direct().clone();
    let publish = move || {
        let direct = direct.clone();
        async move {
            let publication = bm25("search", json!({}), dependencies);
            let outcome = direct.publish_graph_source(&Call::fresh(), &publication).await.unwrap();
            assert!(matches!(outcome, Published::Updated(_)), "{outcome:?}");
        }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(publish));
}

#[tokio::test]
async fn a_count_that_moves_meanwhile_is_not_set() {
    let table = Proxied::fresh().await;
    ledger(&table, "mydb").await;
    source(&table, "one", &["mydb"]).await;
    table.set(DB, "meta", "dependents", rows::n(0)).await;
    let direct = table.direct().clone();
    table.proxy.on(
        "TransactWriteItems",
        Fault::none().before(move || {
            let direct = direct.clone();
            async move {
                let publication = bm25("two", json!({}), &["mydb"]);
                drop(direct.publish_graph_source(&Call::fresh(), &publication).await.unwrap());
            }
        }),
    );
    let findings = examine(&table.store, true).await;
    assert!(findings.iter().any(|finding| finding.fix == Fix::ChangedMeanwhile), "{findings:?}");
    mended(&table, &["mydb:main dependents-miscounted"]).await;
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn rows_of_dependents_that_are_gone_are_deleted_and_counted_down() {
    let table = Table::fresh().await;
    let db = ledger(&table, "mydb").await;
    for name in ["gone", "changed", "stays"] {
        source(&table, name, &["mydb"]).await;
    }
    // Another program deletes one dependent and replaces another.
    for sk in ["meta", "index", "config", "status"] {
        table.delete("gone:main", sk).await;
    }
    table.put(&rows::graph_source("changed:main", "f:Bm25Index", "{}", &[])).await;
    mended(&table, &["mydb:main backref-stale"]).await;
    assert_eq!(table.store.dependents(&db).await.unwrap(), [at("stays")]);
    assert_eq!(record(&table, &db).await.dependents, 1);
    table.store.purge(&Call::fresh(), &at("stays")).await.unwrap().applied();
    assert!(matches!(retract(&table, &db).await, Retracted::Retracted(_)));
}

#[tokio::test]
async fn many_stale_rows_with_a_wrong_count_end_in_a_right_one() {
    let table = Table::fresh().await;
    ledger(&table, "mydb").await;
    let stale = (0..60).map(|i| {
        let dependent = format!("gone{i}:main");
        rows::row(DB, &format!("backref#{dependent}"), [("dependent", rows::s(dependent))])
    });
    table.put_many(&stale.collect::<Vec<_>>()).await;
    source(&table, "search", &["mydb"]).await;
    mended(&table, &["mydb:main backref-stale", "mydb:main dependents-miscounted"]).await;
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn rows_under_no_record_stay_as_long_as_somebody_counts_on_them() {
    let table = Table::fresh().await;
    ledger(&table, "mydb").await;
    source(&table, "search", &["mydb"]).await;
    source(&table, "gone", &["mydb"]).await;
    for sk in ["meta", "head", "index", "config", "status"] {
        table.delete(DB, sk).await;
    }
    for sk in ["meta", "index", "config", "status"] {
        table.delete("gone:main", sk).await;
    }
    assert_eq!(found(&table).await, ["mydb:main backref-stale", "search:main dependency-missing"]);
    examine(&table.store, true).await;
    left_alone(&table, &["search:main dependency-missing"]).await;
    assert_eq!(table.rows(DB).await.keys().collect::<Vec<_>>(), ["backref#search:main"]);
    // The target comes back without a count.
    ledger(&table, "mydb").await;
    mended(&table, &["mydb:main dependents-miscounted"]).await;
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn a_lost_row_is_put_back_and_counted_once() {
    let table = Table::fresh().await;
    for name in ["a", "b"] {
        ledger(&table, name).await;
    }
    source(&table, "search", &["a", "b"]).await;
    // One target has lost its back reference, the other its back reference and its count.
    table.delete("a:main", "backref#search:main").await;
    table.delete("b:main", "backref#search:main").await;
    table.set("b:main", "meta", "dependents", rows::n(0)).await;
    mended(&table, &["a:main dependents-miscounted", "search:main backref-missing"]).await;
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn a_source_that_another_program_put_anew_is_adopted_on_its_old_rows() {
    let table = Table::fresh().await;
    ledger(&table, "mydb").await;
    source(&table, "search", &["mydb"]).await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &["mydb:main"])).await;
    assert_eq!(found(&table).await, ["mydb:main backref-stale", "search:main references-uncounted"]);
    examine(&table.store, true).await;
    assert_eq!(found(&table).await, [] as [&str; 0]);
    assert_references(&table.all_rows().await);
}
