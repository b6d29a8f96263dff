use nameservice_tests::{layout, prelude::*};

use super::{born, found, retracted, source};

fn to(head: Head, index: ConcernValue<ContentId>) -> ResetTo {
    ResetTo { head, index }
}

#[tokio::test]
async fn head_and_index_go_backwards_together() {
    let table = Table::fresh().await;
    let (store, db) = (&table.store, born(&table.store, "mydb", 9).await);
    store.push_index(&Call::fresh(), &db, &older(index(8))).await.unwrap();
    let wanted = to(head(4), ConcernValue::new(3, index_cid(3)));
    let outcome = store.reset_head(&Call::fresh(), &db, &wanted).await.unwrap();
    assert_eq!(outcome, Reset::Reset { head: head(4), index: index_at(3, 0) });
    let record = found(store, &db).await;
    assert_eq!((record.head, record.index), (Some(head(4)), index_at(3, 0)));
    assert_eq!(store.push_head(&Call::fresh(), &db, &older(head(5))).await.unwrap(), updated(head(5)));
    layout::assert_ours(table.rows("mydb:main").await.values());
}

#[tokio::test]
async fn a_reset_can_make_both_unborn() {
    let table = Table::fresh().await;
    let (store, db) = (&table.store, born(&table.store, "mydb", 9).await);
    store.push_index(&Call::fresh(), &db, &older(index(8))).await.unwrap();
    let wanted = to(Head::unborn(), ConcernValue::unborn());
    let outcome = store.reset_head(&Call::fresh(), &db, &wanted).await.unwrap();
    assert_eq!(outcome, Reset::Reset { head: Head::unborn(), index: Index::unborn() });
    assert_eq!(found(store, &db).await.head, Some(Head::unborn()));
    layout::assert_ours(table.rows("mydb:main").await.values());
}

#[tokio::test]
async fn a_reset_fills_in_what_an_old_row_lacks() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only("mydb:main")).await;
    let wanted = to(head(2), ConcernValue::unborn());
    let outcome = table.store.reset_head(&Call::fresh(), &at("mydb"), &wanted).await.unwrap();
    assert_eq!(outcome, Reset::Reset { head: head(2), index: Index::unborn() });
    assert_eq!(found(&table.store, &at("mydb")).await.head, Some(head(2)));
}

#[tokio::test]
async fn unknown_retracted_and_foreign_records_are_not_reset() {
    let table = Table::fresh().await;
    let store = &table.store;
    let reset = async |address: &Address| {
        store.reset_head(&Call::fresh(), address, &to(head(2), ConcernValue::unborn())).await.unwrap()
    };
    assert_eq!(reset(&at("nobody")).await, Reset::Unknown);
    assert!(table.rows("nobody:main").await.is_empty());
    let db = born(store, "mydb", 3).await;
    retracted(store, &db).await;
    assert_eq!(reset(&db).await, Reset::Retracted);
    assert_eq!(store.head(&db).await.unwrap(), Some(head(3)));
    let search = source(store, "search", &[]).await;
    assert_eq!(reset(&search).await, Reset::WrongKind(RecordKind::GraphSource));
    assert!(table.row("search:main", "head").await.is_none());
}
