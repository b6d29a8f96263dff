//! The consumer killed at each of its requests, before it arrives and after it was done, and faults at each of them.

use std::sync::Arc;

use nameservice_tests::{engine, mapping::event_record, prelude::*, pump};
use stream_consumer::{Consumer, Delivery};
use tokio::{sync::Notify, time::timeout};

use super::{Published, expected::assert_reported, reported, whole};

/// 107 changes, which take two transactions, and a record whose kind must be looked up.
async fn written(table: &Table) -> (Vec<Value>, Vec<Vec<(String, &'static str, &'static str, i64)>>) {
    let store = &table.store;
    store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    store.publish_graph_source(&Call::fresh(), &bm25("s:main", json!({}), &[])).await.unwrap().applied();
    for t in 2..=101 {
        store.push_head(&Call::fresh(), &at("a:main"), &older(head(t))).await.unwrap().applied();
    }
    store.push_index(&Call::fresh(), &at("s:main"), &older(index(1))).await.unwrap().applied();
    let batch: Vec<Value> = pump::deliveries(table).await.iter().map(event_record).collect();
    // The meta of the graph source was delivered before, so that its kind must be looked up.
    let meta = |record: &Value| {
        record.pointer("/dynamodb/Keys") == Some(&json!({ "pk": { "S": "s:main" }, "sk": { "S": "meta" } }))
    };
    let (before, batch): (Vec<Value>, Vec<Value>) = batch.into_iter().partition(meta);
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    let answer = consumer.handle(json!({ "Records": before })).await;
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
    (batch, expected)
}

const OPERATIONS: [&str; 5] = ["TransactWriteItems", "GetItem", "BatchGetItem", "Query", "PutItem"];

#[tokio::test]
async fn a_consumer_killed_at_any_request_loses_nothing_and_doubles_nothing() {
    for done_first in [false, true] {
        for k in 0.. {
            let table = Table::with_stream().await;
            let (batch, expected) = written(&table).await;
            let table = table.proxied().await;
            let topic = Published::default();
            let consumer = Consumer::new(table.store.clone(), table.feed.clone()).with_topic(Arc::new(topic.clone()));
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
            let died = tokio::select! {
                _ = consumer.handle(json!({ "Records": batch })) => false,
                () = killed.notified() => true,
            };
            if !died {
                assert!(k >= 3, "a batch of 106 changes takes more than {k} requests");
                table.proxy.disarm();
            }
            let feed = nameservice_feed::Feed::new(table.client.clone(), table.feed.table());
            let again = Consumer::new(table.store.clone(), feed.clone()).with_topic(Arc::new(topic.clone()));
            let answer = again.handle(json!({ "Records": batch })).await;
            assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
            let changes = whole(&feed).await;
            assert_reported(&changes, &expected);
            let published: Vec<u64> = topic.by_position().into_keys().collect();
            assert_eq!(published, (2..=107).collect::<Vec<_>>(), "all of the batch was published");
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
        for k in 0..4 {
            // A new consumer, which knows nothing of the counter.
            let feed = nameservice_feed::Feed::new(engine::client(table.proxy.url()), table.feed.table());
            let consumer = Consumer::new(table.store.clone(), feed);
            table.proxy.on_each(&OPERATIONS, fault().skipping(k));
            let answer = consumer.handle(json!({ "Records": batch })).await;
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
        assert!(consumer.handle(json!({ "Records": batch })).await.batch_item_failures.is_empty());
        assert_reported(&whole(&table.feed).await, &expected);
    }
}

#[tokio::test]
async fn a_batch_whose_publishing_failed_is_published_again_under_the_same_positions() {
    struct Rejecting(Published, std::sync::atomic::AtomicUsize);
    #[async_trait::async_trait]
    impl stream_consumer::Topic for Rejecting {
        async fn publish(&self, changes: &[Change]) -> Result<(), stream_consumer::NotPublished> {
            let at_most = self.1.fetch_add(2, std::sync::atomic::Ordering::Relaxed);
            let published = at_most.min(changes.len());
            self.0.publish(&changes[..published]).await?;
            match published == changes.len() {
                true => Ok(()),
                false => Err(stream_consumer::NotPublished { published, source: "rejected".into() }),
            }
        }
    }
    let table = Table::with_stream().await;
    table.store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    table.store.push_head(&Call::fresh(), &at("a:main"), &older(head(2))).await.unwrap().applied();
    let deliveries = pump::deliveries(&table).await;
    let published = Published::default();
    let topic = Arc::new(Rejecting(published.clone(), Default::default()));
    let consumer = Consumer::new(table.store.clone(), table.feed.clone()).with_topic(topic);

    // Nothing, two, and then all four were published.
    let changing: Vec<&Delivery> = {
        let reported = whole_of_each(&table, &deliveries).await;
        deliveries.iter().filter(|delivery| reported.contains(&delivery.event_id().to_owned())).collect()
    };
    let first = consumer.consume(&deliveries).await;
    assert_eq!(first.failed.as_deref(), Some(changing[0].sequence_number()));
    let second = consumer.consume(&deliveries).await;
    assert_eq!(second.failed.as_deref(), Some(changing[2].sequence_number()));
    assert_eq!(consumer.consume(&deliveries).await.failed, None);
    let changes = whole(&table.feed).await;
    assert_eq!(changes.len(), 4);
    assert_eq!(published.by_position().into_values().collect::<Vec<_>>(), changes);
    assert_eq!(published.messages(), 2 + 4);
    assert!(changes.iter().map(reported).is_sorted_by_key(|reported| reported.1 == "head" && reported.3 == 2));
}

/// Returns the event ids of the deliveries with a change: each consumed alone, into a feed of its own.
async fn whole_of_each(table: &Table, deliveries: &[Delivery]) -> Vec<String> {
    let mut telling = Vec::new();
    let scratch = nameservice_feed::Feed::new(table.client.clone(), format!("{}-scratch", table.name));
    scratch.ensure_table().await.unwrap();
    let consumer = Consumer::new(table.store.clone(), scratch);
    for delivery in deliveries {
        if consumer.consume(std::slice::from_ref(delivery)).await.changes == 1 {
            telling.push(delivery.event_id().to_owned());
        }
    }
    telling
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
    let answer = timeout(LONG, consumer.handle(json!({ "Records": batch }))).await.unwrap();
    assert_eq!(answer.batch_item_failures.len(), 1);
}
