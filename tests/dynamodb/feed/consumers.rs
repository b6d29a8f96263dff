//! Several concurrent consumers, and what they leave behind when they die.

use std::sync::atomic::{AtomicUsize, Ordering};

use nameservice_feed::Appended;
use rand::seq::IndexedRandom;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writers_leave_no_gap_and_keep_each_their_order() {
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

/// Appends random batches of a stream, again and again, until all of it is done; now and then it dies on the way.
async fn consume(feed: Feed, stream: Arc<Vec<Entry>>, done: Arc<AtomicUsize>, mut random: StdRng) {
    while done.load(Ordering::Acquire) < stream.len() {
        let from = random.random_range(0..=done.load(Ordering::Acquire));
        let to = (from + random.random_range(1..=120)).min(stream.len());
        let polls = random.random_range(1..40);
        let batch = &stream[from..to];
        let appended = match random.random_bool(0.3) {
            true => for_polls(polls, feed.append(batch)).await,
            false => Some(feed.append(batch).await),
        };
        // A batch that was not appended completely is delivered again, before anything that follows it.
        if let Some(Appended { changes, error: None }) = appended {
            assert_eq!(changes.len(), batch.len());
            done.fetch_max(to, Ordering::AcqRel);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn consumers_that_die_and_transactions_that_are_cut_leave_one_order_and_the_same_histories() {
    for seed in 1..=2 {
        let mut random = StdRng::seed_from_u64(seed);
        let table = Proxied::fresh().await;
        let addresses = ["a:main", "b:main", "c:main"];
        let mut stream: Vec<Entry> = (1..=600).map(|n| entry_of(addresses.choose(&mut random).unwrap(), n)).collect();
        // Sequence numbers of different lengths, as in shards.
        for (n, entry) in stream.iter_mut().enumerate() {
            entry.sequence_number = (7_u128.pow(6) * (n as u128 + 1).pow(6)).to_string();
        }
        disturb(&table, 30, 40, &mut random);
        let (stream, done) = (Arc::new(stream), Arc::new(AtomicUsize::new(0)));
        let consumers = [0, 1].map(|n| {
            let feed = Feed::new(engine::client(table.proxy.url()), table.feed.table());
            tokio::spawn(consume(feed, stream.clone(), done.clone(), StdRng::seed_from_u64(10 * seed + n)))
        });
        for consumer in consumers {
            consumer.await.unwrap();
        }
        let feed = Feed::new(table.client.clone(), table.feed.table());
        let Run::Changes(changes) = feed.changes(0, at_most(1_000)).await.unwrap() else { panic!("gone") };
        let shown = changes.iter().map(|change| (change.position, change.address.as_str(), change.watermark));
        let given = stream
            .iter()
            .zip(1..)
            .map(|(entry, at)| (at, entry.difference.address.as_str(), entry.difference.watermark));
        assert!(shown.eq(given), "seed {seed}: dense, once, and in the order of the stream");
        for address in addresses {
            let of_it: Vec<Change> =
                changes.iter().filter(|change| change.address.as_str() == address).cloned().collect();
            let query = HistoryQuery { limit: at_most(1_000), ..HistoryQuery::default() };
            assert_eq!(feed.history(&at(address), &query).await.unwrap().changes, of_it, "seed {seed}");
        }
    }
}
