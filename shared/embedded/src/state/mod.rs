//! The state machine: every operation of the nameservice over records in memory.
//!
//! [`State::apply`] has no input but the state, the command and the time: no clock, no randomness, no I/O, and nothing
//! depends on the order of a hash map. The same commands at the same times leave the same state, outcomes and changes.
//!
//! A clone shares everything with its original and takes constant time, so a clone is also a consistent snapshot.

mod call_id;
mod changes;
mod command;
mod concern;
mod config;
mod dump;
mod graph_sources;
mod head;
mod index;
mod leases;
mod ledgers;
mod lists;
mod memory;
mod observe;
mod orders;
mod place;
mod portable;
mod protections;
mod purges;
mod pushes;
mod record;
mod replicas;
mod retractions;
mod search;
mod status;
mod transactions;

use std::{sync::Arc, time::SystemTime};

use imbl::HashMap;
use nameservice_model::{Address, Change, Error, MAX_WATERMARK, RecordKind, Result, Write, Written};

pub use command::{Action, Command};
pub(crate) use lists::Walk;
#[cfg(test)]
pub(crate) use memory::MAX_REMEMBERED;
pub(crate) use memory::Memory;
pub use portable::Portable;
pub(crate) use record::{Origin, Record};
pub use replicas::Replicated;
pub(crate) use replicas::created_at_position;

use self::{call_id::CallId, memory::Memories, orders::Orders, search::Texts};

/// The time of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    pub(crate) ms: i64,
}

impl Now {
    /// Returns the time of this many milliseconds after the epoch.
    pub const fn from_millis(ms: i64) -> Self {
        Self { ms }
    }

    /// Returns the whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.ms.div_euclid(1000)
    }
}

impl From<SystemTime> for Now {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX) }
    }
}

/// All records, and the position of the last change.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(crate) records: HashMap<Arc<str>, Arc<Record>>,
    orders: Orders,
    /// The addresses whose records were purged.
    pub(crate) memories: Memories,
    pub(crate) position: u64,
    /// When the last change was recorded, epoch milliseconds. It never goes back.
    pub(crate) recorded_at: i64,
    /// How many snapshots have replaced everything in this process.
    pub(crate) adopted: u64,
}

/// The result of a command.
#[derive(Debug)]
#[must_use]
pub struct Applied {
    /// The outcome of a caller's write; `None` of anything else. An error was caused by the caller, or says that the outcome
    /// of an earlier call is no longer known.
    pub outcome: Result<Option<Written>>,
    /// What has changed, in the order of the feed; nothing if the command was not applied.
    pub changes: Vec<Change>,
    /// The records that were written or removed.
    pub(crate) touched: Vec<Touched>,
    /// The addresses that are remembered again, or (`None`) no longer.
    pub(crate) memories: Vec<(Arc<str>, Option<Arc<Memory>>)>,
    /// Everything before was replaced: the feed continues after this position and time.
    pub(crate) replaced: Option<(u64, i64)>,
}

/// A record after a command.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    /// Its row.
    pub(crate) id: u64,
    /// `None` if it was removed.
    pub(crate) record: Option<Arc<Record>>,
}

impl State {
    /// Returns the state without records, before the first change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the position of the last change; 0 before the first.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// Returns how many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Applies a command. Deterministic: it depends on the state, the command and the time alone.
    pub fn apply(&mut self, command: &Command, now: Now) -> Applied {
        match &command.action {
            Action::Adopt { records, position } => return self.adopt(records, *position),
            Action::Replicate(changes) => return self.take(changes),
            _ => {}
        }
        let (changes, touched, memories) = (Vec::new(), Vec::new(), Vec::new());
        let mut step = Step { state: self, now, call: command.call, changes, touched, memories };
        let outcome = step.run(&command.action);
        let Step { changes, touched, memories, .. } = step;
        Applied { outcome, changes, touched, memories, replaced: None }
    }

    pub(crate) fn get(&self, address: &Address) -> Option<&Arc<Record>> {
        self.records.get(address.as_str())
    }

    /// Puts records that were read from the log. Returns the address of a record that occurs twice.
    pub(crate) fn load(&mut self, records: impl IntoIterator<Item = Record>) -> Option<Arc<str>> {
        let twice = records.into_iter().find_map(|record| self.load_one(record));
        let records = &self.records;
        self.orders.write_texts(|place| records.get(&place.address).map(|record| &**record));
        twice
    }

    /// Returns the texts that are searched.
    pub(crate) const fn texts(&self) -> &Texts {
        self.orders.texts()
    }

    fn load_one(&mut self, record: Record) -> Option<Arc<str>> {
        let record = Arc::new(record);
        self.orders.place(&record);
        self.records.insert(record.address.clone(), record).map(|before| before.address.clone())
    }
}

/// One command on its way through the state.
struct Step<'a> {
    state: &'a mut State,
    now: Now,
    call: CallId,
    changes: Vec<Change>,
    touched: Vec<Touched>,
    memories: Vec<(Arc<str>, Option<Arc<Memory>>)>,
}

impl Step<'_> {
    fn run(&mut self, action: &Action) -> Result<Option<Written>> {
        Ok(match action {
            Action::Write(write) => Some(self.write(write)?),
            Action::Observe { address, record } => {
                self.observe(address, record.as_deref());
                None
            }
            // The first two concern the state as a whole.
            Action::Adopt { .. } | Action::Replicate(_) | Action::Probe => None,
        })
    }

    fn write(&mut self, write: &Write) -> Result<Written> {
        Ok(match write {
            Write::CreateLedger(ledger) => Written::Created(self.create_ledger(ledger)?),
            Write::CreateBranch { branch, source, at } => {
                Written::BranchCreated(self.create_branch(branch, source, at.as_ref())?)
            }
            Write::PublishGraphSource(publication) => Written::Published(self.publish_graph_source(publication)?),
            Write::PushHead { address, push } => Written::Head(self.push::<head::HeadConcern>(address, push)?),
            Write::PushIndex { address, push } => Written::Index(self.push::<index::IndexConcern>(address, push)?),
            Write::PushStatus { address, push } => Written::Status(self.push::<status::StatusConcern>(address, push)?),
            Write::PushConfig { address, push } => Written::Config(self.push::<config::ConfigConcern>(address, push)?),
            Write::Retract { address, reason } => Written::Retracted(self.retract(address, reason.as_deref())?),
            Write::Restore { address } => Written::Restored(self.restore(address)?),
            Write::Purge { address } => Written::Purged(self.purge(address)?),
            Write::Protect { address, protected } => Written::Protection(self.protect(address, *protected)?),
            Write::DropBranch { address } => Written::Dropped(self.drop_branch(address)?),
            Write::ResetHead { address, to } => Written::Reset(self.reset_head(address, to)?),
            Write::AcquireLease { address, request } => Written::Leased(self.acquire_lease(address, request)?),
            Write::RefreshLease { address, request, token } => {
                Written::Leased(self.refresh_lease(address, request, *token)?)
            }
            Write::ReleaseLease { address, claim } => Written::Released(self.release_lease(address, claim)?),
            Write::Commit(transaction) => Written::Committed(self.commit(write.operation(), transaction.operations())?),
        })
    }

    fn get(&self, address: &Address) -> Option<Arc<Record>> {
        self.state.get(address).cloned()
    }

    /// A record that this command creates.
    fn new_record(&self, address: &Address, kind: RecordKind) -> Record {
        Record::new(address.as_str(), kind, self.state.position + 1, self.call, self.now.ms)
    }

    /// Stores a record as this command leaves it, and reports what has changed.
    fn put(&mut self, mut record: Record) -> Arc<Record> {
        record.touch(self.now.ms);
        let before = self.state.records.get(&record.address).cloned();
        if let Some(before) = &before {
            // One address text is shared by all that refer to it.
            record.address = before.address.clone();
        }
        let record = Arc::new(record);
        self.report(before.as_deref(), Some(&record));
        self.state.orders.replace(before.as_deref(), &record);
        self.state.records.insert(record.address.clone(), record.clone());
        self.touched.push(Touched { id: record.id, record: Some(record.clone()) });
        record
    }

    /// Removes a record permanently.
    fn remove(&mut self, record: &Record) {
        self.report(Some(record), None);
        self.state.orders.remove(record);
        self.state.records.remove(&record.address);
        self.touched.push(Touched { id: record.id, record: None });
    }

    /// Changes the counters of a record that another one refers to.
    fn change(&mut self, address: &Address, change: impl FnOnce(&mut Record)) -> Option<Arc<Record>> {
        let mut record = Record::clone(self.state.get(address)?);
        change(&mut record);
        Some(self.put(record))
    }

    fn report(&mut self, before: Option<&Record>, after: Option<&Record>) {
        let recorded_at = self.state.recorded_at.max(self.now.ms);
        let position = self.state.position;
        changes::between(before, after, (self.now.ms, recorded_at), position, &mut self.changes);
        if let Some(last) = self.changes.last().filter(|change| change.position > position) {
            self.state.position = last.position;
            self.state.recorded_at = recorded_at;
        }
    }

    /// Returns what is remembered of an address.
    fn memory(&self, address: &Address) -> Option<&Arc<Memory>> {
        self.state.memories.get(address, self.now)
    }

    /// Returns what is remembered of an address if this call ended or began a life of it.
    fn remembered_at(&self, address: &Address) -> Option<&Arc<Memory>> {
        self.memory(address).filter(|memory| memory.remembers(self.call))
    }

    /// Returns whether another request was made under the key of this one, as far as the address or any part of its
    /// record remembers.
    fn reuses_key_at(&self, address: &Address, record: Option<&Record>) -> bool {
        let calls = record.into_iter().flat_map(Record::all_calls);
        self.memory(address).is_some_and(|memory| memory.knows_key_of(self.call))
            || calls.into_iter().any(|calls| calls.knows_key_of(self.call))
    }

    /// Returns an error if the key was used for another request.
    fn check_key(&self, reused: bool, operation: &'static str) -> Result<()> {
        if reused { Err(Error::IdempotencyKeyReused { operation }) } else { Ok(()) }
    }
}

/// Returns a counter after one more; an error if it cannot grow.
fn one_more(counter: &'static str, value: i64) -> Result<i64> {
    match value {
        MAX_WATERMARK.. => Err(Error::LimitReached { counter }),
        value => Ok(value + 1),
    }
}

/// Returns a counter after a write; an error if the write would take it beyond the maximum.
fn grown(counter: &'static str, before: i64, after: i64) -> Result<i64> {
    match after > MAX_WATERMARK && after > before {
        true => Err(Error::LimitReached { counter }),
        false => Ok(after),
    }
}

/// Returns an error if a count of references cannot grow.
fn check_count(counter: &'static str, count: u32) -> Result<()> {
    if count == u32::MAX { Err(Error::LimitReached { counter }) } else { Ok(()) }
}

/// Returns the error for a call that is remembered, but whose outcome can no longer be determined.
fn outcome_unknown(operation: &'static str) -> Error {
    Error::OutcomeUnknown { operation, source: Some("other calls have written since this one".into()) }
}
