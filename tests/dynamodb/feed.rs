//! What the feed promises its readers, on every engine: one order, no gap, and "gone" exactly where something is.

use std::{collections::HashMap, ops::RangeInclusive, sync::Arc, time::Duration};

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use jiff::Timestamp;
use nameservice_feed::{Entry, FEED_ID, Feed, MAX_TRANSACTION};
use nameservice_store::Difference;
use nameservice_tests::{prelude::*, rows::to_attribute};

type Item = HashMap<String, AttributeValue>;

const NOTHING: [u64; 0] = [];

/// The n-th push of a head.
fn entry(n: i64) -> Entry {
    entry_of("a:main", n)
}

fn entry_of(address: &str, n: i64) -> Entry {
    Entry {
        event_id: format!("{address} {n}"),
        difference: Difference {
            address: at(address),
            part: ChangedPart::Concern(ConcernKind::Head),
            kind: ChangeKind::Updated,
            watermark: n,
            previous: Some(n - 1),
            payload: ChangePayload::Value(json!({ "t": n, "number": 1.5, "text": "ü\u{0}\u{ffff}", "empty": "" })),
            occurred_at: Timestamp::from_millisecond(1_700_000_000_000 + n).unwrap(),
        },
        identity: Identity { kind: RecordKind::Ledger, source_type: None },
    }
}

fn entries(range: RangeInclusive<i64>) -> Vec<Entry> {
    range.map(entry).collect()
}

async fn append(feed: &Feed, entries: &[Entry]) -> Vec<u64> {
    let appended = feed.append(entries).await;
    assert!(appended.error.is_none(), "{:?}", appended.error);
    appended.changes.iter().map(|change| change.position).collect()
}

async fn read(feed: &Feed, after: u64, limit: usize) -> Vec<u64> {
    match feed.changes(after, at_most(limit)).await.unwrap() {
        Run::Changes(changes) => changes.iter().map(|change| change.position).collect(),
        Run::Gone { oldest } => panic!("gone, the oldest is {oldest}"),
    }
}

async fn gone(feed: &Feed, after: u64) -> u64 {
    match feed.changes(after, at_most(10)).await.unwrap() {
        Run::Gone { oldest } => oldest,
        Run::Changes(changes) => panic!("not gone after {after}: {changes:?}"),
    }
}

fn key(id: &str, position: &str) -> Item {
    Item::from(
        [("id", id), ("position", position)].map(|(name, text)| (name.to_owned(), AttributeValue::S(text.into()))),
    )
}

fn sort_key(position: u64) -> String {
    format!("{position:020}")
}

/// Takes a row of the feed away, as a reader sees who comes too early, or too late.
async fn take(table: &Table, position: u64) -> Item {
    let delete = table
        .client
        .delete_item()
        .table_name(table.feed.table())
        .set_key(Some(key(FEED_ID, &sort_key(position))))
        .return_values(ReturnValue::AllOld);
    delete.send().await.unwrap().attributes.unwrap()
}

async fn give(table: &Table, row: Item) {
    table.client.put_item().table_name(table.feed.table()).set_item(Some(row)).send().await.unwrap();
}

async fn set(table: &Table, id: &str, position: &str, attribute: &str, value: Value) {
    let update = table
        .client
        .update_item()
        .table_name(table.feed.table())
        .set_key(Some(key(id, position)))
        .update_expression("SET #a = :a")
        .expression_attribute_names("#a", attribute)
        .expression_attribute_values(":a", to_attribute(&value));
    update.send().await.unwrap();
}

/// Makes rows and what the counter says of the last of them expire.
async fn expire(table: &Table, positions: RangeInclusive<u64>, with_counter: bool) {
    for position in positions {
        set(table, FEED_ID, &sort_key(position), "ttl", rows::n(1_000)).await;
    }
    if with_counter {
        set(table, "counter#0", "-", "until", rows::n(1_000)).await;
    }
}

#[tokio::test]
async fn an_empty_feed_has_nothing_and_knows_no_other_position() {
    let table = Table::fresh().await;
    assert_eq!(table.feed.position().await.unwrap(), 0);
    assert_eq!(read(&table.feed, 0, 10).await, NOTHING);
    assert_eq!(gone(&table.feed, 1).await, 1);
    assert_eq!(table.feed.last_appended_at().await.unwrap(), None);
    assert_eq!(append(&table.feed, &[]).await, NOTHING);
    assert_eq!(table.feed.position().await.unwrap(), 0);
}

#[tokio::test]
async fn what_is_appended_is_read_as_it_was_given() {
    let table = Table::fresh().await;
    let appended = table.feed.append(&entries(1..=3)).await.changes;
    assert_eq!(table.feed.changes(0, at_most(10)).await.unwrap(), Run::Changes(appended.clone()));
    for (change, n) in appended.iter().zip(1..) {
        let given = entry(n).difference;
        assert_eq!((change.position, change.watermark, change.previous), (n as u64, n, Some(n - 1)));
        assert_eq!((&change.payload, change.occurred_at), (&given.payload, given.occurred_at));
    }
    assert!(table.feed.last_appended_at().await.unwrap().is_some());
}

#[tokio::test]
async fn nothing_is_appended_twice_however_it_is_cut_and_repeated() {
    let table = Table::fresh().await;
    let first = table.feed.append(&entries(1..=5)).await.changes;
    assert_eq!(table.feed.append(&entries(1..=5)).await.changes, first, "given again as it was");
    assert_eq!(append(&table.feed, &entries(3..=8)).await, (3..=8).collect::<Vec<_>>());
    let doubled = [entry(9), entry(9), entry(2), entry(10), entry(9)];
    assert_eq!(append(&table.feed, &doubled).await, [9, 9, 2, 10, 9]);
    // Another process, which knows nothing.
    let other = Feed::new(table.client.clone(), table.feed.table());
    assert_eq!(append(&other, &entries(1..=10)).await, (1..=10).collect::<Vec<_>>());
    assert_eq!(read(&table.feed, 0, 100).await, (1..=10).collect::<Vec<_>>());
}

#[tokio::test]
async fn large_batches_are_several_transactions_without_a_gap() {
    let table = Table::fresh().await;
    let n = 2 * MAX_TRANSACTION as u64 + 7;
    assert_eq!(append(&table.feed, &entries(1..=n as i64)).await, (1..=n).collect::<Vec<_>>());
    assert_eq!(read(&table.feed, 0, 1_000).await, (1..=n).collect::<Vec<_>>());
    assert_eq!(read(&table.feed, 40, 20).await, (41..=60).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_at_once_leave_no_gap_and_keep_each_their_order() {
    let table = Table::fresh().await;
    let writers: Vec<_> = ["a:main", "b:main", "c:main", "d:main"]
        .map(|address| {
            let feed = Feed::new(table.client.clone(), table.feed.table());
            tokio::spawn(async move {
                for n in 1..=12 {
                    append(&feed, &[entry_of(address, 2 * n), entry_of(address, 2 * n + 1)]).await;
                }
            })
        })
        .into_iter()
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let Run::Changes(changes) = table.feed.changes(0, at_most(1_000)).await.unwrap() else { panic!("gone") };
    assert!(changes.iter().zip(1..).all(|(change, n)| change.position == n) && changes.len() == 96);
    for address in ["a:main", "b:main", "c:main", "d:main"] {
        let of_it = changes.iter().filter(|change| change.address.as_str() == address).map(|change| change.watermark);
        assert_eq!(of_it.collect::<Vec<_>>(), (2..=25).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn half_a_transaction_is_waited_for_and_never_skipped_or_gone() {
    let table = Table::fresh().await;
    append(&table.feed, &entries(1..=3)).await;
    append(&table.feed, &entries(4..=8)).await;
    // Any part of the last transaction may be invisible, and a reader may be at any position.
    for missing in [vec![4], vec![5], vec![8], vec![4, 5], vec![5, 7], vec![4, 5, 6, 7, 8], vec![6, 8]] {
        let mut taken = Vec::new();
        for position in &missing {
            taken.push(take(&table, *position).await);
        }
        for after in 0..=8 {
            let end = missing.iter().find(|position| **position > after).map_or(8, |position| position - 1);
            assert_eq!(
                read(&table.feed, after, 10).await,
                (after + 1..=end).collect::<Vec<_>>(),
                "{missing:?}, {after}"
            );
        }
        for row in taken {
            give(&table, row).await;
        }
    }
    assert_eq!(read(&table.feed, 0, 10).await, (1..=8).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_transaction_that_only_a_query_misses_is_waited_for() {
    let table = Table::fresh().await.proxied().await;
    append(&table.feed, &entries(1..=3)).await;
    append(&table.feed, &entries(4..=6)).await;
    // The query sees the second transaction and nothing of the first, although both are committed.
    let (client, feed_table) = (table.client.clone(), table.feed.table().to_owned());
    let mut first = Vec::new();
    for position in 1..=3 {
        first.push(take(&table, position).await);
    }
    let first = Arc::new(first);
    let restore = move || {
        let (client, feed_table, first) = (client.clone(), feed_table.clone(), first.clone());
        async move {
            for row in first.iter() {
                client.put_item().table_name(&feed_table).set_item(Some(row.clone())).send().await.unwrap();
            }
        }
    };
    table.proxy.on("Query", Fault::none().after(restore));
    assert_eq!(read(&table.feed, 0, 10).await, NOTHING);
    assert_eq!(read(&table.feed, 0, 10).await, (1..=6).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_has_expired_is_gone_and_the_answer_names_the_oldest() {
    let table = Table::fresh().await;
    append(&table.feed, &entries(1..=3)).await;
    append(&table.feed, &entries(4..=6)).await;
    // Expired, and still there: DynamoDB deletes within days.
    expire(&table, 1..=3, false).await;
    for after in 0..=2 {
        assert_eq!(gone(&table.feed, after).await, 4);
    }
    for after in 3..=6 {
        assert_eq!(read(&table.feed, after, 10).await, (after + 1..=6).collect::<Vec<_>>());
    }
    // Deleted, one by one and in any order.
    for position in [2, 1, 3] {
        take(&table, position).await;
        for after in 0..=2 {
            assert_eq!(gone(&table.feed, after).await, 4);
        }
        assert_eq!(read(&table.feed, 3, 10).await, [4, 5, 6]);
    }
    // All of it: what comes next is the oldest.
    expire(&table, 4..=6, true).await;
    assert_eq!(gone(&table.feed, 3).await, 7);
    for position in 4..=6 {
        take(&table, position).await;
    }
    assert_eq!(gone(&table.feed, 0).await, 7);
    assert_eq!(gone(&table.feed, 5).await, 7);
    assert_eq!(read(&table.feed, 6, 10).await, NOTHING);
    assert_eq!(append(&table.feed, &entries(7..=7)).await, [7]);
    assert_eq!(read(&table.feed, 6, 10).await, [7]);
    assert_eq!(gone(&table.feed, 5).await, 7);
}

#[tokio::test]
async fn a_run_ends_where_a_shorter_retention_has_cut_it() {
    let table = Table::fresh().await;
    append(&table.feed, &entries(1..=2)).await;
    append(&table.feed, &entries(3..=4)).await;
    append(&table.feed, &entries(5..=6)).await;
    expire(&table, 3..=4, false).await;
    assert_eq!(read(&table.feed, 0, 10).await, [1, 2]);
    gone(&table.feed, 2).await;
    assert_eq!(read(&table.feed, 4, 10).await, [5, 6]);
}

#[tokio::test]
async fn retention_is_of_what_is_appended_from_then_on() {
    let table = Table::fresh().await;
    let week = table.feed.clone().with_retention(Duration::from_secs(7 * 24 * 3_600));
    append(&table.feed.clone().with_retention(Duration::from_secs(3_600)), &entries(1..=1)).await;
    append(&week, &entries(2..=2)).await;
    let mut expiries = Vec::new();
    for position in [1, 2] {
        expiries.push(take(&table, position).await["ttl"].as_n().unwrap().parse::<u64>().unwrap());
    }
    assert!(expiries[1] - expiries[0] >= (7 * 24 - 1) * 3_600, "{expiries:?}");
}

#[tokio::test]
async fn a_position_of_the_future_is_gone() {
    let table = Table::fresh().await;
    append(&table.feed, &entries(1..=3)).await;
    assert_eq!(read(&table.feed, 3, 10).await, NOTHING);
    for after in [4, 1_000, u64::MAX - 1, u64::MAX] {
        assert_eq!(gone(&table.feed, after).await, 1, "{after}");
    }
}

#[tokio::test]
async fn a_new_epoch_sends_every_reader_to_a_snapshot_and_goes_on_from_there() {
    let table = Table::fresh().await;
    append(&table.feed, &entries(1..=3)).await;
    let epoch = table.feed.begin_epoch().await.unwrap();
    assert_eq!(epoch, 5);
    for after in 0..=3 {
        assert_eq!(gone(&table.feed, after).await, 5);
    }
    // What a snapshot takes now.
    let position = table.feed.position().await.unwrap();
    assert_eq!(read(&table.feed, position, 10).await, NOTHING);
    // A writer that has not heard of it, and one that is late.
    assert_eq!(append(&table.feed, &entries(4..=5)).await, [5, 6]);
    assert_eq!(append(&table.feed, &entries(2..=2)).await, [2], "an old one keeps its place");
    assert_eq!(read(&table.feed, position, 10).await, [5, 6]);
    assert_eq!(gone(&table.feed, 3).await, 5);
}

#[tokio::test]
async fn whoever_waits_is_woken_by_this_process_and_by_another() {
    let table = Table::fresh().await;
    for other in [false, true] {
        let writer = if other { Feed::new(table.client.clone(), table.feed.table()) } else { table.feed.clone() };
        let after = table.feed.position().await.unwrap();
        let reader = table.feed.clone();
        let waiting = tokio::spawn(async move {
            reader.wait(after, Duration::from_secs(3_600)).await.unwrap();
            read(&reader, after, 10).await
        });
        let n = i64::try_from(after).unwrap() + 1;
        append(&writer, &entries(n..=n)).await;
        assert_eq!(waiting.await.unwrap(), [after + 1]);
    }
}

#[tokio::test]
async fn a_wait_ends_where_nothing_comes_and_at_once_where_something_is_there() {
    let table = Table::fresh().await;
    table.feed.wait(0, Duration::from_millis(1)).await.unwrap();
    assert_eq!(read(&table.feed, 0, 10).await, NOTHING);
    append(&table.feed, &entries(1..=1)).await;
    table.feed.wait(0, Duration::from_secs(3_600)).await.unwrap();
}

#[tokio::test]
async fn reads_cost_two_requests_and_one_where_nothing_follows() {
    let table = Table::fresh().await.proxied().await;
    append(&table.feed, &entries(1..=3)).await;
    table.proxy.take_requests();
    read(&table.feed, 0, 10).await;
    assert_eq!(table.proxy.take_operations(), ["GetItem", "Query"]);
    read(&table.feed, 3, 10).await;
    assert_eq!(table.proxy.take_operations(), ["GetItem"]);
    let consistent = |request: &nameservice_tests::proxy::Request| request.body["ConsistentRead"] == true;
    read(&table.feed, 0, 10).await;
    assert!(table.proxy.take_requests().iter().all(consistent));
}

#[tokio::test]
async fn a_history_is_of_one_address_in_pages_of_any_size() {
    let table = Table::fresh().await;
    for n in 1..=9 {
        append(&table.feed, &[entry_of("a:main", n), entry_of("b:main", n)]).await;
    }
    for limit in 1..=10 {
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let query = HistoryQuery { after, limit: at_most(limit), ..HistoryQuery::default() };
            let page = table.feed.history(&at("b:main"), &query).await.unwrap();
            assert!(page.changes.len() <= limit);
            seen.extend(page.changes.iter().map(|change| (change.address.to_string(), change.watermark)));
            match page.more_after {
                Some(more) => after = more,
                None => break,
            }
        }
        assert_eq!(seen, (1..=9).map(|n| ("b:main".to_owned(), n)).collect::<Vec<_>>());
    }
    let index_only = HistoryQuery {
        part: Some(ChangedPart::Concern(ConcernKind::Index)),
        limit: at_most(5),
        ..HistoryQuery::default()
    };
    assert_eq!(table.feed.history(&at("a:main"), &index_only).await.unwrap().changes, []);
}
