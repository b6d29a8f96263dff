//! The consumer of the table's stream: stream records → changes → the feed, exactly once.
//!
//! A batch goes through these steps, each of which can be repeated together with those after it:
//!
//! 1. records that cannot be read go to the dead letters, whole and with the reason, and never block those after them;
//! 2. the other records are converted to changes; the kind of the changed record comes from the batch itself, or from one read;
//! 3. changes that are not in the feed yet are appended;
//! 4. a [`Doorbell`] rings for the records, and the changes go to [`Subscriptions`], including those that an earlier delivery
//!    appended, since it may have ended in between: hints, which may be lost.
//!
//! What follows the feed, as the topic does, reads it: the consumer waits for nothing but the feed.
//!
//! The answer names the first record that was not completed. Everything from there on is delivered again, so the order of the
//! changes of a record is their commit order (docs/specification.md, Change feed).

mod appsync;
mod dead_letters;
mod delivery;
mod doorbell;
mod identities;
mod subscriptions;

use std::sync::Arc;

use aws_lambda_events::streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse};
use jiff::Timestamp;
use lambda_runtime::{LambdaEvent, service_fn};
use metrics::{counter, gauge, histogram};
use nameservice_dynamo::{lambda_config, variable};
use nameservice_feed::{Entry, Feed};
use nameservice_model::{Change, chain};
use nameservice_store::{Difference, Store};
use serde_json::Value;

pub use appsync::{HintError, Hints};
pub use dead_letters::{DeadLetters, QueueOfDeadLetters};
pub use delivery::Delivery;
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

/// Consumes the stream of one table into its feed. Cheap to clone.
#[derive(Clone)]
pub struct Consumer {
    store: Store,
    feed: Feed,
    doorbell: Option<Doorbell>,
    subscriptions: Option<Subscriptions>,
    dead_letters: Arc<dyn DeadLetters>,
}

/// The result of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumed {
    /// The sequence number of the first record that was not completed: it and all that follow must be delivered again.
    pub failed: Option<String>,
    /// How many changes of the batch are in the feed.
    pub changes: usize,
    /// How many records could not be read.
    pub unreadable: usize,
}

impl Consumer {
    /// Creates a consumer of the store's stream into this feed. Dead letters go into the feed's table.
    pub fn new(store: Store, feed: Feed) -> Self {
        Self { store, dead_letters: Arc::new(feed.clone()), feed, doorbell: None, subscriptions: None }
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

    /// Consumes a batch up to the first failure.
    pub async fn consume(&self, batch: &[Delivery]) -> Consumed {
        let (found, unreadable, mut end) = self.read(batch).await;
        let mut changes = Vec::new();
        let first_found = found.first().map(|found| found.delivery);
        let failure = match identities::identify(&self.store, &self.feed, batch, found).await {
            Ok(identified) => {
                // The delivery of each entry.
                let (origins, entries): (Vec<usize>, Vec<Entry>) = identified.into_iter().unzip();
                let appended = self.feed.append(&entries).await;
                changes = appended.changes;
                for (change, origin) in changes.iter().zip(&origins) {
                    let traceparent = batch[*origin].call().and_then(|call| call.traceparent());
                    tracing::debug!(position = change.position, traceparent, "in the feed");
                }
                appended.error.map(|error| (origins[changes.len()], error))
            }
            Err(error) => first_found.map(|first| (first, error)),
        };
        if let Some((delivery, error)) = failure {
            tracing::error!(error = chain(&error), appended = changes.len(), "a batch was appended only partly");
            end = end.min(delivery);
        }
        tokio::join!(self.ring(&changes), self.notify(&changes));
        measure(&changes, unreadable);
        let failed = batch.get(end).map(|delivery| delivery.sequence_number().to_owned());
        Consumed { failed, changes: changes.len(), unreadable }
    }

    /// Returns the changes of the records, the number of dead letters, and where to stop: at a record whose dead letter could not
    /// be stored.
    async fn read(&self, batch: &[Delivery]) -> (Vec<Found>, usize, usize) {
        let (mut found, mut unreadable) = (Vec::new(), 0);
        for (i, delivery) in batch.iter().enumerate() {
            match delivery.difference() {
                Ok(None) => {}
                // No route names it, and no list holds it (docs/specification.md, Names).
                Ok(Some(difference)) if !difference.address.is_well_formed() => {
                    let address = difference.address.as_str();
                    tracing::debug!(address, "left out: only Fluree allows this name");
                }
                Ok(Some(difference)) => found.push(Found { delivery: i, difference }),
                Err(reason) => {
                    tracing::error!(event_id = delivery.event_id(), reason, "a stream record cannot be read");
                    if let Err(error) = self.dead_letters.store(delivery, &reason).await {
                        let error = chain(error.as_ref());
                        tracing::error!(error, "a dead letter could not be stored: its record will be delivered again");
                        return (found, unreadable, i);
                    }
                    unreadable += 1;
                }
            }
        }
        (found, unreadable, batch.len())
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

/// Records the metrics of a batch: how much of it is in the feed, and the age of its oldest change.
fn measure(changes: &[Change], unreadable: usize) {
    if unreadable > 0 {
        counter!("nameservice_feed_dead_letters_total").increment(unreadable as u64);
    }
    let Some(last) = changes.iter().map(|change| change.position).max() else { return };
    gauge!("nameservice_feed_position").set(last as f64);
    histogram!("nameservice_feed_batch_changes").record(changes.len() as f64);
    if let Some(oldest) = changes.iter().map(|change| change.occurred_at).min() {
        let lag = Timestamp::now().duration_since(oldest).as_secs_f64();
        // Not negative, even if clocks differ.
        histogram!("nameservice_feed_lag_seconds").record(lag.max(0.0));
    }
}

/// A change of a delivery.
#[derive(Debug)]
pub(crate) struct Found {
    /// The index of the delivery in the batch.
    delivery: usize,
    difference: Difference,
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
    lambda_runtime::run(service_fn(async |event: LambdaEvent<Value>| {
        let answer = consumer.handle(event.payload).await;
        nameservice_lambda::write_metrics();
        Ok::<_, lambda_runtime::Error>(answer)
    }))
    .await
}

impl Consumer {
    /// Answers an event of the stream with the records that must be delivered again.
    ///
    /// Records are parsed one by one, so that an unreadable one becomes a dead letter and does not fail the batch.
    pub async fn handle(&self, event: Value) -> DynamoDbEventResponse {
        let records = match event {
            Value::Object(mut members) => members.remove("Records"),
            _ => None,
        };
        let Some(Value::Array(records)) = records else {
            tracing::error!("an event without `Records`: nothing to consume");
            return DynamoDbEventResponse::default();
        };
        let batch: Vec<Delivery> = records.into_iter().map(Delivery::from_event).collect();
        let consumed = self.consume(&batch).await;
        tracing::info!(records = batch.len(), changes = consumed.changes, unreadable = consumed.unreadable, "consumed");
        let mut response = DynamoDbEventResponse::default();
        response.batch_item_failures.extend(consumed.failed.map(|sequence_number| {
            let mut failure = DynamoDbBatchItemFailure::default();
            failure.item_identifier = Some(sequence_number);
            failure
        }));
        response
    }
}
