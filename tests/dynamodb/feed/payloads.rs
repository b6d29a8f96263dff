//! Large payloads are stored once, and nobody who reads them sees a difference.

use std::io::{Read as _, Write as _};

use aws_sdk_dynamodb::primitives::Blob;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use nameservice_tests::proxy::Request;

use super::*;

/// The n-th push of a status whose JSON has this many bytes.
fn status(n: i64, bytes: usize) -> Entry {
    let frame = json!({ "text": "" }).to_string().len();
    let mut entry = entry(n);
    entry.difference.part = ChangedPart::Concern(ConcernKind::Status);
    entry.difference.payload = ChangePayload::Value(json!({ "text": text(bytes - frame, n) }));
    entry
}

/// Returns a text without characters that JSON escapes.
fn text(bytes: usize, n: i64) -> String {
    noise(bytes, n).replace(['"', '\\'], "-")
}

async fn all(feed: &Feed) -> Vec<Change> {
    let mut changes = Vec::new();
    loop {
        match feed.changes(changes.len() as u64, at_most(1_000)).await.unwrap() {
            Run::Changes(more) if more.is_empty() => return changes,
            Run::Changes(more) => changes.extend(more),
            Run::Gone { oldest } => panic!("gone, the oldest is {oldest}"),
        }
    }
}

async fn history(feed: &Feed, newest_first: bool) -> Vec<Change> {
    let (mut changes, mut query) = (Vec::new(), HistoryQuery { newest_first, ..HistoryQuery::default() });
    loop {
        let page = feed.history(&at("a:main"), &query).await.unwrap();
        changes.extend(page.changes);
        match page.more_after {
            Some(last) if newest_first => query.before = Some(last),
            Some(last) => query.after = last,
            None => return changes,
        }
    }
}

/// Returns the rows of large payloads.
async fn stored(table: &Table) -> Vec<Item> {
    let rows = table.client.scan().table_name(table.feed.table()).send().await.unwrap().items.unwrap();
    rows.into_iter().filter(|row| row["id"].as_s().unwrap().starts_with("payload#")).collect()
}

async fn delete(table: &Table, row: &Item) {
    let key = key(row["id"].as_s().unwrap(), row["position"].as_s().unwrap());
    table.client.delete_item().table_name(table.feed.table()).set_key(Some(key)).send().await.unwrap();
}

/// Returns the units and the operations of some requests.
fn counted(requests: &[Request]) -> (f64, Vec<&str>) {
    (requests.iter().map(|request| request.units).sum(), requests.iter().map(|request| &*request.operation).collect())
}

#[tokio::test]
async fn payloads_of_any_size_are_read_as_they_were_given_and_large_ones_are_stored_once() {
    let table = Table::fresh().await;
    let sizes = [20, 700, 768, 769, 4_000, 16_384, 768, 2_000];
    let given: Vec<Entry> = (1..).zip(sizes).map(|(n, bytes)| status(n, bytes)).collect();
    let appended = table.feed.append(&given).await.changes;
    assert!(appended.iter().map(|change| &change.payload).eq(given.iter().map(|entry| &entry.difference.payload)));
    for _ in 0..2 {
        assert_eq!(all(&table.feed).await, appended);
        assert_eq!(history(&table.feed, false).await, appended);
        assert_eq!(history(&table.feed, true).await, appended.iter().rev().cloned().collect::<Vec<_>>());
        assert_eq!(stored(&table).await.len(), 4, "of more than 768 bytes");
        // Delivered again, in another batch.
        append(&table.feed, &given[3..]).await;
    }
    let rows = table.client.scan().table_name(table.feed.table()).send().await.unwrap().items.unwrap();
    for row in rows.iter().filter(|row| !row["id"].as_s().unwrap().starts_with("payload#")) {
        assert!(format!("{row:?}").len() < 16_000, "another row holds a large payload");
    }
}

/// So a reader of a release that does not know these rows sees a payload that is left out.
#[tokio::test]
async fn a_payload_whose_row_is_gone_is_omitted() {
    let table = Table::fresh().await;
    append(&table.feed, &[status(1, 2_000), status(2, 3_000), status(3, 100)]).await;
    let rows = stored(&table).await;
    delete(&table, rows.iter().min_by_key(|row| row["id"].as_s().unwrap().clone()).unwrap()).await;
    for changes in [all(&table.feed).await, history(&table.feed, false).await] {
        let payloads: Vec<ChangePayload> = changes.into_iter().map(|change| change.payload).collect();
        let given = [2, 3].map(|n| status(n, if n == 2 { 3_000 } else { 100 }).difference.payload);
        assert_eq!(payloads, [vec![ChangePayload::Omitted], given.to_vec()].concat());
    }
}

/// Whoever delivers a stream record again may have another retention.
#[tokio::test]
async fn a_payload_is_kept_for_longer_than_its_change_whoever_delivers_it_again() {
    const DAYS: Duration = Duration::from_secs(24 * 3600);
    let table = Table::fresh().await;
    for (n, retentions) in
        [(1, [Duration::ZERO, 30 * DAYS]), (2, [30 * DAYS, Duration::ZERO]), (3, [7 * DAYS, 7 * DAYS])]
    {
        for retention in retentions {
            let feed = table
                .feed
                .clone()
                .with_retention(retention)
                .with_clock(|| Timestamp::from_second(4_000_000_000).unwrap());
            append(&feed, &[status(n, 2_000)]).await;
        }
    }
    let rows = table.client.scan().table_name(table.feed.table()).send().await.unwrap().items.unwrap();
    let ttl = |row: &Item| row["ttl"].as_n().unwrap().parse::<i64>().unwrap();
    let histories = rows.iter().filter(|row| row["id"].as_s().unwrap().starts_with("history#"));
    let mut payloads = 0;
    for history in histories {
        let id = format!("payload#{}", history["payload_at"].as_s().unwrap());
        let row = rows.iter().find(|row| *row["id"].as_s().unwrap() == id).expect("its payload");
        assert!(ttl(row) > ttl(history) + 3_500, "{row:?} {history:?}");
        payloads += 1;
    }
    assert_eq!((payloads, stored(&table).await.len()), (3, 5));
}

/// As the release before wrote them.
#[tokio::test]
async fn rows_that_hold_a_large_payload_themselves_are_read() {
    let table = Table::fresh().await;
    let appended = table.feed.append(&[status(1, 5_000), status(2, 300)]).await.changes;
    let ChangePayload::Value(payload) = &appended[0].payload else { panic!("{appended:?}") };
    let rows = table.client.scan().table_name(table.feed.table()).send().await.unwrap().items.unwrap();
    for mut row in rows {
        if row.contains_key("changes") {
            let mut json = Vec::new();
            GzDecoder::new(row["changes"].as_b().unwrap().as_ref()).read_to_end(&mut json).unwrap();
            let mut content: Value = serde_json::from_slice(&json).unwrap();
            let change = content["changes"][0].as_object_mut().unwrap();
            assert!(change.remove("payload_omitted").is_some() && change.remove("payload_at").is_some());
            change.insert("payload".to_owned(), payload.clone());
            let mut packed = GzEncoder::new(Vec::new(), Compression::best());
            packed.write_all(content.to_string().as_bytes()).unwrap();
            row.insert("changes".to_owned(), AttributeValue::B(Blob::new(packed.finish().unwrap())));
            give(&table, row).await;
        } else if row.remove("payload_at").is_some() {
            row.remove("payload_omitted").expect("a mark");
            row.insert("payload".to_owned(), AttributeValue::S(payload.to_string()));
            give(&table, row).await;
        } else if row["id"].as_s().unwrap().starts_with("payload#") {
            delete(&table, &row).await;
        }
    }
    assert_eq!(all(&table.feed).await, appended);
    assert_eq!(history(&table.feed, false).await, appended);
}

#[tokio::test]
async fn a_batch_of_large_payloads_takes_a_request_for_each_25_and_reading_them_the_same() {
    if engine::is_external() {
        // The embedded engine counts as AWS does.
        return;
    }
    let table = Proxied::fresh().await;
    table.proxy.measure();
    let given: Vec<Entry> = (1..=50).map(|n| status(n, 16_000)).collect();
    let position = append(&table.feed, &given[..1]).await;
    assert_eq!(position, [1]);
    table.proxy.take_requests();
    append(&table.feed, &given[1..]).await;
    let requests = table.proxy.take_requests();
    let (units, operations) = counted(&requests);
    assert_eq!(operations, ["BatchWriteItem", "BatchWriteItem", "TransactWriteItems"]);
    // 13 KB each once, and less than 5 KB together for their segment; before, the segment took 26 units for each, and its history 34.
    let each = units / 49.0;
    assert!((14.0..17.0).contains(&each), "{each} units");
    read(&table.feed, 1, 49).await;
    let requests = table.proxy.take_requests();
    let (units, operations) = counted(&requests);
    assert_eq!(operations, ["GetItem", "Query", "BatchGetItem", "BatchGetItem"]);
    assert!((1.9..2.2).contains(&(units / 49.0)), "{units} units: 13 KB, eventually consistent");
}

#[tokio::test]
async fn a_payload_that_cannot_be_saved_fails_its_batch_and_nothing_is_appended() {
    let table = Proxied::fresh().await;
    table.proxy.on("BatchWriteItem", Fault::answer(400, "AccessDeniedException").times(1));
    let appended = table.feed.append(&[entry(1), status(2, 2_000)]).await;
    assert!(appended.error.is_some() && appended.changes.is_empty(), "{appended:?}");
    assert_eq!(table.feed.position().await.unwrap(), 0);
    assert_eq!(append(&table.feed, &[entry(1), status(2, 2_000)]).await, [1, 2]);
    assert_eq!(all(&table.feed).await[1].payload, status(2, 2_000).difference.payload);
}

/// A page has as many changes as may be in memory, and the next one begins behind them.
#[tokio::test]
async fn pages_of_payloads_that_take_much_memory_are_short_and_complete() {
    let table = Table::fresh().await;
    let entries: Vec<Entry> = (1..=60)
        .map(|n| {
            let mut entry = status(n, 100);
            let payload = json!({ "n": n, "a": vec![json!({ "a": 0 }); 1_900] });
            entry.difference.payload = ChangePayload::Value(payload);
            entry
        })
        .collect();
    append(&table.feed, &entries).await;
    let Run::Changes(page) = table.feed.changes(0, at_most(1_000)).await.unwrap() else { panic!("gone") };
    assert!((2..50).contains(&page.len()), "{}", page.len());
    for changes in [all(&table.feed).await, history(&table.feed, false).await] {
        assert!(changes.iter().map(|change| &change.payload).eq(entries.iter().map(|entry| &entry.difference.payload)));
    }
}
