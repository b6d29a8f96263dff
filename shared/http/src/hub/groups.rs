//! Readers indexed by what they take: a change finds its readers without asking the others.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::{Batch, End, Entry};
use crate::filter::{Interest, Key};

/// The maximum backlog of one reader, in bytes of JSON. Beyond it the reader must read the feed directly. Entries are
/// shared by all readers that wait for them.
const MAX_BACKLOG_BYTES: usize = 4 * 1024 * 1024;
/// How large a batch becomes, in bytes of JSON; a single change may be larger.
const MAX_BATCH_BYTES: usize = 64 * 1024;

/// Unique in the process, so that a removed entry is not mistaken for a later one.
type Id = u64;

fn next_id() -> Id {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// A reader's end of the hub.
#[derive(Debug)]
pub(super) struct Member {
    queue: Mutex<Queue>,
    pub(super) news: Notify,
    /// How long the feed may fail before the subscription is ended.
    retry_for: Duration,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Arc<Batch>>,
    bytes: usize,
    end: Option<End>,
}

impl Member {
    pub(super) fn new(retry_for: Duration) -> Self {
        Self { queue: Mutex::default(), news: Notify::new(), retry_for }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next batch or, after the last, the end; `None` while there is neither.
    pub(super) fn take(&self) -> Option<Result<Arc<Batch>, End>> {
        let mut queue = self.queue();
        if let Some(batch) = queue.batches.pop_front() {
            queue.bytes -= batch.bytes;
            return Some(Ok(batch));
        }
        queue.end.clone().map(Err)
    }

    pub(super) fn is_waiting(&self) -> bool {
        let queue = self.queue();
        queue.batches.is_empty() && queue.end.is_none()
    }

    pub(super) fn put(&self, batch: &Arc<Batch>) {
        let mut queue = self.queue();
        if queue.end.is_some() {
            return;
        }
        if queue.bytes + batch.bytes > MAX_BACKLOG_BYTES && !queue.batches.is_empty() {
            *queue = Queue { end: Some(End::Lagging), ..Queue::default() };
        } else {
            queue.bytes += batch.bytes;
            queue.batches.push_back(batch.clone());
        }
        drop(queue);
        self.news.notify_one();
    }

    fn end(&self, end: End) {
        self.queue().end.get_or_insert(end);
        self.news.notify_one();
    }
}

/// Readers with equal interests.
#[derive(Debug)]
struct Group {
    interest: Arc<Interest>,
    members: HashMap<Id, Arc<Member>>,
    /// The entries that matched in this round.
    matched: Vec<Arc<Entry>>,
}

/// All readers.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_interest: HashMap<Arc<Interest>, Id>,
    groups: HashMap<Id, Group>,
    exact: HashMap<String, Vec<Id>>,
    prefix: HashMap<String, Vec<Id>>,
    /// The lengths of the prefixes, and how many there are of each.
    lengths: BTreeMap<usize, usize>,
    members: usize,
}

impl Groups {
    pub(super) fn is_empty(&self) -> bool {
        self.members == 0
    }

    pub(super) fn len(&self) -> usize {
        self.members
    }

    /// Adds a reader, and returns how to remove it.
    pub(super) fn add(&mut self, interest: &Arc<Interest>, member: Arc<Member>) -> (Id, Id) {
        let group = match self.by_interest.get(interest) {
            Some(group) => *group,
            None => self.add_group(interest.clone()),
        };
        let id = next_id();
        if let Some(found) = self.groups.get_mut(&group) {
            found.members.insert(id, member);
            self.members += 1;
        }
        (group, id)
    }

    pub(super) fn remove(&mut self, (group, member): (Id, Id)) {
        let Some(found) = self.groups.get_mut(&group) else { return };
        if found.members.remove(&member).is_some() {
            self.members -= 1;
        }
        if found.members.is_empty() {
            self.remove_group(group);
        }
    }

    fn add_group(&mut self, interest: Arc<Interest>) -> Id {
        let id = next_id();
        for key in interest.keys() {
            let (index, text) = match key {
                Key::Exact(text) => (&mut self.exact, text),
                Key::Prefix(text) => {
                    *self.lengths.entry(text.len()).or_default() += 1;
                    (&mut self.prefix, text)
                }
            };
            index.entry(text.to_owned()).or_default().push(id);
        }
        self.by_interest.insert(interest.clone(), id);
        self.groups.insert(id, Group { interest, members: HashMap::new(), matched: Vec::new() });
        id
    }

    fn remove_group(&mut self, id: Id) {
        let Some(group) = self.groups.remove(&id) else { return };
        self.by_interest.remove(&group.interest);
        for key in group.interest.keys() {
            let (index, text) = match key {
                Key::Exact(text) => (&mut self.exact, text),
                Key::Prefix(text) => {
                    if let Some(count) = self.lengths.get_mut(&text.len()) {
                        *count -= 1;
                        if *count == 0 {
                            self.lengths.remove(&text.len());
                        }
                    }
                    (&mut self.prefix, text)
                }
            };
            if let Some(ids) = index.get_mut(text) {
                // Only one entry, since a group may be under a key twice.
                if let Some(at) = ids.iter().position(|found| *found == id) {
                    ids.swap_remove(at);
                }
                if ids.is_empty() {
                    index.remove(text);
                }
            }
        }
    }

    /// Hands changes to the readers that take them, and returns how many those were.
    pub(super) fn distribute(&mut self, entries: &[Arc<Entry>]) -> usize {
        let mut touched = Vec::new();
        for entry in entries {
            let address = entry.change.address.as_str();
            let by_prefix = self.lengths.keys().filter_map(|length| self.prefix.get(address.get(..*length)?));
            for id in self.exact.get(address).into_iter().chain(by_prefix).flatten() {
                let Some(group) = self.groups.get_mut(id) else { continue };
                let is_there = group.matched.last().is_some_and(|last| Arc::ptr_eq(last, entry));
                if !is_there && group.interest.takes(&entry.change) {
                    if group.matched.is_empty() {
                        touched.push(*id);
                    }
                    group.matched.push(entry.clone());
                }
            }
        }
        let mut reached = 0;
        for id in touched {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            for batch in batches(std::mem::take(&mut group.matched)) {
                group.members.values().for_each(|member| member.put(&batch));
            }
            reached += group.members.len();
        }
        reached
    }

    /// Ends the readers whose `retry_for` satisfies `is_over`.
    pub(super) fn end(&mut self, end: &End, is_over: impl Fn(Duration) -> bool) {
        for group in self.groups.values() {
            group
                .members
                .values()
                .filter(|member| is_over(member.retry_for))
                .for_each(|member| member.end(end.clone()));
        }
    }
}

/// Splits what a group is sent into batches.
pub(super) fn batches(entries: Vec<Arc<Entry>>) -> Vec<Arc<Batch>> {
    let (mut batches, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
    for entry in entries {
        let size = entry.json().len();
        if bytes + size > MAX_BATCH_BYTES && !batch.is_empty() {
            batches.push(Arc::new(Batch::new(std::mem::take(&mut batch), bytes)));
            bytes = 0;
        }
        bytes += size;
        batch.push(entry);
    }
    if !batch.is_empty() {
        batches.push(Arc::new(Batch::new(batch, bytes)));
    }
    batches
}
