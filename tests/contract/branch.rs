use nameservice_tests::{layout, prelude::*};

use super::{born, branch, found, retracted, source, unborn};

async fn create(store: &Store, address: &str, from: &str, commit: Option<&Head>) -> BranchCreated {
    store.create_branch(&Call::fresh(), &at(address), &at(from), commit).await.unwrap()
}

#[tokio::test]
async fn a_branch_starts_at_its_sources_head_and_is_counted() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 5).await;
    let outcome = create(&table.store, "mydb:dev", "mydb", None).await;
    let BranchCreated::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(*record, found(&table.store, &at("mydb:dev")).await);
    assert_eq!((record.head, record.source_branch.as_deref()), (Some(head(5)), Some("main")));
    assert_eq!((record.index, record.status), (Index::unborn(), status(1, "ready")));
    assert_eq!(found(&table.store, &db).await.branches, 1);
    create(&table.store, "mydb:dev2", "mydb", None).await;
    create(&table.store, "mydb:dev3", "mydb:dev", None).await;
    assert_eq!(found(&table.store, &db).await.branches, 2);
    assert_eq!(found(&table.store, &at("mydb:dev")).await.branches, 1);
    let rows = table.rows("mydb:dev").await;
    layout::assert_ours(rows.values());
    assert_eq!(rows["meta"]["bp_source"], rows::s("main"));
    let parent = table.rows("mydb:main").await;
    layout::assert_ours(parent.values());
    assert_eq!(parent["meta"]["branches"], rows::n(2));
}

#[tokio::test]
async fn a_branch_can_start_at_a_given_commit() {
    let table = Table::fresh().await;
    born(&table.store, "mydb", 5).await;
    let outcome = create(&table.store, "mydb:dev", "mydb", Some(&head(3))).await;
    let BranchCreated::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.head, Some(head(3)));
}

#[tokio::test]
async fn a_branch_that_exists_is_not_counted_again() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 5).await;
    branch(&table.store, "mydb:dev", &db).await;
    assert_eq!(create(&table.store, "mydb:dev", "mydb", None).await, BranchCreated::AlreadyExists);
    assert_eq!(found(&table.store, &db).await.branches, 1);
}

#[tokio::test]
async fn a_call_that_arrives_twice_counts_once() {
    let table = Table::fresh().await;
    let (db, call) = (born(&table.store, "mydb", 5).await, Call::fresh());
    for _ in 0..2 {
        let outcome = table.store.create_branch(&call, &at("mydb:dev"), &db, None).await.unwrap();
        assert!(matches!(outcome, BranchCreated::Created(_)), "{outcome:?}");
    }
    assert_eq!(found(&table.store, &db).await.branches, 1);
}

#[tokio::test]
async fn an_unknown_retracted_or_foreign_source_is_unknown() {
    let table = Table::fresh().await;
    let store = &table.store;
    assert_eq!(create(store, "mydb:dev", "mydb", None).await, BranchCreated::UnknownSource);
    let gone = born(store, "gone", 1).await;
    retracted(store, &gone).await;
    assert_eq!(create(store, "gone:dev", "gone", None).await, BranchCreated::UnknownSource);
    source(store, "search", &[]).await;
    assert_eq!(create(store, "search:dev", "search", None).await, BranchCreated::UnknownSource);
    table.put(&rows::ledger("theirs:main").commit(cid(1), 1).retracted().rows()).await;
    assert_eq!(create(store, "theirs:dev", "theirs", None).await, BranchCreated::UnknownSource);
    for pk in ["mydb:dev", "gone:dev", "search:dev", "theirs:dev"] {
        assert!(table.rows(pk).await.is_empty(), "{pk}");
    }
}

#[tokio::test]
async fn an_unborn_source_has_nothing_to_start_from() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    assert_eq!(create(&table.store, "mydb:dev", "mydb", None).await, BranchCreated::UnbornSource);
    assert_eq!(found(&table.store, &db).await.branches, 0);
    table.put(&rows::meta_only("old:main")).await;
    assert_eq!(create(&table.store, "old:dev", "old", None).await, BranchCreated::UnbornSource);
}

#[tokio::test]
async fn flurees_ledger_can_be_branched() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").commit(cid(4), 4).branches(2).rows()).await;
    let outcome = create(&table.store, "mydb:dev", "mydb", None).await;
    let BranchCreated::Created(record) = outcome else { panic!("{outcome:?}") };
    assert_eq!(record.head, Some(head(4)));
    assert_eq!(found(&table.store, &at("mydb")).await.branches, 3);
}

#[tokio::test]
async fn a_dropped_branch_is_gone_and_uncounted() {
    let table = Table::fresh().await;
    let (store, db) = (&table.store, born(&table.store, "mydb", 5).await);
    for name in ["mydb:a", "mydb:b"] {
        branch(store, name, &db).await;
    }
    let drop = async |address: &str| store.drop_branch(&Call::fresh(), &at(address)).await.unwrap();
    assert_eq!(drop("mydb:a").await, Dropped::Dropped { parent_branches: 1 });
    assert_eq!(drop("mydb:b").await, Dropped::Dropped { parent_branches: 0 });
    assert_eq!(drop("mydb:b").await, Dropped::Unknown);
    assert_eq!(store.lookup(&at("mydb:a")).await.unwrap(), None);
    assert_eq!(found(store, &db).await.branches, 0);
    assert!(table.rows("mydb:a").await.is_empty());
}

#[tokio::test]
async fn a_branch_with_branches_and_what_is_no_branch_are_not_dropped() {
    let table = Table::fresh().await;
    let (store, db) = (&table.store, born(&table.store, "mydb", 5).await);
    let a = branch(store, "mydb:a", &db).await;
    branch(store, "mydb:b", &a).await;
    assert_eq!(store.drop_branch(&Call::fresh(), &a).await.unwrap(), Dropped::HasDependents);
    assert_eq!(found(store, &db).await.branches, 1);
    let lone = born(store, "lone", 1).await;
    assert_eq!(store.drop_branch(&Call::fresh(), &lone).await.unwrap(), Dropped::NotABranch);
    assert_eq!(store.drop_branch(&Call::fresh(), &at("nobody:dev")).await.unwrap(), Dropped::Unknown);
}

#[tokio::test]
async fn a_branch_that_fluree_made_is_read_and_dropped() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").commit(cid(1), 1).branches(2).rows()).await;
    table.put(&rows::ledger("mydb:dev").commit(cid(1), 1).branch_of("main").rows()).await;
    let record = found(&table.store, &at("mydb:dev")).await;
    assert_eq!(record.source_branch.as_deref(), Some("main"));
    let outcome = table.store.drop_branch(&Call::fresh(), &at("mydb:dev")).await.unwrap();
    assert_eq!(outcome, Dropped::Dropped { parent_branches: 1 });
}
