use nameservice_tests::{layout, prelude::*, pump::pump};

use crate::contract::{born, found, source, unborn};

async fn purge(store: &dyn Records, address: &str) -> Purged {
    store.purge(&Call::fresh(), &at(address)).await.unwrap()
}

#[tokio::test]
async fn flurees_commit_log_is_swept_with_the_record() {
    let table = Table::fresh().await;
    born(&table.store, "mydb", 60).await;
    let log: Vec<_> = (1..=60).map(|t| rows::commit_log("mydb:main", &cid(t), t)).collect();
    table.put(&log).await;
    assert_eq!(purge(&table.store, "mydb").await, Purged::Purged);
    assert!(table.rows("mydb:main").await.is_empty());
}

#[tokio::test]
async fn a_half_swept_purge_is_finished_by_the_next() {
    let table = Table::fresh().await;
    let log: Vec<_> = (1..=3).map(|t| rows::commit_log("mydb:main", &cid(t), t)).collect();
    table.put(&log).await;
    assert_eq!(purge(&table.store, "mydb").await, Purged::Purged);
    assert!(table.rows("mydb:main").await.is_empty());
    assert_eq!(purge(&table.store, "mydb").await, Purged::Unknown);
}

#[tokio::test]
async fn a_target_that_is_gone_is_skipped() {
    let table = Table::fresh().await;
    for name in ["a", "b"] {
        unborn(&table.store, name).await;
    }
    source(&table.store, "search", &["a", "b"]).await;
    for sk in table.rows("a:main").await.keys() {
        table.delete("a:main", sk).await;
    }
    assert_eq!(purge(&table.store, "search").await, Purged::Purged);
    assert!(table.rows("search:main").await.is_empty());
    assert!(table.rows("a:main").await.is_empty(), "the vanished target is not brought back");
    assert_eq!(found(&table.store, &at("b")).await.dependents, 0);
}

#[tokio::test]
async fn a_dependency_that_was_never_counted_is_not_uncounted() {
    let table = Table::fresh().await;
    unborn(&table.store, "mydb").await;
    source(&table.store, "ours", &["mydb"]).await;
    table.put(&rows::graph_source("theirs:main", "f:Bm25Index", "{}", &["mydb:main"])).await;
    assert_eq!(purge(&table.store, "theirs").await, Purged::Purged);
    assert_eq!(found(&table.store, &at("mydb")).await.dependents, 1);
}

#[tokio::test]
async fn a_branch_that_fluree_made_is_uncounted_at_its_parent() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").commit(cid(1), 1).branches(1).rows()).await;
    table.put(&rows::ledger("mydb:dev").commit(cid(1), 1).branch_of("main").rows()).await;
    assert_eq!(purge(&table.store, "mydb:main").await, Purged::HasDependents);
    assert_eq!(purge(&table.store, "mydb:dev").await, Purged::Purged);
    assert_eq!(found(&table.store, &at("mydb")).await.branches, 0);
    assert_eq!(purge(&table.store, "mydb:main").await, Purged::Purged);
}

#[tokio::test]
async fn a_branch_whose_parent_is_gone_can_be_purged() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:dev").commit(cid(1), 1).branch_of("main").rows()).await;
    assert_eq!(purge(&table.store, "mydb:dev").await, Purged::Purged);
    assert!(table.all_rows().await.is_empty());
}

/// What an address remembers is a row that nothing but purges and creations looks at.
#[tokio::test]
async fn the_memory_of_an_address_is_one_row_that_is_no_record() {
    let table = Table::with_stream().await;
    let store = &table.store;
    let (creation, purge) = (Call::fresh(), Call::fresh());
    store.create_ledger(&creation, &at("mydb"), None, None).await.unwrap().applied();
    store.purge(&purge, &at("mydb")).await.unwrap().applied();
    let row = table.row("mydb:main", "a-calls").await.unwrap();
    layout::assert_ours([&row]);
    assert_eq!(row["request_id"], rows::s(purge.request_id.as_str()));
    assert_eq!(row["request_id_1"], rows::s(creation.request_id.as_str()));
    let [written, ttl] = ["updated_at_ms", "ttl"].map(|name| row[name]["N"].as_str().unwrap().parse::<i64>().unwrap());
    assert_eq!(ttl, written / 1000 + 48 * 60 * 60);
    let mut findings = Vec::new();
    let examined = store.examine(true, &mut |finding| findings.push(finding)).await.unwrap();
    assert_eq!((examined.records, findings.len()), (0, 0), "{findings:?}");
    assert_eq!(store.snapshot(at_most(10), None, &anything).await.unwrap().items, []);
    assert_eq!(store.list(&everything(), &anything).await.unwrap().items, []);
    pump(&table).await;
    assert_eq!(table.row("mydb:main", "a-calls").await.unwrap(), row);
}

/// Records of earlier versions do not say which call created them.
#[tokio::test]
async fn the_calls_that_an_older_record_remembers_outlive_it() {
    let table = Table::fresh().await;
    let store = &table.store;
    let (creation, pushed) = (Call::fresh(), Call::fresh());
    let db = at("mydb");
    store.create_ledger(&creation, &db, None, None).await.unwrap().applied();
    let push = cas(Config::unborn(), new_config(json!({ "a": 1 })));
    store.push_config(&pushed, &db, &push).await.unwrap().applied();
    table.set("mydb:main", "meta", "life", rows::null()).await;
    store.purge(&Call::fresh(), &db).await.unwrap().applied();
    store.create_ledger(&creation, &db, None, None).await.unwrap().applied();
    assert_eq!(store.lookup(&db).await.unwrap(), None);
}

/// The memory of an address is full then, and nothing of what it remembered before fits.
#[tokio::test]
async fn an_older_record_whose_concerns_remember_four_calls_can_be_purged() {
    for pushes in 0..=4 {
        let table = Table::fresh().await;
        let (store, db) = (&table.store, unborn(&table.store, "mydb").await);
        for n in 0..pushes {
            let stored = store.config(&db).await.unwrap().unwrap();
            store
                .push_config(&Call::fresh(), &db, &cas(stored, new_config(json!({ "n": n }))))
                .await
                .unwrap()
                .applied();
            let push = cas(status(n + 1, "ready"), status(n + 2, "ready"));
            store.push_status(&Call::fresh(), &db, &push).await.unwrap().applied();
        }
        table.set("mydb:main", "meta", "life", rows::null()).await;
        assert_eq!(purge(store, "mydb").await, Purged::Purged, "{pushes}");
        let row = table.row("mydb:main", "a-calls").await.unwrap();
        layout::assert_ours([&row]);
    }
}

/// Whether or not the record says which call created it.
#[tokio::test]
async fn a_publication_that_is_repeated_after_a_purge_creates_nothing() {
    for life in [true, false] {
        let table = Table::fresh().await;
        let store = &table.store;
        let calls = [Call::fresh(), Call::fresh()];
        for (n, call) in calls.iter().enumerate() {
            store.publish_graph_source(call, &bm25("search", json!({ "n": n }), &[])).await.unwrap().applied();
        }
        if !life {
            table.set("search:main", "meta", "life", rows::null()).await;
        }
        store.purge(&Call::fresh(), &at("search")).await.unwrap().applied();
        for (n, call) in calls.iter().enumerate() {
            let _ = store.publish_graph_source(call, &bm25("search", json!({ "n": n }), &[])).await.unwrap();
        }
        assert_eq!(store.lookup(&at("search")).await.unwrap(), None, "{life}");
    }
}
