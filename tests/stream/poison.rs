//! Records that cannot be read: each becomes one dead letter, whole, and a change without a payload if its key can be read. The others are
//! consumed.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use nameservice_store::schema;
use nameservice_tests::{
    mapping::{Mapping, Odds, Settings, event_record},
    prelude::*,
    pump,
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

/// The spoiled records, each with an id of its own if it has one.
fn each_of_its_own(record: &Value) -> Vec<(Value, &'static str)> {
    let mut spoiled = spoiled(record);
    for (n, (record, _)) in spoiled.iter_mut().enumerate() {
        if let Some(id) = record.get_mut("eventID").filter(|id| id.as_str().is_some_and(|id| !id.is_empty())) {
            *id = format!("poison-{n}").into();
        }
    }
    spoiled
}

/// What reads show of those spoiled records whose key can be read: the head before is at 2.
const SHOWN: [(&str, &str, i64); 4] =
    [("head", "reset", 0), ("head", "reset", 0), ("head", "updated", i64::MAX), ("head", "updated", 3)];

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
    let bad = each_of_its_own(&good[1]);
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
    let mut expected = vec![("head", "updated", 2)];
    expected.extend(SHOWN);
    expected.extend([("head", "updated", 3), ("head", "updated", 4)]);
    assert_eq!(of(&changes, "a:main"), expected);
    for (change, position) in changes.iter().zip(1..) {
        assert_eq!(change.position, position);
        assert_eq!(change.payload == ChangePayload::Omitted, (2..6).contains(&position), "{change:?}");
    }
}

/// A value of an attribute of this name and type, other than what records of these tests have.
fn valid(attribute: &schema::Attribute) -> Value {
    match (attribute.name, attribute.shape) {
        ("config_json", _) => rows::s("{\"a\": 1}"),
        (_, schema::Shape::Text) => rows::s("main"),
        (_, schema::Shape::Count) => rows::n(7),
        (_, schema::Shape::Truth) => json!({ "BOOL": true }),
        (_, schema::Shape::Map) => json!({ "M": { "g": { "NULL": true } } }),
        (_, schema::Shape::List) => json!({ "L": [] }),
    }
}

/// Consumes what the stream holds beyond the first records. Returns how many there were, and how many became letters.
async fn consumed(table: &Table, seen: usize) -> (usize, usize) {
    let deliveries = &pump::deliveries(table).await[seen..];
    let letters = table.feed.dead_letters().await.unwrap().len();
    let batch: Vec<Value> = deliveries.iter().map(event_record).collect();
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    assert!(consumer.handle(raw(&json!({ "Records": batch }))).await.batch_item_failures.is_empty());
    (batch.len(), table.feed.dead_letters().await.unwrap().len() - letters)
}

/// Each attribute that decides on changes, in each part of a ledger and of a graph source: another program writes a value of a wrong type.
#[tokio::test]
async fn each_attribute_of_a_wrong_type_is_a_letter_and_a_change_without_payload_that_agrees_with_reads() {
    let table = Table::with_stream().await;
    let store = &table.store;
    store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    store.create_branch(&Call::fresh(), &at("a:dev"), &at("a:main"), None).await.unwrap().applied();
    store.publish_graph_source(&Call::fresh(), &bm25("s:main", json!({ "n": 1 }), &[])).await.unwrap().applied();
    let mut seen = consumed(&table, 0).await.0;
    let mut tried = 0;
    for (name, kind) in [("a:dev", RecordKind::Ledger), ("s:main", RecordKind::GraphSource)] {
        for part in ChangedPart::ALL {
            // Only ledgers have heads.
            if kind == RecordKind::GraphSource && part == ChangedPart::Concern(ConcernKind::Head) {
                continue;
            }
            let sk = part.as_str();
            let attributes: Vec<&schema::Attribute> = schema::attributes_of(sk)
                .filter(|attribute| attribute.strict && attribute.only.is_none_or(|only| only == kind))
                .collect();
            assert!(attributes.iter().any(|attribute| attribute.name == "retracted"), "{sk}");
            // DynamoDB checks the types of an index' keys itself.
            let is_key = |attribute: &schema::Attribute| {
                let keys =
                    nameservice_store::DESCRIPTION.indexes.iter().map(|index| (index.partition_key, index.sort_key));
                let mut keys = keys.flat_map(|(partition, sort)| [Some(partition), sort]).flatten();
                keys.any(|key| key.name == attribute.name)
            };
            for attribute in attributes.into_iter().filter(|attribute| !is_key(attribute)) {
                let what = format!("{name} {sk} {}", attribute.name);
                let before = valid(attribute);
                table.set(name, sk, attribute.name, before.clone()).await;
                let (new, letters) = consumed(&table, seen).await;
                assert_eq!(letters, 0, "{what}");
                seen += new;
                let position = table.feed.position().await.unwrap();

                let wrong = if attribute.shape == schema::Shape::Text { rows::n(5) } else { rows::s("x") };
                table.set(name, sk, attribute.name, wrong).await;
                assert_eq!(consumed(&table, seen).await, (1, 1), "{what}");
                seen += 1;
                let changes = table.feed.changes(position, at_most(10)).await.unwrap();
                let Run::Changes(changes) = changes else { panic!("{what}: {changes:?}") };
                let [change] = &changes[..] else { panic!("{what}: {changes:?}") };
                let shown = (change.address.as_str(), change.part, change.payload.clone());
                assert_eq!(shown, (name, part, ChangePayload::Omitted), "{what}");
                let record = store.lookup(&at(name)).await.unwrap().unwrap();
                let watermark = match part {
                    ChangedPart::Meta => 0,
                    ChangedPart::Concern(ConcernKind::Head) => record.head.as_ref().unwrap().v,
                    ChangedPart::Concern(ConcernKind::Index) => record.index.v,
                    ChangedPart::Concern(ConcernKind::Status) => record.status.v,
                    ChangedPart::Concern(ConcernKind::Config) => record.config.v,
                };
                assert_eq!(change.watermark, watermark, "{what}: {change:?}");
                assert!(!record.retracted, "{what}");
                assert_eq!(change.kind == ChangeKind::Restored, attribute.name == "retracted", "{what}: {change:?}");
                assert_ne!(change.kind, ChangeKind::Purged, "{what}");

                // It is mended, and the feed shows the value.
                let mended = if attribute.name == "retracted" { json!({ "BOOL": false }) } else { before };
                table.set(name, sk, attribute.name, mended).await;
                let (new, letters) = consumed(&table, seen).await;
                assert_eq!((new, letters), (1, 0), "{what}");
                seen += new;
                if attribute.name != "retracted" {
                    let last = whole(&table.feed).await.pop().unwrap();
                    assert_eq!(last.position, position + 2, "{what}");
                    assert!(matches!(last.payload, ChangePayload::Value(_)), "{what}: {last:?}");
                }
                tried += 1;
            }
        }
    }
    assert!(tried >= 20, "{tried} attributes");
    for (change, position) in whole(&table.feed).await.iter().zip(1..) {
        assert_eq!(change.position, position);
    }
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
    // What the feed says of the one whose key can be read holds no value of it.
    assert_eq!(table.feed.position().await.unwrap(), 1);
    let rows = table.client.scan().table_name(table.feed.table()).send().await.unwrap();
    assert!(!format!("{rows:?}").contains(CANARY));
    assert_eq!(whole(&table.feed).await[0].payload, ChangePayload::Omitted);
}

#[tokio::test]
async fn without_a_queue_they_are_kept_beside_the_feed_each_of_its_own() {
    let table = Table::with_stream().await;
    let good = three(&table).await;
    let bad: Vec<Value> = each_of_its_own(&good[1]).into_iter().map(|(record, _)| record).collect();
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
    assert_eq!(of(&whole(&table.feed).await, "a:main"), SHOWN);
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
    let payloads: Vec<bool> =
        whole(&table.feed).await.iter().map(|change| change.payload == ChangePayload::Omitted).collect();
    assert_eq!(payloads, [true, true, false]);
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
    assert_eq!(
        of(&whole(&table.feed).await, "a:main"),
        [("head", "updated", 2), ("head", "reset", 0), ("head", "updated", 4)]
    );
}

#[tokio::test]
async fn poison_never_holds_up_a_mapping_and_nothing_of_it_is_lost() {
    let table = Table::with_stream().await;
    let good = three(&table).await;
    let bad: Vec<Value> = each_of_its_own(&good[1])
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
    let mut expected = vec![("head", "updated", 2)];
    expected.extend(SHOWN);
    expected.extend([("head", "updated", 3), ("head", "updated", 4)]);
    assert_eq!(of(&whole(&table.feed).await, "a:main"), expected);
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
