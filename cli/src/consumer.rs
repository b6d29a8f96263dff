//! Reads the table's stream and hands it to the consumer of changes: what an event source mapping does for the
//! function, done inside `serve`.
//!
//! Every shard is read from its beginning, or from where the last process came to, and parents before their children.
//! How far it was read is saved after the changes are in the feed, so a process that is killed at any moment repeats a
//! little, and what is repeated is found in the feed. For the same reason a second consumer of one table does no harm.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodbstreams::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    types::{AttributeValue as StreamValue, Record, Shard as Listed, ShardIteratorType},
};
use jiff::Timestamp;
use nameservice_feed::{Checkpoint, Feed, MAX_TRANSACTION};
use nameservice_model::{BoxError, ChangeFeed, Error as StoreError, chain};
use nameservice_store::{Store, StreamRecord};
use stream_consumer::{Consumer, Delivery};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tracing::Instrument as _;

use crate::traces::Consuming;

/// How many records are asked for at once: ten transactions of the feed.
const RECORDS_PER_READ: i32 = 980;
/// How often it is saved how far the stream was read.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// How often the stream is asked for shards that it did not have before.
const LIST_EVERY: Duration = Duration::from_secs(60);
/// The same while one has ended whose children are not listed yet.
const LIST_CHILDREN_EVERY: Duration = Duration::from_secs(1);
/// How long a stream keeps its records.
const RECORDS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// How long to wait before a table without a stream is checked again.
const NO_STREAM_PAUSE: Duration = Duration::from_secs(30);
/// Pauses between attempts at what does not succeed: the first, and the longest. There is no last one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A stream in AWS takes five reads a second from each shard.
const THROTTLED_PAUSE: Duration = Duration::from_millis(250);
/// How long the rest of the stream may take once the consumer is stopping.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Where stream records come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// Knows which stream the table has.
    pub tables: aws_sdk_dynamodb::Client,
    /// Reads it.
    pub streams: Client,
    /// The table.
    pub table: String,
}

/// How eagerly the stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The pause after a read that has found nothing.
    pub poll: Duration,
    /// The longest that it becomes while nothing is found.
    pub max_idle: Duration,
    /// Whether a [`Nudge`] ends that pause.
    pub nudged: bool,
    /// Whether the engine that is read serves the writers too.
    pub shared: bool,
}

impl Pace {
    /// For an engine on this machine or near it.
    pub const NEAR: Self = Self { poll: Duration::from_millis(250), max_idle: MAX_IDLE, nudged: true, shared: true };
    /// For AWS, where each read counts against a limit of five a second.
    pub const AWS: Self =
        Self { poll: Duration::from_millis(250), max_idle: Duration::from_secs(1), nudged: false, shared: false };
}

/// The pause after a round that has found little is so many times as long as the round, within these bounds: on an engine
/// that serves writers too, reading shall cost a small part of what they do.
const REST_FACTOR: u32 = 4;
const MIN_REST: Duration = Duration::from_millis(10);
const MAX_REST: Duration = Duration::from_millis(250);
/// A round that has found as much as fits a transaction of the feed is worth the next one at once.
const FULL: usize = MAX_TRANSACTION;
/// How long the pause between reads that find nothing becomes.
const MAX_IDLE: Duration = Duration::from_secs(2);

/// When the stream is read next: what comes quickly is read together, and what does not come is looked for seldom.
#[derive(Debug)]
struct Rhythm {
    pace: Pace,
    idle: Duration,
}

/// A pause between two rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rest {
    length: Duration,
    /// Whether a [`Nudge`] ends it.
    nudged: bool,
}

impl Rhythm {
    fn new(pace: Pace) -> Self {
        Self { pace, idle: pace.poll }
    }

    /// The pause after a round that has found so many records in so much time; `None` for none.
    fn after(&mut self, records: usize, took: Duration) -> Option<Rest> {
        if records == 0 {
            let length = self.idle;
            self.idle = (self.idle + self.pace.poll / 4).min(self.pace.max_idle);
            return Some(Rest { length, nudged: self.pace.nudged });
        }
        self.idle = self.pace.poll;
        let is_shared = self.pace.shared && records < FULL;
        is_shared.then(|| Rest { length: (took * REST_FACTOR).clamp(MIN_REST, MAX_REST), nudged: false })
    }
}

/// Notifies the consumer of a write, so that it need not wait for the next poll.
#[derive(Clone, Debug, Default)]
pub struct Nudge(Arc<Notify>);

impl Nudge {
    /// Ends the consumer's pause, or spares it the next one.
    pub fn give(&self) {
        self.0.notify_one();
    }
}

/// A running consumer. It stops on request, or with the runtime.
#[derive(Debug)]
pub struct Running {
    nudge: Nudge,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// Returns what notifies it of writes.
    pub fn nudge(&self) -> Nudge {
        self.nudge.clone()
    }

    /// Reads what is in the stream now, for five seconds at most, saves how far it came, and stops.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        let mut task = self.task;
        if timeout(DRAIN_TIMEOUT, &mut task).await.is_err() {
            tracing::warn!("the stream was not read to its end in {DRAIN_TIMEOUT:?}: the next start continues there");
            task.abort();
            // Nothing of it runs any more when this returns.
            let _ = task.await;
        }
    }
}

/// Starts to read a table's stream into its feed.
pub fn start(source: Source, store: Store, feed: Feed, pace: Pace) -> Running {
    let nudge = Nudge::default();
    let (stop, stopping) = watch::channel(false);
    let consumer = Consumer::new(store, feed.clone());
    let reader = Reader { source, consumer, feed, pace, nudge: nudge.clone(), stopping };
    Running { nudge, stop, task: tokio::spawn(reader.run()) }
}

/// Returns the sentence about a table whose changes nobody can follow.
fn no_stream(table: &str) -> String {
    format!(
        "the table {table} has no stream, so its changes cannot be followed. Enable one with new and old images: \
         aws dynamodb update-table --table-name {table} --stream-specification \
         StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
    )
}

/// Says in the feed whether the table lacks a stream, for a process that leaves it to another consumer. Returns whether it
/// does. A table that cannot be described is not said to lack one.
pub async fn name_missing_stream(source: &Source, feed: &Feed) -> bool {
    let described = match source.tables.describe_table().table_name(&source.table).send().await {
        Ok(described) => described.table,
        Err(error) => {
            tracing::warn!(error = chain(&error), "it is unknown whether the table has a stream");
            return feed.outage().is_some();
        }
    };
    let stream = described.and_then(|table| table.stream_specification);
    let missing = !stream.is_some_and(|stream| stream.stream_enabled);
    feed.set_outage(missing.then(|| no_stream(&source.table)));
    missing
}

/// Waits until a table that lacks a stream has one, and then says so in the feed.
pub async fn wait_for_stream(source: Source, feed: Feed) {
    while name_missing_stream(&source, &feed).await {
        sleep(NO_STREAM_PAUSE).await;
    }
}

/// Why reading was interrupted.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    /// A request to the stream was not answered as wanted.
    #[error("the stream cannot be read")]
    Stream(#[source] BoxError),
    /// How far it was read cannot be loaded or saved.
    #[error("the checkpoint of the stream cannot be read or written")]
    Checkpoint(#[from] StoreError),
    /// The table has no stream.
    #[error("the table has no stream: `nameservice init` reports what else it lacks")]
    NoStream,
    /// The table has another stream than before.
    #[error("the table's stream was made anew")]
    OtherStream,
    /// The consumer was stopped while a batch was rejected.
    #[error("stopped before a batch was taken")]
    Stopped,
}

struct Reader {
    source: Source,
    consumer: Consumer,
    feed: Feed,
    pace: Pace,
    nudge: Nudge,
    stopping: watch::Receiver<bool>,
}

/// A shard on its way from the first record to the last.
#[derive(Debug, Default)]
struct Shard {
    parent: Option<String>,
    state: State,
    /// Where to read on; `None` before the first read, and after an iterator has expired.
    iterator: Option<String>,
    /// The last record that was passed.
    passed: Option<String>,
    /// `passed` as it was saved.
    saved: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Its parent has not been read to the end.
    #[default]
    Waiting,
    /// It is being read.
    Begun,
    /// It has no more records; its children, which are to be begun, may not be listed yet.
    Ended,
    /// It has ended, and its children have begun.
    Finished,
}

impl Reader {
    async fn run(self) {
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
            // Trouble after a good while is new trouble.
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
            // The same again is no news.
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

    /// Waits, but not for longer than until there is something to do.
    async fn pause(&self, at_most: Duration) {
        self.rest(Rest { length: at_most, nudged: self.pace.nudged }).await;
    }

    async fn rest(&self, rest: Rest) {
        let at_most = rest.length;
        let mut stopping = self.stopping.clone();
        if *stopping.borrow_and_update() {
            // Every round is the last one, unless something keeps it from being that.
            return sleep(at_most.min(FIRST_PAUSE)).await;
        }
        tokio::select! {
            () = sleep(at_most) => {}
            () = self.nudge.0.notified(), if rest.nudged => {}
            _ = stopping.changed() => {}
        }
    }

    async fn stream(&self) -> Result<String, Interrupted> {
        let described = self.source.tables.describe_table().table_name(&self.source.table).send().await;
        let table = described.map_err(|error| Interrupted::Stream(error.into()))?.table;
        let table = table.ok_or(Interrupted::NoStream)?;
        // Also one that was switched off: its records stay for a day.
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

    /// The shards of the stream, each as far as it was read; those without a past are begun.
    async fn resume(&self, stream: &str) -> Result<Shards, Interrupted> {
        let known = self.feed.checkpoints().await?;
        let listed = self.list(stream).await?;
        let kept_since = Timestamp::now().checked_sub(RECORDS_KEPT).ok();
        let (mut shards, outrun) = resumed(stream, &known, &listed, kept_since);
        if let Some(reason) = outrun {
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
        // What is over and is named no longer needs no memory.
        shards.retain(|id, shard| shard.state != State::Finished || names.contains(id.as_str()));
        for shard in &listed {
            if let Some(id) = shard.shard_id.as_ref().filter(|id| !shards.contains_key(*id)) {
                shards.insert(id.clone(), Shard { parent: shard.parent_shard_id.clone(), ..Shard::default() });
            }
        }
        let begun = self.begin_ready(stream, shards).await?;
        let parents: HashSet<String> = shards.values().filter_map(|shard| shard.parent.clone()).collect();
        for (id, shard) in shards.iter_mut() {
            // Only now: a process that ends in between still finds the way to the children.
            if shard.state == State::Ended && parents.contains(id) {
                shard.state = State::Finished;
                self.save_shard(stream, id, shard).await?;
            }
        }
        Ok(begun)
    }

    /// Begins every shard whose parent is over. True if there was one.
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

    /// Reads a shard once. Returns how many records it has found; 1 where it is to be read again at once.
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
                    // Fifteen minutes old: the next read asks for a new one.
                    Some("ExpiredIteratorException") => Ok(1),
                    Some("TrimmedDataAccessException") => self.outrun(id, shard).await.map(|()| 1),
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

    /// `None` where the shard has to be begun anew.
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
                None => Err(Interrupted::Stream("the stream gave no iterator".into())),
            },
            Err(error) if error.code() == Some("TrimmedDataAccessException") => {
                self.outrun(id, shard).await?;
                Ok(None)
            }
            Err(error) => Err(stream_error(error)),
        }
    }

    /// The records after the last one that was passed are gone. (Where none was, an iterator has only become too old:
    /// DynamoDB Local says so of one that was given before there were any records.)
    async fn outrun(&self, id: &str, shard: &mut Shard) -> Result<(), Interrupted> {
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
            "changes were lost before they came into the feed, which begins anew: readers must start again from a \
             snapshot"
        );
        Ok(())
    }

    /// Hands a batch over until all of it is taken: for ever, since what follows must not go before it.
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
                tracing::warn!(event_id, waiting, "stream records were not taken; again in {pause:?}");
                self.pause_before_retry(pause).await;
            }
        }
        Ok(())
    }

    /// Not cut short by nudges: what was written now is not what was missing.
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

/// By id.
type Shards = BTreeMap<String, Shard>;

/// The listed shards as far as they were read, and how it is known that some changes never will be, if it is. The stream
/// has all records since a time, or all that were not read.
fn resumed(
    stream: &str,
    known: &[Checkpoint],
    listed: &[Listed],
    kept_since: Option<Timestamp>,
) -> (Shards, Option<String>) {
    let known: HashMap<&str, &Checkpoint> =
        known.iter().map(|checkpoint| (checkpoint.shard.as_str(), checkpoint)).collect();
    let names: HashSet<&str> = listed.iter().filter_map(|shard| shard.shard_id.as_deref()).collect();
    let mut outrun = known.values().find(|checkpoint| checkpoint.stream != stream).map(|other| {
        format!("the table has another stream than the one that was read: {stream} instead of {}", other.stream)
    });
    let is_gone = |checkpoint: &&&Checkpoint| !checkpoint.finished && !names.contains(checkpoint.shard.as_str());
    if let Some(gone) = known.values().find(is_gone) {
        outrun.get_or_insert(format!("the shard {} is gone before it was read to its end", gone.shard));
    }
    // One that was passed by some records is asked for what follows them, and says so itself.
    let is_old = |checkpoint: &&&Checkpoint| {
        !checkpoint.finished
            && checkpoint.passed.is_none()
            && kept_since.is_some_and(|since| checkpoint.saved_at < since)
    };
    if let Some(old) = known.values().find(is_old) {
        outrun.get_or_insert(format!("the shard {} was begun longer ago than its records are kept", old.shard));
    }
    let mut shards = Shards::new();
    for shard in listed {
        let Some(id) = &shard.shard_id else { continue };
        let parent = shard.parent_shard_id.clone();
        let past = known.get(id.as_str());
        let missed = |parent: &&String| !names.contains(parent.as_str()) && !known.contains_key(parent.as_str());
        if let (None, Some(parent)) = (past, parent.as_ref().filter(missed))
            && !known.is_empty()
        {
            outrun.get_or_insert(format!("the shard {parent}, which went before {id}, is gone and was never read"));
        }
        let state = match past {
            None => State::Waiting,
            Some(checkpoint) if checkpoint.finished => State::Finished,
            Some(_) => State::Begun,
        };
        let passed = past.and_then(|checkpoint| checkpoint.passed.clone());
        shards.insert(id.clone(), Shard { parent, state, iterator: None, saved: passed.clone(), passed });
    }
    (shards, outrun)
}

/// Growing pauses.
#[derive(Debug, Default)]
struct Pauses(u32);

impl Pauses {
    fn next(&mut self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.0.min(10)).min(LONGEST_PAUSE);
        self.0 += 1;
        pause
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

/// The same item in the types of the other client; empty where there is none.
fn item(image: Option<HashMap<String, StreamValue>>) -> HashMap<String, AttributeValue> {
    serde_dynamo::Item::from(image.unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(shards: &[(&str, Option<&str>)]) -> Vec<Listed> {
        let shard = |(id, parent): &(&str, Option<&str>)| {
            Listed::builder().shard_id(*id).set_parent_shard_id(parent.map(str::to_owned)).build()
        };
        shards.iter().map(shard).collect()
    }

    fn checkpoint(shard: &str, finished: bool) -> Checkpoint {
        let saved_at = Timestamp::UNIX_EPOCH;
        Checkpoint { stream: "s".into(), shard: shard.into(), passed: Some("7".into()), finished, saved_at }
    }

    #[test]
    fn a_busy_engine_is_read_in_large_batches_and_an_idle_one_seldom() {
        let mut rhythm = Rhythm::new(Pace::NEAR);
        let millis = Duration::from_millis;
        assert_eq!(rhythm.after(5, millis(8)), Some(Rest { length: millis(32), nudged: false }));
        assert_eq!(rhythm.after(5, millis(1)).unwrap().length, MIN_REST);
        assert_eq!(rhythm.after(5, millis(500)).unwrap().length, MAX_REST);
        assert_eq!(rhythm.after(FULL, millis(8)), None);
        let idle: Vec<_> = (0..40).filter_map(|_| rhythm.after(0, millis(2))).collect();
        assert!(idle.iter().all(|rest| rest.nudged) && idle.is_sorted_by_key(|rest| rest.length));
        assert_eq!((idle[0].length, idle[39].length), (millis(250), MAX_IDLE));
        rhythm.after(1, millis(2));
        assert_eq!(rhythm.after(0, millis(2)).unwrap().length, millis(250));
        // In AWS reading costs the writers nothing.
        assert_eq!(Rhythm::new(Pace::AWS).after(5, millis(8)), None);
    }

    #[test]
    fn shards_go_on_where_they_were_left_and_new_ones_wait_for_their_parents() {
        let known = [checkpoint("a", true), checkpoint("b", false)];
        let (shards, outrun) = resumed("s", &known, &listed(&[("b", Some("a")), ("c", Some("b")), ("d", None)]), None);
        assert_eq!(outrun, None);
        let shown: Vec<_> =
            shards.iter().map(|(id, shard)| (id.as_str(), shard.state, shard.passed.as_deref())).collect();
        let waits = State::Waiting;
        assert_eq!(shown, [("b", State::Begun, Some("7")), ("c", waits, None), ("d", waits, None)]);
    }

    #[test]
    fn what_was_lost_between_two_lives_of_a_consumer_is_noticed() {
        let unread = "a shard that was not read to its end is gone";
        let since = Some(Timestamp::from_second(1).unwrap());
        let unbegun = Checkpoint { passed: None, ..checkpoint("a", false) };
        let between = "a shard that came and went meanwhile was never read";
        for (known, now, lost) in [
            (vec![unbegun.clone()], listed(&[("a", None)]), Some("it is too old")),
            (vec![Checkpoint { saved_at: Timestamp::MAX, ..unbegun }], listed(&[("a", None)]), None),
            (vec![], listed(&[("b", Some("a"))]), None),
            (vec![checkpoint("a", true)], listed(&[("b", Some("a"))]), None),
            (vec![checkpoint("a", false)], listed(&[("a", None), ("b", Some("a"))]), None),
            (vec![checkpoint("a", false)], listed(&[("b", Some("a"))]), Some(unread)),
            (vec![checkpoint("a", true)], listed(&[("c", Some("b"))]), Some(between)),
            (vec![Checkpoint { stream: "t".into(), ..checkpoint("a", true) }], listed(&[]), Some("another stream")),
        ] {
            let (_, outrun) = resumed("s", &known, &now, since);
            assert_eq!(outrun.is_some(), lost.is_some(), "{lost:?} {outrun:?}");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut pauses = Pauses::default();
        let first: Vec<_> = (0..3).map(|_| pauses.next().as_millis()).collect();
        assert_eq!(first, [100, 200, 400]);
        assert_eq!((0..50).map(|_| pauses.next()).max(), Some(LONGEST_PAUSE));
    }
}
