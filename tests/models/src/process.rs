//! The feed's code in one process, run up to the next request that it sends.
//!
//! A process does one task after the other. From one to the next it carries over only what its [`Feed`] remembers, so that is all
//! that is kept of tasks that are done. To run the code further, one of the sequences of tasks that lead to this memory is run
//! again; which one makes no difference to what follows.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

use aws_sdk_dynamodb::Client as Dynamo;
use jiff::Timestamp;
use nameservice_feed::{Entry, Feed};
use nameservice_model::{
    Address, Change, ChangeFeed as _, ChangeKind, ChangePayload, ChangedPart, ConcernKind, HistoryQuery, Identity,
    Limit, RecordKind, Result, Run,
};
use nameservice_store::Difference;

use crate::{
    faults::FeedFault,
    shared::Shared,
    table::{Operation, Reply, Table},
    wire::{Asked, Next, Sent, run},
};

/// The names of the table's key.
pub(crate) const KEYS: [&str; 2] = ["id", "position"];

/// The item that the records of each shard change.
pub(crate) const ITEMS: [&str; 2] = ["a", "b"];

/// A record of the stream: its shard, and its index there.
pub type Record = (usize, usize);

/// Records, each with its position in the feed.
pub type Positions = Vec<(usize, Record)>;

/// What the code is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// To append records of a shard.
    Append {
        /// The shard.
        shard: usize,
        /// The first of them.
        from: usize,
        /// How many.
        count: usize,
    },
    /// To start a new epoch.
    BeginEpoch,
    /// To read what follows a position.
    Read {
        /// The position.
        after: usize,
    },
    /// To read the history of a shard's item.
    History {
        /// The shard.
        shard: usize,
    },
}

/// The outcome of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// These were appended, now or before; all of them unless there is an error.
    Appended(Positions, Option<String>),
    /// The first position of a new epoch.
    Begun(usize),
    /// Changes.
    Found(Positions),
    /// What was asked for is gone; this is the oldest position that can be read.
    Gone(usize),
    /// An error.
    Failed(String),
}

/// What a [`Feed`] remembers for its next append.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Memory {
    /// The counter as it was last observed; `u64::MAX` before that.
    pub observed: u64,
    /// Whether another writer moves the counter, too.
    pub is_shared: bool,
}

impl Default for Memory {
    /// The memory of a process that has just started.
    fn default() -> Self {
        Self { observed: u64::MAX, is_shared: false }
    }
}

impl Memory {
    /// Reads it from the feed's debug form, since the feed shows it nowhere else.
    fn of(feed: &Feed) -> Self {
        let text = format!("{feed:#?}");
        let members: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("    ").filter(|line| line.starts_with(char::is_alphabetic)))
            .filter_map(|line| line.trim_end_matches(',').split_once(": "))
            .collect();
        let names: Vec<&str> = members.keys().copied().collect();
        assert_eq!(
            names,
            ["clock", "is_shared", "moved", "observed", "outage", "retention", "view"],
            "the feed has other members: if they decide what its next append does, they belong to its memory here"
        );
        let read = "the feed's members are a number and a truth value";
        Self {
            observed: members["observed"].parse().expect(read),
            is_shared: members["is_shared"].parse().expect(read),
        }
    }
}

/// A run: what the process remembers, its task, and the replies to that so far.
type CodeRun = (Memory, Task, Vec<Reply>);

/// How far a run has come, and the request that it waits for, as it was sent.
type Reached = (Next<(Outcome, Memory)>, Option<Sent>);

/// The tasks of a process, and the replies it has had for them.
type Way = (Vec<Task>, Vec<Reply>);

/// How far runs of the code have come: equal runs have equal results.
#[derive(Default)]
pub(crate) struct Processes {
    runs: Mutex<HashMap<CodeRun, Reached>>,
    /// For each memory, the first way that was found to it.
    ways: Mutex<HashMap<Memory, Way>>,
}

impl Processes {
    /// Runs a task until it waits for the reply that comes after these, or ends.
    pub(crate) fn next(
        &self,
        fault: FeedFault,
        memory: &Memory,
        task: Task,
        replies: &[Reply],
    ) -> Next<(Outcome, Memory)> {
        let of = (memory.clone(), task, replies.to_vec());
        if let Some((next, _)) = self.runs.lock().expect("no run panics").get(&of) {
            return next.clone();
        }
        let way = self.ways.lock().expect("no run panics").get(memory).cloned();
        assert!(way.is_some() || *memory == Memory::default(), "no run leads to {memory:?}");
        let (mut tasks, mut all) = way.unwrap_or_default();
        tasks.push(task);
        all.extend_from_slice(replies);
        let (mut next, sent) = run(KEYS, &all, |dynamo| carry_out(dynamo, &tasks));
        match &mut next {
            Next::Asks(asked) => {
                if matches!(*asked.operation, Operation::Get(_) | Operation::Query { .. }) {
                    // A lost read is only repeated, so the model loses no reads.
                    all.push(Reply::Lost);
                    let again = run(KEYS, &all, |dynamo| carry_out(dynamo, &tasks)).0;
                    assert!(
                        matches!(&again, Next::Asks(other) if other == asked),
                        "a lost read is not repeated: {again:?} after {tasks:?}, {all:?}"
                    );
                }
                let mut operation = Operation::clone(&asked.operation);
                fault.strip(&mut operation);
                asked.operation = Shared::new(operation);
            }
            Next::Done((_, memory)) => {
                if *memory != Memory::default() {
                    self.ways.lock().expect("no run panics").entry(memory.clone()).or_insert((tasks, all));
                }
            }
        }
        self.runs.lock().expect("no run panics").entry(of).or_insert((next, sent)).0.clone()
    }

    /// What a task asks for after these replies; `None` if it has ended.
    pub(crate) fn asked(&self, fault: FeedFault, memory: &Memory, task: Task, replies: &[Reply]) -> Option<Asked> {
        match self.next(fault, memory, task, replies) {
            Next::Asks(asked) => Some(asked),
            Next::Done(_) => None,
        }
    }

    /// The requests that were sent, each once.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.runs.lock().expect("no run panics").values().filter_map(|(_, sent)| sent.clone()).collect()
    }
}

/// Carries out a task over a table that nobody else uses.
pub(crate) fn alone(table: &Table<()>, task: Task) -> Outcome {
    let (mut table, mut replies) = (table.clone(), Vec::new());
    loop {
        match run(KEYS, &replies, |dynamo| async move { perform(&feed(dynamo), task).await }).0 {
            Next::Asks(asked) => replies.push(table.answer(&asked.operation, None, KEYS).0),
            Next::Done(outcome) => return outcome,
        }
    }
}

fn feed(dynamo: Dynamo) -> Feed {
    Feed::new(dynamo, "t").with_clock(|| Timestamp::UNIX_EPOCH)
}

/// Carries out the tasks of one process. Returns the outcome of the last, and what the process remembers then.
async fn carry_out(dynamo: Dynamo, tasks: &[Task]) -> (Outcome, Memory) {
    let feed = feed(dynamo);
    let mut outcome = None;
    for task in tasks {
        outcome = Some(perform(&feed, *task).await);
    }
    (outcome.expect("a process has a task"), Memory::of(&feed))
}

async fn perform(feed: &Feed, task: Task) -> Outcome {
    match task {
        Task::Append { shard, from, count } => {
            let entries: Vec<Entry> = (from..from + count).map(|n| entry((shard, n))).collect();
            let appended = feed.append(&entries).await;
            Outcome::Appended(positions(&appended.changes), appended.error.map(|error| error.to_string()))
        }
        Task::BeginEpoch => or_failed(feed.begin_epoch().await, |first| Outcome::Begun(first as usize)),
        Task::Read { after } => or_failed(feed.changes(after as u64, Limit::MAX).await, |run| match run {
            Run::Changes(changes) => Outcome::Found(positions(&changes)),
            Run::Gone { oldest } => Outcome::Gone(oldest as usize),
        }),
        Task::History { shard } => {
            let query = HistoryQuery { limit: Limit::MAX, ..HistoryQuery::default() };
            let history = feed.history(&item(shard), &query).await;
            or_failed(history, |history| Outcome::Found(positions(&history.changes)))
        }
    }
}

fn or_failed<T>(result: Result<T>, outcome: impl FnOnce(T) -> Outcome) -> Outcome {
    result.map_or_else(|error| Outcome::Failed(error.to_string()), outcome)
}

fn item(shard: usize) -> Address {
    Address::parse(ITEMS[shard]).expect("it is an address")
}

/// A record of the stream: the next change of its shard's item.
fn entry((shard, n): Record) -> Entry {
    let watermark = n as i64 + 1;
    Entry {
        event_id: format!("event {n} of {shard}"),
        sequence_number: (n + 1).to_string(),
        difference: Difference {
            address: item(shard),
            part: ChangedPart::Concern(ConcernKind::Head),
            kind: ChangeKind::Updated,
            watermark,
            previous: Some(watermark - 1),
            payload: ChangePayload::None,
            occurred_at: Timestamp::UNIX_EPOCH,
        },
        identity: Identity { kind: RecordKind::Ledger, source_type: None },
    }
}

/// The positions of changes, each with its record.
fn positions(changes: &[Change]) -> Positions {
    let record = |change: &Change| {
        let shard = ITEMS.iter().position(|item| *item == change.address.name()).expect("it is of a shard");
        (change.position as usize, (shard, change.watermark as usize - 1))
    };
    changes.iter().map(record).collect()
}
