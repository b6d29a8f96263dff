use nameservice_tests::prelude::*;

use super::{Fixture, born, every_backend, found, retracted, source, unborn};

async fn push(ns: &Fixture, db: &Address, push: HeadPush) -> PushOutcome<ContentId> {
    ns.push_head(&Call::fresh(), db, &push).await.unwrap()
}

#[every_backend]
async fn a_newer_head_is_updated(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    assert_eq!(push(ns, &db, older(head(1))).await, updated(head(1)));
    assert_eq!(push(ns, &db, older(head(5))).await, updated(head(5)));
    assert_eq!(ns.head(&db).await.unwrap(), Some(head(5)));
    assert_eq!(found(ns, &db).await.head, Some(head(5)));
}

#[every_backend]
async fn an_older_head_and_another_one_at_the_same_t_are_stale(ns: &Fixture) {
    let db = born(ns, "mydb", 5).await;
    for new in [head(4), Head::new(5, cid(99))] {
        assert_eq!(push(ns, &db, older(new)).await, stale(head(5)));
    }
    assert_eq!(ns.head(&db).await.unwrap(), Some(head(5)));
}

#[every_backend]
async fn a_head_that_is_current_is_replayed(ns: &Fixture) {
    let db = born(ns, "mydb", 5).await;
    assert_eq!(push(ns, &db, older(head(5))).await, replayed(head(5)));
    assert_eq!(push(ns, &db, cas(head(4), head(5))).await, replayed(head(5)));
}

#[every_backend]
async fn the_expected_head_is_replaced(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    assert_eq!(push(ns, &db, cas(Head::unborn(), head(1))).await, updated(head(1)));
    assert_eq!(push(ns, &db, cas(head(1), head(2))).await, updated(head(2)));
    assert_eq!(ns.head(&db).await.unwrap(), Some(head(2)));
}

#[every_backend]
async fn another_head_than_expected_is_a_conflict_that_shows_it(ns: &Fixture) {
    let db = born(ns, "mydb", 5).await;
    for expected in [head(4), Head::new(5, cid(4)), Head::new(4, cid(5)), Head::unborn()] {
        assert_eq!(push(ns, &db, cas(expected, head(6))).await, conflict(head(5)));
    }
    let other = unborn(ns, "other").await;
    assert_eq!(push(ns, &other, cas(head(1), head(2))).await, conflict(Head::unborn()));
    assert_eq!(ns.head(&db).await.unwrap(), Some(head(5)));
}

#[every_backend]
async fn a_head_that_is_not_newer_than_the_expected_one_is_a_conflict(ns: &Fixture) {
    let db = born(ns, "mydb", 5).await;
    for new in [head(4), Head::new(5, cid(99))] {
        assert_eq!(push(ns, &db, cas(head(5), new)).await, conflict(head(5)));
    }
}

#[every_backend]
async fn expecting_no_record_creates_the_ledger(ns: &Fixture) {
    let db = at("mydb");
    assert_eq!(push(ns, &db, first(head(3))).await, updated(head(3)));
    let record = found(ns, &db).await;
    assert_eq!((record.head, record.status), (Some(head(3)), status(1, "ready")));
}

#[every_backend]
async fn expecting_no_record_where_there_is_one_is_a_conflict_that_shows_its_head(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    assert_eq!(push(ns, &db, first(head(4))).await, conflict(head(3)));
    let other = unborn(ns, "other").await;
    assert_eq!(push(ns, &other, first(head(1))).await, conflict(Head::unborn()));
    assert_eq!(ns.head(&other).await.unwrap(), Some(Head::unborn()));
    assert_eq!(push(ns, &db, first(head(3))).await, replayed(head(3)), "it has this very head");
    assert_eq!(push(ns, &db, first(Head::new(3, cid(9)))).await, conflict(head(3)));
}

#[every_backend]
async fn an_unknown_record_is_unknown_and_stays_so(ns: &Fixture) {
    let db = at("mydb");
    for pushed in [older(head(1)), cas(Head::unborn(), head(1)), cas(head(1), head(2))] {
        assert_eq!(push(ns, &db, pushed).await, PushOutcome::Unknown);
    }
    assert_eq!(ns.lookup(&at("mydb:main")).await.unwrap(), None);
}

#[every_backend]
async fn a_retracted_record_takes_no_head(ns: &Fixture) {
    let db = born(ns, "mydb", 1).await;
    retracted(ns, &db).await;
    for pushed in [older(head(2)), cas(head(1), head(2))] {
        assert_eq!(push(ns, &db, pushed).await, PushOutcome::Retracted);
    }
    assert_eq!(ns.head(&db).await.unwrap(), Some(head(1)));
}

#[every_backend]
async fn a_graph_source_has_no_head(ns: &Fixture) {
    let address = source(ns, "search", &[]).await;
    let outcome = push(ns, &address, older(head(1))).await;
    assert_eq!(outcome, PushOutcome::WrongKind(RecordKind::GraphSource));
    assert_eq!(ns.head(&address).await.unwrap(), None);
    assert_eq!(found(ns, &address).await.head, None);
}

#[every_backend]
async fn a_call_that_arrives_again_after_others_wrote_is_updated_and_applies_once(ns: &Fixture) {
    let db = born(ns, "mydb", 1).await;
    let (call, pushed) = (Call::fresh(), cas(head(1), head(2)));
    assert_eq!(ns.push_head(&call, &db, &pushed).await.unwrap(), updated(head(2)));
    for t in 3..=5 {
        assert_eq!(push(ns, &db, older(head(t))).await, updated(head(t)));
    }
    let again = ns.push_head(&call, &db, &pushed).await.unwrap();
    assert_eq!(again, replayed(head(2)), "the value that was written");
    assert_eq!(ns.head(&db).await.unwrap(), Some(head(5)));
}

#[every_backend]
async fn t_is_a_number_to_the_last_digit(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    for t in [MAX_WATERMARK - 1, MAX_WATERMARK] {
        assert_eq!(push(ns, &db, older(head(t))).await, updated(head(t)));
    }
    assert_eq!(ns.head(&db).await.unwrap(), Some(head(MAX_WATERMARK)));
}
