//! The table's stream, through the consumer, into the feed and to its readers: what must hold whatever happens on the
//! way. One seed is one run.

mod consumer;
mod crashes;
mod deliveries;
mod doorbell;
mod expected;
mod identities;
mod mapping;
mod messages;
mod ministack;
mod poison;
mod requests;
mod subscriptions;
mod writes;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Instant,
};

use async_trait::async_trait;
use nameservice_feed::Feed;
use nameservice_tests::{
    mapping::{self as esm, event_record},
    prelude::*,
    pump,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use stream_consumer::{NotPublished, Topic};

/// Waits with the clock of the test's runtime stopped: no time limit passes, however busy the machine is, and what sleeps does not wake up.
/// What is waited for has a name, and comes within [`LONG`] of real time.
async fn with_the_clock_stopped<T>(what: &str, waiting: impl Future<Output = T>) -> T {
    tokio::time::pause();
    // A runtime that has nothing to do would advance the clock to the next time limit. This is a task of its own, so that what is waited for
    // continues only if it is woken.
    let mut busy = tokio::spawn(async {
        let begun = Instant::now();
        while begun.elapsed() < LONG {
            tokio::task::yield_now().await;
        }
    });
    let came = tokio::select! {
        biased;
        came = waiting => came,
        _ = &mut busy => panic!("{what} did not come within {LONG:?}"),
    };
    busy.abort();
    tokio::time::resume();
    came
}

/// What the table's stream holds, as Lambda delivers it.
async fn records(table: &Table) -> Vec<Value> {
    pump::deliveries(table).await.iter().map(event_record).collect()
}

/// Everything that the feed holds.
async fn whole(feed: &Feed) -> Vec<Change> {
    let mut changes = Vec::new();
    loop {
        let after = changes.last().map_or(0, |change: &Change| change.position);
        match feed.changes(after, at_most(1_000)).await.unwrap() {
            Run::Changes(more) if more.is_empty() => return changes,
            Run::Changes(more) => changes.extend(more),
            Run::Gone { oldest } => panic!("gone, the oldest is {oldest}"),
        }
    }
}

/// A change in short: address, part, kind and watermark.
fn reported(change: &Change) -> (String, &'static str, &'static str, i64) {
    (change.address.to_string(), change.part.as_str(), change.kind.as_str(), change.watermark)
}

/// The changes of one address, in short.
fn of<'a>(changes: &'a [Change], address: &str) -> Vec<(&'a str, &'a str, i64)> {
    let of_it = changes.iter().filter(|change| change.address.as_str() == address);
    of_it.map(|change| (change.part.as_str(), change.kind.as_str(), change.watermark)).collect()
}

/// A topic that records everything that was published, and rejects some of it.
#[derive(Clone, Default)]
struct Published(Arc<Mutex<Remembered>>);

#[derive(Default)]
struct Remembered {
    by_position: BTreeMap<u64, Change>,
    messages: usize,
    random: Option<StdRng>,
}

impl Published {
    /// One that fails now and then, anywhere inside a batch.
    fn failing(seed: u64) -> Self {
        let random = Some(StdRng::seed_from_u64(seed));
        Self(Arc::new(Mutex::new(Remembered { random, ..Remembered::default() })))
    }

    fn messages(&self) -> usize {
        self.0.lock().unwrap().messages
    }

    /// Each position that was published, with what was published under it.
    fn by_position(&self) -> BTreeMap<u64, Change> {
        self.0.lock().unwrap().by_position.clone()
    }
}

#[async_trait]
impl Topic for Published {
    async fn publish(&self, changes: &[Change]) -> Result<(), NotPublished> {
        let mut remembered = self.0.lock().unwrap();
        let rejection = remembered
            .random
            .as_mut()
            .and_then(|random| random.random_bool(0.2).then(|| random.random_range(0..changes.len())));
        let published = rejection.unwrap_or(changes.len());
        for change in &changes[..published] {
            remembered.messages += 1;
            let first = remembered.by_position.entry(change.position).or_insert_with(|| change.clone());
            assert_eq!(first, change, "a change is published with the same content each time");
        }
        match published == changes.len() {
            true => Ok(()),
            false => Err(NotPublished { published, source: "as the test wished".into() }),
        }
    }
}

/// Lays the records of a stream out over shards: roots, some of which are split after a while.
fn lay_out(mapping: &mut esm::Mapping, records: &[Value], random: &mut StdRng) {
    let roots = random.random_range(1..=3usize);
    let mut of_root: Vec<Vec<Value>> = vec![Vec::new(); roots];
    for record in records {
        of_root[esm::place_of(record, roots)].push(record.clone());
    }
    for (root, records) in of_root.into_iter().enumerate() {
        let name = format!("shard-{root}");
        mapping.open(&name, None);
        let split = random.random_range(0..=records.len());
        let (before, after) = records.split_at(split);
        mapping.feed(&name, before.iter().cloned());
        for half in 0..2 {
            let child = format!("shard-{root}-{half}");
            mapping.open(&child, Some(&name));
            // Another hash than that of the roots: their keys are spread over both halves.
            let mine = |record: &&Value| esm::place_of(record, 2 * roots) / roots == half;
            mapping.feed(&child, after.iter().filter(mine).cloned());
        }
    }
}
