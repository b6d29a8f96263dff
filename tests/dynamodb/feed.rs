//! What the feed promises its readers, on every engine: one order, no gap, and "gone" exactly where something is.

mod consumers;
mod former;
mod histories;
mod payloads;
mod traces;

use std::{
    collections::HashMap, future::poll_fn, ops::RangeInclusive, pin::pin, sync::Arc, task::Poll, time::Duration,
};

use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue};
use jiff::Timestamp;
use nameservice_feed::{Entry, FEED_ID, Feed, MAX_TRANSACTION};
use nameservice_objects::object_store::{ObjectStore, memory::InMemory};
use nameservice_store::Difference;
use nameservice_tests::{engine, prelude::*, rows::to_attribute};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::timeout;

type Item = HashMap<String, AttributeValue>;

const NOTHING: [u64; 0] = [];

/// Returns a text that nothing compresses much.
fn noise(bytes: usize, seed: i64) -> String {
    let mut random = StdRng::seed_from_u64(seed.unsigned_abs());
    (0..bytes).map(|_| char::from(random.random_range(b'!'..=b'~'))).collect()
}

/// The n-th push of a head. Every fourth has a large payload.
fn entry(n: i64) -> Entry {
    entry_of("a:main", n)
}

fn entry_of(address: &str, n: i64) -> Entry {
    let large = if n % 4 == 0 { noise(2_000, n) } else { String::new() };
    Entry {
        event_id: format!("{address} {n}"),
        sequence_number: n.to_string(),
        difference: Difference {
            address: at(address),
            part: ChangedPart::Concern(ConcernKind::Head),
            kind: ChangeKind::Updated,
            watermark: n,
            previous: Some(n - 1),
            payload: ChangePayload::Value(json!({ "t": n, "number": 1.5, "text": "ü\u{0}\u{ffff}", "large": large })),
            occurred_at: Timestamp::from_millisecond(1_700_000_000_000 + n).unwrap(),
        },
        identity: Identity { kind: RecordKind::Ledger, source_type: None },
    }
}

fn entries(range: RangeInclusive<i64>) -> Vec<Entry> {
    range.map(entry).collect()
}

/// Makes this many faults strike among the next writes.
fn disturb(table: &Proxied, faults: usize, transactions: usize, random: &mut StdRng) {
    for _ in 0..faults {
        let fault = match random.random_range(0..5) {
            0 => Fault::cut_request(),
            1 => Fault::cut_reply(),
            2 => Fault::done_but_answer(500, "InternalServerError"),
            3 => Fault::answer(400, "ThrottlingException"),
            _ => Fault::delay(Duration::from_millis(20)),
        };
        let operation = if random.random_bool(0.8) { "TransactWriteItems" } else { "BatchWriteItem" };
        table.proxy.on(operation, fault.skipping(random.random_range(0..transactions)).perhaps());
    }
}

/// Lets a consumer die when it is about to be continued after this many polls.
async fn for_polls<T>(mut polls: usize, consumer: impl Future<Output = T>) -> Option<T> {
    let mut consumer = pin!(consumer);
    poll_fn(|context| match polls.checked_sub(1) {
        None => Poll::Ready(None),
        Some(left) => {
            polls = left;
            consumer.as_mut().poll(context).map(Some)
        }
    })
    .await
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

/// Removes the segment that ends at a position, as if its reader came too early or too late.
async fn take(table: &Table, last: u64) -> Item {
    let delete = table
        .client
        .delete_item()
        .table_name(table.feed.table())
        .set_key(Some(key(FEED_ID, &sort_key(last))))
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

/// Makes the segment that ends at a position expire, and on request also what the counter says of the last one.
async fn expire(table: &Table, last: u64, with_counter: bool) {
    set(table, FEED_ID, &sort_key(last), "ttl", rows::n(1_000)).await;
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

#[tokio::test]
async fn a_segment_is_read_from_any_position_in_it_to_any_other() {
    let table = Table::fresh().await;
    for size in [3, 1, 5, 1, 1, 4] {
        let n = i64::try_from(table.feed.position().await.unwrap()).unwrap();
        append(&table.feed, &entries(n + 1..=n + size)).await;
    }
    for after in 0..=15 {
        for limit in 1..=16 {
            let wanted: Vec<u64> = (after + 1..=15).take(limit).collect();
            assert_eq!(read(&table.feed, after, limit).await, wanted, "after {after}, at most {limit}");
        }
    }
}

#[tokio::test]
async fn a_transaction_that_is_being_applied_is_waited_for_and_never_skipped_or_gone() {
    let table = Table::fresh().await;
    append(&table.feed, &entries(1..=3)).await;
    append(&table.feed, &entries(4..=8)).await;
    let last = take(&table, 8).await;
    for after in 0..=8 {
        assert_eq!(read(&table.feed, after, 10).await, (after + 1..=3).collect::<Vec<_>>(), "{after}");
    }
    give(&table, last).await;
    assert_eq!(read(&table.feed, 0, 10).await, (1..=8).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_transaction_that_only_a_query_misses_is_waited_for() {
    let table = Proxied::fresh().await;
    for n in 1..=200 {
        append(&table.feed, &entries(3 * n - 2..=3 * n)).await;
    }
    // The query misses the first transaction and sees later ones, although all are committed.
    for limit in [1, 10] {
        let (client, feed_table) = (table.client.clone(), table.feed.table().to_owned());
        let first = Arc::new(take(&table, 3).await);
        let restore = move || {
            let (client, feed_table, first) = (client.clone(), feed_table.clone(), first.clone());
            async move {
                client.put_item().table_name(&feed_table).set_item(Some((*first).clone())).send().await.unwrap();
            }
        };
        table.proxy.on("Query", Fault::none().after(restore));
        assert_eq!(read(&table.feed, 0, limit).await, NOTHING);
        assert_eq!(read(&table.feed, 0, 6).await, (1..=6).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn what_has_expired_is_gone_and_the_answer_names_the_oldest() {
    let table = Table::fresh().await;
    append(&table.feed, &entries(1..=3)).await;
    append(&table.feed, &entries(4..=6)).await;
    // Expired, and still there: DynamoDB deletes within days.
    expire(&table, 3, false).await;
    for deleted in [false, true] {
        for after in 0..=2 {
            assert_eq!(gone(&table.feed, after).await, 4);
        }
        for after in 3..=6 {
            assert_eq!(read(&table.feed, after, 10).await, (after + 1..=6).collect::<Vec<_>>());
        }
        if !deleted {
            take(&table, 3).await;
        }
    }
    // All of it is gone: the next position is the oldest.
    expire(&table, 6, true).await;
    assert_eq!(gone(&table.feed, 3).await, 7);
    take(&table, 6).await;
    assert_eq!(gone(&table.feed, 0).await, 7);
    assert_eq!(gone(&table.feed, 5).await, 7);
    assert_eq!(read(&table.feed, 6, 10).await, NOTHING);
    assert_eq!(append(&table.feed, &entries(7..=7)).await, [7]);
    assert_eq!(read(&table.feed, 6, 10).await, [7]);
    assert_eq!(gone(&table.feed, 5).await, 7);
}

#[tokio::test]
async fn a_reader_that_is_far_behind_what_has_expired_is_answered_in_five_requests() {
    let table = Proxied::fresh().await;
    for n in 1..=300 {
        append(&table.feed, &entries(2 * n - 1..=2 * n)).await;
    }
    for n in 1..=299 {
        take(&table, 2 * n).await;
    }
    table.proxy.take_requests();
    for after in [0, 1, 590, 597] {
        assert_eq!(gone(&table.feed, after).await, 599, "{after}");
        let requests = table.proxy.take_operations();
        assert!(requests.len() <= 5, "{after}: {requests:?}");
    }
    assert_eq!(read(&table.feed, 598, 10).await, [599, 600]);
}

#[tokio::test]
async fn a_run_ends_where_a_shorter_retention_has_cut_it() {
    let table = Table::fresh().await;
    append(&table.feed, &entries(1..=2)).await;
    append(&table.feed, &entries(3..=4)).await;
    append(&table.feed, &entries(5..=6)).await;
    expire(&table, 4, false).await;
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
async fn a_new_epoch_sends_every_reader_to_a_snapshot_and_continues_from_there() {
    let table = Table::fresh().await;
    append(&table.feed, &entries(1..=3)).await;
    let epoch = table.feed.begin_epoch().await.unwrap();
    assert_eq!(epoch, 5);
    for after in 0..=3 {
        assert_eq!(gone(&table.feed, after).await, 5);
    }
    // The position that a snapshot takes now.
    let position = table.feed.position().await.unwrap();
    assert_eq!(read(&table.feed, position, 10).await, NOTHING);
    // A writer that does not know of the new epoch, and one that is late.
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
        assert_eq!(timeout(LONG, waiting).await.unwrap().unwrap(), [after + 1]);
    }
}

#[tokio::test]
async fn a_wait_ends_without_changes_and_immediately_with_some() {
    let table = Table::fresh().await;
    table.feed.wait(0, Duration::from_millis(1)).await.unwrap();
    assert_eq!(read(&table.feed, 0, 10).await, NOTHING);
    append(&table.feed, &entries(1..=1)).await;
    timeout(LONG, table.feed.wait(0, Duration::from_secs(3_600))).await.unwrap().unwrap();
}

#[tokio::test]
async fn reads_cost_two_requests_and_one_where_nothing_follows() {
    let table = Proxied::fresh().await;
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
async fn segments_that_would_be_too_large_are_several_transactions_without_a_gap() {
    let table = Table::fresh().await;
    // Fluree sets no limit to source types.
    let large = |n| {
        let identity = Identity { kind: RecordKind::GraphSource, source_type: Some(noise(15_000, n)) };
        Entry { identity, ..entry(n) }
    };
    let given: Vec<Entry> = (1..=98).map(large).collect();
    assert_eq!(append(&table.feed, &given).await, (1..=98).collect::<Vec<_>>());
    let Run::Changes(changes) = table.feed.changes(0, at_most(1_000)).await.unwrap() else { panic!("gone") };
    let shown = changes.iter().map(|change| (change.position, &change.identity, &change.payload));
    let given_at = (1..).zip(&given).map(|(at, entry)| (at, &entry.identity, &entry.difference.payload));
    assert!(shown.eq(given_at.take(changes.len())));
    assert!(changes.len() > 24, "a page of DynamoDB has 1 MB");
    assert_eq!(append(&table.feed, &given).await, (1..=98).collect::<Vec<_>>(), "delivered again");
}

/// Segments of two changes each: those whose bit is set are there, the others have expired, or were deleted.
async fn with_holes(table: &Table, segments: u64, alive: u64, deleted: bool) -> Vec<Item> {
    let mut taken = Vec::new();
    for n in 0..segments {
        let last = 2 * n + 2;
        let is_alive = alive & (1 << n) != 0;
        let ttl = if is_alive { 4_000_000_000 } else { 1_000 };
        set(table, FEED_ID, &sort_key(last), "ttl", rows::n(ttl)).await;
        if n + 1 == segments {
            set(table, "counter#0", "-", "until", rows::n(ttl)).await;
        }
        if deleted && !is_alive {
            taken.push(take(table, last).await);
        }
    }
    taken
}

/// Newer changes may expire before older ones: if the retention was lowered, or consumers have different ones.
#[tokio::test]
async fn a_hole_of_any_shape_is_named_once_and_passed_by_every_reader() {
    const SEGMENTS: u64 = 4;
    const END: u64 = 2 * SEGMENTS;
    let table = Table::fresh().await;
    for n in 1..=i64::try_from(SEGMENTS).unwrap() {
        append(&table.feed, &entries(2 * n - 1..=2 * n)).await;
    }
    for (alive, deleted) in (0..1 << SEGMENTS).map(|alive| (alive, alive % 3 == 0)) {
        let what = format!("{alive:04b} {deleted}");
        let taken = with_holes(&table, SEGMENTS, alive, deleted).await;
        let is_alive = |position: u64| alive & (1 << ((position - 1) / 2)) != 0;
        let kept: Vec<u64> = (1..=END).filter(|position| is_alive(*position)).collect();
        let after_hole = |after: u64| (after + 1..=END).find(|position| is_alive(*position)).unwrap_or(END + 1);
        // From both sides of a boundary, in pages that end on either.
        for (begin, limit) in [(0, 3), (1, 100), (4, 1), (5, 2)] {
            let (mut after, mut found, mut steps) = (begin, Vec::new(), 0);
            while after < END {
                match table.feed.changes(after, at_most(limit)).await.unwrap() {
                    Run::Gone { oldest } => {
                        assert_eq!(oldest, after_hole(after), "{what} after {after}");
                        assert!(oldest > after + 1, "{what} after {after}");
                        after = oldest - 1;
                    }
                    Run::Changes(changes) => {
                        assert!(!changes.is_empty(), "{what} after {after}");
                        found.extend(changes.iter().map(|change| change.position));
                        after = changes.last().unwrap().position;
                    }
                }
                steps += 1;
                assert!(steps <= 2 * END, "{what} from {begin} never ends");
            }
            assert_eq!(found, kept.iter().copied().filter(|position| *position > begin).collect::<Vec<_>>(), "{what}");
        }
        // The library follows: each hole is reported to it once.
        let names = nameservice::Nameservice::over(nameservice::DynamoDb::new(table.store.clone(), table.feed.clone()));
        let (mut changes, mut seen, mut holes) = (names.changes().after(0).follow(), Vec::new(), 0);
        let mut reached = 0;
        while reached < END {
            match changes.next().await.unwrap().unwrap() {
                nameservice::ChangeEvent::Change(change) => {
                    reached = change.position;
                    seen.push(reached);
                }
                nameservice::ChangeEvent::Gone { oldest } => {
                    assert_eq!(oldest, after_hole(reached), "{what}");
                    reached = oldest - 1;
                    holes += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        let starts = |position: &u64| !is_alive(*position) && (*position == 1 || is_alive(position - 1));
        assert_eq!((&seen, holes), (&kept, (1..=END).filter(starts).count()), "{what}");
        // An archive has what is there, records the rest, and reports a gap that is not before its beginning.
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let archive = nameservice_archive::Archive::new(store, "archive", "memory");
        let archiver = nameservice_archive::Archiver::new(Arc::new(table.feed.clone()), archive.clone());
        let archived = archiver.catch_up(None).await.unwrap();
        assert_eq!((archived.position, archived.changes), (END, kept.len() as u64), "{what}");
        assert_eq!(archived.lost, END - kept.len() as u64, "{what}");
        let first_gap = (1..=END).filter(starts).find(|position| *position > 1);
        let expected = first_gap.map(|first| (first, after_hole(first) - 1));
        assert_eq!(archived.gap, expected, "{what}");
        let error = archived.without_gap().err().map(|error| nameservice_model::chain(&error));
        assert_eq!(error.is_some(), expected.is_some(), "{what} {error:?}");
        if let (Some(error), Some((first, last))) = (error, expected) {
            assert!(error.contains(&format!("{first} to {last}")), "{error}");
        }
        let again = archiver.catch_up(None).await.unwrap();
        assert_eq!((again.position, again.objects, again.gap), (END, 0, None), "{what}");
        for row in taken {
            give(&table, row).await;
        }
    }
}

#[tokio::test]
async fn a_checkpoint_does_not_go_back_however_far_behind_its_writer_is() {
    use nameservice_feed::Checkpoint;
    let table = Table::fresh().await;
    let saved = async |stream: &str, passed: Option<&str>, finished: bool| {
        let checkpoint = Checkpoint {
            stream: stream.into(),
            shard: "shard".into(),
            passed: passed.map(str::to_owned),
            finished,
            saved_at: Timestamp::from_millisecond(1_700_000_000_000).unwrap(),
        };
        table.feed.set_checkpoint(&checkpoint).await.unwrap();
        let stored = table.feed.checkpoints().await.unwrap().remove(0);
        (stored.stream, stored.passed, stored.finished)
    };
    let is = |stream: &str, passed: Option<&str>, finished| (stream.to_owned(), passed.map(str::to_owned), finished);
    assert_eq!(saved("s", None, false).await, is("s", None, false));
    for (passed, stored) in
        [("9", "9"), ("10", "10"), ("9", "10"), ("10", "10"), ("100000000000000000000000", "100000000000000000000000")]
    {
        assert_eq!(saved("s", Some(passed), false).await, is("s", Some(stored), false));
    }
    let last = "100000000000000000000000";
    assert_eq!(saved("s", None, false).await, is("s", Some(last), false));
    assert_eq!(saved("s", Some(last), true).await, is("s", Some(last), true));
    // The other consumer has not reached the end of the shard.
    assert_eq!(saved("s", Some("11"), false).await, is("s", Some(last), true));
    assert_eq!(saved("s", Some(last), false).await, is("s", Some(last), true));
    assert_eq!(saved("s", Some(last), true).await, is("s", Some(last), true));
    // Another stream begins again, even if its shard has the same id.
    assert_eq!(saved("t", Some("5"), false).await, is("t", Some("5"), false));
    // As an earlier release has left it.
    let former = table.client.update_item().table_name(table.feed.table());
    let former = former.set_key(Some(key("checkpoint#0", "shard"))).update_expression("REMOVE #a");
    former.expression_attribute_names("#a", "progress").send().await.unwrap();
    assert_eq!(saved("t", Some("4"), false).await, is("t", Some("4"), false));
    assert_eq!(saved("t", Some("3"), false).await, is("t", Some("4"), false));
}
