use nameservice_tests::prelude::*;

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
