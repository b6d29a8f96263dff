use nameservice_tests::prelude::*;

use super::{born, found, retracted, source, unborn};

async fn push(store: &Store, db: &Address, push: Push<ContentId, Head>) -> PushOutcome<ContentId> {
    store.push_head(&Call::fresh(), db, &push).await.unwrap()
}

#[tokio::test]
async fn a_newer_head_is_updated() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    assert_eq!(push(&table.store, &db, older(head(1))).await, updated(head(1)));
    assert_eq!(push(&table.store, &db, older(head(5))).await, updated(head(5)));
    assert_eq!(table.store.head(&db).await.unwrap(), Some(head(5)));
    assert_eq!(found(&table.store, &db).await.head, Some(head(5)));
}

#[tokio::test]
async fn an_older_head_and_another_one_at_the_same_t_are_stale() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 5).await;
    for new in [head(4), Head::new(5, cid(99))] {
        assert_eq!(push(&table.store, &db, older(new)).await, stale(head(5)));
    }
    assert_eq!(table.store.head(&db).await.unwrap(), Some(head(5)));
}

#[tokio::test]
async fn a_head_that_is_in_place_is_replayed() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 5).await;
    assert_eq!(push(&table.store, &db, older(head(5))).await, replayed(head(5)));
    assert_eq!(push(&table.store, &db, cas(head(4), head(5))).await, replayed(head(5)));
}

#[tokio::test]
async fn the_expected_head_is_replaced() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    assert_eq!(push(&table.store, &db, cas(Head::unborn(), head(1))).await, updated(head(1)));
    assert_eq!(push(&table.store, &db, cas(head(1), head(2))).await, updated(head(2)));
    assert_eq!(table.store.head(&db).await.unwrap(), Some(head(2)));
}

#[tokio::test]
async fn another_head_than_expected_is_a_conflict_that_shows_it() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 5).await;
    for expected in [head(4), Head::new(5, cid(4)), Head::new(4, cid(5)), Head::unborn()] {
        assert_eq!(push(&table.store, &db, cas(expected, head(6))).await, conflict(head(5)));
    }
    let other = unborn(&table.store, "other").await;
    assert_eq!(push(&table.store, &other, cas(head(1), head(2))).await, conflict(Head::unborn()));
    assert_eq!(table.store.head(&db).await.unwrap(), Some(head(5)));
}

#[tokio::test]
async fn a_head_that_is_not_newer_than_the_expected_one_is_a_conflict() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 5).await;
    for new in [head(4), Head::new(5, cid(99))] {
        assert_eq!(push(&table.store, &db, cas(head(5), new)).await, conflict(head(5)));
    }
}

#[tokio::test]
async fn expecting_no_record_creates_the_ledger() {
    let table = Table::fresh().await;
    let db = at("mydb");
    assert_eq!(push(&table.store, &db, first(head(3))).await, updated(head(3)));
    let record = found(&table.store, &db).await;
    assert_eq!((record.head, record.status), (Some(head(3)), status(1, "ready")));
    assert_eq!(table.rows("mydb:main").await.len(), 5);
}

#[tokio::test]
async fn expecting_no_record_where_there_is_one_is_a_conflict_that_shows_its_head() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 3).await;
    assert_eq!(push(&table.store, &db, first(head(4))).await, conflict(head(3)));
    let other = unborn(&table.store, "other").await;
    assert_eq!(push(&table.store, &other, first(head(1))).await, conflict(Head::unborn()));
    assert_eq!(table.store.head(&other).await.unwrap(), Some(Head::unborn()));
}

#[tokio::test]
async fn an_unknown_record_is_unknown_and_stays_so() {
    let table = Table::fresh().await;
    let db = at("mydb");
    for pushed in [older(head(1)), cas(Head::unborn(), head(1)), cas(head(1), head(2))] {
        assert_eq!(push(&table.store, &db, pushed).await, PushOutcome::Unknown);
    }
    assert!(table.rows("mydb:main").await.is_empty());
}

#[tokio::test]
async fn a_ghost_is_unknown() {
    let table = Table::fresh().await;
    table.put(&[rows::ghost_meta("mydb:main")]).await;
    assert_eq!(push(&table.store, &at("mydb"), older(head(1))).await, PushOutcome::Unknown);
}

#[tokio::test]
async fn a_retracted_record_takes_no_head() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 1).await;
    retracted(&table.store, &db).await;
    for pushed in [older(head(2)), cas(head(1), head(2))] {
        assert_eq!(push(&table.store, &db, pushed).await, PushOutcome::Retracted);
    }
    assert_eq!(table.store.head(&db).await.unwrap(), Some(head(1)));
}

#[tokio::test]
async fn a_graph_source_has_no_head() {
    let table = Table::fresh().await;
    let address = source(&table.store, "search", &[]).await;
    let outcome = push(&table.store, &address, older(head(1))).await;
    assert_eq!(outcome, PushOutcome::WrongKind(RecordKind::GraphSource));
    assert_eq!(table.store.head(&address).await.unwrap(), None);
    assert!(table.row("search:main", "head").await.is_none());
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

#[tokio::test]
async fn a_call_that_arrives_again_after_others_wrote_is_updated_and_applies_once() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 1).await;
    let (call, pushed) = (Call::fresh(), cas(head(1), head(2)));
    assert_eq!(table.store.push_head(&call, &db, &pushed).await.unwrap(), updated(head(2)));
    for t in 3..=5 {
        assert_eq!(push(&table.store, &db, older(head(t))).await, updated(head(t)));
    }
    let again = table.store.push_head(&call, &db, &pushed).await.unwrap();
    assert_eq!(again, replayed(head(2)), "the value that was written");
    assert_eq!(table.store.head(&db).await.unwrap(), Some(head(5)));
}

#[tokio::test]
async fn t_is_a_number_to_the_last_digit() {
    let table = Table::fresh().await;
    let db = unborn(&table.store, "mydb").await;
    assert_eq!(push(&table.store, &db, older(head(i64::MAX - 1))).await, updated(head(i64::MAX - 1)));
    assert_eq!(push(&table.store, &db, older(head(i64::MAX))).await, updated(head(i64::MAX)));
    assert_eq!(table.store.head(&db).await.unwrap(), Some(head(i64::MAX)));
}
