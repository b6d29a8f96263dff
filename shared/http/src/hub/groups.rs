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
}

/// All readers.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_interest: HashMap<Arc<Interest>, Id>,
    groups: HashMap<Id, Group>,
    members: usize,
    /// The groups that the index lacks, and those that it has and that are gone.
    unindexed: HashMap<Id, Unindexed>,
}

#[derive(Debug)]
enum Unindexed {
    New(Arc<Interest>),
    Gone,
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
        let group = *self.by_interest.entry(interest.clone()).or_insert_with(|| {
            let id = next_id();
            self.groups.insert(id, Group { interest: interest.clone(), members: HashMap::new() });
            self.unindexed.insert(id, Unindexed::New(interest.clone()));
            id
        });
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
        shrink(&mut found.members);
        if found.members.is_empty()
            && let Some(gone) = self.groups.remove(&group)
        {
            self.by_interest.remove(&gone.interest);
            if !matches!(self.unindexed.remove(&group), Some(Unindexed::New(_))) {
                self.unindexed.insert(group, Unindexed::Gone);
            }
            shrink(&mut self.groups);
            shrink(&mut self.by_interest);
            shrink(&mut self.unindexed);
        }
    }

    /// Takes what an index must be updated with.
    pub(super) fn unindexed(&mut self) -> Updates {
        Updates(std::mem::take(&mut self.unindexed))
    }

    /// Hands batches to the members of their groups, and returns how many readers were reached.
    pub(super) fn hand_out(&self, matched: &[(Id, Vec<Arc<Batch>>)]) -> usize {
        let mut reached = 0;
        for (id, batches) in matched {
            let Some(group) = self.groups.get(id) else { continue };
            batches.iter().for_each(|batch| group.members.values().for_each(|member| member.put(batch)));
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

/// Groups that came and went since an index was updated.
#[derive(Debug)]
pub(super) struct Updates(HashMap<Id, Unindexed>);

/// The groups by the keys of their interests. The hub's task alone uses it, so nobody waits while changes are matched.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    interests: HashMap<Id, Arc<Interest>>,
    exact: HashMap<String, Vec<Id>>,
    prefix: HashMap<String, Vec<Id>>,
    /// The lengths of the prefixes, and how many there are of each.
    lengths: BTreeMap<usize, usize>,
    patterns: usize,
}

impl Index {
    pub(super) fn update(&mut self, updates: Updates) {
        for (id, update) in updates.0 {
            match update {
                Unindexed::New(interest) => self.add(id, interest),
                Unindexed::Gone => self.remove(id),
            }
        }
        shrink(&mut self.interests);
        shrink(&mut self.exact);
        shrink(&mut self.prefix);
    }

    fn add(&mut self, id: Id, interest: Arc<Interest>) {
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
        self.patterns += interest.patterns();
        self.interests.insert(id, interest);
    }

    fn remove(&mut self, id: Id) {
        let Some(interest) = self.interests.remove(&id) else { return };
        self.patterns -= interest.patterns();
        for key in interest.keys() {
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
                ids.retain(|found| *found != id);
                if ids.is_empty() {
                    index.remove(text);
                }
            }
        }
    }

    /// At most how many patterns are matched with a change.
    pub(super) fn patterns(&self) -> usize {
        self.patterns
    }

    /// Returns what each group is sent, and how many times an interest was compared with a change.
    pub(super) fn matched(&self, entries: &[Arc<Entry>]) -> (Vec<Sent>, usize) {
        let (mut matched, mut compared) = (HashMap::<Id, Vec<Arc<Entry>>>::new(), 0);
        for entry in entries {
            let address = entry.change.address.as_str();
            let by_prefix = self.lengths.keys().filter_map(|length| self.prefix.get(address.get(..*length)?));
            for id in self.exact.get(address).into_iter().chain(by_prefix).flatten() {
                compared += 1;
                if self.interests.get(id).is_some_and(|interest| interest.takes(&entry.change)) {
                    matched.entry(*id).or_default().push(entry.clone());
                }
            }
        }
        (matched.into_iter().map(|(id, entries)| (id, batches(entries))).collect(), compared)
    }
}

/// A group, and the batches that it is sent.
pub(super) type Sent = (Id, Vec<Arc<Batch>>);

/// Returns memory that is no longer needed.
fn shrink<K: Eq + std::hash::Hash, V>(map: &mut HashMap<K, V>) {
    if map.capacity() > 64 && map.len() < map.capacity() / 4 {
        map.shrink_to_fit();
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
