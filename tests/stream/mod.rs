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
mod passed_over;
mod poison;
mod requests;
mod subscriptions;
mod topic;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Instant,
};

use async_trait::async_trait;
use nameservice_feed::Feed;
use nameservice_tests::{
    mapping::{self as esm, event_record, raw},
    prelude::*,
    pump,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use topic_publisher::{DeadLetters, Letter, Published, Rejected, Topic, TopicPublisher};

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

/// A topic that records everything that was published, and does not take some of it.
#[derive(Clone, Default)]
struct Subscriber {
    remembered: Arc<Mutex<Remembered>>,
    /// Decides which runs fail, for this clone alone.
    random: Option<Arc<Mutex<StdRng>>>,
}

#[derive(Default)]
struct Remembered {
    by_position: BTreeMap<u64, Change>,
    /// Each message in the order of its arrival.
    positions: Vec<u64>,
    /// Takes nothing.
    away: bool,
    /// Positions of changes that are rejected permanently.
    rejected: BTreeSet<u64>,
    /// The positions of dead letters, with their reasons.
    letters: BTreeMap<u64, String>,
    /// Takes no dead letters.
    no_letters: bool,
}

impl Subscriber {
    /// The same topic, which fails now and then, anywhere inside a run.
    fn failing(&self, seed: u64) -> Self {
        Self { random: Some(Arc::new(Mutex::new(StdRng::seed_from_u64(seed)))), ..self.clone() }
    }

    fn publisher(&self, feed: &Feed) -> TopicPublisher {
        TopicPublisher::new(feed.clone(), Arc::new(self.clone()), Arc::new(self.clone()))
    }

    fn set(&self, change: impl FnOnce(&mut Remembered)) {
        change(&mut self.remembered.lock().unwrap());
    }

    fn positions(&self) -> Vec<u64> {
        self.remembered.lock().unwrap().positions.clone()
    }

    /// Publishes everything in the feed, however often the topic fails.
    async fn publish_all(&self, feed: &Feed) {
        let publisher = self.publisher(feed);
        for _ in 0..1_000 {
            if publisher.catch_up(Some(1), None).await.is_ok() {
                return;
            }
        }
        panic!("the topic always fails");
    }

    /// Each position that was published, with what was published under it.
    fn by_position(&self) -> BTreeMap<u64, Change> {
        self.remembered.lock().unwrap().by_position.clone()
    }

    fn letters(&self) -> BTreeMap<u64, String> {
        self.remembered.lock().unwrap().letters.clone()
    }
}

#[async_trait]
impl Topic for Subscriber {
    async fn publish(&self, changes: &[Change], _: Option<tokio::time::Instant>) -> Published {
        let mut remembered = self.remembered.lock().unwrap();
        let draw = |random: &Mutex<StdRng>| {
            let mut random = random.lock().unwrap();
            random.random_bool(0.2).then(|| random.random_range(0..changes.len()))
        };
        let failure = if remembered.away { Some(0) } else { self.random.as_deref().and_then(draw) };
        let done = failure.unwrap_or(changes.len());
        let mut rejected = Vec::new();
        for (place, change) in changes[..done].iter().enumerate() {
            if remembered.rejected.contains(&change.position) {
                rejected.push(Rejected { place, reason: "it is what it is".to_owned() });
                continue;
            }
            remembered.positions.push(change.position);
            let first = remembered.by_position.entry(change.position).or_insert_with(|| change.clone());
            assert_eq!(first, change, "a change is published with the same content each time");
        }
        Published { done, rejected, error: failure.map(|_| "as the test wished".into()) }
    }
}

#[async_trait]
impl DeadLetters for Subscriber {
    async fn store(&self, letter: Letter<'_>) -> Result<(), BoxError> {
        let mut remembered = self.remembered.lock().unwrap();
        if remembered.no_letters {
            return Err("no dead letters now".into());
        }
        let (position, reason) = match letter {
            Letter::Rejected { change, reason } => (change.position, reason.to_owned()),
            Letter::Lost { reached, oldest } => (reached + 1, format!("continues at {oldest}")),
        };
        remembered.letters.insert(position, reason);
        Ok(())
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
