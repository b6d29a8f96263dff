//! The change feed: one order without a gap, every write once.

use std::time::Duration;

use futures_util::future::join_all;
use nameservice_tests::prelude::*;

use super::{Fixture, born, every_backend, unborn};

const HEAD: ChangedPart = ChangedPart::Concern(ConcernKind::Head);

async fn read(ns: &Fixture, after: u64, limit: usize) -> Vec<Change> {
    match ns.feed.changes(after, at_most(limit)).await.unwrap() {
        Run::Changes(changes) => changes,
        other => panic!("{other:?}"),
    }
}

/// Every change so far.
async fn all(ns: &Fixture) -> Vec<Change> {
    ns.settle().await;
    let changes = read(ns, 0, 1_000).await;
    assert!(changes.iter().zip(1..).all(|(change, position)| change.position == position), "{changes:#?}");
    assert_eq!(ns.feed.position().await.unwrap(), changes.len() as u64);
    changes
}

async fn push(ns: &Fixture, db: &Address, t: i64) {
    ns.push_head(&Call::fresh(), db, &older(head(t))).await.unwrap().applied();
}

#[every_backend]
async fn an_empty_feed_has_nothing_and_knows_no_other_position(ns: &Fixture) {
    assert_eq!(all(ns).await, []);
    assert!(matches!(ns.feed.changes(1, at_most(10)).await.unwrap(), Run::Gone { .. }));
}

#[every_backend]
async fn every_write_is_one_change_with_its_value_and_the_watermark_before(ns: &Fixture) {
    let db = born(ns, "mydb", 1).await;
    let created = all(ns).await.len();
    assert!(created > 0);
    for t in [3, 5] {
        push(ns, &db, t).await;
    }
    ns.push_status(&Call::fresh(), &db, &cas(Status::stored(1, None), status(4, "syncing"))).await.unwrap().applied();
    let changes = all(ns).await.split_off(created);
    let seen: Vec<_> =
        changes.iter().map(|change| (change.part, change.kind, change.watermark, change.previous)).collect();
    let state = ChangedPart::Concern(ConcernKind::Status);
    assert_eq!(
        seen,
        [
            (HEAD, ChangeKind::Updated, 3, Some(1)),
            (HEAD, ChangeKind::Updated, 5, Some(3)),
            (state, ChangeKind::Updated, 4, Some(1)),
        ]
    );
    assert_eq!(changes[1].payload, ChangePayload::Value(json!({ "id": cid(5).as_str(), "t": 5 })));
    assert!(changes.iter().all(|change| change.address == db && change.identity.kind == RecordKind::Ledger));
}

#[every_backend]
async fn what_is_rejected_or_replayed_is_no_change(ns: &Fixture) {
    let db = born(ns, "mydb", 5).await;
    let before = all(ns).await;
    let call = Call::fresh();
    assert_eq!(ns.push_head(&call, &db, &older(head(5))).await.unwrap(), replayed(head(5)));
    assert_eq!(ns.push_head(&Call::fresh(), &db, &older(head(4))).await.unwrap(), stale(head(5)));
    assert_eq!(ns.push_head(&Call::fresh(), &db, &cas(head(1), head(6))).await.unwrap(), conflict(head(5)));
    let exists = ns.create_ledger(&Call::fresh(), &db, None, None).await.unwrap();
    assert_eq!(exists, Created::AlreadyExists);
    assert_eq!(all(ns).await, before);
}

#[every_backend]
async fn pages_of_any_size_hold_every_change_once(ns: &Fixture) {
    for name in ["a", "b", "c"] {
        let db = unborn(ns, name).await;
        for t in 1..=3 {
            push(ns, &db, t).await;
        }
    }
    let whole = all(ns).await;
    for limit in [1, 2, 3, 7, 100] {
        let mut changes = Vec::new();
        loop {
            let page = read(ns, changes.len() as u64, limit).await;
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            changes.extend(page);
        }
        assert_eq!(changes, whole, "in pages of {limit}");
    }
}

#[every_backend]
async fn a_position_of_the_future_is_gone(ns: &Fixture) {
    unborn(ns, "mydb").await;
    let last = all(ns).await.len() as u64;
    assert_eq!(read(ns, last, 10).await, []);
    for after in [last + 1, last + 1_000, u64::MAX] {
        let gone = ns.feed.changes(after, at_most(10)).await.unwrap();
        assert_eq!(gone, Run::Gone { oldest: 1 }, "{after}");
    }
}

#[every_backend]
async fn a_history_is_the_changes_of_one_record_in_pages_of_any_size(ns: &Fixture) {
    let (a, b) = (unborn(ns, "a").await, unborn(ns, "b").await);
    for t in 1..=5 {
        push(ns, &a, t).await;
        push(ns, &b, t).await;
    }
    let of_b: Vec<Change> = all(ns).await.into_iter().filter(|change| change.address == b).collect();
    let (second, fourth) = (of_b[1].position, of_b[3].position);
    for newest_first in [false, true] {
        let between = HistoryQuery { after: second, before: Some(fourth), newest_first, ..HistoryQuery::default() };
        assert_eq!(ns.feed.history(&b, &between).await.unwrap().changes, [of_b[2].clone()]);
    }
    for part in [None, Some(HEAD)] {
        let wanted: Vec<_> =
            of_b.iter().filter(|change| part.is_none_or(|part| change.part == part)).cloned().collect();
        for limit in [1, 2, 3, 100] {
            for newest_first in [false, true] {
                let mut query = HistoryQuery { part, newest_first, limit: at_most(limit), ..HistoryQuery::default() };
                let mut seen = Vec::new();
                loop {
                    let page = ns.feed.history(&b, &query).await.unwrap();
                    assert!(page.changes.len() <= limit);
                    seen.extend(page.changes);
                    match (page.more_after, newest_first) {
                        (Some(more), false) => query.after = more,
                        (Some(more), true) => query.before = Some(more),
                        (None, _) => break,
                    }
                }
                if newest_first {
                    seen.reverse();
                }
                assert_eq!(seen, wanted, "in pages of {limit}, newest first: {newest_first}");
            }
        }
    }
}

#[every_backend]
async fn a_purge_and_the_next_creation_are_changes_of_their_own(ns: &Fixture) {
    let db = born(ns, "mydb", 3).await;
    ns.retract(&Call::fresh(), &db, None).await.unwrap().applied();
    ns.restore(&Call::fresh(), &db).await.unwrap().applied();
    ns.purge(&Call::fresh(), &db).await.unwrap().applied();
    unborn(ns, "mydb").await;
    let kinds: Vec<ChangeKind> =
        all(ns).await.iter().filter(|change| change.part == ChangedPart::Meta).map(|change| change.kind).collect();
    use ChangeKind::*;
    assert_eq!(kinds, [Created, Retracted, Restored, Purged, Created]);
}

#[every_backend]
async fn whoever_waits_is_woken_by_the_next_change(ns: &Fixture) {
    let db = unborn(ns, "mydb").await;
    let after = all(ns).await.len() as u64;
    let feed = ns.feed.clone();
    let waiting = tokio::spawn(async move { feed.wait(after, Duration::from_secs(600)).await.unwrap() });
    push(ns, &db, 1).await;
    ns.settle().await;
    waiting.await.unwrap();
    assert_eq!(read(ns, after, 10).await.len(), 1);
    // Returns immediately where changes already follow.
    ns.feed.wait(after, Duration::from_secs(600)).await.unwrap();
}

#[every_backend]
async fn concurrent_writers_leave_no_gap_and_each_record_its_order(ns: &Fixture) {
    const WRITERS: usize = 4;
    const LAST_T: i64 = 10;
    join_all((0..WRITERS).map(|writer| {
        let ns = ns.shared();
        tokio::spawn(async move {
            let db = at(&format!("db{writer}"));
            ns.create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
            for t in 1..=LAST_T {
                ns.push_head(&Call::fresh(), &db, &older(head(t))).await.unwrap().applied();
            }
        })
    }))
    .await
    .into_iter()
    .for_each(Result::unwrap);
    let changes = all(ns).await;
    for writer in 0..WRITERS {
        let db = at(&format!("db{writer}"));
        let of_it = changes.iter().filter(|change| change.address == db && change.part == HEAD);
        assert_eq!(of_it.map(|change| change.watermark).collect::<Vec<_>>(), (1..=LAST_T).collect::<Vec<_>>());
    }
}
