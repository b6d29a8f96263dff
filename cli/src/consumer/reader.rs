//! The loop that reads shards, delivers what it finds, and saves checkpoints.

use std::{
    collections::{HashMap, HashSet},
    fmt::Debug,
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodbstreams::{
    error::{ProvideErrorMetadata, SdkError},
    types::{AttributeValue as StreamValue, Record, Shard as Listed, ShardIteratorType},
};
use jiff::Timestamp;
use nameservice_feed::{Checkpoint, Feed};
use nameservice_model::{BoxError, Error as StoreError, chain};
use nameservice_store::StreamRecord;
use stream_consumer::{Consumer, Delivery};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::Instrument as _;

use super::{
    NO_STREAM_PAUSE, Nudge, Source, no_stream,
    pace::{FIRST_PAUSE, LONGEST_PAUSE, Pace, Pauses, Rest, Rhythm},
    shards::{Shard, Shards, State, resumed},
};
use crate::traces::Consuming;

/// How many records are asked for in one request: ten transactions of the feed.
const RECORDS_PER_READ: i32 = 980;
/// How often checkpoints are saved.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// How often the stream is asked for shards that it did not have before.
const LIST_EVERY: Duration = Duration::from_secs(60);
/// How often the stream is asked for shards while one has ended whose children are not listed yet.
const LIST_CHILDREN_EVERY: Duration = Duration::from_secs(1);
/// How long a stream keeps its records.
const RECORDS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// A stream in AWS allows five reads per second of each shard.
const THROTTLED_PAUSE: Duration = Duration::from_millis(250);

/// The reason why reading was interrupted.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    /// A request to the stream failed.
    #[error("the stream cannot be read")]
    Stream(#[source] BoxError),
    /// A checkpoint cannot be loaded or saved.
    #[error("the checkpoint of the stream cannot be read or written")]
    Checkpoint(#[from] StoreError),
    /// The table has no stream.
    #[error("the table has no stream: `nameservice init` reports what else it lacks")]
    NoStream,
    /// The table has another stream than before.
    #[error("the table's stream was recreated")]
    OtherStream,
    /// The consumer was stopped while a batch was rejected.
    #[error("stopped before a batch was taken")]
    Stopped,
}

pub(super) struct Reader {
    pub(super) source: Source,
    pub(super) consumer: Consumer,
    pub(super) feed: Feed,
    pub(super) pace: Pace,
    pub(super) nudge: Nudge,
    pub(super) stopping: watch::Receiver<bool>,
}

impl Reader {
    pub(super) async fn run(self) {
        let mut pauses = Pauses::default();
        let mut reported = None;
        loop {
            let begun = Instant::now();
            let error = match self.follow().await {
                Ok(()) => return,
                Err(error) => error,
            };
            if *self.stopping.borrow() {
                tracing::warn!(error = chain(&error), "the stream was not read to its end: the next start continues");
                return;
            }
            // A failure after a long time without one is a new failure.
            if begun.elapsed() > 2 * LONGEST_PAUSE {
                pauses = Pauses::default();
                reported = None;
            }
            let pause = match error {
                Interrupted::NoStream => {
                    self.feed.set_outage(Some(no_stream(&self.source.table)));
                    NO_STREAM_PAUSE
                }
                _ => pauses.next(),
            };
            let error = chain(&error);
            // The same error is not reported again.
            if reported.as_ref() != Some(&error) {
                tracing::error!(error, "the change feed has stopped; retrying in {pause:?}");
                reported = Some(error);
            }
            self.pause(pause).await;
        }
    }

    /// Reads until it is stopped and nothing is left.
    async fn follow(&self) -> Result<(), Interrupted> {
        let stream = self.stream().await?;
        self.feed.set_outage(None);
        let mut shards = self.resume(&stream).await?;
        let (mut listed, mut saved) = (Instant::now(), Instant::now());
        let mut rhythm = Rhythm::new(self.pace);
        loop {
            let begun = Instant::now();
            let stopping = *self.stopping.borrow();
            let mut records = 0;
            let reading: Vec<String> =
                shards.iter().filter(|(_, shard)| shard.state == State::Begun).map(|(id, _)| id.clone()).collect();
            for id in reading {
                if let Some(shard) = shards.get_mut(&id) {
                    records += self.read(&stream, &id, shard).await?;
                }
            }
            let mut found = records > 0;
            let has_ended = shards.values().any(|shard| shard.state == State::Ended);
            if listed.elapsed() >= if has_ended { LIST_CHILDREN_EVERY } else { LIST_EVERY } {
                listed = Instant::now();
                found |= self.advance(&stream, &mut shards).await?;
                if !found && self.stream().await? != stream {
                    self.save(&stream, &mut shards).await?;
                    return Err(Interrupted::OtherStream);
                }
            }
            let done = stopping && !found;
            if done || saved.elapsed() >= SAVE_EVERY {
                saved = Instant::now();
                self.save(&stream, &mut shards).await?;
            }
            if done {
                return Ok(());
            }
            let records = if found { records.max(1) } else { 0 };
            if let Some(rest) = rhythm.after(records, begun.elapsed()).filter(|_| !stopping || !found) {
                self.rest(rest).await;
            }
        }
    }

    /// Waits until there may be something to do, or for the given time.
    async fn pause(&self, at_most: Duration) {
        self.rest(Rest { length: at_most, nudged: self.pace.nudged }).await;
    }

    async fn rest(&self, rest: Rest) {
        let at_most = rest.length;
        let mut stopping = self.stopping.clone();
        if *stopping.borrow_and_update() {
            // While stopping, pauses are short: the round should be the last one.
            return sleep(at_most.min(FIRST_PAUSE)).await;
        }
        tokio::select! {
            () = sleep(at_most) => {}
            () = self.nudge.taken(), if rest.nudged => {}
            _ = stopping.changed() => {}
        }
    }

    async fn stream(&self) -> Result<String, Interrupted> {
        let described = self.source.tables.describe_table().table_name(&self.source.table).send().await;
        let table = described.map_err(|error| Interrupted::Stream(error.into()))?.table;
        let table = table.ok_or(Interrupted::NoStream)?;
        // A stream that was switched off counts, too: its records stay for a day.
        table.latest_stream_arn.ok_or(Interrupted::NoStream)
    }

    async fn list(&self, stream: &str) -> Result<Vec<Listed>, Interrupted> {
        let mut listed = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let request = self.source.streams.describe_stream().stream_arn(stream).set_exclusive_start_shard_id(after);
            let described = request.send().await.map_err(|error| Interrupted::Stream(error.into()))?;
            let Some(description) = described.stream_description else { return Ok(listed) };
            listed.extend(description.shards.unwrap_or_default());
            match description.last_evaluated_shard_id {
                Some(last) => after = Some(last),
                None => return Ok(listed),
            }
        }
    }

    /// Returns the shards of the stream with their progress, and begins those without a checkpoint.
    async fn resume(&self, stream: &str) -> Result<Shards, Interrupted> {
        let known = self.feed.checkpoints().await?;
        let listed = self.list(stream).await?;
        let kept_since = Timestamp::now().checked_sub(RECORDS_KEPT).ok();
        let (mut shards, gap) = resumed(stream, &known, &listed, kept_since);
        if let Some(reason) = gap {
            self.begin_epoch(&reason).await?;
            for checkpoint in known.iter().filter(|checkpoint| !shards.contains_key(&checkpoint.shard)) {
                self.feed.remove_checkpoint(&checkpoint.shard).await?;
            }
            for (id, shard) in shards.iter_mut().filter(|(_, shard)| shard.state != State::Waiting) {
                self.save_shard(stream, id, shard).await?;
            }
        }
        self.begin_ready(stream, &mut shards).await?;
        Ok(shards)
    }

    /// Looks for new shards and for children of those that have ended. True if any was begun.
    async fn advance(&self, stream: &str, shards: &mut Shards) -> Result<bool, Interrupted> {
        let listed = self.list(stream).await?;
        let names: HashSet<&str> = listed.iter().filter_map(|shard| shard.shard_id.as_deref()).collect();
        // A finished shard that is no longer listed is forgotten.
        shards.retain(|id, shard| shard.state != State::Finished || names.contains(id.as_str()));
        for shard in &listed {
            if let Some(id) = shard.shard_id.as_ref().filter(|id| !shards.contains_key(*id)) {
                shards.insert(id.clone(), Shard { parent: shard.parent_shard_id.clone(), ..Shard::default() });
            }
        }
        let begun = self.begin_ready(stream, shards).await?;
        let parents: HashSet<String> = shards.values().filter_map(|shard| shard.parent.clone()).collect();
        for (id, shard) in shards.iter_mut() {
            // Only after the children have begun, so that a process that ends in between still finds them.
            if shard.state == State::Ended && parents.contains(id) {
                shard.state = State::Finished;
                self.save_shard(stream, id, shard).await?;
            }
        }
        Ok(begun)
    }

    /// Begins every shard whose parent has ended. True if there was one.
    async fn begin_ready(&self, stream: &str, shards: &mut Shards) -> Result<bool, Interrupted> {
        let open: HashSet<String> = shards
            .iter()
            .filter(|(_, shard)| matches!(shard.state, State::Waiting | State::Begun))
            .map(|(id, _)| id.clone())
            .collect();
        let mut begun = false;
        for (id, shard) in shards.iter_mut() {
            let is_ready = shard.parent.as_ref().is_none_or(|parent| !open.contains(parent));
            if shard.state == State::Waiting && is_ready {
                shard.state = State::Begun;
                self.save_shard(stream, id, shard).await?;
                begun = true;
            }
        }
        Ok(begun)
    }

    /// Reads a shard once. Returns how many records were found; 1 if it must be read again immediately.
    async fn read(&self, stream: &str, id: &str, shard: &mut Shard) -> Result<usize, Interrupted> {
        let iterator = match shard.iterator.take() {
            Some(iterator) => iterator,
            None => match self.iterator(stream, id, shard).await? {
                Some(iterator) => iterator,
                None => return Ok(1),
            },
        };
        let request = self.source.streams.get_records().shard_iterator(&iterator).limit(RECORDS_PER_READ);
        let output = match request.send().await {
            Ok(output) => output,
            Err(error) => {
                return match error.code() {
                    // An iterator expires after fifteen minutes: the next read requests a new one.
                    Some("ExpiredIteratorException") => Ok(1),
                    Some("TrimmedDataAccessException") => self.handle_loss(id, shard).await.map(|()| 1),
                    Some(
                        "LimitExceededException" | "ThrottlingException" | "ProvisionedThroughputExceededException",
                    ) => {
                        shard.iterator = Some(iterator);
                        self.pause(THROTTLED_PAUSE).await;
                        Ok(0)
                    }
                    _ => Err(stream_error(error)),
                };
            }
        };
        let records = output.records.unwrap_or_default();
        let found = records.len();
        let batch: Vec<Delivery> = records.into_iter().map(|record| delivery(id, record)).collect();
        self.deliver(&batch, shard).await?;
        match output.next_shard_iterator {
            Some(next) => shard.iterator = Some(next),
            None => shard.state = State::Ended,
        }
        Ok(found)
    }

    /// Requests an iterator; `None` if the shard has to be read from its beginning.
    async fn iterator(&self, stream: &str, id: &str, shard: &mut Shard) -> Result<Option<String>, Interrupted> {
        let kind = match shard.passed {
            Some(_) => ShardIteratorType::AfterSequenceNumber,
            None => ShardIteratorType::TrimHorizon,
        };
        let request = self.source.streams.get_shard_iterator().stream_arn(stream).shard_id(id);
        let request = request.shard_iterator_type(kind).set_sequence_number(shard.passed.clone());
        match request.send().await {
            Ok(output) => match output.shard_iterator {
                Some(iterator) => Ok(Some(iterator)),
                None => Err(Interrupted::Stream("the stream returned no iterator".into())),
            },
            Err(error) if error.code() == Some("TrimmedDataAccessException") => {
                self.handle_loss(id, shard).await?;
                Ok(None)
            }
            Err(error) => Err(stream_error(error)),
        }
    }

    /// Handles the loss of the records after the last one that was passed. (If none was passed, only an iterator has become
    /// too old: DynamoDB Local reports that for one from before there were any records.)
    async fn handle_loss(&self, id: &str, shard: &mut Shard) -> Result<(), Interrupted> {
        if shard.passed.is_none() {
            return Ok(());
        }
        self.begin_epoch(&format!("records of the shard {id} were dropped before they were read")).await?;
        shard.iterator = None;
        shard.passed = None;
        Ok(())
    }

    async fn begin_epoch(&self, reason: &str) -> Result<(), Interrupted> {
        let oldest = self.feed.begin_epoch().await?;
        tracing::error!(
            reason,
            oldest,
            "changes were lost before they came into the feed, which begins again: readers must start again from a \
             snapshot"
        );
        Ok(())
    }

    /// Delivers a batch until all of it is consumed, without a limit of attempts, since later records must not overtake it.
    async fn deliver(&self, batch: &[Delivery], shard: &mut Shard) -> Result<(), Interrupted> {
        let mut left = batch;
        let mut pauses = Pauses::default();
        while !left.is_empty() {
            let consuming = Consuming::begin(left);
            let failed = self.consumer.consume(left).instrument(consuming.batch.clone()).await.failed;
            drop(consuming);
            let taken = failed.as_deref().map_or(left.len(), |failed| {
                left.iter().position(|delivery| delivery.sequence_number() == failed).unwrap_or_default()
            });
            if let Some(last) = left[..taken].last() {
                shard.passed = Some(last.sequence_number().to_owned());
                pauses = Pauses::default();
            }
            left = &left[taken..];
            if let Some(next) = left.first() {
                if *self.stopping.borrow() {
                    return Err(Interrupted::Stopped);
                }
                let pause = pauses.next();
                let (event_id, waiting) = (next.event_id(), left.len());
                tracing::warn!(event_id, waiting, "stream records were not consumed; retrying in {pause:?}");
                self.pause_before_retry(pause).await;
            }
        }
        Ok(())
    }

    /// Pauses without regard to nudges: a new write does not make a rejected record succeed.
    async fn pause_before_retry(&self, pause: Duration) {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = sleep(pause) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }

    async fn save(&self, stream: &str, shards: &mut Shards) -> Result<(), Interrupted> {
        for (id, shard) in shards.iter_mut().filter(|(_, shard)| shard.saved != shard.passed) {
            self.save_shard(stream, id, shard).await?;
        }
        Ok(())
    }

    async fn save_shard(&self, stream: &str, id: &str, shard: &mut Shard) -> Result<(), Interrupted> {
        let checkpoint = Checkpoint {
            stream: stream.to_owned(),
            shard: id.to_owned(),
            passed: shard.passed.clone(),
            finished: shard.state == State::Finished,
            saved_at: Timestamp::now(),
        };
        self.feed.set_checkpoint(&checkpoint).await?;
        shard.saved.clone_from(&shard.passed);
        Ok(())
    }
}

fn stream_error<E, R>(error: SdkError<E, R>) -> Interrupted
where
    E: std::error::Error + Send + Sync + 'static,
    R: Debug + Send + Sync + 'static,
{
    Interrupted::Stream(error.into())
}

fn delivery(shard: &str, record: Record) -> Delivery {
    let change = record.dynamodb;
    let sequence_number = change.as_ref().and_then(|change| change.sequence_number.clone()).unwrap_or_default();
    let written_at = change.as_ref().and_then(|change| change.approximate_creation_date_time);
    let written_at = written_at.and_then(|time| Timestamp::from_second(time.secs()).ok());
    let (keys, old, new) =
        change.map_or_else(Default::default, |change| (change.keys, change.old_image, change.new_image));
    Delivery::from_stream(StreamRecord {
        event_id: record.event_id.unwrap_or_else(|| format!("{shard}:{sequence_number}")),
        sequence_number,
        written_at: written_at.unwrap_or(Timestamp::UNIX_EPOCH),
        keys: item(keys),
        old: item(old),
        new: item(new),
    })
}

/// Converts an item to the types of the other client; empty if there is none.
fn item(image: Option<HashMap<String, StreamValue>>) -> HashMap<String, AttributeValue> {
    serde_dynamo::Item::from(image.unwrap_or_default()).into()
}
