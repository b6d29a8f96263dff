//! What consumers of the feed do and see, for the checker of docs/tla/FeedTrace.tla.

use std::sync::atomic::{AtomicUsize, Ordering};

use nameservice_feed::Appended;

use super::{
    super::traces::{Trace, sequence, write_all},
    *,
};

const RECORDS: usize = 10;
/// The most records of a delivery.
const BATCH: usize = 4;

/// What a consumer did, or saw.
#[derive(Clone, Debug)]
enum Event {
    /// Records of the stream were delivered to it.
    Delivered { first: usize, last: usize },
    /// All of them are in the feed, at these positions.
    Finished(Vec<u64>),
    /// It died, or gave up.
    Crashed,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Delivered { first, last } => {
                write!(f, "[kind |-> \"deliver\", first |-> {first}, last |-> {last}]")
            }
            Self::Finished(places) => write!(f, "[kind |-> \"finish\", places |-> {}]", sequence(places)),
            Self::Crashed => f.write_str("[kind |-> \"crash\"]"),
        }
    }
}

/// The logs of two consumers, and what the table has in the end.
#[derive(Clone)]
struct Consumption {
    logs: [Vec<Event>; 2],
    /// The records of the segment under each position.
    segments: Vec<Vec<i64>>,
    /// The position of each record.
    places: Vec<u64>,
}

impl Trace for Consumption {
    const SPECIFICATION: &'static str = "FeedTrace";

    fn constants(&self) -> Vec<(&'static str, String)> {
        let logs = self.logs.each_ref().map(|log| sequence(log));
        let segments: Vec<String> = self.segments.iter().map(|records| sequence(records)).collect();
        let mut constants = vec![
            ("Consumers", "{1, 2}".to_owned()),
            ("Records", RECORDS.to_string()),
            ("Batch", BATCH.to_string()),
            ("Chunk", BATCH.to_string()),
            ("Log", sequence(&logs)),
            ("Segments", sequence(&segments)),
            ("Places", sequence(&self.places)),
        ];
        let protections = ["ChecksSeen", "ChecksCounter", "WaitsForAll", "NamesTheLast"];
        constants.extend(protections.map(|protection| (protection, "TRUE".to_owned())));
        constants
    }

    fn changed(&self) -> Vec<(&'static str, Option<Self>)> {
        vec![("exchanged", self.exchanged()), ("not-delivered", self.not_delivered())]
    }
}

impl Consumption {
    /// The same trace, but the places of two records that a consumer was returned are exchanged.
    fn exchanged(&self) -> Option<Self> {
        let mut trace = self.clone();
        let places = trace.logs.iter_mut().flatten().find_map(|event| match event {
            Event::Finished(places) if places.len() > 1 => Some(places),
            _ => None,
        })?;
        places.swap(0, 1);
        Some(trace)
    }

    /// The same trace, but without the delivery of the last batch that a consumer finished.
    fn not_delivered(&self) -> Option<Self> {
        let mut trace = self.clone();
        let log = trace.logs.iter_mut().find(|log| log.iter().any(|event| matches!(event, Event::Finished(_))))?;
        let finished = log.iter().rposition(|event| matches!(event, Event::Finished(_)))?;
        log.remove(finished - 1);
        Some(trace)
    }
}

/// Appends random batches of a stream, again and again, until all of it is done; now and then it dies on the way.
async fn consume(feed: Feed, stream: Arc<Vec<Entry>>, done: Arc<AtomicUsize>, mut random: StdRng) -> Vec<Event> {
    let mut log = Vec::new();
    while done.load(Ordering::SeqCst) < stream.len() {
        let undone = done.load(Ordering::SeqCst).min(stream.len() - 1);
        let from = random.random_range(undone.saturating_sub(BATCH)..=undone);
        let to = (from + random.random_range(1..=BATCH)).min(stream.len());
        log.push(Event::Delivered { first: from + 1, last: to });
        let batch = &stream[from..to];
        let polls = random.random_range(1..15);
        let appended = match random.random_bool(0.3) {
            true => for_polls(polls, feed.append(batch)).await,
            false => Some(feed.append(batch).await),
        };
        match appended {
            Some(Appended { changes, error: None }) => {
                log.push(Event::Finished(changes.iter().map(|change| change.position).collect()));
                done.fetch_max(to, Ordering::SeqCst);
            }
            _ => log.push(Event::Crashed),
        }
    }
    log
}

async fn trace(seed: u64) -> Consumption {
    let mut random = StdRng::seed_from_u64(seed);
    let table = Proxied::fresh().await;
    disturb(&table, 4, 8, &mut random);
    let addresses = ["a:main", "b:main"];
    let stream = (1..=RECORDS as i64).map(|n| entry_of(addresses[n as usize % 2], n)).collect();
    let (stream, done) = (Arc::new(stream), Arc::new(AtomicUsize::new(0)));
    let consumers = [0, 1].map(|n| {
        let feed = Feed::new(engine::client(table.proxy.url()), table.feed.table());
        tokio::spawn(consume(feed, Arc::clone(&stream), done.clone(), StdRng::seed_from_u64(10 * seed + n)))
    });
    let [one, two] = consumers;
    let logs = [one.await.unwrap(), two.await.unwrap()];
    let Run::Changes(changes) = table.direct_feed().changes(0, at_most(100)).await.unwrap() else { panic!("gone") };
    let mut places = vec![0; RECORDS];
    for change in &changes {
        places[change.watermark as usize - 1] = change.position;
    }
    let query = table.client.query().table_name(table.feed.table()).key_condition_expression("id = :id");
    let rows = query.expression_attribute_values(":id", AttributeValue::S(FEED_ID.into())).send().await.unwrap();
    let mut segments = vec![Vec::new(); RECORDS + BATCH];
    for row in rows.items() {
        let last: usize = row["position"].as_s().unwrap().parse().unwrap();
        let first: usize = row["first"].as_n().unwrap().parse().unwrap();
        segments[last - 1] = changes[first - 1..last].iter().map(|change| change.watermark).collect();
    }
    Consumption { logs, segments, places }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "writes what .ci/proofs checks"]
async fn traces_of_consumers_are_written_for_the_checker() {
    write_all(trace).await;
}
