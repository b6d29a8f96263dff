//! How actors run, and what a state keeps of what they have done.

use super::{Consumers, Earlier, Life, Role, World};
use crate::{
    faults::FeedFault,
    process::{KEYS, Memory, Outcome, Task},
    table::{Operation, Reply},
    wire::Next,
};

impl Consumers {
    /// An actor starts, at its checkpoint.
    pub(super) fn start(&self, world: &mut World, actor: usize) {
        let checkpoint = self.shard(actor).map(|shard| world.checkpoints[shard]);
        let counter = world.contents().counter;
        let life = &mut world.lives[actor];
        *life = Life { starts: life.starts + 1, is_alive: true, position: life.position, ..Life::default() };
        match self.roles[actor] {
            Role::Consumer { .. } => {
                life.position = checkpoint.unwrap_or_default();
                return self.deliver(world, actor);
            }
            Role::Epoch => life.task = Some(Task::BeginEpoch),
            Role::Reader { .. } => {
                life.counter = counter;
                life.task = Some(Task::Read { after: life.position });
            }
        }
        self.proceed(world, actor);
    }

    /// A consumer begins its next batch, if there is one.
    pub(super) fn deliver(&self, world: &mut World, actor: usize) {
        let Some(task) = self.batch(actor, &world.lives[actor]) else { return };
        if let (FeedFault::SavesFirst, Task::Append { shard, from, count }) = (self.fault, task) {
            world.checkpoints[shard] = from + count;
        }
        world.lives[actor].task = Some(task);
        self.proceed(world, actor);
    }

    /// Runs an actor's task as far as it gets.
    pub(super) fn proceed(&self, world: &mut World, actor: usize) {
        let life = &mut world.lives[actor];
        let Some(task) = life.task else { return };
        let (outcome, memory) = match self.processes.next(self.fault, &life.memory, task, &life.replies) {
            Next::Asks(asked) => {
                life.asked = Some(asked.operation);
                return;
            }
            Next::Done(done) => done,
        };
        let has_timed_out = life.replies.last() == Some(&Reply::TimedOut);
        *life = Life { memory, task: None, replies: Vec::new(), asked: None, ..std::mem::take(life) };
        let (Task::Append { shard, from, count }, Outcome::Appended(positions, error)) = (task, &outcome) else {
            return self.judge(world, actor, task, outcome);
        };
        match error {
            None => (life.position, life.is_unsaved) = (from + count, true),
            Some(_) => (life.position, life.starts) = (world.checkpoints[shard], life.starts + 1),
        }
        let batch = (from..from + count).map(|n| (shard, n));
        if error.is_some() != has_timed_out || !world.contents().has(positions, batch, error.is_none()) {
            world.wrong.get_or_insert(format!("{task:?}: {outcome:?}"));
        } else if error.is_some() {
            // The batch is delivered again to the same process.
            self.deliver(world, actor);
        }
    }

    /// Judges what a reader is returned, or a process that starts an epoch.
    fn judge(&self, world: &mut World, actor: usize, task: Task, outcome: Outcome) {
        let (contents, life) = (world.contents().clone(), &mut world.lives[actor]);
        let counter = std::mem::take(&mut life.counter);
        life.is_alive = false;
        match (task, outcome) {
            (Task::BeginEpoch, Outcome::Begun(first)) if first == contents.epoch => {}
            (Task::Read { after }, Outcome::Found(changes)) if contents.follows(after, &changes) => {
                life.position += changes.len();
                if life.position < counter {
                    world.misread.get_or_insert(format!("the counter was {counter}, after {after} came {changes:?}"));
                }
            }
            (Task::Read { after }, Outcome::Gone(oldest)) if after + 1 < oldest && oldest <= contents.epoch => {
                life.position = oldest - 1;
            }
            (task, outcome) => {
                world.misread.get_or_insert(format!("{task:?}: {outcome:?}, of {contents:?}"));
            }
        }
    }

    /// A request arrives.
    pub(super) fn arrive(&self, world: &mut World, operation: &Operation) -> Reply {
        let (reply, wrote) = world.table.answer(operation, None, KEYS);
        if wrote {
            let before = std::mem::replace(&mut world.seen, self.readers.look(&world.table));
            if let (Ok(before), Ok(after)) = (&*before, &*world.seen) {
                world.is_rewritten |= !after.ever.starts_with(&before.ever) || after.counter <= before.counter;
            }
        }
        reply
    }

    /// A consumer takes an unfinished batch for done.
    pub(super) fn pass_over(&self, world: &mut World, actor: usize) {
        let life = &mut world.lives[actor];
        if let Some(Task::Append { from, count, .. }) = life.task.take() {
            (life.position, life.is_unsaved) = (from + count, true);
        }
        (life.asked, life.replies) = (None, Vec::new());
    }

    /// No reply comes to the transaction that an actor waits for.
    pub(super) fn lose(&self, world: &mut World, actor: usize) -> Option<()> {
        let life = &mut world.lives[actor];
        let (task, operation) = (life.task?, life.asked.clone()?);
        if self.fault == FeedFault::PassesOver {
            world.sent.insert(operation);
            self.pass_over(world, actor);
            return Some(());
        }
        let before = self.processes.asked(self.fault, &life.memory, task, &life.replies);
        life.replies.push(Reply::Lost);
        let after = self.processes.asked(self.fault, &life.memory, task, &life.replies);
        // The same transaction again, or another one: its token decides.
        match before == after {
            true => life.earlier = Earlier::UnderWay,
            false => {
                world.sent.insert(operation);
                self.proceed(world, actor);
            }
        }
        Some(())
    }

    /// Drops from a state what decides nothing.
    pub(super) fn settle(&self, mut world: World) -> World {
        let table = &world.table;
        world.sent.retain(|operation| table.applies(operation));
        for (actor, life) in world.lives.iter_mut().enumerate() {
            let is_open = life.asked.as_ref().is_some_and(|operation| table.applies(operation));
            if life.earlier == Earlier::UnderWay && !is_open {
                life.earlier = Earlier::None;
            }
            if life.task.is_none() && self.batch(actor, life).is_none() {
                life.memory = Memory::default();
            }
        }
        world
    }
}
