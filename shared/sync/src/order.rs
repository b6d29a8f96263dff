//! The order in which records are written: each after what it was branched from and depends on.

use std::collections::{HashMap, HashSet};

use nameservice_model::{Address, Record, RecordKind};

/// Returns what a record was branched from and depends on.
pub(crate) fn needed(record: &Record) -> impl Iterator<Item = Address> {
    let branched = record.source_branch.as_deref().and_then(|branch| record.address.with_branch(branch).ok());
    let dependencies = record.dependencies.iter().filter_map(|text| Address::parse(text).ok());
    branched.into_iter().chain(dependencies).filter(|needed| *needed != record.address)
}

/// A record to be written, and the target's.
pub(crate) struct Work {
    pub(crate) record: Record,
    pub(crate) at_target: Option<Record>,
    /// Whether it is written because another record needs it, and has its own turn later.
    pub(crate) is_early: bool,
}

impl Work {
    pub(crate) fn new(record: Record, at_target: Option<Record>, is_early: bool) -> Self {
        Self { record, at_target, is_early }
    }

    /// Returns what must be at the target before the record is written.
    pub(crate) fn wants(&self) -> impl Iterator<Item = Address> {
        let at_target: HashSet<Address> = self.at_target.iter().flat_map(needed).collect();
        needed(&self.record).filter(move |needed| !at_target.contains(needed))
    }
}

/// Which records wait for which others.
pub(crate) struct Order {
    /// For each record, those that wait for it.
    waiting: Vec<Vec<usize>>,
    /// For each record, those that it waits for.
    awaited: Vec<HashSet<usize>>,
    ready: Vec<usize>,
    left: HashSet<usize>,
}

impl Order {
    pub(crate) fn of(work: &[Work]) -> Self {
        let places: HashMap<&Address, usize> =
            work.iter().enumerate().map(|(i, work)| (&work.record.address, i)).collect();
        let mut order = Self {
            waiting: vec![Vec::new(); work.len()],
            awaited: vec![HashSet::new(); work.len()],
            ready: Vec::new(),
            left: (0..work.len()).collect(),
        };
        for (i, one) in work.iter().enumerate() {
            for j in one.wants().filter_map(|needed| places.get(&needed).copied()) {
                // A branch needs a commit of its source; a dependency only has to exist.
                if (work[j].at_target.is_none() || one.record.kind == RecordKind::Ledger) && order.awaited[i].insert(j)
                {
                    order.waiting[j].push(i);
                }
            }
        }
        // Taken from the end, so that the first record is first.
        order.ready = (0..work.len()).rev().filter(|i| order.awaited[*i].is_empty()).collect();
        order
    }

    /// Returns the next record that waits for no other; `None` if there is none now.
    pub(crate) fn next(&mut self) -> Option<usize> {
        self.ready.pop()
    }

    /// Notes that a record is done. Those that waited for it alone are next.
    pub(crate) fn done(&mut self, i: usize) {
        self.left.remove(&i);
        self.is_there(i);
    }

    /// Notes that no record has to wait for this one any more.
    pub(crate) fn is_there(&mut self, i: usize) {
        for waiting in std::mem::take(&mut self.waiting[i]) {
            if self.awaited[waiting].remove(&i) && self.awaited[waiting].is_empty() {
                self.ready.push(waiting);
            }
        }
    }

    /// Makes a record the next one, whatever it waits for.
    pub(crate) fn release(&mut self, i: usize) {
        self.awaited[i].clear();
        self.ready.push(i);
    }

    /// Returns the records of a cycle, if all that are left wait for each other.
    pub(crate) fn cycle(&self) -> Vec<usize> {
        let Some(mut i) = self.left.iter().min().copied() else { return Vec::new() };
        let mut path = Vec::new();
        // Each of them waits for at least one other.
        while !path.contains(&i) {
            path.push(i);
            match self.awaited[i].iter().min() {
                Some(j) => i = *j,
                None => break,
            }
        }
        path.split_off(path.iter().position(|at| *at == i).unwrap_or(0))
    }
}
