//! The consumer of the table's stream: stream records → changes → the feed, exactly once.
//!
//! A batch goes through these steps, each of which can be repeated together with those after it:
//!
//! 1. records that cannot be read go to the dead letters, whole and with the reason, and never block those after them. If reads of the
//!    nameservice record show a change, it is one without a payload;
//! 2. the other records are converted to changes; the kind of the changed record comes from the batch itself, or from one read;
//! 3. changes that are not in the feed yet are appended;
//! 4. a [`Doorbell`] rings for the records, and the changes go to [`Subscriptions`], including those that an earlier delivery
//!    appended, since it may have ended in between: hints, which may be lost.
//!
//! What follows the feed, as the topic does, reads it: the consumer waits for nothing but the feed.
//!
//! A record that ends the function three times is passed over ([`Consumer::handle`]).
//!
//! The answer names the first record that was not completed. Everything from there on is delivered again, so the order of the
//! changes of a record is their commit order (docs/specification.md, Change feed).

mod appsync;
mod dead_letters;
mod delivery;
mod doorbell;
mod handling;
mod identities;
mod subscriptions;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use lambda_runtime::{LambdaEvent, service_fn};
use metrics::{counter, gauge, histogram};
use nameservice_dynamo::{lambda_config, variable};
use nameservice_feed::{Entry, Feed, Tried};
use nameservice_model::{Change, ChangePayload, RequestId, RunMemory, chain};
use nameservice_store::{Difference, Identities, Store};
use serde_json::value::RawValue;
use tokio::time::Instant;

pub use appsync::{HintError, Hints};
pub use dead_letters::{DeadLetters, QueueOfDeadLetters};
pub use delivery::{Delivery, Reading};
pub use doorbell::Doorbell;
pub use subscriptions::Subscriptions;

/// The URL at which the doorbell publishes its events. Without it there is no doorbell.
const DOORBELL: &str = "NAMESERVICE_DOORBELL_URL";
/// The namespace of the doorbell's channels.
const NAMESPACE: &str = "NAMESERVICE_DOORBELL_NAMESPACE";
/// The URL of the GraphQL API to which changes are published for its subscribers. Without it there are no subscriptions.
const GRAPHQL: &str = "NAMESERVICE_GRAPHQL_URL";
/// The URL of the dead-letter queue. Without it dead letters are stored in the feed's table.
const DEAD_LETTERS: &str = "NAMESERVICE_DEAD_LETTER_QUEUE_URL";
/// How long before the end of an invocation its batch is left, so that the invocation is answered.
const BEFORE_THE_END: Duration = Duration::from_secs(10);

/// Consumes the stream of one table into its feed. Cheap to clone.
#[derive(Clone)]
pub struct Consumer {
    store: Store,
    feed: Feed,
    doorbell: Option<Doorbell>,
    subscriptions: Option<Subscriptions>,
    dead_letters: Arc<dyn DeadLetters>,
    /// By the names of records: what is known of their tries, if that could not be saved at the end of the last one.
    unsaved: Arc<Mutex<BTreeMap<String, Tried>>>,
}

/// What of a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// All of it.
    Whole,
    /// All but what its items hold. The record becomes a dead letter.
    WithoutPayload,
    /// Nothing. The record becomes a dead letter.
    Nothing,
}

/// The reason of a dead letter that was read in part, or not at all.
const ENDS_THE_FUNCTION: &str = "the function ended three times without an answer while it consumed this record alone";

/// The result of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// The sequence number of the first record that was not completed: it and all that follow must be delivered again.
    pub failed: Option<String>,
    /// How many changes of the batch are in the feed.
    pub changes: usize,
    /// How many records became dead letters.
    pub dead_letters: usize,
}

impl Consumed {
    /// Returns the result of a batch of which nothing was completed.
    fn nothing_of(batch: &[Delivery]) -> Self {
        Self { failed: batch.first().map(|delivery| delivery.sequence_number().to_owned()), ..Self::default() }
    }

    /// Records the metric of a batch that must be delivered again.
    fn measured(self) -> Self {
        if self.failed.is_some() {
            counter!("nameservice_feed_failures_total").increment(1);
        }
        self
    }
}

impl Consumer {
    /// Creates a consumer of the store's stream into this feed. Dead letters go into the feed's table.
    pub fn new(store: Store, feed: Feed) -> Self {
        let dead_letters = Arc::new(feed.clone());
        Self { store, dead_letters, feed, doorbell: None, subscriptions: None, unsaved: Arc::default() }
    }

    /// Also rings for readers that wait.
    #[must_use]
    pub fn with_doorbell(mut self, doorbell: Doorbell) -> Self {
        self.doorbell = Some(doorbell);
        self
    }

    /// Also publishes the changes to the subscribers of a GraphQL API.
    #[must_use]
    pub fn with_subscriptions(mut self, subscriptions: Subscriptions) -> Self {
        self.subscriptions = Some(subscriptions);
        self
    }

    /// Sends dead letters there instead.
    #[must_use]
    pub fn with_dead_letters(mut self, dead_letters: Arc<dyn DeadLetters>) -> Self {
        self.dead_letters = dead_letters;
        self
    }

    /// Consumes a batch up to the first failure: in parts, if its payloads would take much memory.
    pub async fn consume(&self, batch: &[Delivery]) -> Consumed {
        self.consume_extent(batch, Extent::Whole, &AtomicUsize::default()).await.measured()
    }

    /// `completed` is how many deliveries are done, for the case that this is not awaited to its end.
    async fn consume_extent(&self, batch: &[Delivery], extent: Extent, completed: &AtomicUsize) -> Consumed {
        let Read { seen, found, dead_letters, mut end } = self.read(batch, extent).await;
        let mut done = Done::default();
        let first = found.first().map(|found| found.delivery);
        match identities::identify(&self.store, &self.feed, batch, &seen, found).await {
            Ok(identified) => {
                let mut left = VecDeque::from(identified);
                while !left.is_empty() {
                    let part = next_part(batch, &mut left);
                    if let Some(failed) = self.append(part, &seen, &mut done).await {
                        end = end.min(failed);
                        break;
                    }
                    completed.store(left.front().map_or(end, |next| next.delivery.min(end)), Ordering::Relaxed);
                }
            }
            Err(error) => {
                tracing::error!(error = chain(&error), "nothing of a batch was appended");
                end = first.map_or(end, |first| first.min(end));
            }
        }
        done.measure();
        let failed = batch.get(end).map(|delivery| delivery.sequence_number().to_owned());
        Consumed { failed, changes: done.changes, dead_letters }
    }

    /// Appends changes, and reports them to those who wait. Returns the first delivery that was not completed, if there is one.
    async fn append(&self, part: Vec<Identified>, seen: &[Seen], done: &mut Done) -> Option<usize> {
        let (origins, entries): (Vec<usize>, Vec<Entry>) =
            part.into_iter().map(|found| (found.delivery, found.entry)).unzip();
        let appended = self.feed.append(&entries).await;
        drop(entries);
        let changes = appended.changes;
        for (change, origin) in changes.iter().zip(&origins) {
            let traceparent = seen[*origin].call.as_ref().and_then(RequestId::traceparent);
            tracing::debug!(position = change.position, traceparent, "in the feed");
        }
        let failed = appended.error.map(|error| {
            tracing::error!(error = chain(&error), appended = changes.len(), "a batch was appended only partly");
            origins[changes.len()]
        });
        tokio::join!(self.ring(&changes), self.notify(&changes));
        done.add(&changes);
        failed
    }

    /// Reads the records one by one: the others are in memory as text. Records that cannot be read become dead letters.
    async fn read(&self, batch: &[Delivery], extent: Extent) -> Read {
        let (mut seen, mut found, mut dead_letters, mut end) = (Vec::new(), Vec::new(), 0, batch.len());
        let mut memory = RunMemory::default();
        for (i, delivery) in batch.iter().enumerate() {
            let reading = match extent {
                Extent::Whole => delivery.read(),
                Extent::WithoutPayload => delivery.read_without_payload(ENDS_THE_FUNCTION),
                Extent::Nothing => Err(ENDS_THE_FUNCTION.to_owned()),
            };
            let (known, difference, without_payload) = match reading {
                Ok(Reading { written_at, call, identities, difference, without_payload }) => {
                    (Seen { written_at: Some(written_at), call, identities }, difference, without_payload)
                }
                Err(reason) => (Seen::default(), Err(reason), None),
            };
            // Also of those after the end: the kind of a record may come from a later one.
            seen.push(known);
            if i >= end {
                continue;
            }
            let difference = match difference {
                Ok(difference) => difference,
                // The letter first: a change that is appended is not appended again, and then nothing would be left to explain it.
                Err(reason) if self.store_dead_letter(delivery, &reason).await => {
                    dead_letters += 1;
                    without_payload
                }
                Err(_) => {
                    end = i;
                    continue;
                }
            };
            let Some(mut difference) = difference else { continue };
            if !difference.address.is_well_formed() {
                // No route names it, and no list holds it (docs/specification.md, Names).
                let address = difference.address.as_str();
                tracing::debug!(address, "left out: only Fluree allows this name");
                continue;
            }
            let is_whole = !memory.is_full() || !matches!(difference.payload, ChangePayload::Value(_));
            match is_whole {
                true => memory.add(&difference.payload),
                false => difference.payload = ChangePayload::None,
            }
            found.push(Found { delivery: i, difference, is_whole });
        }
        Read { seen, found, dead_letters, end }
    }

    /// Stores a dead letter. Returns whether it is stored.
    async fn store_dead_letter(&self, delivery: &Delivery, reason: &str) -> bool {
        tracing::error!(event_id = delivery.event_id(), reason, "a stream record is a dead letter");
        let stored = self.dead_letters.store(delivery, reason).await;
        if let Err(error) = &stored {
            let error = chain(error.as_ref());
            tracing::error!(error, "a dead letter could not be stored: its record will be delivered again");
        }
        if stored.is_ok() {
            counter!("nameservice_feed_dead_letters_total").increment(1);
        }
        stored.is_ok()
    }

    /// Rings for the records of the changes. A lost ring is counted, and does not fail the batch.
    async fn ring(&self, changes: &[Change]) {
        let Some(doorbell) = &self.doorbell else { return };
        if let Some(lost) = lost("rings", &doorbell.ring(changes).await) {
            counter!("nameservice_feed_rings_lost_total").increment(lost);
        }
    }

    /// Publishes the changes to subscribers. A lost hint is counted, and does not fail the batch.
    async fn notify(&self, changes: &[Change]) {
        let Some(subscriptions) = &self.subscriptions else { return };
        if let Some(lost) = lost("changes for subscriptions", &subscriptions.publish(changes).await) {
            counter!("nameservice_feed_notifications_lost_total").increment(lost);
        }
    }
}

/// Returns how many hints were lost, if any, and logs why.
fn lost(what: &'static str, Hints { of, lost, error }: &Hints) -> Option<u64> {
    if *lost == 0 {
        return None;
    }
    let error = error.as_ref().map(|error| chain(error));
    tracing::warn!(lost, of, error, "{what} were lost: readers find them in the feed at their next read");
    Some(*lost as u64)
}

/// What has become of a batch.
#[derive(Default)]
struct Done {
    /// How many changes are in the feed.
    changes: usize,
    /// The last of their positions.
    last: u64,
    /// When the oldest was made.
    oldest: Option<Timestamp>,
}

impl Done {
    fn add(&mut self, changes: &[Change]) {
        self.changes += changes.len();
        for change in changes {
            self.last = self.last.max(change.position);
            self.oldest = Some(self.oldest.map_or(change.occurred_at, |oldest| oldest.min(change.occurred_at)));
        }
    }

    /// Records the metrics of the batch: how much of it is in the feed, and the age of its oldest change.
    fn measure(&self) {
        let Some(oldest) = self.oldest else { return };
        gauge!("nameservice_feed_position").set(self.last as f64);
        histogram!("nameservice_feed_batch_changes").record(self.changes as f64);
        let lag = Timestamp::now().duration_since(oldest).as_secs_f64();
        // Not negative, even if clocks differ.
        histogram!("nameservice_feed_lag_seconds").record(lag.max(0.0));
    }
}

/// What the records of a batch say.
struct Read {
    /// What is known of each record.
    seen: Vec<Seen>,
    found: Vec<Found>,
    /// How many dead letters were stored.
    dead_letters: usize,
    /// Where to stop: at a record whose dead letter could not be stored, or after the last one.
    end: usize,
}

/// What a stream record says besides its change; nothing if it cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    written_at: Option<Timestamp>,
    call: Option<RequestId>,
    identities: Option<Identities>,
}

/// A change of a delivery.
#[derive(Debug)]
pub(crate) struct Found {
    /// The index of the delivery in the batch.
    delivery: usize,
    difference: Difference,
    /// Whether it has its payload: beyond what may be in memory it is read again when its turn comes.
    is_whole: bool,
}

/// A change of a delivery, whose record's kind is known.
#[derive(Debug)]
pub(crate) struct Identified {
    delivery: usize,
    entry: Entry,
    is_whole: bool,
}

/// Takes the next changes whose payloads may be in memory together: at least one.
fn next_part(batch: &[Delivery], left: &mut VecDeque<Identified>) -> Vec<Identified> {
    let (mut part, mut memory) = (Vec::new(), RunMemory::default());
    while !memory.is_full()
        && let Some(mut next) = left.pop_front()
    {
        if !next.is_whole
            && let Ok(Reading { difference: Ok(Some(difference)), .. }) = batch[next.delivery].read()
        {
            next.entry.difference = difference;
        }
        memory.add(&next.entry.difference.payload);
        part.push(next);
    }
    part
}

/// Consumes Lambda's events until the runtime ends: the `main` of the function, over the store and the feed that its
/// environment names.
pub async fn run(store: Store, feed: Feed) -> Result<(), lambda_runtime::Error> {
    let mut consumer = Consumer::new(store, feed);
    if let Some(queue) = variable(DEAD_LETTERS) {
        let queue = QueueOfDeadLetters::new(aws_sdk_sqs::Client::new(&lambda_config()), queue);
        consumer = consumer.with_dead_letters(Arc::new(queue));
    }
    match Doorbell::deployed() {
        Ok(Some(doorbell)) => consumer = consumer.with_doorbell(doorbell),
        Ok(None) => {}
        // The feed works without it.
        Err(error) => tracing::error!(error = chain(&error), "the doorbell is off"),
    }
    match Subscriptions::deployed() {
        Ok(Some(subscriptions)) => consumer = consumer.with_subscriptions(subscriptions),
        Ok(None) => {}
        Err(error) => tracing::error!(error = chain(&error), "nothing is published to subscriptions"),
    }
    lambda_runtime::run(service_fn(async |event: LambdaEvent<Box<RawValue>>| {
        let end = UNIX_EPOCH + Duration::from_millis(event.context.deadline);
        let left = end.duration_since(SystemTime::now()).unwrap_or_default();
        let until = Instant::now() + left.saturating_sub(BEFORE_THE_END);
        let answer = consumer.handle_until(event.payload, Some(until)).await;
        nameservice_lambda::write_metrics();
        Ok::<_, lambda_runtime::Error>(answer)
    }))
    .await
}
