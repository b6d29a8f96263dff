use nameservice_tests::prelude::*;

use crate::contract::born;

async fn push(store: &dyn Records, db: &Address, push: HeadPush) -> PushOutcome<ContentId> {
    store.push_head(&Call::fresh(), db, &push).await.unwrap()
}

#[tokio::test]
async fn a_ghost_is_unknown() {
    let table = Table::fresh().await;
    table.put(&[rows::ghost_meta("mydb:main")]).await;
    assert_eq!(push(&table.store, &at("mydb"), older(head(1))).await, PushOutcome::Unknown);
}

#[tokio::test]
async fn a_missing_head_item_is_unborn_and_is_made_by_the_first_push() {
    let table = Table::fresh().await;
    for name in ["a", "b"] {
        table.put(&rows::meta_only(&format!("{name}:main"))).await;
    }
    assert_eq!(table.store.head(&at("a")).await.unwrap(), Some(Head::unborn()));
    assert_eq!(push(&table.store, &at("a"), cas(head(1), head(2))).await, conflict(Head::unborn()));
    assert_eq!(push(&table.store, &at("a"), cas(Head::unborn(), head(1))).await, updated(head(1)));
    assert_eq!(push(&table.store, &at("b"), older(head(1))).await, updated(head(1)));
    assert_eq!(push(&table.store, &at("b"), older(head(2))).await, updated(head(2)));
}

#[tokio::test]
async fn nulls_are_unborn() {
    let table = Table::fresh().await;
    table.put(&rows::ledger("mydb:main").nulls().rows()).await;
    let db = at("mydb");
    assert_eq!(table.store.head(&db).await.unwrap(), Some(Head::unborn()));
    assert_eq!(push(&table.store, &db, cas(Head::unborn(), head(1))).await, updated(head(1)));
}

#[tokio::test]
async fn heads_that_fluree_writes_in_between_are_seen() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 1).await;
    assert!(Fluree::on(&table).commit("mydb:main", &cid(2), 2).await);
    assert_eq!(push(&table.store, &db, cas(head(1), head(3))).await, conflict(head(2)));
    assert_eq!(push(&table.store, &db, cas(head(2), head(3))).await, updated(head(3)));
    assert!(!Fluree::on(&table).commit("mydb:main", &cid(99), 3).await);
}
