//! The one thread that writes.
//!
//! It takes all waiting commands, applies them one after another to its own state, writes their changes in one
//! transaction, and waits for the disk once. Only then is the state published and are the commands answered.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use arc_swap::ArcSwap;
use metrics::{counter, histogram};
use nameservice_model::{Address, BoxError, Error, Result, Written};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::{
    OpenError,
    contention::{Held, lost},
    log::{Batch, CommitError, Entry, Log, is_full, rows},
    pace::Pace,
    queue::{Job, MAX_GROUP, Queue, Waited},
    recent::Recent,
    snapshots::Snapshots,
    state::{Action, Applied, Command, Now, State},
};

/// How many commands are taken at a time.
const TAKEN: usize = 32;
/// A group ends once its changes have this many bytes.
const MAX_GROUP_BYTES: usize = 4 * 1024 * 1024;
/// How many commands may wait. Further callers wait for a place.
const QUEUE: usize = 4096;
/// The pause between two removals of expired changes while nothing else is written.
const TRIM_EVERY: Duration = Duration::from_millis(10);
/// The shortest wait for the next change to expire.
const TRIM_PAUSE: Duration = Duration::from_secs(60);
/// The pause between two attempts to write on a full disk.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// The pause of a thread that waits for a group to be published.
const PUBLISHED: Duration = Duration::from_millis(1);
const WRITE: &str = "write to the log";

pub(crate) const FULL: &str =
    "the disk is full: records are read as they are, and writes are accepted once there is space";

type Clock = dyn Fn() -> SystemTime + Send + Sync;

/// What readers and the writer share.
pub(crate) struct Shared {
    /// The last state that is durable.
    pub(crate) published: ArcSwap<State>,
    pub(crate) recent: Recent,
    pub(crate) snapshots: Snapshots,
    /// The position of the published state, for those who wait for it to move.
    pub(crate) moved: watch::Sender<u64>,
    pub(crate) retention: Duration,
    clock: RwLock<Arc<Clock>>,
    /// Whether the log can be written.
    condition: watch::Sender<Condition>,
    /// When something was last written, or could have been.
    sound_at: Mutex<Option<Instant>>,
    /// Odd from before a group is committed until it is published or rejected.
    commits: AtomicU64,
}

/// Whether a log can be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Sound,
    /// The disk is full, or was and could not be tried again. Reads are served, and writes are accepted again once
    /// there is space.
    Full(String),
    /// Nothing is written any more in this process.
    Ended(String),
}

impl Shared {
    pub(crate) fn new(state: State, recent_bytes: usize, retention: Duration) -> Self {
        Self {
            moved: watch::Sender::new(state.position()),
            published: ArcSwap::from_pointee(state),
            recent: Recent::new(recent_bytes),
            snapshots: Snapshots::default(),
            retention,
            clock: RwLock::new(Arc::new(SystemTime::now)),
            condition: watch::Sender::new(Condition::Sound),
            sound_at: Mutex::default(),
            commits: AtomicU64::default(),
        }
    }

    pub(crate) fn set_clock(&self, clock: Arc<Clock>) {
        *self.clock.write().unwrap_or_else(PoisonError::into_inner) = clock;
    }

    pub(crate) fn now(&self) -> Now {
        let clock = self.clock.read().unwrap_or_else(PoisonError::into_inner).clone();
        Now::from(clock())
    }

    /// Returns the time, in epoch milliseconds, before which recorded changes have expired.
    pub(crate) fn expired_before(&self) -> i64 {
        let retention = i64::try_from(self.retention.as_millis()).unwrap_or(i64::MAX);
        self.now().ms.saturating_sub(retention)
    }

    /// Returns whether the log can be written, as far as is known.
    pub(crate) fn condition(&self) -> Condition {
        self.condition.borrow().clone()
    }

    /// Completes when nothing is written any more, with the reason.
    pub(crate) fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        let mut condition = self.condition.subscribe();
        async move {
            let ended = condition.wait_for(|condition| matches!(condition, Condition::Ended(_))).await;
            if let Ok(Condition::Ended(reason)) = ended.map(|condition| condition.clone()) {
                return reason;
            }
            // The nameservice was closed.
            std::future::pending().await
        }
    }

    /// Notes whether the log can be written. What has ended stays so.
    pub(crate) fn set(&self, new: Condition) {
        self.condition.send_if_modified(|condition| match condition {
            Condition::Ended(_) => false,
            condition => std::mem::replace(condition, new.clone()) != new,
        });
    }

    /// Waits until all is published that a transaction of this thread has read from the log. Returns whether it is: not if
    /// nothing is written any more, since the log may then hold more.
    pub(crate) fn has_published(&self) -> bool {
        let is_ended = || matches!(*self.condition.borrow(), Condition::Ended(_));
        let seen = self.commits.load(Ordering::SeqCst);
        while seen % 2 == 1 && self.commits.load(Ordering::SeqCst) == seen && !is_ended() {
            thread::sleep(PUBLISHED);
        }
        !is_ended()
    }

    fn note_sound(&self) {
        *self.sound_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        if *self.condition.borrow() != Condition::Sound {
            tracing::info!("the log can be written again");
            self.set(Condition::Sound);
        }
    }

    /// Returns whether the log could be written a moment ago.
    pub(crate) fn is_sound(&self) -> bool {
        let sound_at = *self.sound_at.lock().unwrap_or_else(PoisonError::into_inner);
        sound_at.is_some_and(|at| at.elapsed() < PROBE_EVERY) && *self.condition.borrow() == Condition::Sound
    }

    fn publish(&self, state: State, entries: Vec<Entry>, expired_before: Option<i64>) {
        // Changes first, so that a reader that sees the position finds them.
        self.recent.append(entries, expired_before);
        self.published.store(Arc::new(state));
        self.snapshots.drop_unused();
    }

    /// Wakes the readers that wait for the published position to move.
    fn announce(&self) {
        let position = self.published.load().position();
        self.moved.send_if_modified(|last| std::mem::replace(last, position) != position);
    }
}

/// A handle to the writer. Dropping it lets the writer finish, and waits for that.
pub(crate) struct Writer {
    places: Arc<Semaphore>,
    queue: Arc<Queue>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writer {
    /// Starts a writer from the published state.
    pub(crate) fn start(shared: Arc<Shared>, log: Option<Log>) -> Result<Self, OpenError> {
        let queue = Arc::new(Queue::default());
        let received = queue.clone();
        let run = move || {
            let state = State::clone(&shared.published.load());
            // A log that was opened on a full disk is tried again soon.
            let probe_at = (shared.condition() != Condition::Sound).then(|| Instant::now() + PROBE_EVERY);
            let (held, pace) = (Held::default(), Pace::default());
            Run { state, shared, log, queue: received, held, pace, probe_at }.run();
        };
        let thread = thread::Builder::new().name("embedded-writer".to_owned()).spawn(run).map_err(OpenError::Thread)?;
        Ok(Self { places: Arc::new(Semaphore::new(QUEUE)), queue, thread: Some(thread) })
    }

    /// Returns how many commands wait for their group.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        QUEUE - self.places.available_permits()
    }

    /// Sends a command to the writer, and waits until what it wrote is durable.
    pub(crate) async fn write(&self, operation: &'static str, command: Command) -> Result<Option<Written>> {
        let stopped = || Error::Unavailable { operation, source: Some("the writer of the log has stopped".into()) };
        let place = self.places.clone().acquire_owned().await.map_err(|_| stopped())?;
        let (answer, answered) = oneshot::channel();
        if !self.queue.send(Job { command, answer, _place: place }) {
            return Err(stopped());
        }
        let lost = |_| Error::OutcomeUnknown { operation, source: Some("the writer of the log has stopped".into()) };
        answered.await.map_err(lost)?
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has reported it on stderr.
            let _ = thread.join();
        }
    }
}

struct Run {
    /// The state that is published once the log has it.
    state: State,
    shared: Arc<Shared>,
    log: Option<Log>,
    queue: Arc<Queue>,
    held: Held,
    pace: Pace,
    /// When the log is next tried, if the disk was full.
    probe_at: Option<Instant>,
}

/// An outcome that waits for the disk.
type Pending = (oneshot::Sender<Result<Option<Written>>>, Result<Option<Written>>);

/// The commands that are written and answered together.
#[derive(Default)]
struct Group {
    batch: Batch,
    bytes: usize,
    pending: Vec<Pending>,
    /// Records with a push that was rejected because of the stored value.
    lost: HashSet<Address>,
    /// Whether it was asked if the log can be written.
    is_probed: bool,
    failed: Option<rows::Unreadable>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.queue.abandon();
        if thread::panicking() {
            self.shared.set(Condition::Ended("its writer has panicked".to_owned()));
        }
    }
}

impl Run {
    fn run(mut self) {
        loop {
            let due = self.trim_due().map(|left| Instant::now() + left);
            let due = [due, self.held.due(), self.probe_at].into_iter().flatten().min();
            match self.queue.wait(1, due) {
                Waited::Closed => break,
                Waited::TimedOut if self.probe_at.is_some_and(|at| at <= Instant::now()) => {
                    self.recover();
                }
                Waited::TimedOut if self.held.due().is_none_or(|due| due > Instant::now()) => self.trim(),
                waited => {
                    if let Some((expected, until)) =
                        self.pace.gathering(Instant::now()).filter(|_| waited == Waited::Enough)
                    {
                        let all = self.queue.wait(expected, Some(until)) == Waited::Enough;
                        self.pace.gathered(all);
                    }
                    self.write();
                }
            }
        }
        let is_sound = self.shared.condition() == Condition::Sound;
        if let Some(log) = self.log.as_mut().filter(|_| is_sound)
            && let Err(error) = log.empty()
        {
            tracing::warn!(%error, "the write-ahead file of the log was not emptied; the next start does that");
        }
    }

    /// Writes a group of waiting commands.
    fn write(&mut self) {
        let reason = match self.shared.condition() {
            Condition::Sound => None,
            Condition::Full(_) if self.recover() => None,
            Condition::Full(reason) | Condition::Ended(reason) => Some(reason),
        };
        if let Some(reason) = reason {
            let mut jobs = self.held.all();
            jobs.extend(self.queue.take(MAX_GROUP));
            count_rejected(jobs.len());
            jobs.into_iter().for_each(|job| job.answer(Err(unavailable(&reason))));
            return;
        }
        let (mut group, begun) = (Group::default(), Instant::now());
        for job in self.held.expired(begun) {
            self.apply(job, &mut group, false);
        }
        while group.pending.len() < MAX_GROUP && group.bytes < MAX_GROUP_BYTES {
            let jobs = self.queue.take(TAKEN);
            if jobs.is_empty() {
                break;
            }
            jobs.into_iter().for_each(|job| self.apply(job, &mut group, true));
        }
        let written = group.batch.records.values().flatten();
        let next: Vec<_> = written.filter_map(|record| self.held.next(&record.address, begun)).collect();
        next.into_iter().for_each(|job| self.apply(job, &mut group, false));
        let Group { batch, pending, failed, is_probed, .. } = group;
        match failed {
            // Not reachable: a change can always be encoded.
            Some(error) => self.reject(pending, &error, false),
            None if batch.is_empty() && !is_probed => {}
            None => self.commit(batch, pending),
        }
    }

    /// Applies a command. It is answered with its group, or immediately if the group has written nothing so far. A push
    /// that lost may be held instead, if `may_hold` is set.
    fn apply(&mut self, job: Job, group: &mut Group, may_hold: bool) {
        // Each command has its own time, which is not before the time at which it was sent.
        let now = self.shared.now();
        let Applied { outcome, changes, touched, memories, replaced } = self.state.apply(&job.command, now);
        if replaced.is_some() {
            group.batch = Batch { replaced, ..Batch::default() };
        }
        for change in &changes {
            match self.entry(change) {
                Ok(entry) => {
                    group.bytes += entry.body.len();
                    group.batch.changes.push(entry);
                }
                Err(error) => group.failed = Some(error),
            }
        }
        group.batch.memories.extend(memories);
        group.is_probed |= matches!(job.command.action, Action::Probe);
        group.batch.records.extend(touched.into_iter().map(|touched| (touched.id, touched.record)));
        if let Some(address) = lost(&job.command, &outcome).filter(|_| may_hold)
            && (self.held.has(address.as_str()) || !group.lost.insert(address.clone()))
        {
            let address = Arc::<str>::from(address.as_str());
            return self.held.put(address, job, Instant::now());
        }
        match group.batch.is_empty() && !matches!(job.command.action, Action::Probe) {
            // It depends only on durable values, and wrote nothing.
            true => job.answer(outcome),
            false => group.pending.push((job.answer, outcome)),
        }
    }

    fn commit(&mut self, batch: Batch, pending: Vec<Pending>) {
        let expired_before = self.shared.expired_before();
        let begun = Instant::now();
        self.shared.commits.fetch_add(1, Ordering::SeqCst);
        let committed = match &mut self.log {
            Some(log) if batch.is_empty() => log.probe(),
            Some(log) => log.commit(&batch, expired_before),
            None => Ok(()),
        };
        match committed {
            Ok(()) => {
                self.shared.note_sound();
                if self.log.is_some() {
                    histogram!("nameservice_log_commit_duration_seconds").record(begun.elapsed());
                    self.pace.ended(begun, Instant::now(), pending.len() + self.queue.len());
                }
                histogram!("nameservice_log_commit_commands").record(pending.len() as f64);
                let expired = self.log.is_none().then_some(expired_before);
                if batch.replaced.is_some() {
                    self.shared.recent.clear();
                    self.shared.snapshots.clear();
                }
                self.shared.publish(self.state.clone(), batch.changes, expired);
                self.shared.commits.fetch_add(1, Ordering::SeqCst);
                for (answer, outcome) in pending {
                    // A caller that has gone away misses the outcome.
                    let _ = answer.send(outcome);
                }
                // The writers of a group are woken before its readers.
                self.shared.announce();
                self.checkpoint_if_due();
            }
            Err(error) => {
                count_rejected(pending.len());
                tracing::error!(error = nameservice_model::chain(&error), "a group of commands was not committed");
                self.note_failure(&error);
                self.shared.commits.fetch_add(1, Ordering::SeqCst);
                self.reject(pending, &error, matches!(error, CommitError::Unknown(_)));
            }
        }
    }

    /// Decides what a failed commit means for the next ones.
    fn note_failure(&mut self, error: &CommitError) {
        match error {
            error if error.is_full() => self.fill(&nameservice_model::chain(error)),
            error if error.is_permanent() => self.end(&nameservice_model::chain(error)),
            _ => {}
        }
    }

    /// Writes nothing more in this process.
    fn end(&self, reason: &str) {
        self.shared.set(Condition::Ended(format!("{reason}: restart the service")));
    }

    /// Writes nothing until the disk has space again.
    fn fill(&mut self, reason: &str) {
        self.shared.set(Condition::Full(format!("{FULL} ({reason})")));
        self.probe_at = Some(Instant::now() + PROBE_EVERY);
    }

    /// Tries to write again after the disk was full. Returns whether that is possible.
    fn recover(&mut self) -> bool {
        self.probe_at = None;
        let Some(log) = &mut self.log else { return true };
        match log.recover() {
            Ok(()) => {
                self.shared.note_sound();
                true
            }
            Err(error) => {
                let reason = nameservice_model::chain(&error);
                match error {
                    error if error.is_full() => self.fill(&reason),
                    error if error.is_permanent() => self.end(&reason),
                    _ => {
                        self.shared.set(Condition::Full(reason));
                        self.probe_at = Some(Instant::now() + PROBE_EVERY);
                    }
                }
                false
            }
        }
    }

    fn checkpoint_if_due(&mut self) {
        let Some(log) = &mut self.log else { return };
        if let Err(error) = log.checkpoint_if_due() {
            tracing::warn!(%error, "the write-ahead file of the log was not emptied; a later write tries again");
            if is_full(&error) {
                self.fill(&error.to_string());
            }
        }
    }

    /// Discards a group that is not in the log. If it may be there after a restart, the outcome is unknown.
    fn reject(&mut self, pending: Vec<Pending>, error: &dyn std::error::Error, is_unknown: bool) {
        self.state = State::clone(&self.shared.published.load());
        let reason = nameservice_model::chain(error);
        for (answer, _) in pending {
            let source: Option<BoxError> = Some(reason.clone().into());
            let _ = answer.send(Err(match is_unknown {
                true => Error::OutcomeUnknown { operation: WRITE, source },
                false => Error::Unavailable { operation: WRITE, source },
            }));
        }
    }

    fn entry(&self, change: &nameservice_model::Change) -> Result<Entry, rows::Unreadable> {
        let address = match self.state.records.get(change.address.as_str()) {
            Some(record) => record.address.clone(),
            None => Arc::from(change.address.as_str()),
        };
        Ok(Entry {
            position: change.position,
            at: change.recorded_at.as_millisecond(),
            address,
            body: rows::encode_change(change)?.into(),
        })
    }

    /// Returns how long to wait for a command before expired changes are removed; `None` if there is nothing to remove.
    fn trim_due(&self) -> Option<Duration> {
        let log = self.log.as_ref().filter(|_| self.shared.condition() == Condition::Sound)?;
        if let Some(left) = log.untidy_for() {
            return Some(left);
        }
        match log.oldest_at()?.saturating_sub(self.shared.expired_before()) {
            ..=0 => Some(TRIM_EVERY),
            left => Some(Duration::from_millis(left.unsigned_abs()).max(TRIM_PAUSE)),
        }
    }

    fn trim(&mut self) {
        let expired_before = self.shared.expired_before();
        let Some(log) = &mut self.log else { return };
        match log.commit(&Batch::default(), expired_before) {
            Ok(()) => self.checkpoint_if_due(),
            Err(error) => {
                tracing::warn!(
                    error = nameservice_model::chain(&error),
                    "expired changes were not removed from the log"
                );
                self.note_failure(&error);
                if matches!(error, CommitError::Rejected(_)) {
                    thread::sleep(Duration::from_secs(1));
                }
            }
        }
    }
}

/// Counts commands that were not written, before they are answered: each of them, since an alert follows how many there are for as long
/// as the log cannot be written.
fn count_rejected(commands: usize) {
    counter!("nameservice_log_commit_failures_total").increment(commands as u64);
}

fn unavailable(reason: &str) -> Error {
    Error::Unavailable { operation: WRITE, source: Some(reason.to_owned().into()) }
}
