//! Compares what was archived with what the feed held, whatever fails on the way.

mod faulty;
mod reading;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use nameservice_embedded::{Embedded, Options};
use nameservice_model::{
    Address, AdminPublisher as _, Call, Change, ChangeFeed, ChangedPart, ContentId, Error, HeadPush, History,
    HistoryQuery, Limit, NameService as _, NewHead, Publisher as _, RefPublisher as _, Result, Run,
};
use nameservice_objects::object_store::{ObjectStore, ObjectStoreExt as _, memory::InMemory, path::Path};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use tokio::{sync::watch, time::timeout};

use self::faulty::Faulty;
use crate::{Archive, ArchiveError, Archived, Archiver, LongFeed, Segment, segment::line};

const HOUR: u64 = 3_600;
const NAMES: [&str; 4] = ["a:main", "a:dev", "b/c:main", "c:main"];

fn at(address: &str) -> Address {
    Address::parse(address).unwrap()
}

fn limit(limit: usize) -> Limit {
    Limit::new(limit).unwrap()
}

/// A nameservice in memory whose changes expire after an hour, by a clock that only the test moves.
#[derive(Clone)]
struct Ground {
    names: Embedded,
    clock: Arc<AtomicU64>,
}

impl Ground {
    fn new() -> Self {
        let clock = Arc::new(AtomicU64::new(1_700_000_000));
        let names = Embedded::memory(Options::default().with_retention(Duration::from_secs(HOUR))).unwrap();
        let read = clock.clone();
        let names = names.with_clock(move || SystemTime::UNIX_EPOCH + Duration::from_secs(read.load(Ordering::SeqCst)));
        Self { names, clock }
    }

    fn advance(&self, seconds: u64) {
        self.clock.fetch_add(seconds, Ordering::SeqCst);
    }

    fn feed(&self) -> Arc<dyn ChangeFeed> {
        Arc::new(self.names.clone())
    }

    async fn write(&self, rng: &mut StdRng) {
        let (call, address) = (Call::fresh(), at(NAMES.choose(rng).unwrap()));
        let t = rng.random_range(1..1_000);
        match rng.random_range(0..8) {
            0 => drop(self.names.create_ledger(&call, &address, None, None).await),
            1 => drop(self.names.retract(&call, &address, None).await),
            2 => drop(self.names.restore(&call, &address).await),
            3 => drop(self.names.purge(&call, &address).await),
            _ => {
                let head = NewHead::new(ContentId::stored(format!("bafy{t}")), t).unwrap();
                drop(self.names.push_head(&call, &address, &HeadPush::monotonic(head)).await);
            }
        }
    }

    /// Writes until the feed has reached this position.
    async fn write_up_to(&self, position: u64, rng: &mut StdRng) {
        while self.names.position().await.unwrap() < position {
            self.write(rng).await;
        }
    }
}

fn archive(store: Arc<dyn ObjectStore>) -> Archive {
    Archive::new(store, "some/where", "memory")
}

async fn all(feed: &dyn ChangeFeed, after: u64, page: usize) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), after);
    loop {
        match feed.changes(after, limit(page)).await.unwrap() {
            Run::Changes(changes) if changes.is_empty() => return found,
            Run::Changes(changes) => {
                assert!(changes.len() <= page);
                after = changes.last().unwrap().position;
                found.extend(changes.iter().map(|change| line(change).unwrap()));
            }
            Run::Gone { oldest } => panic!("after {after} is gone, up to {oldest}"),
        }
    }
}

/// Every line of every object, by the names of the objects.
async fn lines(store: &dyn ObjectStore) -> Vec<String> {
    use futures_util::TryStreamExt as _;
    let mut objects: Vec<_> = store.list(Some(&Path::from("some/where"))).try_collect().await.unwrap();
    objects.sort_by(|a, b| a.location.cmp(&b.location));
    let mut lines = Vec::new();
    for object in objects {
        let bytes = store.get(&object.location).await.unwrap().bytes().await.unwrap();
        lines.extend(String::from_utf8(bytes.to_vec()).unwrap().lines().map(str::to_owned));
    }
    lines
}

/// Every change of the feed, as seen by a reader that is never late.
#[derive(Default)]
struct Witness(Vec<String>);

impl Witness {
    async fn look(&mut self, feed: &dyn ChangeFeed) {
        self.0.extend(all(feed, self.0.len() as u64, 1_000).await);
    }
}

/// Random writes, clock steps, crashes and failures of the store; two archivers, each of which is recreated now and then; and
/// changes that expire as soon as both archivers could have seen them.
#[tokio::test]
async fn archive_and_feed_are_the_whole_feed_once_whatever_fails() {
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let ground = Ground::new();
        let store = Arc::new(Faulty::new(seed));
        let mut witness = Witness::default();
        let anew = |rng: &mut StdRng| {
            let archiver = Archiver::new(ground.feed(), archive(store.clone()));
            archiver.with_max_changes(rng.random_range(1..12))
        };
        let mut archivers = [anew(&mut rng), anew(&mut rng)];
        for _ in 0..60 {
            for _ in 0..rng.random_range(0..6) {
                ground.write(&mut rng).await;
            }
            witness.look(&ground.names).await;
            match rng.random_range(0..5) {
                // Both at the same time; either may fail, or be killed at any request.
                0..=2 => {
                    let (one, two) = (archivers[0].catch_up(None), archivers[1].catch_up(None));
                    drop(tokio::join!(store.killed(one), store.killed(two)));
                }
                3 => archivers[rng.random_range(0..2)] = anew(&mut rng),
                _ => {
                    // Only what is archived expires: what does not get there in time is another test.
                    store.behave(|| async { archivers[0].catch_up(None).await.unwrap() }).await;
                    ground.advance(rng.random_range(0..HOUR));
                }
            }
        }
        let done = store.behave(|| async { archivers[1].catch_up(None).await.unwrap() }).await;
        assert_eq!((done.position, done.lost, done.is_complete), (witness.0.len() as u64, 0, true), "seed {seed}");
        assert_eq!(lines(&store.inner).await, witness.0, "seed {seed}: the objects are the feed, once");
        ground.advance(2 * HOUR);
        ground.write(&mut rng).await;
        witness.look(&ground.names).await;
        let long = LongFeed::new(ground.feed(), archive(store.inner.clone()));
        for page in [1, 7, 1_000] {
            let after = rng.random_range(0..witness.0.len());
            assert_eq!(all(&long, 0, page).await, witness.0, "seed {seed}");
            assert_eq!(all(&long, after as u64, page).await, witness.0[after..], "seed {seed}");
        }
        assert!(store.faults() > 0, "seed {seed}: nothing failed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_archivers_at_once_each_object_is_written_by_one() {
    let directory = tempfile::tempdir().unwrap();
    for store in [
        Arc::new(InMemory::new()) as Arc<dyn ObjectStore>,
        nameservice_objects::directory(directory.path(), true).unwrap(),
    ] {
        let (ground, mut rng) = (Ground::new(), StdRng::seed_from_u64(7));
        ground.write_up_to(300, &mut rng).await;
        let archivers = (1..=8).map(|n| {
            let archiver = Archiver::new(ground.feed(), archive(store.clone())).with_max_changes(3 * n);
            tokio::spawn(async move { archiver.catch_up(None).await.unwrap() })
        });
        let mut written = 0;
        for archiver in archivers.collect::<Vec<_>>() {
            written += archiver.await.unwrap().changes;
        }
        let feed = all(&ground.names, 0, 1_000).await;
        assert_eq!(written, feed.len() as u64);
        assert_eq!(lines(&*store).await, feed);
    }
}

#[tokio::test]
async fn changes_that_expired_before_they_were_archived_are_a_gap_that_all_see() {
    let (ground, store, mut rng) = (Ground::new(), Arc::new(InMemory::new()), StdRng::seed_from_u64(1));
    ground.write_up_to(10, &mut rng).await;
    ground.advance(2 * HOUR);
    let kept = ground.names.position().await.unwrap();
    ground.write_up_to(kept + 5, &mut rng).await;
    let first = Archiver::new(ground.feed(), archive(store.clone())).catch_up(None).await.unwrap();
    assert_eq!((first.lost, first.is_complete), (kept, true));
    let middle = first.position;
    ground.write_up_to(middle + 5, &mut rng).await;
    let lost = ground.names.position().await.unwrap();
    ground.advance(2 * HOUR);
    ground.write_up_to(lost + 5, &mut rng).await;
    let second = Archiver::new(ground.feed(), archive(store.clone())).catch_up(None).await.unwrap();
    assert_eq!((second.lost, second.is_complete), (lost - middle, true));
    ground.advance(2 * HOUR);
    ground.write(&mut rng).await;

    let long = LongFeed::new(ground.feed(), archive(store.clone()));
    let gone = |oldest| Run::Gone { oldest };
    assert_eq!(long.changes(0, limit(100)).await.unwrap(), gone(kept + 1), "before the archive was begun");
    assert_eq!(long.changes(middle, limit(100)).await.unwrap(), gone(lost + 1), "while nobody archived");
    let Run::Changes(found) = long.changes(kept, limit(100)).await.unwrap() else { panic!("gone") };
    assert_eq!((found[0].position, found.last().unwrap().position), (kept + 1, middle));
    let texts = lines(&*store).await;
    assert_eq!(texts.iter().filter(|line| line.starts_with("{\"gap\"")).count(), 2);
    // A second archiver agrees.
    let again = Archiver::new(ground.feed(), archive(store.clone())).catch_up(None).await.unwrap();
    assert_eq!(again.lost, 0);
}

#[tokio::test]
async fn another_feed_is_not_archived_into_the_same_archive() {
    let (ground, store, mut rng) = (Ground::new(), Arc::new(InMemory::new()), StdRng::seed_from_u64(1));
    ground.write_up_to(10, &mut rng).await;
    let archived = Archiver::new(ground.feed(), archive(store.clone())).catch_up(None).await.unwrap();
    let other = Ground::new();
    other.advance(60);
    for _ in 0..2 {
        // First a shorter one, then one that has come further.
        let error = Archiver::new(other.feed(), archive(store.clone())).catch_up(None).await.unwrap_err();
        assert!(is(&error, |error| matches!(error, ArchiveError::OtherFeed { .. })), "{error:?}");
        other.write_up_to(2 * archived.position, &mut rng).await;
    }
    assert_eq!(archive(store).position().await.unwrap(), archived.position);
}

fn is(error: &Error, of: impl Fn(&ArchiveError) -> bool) -> bool {
    matches!(error, Error::Store { source, .. } if source.downcast_ref::<ArchiveError>().is_some_and(of))
}

/// A feed through which a restricted token sees half of the changes.
struct Restricted(Embedded);

#[async_trait]
impl ChangeFeed for Restricted {
    async fn position(&self) -> Result<u64> {
        self.0.position().await
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        Ok(match self.0.changes(after, limit).await? {
            Run::Changes(changes) => {
                Run::Changes(changes.into_iter().filter(|change| change.position % 2 == 1).collect())
            }
            gone => gone,
        })
    }

    async fn wait(&self, _: u64, _: Duration) -> Result<()> {
        Ok(())
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        self.0.history(address, query).await
    }
}

#[tokio::test]
async fn a_feed_that_hides_changes_is_not_archived() {
    let (ground, store, mut rng) = (Ground::new(), Arc::new(InMemory::new()), StdRng::seed_from_u64(1));
    ground.write_up_to(6, &mut rng).await;
    let feed = Arc::new(Restricted(ground.names.clone()));
    let error = Archiver::new(feed, archive(store.clone())).catch_up(None).await.unwrap_err();
    assert!(is(&error, |error| matches!(error, ArchiveError::Sparse(2))), "{error:?}");
    assert!(lines(&*store).await.is_empty());
}

#[tokio::test]
async fn a_damaged_object_is_named_and_not_read_past() {
    let (ground, store, mut rng) = (Ground::new(), Arc::new(InMemory::new()), StdRng::seed_from_u64(1));
    ground.write_up_to(9, &mut rng).await;
    let archiver = Archiver::new(ground.feed(), archive(store.clone())).with_max_changes(3);
    let Archived { objects, .. } = archiver.catch_up(None).await.unwrap();
    assert!(objects >= 3);
    let path = Path::from("some/where/changes/00000000000000000004.jsonl");
    let whole = store.get(&path).await.unwrap().bytes().await.unwrap();
    let text = String::from_utf8(whole.to_vec()).unwrap();
    let [first, second, third] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    for damaged in [
        String::new(),
        text[..text.len() - 10].to_owned(),
        format!("{first}\n{third}\n"),
        format!("{second}\n{third}\n"),
        format!("{first}\nnothing\n"),
        "{\"gap\":{\"first\":1,\"last\":9}}\n".to_owned(),
    ] {
        store.put(&path, damaged.clone().into()).await.unwrap();
        let error = archive(store.clone()).changes(3, limit(10)).await.unwrap_err();
        let named = |error: &ArchiveError| error.to_string().contains("00000000000000000004.jsonl");
        assert!(is(&error, named), "{damaged}: {error:?}");
    }
    store.delete(&path).await.unwrap();
    let error = archive(store.clone()).changes(3, limit(10)).await.unwrap_err();
    assert!(is(&error, |error| error.to_string().contains("there is none")), "a missing object: {error:?}");
}

/// A feed that shows its changes when a test lets it.
struct Scripted {
    changes: Vec<Change>,
    shown: watch::Sender<u64>,
}

#[async_trait]
impl ChangeFeed for Scripted {
    async fn position(&self) -> Result<u64> {
        Ok(*self.shown.borrow())
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        let shown = *self.shown.borrow();
        let follows = self.changes.iter().filter(|change| change.position > after && change.position <= shown);
        Ok(Run::Changes(follows.take(limit.get()).cloned().collect()))
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        let mut shown = self.shown.subscribe();
        drop(timeout(at_most, shown.wait_for(|shown| *shown > after)).await);
        Ok(())
    }

    async fn history(&self, _: &Address, _: &HistoryQuery) -> Result<History> {
        Ok(History { changes: Vec::new(), more_after: None })
    }
}

#[tokio::test]
async fn a_follower_gathers_what_changes_in_a_period_in_one_object() {
    let (ground, store, mut rng) = (Ground::new(), Arc::new(InMemory::new()), StdRng::seed_from_u64(1));
    ground.write_up_to(60, &mut rng).await;
    let Run::Changes(changes) = ground.names.changes(0, Limit::MAX).await.unwrap() else { panic!("gone") };
    drop(ground);
    // From here on nothing but the clock of the test moves.
    tokio::time::pause();
    let feed = Arc::new(Scripted { changes, shown: watch::Sender::new(20) });
    let archiver = Archiver::new(feed.clone(), archive(store.clone()));
    let following = tokio::spawn(async move { archiver.run(Duration::from_secs(600)).await });
    for shown in [30, 40, 50, 60] {
        // A period begins with the first change that is seen, and lasts 600 seconds.
        tokio::time::sleep(Duration::from_secs(if shown % 20 == 0 { 100 } else { 1_300 })).await;
        feed.shown.send_replace(shown);
    }
    tokio::time::sleep(Duration::from_secs(1_300)).await;
    following.abort();
    let archived = archive(store);
    for (first, last) in [(1, 20), (21, 40), (41, 60)] {
        let segment = archived.segment_at(first).await.unwrap().unwrap();
        assert_eq!((segment.first, segment.last), (first, last));
    }
}

#[test]
fn an_object_round_trips_and_says_what_is_wrong_with_it() {
    assert_eq!(Segment::parse(4, "{\"gap\":{\"first\":4,\"last\":9}}\n"), Ok(Segment::gap(4, 9)));
    assert_eq!(Segment::gap(4, 9).to_lines().unwrap(), "{\"gap\":{\"first\":4,\"last\":9}}\n");
    for (first, text) in
        [(4, "{\"gap\":{\"first\":5,\"last\":9}}\n"), (4, "{\"gap\":{\"first\":4,\"last\":3}}\n"), (1, "\n"), (1, "")]
    {
        assert!(Segment::parse(first, text).is_err(), "{text}");
    }
}
