//! Counters at their maximum, and numbers that others have stored beyond it.

use nameservice_tests::prelude::*;

use crate::contract::{born, source};

const DB: &str = "mydb:main";

#[track_caller]
fn assert_limit<T: std::fmt::Debug>(counter: &str, answer: Result<T>) {
    match answer {
        Err(Error::LimitReached { counter: reached }) if reached == counter => {}
        other => panic!("{counter}: {other:?}"),
    }
}

/// A ledger whose items have these numbers.
async fn table_at(numbers: &[(&str, &str, &str)]) -> Table {
    let table = Table::fresh().await;
    born(&table.store, "mydb", 1).await;
    table.store.push_index(&Call::fresh(), &at(DB), &older(index(1))).await.unwrap().applied();
    for (sk, attribute, number) in numbers {
        table.set(DB, sk, attribute, json!({ "N": number })).await;
    }
    table
}

#[tokio::test]
async fn a_counter_at_its_limit_is_never_incremented() {
    let (call, db) = (Call::fresh, &at(DB));
    let claim = claim_of(LeaseName::INDEX, "me", 1);
    for stored in [MAX_WATERMARK.to_string(), i64::MAX.to_string(), "9223372036854775808".to_owned(), "1E30".to_owned()]
    {
        let v: i64 = stored.parse().unwrap_or(i64::MAX);
        let table = table_at(&[("status", "status_v", "5")]).await;
        let store = &table.store;
        store.acquire_lease(&call(), db, &index_lock("me", 60)).await.unwrap().applied();
        table.set(DB, "status", "status_v", json!({ "N": &stored })).await;
        table.set(DB, "config", "config_v", json!({ "N": &stored })).await;
        let before = table.all_rows().await;
        assert_limit("status_v", store.acquire_lease(&call(), db, &index_lock("me", 60)).await);
        assert_limit("status_v", store.refresh_lease(&call(), db, &index_lock("me", 60), 1).await);
        assert_limit("status_v", store.release_lease(&call(), db, &claim).await);
        assert_limit("status_v", store.retract(&call(), db, None).await);
        // The precondition is judged first.
        let lost = store.refresh_lease(&call(), db, &index_lock("me", 60), 7).await.unwrap();
        assert!(matches!(lost, Leased::Lost { .. }), "{lost:?}");
        let busy = store.acquire_lease(&call(), db, &index_lock("you", 60)).await.unwrap();
        assert!(matches!(busy, Leased::Busy(_)), "{busy:?}");
        let new = || NewStatus::new(StatusPayload::state("x")).unwrap();
        let push = |expected: i64| StatusPush::cas(Status::stored(expected, None), new());
        if v == MAX_WATERMARK {
            assert_limit("status_v", store.push_status(&call(), db, &push(v)).await);
            assert_limit("status_v", store.push_status(&call(), db, &push(v).under(claim.clone()).unwrap()).await);
        }
        for expected in [1, 5, v - 1] {
            let outcome = store.push_status(&call(), db, &push(expected)).await.unwrap();
            assert!(matches!(&outcome, PushOutcome::Conflict { actual: Some(actual) } if actual.v == v), "{outcome:?}");
        }
        let config = |expected: i64| cas(Config::stored(expected, None), new_config(json!({ "a": 1 })));
        if v == MAX_WATERMARK {
            assert_limit("config_v", store.push_config(&call(), db, &config(v)).await);
            let operations = [Operation::new(db.clone(), older(head(5))), Operation::new(db.clone(), config(v))];
            assert_limit("config_v", store.commit(&call(), &transaction(&operations)).await);
        }
        let stale = [Operation::new(db.clone(), older(Head::new(1, cid(9)))), Operation::new(db.clone(), config(v))];
        let outcome = store.commit(&call(), &transaction(&stale)).await.unwrap();
        assert!(matches!(outcome, Committed::Rejected(_)), "{outcome:?}");
        assert_eq!(table.all_rows().await, before, "nothing was written");
        // Whatever has no such counter is written as before.
        store.push_head(&call(), db, &older(head(2))).await.unwrap().applied();
    }
}

#[tokio::test]
async fn the_last_value_of_a_counter_can_be_reached() {
    let (call, db) = (Call::fresh, &at(DB));
    let last = MAX_WATERMARK - 1;
    let table = table_at(&[("status", "status_v", &last.to_string())]).await;
    table.store.acquire_lease(&call(), db, &index_lock("me", 60)).await.unwrap().applied();
    assert_eq!(table.store.status(db).await.unwrap().unwrap().v, MAX_WATERMARK);
    let table = table_at(&[("status", "status_v", &last.to_string())]).await;
    table.store.retract(&call(), db, None).await.unwrap().applied();
    assert_limit("status_v", table.store.restore(&call(), db).await);
    let table = table_at(&[("status", "lease_token", &last.to_string())]).await;
    let Leased::Held(held) = table.store.acquire_lease(&call(), db, &index_lock("me", 60)).await.unwrap() else {
        panic!()
    };
    assert_eq!(held.token, MAX_WATERMARK);
    assert_limit("lease_token", table.store.acquire_lease(&call(), db, &index_lock("me", 60)).await);
}

#[tokio::test]
async fn a_revision_at_its_limit_is_never_incremented() {
    let (call, db) = (Call::fresh, &at(DB));
    for stored in [MAX_WATERMARK, i64::MAX] {
        let table = table_at(&[("index", "rev", &stored.to_string())]).await;
        let (store, there) = (&table.store, index_at(1, stored));
        assert_eq!(store.index(db).await.unwrap(), Some(there));
        assert_limit("rev", store.push_index(&call(), db, &cas(index_at(1, 0), index_of(50, 1))).await);
        assert_limit("rev", store.push_index(&call(), db, &IndexPush::overwrite(index_of(50, 1))).await);
        let operations = [Operation::new(db.clone(), cas(index_at(1, 0), index_of(50, 1)))];
        assert_limit("rev", store.commit(&call(), &transaction(&operations)).await);
        assert_eq!(store.index(db).await.unwrap(), Some(index_at(1, stored)));
        assert_eq!(store.push_index(&call(), db, &older(index(2))).await.unwrap(), updated(index_at(2, 0)));
    }
    let table = table_at(&[]).await;
    let store = &table.store;
    let named = |n: i64, t: i64, rev| index(t).with_graph("g", Some(graph(n, 1, rev))).unwrap();
    store.push_index(&call(), db, &older(named(7, 2, Some(MAX_WATERMARK)))).await.unwrap().applied();
    let before = store.index(db).await.unwrap().unwrap();
    for push in
        [older(named(8, 3, None)), cas(before.clone(), named(8, 3, None)), IndexPush::overwrite(named(8, 2, None))]
    {
        assert_limit("rev", store.push_index(&call(), db, &push).await);
    }
    assert_eq!(store.index(db).await.unwrap(), Some(before));
    store.push_index(&call(), db, &older(named(7, 3, None))).await.unwrap().applied();
}

#[tokio::test]
async fn a_graph_source_at_its_last_config_is_not_published_again() {
    let table = Table::fresh().await;
    let search = source(&table.store, "search", &[]).await;
    table.set(search.as_str(), "config", "config_v", rows::n(MAX_WATERMARK)).await;
    let publish = async |publication| table.store.publish_graph_source(&Call::fresh(), &publication).await;
    let publication = bm25("search", json!({ "n": 2 }), &[]);
    assert_limit("config_v", publish(publication.clone()).await);
    assert_limit("config_v", publish(publication.clone().expecting(MAX_WATERMARK).unwrap()).await);
    let outcome = publish(publication.expecting(1).unwrap()).await.unwrap();
    assert!(matches!(outcome, Published::Conflict { .. }), "{outcome:?}");
}
