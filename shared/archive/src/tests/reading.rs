//! Histories and read models that continue in the archive.

use nameservice_projector::{Projector, records::Records};

use super::*;
use crate::Objects;

#[tokio::test]
async fn a_history_continues_in_the_archive_in_both_orders_and_on_any_page() {
    let (ground, store, mut rng) = (Ground::new(), Arc::new(InMemory::new()), StdRng::seed_from_u64(3));
    let mut witness: Vec<Change> = Vec::new();
    let archiver = Archiver::new(ground.feed(), archive(store.clone())).with_max_changes(3);
    // More objects than are looked through for one answer; some of the archive is in the feed, too.
    for round in 0..4 {
        ground.write_up_to(60 * (round + 1), &mut rng).await;
        let Run::Changes(new) = ground.names.changes(witness.len() as u64, Limit::MAX).await.unwrap() else { panic!() };
        witness.extend(new);
        if round < 3 {
            archiver.catch_up(None).await.unwrap();
            ground.advance(HOUR / 2 + 1);
        }
    }
    let oldest = match ground.names.changes(0, Limit::ONE).await.unwrap() {
        Run::Gone { oldest } => oldest,
        Run::Changes(_) => panic!("nothing has expired"),
    };
    assert!(archive(store.clone()).position().await.unwrap() >= oldest, "archive and feed overlap");
    let long = LongFeed::new(ground.feed(), archive(store));
    let end = witness.len() as u64;
    for name in NAMES.map(at) {
        for part in [None, Some(ChangedPart::Meta)] {
            for (after, before) in [(0, None), (17, None), (0, Some(100)), (90, Some(end - 5)), (end - 8, None)] {
                let wanted = |change: &&Change| {
                    change.address == name
                        && part.is_none_or(|part| part == change.part)
                        && change.position > after
                        && before.is_none_or(|before| change.position < before)
                };
                let expected: Vec<u64> = witness.iter().filter(wanted).map(|change| change.position).collect();
                for newest_first in [false, true] {
                    for page in [1, 2, 50] {
                        let query = HistoryQuery { after, before, newest_first, part, limit: limit(page) };
                        let mut found = pages(&long, &name, query).await;
                        if newest_first {
                            found.reverse();
                        }
                        assert_eq!(found, expected, "{name} {query:?}");
                    }
                }
            }
        }
    }
}

/// A bucket that fails the test if it is used.
struct Untouched;

#[async_trait]
impl Objects for Untouched {
    async fn list(&self, folder: &str, _: Option<&str>) -> Result<Vec<String>> {
        panic!("{folder} is listed")
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        panic!("{key} is read")
    }

    async fn create(&self, key: &str, _: Vec<u8>) -> Result<bool> {
        panic!("{key} is written")
    }
}

#[tokio::test]
async fn the_archive_is_not_asked_for_what_the_feed_holds() {
    let (ground, mut rng) = (Ground::new(), StdRng::seed_from_u64(9));
    ground.write_up_to(40, &mut rng).await;
    ground.advance(2 * HOUR);
    let expired = ground.names.position().await.unwrap();
    ground.write_up_to(expired + 40, &mut rng).await;
    let long = LongFeed::new(ground.feed(), Archive::new(Untouched, "", "a bucket"));
    assert_eq!(all(&long, expired, 7).await, all(&ground.names, expired, 7).await);
    let name = at(NAMES[0]);
    let query = HistoryQuery { after: expired, limit: limit(2), ..HistoryQuery::default() };
    assert!(!pages(&long, &name, query).await.is_empty());
    assert!(!pages(&long, &name, HistoryQuery { newest_first: true, ..query }).await.is_empty());
    // A page of the newest, of a history that goes back further.
    let newest = HistoryQuery { newest_first: true, limit: limit(2), ..HistoryQuery::default() };
    assert_eq!(long.history(&name, &newest).await.unwrap(), ground.names.history(&name, &newest).await.unwrap());
    assert!(long.position().await.unwrap() > expired);
}

async fn pages(feed: &dyn ChangeFeed, address: &Address, mut query: HistoryQuery) -> Vec<u64> {
    let mut found = Vec::new();
    loop {
        let page = feed.history(address, &query).await.unwrap();
        assert!(page.changes.len() <= query.limit.get());
        found.extend(page.changes.iter().map(|change| change.position));
        match (page.more_after, query.newest_first) {
            (None, _) => return found,
            (Some(position), true) => query.before = Some(position),
            (Some(position), false) => query.after = position,
        }
    }
}

#[tokio::test]
async fn a_read_model_continues_in_the_archive_instead_of_beginning_anew() {
    let (ground, store, mut rng) = (Ground::new(), Arc::new(InMemory::new()), StdRng::seed_from_u64(5));
    let long = Arc::new(LongFeed::new(ground.feed(), archive(store.clone())));
    let rows = || Arc::new(nameservice_projector::MemoryRows::new());
    let (with, without) = (rows(), rows());
    let names = Arc::new(ground.names.clone());
    let by_archive = Projector::new(Records, names.clone(), long, with.clone());
    let by_feed = Projector::new(Records, names.clone(), ground.feed(), without.clone());
    for round in 1..4 {
        ground.write_up_to(50 * round, &mut rng).await;
        Archiver::new(ground.feed(), archive(store.clone())).catch_up(None).await.unwrap();
        if round == 1 {
            by_archive.catch_up(None).await.unwrap();
            by_feed.catch_up(None).await.unwrap();
        }
        ground.advance(2 * HOUR);
    }
    ground.write(&mut rng).await;
    assert!(!by_archive.catch_up(None).await.unwrap().rebuilt);
    assert!(by_feed.catch_up(None).await.unwrap().rebuilt, "without the archive it has to");
    for name in NAMES.map(at) {
        assert_eq!(with.get(&name), without.get(&name));
        assert_eq!(with.get(&name).is_some(), names.lookup(&name).await.unwrap().is_some());
    }
}
