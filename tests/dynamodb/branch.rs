use nameservice_tests::prelude::*;

use crate::contract::found;

async fn create(store: &dyn Records, address: &str, from: &str, commit: Option<&NewHead>) -> BranchCreated {
    store.create_branch(&Call::fresh(), &at(address), &at(from), commit).await.unwrap()
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
async fn a_branch_that_fluree_made_is_read_and_dropped() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").commit(cid(1), 1).branches(2).rows()).await;
    table.put(&rows::ledger("mydb:dev").commit(cid(1), 1).branch_of("main").rows()).await;
    let record = found(&table.store, &at("mydb:dev")).await;
    assert_eq!(record.source_branch.as_deref(), Some("main"));
    let outcome = table.store.drop_branch(&Call::fresh(), &at("mydb:dev")).await.unwrap();
    assert_eq!(outcome, Dropped::Dropped { parent_branches: 1 });
}

#[tokio::test]
async fn a_source_that_fluree_retracted_is_unknown() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("theirs:main").commit(cid(1), 1).retracted().rows()).await;
    assert_eq!(create(&table.store, "theirs:dev", "theirs", None).await, BranchCreated::UnknownSource);
    assert!(table.rows("theirs:dev").await.is_empty());
}

#[tokio::test]
async fn a_source_without_a_head_item_is_unborn() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only("old:main")).await;
    assert_eq!(create(&table.store, "old:dev", "old", None).await, BranchCreated::UnbornSource);
}
