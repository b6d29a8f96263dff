//! What the doctor finds, what it mends, and that it does so beside live traffic.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::join_all;
use nameservice_feed::Lag;
use nameservice_store::doctor::{CODES, Finding, Fix, Severity, Written};
use nameservice_tests::{
    cids::id_of,
    layout::{self, assert_references},
    prelude::*,
    pump::pump,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::contract::races::anything_at_all;

const DB: &str = "mydb:main";

async fn examine(store: &Store, fix: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    store.examine(fix, &mut |finding| findings.push(finding)).await.unwrap();
    for finding in &findings {
        assert!(CODES.iter().any(|(code, _)| *code == finding.code), "{finding:?} is of no documented code");
    }
    findings
}

/// What is found, in order of address and code: `mydb:main marks-missing`.
async fn found(table: &Table) -> Vec<String> {
    let findings = examine(&table.store, false).await;
    let lines: BTreeSet<String> = findings
        .into_iter()
        .map(|finding| format!("{} {}", finding.address.unwrap_or_default(), finding.code))
        .collect();
    lines.into_iter().collect()
}

/// Finds exactly this, which a fix mends, leaving nothing.
async fn mended(table: &Table, expected: &[&str]) {
    let before = table.all_rows().await.len();
    assert_eq!(found(table).await, expected);
    assert_eq!(table.all_rows().await.len(), before, "looking changes nothing");
    for finding in examine(&table.store, true).await {
        assert_eq!(finding.fix, Fix::Done, "{finding:?}");
    }
    assert_eq!(found(table).await, [] as [&str; 0]);
}

/// Finds exactly this, which is the operator's to mend: a fix changes nothing.
async fn left_alone(table: &Table, expected: &[&str]) {
    assert_eq!(found(table).await, expected);
    let rows = table.all_rows().await;
    for finding in examine(&table.store, true).await {
        assert_eq!(finding.fix, Fix::ByHand, "{finding:?}");
    }
    assert_eq!(table.all_rows().await, rows);
}

async fn ledger(table: &Table, address: &str) -> Address {
    let address = at(address);
    let created = table.store.create_ledger(&Call::fresh(), &address, Some(&new_head(1)), None).await.unwrap();
    assert!(matches!(created, Created::Created(_)), "{created:?}");
    address
}

async fn source(table: &Table, address: &str, dependencies: &[&str]) -> Address {
    let address = at(address);
    let publication = bm25(&address, json!({}), dependencies);
    table.store.publish_graph_source(&Call::fresh(), &publication).await.unwrap().applied();
    address
}

async fn branch(table: &Table, address: &str, from: &Address) -> Address {
    let address = at(address);
    let outcome = table.store.create_branch(&Call::fresh(), &address, from, None).await.unwrap();
    assert!(matches!(outcome, BranchCreated::Created(_)), "{outcome:?}");
    address
}

async fn retract(table: &Table, address: &Address) -> Retracted {
    table.store.retract(&Call::fresh(), address, None).await.unwrap()
}

async fn record(table: &Table, address: &Address) -> Record {
    table.store.lookup(address).await.unwrap().expect("a record")
}

// ---- nothing to find ----

#[tokio::test]
async fn in_a_table_of_ours_nothing_is_found_by_one_scan() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    let dev = branch(&table, "mydb:dev", &db).await;
    let search = source(&table, "search", &["mydb", "mydb:dev"]).await;
    let gone = ledger(&table, "gone").await;
    retract(&table, &gone).await.applied();
    let back = ledger(&table, "back").await;
    retract(&table, &back).await.applied();
    table.store.restore(&Call::fresh(), &back).await.unwrap().applied();
    let request = index_lock("one", 300);
    table.store.acquire_lease(&Call::fresh(), &dev, &request).await.unwrap().applied();
    table
        .store
        .push_config(&Call::fresh(), &db, &cas(Config::unborn(), Config::new(1, json!({"a": 1}))))
        .await
        .unwrap()
        .applied();
    retract(&table, &search).await.applied();
    table.proxy.take_operations();
    let mut findings = Vec::new();
    let examined = table.store.examine(true, &mut |finding| findings.push(finding)).await.unwrap();
    assert_eq!(findings, []);
    assert_eq!((examined.records, examined.items as usize), (5, table.all_rows().await.len()));
    assert_eq!(table.proxy.take_operations(), ["Scan", "BatchGetItem"]);
}

#[tokio::test]
async fn ordinary_rows_of_flurees_are_healthy() {
    let table = Table::fresh().await;
    table.put(&rows::ledger(DB).commit(cid(7), 7).index(index_cid(5), 5).context("fluree:ctx", 3).rows()).await;
    table.put(&[rows::commit_log(DB, &cid(7), 7), rows::commit_log(DB, &cid(6), 6)]).await;
    table.put(&rows::ledger("nulls:main").nulls().rows()).await;
    table.put(&rows::meta_only("old:main")).await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &[])).await;
    assert_eq!(found(&table).await, [] as [&str; 0]);
}

#[tokio::test]
async fn a_table_of_many_pages_is_read_to_its_end() {
    let table = Table::without_stream().await;
    let filler = "x".repeat(30_000);
    let mut rows = Vec::new();
    for i in 0..60 {
        let mut ledger = rows::ledger(&format!("db{i}:main")).commit(cid(1), 1).rows();
        for row in &mut ledger {
            row.insert("status_meta".into(), json!({ "M": { "filler": rows::s(&*filler) } }));
        }
        rows.extend(ledger);
    }
    table.put_many(&rows).await;
    for i in [0, 31, 59] {
        Fluree::on(&table).retract(&format!("db{i}:main")).await;
    }
    mended(&table, &["db0:main marks-missing", "db31:main marks-missing", "db59:main marks-missing"]).await;
}

// ---- retractions ----

#[tokio::test]
async fn flurees_retraction_is_completed_as_ours_would_be() {
    let table = Table::fresh().await;
    let (flurees, ours) = (ledger(&table, "mydb").await, ledger(&table, "ours").await);
    Fluree::on(&table).retract(DB).await;
    let pushed = table.store.push_head(&Call::fresh(), &flurees, &older(head(2))).await.unwrap();
    assert_eq!(pushed, updated(head(2)), "until then, pushes go through");
    mended(&table, &["mydb:main marks-missing"]).await;
    retract(&table, &ours).await.applied();
    for address in [&flurees, &ours] {
        let record = record(&table, address).await;
        assert!(record.retracted);
        let status = record.status;
        assert_eq!((status.v, &*status.payload.as_ref().unwrap().state), (2, "retracted"));
        assert!(status.payload.unwrap().meta["retracted_at"].is_i64());
        for concern in ["head", "index", "status", "config"] {
            assert_eq!(table.row(address.as_str(), concern).await.unwrap()["retracted"], rows::truth(true));
        }
        let pushed = table.store.push_head(&Call::fresh(), address, &older(head(3))).await.unwrap();
        assert_eq!(pushed, PushOutcome::Retracted);
    }
    layout::assert_ours(table.rows(DB).await.values());
    assert!(matches!(table.store.restore(&Call::fresh(), &flurees).await.unwrap(), Restored::Restored(_)));
    let pushed = table.store.push_head(&Call::fresh(), &flurees, &older(head(3))).await.unwrap();
    assert_eq!(pushed, updated(head(3)));
}

#[tokio::test]
async fn retractions_of_graph_sources_and_of_bare_metas_are_completed_too() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only(DB)).await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &[])).await;
    Fluree::on(&table).retract(DB).await;
    Fluree::on(&table).retract("search:main").await;
    mended(&table, &["mydb:main marks-missing", "search:main marks-missing"]).await;
    let pushed = table.store.push_head(&Call::fresh(), &at("mydb"), &older(head(1))).await.unwrap();
    assert_eq!(pushed, PushOutcome::Retracted);
    let pushed = table.store.push_index(&Call::fresh(), &at("search"), &older(index(1))).await.unwrap();
    assert_eq!(pushed, PushOutcome::Retracted);
    assert_eq!(table.rows("search:main").await.len(), 4, "a graph source has no head to mark");
}

#[tokio::test]
async fn marks_that_a_restoration_has_left_are_taken_away() {
    let table = Table::fresh().await;
    let (db, told) = (ledger(&table, "mydb").await, ledger(&table, "told").await);
    retract(&table, &db).await.applied();
    retract(&table, &told).await.applied();
    for pk in [DB, "told:main"] {
        table.set(pk, "meta", "retracted", rows::truth(false)).await;
    }
    // Fluree's writers do not look at marks.
    assert!(Fluree::on(&table).push_status("told:main", (2, "retracted"), (3, "indexing")).await);
    mended(&table, &["mydb:main marks-left", "told:main marks-left"]).await;
    assert_eq!(record(&table, &db).await.status, status(3, "ready"));
    let status = record(&table, &told).await.status;
    assert_eq!((status.v, status.payload.unwrap().state), (3, "indexing".to_owned()));
    for address in [&db, &told] {
        let pushed = table.store.push_head(&Call::fresh(), address, &older(head(2))).await.unwrap();
        assert_eq!(pushed, updated(head(2)));
    }
    layout::assert_ours(table.rows(DB).await.values());
}

#[tokio::test]
async fn a_retraction_that_is_undone_meanwhile_is_left_undone() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    Fluree::on(&table).retract(DB).await;
    let direct = table.direct().clone();
    table.proxy.on(
        "TransactWriteItems",
        Fault::none().before(move || {
            let direct = direct.clone();
            async move { drop(direct.restore(&Call::fresh(), &at(DB)).await.unwrap()) }
        }),
    );
    let findings = examine(&table.store, true).await;
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].code, &findings[0].fix), ("marks-missing", &Fix::ChangedMeanwhile));
    assert!(findings[0].is_open());
    assert!(!record(&table, &db).await.retracted);
    assert_eq!(table.store.push_head(&Call::fresh(), &db, &older(head(2))).await.unwrap(), updated(head(2)));
    assert_eq!(found(&table).await, [] as [&str; 0]);
}

#[tokio::test]
async fn nor_does_one_that_fluree_undoes_meanwhile_get_marks() {
    let table = Arc::new(Proxied::fresh().await);
    let db = ledger(&table, "mydb").await;
    Fluree::on(&table).retract(DB).await;
    let (client, name) = (table.client.clone(), table.name.clone());
    let undo = move || {
        let (client, name) = (client.clone(), name.clone());
        async move {
            let text = |text: &str| AttributeValue::S(text.into());
            let undo = client.update_item().table_name(name).key("pk", text(DB)).key("sk", text("meta"));
            let undo = undo.update_expression("SET retracted = :no");
            undo.expression_attribute_values(":no", AttributeValue::Bool(false)).send().await.unwrap();
        }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(undo));
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
    assert_eq!(table.store.push_head(&Call::fresh(), &db, &older(head(2))).await.unwrap(), updated(head(2)));
}

// ---- references ----

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
    let table = Table::without_stream().await;
    let targets: Vec<String> = (0..60).map(|i| format!("db{i}:main")).collect();
    let all: Vec<Row> = targets.iter().flat_map(|target| rows::meta_only(target)).collect();
    table.put_many(&all).await;
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &targets)).await;
    mended(&table, &["search:main references-uncounted"]).await;
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn references_to_what_is_missing_or_retracted_are_told_and_not_adopted() {
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
    // Once they are there, they are adopted.
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
    // Between what is read of the record, and what is read of what it depends on.
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
    // Fluree replaces the list, and does not look at ours. One target has lost its count, another is gone.
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

/// Somebody publishes `search` before the next transaction of the doctor.
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
    // Another program deletes one dependent, and puts another one anew.
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
    let table = Table::without_stream().await;
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
    // One has lost its row, the other its row and the count with it.
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

// ---- branches ----

#[tokio::test]
async fn counts_of_branches_are_set_to_the_branches_that_there_are() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    let dev = branch(&table, "mydb:dev", &db).await;
    branch(&table, "mydb:dev2", &dev).await;
    let old = branch(&table, "mydb:old", &db).await;
    retract(&table, &old).await.applied();
    ledger(&table, "other").await;
    assert_eq!(found(&table).await, [] as [&str; 0]);
    table.proxy.take_operations();
    examine(&table.store, false).await;
    assert_eq!(table.proxy.count("Scan"), 1, "counts that agree cost nothing");
    table.set(DB, "meta", "branches", rows::n(7)).await;
    table.set("mydb:dev", "meta", "branches", rows::n(0)).await;
    table.set("other:main", "meta", "branches", rows::n(1)).await;
    let all = ["mydb:dev branches-miscounted", "mydb:main branches-miscounted", "other:main branches-miscounted"];
    mended(&table, &all).await;
    assert_eq!(record(&table, &db).await.branches, 2, "a retracted branch can come back: it counts");
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn a_count_of_branches_that_moves_meanwhile_is_not_set() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    branch(&table, "mydb:dev", &db).await;
    table.set(DB, "meta", "branches", rows::n(0)).await;
    let direct = table.direct().clone();
    let create = move || {
        let direct = direct.clone();
        async move {
            let outcome = direct.create_branch(&Call::fresh(), &at("mydb:dev2"), &at(DB), None).await.unwrap();
            assert!(matches!(outcome, BranchCreated::Created(_)));
        }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(create));
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
    assert_eq!(record(&table, &db).await.branches, 1);
    // Nor is anything said of one that moves while the branches are counted.
    let direct = table.direct().clone();
    let drop_it = move || {
        let direct = direct.clone();
        async move {
            assert_eq!(
                direct.drop_branch(&Call::fresh(), &at("mydb:dev2")).await.unwrap(),
                Dropped::Dropped { parent_branches: 0 }
            )
        }
    };
    table.proxy.on("Scan", Fault::none().skipping(1).before(drop_it));
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), findings[0].code), (1, "unsettled"), "{findings:?}");
    mended(&table, &["mydb:main branches-miscounted"]).await;
}

#[tokio::test]
async fn a_branch_whose_source_is_gone_is_told_of() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:dev").branch_of("main").rows()).await;
    left_alone(&table, &["mydb:dev parent-missing"]).await;
}

// ---- what is no record ----

#[tokio::test]
async fn orphans_ghosts_and_leftover_commits_are_swept() {
    let table = Table::without_stream().await;
    table.put(&rows::orphans("orphan:main", cid(3), 3)).await;
    table.put(&[rows::ghost_meta("ghost:main")]).await;
    table.put(&[rows::ghost_meta("both:main")]).await;
    table.put(&rows::orphans("both:main", cid(3), 3)).await;
    table.put(&[rows::bare("bare:main", "status")]).await;
    let commits: Vec<Row> = (1..=200).map(|t| rows::commit_log("purged:main", &cid(t), t)).collect();
    table.put_many(&commits).await;
    table.put(&[rows::commit_log("kept:main", &cid(1), 1)]).await;
    table.put(&rows::ledger("kept:main").commit(cid(1), 1).rows()).await;
    let all = [
        "bare:main orphan-items",
        "both:main ghost-meta",
        "both:main orphan-items",
        "ghost:main ghost-meta",
        "orphan:main orphan-items",
        "purged:main leftover-commits",
    ];
    mended(&table, &all).await;
    assert!(table.all_rows().await.iter().all(|row| row["pk"] == rows::s("kept:main")));
    assert_eq!(table.rows("kept:main").await.len(), 6);
}

#[tokio::test]
async fn a_record_that_is_created_meanwhile_is_not_swept() {
    for leftovers in [rows::orphans(DB, cid(3), 3), vec![rows::ghost_meta(DB)], vec![rows::commit_log(DB, &cid(3), 3)]]
    {
        let table = Proxied::fresh().await;
        table.put(&leftovers).await;
        let direct = table.direct().clone();
        let create = move || {
            let direct = direct.clone();
            async move {
                let created = direct.create_ledger(&Call::fresh(), &at(DB), Some(&new_head(1)), None).await.unwrap();
                assert!(matches!(created, Created::Created(_)));
            }
        };
        table.proxy.on("TransactWriteItems", Fault::none().before(create));
        let findings = examine(&table.store, true).await;
        assert!(table.proxy.is_spent());
        assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
        assert_eq!(record(&table, &at("mydb")).await.head, Some(head(1)));
        let rows = table.rows(DB).await;
        let concerns = rows.values().filter(|row| !row["sk"]["S"].as_str().unwrap().starts_with("commit#"));
        layout::assert_ours(concerns);
        assert_eq!(found(&table).await, [] as [&str; 0]);
    }
}

#[tokio::test]
async fn an_orphan_that_is_written_meanwhile_is_not_swept() {
    let table = Proxied::fresh().await;
    table.put(&rows::orphans(DB, cid(3), 3)).await;
    let direct = table.direct().clone();
    let push = move || {
        let direct = direct.clone();
        async move { drop(direct.push_head(&Call::fresh(), &at(DB), &older(head(9))).await.unwrap()) }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(push));
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
    assert_eq!(table.row(DB, "head").await.unwrap()["commit_t"], rows::n(9));
    mended(&table, &["mydb:main orphan-items"]).await;
}

// ---- what cannot be read ----

#[tokio::test]
async fn what_cannot_be_read_is_told_and_left_to_people() {
    let table = Table::fresh().await;
    for name in ["type", "noid", "named", "kind"] {
        ledger(&table, name).await;
    }
    table.set("type:main", "head", "commit_t", rows::s("seven")).await;
    table.set("type:main", "config", "config_meta", rows::s("password=secret")).await;
    table.set("type:main", "meta", "branches", rows::s("one")).await;
    table.set("noid:main", "index", "index_t", rows::n(4)).await;
    table.set("named:main", "meta", "name", rows::s("else")).await;
    table.set("kind:main", "meta", "kind", rows::s("lodger")).await;
    table.put(&rows::graph_source("json:main", "f:Bm25Index", "{secret", &[])).await;
    table.put(&rows::graph_source("array:main", "f:Bm25Index", "[1]", &[])).await;
    table.put(&rows::ledger("my@db:main").rows()).await;
    table.put(&rows::ledger("contexts:main").context("fluree:a", 1).rows()).await;
    table.set("contexts:main", "config", "default_context_id", rows::s("fluree:b")).await;
    table.put(&[rows::row("noid:main", "backref#x:main", [("dependent", rows::s("y:main"))])]).await;
    table.set("noid:main", "meta", "dependents", rows::n(1)).await;
    let all = [
        "array:main config-not-json",
        "contexts:main contexts-differ",
        "json:main config-not-json",
        "kind:main kind-unknown",
        "my@db:main address-unusable",
        "named:main name-disagrees",
        "noid:main backref-malformed",
        "noid:main id-missing",
        "type:main attribute-malformed",
    ];
    left_alone(&table, &all).await;
    let findings = examine(&table.store, false).await;
    let told = format!("{findings:?}");
    assert!(told.contains("head.commit_t") && told.contains("seven") && told.contains("meta.branches"), "{told}");
    assert!(told.contains("config.config_meta"), "{told}");
    assert!(!told.contains("secret"), "configurations are not repeated: {told}");
    let notes = findings.iter().filter(|finding| finding.severity == Severity::Note);
    let notes: Vec<_> = notes.inspect(|note| assert!(!note.is_open())).map(|note| note.code).collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[tokio::test]
async fn dependencies_that_cannot_be_read_are_no_reason_to_uncount() {
    let table = Table::fresh().await;
    ledger(&table, "mydb").await;
    source(&table, "search", &["mydb"]).await;
    table.set("search:main", "meta", "dependencies", rows::s("mydb:main")).await;
    left_alone(&table, &["search:main attribute-malformed"]).await;
}

#[tokio::test]
async fn a_lease_that_cannot_be_read_is_removed_unless_it_changes() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    table.set(DB, "status", "lease", rows::s("mine")).await;
    let direct = table.direct().clone();
    let acquire = move || {
        let direct = direct.clone();
        async move {
            let request = index_lock("one", 300);
            let leased = direct.acquire_lease(&Call::fresh(), &at(DB), &request).await.unwrap();
            assert!(matches!(leased, Leased::Held(_)), "{leased:?}");
        }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(acquire));
    let findings = examine(&table.store, true).await;
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::ChangedMeanwhile), "{findings:?}");
    assert!(record(&table, &db).await.status.payload.unwrap().meta.contains_key("index_lock"));
    table.set(DB, "status", "lease", json!({ "M": { "holder": rows::s("x") } })).await;
    mended(&table, &["mydb:main lease-malformed"]).await;
    assert!(table.row(DB, "status").await.unwrap().get("lease").is_none());
}

// ---- faults ----

#[tokio::test]
async fn a_remedy_whose_answer_is_lost_is_applied_once() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &["mydb:main"])).await;
    table.proxy.on("TransactWriteItems", Fault::cut_reply());
    let findings = examine(&table.store, true).await;
    assert!(table.proxy.is_spent());
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::Done), "{findings:?}");
    assert_eq!(record(&table, &db).await.dependents, 1);
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn batches_that_come_back_in_part_are_read_whole() {
    let table = Proxied::fresh().await;
    ledger(&table, "mydb").await;
    source(&table, "search", &["mydb"]).await;
    table.proxy.on("BatchGetItem", Fault::partial_batch().times(2));
    assert_eq!(examine(&table.store, false).await, []);
    assert!(table.proxy.is_spent());
}

#[tokio::test]
async fn a_remedy_that_the_engine_refuses_is_told_with_the_reason() {
    let table = Proxied::fresh().await;
    ledger(&table, "mydb").await;
    Fluree::on(&table).retract(DB).await;
    ledger(&table, "other").await;
    Fluree::on(&table).retract("other:main").await;
    table.proxy.on("TransactWriteItems", Fault::answer(400, "AccessDeniedException"));
    let findings = examine(&table.store, true).await;
    let failed = findings.iter().filter(|finding| matches!(finding.fix, Fix::Failed(_))).count();
    assert_eq!((findings.len(), failed), (2, 1), "{findings:?}");
}

// ---- what follows the table ----

fn now_ms() -> i64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis().try_into().unwrap()
}

/// Lets an item have been written so long ago.
async fn age(table: &Table, pk: &str, sk: &str, seconds: i64) {
    table.set(pk, sk, "updated_at_ms", rows::n(now_ms() - 1000 * seconds)).await;
}

/// Lets the feed have begun so long ago.
async fn age_feed(table: &Table, seconds: i64) {
    let text = |text: &str| AttributeValue::S(text.into());
    let then = (now_ms() - 1000 * seconds).to_string();
    let update = table.client.update_item().table_name(table.feed.table());
    let update = update.key("id", text("feed#0")).key("position", text("00000000000000000001"));
    let update = update.update_expression("SET recorded_at = :then");
    let then = AttributeValue::N(then);
    update.expression_attribute_values(":then", then).send().await.unwrap();
}

async fn last_written(table: &Table) -> Vec<Written> {
    table.store.examine(false, &mut |_| {}).await.unwrap().last_written
}

#[tokio::test]
async fn of_the_last_writes_those_are_told_that_have_settled_youngest_first() {
    let table = Table::without_stream().await;
    ledger(&table, "mydb").await;
    assert_eq!(last_written(&table).await, [], "a minute must pass");
    age(&table, DB, "head", 100).await;
    age(&table, DB, "status", 90).await;
    age(&table, DB, "index", 80).await;
    let told = last_written(&table).await;
    let shown: Vec<_> = told.iter().map(|written| (written.concern, written.watermark)).collect();
    assert_eq!(shown, [(ConcernKind::Status, 1), (ConcernKind::Head, 1)], "the unborn index has never been written");
    let mut many = Vec::new();
    for i in 0..40 {
        many.extend(rows::ledger(&format!("db{i}:main")).commit(cid(1), 1).rows());
    }
    table.put_many(&many).await;
    let told = last_written(&table).await;
    assert_eq!((told.len(), told[0].concern), (20, ConcernKind::Status));
    assert!(told.is_sorted_by_key(|written| -written.at_ms));
}

#[tokio::test]
async fn a_feed_lags_by_the_writes_that_it_does_not_hold() {
    let table = Table::fresh().await;
    let db = ledger(&table, "mydb").await;
    ledger(&table, "other").await;
    for pk in [DB, "other:main"] {
        for sk in ["head", "status"] {
            age(&table, pk, sk, 300).await;
        }
    }
    let lag = table.feed.lag(&last_written(&table).await).await.unwrap();
    assert!(lag.is_empty && lag.missing.len() == 4, "{lag:?}");
    pump(&table).await;
    let lag = table.feed.lag(&last_written(&table).await).await.unwrap();
    assert_eq!(lag, Lag::default(), "older than the feed: nothing is concluded");
    age_feed(&table, 3_600).await;
    let lag = table.feed.lag(&last_written(&table).await).await.unwrap();
    assert_eq!(lag, Lag { looked_for: 4, ..Lag::default() });
    table.store.push_head(&Call::fresh(), &db, &older(head(2))).await.unwrap().applied();
    age(&table, DB, "head", 200).await;
    let request = index_lock("one", 300);
    table.store.acquire_lease(&Call::fresh(), &at("other"), &request).await.unwrap().applied();
    age(&table, "other:main", "status", 100).await;
    let lag = table.feed.lag(&last_written(&table).await).await.unwrap();
    let missing: Vec<_> = lag.missing.iter().map(|w| (w.address.as_str(), w.concern, w.watermark)).collect();
    assert_eq!(missing, [(DB, ConcernKind::Head, 2), ("other:main", ConcernKind::Status, 2)]);
    pump(&table).await;
    let lag = table.feed.lag(&last_written(&table).await).await.unwrap();
    assert_eq!((lag.looked_for, lag.missing), (4, Vec::new()));
}

#[tokio::test]
async fn an_old_table_with_a_new_feed_lags_behind_nothing() {
    let table = Table::fresh().await;
    table.put(&rows::ledger(DB).commit(cid(1), 1).rows()).await;
    let writes = last_written(&table).await;
    assert_eq!(writes.len(), 2);
    assert_eq!(table.feed.lag(&writes).await.unwrap(), Lag { is_empty: true, ..Lag::default() });
}

// ---- beside live traffic ----

/// Whether the doctor would have something to say, were nobody writing.
async fn settle(table: &Table) {
    for _ in 0..5 {
        if examine(&table.store, true).await.is_empty() {
            return;
        }
    }
    panic!("{:?}", examine(&table.store, true).await);
}

/// Our own writers leave nothing to find at any time: whatever is found beside them is a false alarm, and a remedy for it
/// would do harm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_our_own_writers_there_is_no_false_alarm_and_no_harm() {
    let mut looks = 0;
    for seed in 0..4 {
        let table = Arc::new(Table::without_stream().await);
        let working = Arc::new(AtomicBool::new(true));
        let doctor = {
            let (table, working) = (table.clone(), working.clone());
            tokio::spawn(async move {
                let mut looks = 0;
                while working.load(Ordering::Relaxed) {
                    for finding in examine(&table.store, true).await {
                        assert_eq!(finding.code, "unsettled", "{finding:?}");
                    }
                    looks += 1;
                }
                looks
            })
        };
        let writers = (0..4).map(|writer| {
            let table = table.clone();
            tokio::spawn(async move {
                let mut dice = StdRng::seed_from_u64(seed * 100 + writer);
                for _ in 0..60 {
                    anything_at_all(&table.store, &mut dice).await;
                }
            })
        });
        join_all(writers).await.into_iter().for_each(Result::unwrap);
        working.store(false, Ordering::Relaxed);
        looks += doctor.await.unwrap();
        assert_references(&table.all_rows().await);
    }
    assert!(looks > 20, "the doctor had {looks} looks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_writers_who_do_anything_nothing_is_lost_and_every_count_is_right() {
    const HEADS: i64 = 120;
    let table = Arc::new(Table::without_stream().await);
    let hot = at("hot");
    table.store.create_ledger(&Call::fresh(), &hot, None, None).await.unwrap().applied();
    let working = Arc::new(AtomicBool::new(true));
    let mended = Arc::new(AtomicUsize::new(0));
    let doctor = {
        let (table, working, mended) = (table.clone(), working.clone(), mended.clone());
        tokio::spawn(async move {
            while working.load(Ordering::Relaxed) {
                let findings = examine(&table.store, true).await;
                mended.fetch_add(findings.iter().filter(|f| f.fix == Fix::Done).count(), Ordering::Relaxed);
                let failed = findings.iter().find(|finding| matches!(finding.fix, Fix::Failed(_)));
                assert!(failed.is_none(), "{failed:?}");
            }
        })
    };
    // Pushes to one record, each expecting the one before: none may be lost.
    let pusher = {
        let (table, hot) = (table.clone(), hot.clone());
        tokio::spawn(async move {
            let mut before = Head::unborn();
            for t in 1..=HEADS {
                let new = Head::new(t, id_of(&format!("{t}")));
                let pushed = table.store.push_head(&Call::fresh(), &hot, &cas(before, new.clone())).await.unwrap();
                assert_eq!(pushed, updated(new.clone()));
                before = new;
            }
        })
    };
    let ours = (0..2).map(|writer| {
        let table = table.clone();
        tokio::spawn(async move {
            let mut dice = StdRng::seed_from_u64(writer);
            for _ in 0..80 {
                anything_at_all(&table.store, &mut dice).await;
            }
        })
    });
    // Whoever writes past us: uncounted sources, retractions by the meta alone, ghosts and orphans.
    let theirs = {
        let table = table.clone();
        tokio::spawn(async move {
            let mut dice = StdRng::seed_from_u64(99);
            for round in 0..60 {
                let name = format!("f{}:main", round % 5);
                match dice.random_range(0..4) {
                    0 => table.put(&rows::graph_source(&name, "f:Bm25Index", "{}", &["a:main", "hot:main"])).await,
                    1 => Fluree::on(&table).retract(&name).await,
                    2 => table.put(&rows::orphans(&format!("o{round}:main"), cid(1), 1)).await,
                    _ => table.put(&[rows::ghost_meta(&format!("g{round}:main"))]).await,
                }
            }
        })
    };
    pusher.await.unwrap();
    theirs.await.unwrap();
    join_all(ours).await.into_iter().for_each(Result::unwrap);
    working.store(false, Ordering::Relaxed);
    doctor.await.unwrap();
    assert!(mended.load(Ordering::Relaxed) > 10, "the doctor had work to do: {mended:?}");
    assert_eq!(table.store.head(&hot).await.unwrap().unwrap().v, HEADS);
    examine(&table.store, true).await;
    for finding in examine(&table.store, true).await {
        assert!(["dependency-missing", "dependency-retracted"].contains(&finding.code), "{finding:?}");
    }
    assert_counts_follow_their_rows(&table).await;
}

/// Every count is that of the rows, whoever is missing.
async fn assert_counts_follow_their_rows(table: &Table) {
    let rows = table.all_rows().await;
    let number = |row: &Row, name: &str| row.get(name).map_or(0, |value| value["N"].as_str().unwrap().parse().unwrap());
    for meta in rows.iter().filter(|row| row["sk"] == rows::s("meta")) {
        let backrefs = rows
            .iter()
            .filter(|row| row["pk"] == meta["pk"] && row["sk"]["S"].as_str().unwrap().starts_with("backref#"))
            .count();
        assert_eq!(number(meta, "dependents"), backrefs as i64, "{meta:?}");
        let branches =
            rows.iter().filter(|row| row.get("name") == meta.get("name") && row.get("bp_source") == meta.get("branch"));
        assert_eq!(number(meta, "branches"), branches.count() as i64, "{meta:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_doctors_at_once_count_once() {
    for _ in 0..5 {
        let table = Table::without_stream().await;
        ledger(&table, "mydb").await;
        for i in 0..6 {
            table.put(&rows::graph_source(&format!("s{i}:main"), "f:Bm25Index", "{}", &["mydb:main"])).await;
        }
        table.set(DB, "meta", "branches", rows::n(3)).await;
        let (one, two) = tokio::join!(examine(&table.store, true), examine(&table.store, true));
        let done = one.iter().chain(&two).filter(|finding| finding.fix == Fix::Done).count();
        assert!(done >= 6, "{one:?} {two:?}");
        settle(&table).await;
        assert_references(&table.all_rows().await);
    }
}
