//! The feed on DynamoDB: its own code, in consumers that read one stream, between crashes, takeovers and a lossy network.
//!
//! A consumer starts at the checkpoint, appends one batch after the other, and saves a checkpoint after each. It may die at any
//! time, or go on while another one has taken over; whatever was sent may arrive at any time. What readers find is read by
//! the feed's own code, too.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex},
};

use aws_sdk_dynamodb::Client as Dynamo;
use jiff::Timestamp;
use nameservice_feed::{Entry, Feed};
use nameservice_model::{
    Address, Change, ChangeFeed as _, ChangeKind, ChangePayload, ChangedPart, ConcernKind, Identity, Limit, RecordKind, Run,
};
use nameservice_store::Difference;
use stateright::{Model, Property};

use crate::{
    expressions::{Attribute, Item, Operand, Update},
    shared::Shared,
    table::{Effect, Key, Operation, Reply, Table},
    wire::{Asked, Next, Sent, run},
};

/// The names of the table's key.
const KEYS: [&str; 2] = ["id", "position"];

/// The most records of a batch of each consumer: their batches overlap, and end elsewhere.
const BATCHES: [usize; 2] = [2, 1];

/// The stream: the record, and the how-manieth change of its head. The order is that of their commits.
const STREAM: [(&str, i64); 4] = [("a", 1), ("a", 2), ("b", 1), ("b", 2)];

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Nothing.
    None,
    /// The condition that a stream record is not in the feed.
    SeenUnread,
    /// The conditions of the counter and of the segment's position.
    CounterUnread,
    /// A checkpoint is saved before its batch.
    SavesFirst,
    /// A batch is passed over once something was sent.
    PassesOver,
}

impl Fault {
    fn strip(self, operation: &mut Operation) {
        for write in operation.writes() {
            let is_guard = write.key.0.starts_with("history#");
            let (n, id): (&[&str], &[&str]) = (&["n"], &["id"]);
            let conditions = match self {
                Self::SeenUnread if is_guard => id,
                Self::CounterUnread if write.key.0.starts_with("counter#") => n,
                Self::CounterUnread if !is_guard => id,
                _ => continue,
            };
            // Of what may also be absent, all goes.
            write.condition = std::mem::take(&mut write.condition).without(conditions);
        }
    }
}

/// Consumers of one stream.
#[derive(Clone)]
pub struct Consumers {
    /// How many records the stream has.
    pub records: usize,
    /// How many consumers there are.
    pub consumers: usize,
    /// How often each of them starts.
    pub lives: u8,
    /// Whether somebody starts a new epoch, once.
    pub begins_epoch: bool,
    /// What is planted.
    pub fault: Fault,
    runs: Arc<Runs>,
}

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} consumers of {} records with {:?}", self.consumers, self.records, self.fault)
    }
}

/// What a run of the code does: the batches that one consumer appends, one after the other, each from a record and so many.
type Work = Vec<(usize, usize)>;

/// The positions that a run has returned for its last batch; an error in words.
type Outcome = Result<Vec<u64>, String>;

/// A run of the code: its work (none is the start of an epoch) and its replies.
type CodeRun = (Work, Vec<Reply>);

type Items = std::collections::BTreeMap<Key, Shared<Item>>;

/// How far runs have come, and what readers find in a table.
#[derive(Default)]
struct Runs {
    runs: Mutex<HashMap<CodeRun, (Next<Outcome>, Option<Sent>)>>,
    found: Mutex<HashMap<Vec<(Key, Shared<Item>)>, Found>>,
}

/// What readers find: the positions, each with the how-manieth record of the stream; or why they cannot read.
type Found = Shared<Result<Vec<(u64, usize)>, String>>;

/// A consumer, or who starts an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Life {
    /// How often it has started.
    starts: u8,
    /// What it has done in this life, and does.
    work: Work,
    replies: Vec<Reply>,
    /// What it waits for; `None` while it does nothing.
    asked: Option<Asked>,
    /// How far it has come, where that is not saved.
    unsaved: Option<usize>,
    /// It runs.
    is_alive: bool,
    /// Where its next batch begins.
    position: usize,
}

/// A transaction's token: of which actor, in which life, the how-manieth.
type Token = (usize, u8, usize);

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    table: Table<Token>,
    lives: Vec<Life>,
    /// Requests whose reply nobody waits for.
    sent: BTreeSet<(Option<Token>, Asked)>,
    /// How many records need not be delivered again.
    checkpoint: usize,
    found: Found,
    /// What a consumer was returned that is not so.
    wrong: Vec<String>,
}

/// A step; the number is an actor's.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// It starts at the checkpoint.
    Start(usize),
    /// It appends a batch of so many.
    Append(usize, usize),
    /// What it waits for arrives, and so does the reply.
    Arrive(usize),
    /// No reply comes to what it waits for.
    Lose(usize),
    /// It saves its checkpoint.
    Save(usize),
    /// It dies.
    Die(usize),
    /// A request that was sent arrives, and nobody hears of it: the how-manieth.
    ArriveLate(usize),
}

impl Consumers {
    /// Consumers of a stream with so many records.
    pub fn new(records: usize, consumers: usize, lives: u8) -> Self {
        let runs = Arc::default();
        Self { records, consumers, lives, begins_epoch: false, fault: Fault::None, runs }
    }

    /// The requests that were sent, each once.
    pub fn sent(&self) -> Vec<Sent> {
        let runs = self.runs.runs.lock().expect("no run panics");
        runs.values().filter_map(|(_, sent)| sent.clone()).collect()
    }

    fn next(&self, work: &Work, replies: &[Reply]) -> Next<Outcome> {
        let of = (work.clone(), replies.to_vec());
        if let Some((next, _)) = self.runs.runs.lock().expect("no run panics").get(&of) {
            return next.clone();
        }
        let (mut next, sent) = run(KEYS, replies, |dynamo| carry_out(dynamo, work));
        if let Next::Asks(asked) = &mut next {
            let mut operation = Operation::clone(&asked.operation);
            self.fault.strip(&mut operation);
            asked.operation = Shared::new(operation);
        }
        self.runs.runs.lock().expect("no run panics").entry(of).or_insert((next, sent)).0.clone()
    }

    /// Runs an actor as far as it comes.
    fn go_on(&self, world: &mut World, actor: usize) {
        let life = &mut world.lives[actor];
        match self.next(&life.work, &life.replies) {
            Next::Asks(asked) => life.asked = Some(asked),
            Next::Done(Err(error)) => world.wrong.push(error),
            Next::Done(Ok(positions)) if actor < self.consumers => {
                let (from, count) = life.work.last().copied().unwrap_or_default();
                life.position = from + count;
                life.unsaved = Some(life.position);
                let found = world.found.as_ref().map(Vec::as_slice).unwrap_or_default();
                let is_so = |(record, position): (usize, u64)| found.contains(&(position, record));
                if positions.len() != count || !(from..).zip(positions.iter().copied()).all(is_so) {
                    world.wrong.push(format!("{count} records from {from} were appended at {positions:?}: {found:?}"));
                }
            }
            Next::Done(Ok(_)) => life.is_alive = false,
        }
    }

    fn arrive(&self, world: &mut World, token: Option<Token>, asked: &Asked) -> Reply {
        let (reply, wrote) = world.table.answer(&asked.operation, token, KEYS);
        if wrote {
            world.found = self.found(&world.table);
            if self.fault != Fault::CounterUnread {
                let n = world.counter();
                world.sent.retain(|(_, asked)| counter_after(asked).is_none_or(|after| after > n));
            }
        }
        reply
    }

    /// What readers find from the beginning on; it is the same from every position on.
    fn found(&self, table: &Table<Token>) -> Found {
        let items: Vec<(Key, Shared<Item>)> = table.items.iter().map(|(key, item)| (key.clone(), item.clone())).collect();
        if let Some(found) = self.runs.found.lock().expect("no run panics").get(&items) {
            return found.clone();
        }
        let found = Shared::new(read_all(table).and_then(|found| agree(&table.items, found)));
        self.runs.found.lock().expect("no run panics").entry(items).or_insert(found).clone()
    }
}

impl World {
    /// Takes what an actor waits for. From then on the request may arrive whenever it likes.
    fn give_up(&mut self, actor: usize) -> Option<(Option<Token>, Asked)> {
        let life = &mut self.lives[actor];
        let asked = life.asked.take()?;
        let under_way = (asked.token.map(|n| (actor, life.starts, n)), asked);
        // The counter only grows: what moves it from where it was has had its time.
        if counter_after(&under_way.1).is_some_and(|after| after > self.counter()) {
            self.sent.insert(under_way.clone());
        }
        Some(under_way)
    }

    fn counter(&self) -> i64 {
        let counter = self.table.items.iter().find(|((id, _), _)| id.starts_with("counter#"));
        match counter.and_then(|(_, counter)| counter.get("n")) {
            Some(Attribute::N(n)) => *n,
            _ => 0,
        }
    }
}

/// Where a transaction leaves the counter; `None` of what is none.
fn counter_after(asked: &Asked) -> Option<i64> {
    let Operation::Transact(writes) = &*asked.operation else { return None };
    let updates = writes.iter().filter_map(|write| match &write.effect {
        Effect::Update(changes) => Some(changes),
        _ => None,
    });
    updates.flatten().find_map(|change| match change {
        Update::Set(path, Operand::Value(Attribute::N(n))) if *path == ["n"] => Some(*n),
        _ => None,
    })
}

fn feed(dynamo: Dynamo) -> Feed {
    Feed::new(dynamo, "t").with_clock(|| Timestamp::UNIX_EPOCH)
}

/// Appends the batches in one life of a consumer, and returns the positions of the last; of no batch starts an epoch.
async fn carry_out(dynamo: Dynamo, work: &Work) -> Outcome {
    let feed = feed(dynamo);
    if work.is_empty() {
        return feed.begin_epoch().await.map(|_| Vec::new()).map_err(|error| error.to_string());
    }
    let mut positions = Vec::new();
    for (from, count) in work {
        let entries: Vec<Entry> = (*from..from + count).map(entry).collect();
        let appended = feed.append(&entries).await;
        if let Some(error) = appended.error {
            return Err(error.to_string());
        }
        positions = appended.changes.iter().map(|change| change.position).collect();
    }
    Ok(positions)
}

/// The how-manieth record of the stream.
fn entry(n: usize) -> Entry {
    let (name, watermark) = STREAM[n];
    Entry {
        event_id: format!("event {n}"),
        sequence_number: (n + 1).to_string(),
        difference: Difference {
            address: Address::parse(name).expect("it is an address"),
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

/// Reads a table with the feed's own code, all at once.
fn read<T>(table: &Table<Token>, code: impl AsyncFn(Feed) -> T) -> T {
    let (mut table, mut replies) = (table.clone(), Vec::new());
    loop {
        match run(KEYS, &replies, |dynamo| code(feed(dynamo))).0 {
            Next::Asks(asked) => replies.push(table.answer(&asked.operation, None, KEYS).0),
            Next::Done(outcome) => return outcome,
        }
    }
}

fn read_all(table: &Table<Token>) -> Result<Vec<(u64, usize)>, String> {
    let after = |position: u64| {
        let found = read(table, async |feed| feed.changes(position, Limit::MAX).await);
        match found {
            Ok(Run::Changes(changes)) => Ok(changes.iter().map(record).collect::<Vec<_>>()),
            Ok(Run::Gone { oldest }) => Err(oldest),
            Err(error) => panic!("the feed cannot be read: {error}"),
        }
    };
    let all = match after(0) {
        Ok(all) => all,
        // An epoch has begun.
        Err(oldest) => after(oldest - 1).map_err(|oldest| format!("all before {oldest} is gone, again"))?,
    };
    // Readers resume at any position.
    for (n, (position, _)) in all.iter().enumerate() {
        if after(*position).as_deref() != Ok(&all[n + 1..]) {
            return Err(format!("other changes follow {position}: {:?}, {all:?}", after(*position)));
        }
    }
    Ok(all)
}

/// The position of a change, and the how-manieth record of the stream it is.
fn record(change: &Change) -> (u64, usize) {
    let name = change.address.name();
    let record = STREAM.iter().position(|of| *of == (name, change.watermark)).expect("it is of the stream");
    (change.position, record)
}

/// What readers find, where the rows that remember stream records have them at the same positions.
fn agree(items: &Items, found: Vec<(u64, usize)>) -> Result<Vec<(u64, usize)>, String> {
    let remembered = items.iter().filter(|((id, _), _)| id.starts_with("history#"));
    for ((id, position), item) in remembered {
        let is_it = |n: &usize| position.ends_with(&format!("event {n}"));
        let record = (0..STREAM.len()).find(is_it).ok_or_else(|| format!("{position} is of no record"))?;
        let Some(Attribute::N(at)) = item.get("at") else { return Err(format!("{id} has no position")) };
        let at = u64::try_from(*at).map_err(|error| error.to_string())?;
        // What an epoch has put out of reach is remembered, too.
        let first = found.first().map_or(u64::MAX, |(first, _)| *first);
        if at >= first && !found.contains(&(at, record)) {
            return Err(format!("record {record} is remembered at {at}, and found elsewhere: {found:?}"));
        }
    }
    Ok(found)
}

impl Model for Consumers {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let lives = self.consumers + usize::from(self.begins_epoch);
        vec![World {
            table: Table::default(),
            lives: vec![Life::default(); lives],
            sent: BTreeSet::new(),
            checkpoint: 0,
            found: Shared::new(Ok(Vec::new())),
            wrong: Vec::new(),
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (actor, life) in world.lives.iter().enumerate() {
            let is_consumer = actor < self.consumers;
            if !life.is_alive {
                if life.starts < if is_consumer { self.lives } else { 1 } {
                    steps.push(Step::Start(actor));
                }
                continue;
            }
            if life.asked.is_some() {
                steps.push(Step::Arrive(actor));
                // A second loss in a row leaves the code as the first has left it.
                if life.replies.last() != Some(&Reply::Lost) {
                    steps.push(Step::Lose(actor));
                }
            } else if life.unsaved.is_some() {
                steps.push(Step::Save(actor));
            } else if is_consumer {
                let count = BATCHES[actor].min(self.records - life.position);
                if count > 0 {
                    steps.push(Step::Append(actor, count));
                }
            }
            // Who dies for good is as one who never goes on.
            if is_consumer && life.starts < self.lives {
                steps.push(Step::Die(actor));
            }
        }
        steps.extend((0..world.sent.len()).map(Step::ArriveLate));
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Start(actor) => {
                let starts = next.lives[actor].starts + 1;
                next.lives[actor] = Life { starts, is_alive: true, position: next.checkpoint, ..Life::default() };
                if actor >= self.consumers {
                    self.go_on(&mut next, actor);
                }
            }
            Step::Append(actor, count) => {
                let life = &mut next.lives[actor];
                life.work.push((life.position, count));
                if self.fault == Fault::SavesFirst {
                    next.checkpoint = life.position + count;
                }
                self.go_on(&mut next, actor);
            }
            Step::Arrive(actor) => {
                let (token, asked) = next.give_up(actor)?;
                let reply = self.arrive(&mut next, token, &asked);
                next.lives[actor].replies.push(reply);
                self.go_on(&mut next, actor);
            }
            Step::Lose(actor) => {
                let (_, asked) = next.give_up(actor)?;
                let life = &mut next.lives[actor];
                life.replies.push(Reply::Lost);
                if self.fault == Fault::PassesOver && matches!(*asked.operation, Operation::Transact(_)) {
                    let (from, count) = life.work.last().copied()?;
                    life.unsaved = Some(from + count);
                    return Some(next);
                }
                self.go_on(&mut next, actor);
            }
            Step::Save(actor) => next.checkpoint = next.lives[actor].unsaved.take()?,
            Step::Die(actor) => {
                next.give_up(actor);
                next.lives[actor] = Life { starts: next.lives[actor].starts, ..Life::default() };
            }
            Step::ArriveLate(n) => {
                let (token, asked) = world.sent.iter().nth(n)?.clone();
                self.arrive(&mut next, token, &asked);
                // What changes nothing is no step.
                return (next.table != world.table).then_some(next);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn found(world: &World) -> &[(u64, usize)] {
            world.found.as_ref().map(Vec::as_slice).unwrap_or_default()
        }
        let mut properties = vec![
            Property::<Self>::always("readers find one thing, wherever they begin", |_, world| world.found.is_ok()),
            Property::<Self>::always("positions are dense", |_, world| {
                found(world).windows(2).all(|pair| pair[0].0 + 1 == pair[1].0)
            }),
            Property::<Self>::always("a record is in the feed once", |_, world| {
                let records: BTreeSet<usize> = found(world).iter().map(|(_, record)| *record).collect();
                records.len() == found(world).len()
            }),
            Property::<Self>::always("changes of an item are in its order", |_, world| {
                let is_in_order = |pair: &[(u64, usize)]| pair[0].1 < pair[1].1;
                ["a", "b"].iter().all(|item| {
                    let of: Vec<_> = found(world).iter().filter(|(_, record)| STREAM[*record].0 == *item).copied().collect();
                    of.windows(2).all(is_in_order)
                })
            }),
            Property::<Self>::always("a consumer is returned where its records are", |_, world| world.wrong.is_empty()),
            Property::<Self>::sometimes("all is in the feed", |model, world| found(world).len() == model.records),
        ];
        if !self.begins_epoch {
            // What an epoch puts out of reach was delivered, and is in the snapshot that readers begin again with.
            properties.push(Property::<Self>::always("what need not be delivered again is in the feed", |_, world| {
                (0..world.checkpoint).all(|record| found(world).iter().any(|(_, of)| *of == record))
            }));
        }
        properties
    }
}
