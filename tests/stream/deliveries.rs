//! Everything together: random writes, a mapping that redelivers and lets invocations die or live on, shards that split and
//! lanes side by side, an engine that fails, a topic that rejects, and readers that read meanwhile.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nameservice_feed::Feed;
use nameservice_tests::{
    mapping::{Mapping, Odds, Settings},
    prelude::*,
    seeds::seeds,
};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use stream_consumer::Consumer;

use super::{Subscriber, expected::assert_reported, lay_out, records, whole, writes};

/// Enough for every fault to happen; a mapping that takes more rounds is stuck.
const ROUNDS: usize = 3_000;

#[tokio::test]
async fn every_change_is_in_the_feed_once_in_order_and_published_whatever_happens() {
    for seed in seeds(3) {
        let mut random = StdRng::seed_from_u64(seed);
        let table = Proxied::with_stream().await;
        let expected = writes::write(&table, &mut random, 45).await;
        let records = records(&table).await;

        let topic = Subscriber::default();
        let consumer = Consumer::new(table.store.clone(), table.feed.clone());
        let settings = Settings {
            batch_size: *[1, 3, 10, 100].choose(&mut random).unwrap(),
            parallelization_factor: random.random_range(1..=3),
            bisect_batch_on_function_error: random.random(),
            report_batch_item_failures: true,
            ..Settings::default()
        };
        let mut mapping = Mapping::new(settings, seed).with_odds(Odds { times_out: 10, dies: 15, lives_on: 10 });
        lay_out(&mut mapping, &records, &mut random);
        break_some(&table.proxy, &mut random);

        let over = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..3)
            .map(|n| {
                tokio::spawn(read_along(table.direct_feed().clone(), over.clone(), StdRng::seed_from_u64(seed + n)))
            })
            .collect();
        // Meanwhile two publishers, as after a time limit, follow the feed.
        let follow = |n| {
            let (publisher, over) = (topic.failing(seed + n).publisher(table.direct_feed()), over.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Acquire) {
                    // A failure is one of the topic's.
                    let _ = publisher.catch_up(Some(1), None).await;
                    tokio::task::yield_now().await;
                }
            })
        };
        let publishers = [follow(10), follow(11)];
        mapping.run(&consumer, ROUNDS).await;
        over.store(true, Ordering::Release);

        let feed = table.direct_feed();
        let changes = whole(feed).await;
        assert_reported(&changes, &expected);
        for reader in readers {
            assert_eq!(reader.await.unwrap(), changes, "a reader misses nothing and sees nothing twice");
        }
        for publisher in publishers {
            publisher.await.unwrap();
        }
        topic.failing(seed + 12).publish_all(feed).await;
        let published: Vec<Change> = topic.by_position().into_values().collect();
        assert_eq!(published, changes, "what is in the feed was published, as it is there");
        assert_eq!(mapping.destination, Vec::<Value>::new(), "nothing is ever dropped");
        resume_from_everywhere(feed, &changes, &mut random).await;
        compare_histories(feed, &changes).await;
    }
}

/// Two consumers of two shards, on two threads, each with its own last observed position.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn consumers_of_two_shards_share_one_counter() {
    for seed in seeds(2) {
        let mut random = StdRng::seed_from_u64(seed);
        let table = Table::with_stream().await;
        let expected = writes::write(&table, &mut random, 40).await;
        let records = records(&table).await;
        let racers: Vec<_> = (0..2)
            .map(|shard| {
                let mine = records.iter().filter(|record| nameservice_tests::mapping::place_of(record, 2) == shard);
                let mut mapping = Mapping::new(Settings { batch_size: 4, ..Settings::default() }, seed)
                    .with_odds(Odds { times_out: 5, dies: 5, lives_on: 5 });
                mapping.open("shard", None);
                mapping.feed("shard", mine.cloned());
                let feed = Feed::new(table.client.clone(), table.feed.table());
                let consumer = Consumer::new(table.store.clone(), feed);
                tokio::spawn(async move { mapping.run(&consumer, ROUNDS).await })
            })
            .collect();
        for racer in racers {
            racer.await.unwrap();
        }
        let changes = whole(&table.feed).await;
        assert_reported(&changes, &expected);
        compare_histories(&table.feed, &changes).await;
    }
}

/// Arms faults all over the requests that follow.
fn break_some(proxy: &Proxy, random: &mut StdRng) {
    for _ in 0..12 {
        let operations =
            ["TransactWriteItems", "TransactWriteItems", "GetItem", "Query", "BatchGetItem", "BatchWriteItem"];
        let operation = *operations.choose(random).unwrap();
        let fault = match random.random_range(0..6) {
            0 => Fault::cut_request(),
            1 => Fault::cut_reply(),
            2 => Fault::answer(400, "ThrottlingException"),
            3 => Fault::answer(500, "InternalServerError"),
            4 => Fault::done_but_answer(500, "InternalServerError"),
            _ if operation == "TransactWriteItems" => Fault::cancelled(&["TransactionConflict", "None", "None"]),
            _ => Fault::delay(Duration::from_millis(30)),
        };
        proxy.on(operation, fault.times(random.random_range(1..4)).skipping(random.random_range(0..25)).perhaps());
    }
}

/// Reads the feed while changes are appended, in pages of any size, until nothing more will come.
async fn read_along(feed: Feed, over: Arc<AtomicBool>, mut random: StdRng) -> Vec<Change> {
    let mut seen: Vec<Change> = Vec::new();
    loop {
        let is_over = over.load(Ordering::Acquire);
        let after = seen.last().map_or(0, |change| change.position);
        let Run::Changes(more) = feed.changes(after, at_most(random.random_range(1..=9))).await.unwrap() else {
            panic!("nothing has expired");
        };
        if more.is_empty() && is_over {
            return seen;
        }
        if more.is_empty() {
            feed.wait(after, Duration::from_millis(20)).await.unwrap();
        }
        for change in more {
            assert_eq!(change.position, seen.last().map_or(0, |change| change.position) + 1);
            seen.push(change);
        }
    }
}

async fn resume_from_everywhere(feed: &Feed, changes: &[Change], random: &mut StdRng) {
    for after in 0..=changes.len() {
        let limit = random.random_range(1..=20);
        let run = feed.changes(after as u64, at_most(limit)).await.unwrap();
        let rest: Vec<Change> = changes[after..].iter().take(limit).cloned().collect();
        assert_eq!(run, Run::Changes(rest), "after {after}");
    }
}

/// The history of each record holds what the feed says of it, in the same order, from either end.
async fn compare_histories(feed: &Feed, changes: &[Change]) {
    let addresses: BTreeSet<&Address> = changes.iter().map(|change| &change.address).collect();
    for address in addresses {
        let mut of_it: Vec<Change> = changes.iter().filter(|change| change.address == *address).cloned().collect();
        for newest_first in [false, true] {
            let query = HistoryQuery { newest_first, limit: at_most(1_000), ..HistoryQuery::default() };
            assert_eq!(feed.history(address, &query).await.unwrap().changes, of_it, "{address}");
            of_it.reverse();
        }
    }
}
