//! What the consumer costs, counted at the wire.

use nameservice_tests::{
    cids::id_of,
    engine,
    mapping::event_record,
    prelude::*,
    pump,
    rows::Fluree,
    units::{transaction_units, write_units},
};
use rand::{RngExt, SeedableRng, distr::Alphanumeric, rngs::StdRng};
use stream_consumer::Consumer;

use super::{raw, whole};

/// The feed by a clock for which every stream record is young: a record that is alone and old is tried under a mark.
fn of_the_young(feed: nameservice_feed::Feed) -> nameservice_feed::Feed {
    feed.with_clock(|| jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1))
}

/// Records that were created a while ago, delivered already.
async fn warm(addresses: &[&str]) -> (Proxied, Consumer) {
    let table = Proxied::with_stream().await;
    for address in addresses {
        table.direct().create_ledger(&Call::fresh(), &at(address), Some(&new_head(1)), None).await.unwrap().applied();
        table.set(address, "meta", "created_at", rows::n(1_000)).await;
    }
    let consumer = Consumer::new(table.store.clone(), of_the_young(table.feed.clone()));
    assert_eq!(consumer.consume(&pump::deliveries(&table).await).await.failed, None);
    table.proxy.take_requests();
    (table, consumer)
}

/// What the stream holds beyond the first records.
async fn after(table: &Table, seen: usize) -> Vec<Value> {
    pump::deliveries(table).await[seen..].iter().map(event_record).collect()
}

async fn handle(consumer: &Consumer, batch: &[Value]) {
    let answer = consumer.handle(raw(&json!({ "Records": batch }))).await;
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn a_batch_of_heads_is_one_transaction_and_delivered_again_it_is_one_more() {
    for k in [1, 10, 98] {
        let (table, consumer) = warm(&["a:main"]).await;
        let seen = pump::deliveries(&table).await.len();
        for t in 2..2 + k {
            table.direct().push_head(&Call::fresh(), &at("a:main"), &older(head(t))).await.unwrap().applied();
        }
        let batch = after(&table, seen).await;
        handle(&consumer, &batch).await;
        assert_eq!(table.proxy.take_operations(), ["TransactWriteItems"], "{k} changes");
        handle(&consumer, &batch).await;
        assert_eq!(table.proxy.take_operations(), ["TransactWriteItems"], "{k} changes, again");
        assert_eq!(whole(&table.feed).await.len(), 3 + usize::try_from(k).unwrap());
    }
}

#[tokio::test]
async fn a_new_process_reads_the_counter_once() {
    let (table, _) = warm(&["a:main"]).await;
    let seen = pump::deliveries(&table).await.len();
    table.direct().push_head(&Call::fresh(), &at("a:main"), &older(head(2))).await.unwrap().applied();
    let feed = nameservice_feed::Feed::new(engine::client(table.proxy.url()), table.feed.table());
    handle(&Consumer::new(table.store.clone(), of_the_young(feed)), &after(&table, seen).await).await;
    assert_eq!(table.proxy.take_operations(), ["GetItem", "TransactWriteItems"]);
}

#[tokio::test]
async fn consumers_of_several_shards_read_the_counter_first_and_one_alone_does_not() {
    let (table, first) = warm(&["a:main", "b:main"]).await;
    let feed = nameservice_feed::Feed::new(engine::client(table.proxy.url()), table.feed.table());
    let second = Consumer::new(table.store.clone(), of_the_young(feed));
    let before = whole(&table.feed).await.len();
    table.proxy.take_requests();
    let mut t = 1;
    let mut next = async |address: &str, consumer: &Consumer| {
        t += 1;
        let seen = pump::deliveries(&table).await.len();
        table.direct().push_head(&Call::fresh(), &at(address), &older(head(t))).await.unwrap().applied();
        handle(consumer, &after(&table, seen).await).await;
        table.proxy.take_operations()
    };
    let (appended, read_first) = (vec!["TransactWriteItems"], vec!["GetItem", "TransactWriteItems"]);
    assert_eq!(next("a:main", &first).await, appended);
    assert_eq!(next("b:main", &second).await, read_first, "a new process");
    assert_eq!(
        next("a:main", &first).await,
        ["TransactWriteItems", "TransactWriteItems"],
        "the first one is cancelled"
    );
    assert_eq!(next("b:main", &second).await, ["TransactWriteItems", "TransactWriteItems"]);
    for _ in 0..3 {
        assert_eq!(next("a:main", &first).await, read_first);
        assert_eq!(next("b:main", &second).await, read_first);
    }
    assert_eq!(next("b:main", &second).await, read_first, "nobody was in between");
    assert_eq!(next("b:main", &second).await, appended);
    assert_eq!(whole(&table.feed).await.len(), before + 12);
}

/// The feed's clock at this age, in seconds, of a record that was written at the second 2,000,000,000.
fn at_the_age<const SECONDS: i64>() -> jiff::Timestamp {
    jiff::Timestamp::from_second(2_000_000_000 + SECONDS).unwrap()
}

#[tokio::test]
async fn only_a_record_that_is_alone_and_older_than_a_minute_is_tried_under_a_mark() {
    let (table, _) = warm(&["a:main"]).await;
    let seen = pump::deliveries(&table).await.len();
    for t in 2..=7 {
        table.direct().push_head(&Call::fresh(), &at("a:main"), &older(head(t))).await.unwrap().applied();
    }
    let mut records = after(&table, seen).await;
    for record in &mut records {
        record["dynamodb"]["ApproximateCreationDateTime"] = json!(2_000_000_000.0);
    }
    let consumer =
        |clock: fn() -> jiff::Timestamp| Consumer::new(table.store.clone(), table.feed.clone().with_clock(clock));
    // It reads the counter once.
    handle(&consumer(at_the_age::<0>), &records[..1]).await;
    type Case<'a> = (fn() -> jiff::Timestamp, &'a [Value], &'a [&'a str]);
    let cases: [Case<'_>; 5] = [
        (at_the_age::<{ -5 }>, &records[1..2], &["TransactWriteItems"]),
        (at_the_age::<60>, &records[2..3], &["TransactWriteItems"]),
        (at_the_age::<61>, &records[3..4], &["GetItem", "GetItem", "PutItem", "TransactWriteItems", "PutItem"]),
        (at_the_age::<100_000>, &records[4..6], &["TransactWriteItems"]),
        (at_the_age::<100_000>, &records[..0], &[]),
    ];
    for (clock, batch, operations) in cases {
        table.proxy.take_requests();
        handle(&consumer(clock), batch).await;
        assert_eq!(table.proxy.take_operations(), operations);
    }
}

#[tokio::test]
async fn unknown_kinds_of_many_records_are_one_read() {
    let addresses: Vec<String> = (0..20).map(|n| format!("db{n}:main")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let (table, consumer) = warm(&addresses).await;
    let seen = pump::deliveries(&table).await.len();
    for address in &addresses {
        for t in 1..=2 {
            table.direct().push_index(&Call::fresh(), &at(address), &older(index(t))).await.unwrap().applied();
        }
    }
    handle(&consumer, &after(&table, seen).await).await;
    assert_eq!(table.proxy.take_operations(), ["BatchGetItem", "TransactWriteItems"]);
}

#[tokio::test]
async fn what_is_no_change_costs_nothing() {
    let (table, consumer) = warm(&["a:main"]).await;
    let seen = pump::deliveries(&table).await.len();
    // A commit log, a back reference, counters, request ids, times of writing, and the same again.
    table.put(&[rows::commit_log("a:main", &cid(1), 1), rows::bare("a:main", "backref#s:main")]).await;
    for (sk, attribute, value) in [
        ("meta", "branches", rows::n(3)),
        ("meta", "dependents", rows::n(1)),
        ("head", "request_id", rows::s("another")),
        ("index", "request_id_3", rows::s("another")),
        ("status", "updated_at_ms", rows::n(5)),
        ("status", "lease_token", rows::n(5)),
        ("config", "somebody_elses", rows::s("x")),
        ("head", "commit_t", rows::n(1)),
    ] {
        table.set("a:main", sk, attribute, value).await;
    }
    table.delete("a:main", "backref#s:main").await;
    let batch = after(&table, seen).await;
    assert!(batch.len() >= 9);
    handle(&consumer, &batch).await;
    assert_eq!(table.proxy.take_operations(), Vec::<String>::new());
    assert!(Fluree::on(&table).commit("a:main", &cid(2), 2).await);
    handle(&consumer, &after(&table, seen).await).await;
    assert_eq!(table.proxy.take_operations(), ["TransactWriteItems"]);
}

#[tokio::test]
async fn ninety_nine_changes_are_two_transactions() {
    let (table, consumer) = warm(&["a:main"]).await;
    let seen = pump::deliveries(&table).await.len();
    for t in 2..101 {
        table.direct().push_head(&Call::fresh(), &at("a:main"), &older(head(t))).await.unwrap().applied();
    }
    handle(&consumer, &after(&table, seen).await).await;
    assert_eq!(table.proxy.take_operations(), ["TransactWriteItems"; 2]);
}

/// What a change costs, by DynamoDB's rule: a transaction takes two write units for each started KB of each item.
#[tokio::test]
async fn a_change_costs_two_write_units_and_its_share_of_counter_and_segment() {
    let names: Vec<String> = (0..98).map(|n| format!("db{n}:main")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (table, consumer) = warm(&names).await;
    let store = table.direct();
    // The ids of heads and indexes are random bytes, which nothing makes smaller: 98 of them are 3.1 KB.
    for (changes, of, most) in [
        (1, "heads", 6.0),
        (20, "heads", 2.3),
        (20, "heads of one ledger", 2.3),
        (20, "leases", 2.3),
        (98, "heads", 2.15),
        (98, "heads of one ledger", 2.13),
        (98, "leases", 2.1),
    ] {
        let seen = pump::deliveries(&table).await.len();
        for (n, name) in names.iter().enumerate().take(changes) {
            match of {
                "leases" => {
                    // A holder that begins again takes over from itself.
                    let request = index_lock(&format!("indexer {n}"), 300);
                    store.acquire_lease(&Call::fresh(), &at(name), &request).await.unwrap().applied();
                }
                _ => {
                    let address = at(if of == "heads" { name } else { names[0] });
                    let t = table.store.lookup(&address).await.unwrap().unwrap().head.unwrap().v + 1;
                    let head = Head::new(t, id_of(&format!("{name} at {t}")));
                    store.push_head(&Call::fresh(), &address, &older(head)).await.unwrap().applied();
                }
            }
        }
        let batch = after(&table, seen).await;
        table.proxy.take_requests();
        assert_eq!(batch.len(), changes);
        handle(&consumer, &batch).await;
        let requests = table.proxy.take_requests();
        let units: u64 = requests.iter().map(write_units).sum();
        let each = units as f64 / changes as f64;
        println!("{changes} changes of {of}: {units} write units, {each:.3} a change");
        assert!(each <= most, "{changes} changes of {of}: {each} a change");
    }
}

/// Write units by DynamoDB's rule, a change: all of them, and those of the partition of all segments, which takes 1,000 a second. `before`
/// is what this test counted when segment and history each had the payload.
#[tokio::test]
async fn a_large_payload_is_paid_for_once_and_takes_almost_nothing_of_the_segments_partition() {
    let mut random = StdRng::seed_from_u64(1);
    for (bytes, among, [units, of_segments], before) in [
        (1_100, 20, [3.2, 0.1], [5.8, 1.7]),
        (4_000, 20, [6.2, 0.1], [16.0, 5.9]),
        (16_000, 20, [14.2, 0.1], [55.7, 23.6]),
        (16_000, 98, [14.11, 0.09], [55.7, 23.6]),
    ] {
        let (table, consumer) = warm(&["a:main"]).await;
        let seen = pump::deliveries(&table).await.len();
        let mut last = status(1, "ready");
        for v in (2..).take(among) {
            // Random letters and digits.
            let text: String = (0..bytes - 30).map(|_| char::from(random.sample(Alphanumeric))).collect();
            let next = status_with(v, "busy", json!({ "text": text }));
            let push = cas(last, next.clone());
            table.direct().push_status(&Call::fresh(), &at("a:main"), &push).await.unwrap().applied();
            last = next;
        }
        let batch = after(&table, seen).await;
        table.proxy.take_requests();
        assert_eq!(batch.len(), among);
        handle(&consumer, &batch).await;
        let requests = table.proxy.take_requests();
        let transactions = requests.iter().filter(|request| request.operation == "TransactWriteItems");
        let segments = transactions.map(|request| transaction_units(&request.body["TransactItems"][1]));
        let counted = [requests.iter().map(write_units).sum::<u64>(), segments.sum()].map(|n| n as f64 / among as f64);
        println!("{bytes} bytes among {among}: {counted:.2?} units a change");
        assert!(counted[0] <= units && counted[1] <= of_segments, "{bytes} bytes among {among}: {counted:?}");
        // At 16 KB at most half the units, and at least twice as many changes a second.
        assert!(bytes < 16_000 || (units <= before[0] / 2.0 && of_segments <= before[1] / 2.0));
    }
}
