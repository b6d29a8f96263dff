use nameservice_tests::{layout, prelude::*};

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

/// What `doctor --fix` makes of a graph source that Fluree has published: more counted dependencies than one transaction
/// undoes.
async fn adopted(dependencies: usize) -> Proxied {
    let table = Proxied::fresh().await;
    let targets: Vec<String> = (0..dependencies).map(|n| format!("db{n:03}:main")).collect();
    table.put_many(&targets.iter().flat_map(|target| rows::meta_only(target)).collect::<Vec<_>>()).await;
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &targets)).await;
    examined(table.direct()).await;
    assert_eq!(sum_of_counts(&table).await, dependencies as i64);
    table
}

/// Lets the doctor mend everything. Returns the codes of what it has found.
async fn examined(store: &Store) -> Vec<&'static str> {
    let mut codes = Vec::new();
    store.examine(true, &mut |finding| codes.push(finding.code)).await.unwrap();
    codes.sort_unstable();
    codes.dedup();
    codes
}

async fn sum_of_counts(table: &Table) -> i64 {
    let rows = table.all_rows().await;
    let counts = rows.iter().filter_map(|row| row.get("dependents")?["N"].as_str()?.parse::<i64>().ok());
    counts.sum()
}

/// Returns the number of actions of each transaction since the last call.
fn actions(table: &Proxied) -> Vec<usize> {
    let requests = table.proxy.take_requests().into_iter();
    let transactions = requests.filter(|request| request.operation == "TransactWriteItems");
    transactions.map(|request| request.body["TransactItems"].as_array().unwrap().len()).collect()
}

/// As many dependencies as a publication can have, all of them new.
fn renewed() -> GraphSourcePublication {
    let targets: Vec<String> = (0..24).map(|n| format!("new{n}")).collect();
    bm25("search", json!({ "n": 2 }), &targets.iter().map(String::as_str).collect::<Vec<_>>())
}

async fn new_targets(table: &Proxied) {
    for n in 0..24 {
        unborn(table.direct(), &format!("new{n}")).await;
    }
}

#[tokio::test]
async fn more_references_than_one_transaction_undoes_are_undone_in_several() {
    for (dependencies, transactions) in [(47, 1), (48, 2), (60, 2), (150, 4)] {
        let table = adopted(dependencies).await;
        actions(&table);
        assert_eq!(table.store.purge(&Call::fresh(), &at("search")).await.unwrap(), Purged::Purged);
        let sent = actions(&table);
        assert!(sent.len() == transactions && sent.iter().all(|actions| *actions <= 100), "{sent:?}");
        assert_eq!(sum_of_counts(&table).await, 0);
        layout::assert_references(&table.all_rows().await);
        assert_eq!(examined(table.direct()).await, [] as [&str; 0]);
    }
    for (dependencies, transactions) in [(24, 1), (25, 2), (60, 2), (150, 4)] {
        let table = adopted(dependencies).await;
        new_targets(&table).await;
        actions(&table);
        let answer = publish(&table.store, &expecting(1, renewed())).await;
        assert!(matches!(answer, Published::Updated(_)), "{answer:?}");
        let sent = actions(&table);
        assert!(sent.len() == transactions && sent.iter().all(|actions| *actions <= 100), "{sent:?}");
        assert_eq!(sum_of_counts(&table).await, 24);
        layout::assert_references(&table.all_rows().await);
        assert_eq!(examined(table.direct()).await, [] as [&str; 0]);
    }
}

/// Until then their targets cannot be retracted, which is safe.
#[tokio::test]
async fn references_that_were_not_undone_are_left_to_the_doctor() {
    for purged in [true, false] {
        let table = adopted(150).await;
        new_targets(&table).await;
        // What comes after the first transaction is not allowed.
        let not_allowed = Fault::answer(400, "AccessDeniedException");
        table.proxy.on("TransactWriteItems", not_allowed.skipping(1));
        let code = if purged {
            assert_eq!(table.store.purge(&Call::fresh(), &at("search")).await.unwrap(), Purged::Purged);
            "backref-stale"
        } else {
            let answer = publish(&table.store, &expecting(1, renewed())).await;
            assert!(matches!(answer, Published::Updated(_)), "{answer:?}");
            "references-outdated"
        };
        assert!(table.proxy.is_spent());
        let left = sum_of_counts(&table).await;
        assert!(left > 24, "{left}");
        assert_eq!(examined(table.direct()).await, [code]);
        assert_eq!(sum_of_counts(&table).await, if purged { 0 } else { 24 });
        assert_eq!(examined(table.direct()).await, [] as [&str; 0]);
        layout::assert_references(&table.all_rows().await);
    }
}

#[tokio::test]
async fn references_are_not_undone_under_a_record_that_was_published_meanwhile() {
    for purged in [true, false] {
        let table = adopted(150).await;
        new_targets(&table).await;
        let (store, wanted) = (table.direct().clone(), bm25("search", json!({ "n": 3 }), &["db147", "db148", "db149"]));
        let publish_again = move || {
            let (store, wanted) = (store.clone(), wanted.clone());
            async move { store.publish_graph_source(&Call::fresh(), &wanted).await.unwrap().applied() }
        };
        table.proxy.on("TransactWriteItems", Fault::none().skipping(1).before(publish_again));
        if purged {
            assert_eq!(table.store.purge(&Call::fresh(), &at("search")).await.unwrap(), Purged::Purged);
        } else {
            let answer = publish(&table.store, &expecting(1, renewed())).await;
            assert!(matches!(answer, Published::Updated(_)), "{answer:?}");
        }
        assert!(table.proxy.is_spent());
        examined(table.direct()).await;
        layout::assert_references(&table.all_rows().await);
        assert_eq!(sum_of_counts(&table).await, 3);
        assert_eq!(counted_at(&table, "db148:main").await, (1, vec!["search:main".into()]));
    }
}
