//! A record that ends the function: it is passed over once it has done so three times alone, and nothing else is. A failure that has an
//! answer is none of these times, however often it comes.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use nameservice_feed::Feed;
use nameservice_tests::{
    engine,
    mapping::{Function, Mapping, Settings, sequence_number},
    prelude::*,
    proxy::Remote,
};
use stream_consumer::Consumer;
use tokio::{sync::Notify, time::Instant};

use super::{raw, records, whole};

/// The heads that are written, by their `t`.
const HEADS: std::ops::RangeInclusive<i64> = 2..=99;

/// The function in a process that a request ends: the next invocation is one of another process, which knows nothing.
#[derive(Clone)]
struct Mortal {
    store: Store,
    proxy: Remote,
    feed: String,
    clock: fn() -> Timestamp,
    killed: Arc<Notify>,
}

impl Mortal {
    fn of(table: &Proxied) -> Self {
        let (store, feed) = (table.store.clone(), table.feed.table().to_owned());
        Self { store, proxy: table.proxy.remote(), feed, clock: Timestamp::now, killed: Arc::default() }
    }

    /// From now on each transaction that contains this text ends it.
    fn ends_with(&self, text: &str) {
        let kill = self.killed.clone();
        let hook = move || {
            kill.notify_one();
            std::future::pending()
        };
        self.proxy.on("TransactWriteItems", Fault::none().about(text).before(hook).always());
    }

    fn process(&self) -> Consumer {
        let feed = Feed::new(engine::client(self.proxy.url()), &self.feed).with_clock(self.clock);
        Consumer::new(self.store.clone(), feed)
    }
}

impl Function for Mortal {
    async fn invoke(&self, event: Value) -> Result<Value, String> {
        let process = self.process();
        tokio::select! {
            () = self.killed.notified() => Err("the process is gone".to_owned()),
            answer = process.invoke(event) => answer,
        }
    }
}

/// Records of heads, one of which was always written long ago.
async fn long_ago(table: &Table, heads: impl IntoIterator<Item = i64>) -> Vec<Value> {
    table.store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    let created = records(table).await.len();
    for t in heads {
        table.store.push_head(&Call::fresh(), &at("a:main"), &older(head(t))).await.unwrap().applied();
    }
    let mut records = records(table).await.split_off(created);
    for record in &mut records {
        record["dynamodb"]["ApproximateCreationDateTime"] = json!(1_700_000_000.0);
    }
    records
}

/// Delivers records to a function, in batches as large as in the product. Returns how often the given one was delivered alone.
async fn delivered(function: &Mortal, records: &[Value], alone: &Value) -> usize {
    let mut mapping = Mapping::new(Settings { batch_size: 98, ..Settings::default() }, 5).with_full_batches();
    mapping.open("s", None);
    mapping.feed("s", records.iter().cloned());
    mapping.run(function, 100).await;
    assert!(mapping.destination.is_empty());
    mapping.invocations.iter().filter(|invocation| invocation.sequence_numbers == [sequence_number(alone)]).count()
}

/// The watermarks of the feed, in its order, and of those without a payload.
async fn watermarks(feed: &Feed) -> (Vec<i64>, Vec<i64>) {
    let changes = whole(feed).await;
    for (change, position) in changes.iter().zip(1..) {
        assert_eq!(change.position, position, "positions have no gap");
    }
    let omitted = changes.iter().filter(|change| change.payload == ChangePayload::Omitted);
    (changes.iter().map(|change| change.watermark).collect(), omitted.map(|change| change.watermark).collect())
}

async fn assert_one_letter(feed: &Feed, record: &Value) {
    let letters = feed.dead_letters().await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!(&serde_json::from_str::<Value>(&letter.record).unwrap(), record, "whole");
    assert!(letter.reason.contains("three times"), "{}", letter.reason);
}

#[tokio::test]
async fn one_whose_payload_ends_the_function_is_a_change_without_payload_at_its_place_after_three_tries() {
    let table = Proxied::with_stream().await;
    let records = long_ago(&table, HEADS).await;
    let deadly = &records[39];
    let function = Mortal::of(&table);
    function.ends_with(cid(41).as_str());
    assert_eq!(delivered(&function, &records, deadly).await, 4, "three tries, and the one that passes over it");
    assert_eq!(watermarks(table.direct_feed()).await, (HEADS.collect(), vec![41]));
    assert_one_letter(table.direct_feed(), deadly).await;
    // Its answer was lost: it need not end the function again.
    assert_eq!(delivered(&function, &records[39..40], deadly).await, 1);
    assert_eq!(watermarks(table.direct_feed()).await, (HEADS.collect(), vec![41]));
}

#[tokio::test]
async fn one_that_ends_the_function_even_without_its_payload_is_a_letter_alone_after_another_try() {
    let table = Proxied::with_stream().await;
    let records = long_ago(&table, HEADS).await;
    let deadly = &records[39];
    let function = Mortal::of(&table);
    function.ends_with(deadly["eventID"].as_str().unwrap());
    assert_eq!(delivered(&function, &records, deadly).await, 5);
    let others = HEADS.filter(|t| *t != 41).collect();
    assert_eq!(watermarks(table.direct_feed()).await, (others, Vec::new()));
    assert_one_letter(table.direct_feed(), deadly).await;
}

#[tokio::test]
async fn several_are_passed_over_each_of_its_own() {
    let table = Proxied::with_stream().await;
    let records = long_ago(&table, 2..=9).await;
    let function = Mortal::of(&table);
    for t in [3, 5, 9] {
        function.ends_with(cid(t).as_str());
    }
    assert_eq!(delivered(&function, &records, &records[3]).await, 4);
    assert_eq!(watermarks(table.direct_feed()).await, ((2..=9).collect(), vec![3, 5, 9]));
    assert_eq!(table.direct_feed().dead_letters().await.unwrap().len(), 3);
}

/// As one of a broken release does, at whatever it reads or at payloads alone: the records can still be consumed once it is mended.
#[tokio::test]
async fn a_function_that_ends_at_every_record_passes_over_one_an_hour_and_the_others_wait() {
    for (at_payloads, first) in [(false, 4), (true, 3)] {
        let table = Proxied::with_stream().await;
        let records = long_ago(&table, 2..=5).await;
        let mut function = Mortal::of(&table);
        match at_payloads {
            true => (2..=5).for_each(|t| function.ends_with(cid(t).as_str())),
            false => function.ends_with(nameservice_feed::FEED_ID),
        }
        let tried = async |function: &Mortal, record: &Value| {
            let event = json!({ "Records": [record] });
            let mut unanswered = 0;
            while unanswered < 10 && function.invoke(event.clone()).await.is_err() {
                unanswered += 1;
            }
            unanswered
        };
        assert_eq!(tried(&function, &records[0]).await, first);
        // Of several shards.
        assert_eq!(tried(&function, &records[1]).await, 10);
        assert_eq!(tried(&function, &records[2]).await, 10);
        assert_one_letter(table.direct_feed(), &records[0]).await;
        function.clock = || Timestamp::now() + SignedDuration::from_secs(3_601);
        assert_eq!(tried(&function, &records[1]).await, first - 3, "an hour later");
        assert_eq!(tried(&function, &records[2]).await, 10);
        // It is mended, and the feed grows: nothing is passed over without another try.
        table.proxy.disarm();
        for record in &records[2..] {
            assert_eq!(tried(&function, record).await, 0);
        }
        let (mut all, mut omitted) = (vec![2, 3, 4, 5], vec![2, 3]);
        if !at_payloads {
            all.drain(..2);
            omitted.clear();
        }
        assert_eq!(watermarks(table.direct_feed()).await, (all, omitted));
    }
}

#[tokio::test]
async fn a_batch_whose_time_is_over_is_delivered_again_from_the_first_record_that_is_left() {
    const STATUSES: i64 = 50;
    let table = Proxied::with_stream().await;
    table.store.create_ledger(&Call::fresh(), &at("a:main"), None, None).await.unwrap().applied();
    let created = records(&table).await.len();
    // They take so much memory that the batch is appended in parts.
    let many = vec![json!({ "a": 0 }); 1_900];
    let mut last = status(1, "ready");
    for v in 2..2 + STATUSES {
        let next = status_with(v, "busy", json!({ "many": many }));
        let push = cas(last, next.clone());
        table.store.push_status(&Call::fresh(), &at("a:main"), &push).await.unwrap().applied();
        last = next;
    }
    let batch = records(&table).await.split_off(created);
    let hangs = batch[49]["eventID"].as_str().unwrap();
    table.proxy.on("TransactWriteItems", Fault::none().about(hangs).before(std::future::pending).always());
    let consumer = Consumer::new(table.store.clone(), Feed::new(engine::client(table.proxy.url()), table.feed.table()));
    let event = raw(&json!({ "Records": batch }));
    // However long the first parts take.
    let mut time = Duration::from_millis(100);
    let left = loop {
        let answer = consumer.handle_until(event.clone(), Some(Instant::now() + time)).await;
        let named = answer.batch_item_failures[0].item_identifier.clone();
        let left = batch.iter().position(|record| Some(sequence_number(record)) == named.as_deref()).unwrap();
        if left > 0 {
            break left;
        }
        time *= 2;
        assert!(time < LONG);
    };
    assert!(left < 50);
    let done: Vec<i64> = whole(table.direct_feed()).await.iter().map(|change| change.watermark).collect();
    // More may have been appended when the time was over.
    assert!(done.len() >= left && done.iter().copied().eq((2..2 + STATUSES).take(done.len())), "{left}: {done:?}");
    table.proxy.disarm();
    let rest = raw(&json!({ "Records": batch[left..] }));
    assert!(consumer.handle(rest).await.batch_item_failures.is_empty());
    assert_eq!(whole(table.direct_feed()).await.len(), 50);
}

/// The row that a try leaves when it has ended.
const WITHDRAWAL: &str = r#""unanswered":{"N":"0"}"#;

#[tokio::test]
async fn one_that_fails_with_an_answer_is_never_passed_over() {
    let denied = || Fault::answer(400, "AccessDeniedException").always();
    let throttled = || Fault::answer(400, "ThrottlingException").always();
    type Faults = Vec<(&'static str, Fault)>;
    // What fails, and whether each try is one of another process.
    let cases: [(&str, Faults, bool); 7] = [
        ("the append is denied", vec![("TransactWriteItems", denied())], true),
        ("the append is throttled", vec![("TransactWriteItems", throttled())], true),
        (
            "the append is done and denied",
            vec![("TransactWriteItems", Fault::done_but_answer(400, "AccessDeniedException").always())],
            true,
        ),
        ("the mark cannot be read", vec![("GetItem", denied())], true),
        ("the mark cannot be written", vec![("PutItem", denied())], true),
        ("the mark is written, and its answer is lost", vec![("PutItem", Fault::cut_reply().always())], false),
        (
            "the mark cannot be withdrawn",
            vec![("TransactWriteItems", denied()), ("PutItem", denied().about(WITHDRAWAL))],
            false,
        ),
    ];
    for (what, faults, in_other_processes) in cases {
        let table = Proxied::with_stream().await;
        let records = long_ago(&table, [2]).await;
        let record = &records[0];
        let event = raw(&json!({ "Records": [record] }));
        let process = || {
            let feed = Feed::new(engine::client(table.proxy.url()), table.feed.table());
            Consumer::new(table.store.clone(), feed.with_retry_policy(crate::faults::IMPATIENT))
        };
        let mut consumer = process();
        for (operation, fault) in faults {
            table.proxy.on(operation, fault);
        }
        for _ in 0..10 {
            let answer = consumer.handle(event.clone()).await;
            let named = answer.batch_item_failures[0].item_identifier.as_deref();
            assert_eq!(named, Some(sequence_number(record)), "{what}");
            if in_other_processes {
                consumer = process();
            }
        }
        table.proxy.disarm();
        assert!(consumer.handle(event).await.batch_item_failures.is_empty(), "{what}");
        assert_eq!(watermarks(table.direct_feed()).await, (vec![2], Vec::new()), "{what}");
        assert_eq!(table.direct_feed().dead_letters().await.unwrap(), [], "{what}");
    }
}

#[tokio::test]
async fn one_that_takes_too_long_is_delivered_again_and_never_passed_over() {
    let table = Table::with_stream().await;
    let records = long_ago(&table, 2..=3).await;
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    for batch in [&records[..1], &records[..]] {
        let event = raw(&json!({ "Records": batch }));
        for _ in 0..10 {
            // The time is over when the first request is sent.
            let answer = consumer.handle_until(event.clone(), Some(Instant::now())).await;
            let named = answer.batch_item_failures[0].item_identifier.as_deref();
            assert_eq!(named, Some(sequence_number(&records[0])));
        }
        assert!(consumer.handle(event).await.batch_item_failures.is_empty());
    }
    assert_eq!(watermarks(&table.feed).await, (vec![2, 3], Vec::new()));
    assert_eq!(table.feed.dead_letters().await.unwrap(), []);
}

#[tokio::test]
async fn tries_that_were_answered_between_others_are_none_of_the_three() {
    let table = Proxied::with_stream().await;
    let records = long_ago(&table, [2]).await;
    let record = &records[0];
    let event = json!({ "Records": [record] });
    let function = Mortal::of(&table);
    for _ in 0..3 {
        function.ends_with(cid(2).as_str());
        for _ in 0..2 {
            function.invoke(event.clone()).await.unwrap_err();
        }
        table.proxy.disarm();
        table.proxy.on("TransactWriteItems", Fault::answer(400, "AccessDeniedException"));
        let answer = function.invoke(event.clone()).await.unwrap();
        assert_eq!(answer["batchItemFailures"][0]["itemIdentifier"], sequence_number(record));
    }
    function.invoke(event).await.unwrap();
    assert_eq!(watermarks(table.direct_feed()).await, (vec![2], Vec::new()));
    assert_eq!(table.direct_feed().dead_letters().await.unwrap(), []);
}
