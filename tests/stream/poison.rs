//! Records that cannot be read: each becomes one dead letter, whole, and the others are consumed.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use nameservice_tests::{
    mapping::{Mapping, Odds, Settings},
    prelude::*,
};
use stream_consumer::{Consumer, DeadLetters, Delivery};

use super::{of, raw, records, whole};

/// Letters in memory, of which some cannot be sent.
#[derive(Clone, Default)]
struct Letters {
    sent: Arc<Mutex<Vec<(Value, String)>>>,
    closed: Arc<AtomicBool>,
}

#[async_trait]
impl DeadLetters for Letters {
    async fn store(&self, delivery: &Delivery, reason: &str) -> Result<(), BoxError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err("the queue is away".into());
        }
        let whole = serde_json::from_str(delivery.json()?.get())?;
        self.sent.lock().unwrap().push((whole, reason.to_owned()));
        Ok(())
    }
}

/// Three records of heads, as they were delivered.
async fn three(table: &Table) -> Vec<Value> {
    table.store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    for t in 2..=4 {
        table.store.push_head(&Call::fresh(), &at("a:main"), &older(head(t))).await.unwrap().applied();
    }
    let mut records = records(table).await;
    records.split_off(records.len() - 3)
}

/// Ways to spoil a record, and what the reason says.
fn spoiled(record: &Value) -> Vec<(Value, &'static str)> {
    let with = |pointer: &str, value: Value| {
        let mut record = record.clone();
        *record.pointer_mut(pointer).unwrap() = value;
        record
    };
    let without = |parent: &str, name: &str| {
        let mut record = record.clone();
        record.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name).unwrap();
        record
    };
    vec![
        (with("/dynamodb/NewImage/commit_t", json!({ "S": "four" })), "`commit_t` is not of type N"),
        (with("/dynamodb/NewImage/commit_t", json!({ "N": "4.5" })), "`commit_t` is not of type N"),
        (with("/dynamodb/NewImage/commit_t", json!({ "N": "1e30" })), "`commit_t` is not of type N"),
        (with("/dynamodb/NewImage/commit_id", json!({ "N": "4" })), "`commit_id` is not of type S"),
        (with("/dynamodb/NewImage/commit_t", json!(4)), "not one of a DynamoDB stream"),
        (with("/dynamodb/NewImage/commit_t", json!({ "X": "4" })), "not one of a DynamoDB stream"),
        (with("/dynamodb/NewImage", json!("x".repeat(100_000))), "not one of a DynamoDB stream"),
        (with("/dynamodb/NewImage", json!([])), "not one of a DynamoDB stream"),
        (with("/dynamodb/Keys", json!({})), "no `pk` of type S"),
        (with("/dynamodb/Keys/sk", json!({ "N": "1" })), "no `sk` of type S"),
        (without("/dynamodb/Keys", "sk"), "no `sk` of type S"),
        (without("/dynamodb", "Keys"), ""),
        (without("", "dynamodb"), "not one of a DynamoDB stream"),
        (without("", "eventID"), ""),
        (with("/eventID", json!("")), "no `eventID`"),
        (with("/eventID", json!(7)), ""),
        (json!("a text"), "not one of a DynamoDB stream"),
        (json!(null), "not one of a DynamoDB stream"),
        (json!([1, 2]), "not one of a DynamoDB stream"),
        (json!({}), "not one of a DynamoDB stream"),
    ]
}

#[tokio::test]
async fn each_becomes_one_letter_with_its_reason_and_the_rest_continues() {
    let table = Table::with_stream().await;
    let good = three(&table).await;
    let letters = Letters::default();
    let mut batch = vec![good[0].clone()];
    let bad = spoiled(&good[1]);
    batch.extend(bad.iter().map(|(record, _)| record.clone()));
    batch.extend_from_slice(&good[1..]);
    let consumer = Consumer::new(table.store.clone(), table.feed.clone()).with_dead_letters(Arc::new(letters.clone()));
    let answer = consumer.handle(raw(&json!({ "Records": batch }))).await;
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
    let sent = letters.sent.lock().unwrap().clone();
    for ((record, reason), (sent, reported)) in bad.iter().zip(&sent) {
        assert_eq!(sent, record, "whole");
        assert!(reported.contains(reason) && reported.len() < 2_000, "{reported}: {reason}");
    }
    assert_eq!(sent.len(), bad.len());
    let changes = whole(&table.feed).await;
    assert_eq!(of(&changes, "a:main"), [("head", "updated", 2), ("head", "updated", 3), ("head", "updated", 4)]);
}

/// A name that is there is found, whatever is beside it: a failure that names no record would fail its whole batch.
#[test]
fn a_spoiled_record_keeps_what_names_it() {
    for (record, event_id, sequence_number) in [
        (json!({ "eventID": "e", "dynamodb": null }), "e", ""),
        (json!({ "eventID": "e", "dynamodb": { "SequenceNumber": 7 } }), "e", ""),
        (json!({ "eventID": 5, "dynamodb": { "SequenceNumber": "7", "Keys": [] } }), "", "7"),
        (json!({ "eventID": ["e"], "dynamodb": { "SequenceNumber": "7" } }), "", "7"),
        (json!(["e", ["7"]]), "", ""),
    ] {
        let delivery = Delivery::from_event(raw(&record));
        assert_eq!((delivery.event_id(), delivery.sequence_number()), (event_id, sequence_number), "{record}");
        assert!(delivery.read().is_err(), "{record}");
    }
}

/// A secret, put in the places of a record that no change can be read from.
const CANARY: &str = "canary-40be3a";

#[tokio::test]
async fn a_letter_holds_the_whole_record_with_its_secrets_and_the_reason_which_is_logged_none() {
    let table = Table::with_stream().await;
    let good = three(&table).await;
    let spoil = |pointer: &str, value: Value| {
        let mut record = good[1].clone();
        record["dynamodb"]["NewImage"]["config_json"] = json!({ "S": format!("{{\"password\": \"{CANARY}\"}}") });
        *record.pointer_mut(pointer).unwrap() = value;
        record
    };
    let bad = [
        spoil("/dynamodb/NewImage/commit_t", json!({ "S": CANARY })),
        spoil("/dynamodb/NewImage/commit_t", json!({ CANARY: "4" })),
        spoil("/dynamodb/NewImage/commit_t", json!(CANARY)),
        spoil("/dynamodb/NewImage", json!(CANARY)),
        spoil("/dynamodb/Keys", json!({ "pk": CANARY })),
        spoil("/dynamodb/ApproximateCreationDateTime", json!(CANARY)),
        spoil("/dynamodb", json!(format!("{CANARY}, expected {CANARY}"))),
        json!(CANARY),
    ];
    let letters = Letters::default();
    let consumer = Consumer::new(table.store.clone(), table.feed.clone()).with_dead_letters(Arc::new(letters.clone()));
    assert!(consumer.handle(raw(&json!({ "Records": bad }))).await.batch_item_failures.is_empty());
    let sent = letters.sent.lock().unwrap().clone();
    assert_eq!(sent.len(), bad.len());
    for ((record, reason), spoiled) in sent.iter().zip(&bad) {
        assert_eq!(record, spoiled, "whole: whoever mends the row needs it");
        assert!(record.to_string().contains(CANARY));
        assert!(!reason.contains(CANARY), "{reason}");
    }
    // Nor is one of them in the feed.
    assert_eq!(table.feed.position().await.unwrap(), 0);
}

#[tokio::test]
async fn without_a_queue_they_are_kept_beside_the_feed_each_of_its_own() {
    let table = Table::with_stream().await;
    let good = three(&table).await;
    let bad: Vec<Value> = spoiled(&good[1])
        .into_iter()
        .enumerate()
        .map(|(n, (mut record, _))| {
            if let Some(id) = record.get_mut("eventID").filter(|id| id.as_str().is_some_and(|id| !id.is_empty())) {
                *id = format!("poison-{n}").into();
            }
            record
        })
        .collect();
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    for _ in 0..2 {
        assert!(consumer.handle(raw(&json!({ "Records": bad }))).await.batch_item_failures.is_empty());
    }
    let mut kept: Vec<Value> = table
        .feed
        .dead_letters()
        .await
        .unwrap()
        .iter()
        .map(|letter| serde_json::from_str(&letter.record).unwrap())
        .collect();
    let mut wanted = bad;
    kept.sort_by_key(Value::to_string);
    wanted.sort_by_key(Value::to_string);
    assert_eq!(kept, wanted);
    assert_eq!(table.feed.position().await.unwrap(), 0);
}

#[tokio::test]
async fn one_that_is_larger_than_any_row_does_not_hold_up_the_shard() {
    let table = Table::with_stream().await;
    let good = three(&table).await;
    let mut large = good[1].clone();
    large["eventID"] = "large".into();
    large["dynamodb"]["NewImage"]["commit_t"] = json!({ "S": "x".repeat(300_000) });
    large["dynamodb"]["OldImage"]["commit_t"] = json!({ "S": "x".repeat(300_000) });
    let mut named_long = good[1].clone();
    named_long["eventID"] = "y".repeat(5_000).into();
    named_long["dynamodb"]["NewImage"]["commit_t"] = json!({ "S": "x" });
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    let answer = consumer.handle(raw(&json!({ "Records": [large, named_long, good[2]] }))).await;
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
    let stored = table.feed.dead_letters().await.unwrap();
    assert_eq!(stored.len(), 2);
    let large = stored.iter().find(|letter| letter.event_id == "large").unwrap();
    let record: Value = serde_json::from_str(&large.record).unwrap();
    assert_eq!(record["dynamodb"]["images_omitted"], true);
    assert_eq!(record["dynamodb"]["Keys"]["pk"]["S"], "a:main");
    assert_eq!(whole(&table.feed).await.len(), 1);
}

#[tokio::test]
async fn a_letter_that_cannot_be_sent_is_named_and_what_precedes_it_is_done() {
    let table = Table::with_stream().await;
    let good = three(&table).await;
    let mut bad = good[1].clone();
    bad["dynamodb"]["NewImage"]["commit_t"] = json!({ "S": "three" });
    let letters = Letters::default();
    letters.closed.store(true, Ordering::Relaxed);
    let consumer = Consumer::new(table.store.clone(), table.feed.clone()).with_dead_letters(Arc::new(letters.clone()));
    let batch = json!({ "Records": [good[0], bad, good[2]] });
    let answer = consumer.handle(raw(&batch.clone())).await;
    let named: Vec<_> = answer.batch_item_failures.iter().map(|failure| failure.item_identifier.as_deref()).collect();
    assert_eq!(named, [bad["dynamodb"]["SequenceNumber"].as_str()]);
    assert_eq!(whole(&table.feed).await.len(), 1, "what follows waits, so that nothing is out of order");

    // One without a sequence number: an empty name fails the whole batch.
    let nameless = json!({ "Records": [good[0], "no record", good[2]] });
    let answer = consumer.handle(raw(&nameless)).await;
    assert_eq!(answer.batch_item_failures[0].item_identifier.as_deref(), Some(""));

    letters.closed.store(false, Ordering::Relaxed);
    assert!(consumer.handle(raw(&batch)).await.batch_item_failures.is_empty());
    assert_eq!(letters.sent.lock().unwrap().len(), 1);
    assert_eq!(whole(&table.feed).await.len(), 2);
}

#[tokio::test]
async fn poison_never_holds_up_a_mapping_and_nothing_of_it_is_lost() {
    let table = Table::with_stream().await;
    let good = three(&table).await;
    let bad: Vec<Value> = spoiled(&good[1])
        .into_iter()
        .enumerate()
        .filter(|(_, (record, _))| record.pointer("/dynamodb/Keys/sk/S").is_some())
        .map(|(n, (mut record, _))| {
            record["dynamodb"]["SequenceNumber"] = format!("1{n}").into();
            record["note"] = n.into();
            record
        })
        .collect();
    let letters = Letters::default();
    let consumer = Consumer::new(table.store.clone(), table.feed.clone()).with_dead_letters(Arc::new(letters.clone()));
    let mut mapping = Mapping::new(Settings { batch_size: 5, ..Settings::default() }, 11).with_odds(Odds {
        times_out: 15,
        dies: 15,
        lives_on: 10,
    });
    mapping.open("s", None);
    mapping.feed("s", good[..1].iter().chain(&bad).chain(&good[1..]).cloned());
    mapping.run(&consumer, 3_000).await;
    assert_eq!(mapping.destination, Vec::<Value>::new());
    for record in &bad {
        assert!(letters.sent.lock().unwrap().iter().any(|(sent, _)| sent == record), "{record}");
    }
    assert_eq!(whole(&table.feed).await.len(), 3);
}

#[tokio::test]
async fn an_event_without_records_is_no_work() {
    let table = Table::with_stream().await;
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    for event in [json!(null), json!({}), json!({ "Records": [] }), json!({ "Records": "none" }), json!([1])] {
        assert!(consumer.handle(raw(&event)).await.batch_item_failures.is_empty());
    }
    assert_eq!(table.feed.position().await.unwrap(), 0);
}
