//! The history of one record: in the order of commits, complete, from any place.

use super::*;

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

#[tokio::test]
async fn a_long_history_is_read_from_any_place_in_few_requests() {
    let table = Proxied::fresh().await;
    // After every 90 changes of one record comes one of another, whose shard is ahead.
    const LAST: i64 = 24 * 90;
    for block in 0..24 {
        let of_b = (1..=90).map(|n| entry_of("b:main", block * 90 + n));
        append(&table.feed, &of_b.collect::<Vec<_>>()).await;
        let ahead = Entry { sequence_number: (10_000 + block).to_string(), ..entry_of("a:main", 1 + block) };
        append(&table.feed, &[ahead]).await;
    }
    let page = async |query: &HistoryQuery| {
        table.proxy.take_requests();
        let page = table.feed.history(&at("b:main"), query).await.unwrap();
        let mut requests = table.proxy.take_requests();
        // They depend on the payloads alone.
        requests.retain(|request| request.operation != "BatchGetItem");
        (page, requests)
    };
    for newest_first in [false, true] {
        let mut query = HistoryQuery { newest_first, limit: at_most(250), ..HistoryQuery::default() };
        let (mut seen, mut most) = (Vec::new(), 0);
        loop {
            let (page, requests) = page(&query).await;
            assert!(requests.iter().all(|request| request.body["ConsistentRead"] == true));
            most = most.max(requests.len());
            seen.extend(page.changes.iter().map(|change| change.watermark));
            match (page.more_after, newest_first) {
                (Some(more), false) => query.after = more,
                (Some(more), true) => query.before = Some(more),
                (None, _) => break,
            }
        }
        if newest_first {
            seen.reverse();
        }
        assert_eq!(seen, (1..=LAST).collect::<Vec<_>>(), "newest first: {newest_first}");
        assert_eq!(most, 3, "at most three requests per page");
        // A bound may be the position of another record's change.
        let (after, before) = if newest_first { (0, Some(3 * 91)) } else { (20 * 91, None) };
        let (page, _) = page(&HistoryQuery { after, before, newest_first, limit: at_most(1), ..query }).await;
        assert_eq!(page.changes[0].watermark, if newest_first { 3 * 90 } else { 20 * 90 + 1 });
    }
    let (_, requests) = page(&HistoryQuery { after: 500, ..HistoryQuery::default() }).await;
    assert_eq!(requests.len(), 1, "near its beginning");
}

#[tokio::test]
async fn what_a_record_was_at_its_last_change_is_known() {
    let table = Table::fresh().await;
    let source = |source_type: &str| Identity { kind: RecordKind::GraphSource, source_type: Some(source_type.into()) };
    for (n, source_type) in [(1, "f:Bm25Index"), (2, "f:VectorIndex")] {
        append(&table.feed, &[Entry { identity: source(source_type), ..entry_of("s:main", n) }, entry(n)]).await;
    }
    let last = async |address: &str| table.feed.last_identity(&at(address)).await.unwrap();
    assert_eq!(last("s:main").await, Some(source("f:VectorIndex")));
    assert_eq!(last("a:main").await, Some(entry(1).identity));
    assert_eq!(last("none:main").await, None);
    let latest = [(at("s:main"), source("f:VectorIndex")), (at("a:main"), entry(1).identity)];
    assert_eq!(table.feed.latest_identities().await.unwrap(), HashMap::from(latest));
}

#[tokio::test]
async fn a_history_is_complete_the_moment_a_change_is_in_the_feed() {
    let table = Table::fresh().await;
    for n in 1..=40 {
        append(&table.feed, &[entry(n)]).await;
        let last = table.feed.latest(&at("a:main"), 1).await.unwrap();
        assert_eq!(last[0].watermark, n);
    }
}

#[tokio::test]
async fn what_has_expired_early_is_in_no_history_and_not_appended_again() {
    let table = Table::fresh().await;
    let short = table.feed.clone().with_retention(Duration::ZERO);
    assert_eq!(append(&short, &entries(1..=2)).await, [1, 2]);
    let history = table.feed.history(&at("a:main"), &HistoryQuery::default()).await.unwrap();
    assert_eq!((history.changes, history.more_after), (vec![], None));
    assert_eq!(append(&table.feed, &entries(1..=3)).await, [1, 2, 3]);
    assert_eq!(read(&table.feed, 2, 10).await, [3]);
}

#[tokio::test]
async fn addresses_that_leave_no_space_in_a_key_have_histories_too() {
    let table = Table::fresh().await;
    // Fluree's tables may hold such addresses, up to the longest key of DynamoDB.
    for length in [2_040, 2_041, 2_048] {
        let address = Address::stored("x".repeat(length));
        let mut entry = entry(1);
        entry.event_id = format!("of {length}");
        entry.difference.address = address.clone();
        append(&table.feed, &[entry]).await;
        let history = table.feed.history(&address, &HistoryQuery::default()).await.unwrap();
        assert_eq!(history.changes.iter().map(|change| &change.address).collect::<Vec<_>>(), [&address]);
    }
}
