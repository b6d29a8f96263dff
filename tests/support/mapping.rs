//! An event source mapping of Lambda for a DynamoDB stream, simulated: how records reach a function, and what becomes
//! of them when it fails. No engine for one machine does this as Lambda does.
//!
//! What it knows is from Lambda's developer guide: batches by shard, in order; a failed batch holds up its shard, is
//! delivered again, in halves where that is asked for, and dropped into the failure destination when its retries or its
//! age are used up; a partial answer moves the checkpoint to the lowest sequence number that it names, and an answer
//! that names nothing usable fails the whole batch; children of a split shard wait for their parent; with a
//! parallelization factor a shard has several lanes, and all records of a partition key use the same.
//! (<https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html>,
//! <https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html>)
//!
//! What happens is drawn from a seed: which lanes run together, how large their batches are, and how each invocation
//! ends. The same seed draws the same.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    future::poll_fn,
    hash::{DefaultHasher, Hash, Hasher},
    pin::pin,
    task::Poll,
};

use futures_util::future::join_all;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use stream_consumer::{Consumer, Delivery};
use tokio::task::JoinHandle;

/// A mapping's settings, under the names of its API.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The most records of one batch.
    pub batch_size: usize,
    /// How many batches of one shard may be under way at the same time.
    pub parallelization_factor: usize,
    /// Whether the answer of the function is looked at.
    pub report_batch_item_failures: bool,
    /// Whether a failed batch is halved.
    pub bisect_batch_on_function_error: bool,
    /// After how many retries a batch is dropped; -1: never.
    pub maximum_retry_attempts: i64,
    /// At which age a record is dropped; -1: never.
    pub maximum_record_age_in_seconds: i64,
    /// Patterns of records that are delivered, one of which must match; empty: all are.
    pub filters: Vec<Value>,
}

/// As the product's mapping is: nothing is ever dropped.
impl Default for Settings {
    fn default() -> Self {
        Self {
            batch_size: 100,
            parallelization_factor: 1,
            report_batch_item_failures: true,
            bisect_batch_on_function_error: true,
            maximum_retry_attempts: -1,
            maximum_record_age_in_seconds: -1,
            filters: vec![json!({
                "dynamodb": { "Keys": { "sk": { "S": ["meta", "head", "index", "status", "config"] } } }
            })],
        }
    }
}

/// How an invocation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The function answers, and its answer arrives.
    Answers,
    /// It does its work; the answer does not arrive.
    TimesOutAfterwards,
    /// It is gone after this many steps: polls of its future.
    Dies(usize),
    /// It is considered dead while it continues beside the next delivery.
    LivesOn,
}

/// How likely each fate is, in percent; the rest answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Odds {
    /// [`Fate::TimesOutAfterwards`].
    pub times_out: u32,
    /// [`Fate::Dies`].
    pub dies: u32,
    /// [`Fate::LivesOn`].
    pub lives_on: u32,
}

/// What the mapping invokes.
pub trait Function: Clone + Send + 'static {
    /// Answers an event; an error is an exception of the function.
    fn invoke(&self, event: Value) -> impl Future<Output = Result<Value, String>> + Send;
}

impl Function for Consumer {
    async fn invoke(&self, event: Value) -> Result<Value, String> {
        serde_json::to_value(self.handle(raw(&event)).await).map_err(|error| error.to_string())
    }
}

/// One invocation, for those who look at what was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The shard.
    pub shard: String,
    /// The sequence numbers of the batch.
    pub sequence_numbers: Vec<String>,
    /// How it ended.
    pub fate: Fate,
}

/// The simulator.
pub struct Mapping {
    settings: Settings,
    random: StdRng,
    odds: Odds,
    full_batches: bool,
    shards: BTreeMap<String, Shard>,
    /// Seconds since the epoch, as the mapping sees it.
    now: f64,
    zombies: Vec<JoinHandle<()>>,
    /// Every invocation, in the order of their beginnings.
    pub invocations: Vec<Invocation>,
    /// What was sent to the failure destination.
    pub destination: Vec<Value>,
}

struct Shard {
    parent: Option<String>,
    lanes: Vec<Lane>,
}

#[derive(Default)]
struct Lane {
    queue: VecDeque<Value>,
    /// Batches that have failed; the last is delivered first.
    failed: Vec<Batch>,
}

#[derive(Clone, Debug)]
struct Batch {
    records: Vec<Value>,
    /// How often it was invoked.
    invoked: i64,
}

impl Lane {
    fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.failed.is_empty()
    }
}

impl Shard {
    fn is_drained(&self) -> bool {
        self.lanes.iter().all(Lane::is_drained)
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// An event as it comes to a function: its text.
pub fn raw(event: &Value) -> Box<RawValue> {
    to_raw_value(event).unwrap()
}

/// A delivery as Lambda puts it into an event.
pub fn event_record(delivery: &Delivery) -> Value {
    let mut record: Value = serde_json::from_str(delivery.json().unwrap().get()).unwrap();
    if let Some(change) = record.get_mut("dynamodb").and_then(Value::as_object_mut) {
        let is_empty = |image: &Value| image.as_object().is_some_and(|image| image.is_empty());
        change.retain(|name, value| !(name.ends_with("Image") && is_empty(value)));
        let name = match (change.contains_key("OldImage"), change.contains_key("NewImage")) {
            (false, _) => "INSERT",
            (true, true) => "MODIFY",
            (true, false) => "REMOVE",
        };
        change.insert("SizeBytes".to_owned(), 100.into());
        change.insert("StreamViewType".to_owned(), "NEW_AND_OLD_IMAGES".into());
        record["eventName"] = name.into();
        record["eventVersion"] = "1.1".into();
        record["eventSource"] = "aws:dynamodb".into();
        record["awsRegion"] = "us-east-1".into();
        record["eventSourceARN"] = STREAM.into();
    }
    record
}

const STREAM: &str = "arn:aws:dynamodb:us-east-1:000000000000:table/t/stream/2026-01-01T00:00:00.000";

/// The sequence number of a record of an event.
pub fn sequence_number(record: &Value) -> &str {
    record.pointer("/dynamodb/SequenceNumber").and_then(Value::as_str).unwrap_or_default()
}

fn partition_key(record: &Value) -> String {
    record.pointer("/dynamodb/Keys/pk").map(Value::to_string).unwrap_or_default()
}

/// Which of `n` a partition key belongs to.
pub fn place_of(record: &Value, n: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    partition_key(record).hash(&mut hasher);
    (hasher.finish() % n as u64) as usize
}

fn arrival(record: &Value) -> f64 {
    record.pointer("/dynamodb/ApproximateCreationDateTime").and_then(Value::as_f64).unwrap_or(0.0)
}

/// Whether a record matches a filter pattern: exact values, `prefix`, `anything-but` (values or a prefix), `exists`.
pub fn matches(pattern: &Value, record: &Value) -> bool {
    match pattern {
        Value::Object(members) => {
            members.iter().all(|(name, pattern)| matches(pattern, record.get(name).unwrap_or(&Value::Null)))
        }
        Value::Array(rules) => rules.iter().any(|rule| rule_matches(rule, record)),
        _ => false,
    }
}

fn rule_matches(rule: &Value, value: &Value) -> bool {
    let begins = |prefix: &Value| {
        let (prefix, value) = (prefix.as_str(), value.as_str());
        prefix.zip(value).is_some_and(|(prefix, value)| value.starts_with(prefix))
    };
    let Value::Object(rule) = rule else { return rule == value };
    rule.iter().all(|(name, operand)| match (name.as_str(), operand) {
        ("prefix", prefix) => begins(prefix),
        ("exists", Value::Bool(wanted)) => value.is_null() != *wanted,
        ("anything-but", Value::Array(values)) => !value.is_null() && !values.contains(value),
        ("anything-but", Value::Object(not)) => !value.is_null() && !not.get("prefix").is_some_and(begins),
        (other, _) => panic!("the simulator knows no filter rule `{other}`"),
    })
}

impl Mapping {
    /// A mapping without shards.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Self {
            settings,
            random: StdRng::seed_from_u64(seed),
            odds: Odds::default(),
            full_batches: false,
            shards: BTreeMap::new(),
            now: 0.0,
            zombies: Vec::new(),
            invocations: Vec::new(),
            destination: Vec::new(),
        }
    }

    /// How likely invocations fail.
    #[must_use]
    pub fn with_odds(self, odds: Odds) -> Self {
        Self { odds, ..self }
    }

    /// Batches are as large as they can be, instead of any size up to that.
    #[must_use]
    pub fn with_full_batches(self) -> Self {
        Self { full_batches: true, ..self }
    }

    /// A clock for the ages of records, seconds since the epoch.
    pub fn set_now(&mut self, seconds: f64) {
        self.now = seconds;
    }

    /// Opens a shard, as the child of another where there is one.
    pub fn open(&mut self, shard: &str, parent: Option<&str>) {
        let lanes = (0..self.settings.parallelization_factor.max(1)).map(|_| Lane::default()).collect();
        self.shards.insert(shard.to_owned(), Shard { parent: parent.map(str::to_owned), lanes });
    }

    /// Appends records to a shard, in their order, without those that the filters leave out.
    pub fn feed(&mut self, shard: &str, records: impl IntoIterator<Item = Value>) {
        let filters = &self.settings.filters;
        let lanes = &mut self.shards.get_mut(shard).expect("an open shard").lanes;
        for record in records {
            if filters.is_empty() || filters.iter().any(|pattern| matches(pattern, &record)) {
                let lane = place_of(&record, lanes.len());
                lanes[lane].queue.push_back(record);
            }
        }
    }

    /// Whether everything was delivered, or dropped.
    pub fn is_drained(&self) -> bool {
        self.shards.values().all(Shard::is_drained)
    }

    /// Delivers until nothing is left, and waits for those that live on. Panics where that takes more than `at_most`
    /// rounds: a batch is stuck.
    pub async fn run(&mut self, function: &impl Function, at_most: usize) {
        for _ in 0..at_most {
            if self.is_drained() {
                break;
            }
            self.round(function).await;
        }
        for zombie in self.zombies.drain(..) {
            zombie.await.unwrap();
        }
        assert!(self.is_drained(), "a batch is stuck: {:?}", self.invocations.last());
    }

    /// Invokes the function for some of the lanes that have something to deliver, at the same time.
    pub async fn round(&mut self, function: &impl Function) {
        let mut ready: Vec<(String, usize)> = Vec::new();
        for (name, shard) in &self.shards {
            let parent = shard.parent.as_ref().and_then(|parent| self.shards.get(parent));
            if parent.is_none_or(Shard::is_drained) {
                let lanes = shard.lanes.iter().enumerate().filter(|(_, lane)| !lane.is_drained());
                ready.extend(lanes.map(|(lane, _)| (name.clone(), lane)));
            }
        }
        ready.shuffle(&mut self.random);
        if ready.len() > 1 {
            let some = self.random.random_range(1..=ready.len());
            ready.truncate(some);
        }
        let mut running = Vec::new();
        for (shard, lane) in ready {
            let Some(batch) = self.next_batch(&shard, lane) else { continue };
            let fate = self.draw();
            let sequence_numbers = batch.records.iter().map(|record| sequence_number(record).to_owned()).collect();
            self.invocations.push(Invocation { shard: shard.clone(), sequence_numbers, fate });
            let event = json!({ "Records": batch.records });
            let mut zombie = None;
            if fate == Fate::LivesOn {
                let function = function.clone();
                let event = event.clone();
                zombie = Some(tokio::spawn(async move { drop(function.invoke(event).await) }));
            }
            self.zombies.extend(zombie);
            running.push(async move { (shard, lane, batch, invoke(function, event, fate).await) });
        }
        for (shard, lane, batch, answer) in join_all(running).await {
            self.settle(&shard, lane, batch, answer);
        }
    }

    fn draw(&mut self) -> Fate {
        let Odds { times_out, dies, lives_on } = self.odds;
        match self.random.random_range(0..100u32) {
            drawn if drawn < times_out => Fate::TimesOutAfterwards,
            drawn if drawn < times_out + dies => Fate::Dies(self.random.random_range(1..40)),
            drawn if drawn < times_out + dies + lives_on => Fate::LivesOn,
            _ => Fate::Answers,
        }
    }

    /// Takes the next batch of a lane; drops those that are too old.
    fn next_batch(&mut self, shard: &str, lane: usize) -> Option<Batch> {
        let most = self.settings.batch_size.max(1);
        let size = if self.full_batches { most } else { self.random.random_range(1..=most) };
        loop {
            let lane = &mut self.shards.get_mut(shard)?.lanes[lane];
            let mut batch = match lane.failed.pop() {
                Some(batch) => batch,
                None => {
                    let size = size.min(lane.queue.len());
                    Batch { records: lane.queue.drain(..size).collect(), invoked: 0 }
                }
            };
            if batch.records.is_empty() {
                return None;
            }
            let oldest = self.now - self.settings.maximum_record_age_in_seconds as f64;
            let expires = self.settings.maximum_record_age_in_seconds >= 0;
            let fresh = batch.records.iter().position(|record| !expires || arrival(record) >= oldest);
            let rest = batch.records.split_off(fresh.unwrap_or(batch.records.len()));
            if !batch.records.is_empty() {
                self.discard(shard, &batch, "RecordAgeExceeded");
            }
            if !rest.is_empty() {
                return Some(Batch { records: rest, invoked: batch.invoked });
            }
        }
    }

    /// Moves on, or keeps the records that are to be delivered again.
    fn settle(&mut self, shard: &str, lane: usize, batch: Batch, answer: Result<Value, String>) {
        let checkpoint = match answer {
            Ok(answer) if self.settings.report_batch_item_failures => checkpoint(&batch.records, &answer),
            Ok(_) => None,
            Err(_) => Some(0),
        };
        let Some(checkpoint) = checkpoint else { return };
        let mut left = Batch { records: batch.records[checkpoint..].to_vec(), invoked: batch.invoked + 1 };
        if (0..left.invoked).contains(&self.settings.maximum_retry_attempts) {
            return self.discard(shard, &left, "RetryAttemptsExhausted");
        }
        let failed = &mut self.shards.get_mut(shard).expect("an open shard").lanes[lane].failed;
        // A failed batch continues at the record that the answer names; if that is the first, or there is no answer, it is
        // bisected in the middle. A bisection is not a retry.
        if self.settings.bisect_batch_on_function_error && checkpoint == 0 && left.records.len() > 1 {
            left.invoked -= 1;
            let second = left.records.split_off(left.records.len() / 2);
            failed.push(Batch { records: second, invoked: left.invoked });
        }
        failed.push(left);
    }

    /// Sends the description of a batch, not its records, to the failure destination.
    fn discard(&mut self, shard: &str, batch: &Batch, condition: &str) {
        let (first, last) = (&batch.records[0], &batch.records[batch.records.len() - 1]);
        self.destination.push(json!({
            "requestContext": { "condition": condition, "approximateInvokeCount": batch.invoked },
            "version": "1.0",
            "DDBStreamBatchInfo": {
                "shardId": shard,
                "startSequenceNumber": sequence_number(first),
                "endSequenceNumber": sequence_number(last),
                "approximateArrivalOfFirstRecord": arrival(first),
                "approximateArrivalOfLastRecord": arrival(last),
                "batchSize": batch.records.len(),
                "streamArn": STREAM,
            },
        }));
    }
}

async fn invoke(function: &impl Function, event: Value, fate: Fate) -> Result<Value, String> {
    match fate {
        Fate::Answers => function.invoke(event).await,
        Fate::TimesOutAfterwards => {
            let _ = function.invoke(event).await;
            Err("timed out".to_owned())
        }
        Fate::Dies(steps) => {
            let mut work = pin!(function.invoke(event));
            let mut polls = 0;
            poll_fn(|context| {
                polls += 1;
                if polls > steps || work.as_mut().poll(context).is_ready() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            Err("the process is gone".to_owned())
        }
        Fate::LivesOn => Err("timed out".to_owned()),
    }
}

/// The index of the first record that an answer wants again; `None` if the batch is done.
fn checkpoint(records: &[Value], answer: &Value) -> Option<usize> {
    let failures = match answer.get("batchItemFailures") {
        Some(Value::Array(failures)) => failures,
        // No answer, an empty one, or none that names failures.
        _ => return None,
    };
    let named = failures.iter().map(|failure| {
        let name = failure.get("itemIdentifier").and_then(Value::as_str).filter(|name| !name.is_empty());
        // A name of no record of the batch fails all of it.
        name.and_then(|name| records.iter().position(|record| sequence_number(record) == name)).unwrap_or(0)
    });
    named.min()
}
