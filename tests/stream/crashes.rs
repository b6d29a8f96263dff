//! The consumer killed at each of its requests, before it arrives and after it was done, and faults at each of them.

use std::sync::Arc;

use nameservice_tests::{engine, mapping::event_record, prelude::*, pump};
use stream_consumer::Consumer;
use tokio::{sync::Notify, time::timeout};

use super::{expected::assert_reported, raw, whole};

/// 108 changes, which take two transactions, a record whose kind must be looked up, and a large payload.
async fn written(table: &Table) -> (Vec<Value>, Vec<Vec<(String, &'static str, &'static str, i64)>>) {
    let store = &table.store;
    store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    store.publish_graph_source(&Call::fresh(), &bm25("s:main", json!({}), &[])).await.unwrap().applied();
    for t in 2..=101 {
        store.push_head(&Call::fresh(), &at("a:main"), &older(head(t))).await.unwrap().applied();
    }
    store.push_index(&Call::fresh(), &at("s:main"), &older(index(1))).await.unwrap().applied();
    let large = status_with(2, "busy", json!({ "text": "x".repeat(2_000) }));
    let push = cas(status(1, "ready"), large);
    store.push_status(&Call::fresh(), &at("a:main"), &push).await.unwrap().applied();
    let batch: Vec<Value> = pump::deliveries(table).await.iter().map(event_record).collect();
    // The meta of the graph source was delivered before, so that its kind must be looked up.
    let meta = |record: &Value| {
        record.pointer("/dynamodb/Keys") == Some(&json!({ "pk": { "S": "s:main" }, "sk": { "S": "meta" } }))
    };
    let (before, batch): (Vec<Value>, Vec<Value>) = batch.into_iter().partition(meta);
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    let answer = consumer.handle(raw(&json!({ "Records": before }))).await;
    assert!(answer.batch_item_failures.is_empty());
    let mut expected = vec![vec![
        ("a:main".to_owned(), "meta", "created", 0),
        ("a:main".to_owned(), "head", "created", 1),
        ("a:main".to_owned(), "status", "created", 1),
    ]];
    expected.push(vec![
        ("s:main".to_owned(), "meta", "created", 0),
        ("s:main".to_owned(), "config", "created", 1),
        ("s:main".to_owned(), "status", "created", 1),
    ]);
    expected.extend((2..=101).map(|t| vec![("a:main".to_owned(), "head", "updated", t)]));
    expected.push(vec![("s:main".to_owned(), "index", "created", 1)]);
    expected.push(vec![("a:main".to_owned(), "status", "updated", 2)]);
    (batch, expected)
}

const OPERATIONS: [&str; 6] = ["TransactWriteItems", "GetItem", "BatchGetItem", "BatchWriteItem", "Query", "PutItem"];

#[tokio::test]
async fn a_consumer_killed_at_any_request_loses_nothing_and_doubles_nothing() {
    for done_first in [false, true] {
        for k in 0.. {
            let table = Table::with_stream().await;
            let (batch, expected) = written(&table).await;
            let table = table.proxied().await;
            let consumer = Consumer::new(table.store.clone(), table.feed.clone());
            let killed = Arc::new(Notify::new());
            let (kill, never) = (killed.clone(), Arc::new(Notify::new()));
            let hook = move || {
                let (kill, never) = (kill.clone(), never.clone());
                async move {
                    kill.notify_one();
                    never.notified().await;
                }
            };
            let fault = if done_first { Fault::none().after(hook) } else { Fault::none().before(hook) };
            table.proxy.on_each(&OPERATIONS, fault.skipping(k));
            let event = raw(&json!({ "Records": batch }));
            let died = tokio::select! {
                _ = consumer.handle(event.clone()) => false,
                () = killed.notified() => true,
            };
            if !died {
                assert!(k >= 4, "a batch of 107 changes takes more than {k} requests");
                table.proxy.disarm();
            }
            let feed = nameservice_feed::Feed::new(table.client.clone(), table.feed.table());
            let again = Consumer::new(table.store.clone(), feed.clone());
            let answer = again.handle(event).await;
            assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
            let changes = whole(&feed).await;
            assert_reported(&changes, &expected);
            if !died {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_fault_at_any_request_is_outlived_or_answered_with_the_first_record_that_is_left() {
    type Faulty = fn() -> Fault;
    let faults: [(&str, Faulty); 6] = [
        ("cut before", Fault::cut_request),
        ("cut after", Fault::cut_reply),
        ("throttled", || Fault::answer(400, "ThrottlingException")),
        ("broken", || Fault::answer(500, "InternalServerError")),
        ("done but broken", || Fault::done_but_answer(500, "InternalServerError")),
        ("denied permanently", || Fault::answer(400, "AccessDeniedException")),
    ];
    for (name, fault) in faults {
        let table = Table::with_stream().await;
        let (batch, expected) = written(&table).await;
        let table = table.proxied().await;
        for k in 0..5 {
            // A new consumer, which knows nothing of the counter.
            let feed = nameservice_feed::Feed::new(engine::client(table.proxy.url()), table.feed.table());
            let consumer = Consumer::new(table.store.clone(), feed);
            table.proxy.on_each(&OPERATIONS, fault().skipping(k));
            let answer = consumer.handle(raw(&json!({ "Records": batch }))).await;
            table.proxy.disarm();
            match name {
                "denied permanently" => {
                    let failed = &answer.batch_item_failures[0].item_identifier;
                    let named = batch.iter().position(|record| {
                        record.pointer("/dynamodb/SequenceNumber").and_then(Value::as_str) == failed.as_deref()
                    });
                    assert!(named.is_some(), "{name} at {k}: {answer:?}");
                }
                _ => assert!(answer.batch_item_failures.is_empty(), "{name} at {k}: {answer:?}"),
            }
        }
        let consumer = Consumer::new(table.store.clone(), table.feed.clone());
        assert!(consumer.handle(raw(&json!({ "Records": batch }))).await.batch_item_failures.is_empty());
        assert_reported(&whole(&table.feed).await, &expected);
    }
}

#[tokio::test]
async fn an_engine_that_stays_away_fails_the_batch() {
    let table = Table::with_stream().await;
    let (batch, _) = written(&table).await;
    let table = table.proxied().await;
    table.proxy.on("TransactWriteItems", Fault::answer(400, "ThrottlingException").always());
    // Its deadline is far below that of the test.
    let feed = table.feed.clone().with_retry_policy(crate::faults::IMPATIENT);
    let consumer = Consumer::new(table.store.clone(), feed);
    let answer = timeout(LONG, consumer.handle(raw(&json!({ "Records": batch })))).await.unwrap();
    assert_eq!(answer.batch_item_failures.len(), 1);
}
