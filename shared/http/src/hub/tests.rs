use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use jiff::Timestamp;
use nameservice_model::{
    Address, AddressGlob, ChangeKind, ChangePayload, ChangedPart, ConcernKind, History, HistoryQuery, Identity,
    RecordKind,
};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{self, timeout},
};

use super::*;
use crate::filter::{Filter, MAX_PATTERNS, Named, Visible};

/// A feed in memory that counts who asks for what.
#[derive(Default)]
struct Memory {
    changes: Mutex<Vec<Change>>,
    end: watch::Sender<u64>,
    reads: AtomicUsize,
    waiting: AtomicUsize,
    fails: std::sync::atomic::AtomicBool,
    oldest: AtomicU64,
}

/// Counts a wait while it lasts.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl ChangeFeed for Memory {
    async fn position(&self) -> Result<u64> {
        Ok(*self.end.borrow())
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(Error::Unavailable { operation: "read the feed", source: None });
        }
        match self.oldest.load(Ordering::SeqCst) {
            oldest if after + 1 < oldest => Ok(Run::Gone { oldest }),
            _ => Ok(Run::Changes(
                self.changes.lock().unwrap().iter().skip(after as usize).take(limit.get()).cloned().collect(),
            )),
        }
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(&self.waiting);
        let _ = timeout(at_most, self.end.subscribe().wait_for(|end| *end > after)).await;
        Ok(())
    }

    async fn history(&self, _: &Address, _: &HistoryQuery) -> Result<History> {
        Ok(History { changes: Vec::new(), more_after: None })
    }
}

impl Memory {
    fn push(&self, address: &str, size: usize) -> u64 {
        let mut changes = self.changes.lock().unwrap();
        let position = changes.len() as u64 + 1;
        changes.push(Change {
            position,
            address: Address::parse(address).unwrap(),
            identity: Identity { kind: RecordKind::Ledger, source_type: None },
            part: ChangedPart::Concern(ConcernKind::Head),
            kind: ChangeKind::Updated,
            watermark: position as i64,
            previous: None,
            payload: ChangePayload::Value(json!("x".repeat(size))),
            occurred_at: Timestamp::UNIX_EPOCH,
            recorded_at: Timestamp::UNIX_EPOCH,
        });
        self.end.send_replace(position);
        position
    }
}

fn hub() -> (Arc<Memory>, Hub) {
    let feed = Arc::new(Memory::default());
    (feed.clone(), Hub::new(feed))
}

fn of(globs: &[&str]) -> Arc<Interest> {
    let globs: Vec<_> = globs.iter().map(|glob| (*glob).to_owned()).collect();
    Arc::new(Interest::new(Filter::new(&globs, None, Vec::new()).unwrap(), Visible::All, String::new()))
}

fn join(hub: &Hub, interest: &Arc<Interest>, after: u64) -> Subscription {
    match hub.subscribe(interest, after, Duration::from_secs(30)) {
        Joined::Yes(subscription) => subscription,
        Joined::Behind => panic!("behind"),
    }
}

/// Takes what is sent up to a position.
async fn take(subscription: &mut Subscription, to: u64) -> Vec<u64> {
    let mut taken = Vec::new();
    while taken.last() != Some(&to) {
        let batch = subscription.next().await.unwrap();
        taken.extend(batch.entries.iter().map(|entry| entry.change.position));
    }
    taken
}

/// Lets the hub work until this many wait for the feed.
async fn settle(feed: &Memory, waiting: usize) {
    let settled = async {
        while feed.waiting.load(Ordering::SeqCst) != waiting {
            time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(120), settled).await.expect("the hub waits for the feed");
}

#[tokio::test]
async fn any_number_of_readers_costs_one_read_of_the_feed() {
    let mut reads = Vec::new();
    for readers in [1, 100] {
        let (feed, hub) = hub();
        let interests = [of(&[]), of(&["mydb"]), of(&["my*"])];
        let mut subscriptions: Vec<_> = (0..readers).map(|n| join(&hub, &interests[n % 3], 0)).collect();
        settle(&feed, 1).await;
        for _ in 0..10 {
            let position = feed.push("mydb", 10);
            for subscription in &mut subscriptions {
                assert_eq!(take(subscription, position).await, [position]);
            }
            settle(&feed, 1).await;
        }
        reads.push(feed.reads.load(Ordering::SeqCst));
    }
    assert_eq!(reads[0], reads[1]);
}

#[tokio::test]
async fn readers_with_one_interest_are_sent_the_same_bytes() {
    let (feed, hub) = hub();
    let (mut one, mut other) = (join(&hub, &of(&["a*"]), 0), join(&hub, &of(&["a*"]), 0));
    feed.push("a", 10);
    let (one, other) = (one.next().await.unwrap(), other.next().await.unwrap());
    assert!(Arc::ptr_eq(&one, &other));
    let text = one.text(async |_| Ok::<_, Error>(Bytes::from("made once"))).await.unwrap();
    assert_eq!(other.text(async |_| Err("made twice")).await.unwrap(), text);
}

#[tokio::test]
async fn a_change_reaches_those_alone_who_take_it() {
    let globs = ["a", "a:*", "*", "tenant/*", "tenant/?:main", "*:dev", "tenant/a", "b:dev"];
    let addresses = ["a", "a:dev", "ab", "tenant/a", "tenant/ab", "tenant/a:dev", "b", "b:dev"];
    let (feed, hub) = hub();
    let mut readers: Vec<_> =
        globs.iter().map(|glob| (AddressGlob::parse(glob).unwrap(), join(&hub, &of(&[glob]), 0))).collect();
    // Under two keys, and sent once.
    let mut twice = join(&hub, &of(&["a*", "ab"]), 0);
    let mut all = join(&hub, &of(&[]), 0);
    for address in addresses {
        feed.push(address, 10);
    }
    assert_eq!(take(&mut all, addresses.len() as u64).await.len(), addresses.len());
    settle(&feed, 1).await;
    for (glob, reader) in &mut readers {
        let expected: Vec<_> = (1..)
            .zip(addresses)
            .filter(|(_, address)| glob.matches(&Address::parse(address).unwrap()))
            .map(|(position, _)| position)
            .collect();
        assert_eq!(take(reader, *expected.last().unwrap()).await, expected, "{glob}");
        assert!(timeout(Duration::ZERO, reader.next()).await.is_err(), "{glob}");
        // It has also passed what was not for it.
        assert_eq!(reader.position(), addresses.len() as u64);
    }
    assert_eq!(take(&mut twice, 3).await, [1, 2, 3]);
    let before = hub.subscribers();
    readers.clear();
    assert_eq!((before, hub.subscribers()), (globs.len() + 2, 2));
}

#[tokio::test]
async fn who_may_see_little_is_not_asked_about_the_rest() {
    let (feed, hub) = hub();
    let globs = vec![AddressGlob::parse("mine/*").unwrap()];
    let listed = Address::parse("listed").unwrap();
    let visible = Visible::Only(Named::new(globs, [listed]));
    let interest = Arc::new(Interest::new(Filter::new(&[], None, Vec::new()).unwrap(), visible, String::new()));
    let mut reader = join(&hub, &interest, 0);
    for address in ["theirs", "mine/a", "listed", "listed:dev"] {
        feed.push(address, 10);
    }
    assert_eq!(take(&mut reader, 3).await, [2, 3]);
}

#[tokio::test]
async fn whoever_joins_misses_nothing_and_sees_nothing_twice() {
    let (feed, hub) = hub();
    let interest = of(&[]);
    let mut first = join(&hub, &interest, 0);
    for _ in 0..10 {
        feed.push("a", 10);
    }
    assert_eq!(take(&mut first, 10).await, (1..=10).collect::<Vec<_>>());
    // A little behind the hub, at it, and ahead of it.
    let mut behind = join(&hub, &interest, 4);
    let mut there = join(&hub, &interest, 10);
    let mut ahead = join(&hub, &interest, 12);
    for _ in 0..5 {
        feed.push("a", 10);
    }
    assert_eq!(take(&mut behind, 15).await, (5..=15).collect::<Vec<_>>());
    assert_eq!(take(&mut there, 15).await, (11..=15).collect::<Vec<_>>());
    assert_eq!(take(&mut ahead, 15).await, (13..=15).collect::<Vec<_>>());
    // So far behind that only the feed knows.
    for _ in 0..KEPT {
        feed.push("a", 10);
    }
    take(&mut first, 15 + KEPT as u64).await;
    assert!(matches!(hub.subscribe(&interest, 3, Duration::ZERO), Joined::Behind));
    // Large changes are kept for as long as they fit the memory.
    let end = 15 + KEPT as u64;
    for position in end + 1..=end + 10 {
        feed.push("a", RunMemory::MAX / 8);
        take(&mut first, position).await;
    }
    assert!(matches!(hub.subscribe(&interest, end + 1, Duration::ZERO), Joined::Behind));
    let mut behind = join(&hub, &interest, end + 5);
    assert_eq!(take(&mut behind, end + 10).await, (end + 6..=end + 10).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_reader_who_does_not_read_is_not_waited_for() {
    let (feed, hub) = hub();
    let interest = of(&[]);
    let (mut slow, mut quick) = (join(&hub, &interest, 0), join(&hub, &interest, 0));
    for _ in 0..600 {
        let position = feed.push("a", 16_000);
        assert_eq!(take(&mut quick, position).await, [position]);
    }
    match slow.next().await {
        Ok(batch) => panic!("it was sent {:?}, with a gap behind it", batch.entries.first()),
        Err(end) => assert!(matches!(end, End::Lagging)),
    }
}

#[tokio::test]
async fn without_readers_the_feed_is_left_alone() {
    let (feed, hub) = hub();
    feed.push("a", 10);
    assert_eq!(feed.reads.load(Ordering::SeqCst), 0);
    for _ in 0..3 {
        let reader = join(&hub, &of(&["b"]), feed.position().await.unwrap());
        settle(&feed, 1).await;
        drop(reader);
        settle(&feed, 0).await;
    }
    let reads = feed.reads.load(Ordering::SeqCst);
    feed.push("a", 10);
    // No reader is left to wait for it.
    assert_eq!((feed.reads.load(Ordering::SeqCst), feed.waiting.load(Ordering::SeqCst)), (reads, 0));
}

#[tokio::test]
async fn a_feed_that_fails_is_borne_as_long_as_each_reader_bears_it() {
    let (feed, hub) = hub();
    feed.fails.store(true, Ordering::SeqCst);
    let interest = of(&[]);
    let mut patient = join(&hub, &interest, 0);
    let Joined::Yes(mut hasty) = hub.subscribe(&interest, 0, Duration::ZERO) else { panic!("behind") };
    assert!(matches!(hasty.next().await, Err(End::Failed(failed)) if failed.problem.status == 503));
    feed.fails.store(false, Ordering::SeqCst);
    let position = feed.push("a", 10);
    assert_eq!(take(&mut patient, position).await, [1]);
}

#[tokio::test]
async fn what_has_expired_ends_those_who_wait_and_those_who_come_later_begin_anew() {
    let (feed, hub) = hub();
    let interest = of(&[]);
    let mut reader = join(&hub, &interest, 0);
    feed.oldest.store(3, Ordering::SeqCst);
    for _ in 0..3 {
        feed.push("a", 10);
    }
    assert!(matches!(reader.next().await, Err(End::Gone { oldest: 3 })));
    // The first one is still there.
    let mut next = join(&hub, &interest, 2);
    assert_eq!(take(&mut next, 3).await, [3]);
}

#[test]
fn a_change_is_compared_once_with_each_interest_however_many_patterns_it_has() {
    let (mut groups, mut index) = (Groups::default(), Index::default());
    let patterns: Vec<_> = (0..MAX_PATTERNS).map(|n| format!("*{n}x")).collect();
    let patterns: Vec<_> = patterns.iter().map(String::as_str).collect();
    let interests = [of(&patterns), of(&["a*", "ab*", "*b", "ab:main"]), of(&["ab", "ab", "a*", "a?"]), of(&["c*"])];
    let member = || Arc::new(Member::new(Duration::ZERO));
    let places: Vec<_> = (0..100).map(|n| groups.add(&interests[n % 4], member())).collect();
    index.update(groups.unindexed());
    let feed = Memory::default();
    for address in ["ab", "b", "c"] {
        feed.push(address, 10);
    }
    let entries: Vec<Arc<Entry>> =
        feed.changes.lock().unwrap().iter().cloned().map(|change| Arc::new(change.into())).collect();
    let (matched, compared) = index.matched(&entries);
    // Three interests may hold `ab`; two may hold `b`; three may hold `c`.
    assert_eq!((matched.len(), compared), (3, 3 + 2 + 3));
    assert_eq!(groups.hand_out(&matched), 75);
    for place in places {
        groups.remove(place);
    }
    index.update(groups.unindexed());
    assert!(groups.is_empty());
    assert_eq!((index.patterns(), index.matched(&entries).1), (0, 0));
}

#[tokio::test]
async fn more_than_a_hundred_patterns_are_rejected_and_many_are_matched_apart() {
    let patterns: Vec<_> = (0..=MAX_PATTERNS).map(|n| format!("*{n}x*")).collect();
    let problem = Filter::new(&patterns, None, Vec::new()).unwrap_err();
    assert!(problem.document().detail.contains("at most 100 times"), "{}", problem.document().detail);
    let globs: Vec<_> = patterns.iter().skip(1).map(String::as_str).chain(["*7y:*"]).skip(1).collect();
    let (feed, hub) = hub();
    let mut readers: Vec<_> = (0..3).map(|_| join(&hub, &of(&globs), 0)).collect();
    for address in ["a", "a7y", "b"] {
        feed.push(address, 10);
    }
    for reader in &mut readers {
        assert_eq!(take(reader, 2).await, [2]);
    }
    // One that joins late is sent it, too, and no reader twice.
    let mut late = join(&hub, &of(&globs), 1);
    assert_eq!(take(&mut late, 2).await, [2]);
    let last = feed.push("c7y", 10);
    for reader in readers.iter_mut().chain([&mut late]) {
        assert_eq!(take(reader, last).await, [last]);
    }
}
