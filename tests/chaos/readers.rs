//! Readers of `/v1/events`, at services and at replicas: the client of the product, which resumes where a stream ended.

use std::collections::BTreeMap;

use nameservice_client::{ChangeEvent, ChangeFilter, Client};
use nameservice_tests::prelude::*;
use tokio::{sync::watch, task::JoinHandle};

use crate::history::feed::Seen;

/// What one reader has received.
struct Received {
    url: String,
    changes: Vec<Change>,
    /// How many times the next changes had expired.
    gaps: u64,
}

/// Follows the feed until it reaches the position that ends it.
async fn follow(url: String, after: Option<u64>, mut end: watch::Receiver<Option<u64>>) -> Received {
    let mut follow = Client::new(&url).unwrap().follow(ChangeFilter::default(), after);
    let mut received = Received { url, changes: Vec::new(), gaps: 0 };
    loop {
        tokio::select! {
            event = follow.next() => match event.unwrap() {
                ChangeEvent::Change(change) => received.changes.push(*change),
                ChangeEvent::Gone { .. } => received.gaps += 1,
                other => panic!("{other:?}"),
            },
            _ = end.changed() => {}
        }
        let end = *end.borrow();
        if end.is_some_and(|end| follow.position().is_some_and(|position| position >= end)) {
            return received;
        }
    }
}

/// The readers of a round.
pub(super) struct Readers {
    end: watch::Sender<Option<u64>>,
    at_services: Vec<JoinHandle<Received>>,
    at_replicas: Vec<JoinHandle<Received>>,
}

/// What readers have received.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Events {
    pub(super) changes: u64,
    /// How many times a reader was sent to a snapshot.
    pub(super) gaps: u64,
}

impl Readers {
    /// Starts a reader at each service, from the first position, and one at each replica, from its current position.
    pub(super) fn start(services: &[String], replicas: &[String]) -> Self {
        let (end, ended) = watch::channel(None);
        let begin = |urls: &[String], after: Option<u64>| -> Vec<JoinHandle<Received>> {
            urls.iter().map(|url| tokio::spawn(follow(url.clone(), after, ended.clone()))).collect()
        };
        Self { end, at_services: begin(services, Some(0)), at_replicas: begin(replicas, None) }
    }

    /// Waits until all readers have reached this position, and compares what they have received with the feed.
    pub(super) async fn judge(self, seen: &Seen, position: u64) -> Events {
        self.end.send_replace(Some(position));
        let feed: BTreeMap<u64, &Value> =
            seen.changes.iter().map(|change| (change["position"].as_u64().unwrap(), change)).collect();
        let mut events = Events::default();
        for reader in self.at_services {
            let received = reader.await.unwrap();
            let Received { url, changes, gaps } = &received;
            assert!(*gaps == 0 || seen.expires, "{url} sent a reader to a snapshot {gaps} times");
            assert!(*gaps > 0 || changes.first().is_none_or(|change| change.position == 1), "{url}");
            received.judge(&feed, seen, &mut events);
        }
        for reader in self.at_replicas {
            reader.await.unwrap().judge(&feed, seen, &mut events);
        }
        events
    }
}

impl Received {
    /// Checks what was received: in order, without gaps unless the reader was sent to a snapshot, and the same as in the feed.
    fn judge(&self, feed: &BTreeMap<u64, &Value>, seen: &Seen, events: &mut Events) {
        let Self { url, changes, gaps } = self;
        for pair in changes.windows(2) {
            let (before, after) = (pair[0].position, pair[1].position);
            let follows = if *gaps == 0 { after == before + 1 } else { after > before };
            assert!(follows, "{url} sent {after} after {before}");
        }
        for change in changes {
            let Change { position, address, part, kind, watermark, .. } = change;
            let Some(expected) = feed.get(position) else {
                assert!(seen.gaps > 0, "{url} sent {position}, which is not in the feed");
                continue;
            };
            let here = json!([address.as_str(), part.as_str(), kind.as_str(), watermark]);
            let there = ["address", "concern", "change", "watermark"].map(|member| expected[member].clone());
            assert_eq!(here, json!(there), "{url} at {position}");
        }
        events.changes += changes.len() as u64;
        events.gaps += gaps;
    }
}

#[test]
fn a_reader_that_misses_a_change_or_receives_another_one_is_noticed() {
    let change = |position: u64, watermark: i64| Change {
        position,
        address: at("a"),
        identity: Identity { kind: RecordKind::Ledger, source_type: None },
        part: ChangedPart::Concern(ConcernKind::Head),
        kind: ChangeKind::Updated,
        watermark,
        previous: None,
        payload: ChangePayload::None,
        occurred_at: jiff::Timestamp::UNIX_EPOCH,
        recorded_at: jiff::Timestamp::UNIX_EPOCH,
    };
    let in_feed =
        |n: i64| json!({ "position": n, "address": "a:main", "concern": "head", "change": "updated", "watermark": n });
    let is_right = |changes: Vec<Change>| {
        let received = Received { url: "here".to_owned(), changes, gaps: 0 };
        let seen = Seen { changes: (1..4).map(in_feed).collect(), ..Seen::default() };
        let judged = move || {
            let feed: BTreeMap<u64, &Value> = (1..).zip(&seen.changes).collect();
            received.judge(&feed, &seen, &mut Events::default());
        };
        std::panic::catch_unwind(judged).is_ok()
    };
    assert!(is_right(vec![change(1, 1), change(2, 2), change(3, 3)]));
    assert!(!is_right(vec![change(1, 1), change(3, 3)]), "one is missing");
    assert!(!is_right(vec![change(1, 1), change(2, 3)]), "one is another one");
    assert!(!is_right(vec![change(2, 2), change(2, 2)]), "one came twice");
    assert!(!is_right(vec![change(3, 3), change(4, 4)]), "one is not in the feed");
}
