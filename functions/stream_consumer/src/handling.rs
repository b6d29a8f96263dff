//! Handles events of Lambda, among them those with a record that ends the function.
//!
//! After an invocation without an answer the mapping bisects the batch, until the record is alone. Such a record would be delivered for as
//! long as the stream keeps it, and hold up its shard. So a record
//! that is alone, and older than a minute, is tried under a mark in the feed's table, which is withdrawn when the invocation is
//! answered, whatever the answer is. After three tries without an answer the record becomes a dead letter, and a change without a
//! payload; and if that ends the function too, a dead letter alone. A function that ends at every record passes over one an hour.

use std::{
    collections::BTreeMap,
    sync::{
        MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::streams::{DynamoDbBatchItemFailure, DynamoDbEventResponse};
use nameservice_feed::{Tried, Tries};
use nameservice_model::{BoxError, ChangeFeed as _, chain};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{Consumed, Consumer, Delivery, Extent};

/// The age from which a record that is alone is tried under a mark: younger ones are alone because few changes are written.
const MARKED_FROM: Duration = Duration::from_secs(60);
/// After how many tries without an answer a record is passed over.
const TRIES: u32 = 3;
/// After this time a record is passed over although nothing shows that the function works since the last one was: one that ends at every
/// record, as a broken release does, would pass over all of them.
const PASSED_AFTER: Duration = Duration::from_secs(3600);
/// How long the withdrawal of a mark may take: the invocation is to be answered.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(5);

impl Consumer {
    /// Answers an event of the stream with the records that must be delivered again.
    ///
    /// Records are parsed one by one, so that an unreadable one becomes a dead letter and does not fail the batch. A record that ended
    /// the function three times while it was alone and older than a minute becomes one, too.
    pub async fn handle(&self, event: Box<RawValue>) -> DynamoDbEventResponse {
        self.handle_until(event, None).await
    }

    /// Answers an event as [`handle`](Self::handle) does, at this time at the latest: then what is left of it must be delivered again. An invocation
    /// that takes too long because of others ends in an answer, and is not taken for one that a record has ended.
    pub async fn handle_until(&self, event: Box<RawValue>, until: Option<Instant>) -> DynamoDbEventResponse {
        let records = serde_json::from_str::<BTreeMap<String, &RawValue>>(event.get())
            .ok()
            .and_then(|members| serde_json::from_str::<Vec<Box<RawValue>>>(members.get("Records")?.get()).ok());
        let Some(records) = records else {
            tracing::error!("an event without `Records`: nothing to consume");
            return DynamoDbEventResponse::default();
        };
        drop(event);
        let batch: Vec<Delivery> = records.into_iter().map(Delivery::from_event).collect();
        let consumed = match &batch[..] {
            [alone] if self.is_marked(alone) => self.try_alone(alone, until).await,
            batch => self.consume_until(batch, Extent::Whole, until).await,
        };
        let consumed = consumed.measured();
        tracing::info!(
            records = batch.len(),
            changes = consumed.changes,
            dead_letters = consumed.dead_letters,
            "consumed"
        );
        let mut response = DynamoDbEventResponse::default();
        response.batch_item_failures.extend(consumed.failed.map(|sequence_number| {
            let mut failure = DynamoDbBatchItemFailure::default();
            failure.item_identifier = Some(sequence_number);
            failure
        }));
        response
    }

    async fn consume_until(&self, batch: &[Delivery], extent: Extent, until: Option<Instant>) -> Consumed {
        let completed = AtomicUsize::new(0);
        let consuming = self.consume_extent(batch, extent, &completed);
        let Some(until) = until else { return consuming.await };
        timeout_at(until, consuming).await.unwrap_or_else(|_| {
            let completed = completed.load(Ordering::Relaxed);
            tracing::error!(completed, "the time of the invocation is over: the rest of its batch is delivered again");
            Consumed::nothing_of(&batch[completed..])
        })
    }

    /// Returns whether a record that is alone is tried under a mark. One that does not say how old it is may be old.
    fn is_marked(&self, alone: &Delivery) -> bool {
        alone.written_at().is_none_or(|written_at| self.feed.age(written_at) > MARKED_FROM)
    }

    async fn try_alone(&self, alone: &Delivery, until: Option<Instant>) -> Consumed {
        let batch = std::slice::from_ref(alone);
        let (tries, answered, extent) = match self.begin_try(alone).await {
            Ok(begun) => begun,
            Err(error) => {
                let error = chain(error.as_ref());
                tracing::error!(error, "the mark of a try could not be written: its record is delivered again");
                return Consumed::nothing_of(batch);
            }
        };
        let consumed = self.consume_until(batch, extent, until).await;
        self.end_try(&tries, answered).await;
        consumed
    }

    /// Marks a try. Returns the mark that replaces it when the try is answered, and what of the record is to be read.
    async fn begin_try(&self, alone: &Delivery) -> Result<(Tries, Tried, Extent), BoxError> {
        let tries = self.feed.tries(alone.event_id(), alone.json()?.get());
        let unsaved = self.unsaved().get(tries.name()).copied();
        let before = match unsaved {
            Some(tried) => tried,
            None => tries.tried().await?,
        };
        let is_passed_over = before.unanswered >= TRIES && tries.pass_over(before, PASSED_AFTER).await?;
        let (during, answered, extent) = match (is_passed_over, before.unanswered) {
            // The count stays, so that the record need not end the function again if it is delivered again.
            (true, TRIES) => (TRIES + 1, TRIES, Extent::WithoutPayload),
            (true, unanswered) => (unanswered, unanswered, Extent::Nothing),
            (false, TRIES..) => {
                tracing::error!("the function ends at one record after the other: this one is not passed over yet");
                (TRIES, 0, Extent::Whole)
            }
            (false, unanswered) => (unanswered + 1, 0, Extent::Whole),
        };
        let end = self.feed.position().await?;
        // What is written may be written although its answer is lost.
        self.unsaved().insert(tries.name().to_owned(), before);
        tries.save(Tried { unanswered: during, end }).await?;
        self.unsaved().remove(tries.name());
        Ok((tries, Tried { unanswered: answered, end }, extent))
    }

    /// Replaces the mark of a try that has ended. If that fails, this process remembers it.
    async fn end_try(&self, tries: &Tries, answered: Tried) {
        let saved = timeout(WITHDRAWN_WITHIN, tries.save(answered)).await;
        let error = match saved {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error),
            Err(elapsed) => chain(&elapsed),
        };
        tracing::warn!(error, "the mark of a try that has ended could not be withdrawn");
        self.unsaved().insert(tries.name().to_owned(), answered);
    }

    fn unsaved(&self) -> MutexGuard<'_, BTreeMap<String, Tried>> {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
