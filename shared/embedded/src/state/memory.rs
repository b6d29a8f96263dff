//! What is remembered of an address after its record was purged.

use std::sync::Arc;

use imbl::{HashMap, OrdSet};
use nameservice_model::{Address, ConcernKind, RecordKind};
use serde::{Deserialize, Serialize};

use super::{
    Now, Record,
    call_id::{CallId, Ring},
};

/// For how long an address is remembered, in milliseconds: as long as a caller may repeat a request.
const REMEMBERED_MS: i64 = 48 * 3600 * 1000;
/// How many addresses are remembered at most: beyond, those that were purged first are forgotten before their time.
/// Few in tests, so that it happens there.
pub(crate) const MAX_REMEMBERED: usize = if cfg!(test) { 50 } else { 1_000_000 };
/// How many addresses a purge forgets at most. More than it adds, so that none is kept permanently.
const FORGOTTEN: usize = 8;

/// The last calls that ended or began a life of an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// When the record was purged, epoch milliseconds.
    pub(crate) at: i64,
    /// When the purged record was created, epoch seconds.
    pub(super) created_at: i64,
    /// The branch that the purged record was created from.
    source_branch: Option<Arc<str>>,
    /// The head that the purged record was created with, and the call that created it.
    first_head: Option<(CallId, i64, Arc<str>)>,
    calls: Ring,
}

impl Memory {
    /// Returns whether it no longer counts.
    pub(crate) fn is_over(&self, now: Now) -> bool {
        is_over(self.at, now)
    }

    /// Returns the `t` and the id of the head that this call has created the purged record with.
    pub(super) fn first_head(&self, call: CallId) -> Option<(i64, Arc<str>)> {
        self.first_head.as_ref().filter(|(by, ..)| *by == call).map(|(_, t, id)| (*t, id.clone()))
    }

    /// Returns the record that the purged one was branched from.
    pub(super) fn parent(&self, address: &Address) -> Option<Address> {
        address.with_branch(self.source_branch.as_deref()?).ok().filter(|parent| parent != address)
    }
}

/// The addresses that are remembered.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memories {
    by_address: HashMap<Arc<str>, Arc<Memory>>,
    by_time: OrdSet<(i64, Arc<str>)>,
}

impl Memories {
    /// Puts what was read from the log.
    pub(crate) fn put(&mut self, address: Arc<str>, memory: Arc<Memory>) {
        self.forget(&address);
        self.by_time.insert((memory.at, address.clone()));
        self.by_address.insert(address, memory);
    }

    fn forget(&mut self, address: &Arc<str>) {
        if let Some(before) = self.by_address.remove(address) {
            self.by_time.remove(&(before.at, address.clone()));
        }
    }

    /// Returns what is remembered of an address.
    pub(super) fn get(&self, address: &Address, now: Now) -> Option<&Arc<Memory>> {
        self.by_address.get(address.as_str()).filter(|memory| !is_over(memory.at, now))
    }

    /// Remembers the purge of a record by a call. Returns what has changed; `None` for an address that was forgotten.
    pub(super) fn remember(&mut self, purged: &Record, call: CallId, now: Now) -> Vec<(Arc<str>, Option<Arc<Memory>>)> {
        let before = self.by_address.get(&purged.address).filter(|memory| !is_over(memory.at, now)).cloned();
        self.forget(&purged.address);
        let excess = (self.by_address.len() + 1).saturating_sub(MAX_REMEMBERED);
        let oldest = self.by_time.iter().enumerate().take(FORGOTTEN);
        let over: Vec<_> = oldest
            .take_while(|(n, (at, _))| *n < excess || is_over(*at, now))
            .map(|(_, (_, address))| address.clone())
            .collect();
        over.iter().for_each(|address| self.forget(address));
        let before = before.map(|memory| memory.calls.clone()).unwrap_or_default();
        let calls = began(purged).into_iter().chain(before.iter());
        let memory = Arc::new(Memory {
            at: now.ms,
            created_at: purged.created_at,
            source_branch: purged.origin.as_ref().and_then(|origin| origin.source_branch.clone()),
            first_head: first_head(purged),
            calls: Ring::of_distinct(std::iter::once(call).chain(calls)),
        });
        self.put(purged.address.clone(), memory.clone());
        let forgotten = over.into_iter().map(|address| (address, None));
        forgotten.chain([(purged.address.clone(), Some(memory))]).collect()
    }

    /// Returns all of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Memory>)> {
        self.by_address.iter()
    }

    /// Returns what the log holds of an address, whether or not it still counts.
    pub(crate) fn stored(&self, address: &str) -> Option<&Arc<Memory>> {
        self.by_address.get(address)
    }

    /// Returns all of them, in the order of the addresses.
    pub(super) fn sorted(&self) -> Vec<(&Arc<str>, &Arc<Memory>)> {
        let mut all: Vec<_> = self.by_address.iter().collect();
        all.sort_by_key(|(address, _)| *address);
        all
    }
}

/// Returns the calls of which one created the record, as far as that is remembered: the creation was the first to write
/// every concern, so it is the oldest call of each concern that fewer than five calls have written. Of a graph source, the
/// last publications too: they could create it again.
fn began(record: &Record) -> Vec<CallId> {
    let of = |concern| record.calls(concern).and_then(Ring::oldest);
    let oldest: Vec<CallId> = [ConcernKind::Config, ConcernKind::Status, ConcernKind::Index, ConcernKind::Head]
        .into_iter()
        .filter_map(of)
        .collect();
    let republished = (record.kind == RecordKind::GraphSource).then(|| record.config.calls.iter());
    oldest.into_iter().chain(republished.into_iter().flatten()).collect()
}

/// Returns the head that a record was created with, if no call has written it since.
fn first_head(record: &Record) -> Option<(CallId, i64, Arc<str>)> {
    let head = record.head.as_ref()?;
    let mut calls = head.calls.iter();
    let (creator, None) = (calls.next()?, calls.next()) else { return None };
    Some((creator, head.t, head.id.clone()?))
}

fn is_over(at: i64, now: Now) -> bool {
    at.saturating_add(REMEMBERED_MS) <= now.ms
}

impl Memory {
    /// Returns whether the call ended or began a life of the address.
    pub(super) fn remembers(&self, call: CallId) -> bool {
        self.calls.remembers(call)
    }

    /// Returns whether another request was made under the key of this call.
    pub(super) fn knows_key_of(&self, call: CallId) -> bool {
        self.calls.knows_key_of(call)
    }
}
