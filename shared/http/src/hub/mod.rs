//! Reads the change feed once for all who follow it in this process.
//!
//! Streams and waiting polls read the feed themselves up to its end, and then [`subscribe`](Hub::subscribe): from there
//! on the hub reads for all of them, once, and hands each change only to those whose interest it matches. It never waits
//! for a reader: one that falls far behind is notified, and reads the feed directly again. Without subscribers the hub is
//! idle.

mod groups;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use nameservice_model::{Change, ChangeFeed, Error, Limit, Result, Run, RunMemory, chain};
use tokio::{
    sync::{Notify, OnceCell},
    time::{Instant, sleep},
};

use crate::{
    filter::{Interest, apart},
    hub::groups::{Groups, Index, Member, batches},
    problem::{Problem, ProblemDocument},
    shapes::changes,
};

/// How many changes are read in one request.
const PAGE: Limit = match Limit::new(1000) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};
/// How long one wait for the feed lasts at most.
const WAIT: Duration = Duration::from_secs(60);
/// The pauses after failures of the feed double from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// How many of the last changes are kept for those who subscribe a little behind the hub.
const KEPT: usize = 1024;
/// After each round the hub rests, so that the changes of that time go out together: this long for each reader it has
/// reached, and at least this many times as long as the read took.
const REST_FOR_EACH: Duration = Duration::from_micros(200);
const REST_FOR_READING: u32 = 3;
const MAX_REST: Duration = Duration::from_millis(100);
/// A shorter rest is skipped, since timers count milliseconds.
const MIN_REST: Duration = Duration::from_micros(250);

/// One change, with its JSON, which is made once.
#[derive(Debug)]
pub struct Entry {
    /// The change.
    pub change: Change,
    json: OnceLock<String>,
    /// What its payload takes, in bytes.
    memory: usize,
}

impl From<Change> for Entry {
    fn from(change: Change) -> Self {
        Self { memory: change.payload.memory(), change, json: OnceLock::new() }
    }
}

impl Entry {
    /// Returns the change as JSON, without line breaks.
    pub fn json(&self) -> &str {
        // Maps with string keys, strings and numbers can always be serialized.
        self.json.get_or_init(|| serde_json::to_string(&changes::Change::from(&self.change)).unwrap_or_default())
    }
}

/// Some changes that readers of one interest are sent together, in the order of the feed.
#[derive(Debug)]
pub struct Batch {
    /// The changes, at least one.
    pub entries: Vec<Arc<Entry>>,
    bytes: usize,
    text: OnceCell<Bytes>,
}

impl Batch {
    fn new(entries: Vec<Arc<Entry>>, bytes: usize) -> Self {
        Self { entries, bytes, text: OnceCell::new() }
    }

    /// Returns the bytes of the batch that are sent to each of its readers. The first reader makes them.
    pub async fn text<E>(&self, make: impl AsyncFnOnce(&[Arc<Entry>]) -> Result<Bytes, E>) -> Result<Bytes, E> {
        self.text.get_or_try_init(|| make(&self.entries)).await.cloned()
    }
}

/// The reason why a subscription has ended.
#[derive(Clone, Debug)]
pub enum End {
    /// The reader has fallen too far behind: read the feed, and subscribe again.
    Lagging,
    /// The feed no longer holds what follows.
    Gone {
        /// The oldest position that can still be read.
        oldest: u64,
    },
    /// The feed has failed for longer than the reader waits.
    Failed(Arc<Failed>),
}

/// A failure of the feed, for all who are waiting for it.
#[derive(Debug)]
pub struct Failed {
    /// The problem that a reader is shown.
    pub problem: ProblemDocument,
    /// What is logged.
    pub reason: String,
}

/// Whether a reader has joined the hub.
#[derive(Debug)]
pub enum Joined {
    /// It has: its batches begin here.
    Yes(Subscription),
    /// The hub is further than the reader has read: read on.
    Behind,
}

/// Reads the feed for all readers. Cheap to clone.
#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    feed: Arc<dyn ChangeFeed>,
    state: Mutex<State>,
    /// Everything up to here was handed out.
    position: AtomicU64,
    /// Notified when the last subscriber has left.
    idle: Notify,
}

#[derive(Default)]
struct State {
    groups: Groups,
    is_running: bool,
    /// The last changes that were read.
    recent: Recent,
    /// Everything up to here was read. It is being matched while it is beyond the position.
    read_to: u64,
}

/// The last changes that were read, for those who subscribe a little behind.
#[derive(Default)]
struct Recent {
    entries: VecDeque<Arc<Entry>>,
    /// What their payloads take, in bytes.
    memory: usize,
}

impl Recent {
    fn extend(&mut self, entries: impl Iterator<Item = Arc<Entry>>) {
        for entry in entries {
            self.memory += entry.memory;
            self.entries.push_back(entry);
            while self.entries.len() > KEPT || self.memory > RunMemory::MAX {
                let Some(oldest) = self.entries.pop_front() else { break };
                self.memory -= oldest.memory;
            }
        }
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("position", &self.0.position).finish_non_exhaustive()
    }
}

impl Hub {
    /// Returns a hub over a feed.
    pub fn new(feed: Arc<dyn ChangeFeed>) -> Self {
        let (state, position, idle) = (Mutex::default(), AtomicU64::new(0), Notify::new());
        Self(Arc::new(Inner { feed, state, position, idle }))
    }

    /// Subscribes a reader that has seen everything up to a position. `retry_for` is how long it tolerates a failing feed.
    pub fn subscribe(&self, interest: &Arc<Interest>, after: u64, retry_for: Duration) -> Joined {
        let mut state = self.0.state();
        let member = Arc::new(Member::new(retry_for));
        if !state.is_running {
            state.is_running = true;
            state.read_to = after;
            self.0.position.store(after, Ordering::Release);
            tokio::spawn(run(self.0.clone()));
        }
        let mut missed = Vec::new();
        if after < state.read_to {
            let begins = state.recent.entries.front().map(|first| first.change.position);
            if begins.is_none_or(|begins| after + 1 < begins) {
                return Joined::Behind;
            }
            missed.extend(state.recent.entries.iter().filter(|entry| entry.change.position > after).cloned());
        }
        let place = state.groups.add(interest, member.clone());
        let (hub, interest, ready) = (self.clone(), interest.clone(), VecDeque::new());
        Joined::Yes(Subscription { hub, member, place, after, interest, missed, seen: after, ready })
    }

    /// Returns how many readers are subscribed.
    pub fn subscribers(&self) -> usize {
        self.0.state().groups.len()
    }
}

/// A reader's place in the hub, until it is dropped.
#[derive(Debug)]
pub struct Subscription {
    hub: Hub,
    member: Arc<Member>,
    place: (u64, u64),
    after: u64,
    interest: Arc<Interest>,
    /// What the hub read before the reader joined, and the reader has not read.
    missed: Vec<Arc<Entry>>,
    /// The end of that, once it is known which part of it is for the reader.
    seen: u64,
    /// That part.
    ready: VecDeque<Arc<Batch>>,
}

impl Subscription {
    /// Waits for the next batch. Cancel safe: nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Result<Arc<Batch>, End> {
        if let Some(last) = self.missed.last().map(|last| last.change.position) {
            let marked = self.interest.marked(self.missed.clone(), |entry| &entry.change).await;
            // The reader reads the feed again.
            let marked = marked.map_err(|_| End::Lagging)?;
            self.ready =
                batches(marked.into_iter().filter_map(|(entry, taken)| taken.then_some(entry)).collect()).into();
            self.missed = Vec::new();
            self.seen = self.seen.max(last);
        }
        if let Some(batch) = self.ready.pop_front() {
            self.after = self.after.max(batch.entries.last().map_or(0, |last| last.change.position));
            return Ok(batch);
        }
        self.after = self.after.max(self.seen);
        loop {
            match self.member.take() {
                Some(Ok(batch)) => {
                    let Some(batch) = self.unseen(batch) else { continue };
                    return Ok(batch);
                }
                Some(Err(end)) => return Err(end),
                None => self.member.news.notified().await,
            }
        }
    }

    /// The part of a batch that the reader has not seen.
    fn unseen(&mut self, batch: Arc<Batch>) -> Option<Arc<Batch>> {
        let seen = batch.entries.iter().take_while(|entry| entry.change.position <= self.after).count();
        self.after = self.after.max(batch.entries.last()?.change.position);
        match seen {
            0 => Some(batch),
            seen => batches(batch.entries[seen..].to_vec()).pop(),
        }
    }

    /// Returns the position up to which there is nothing for this reader that [`next`](Self::next) has not returned.
    pub fn position(&self) -> u64 {
        // In this order: what the hub handed out before it moved its position is in the queue.
        let position = self.hub.0.position.load(Ordering::Acquire);
        let is_waiting = self.missed.is_empty() && self.ready.is_empty() && self.member.is_waiting();
        if is_waiting { self.after.max(position) } else { self.after }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.hub.0.state();
        state.groups.remove(self.place);
        if state.groups.is_empty() {
            self.hub.0.idle.notify_one();
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no readers are left, and then stops reading.
    fn is_over(&self) -> bool {
        let mut state = self.state();
        let is_over = state.groups.is_empty();
        if is_over {
            state.is_running = false;
            state.recent = Recent::default();
        }
        // Consumes an earlier notification, so that it does not end the wait that follows.
        pin!(self.idle.notified()).enable();
        is_over
    }

    /// Hands out the changes that follow the position, and returns how many readers were reached. They are matched without
    /// the lock: who joins meanwhile finds them among the recent ones.
    async fn hand_out(&self, index: &mut Arc<Index>, changes: Vec<Change>) -> Result<usize> {
        let Some(last) = changes.last().map(|last| last.position) else { return Ok(0) };
        let entries: Vec<Arc<Entry>> = changes.into_iter().map(|change| Arc::new(change.into())).collect();
        {
            let mut state = self.state();
            Arc::make_mut(index).update(state.groups.unindexed());
            // They are read twice if they could not be matched.
            let read_to = state.read_to;
            state.recent.extend(entries.iter().filter(|entry| entry.change.position > read_to).cloned());
            state.read_to = read_to.max(last);
        }
        let (work, matching) = (index.patterns() * entries.len(), index.clone());
        let (matched, _) = apart(work, move || matching.matched(&entries)).await?;
        let state = self.state();
        let reached = state.groups.hand_out(&matched);
        self.position.store(last, Ordering::Release);
        Ok(reached)
    }
}

async fn run(hub: Arc<Inner>) {
    let mut failing: Option<(Instant, Duration)> = None;
    let mut index = Arc::new(Index::default());
    while !hub.is_over() {
        match round(&hub, &mut index).await {
            Ok(()) => {
                if failing.take().is_some() {
                    tracing::info!("the change feed is available again");
                }
            }
            Err(error) => {
                if failing.is_none() {
                    tracing::warn!(error = chain(&error), "the change feed cannot be read; trying again");
                }
                let (since, pause) = failing.get_or_insert((Instant::now(), PAUSES.0));
                let reason = chain(&error).to_string();
                let failed = Arc::new(Failed { problem: Problem::from(error).document(), reason });
                let failing_for = since.elapsed() + *pause;
                hub.state().groups.end(&End::Failed(failed), |retry_for| failing_for >= retry_for);
                tokio::select! {
                    () = sleep(*pause) => {}
                    () = hub.idle.notified() => {}
                }
                *pause = PAUSES.1.min(*pause * 2);
            }
        }
    }
}

/// Reads and hands out the next changes, or waits for them.
async fn round(hub: &Inner, index: &mut Arc<Index>) -> Result<(), Error> {
    let position = hub.position.load(Ordering::Acquire);
    let begun = Instant::now();
    match hub.feed.changes(position, PAGE).await? {
        Run::Gone { oldest } => {
            let mut state = hub.state();
            state.groups.end(&End::Gone { oldest }, |_| true);
            state.groups = Groups::default();
            // They may be of another feed than what follows.
            state.recent = Recent::default();
            *index = Arc::default();
        }
        Run::Changes(changes) if changes.is_empty() => {
            // Readers that have left are not kept until the next change.
            let updates = hub.state().groups.unindexed();
            Arc::make_mut(index).update(updates);
            tokio::select! {
                waited = hub.feed.wait(position, WAIT) => waited?,
                () = hub.idle.notified() => {}
            }
        }
        Run::Changes(changes) => {
            let read = begun.elapsed();
            let reached = u32::try_from(hub.hand_out(index, changes).await?).unwrap_or(u32::MAX);
            let rest = (REST_FOR_EACH * reached).max(read * REST_FOR_READING).min(MAX_REST);
            if rest >= MIN_REST {
                sleep(rest).await;
            }
        }
    }
    Ok(())
}
