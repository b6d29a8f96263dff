//! The feed on DynamoDB: its own code, in consumers of a stream's shards, in a process that starts an epoch and in readers, with
//! crashes, takeovers and a lossy network.
//!
//! A consumer starts at the checkpoint of its shard, appends one batch after the other, and saves a checkpoint after each. It
//! may die at any time, or continue after another has taken over. A transaction whose reply is lost, or that nobody waits for
//! any more, may arrive at any time.
//!
//! A state holds only what decides its successors. Of a process, that is its [`Memory`] and the replies to its current task. Of
//! the transactions under way, it is those that would be applied: rows are never deleted and the counter only grows, which is
//! checked as a property, so that what is rejected once is rejected forever.

mod promises;
mod running;

use std::{collections::BTreeSet, fmt, sync::Arc};

pub use promises::{DENSE, HISTORIES, IN_ORDER, NOT_LOST, ONCE, READ, READABLE, RETURNED, STAYS};
use stateright::{Model, Property};

use crate::{
    faults::FeedFault,
    process::{Memory, Processes, Task},
    seen::{Contents, Readers, Seen},
    shared::Shared,
    table::{Operation, Reply, Table},
    wire::Sent,
};

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Appends the records of a shard.
    Consumer {
        /// The shard.
        shard: usize,
        /// The most records of a batch.
        batch: usize,
    },
    /// Starts a new epoch, once.
    Epoch,
    /// Reads the feed, each time from where it was.
    Reader {
        /// How many times it reads.
        reads: u8,
    },
}

/// The most lost replies to the transactions of a batch: fewer than the code retries before its deadline.
const LOSSES: usize = 2;

/// Consumers of a stream and others, and the feed.
#[derive(Clone)]
pub struct Consumers {
    /// How many records each shard has.
    pub shards: Vec<usize>,
    /// Who takes part.
    pub roles: Vec<Role>,
    /// How many times each consumer starts.
    pub lives: u8,
    /// Whether a request may get no reply until its process gives up and has its batch delivered again.
    pub times_out: bool,
    /// Whether DynamoDB remembers the tokens of transactions, as it does for ten minutes.
    pub remembers_tokens: bool,
    /// The planted bug.
    pub fault: FeedFault,
    processes: Arc<Processes>,
    readers: Arc<Readers>,
}

impl fmt::Debug for Consumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?} records with {:?}", self.roles, self.shards, self.fault)
    }
}

/// The state of an earlier attempt of the transaction that a process waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Earlier {
    /// There is none, or it can no longer be applied.
    #[default]
    None,
    /// It is under way.
    UnderWay,
    /// It was applied, and its token is remembered.
    Applied,
}

/// A consumer, a process that starts an epoch, or a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Life {
    /// How many times it has started.
    starts: u8,
    is_alive: bool,
    /// What the process remembers of the tasks that are done.
    memory: Memory,
    /// Its current task.
    task: Option<Task>,
    /// The replies to that task so far.
    replies: Vec<Reply>,
    /// The request that it waits for.
    asked: Option<Shared<Operation>>,
    earlier: Earlier,
    /// Where its next batch begins; the position from which it reads on.
    position: usize,
    /// Whether its checkpoint is behind.
    is_unsaved: bool,
    /// The counter when its read began.
    counter: usize,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    table: Table<()>,
    lives: Vec<Life>,
    /// Transactions under way that would be applied, and that nobody waits for.
    sent: BTreeSet<Shared<Operation>>,
    /// For each shard, how many records need not be delivered again.
    checkpoints: Vec<usize>,
    /// What readers find in the table.
    seen: Seen,
    is_rewritten: bool,
    /// What was wrongly returned to a consumer.
    wrong: Option<String>,
    /// What was wrongly returned to a reader.
    misread: Option<String>,
}

/// A step; the number is an actor's, in the order of the roles.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// It starts; a consumer starts with the first batch after its checkpoint.
    Start(usize),
    /// The request that it waits for arrives, and so does the reply.
    Arrive(usize),
    /// No reply comes to the transaction that it waits for, which it sends again.
    Lose(usize),
    /// An earlier attempt of the transaction that it waits for arrives.
    ArriveEarlier(usize),
    /// No reply comes until it gives up.
    TimeOut(usize),
    /// It saves its checkpoint, and continues with the next batch.
    Save(usize),
    /// It dies.
    Die(usize),
    /// A transaction that nobody waits for arrives: the one at this index.
    ArriveLate(usize),
}

impl Consumers {
    /// Creates a model in which everyone starts once, over a stream with this many records in each shard; nothing is planted.
    pub fn new(shards: &[usize], roles: &[Role]) -> Self {
        Self {
            shards: shards.to_vec(),
            roles: roles.to_vec(),
            lives: 1,
            times_out: false,
            remembers_tokens: true,
            fault: FeedFault::None,
            processes: Arc::default(),
            readers: Arc::default(),
        }
    }

    /// The requests that were sent, each once.
    pub fn sent(&self) -> Vec<Sent> {
        self.processes.sent()
    }

    fn starts(&self, actor: usize) -> u8 {
        match self.roles[actor] {
            Role::Consumer { .. } => self.lives,
            Role::Epoch => 1,
            Role::Reader { reads } => reads,
        }
    }

    /// The shard of a consumer.
    fn shard(&self, actor: usize) -> Option<usize> {
        match self.roles[actor] {
            Role::Consumer { shard, .. } => Some(shard),
            Role::Epoch | Role::Reader { .. } => None,
        }
    }

    /// What a consumer appends next.
    fn batch(&self, actor: usize, life: &Life) -> Option<Task> {
        let Role::Consumer { shard, batch } = self.roles[actor] else { return None };
        let count = batch.min(self.shards[shard].saturating_sub(life.position));
        (count > 0).then_some(Task::Append { shard, from: life.position, count })
    }
}

impl World {
    /// What readers find; nothing if they cannot read.
    fn contents(&self) -> &Contents {
        static NOTHING: Contents =
            Contents { counter: 0, epoch: 0, found: Vec::new(), ever: Vec::new(), disagreement: None };
        self.seen.as_ref().unwrap_or(&NOTHING)
    }
}

impl Model for Consumers {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            table: Table::default(),
            lives: vec![Life::default(); self.roles.len()],
            sent: BTreeSet::new(),
            checkpoints: vec![0; self.shards.len()],
            seen: Shared::new(Ok(Contents::default())),
            is_rewritten: false,
            wrong: None,
            misread: None,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        for (actor, life) in world.lives.iter().enumerate() {
            // A process that has died and does not start again is the same as one that never continues.
            let is_again = life.starts < self.starts(actor);
            if !life.is_alive {
                steps.extend(is_again.then_some(Step::Start(actor)));
                continue;
            }
            let is_consumer = self.shard(actor).is_some();
            if let Some(asked) = &life.asked {
                steps.push(Step::Arrive(actor));
                // A second loss in a row leaves the code as the first has left it, and the loss of a read changes nothing.
                let is_new = life.replies.last() != Some(&Reply::Lost);
                let losses = life.replies.iter().filter(|reply| **reply == Reply::Lost).count();
                if is_new && losses < LOSSES && matches!(**asked, Operation::Transact(_)) {
                    steps.push(Step::Lose(actor));
                }
                if life.earlier == Earlier::UnderWay {
                    steps.push(Step::ArriveEarlier(actor));
                }
                if is_consumer && is_again && self.times_out {
                    steps.push(Step::TimeOut(actor));
                }
            } else if life.is_unsaved {
                steps.push(Step::Save(actor));
            }
            if is_consumer && is_again {
                steps.push(Step::Die(actor));
            }
        }
        steps.extend((0..world.sent.len()).map(Step::ArriveLate));
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Start(actor) => self.start(&mut next, actor),
            Step::Arrive(actor) => {
                let life = &mut next.lives[actor];
                let (operation, earlier) = (life.asked.take()?, std::mem::take(&mut life.earlier));
                let reply = match earlier {
                    Earlier::Applied => Reply::Committed,
                    Earlier::None | Earlier::UnderWay => self.arrive(&mut next, &operation),
                };
                let is_committed = reply == Reply::Committed;
                // A transaction whose token is remembered changes nothing when it arrives again.
                if earlier == Earlier::UnderWay && !(is_committed && self.remembers_tokens) {
                    next.sent.insert(operation);
                }
                next.lives[actor].replies.push(reply);
                match is_committed && self.fault == FeedFault::FirstTransaction {
                    true => self.pass_over(&mut next, actor),
                    false => self.proceed(&mut next, actor),
                }
            }
            Step::Lose(actor) => self.lose(&mut next, actor)?,
            Step::ArriveEarlier(actor) => {
                let operation = next.lives[actor].asked.clone()?;
                self.arrive(&mut next, &operation);
                if self.remembers_tokens {
                    next.lives[actor].earlier = Earlier::Applied;
                }
            }
            Step::TimeOut(actor) => {
                let life = &mut next.lives[actor];
                let (operation, earlier) = (life.asked.take()?, std::mem::take(&mut life.earlier));
                life.replies.push(Reply::TimedOut);
                if earlier != Earlier::Applied {
                    next.sent.insert(operation);
                }
                self.proceed(&mut next, actor);
            }
            Step::Save(actor) => {
                let life = &mut next.lives[actor];
                life.is_unsaved = false;
                next.checkpoints[self.shard(actor)?] = life.position;
                self.deliver(&mut next, actor);
            }
            Step::Die(actor) => {
                let life = std::mem::take(&mut next.lives[actor]);
                next.lives[actor].starts = life.starts;
                next.sent.extend(life.asked.filter(|_| life.earlier != Earlier::Applied));
            }
            Step::ArriveLate(n) => {
                let operation = world.sent.iter().nth(n)?;
                self.arrive(&mut next, operation);
                if self.remembers_tokens {
                    next.sent.remove(operation);
                }
            }
        }
        Some(self.settle(next))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::properties(self)
    }
}
