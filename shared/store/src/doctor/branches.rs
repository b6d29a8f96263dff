//! Branches: their sources, and how many branches each source has.

use std::collections::{HashMap, hash_map::Entry};

use nameservice_model::{Address, Finding, Severity};

use super::{
    codes::*,
    diagnosis::{Diagnosis, Doctor, Repair, repairable, shown},
    partition::Partition,
};
use crate::{
    concern::as_seen,
    expressions::{Expression, Key},
    items::{self, Item, number},
    schema::*,
};

/// The longest partition key of DynamoDB, in bytes.
const MAX_PK_BYTES: usize = 2048;

/// Returns the source of a branch, from its meta item; `None` if it is not a branch.
pub(super) fn parent_of(meta: &Item) -> Option<String> {
    let (pk, source) = (items::pk(meta), items::text(meta, ATTR_BP_SOURCE)?);
    let parent = format!("{}:{source}", Address::stored(pk).name());
    (parent != pk && parent.len() <= MAX_PK_BYTES).then_some(parent)
}

/// Whether this is the meta item of a record that may be a branch: its kind, or its source, cannot be read.
pub(super) fn may_be_branch(item: &Item) -> bool {
    let (kind, source) = (items::kind(item), items::present(item, ATTR_BP_SOURCE));
    items::sk(item) == SK_META && source.is_some_and(|source| kind.is_none() || source.as_s().is_err())
}

/// Creates the finding of a meta item whose count of branches is not this. `unclear`: a record that may be one of its branches.
pub(super) fn miscounted_branches(meta: &Item, branches: i64, unclear: Option<&str>, now: i64) -> Option<Diagnosis> {
    if items::integer(meta, ATTR_BRANCHES).unwrap_or(0) == branches {
        return None;
    }
    let pk = items::pk(meta);
    let stored = shown(meta, ATTR_BRANCHES);
    let what = format!("`branches` is {stored}, and {branches} branches name it as their source");
    if let Some(unclear) = unclear {
        let mend = format!("nothing yet: {unclear}, which cannot be read, may be another one. Mend that first");
        let finding = Finding::new(BRANCHES_MISCOUNTED, Severity::Error, what, mend).at(pk);
        return Some(Diagnosis { finding, repair: None });
    }
    let mut count = Expression::new();
    count.record_exists();
    // Creating or dropping a branch updates this item, which the condition detects.
    as_seen(&mut count, meta, &[ATTR_BRANCHES, ATTR_UPDATED_AT_MS]);
    count.set(ATTR_BRANCHES, number(branches));
    count.touch(now);
    Some(repairable(
        pk,
        BRANCHES_MISCOUNTED,
        Severity::Error,
        what,
        format!("set it to {branches}, if the record has not changed since"),
        Repair(vec![count.into_update(&Key::meta(pk))]),
    ))
}

impl Doctor<'_> {
    pub(super) fn parent(&mut self, meta: &Item) {
        let Some(parent) = parent_of(meta).filter(|parent| self.related.record(parent).is_none()) else { return };
        self.by_hand(
            PARENT_MISSING,
            Severity::Warning,
            format!("it is a branch of {parent}, which does not exist"),
            "nothing breaks; drop the branch if it should have gone with its source",
        );
    }
}

/// Counts of branches minus the branches seen by a scan. Records at zero are removed.
#[derive(Default)]
pub(super) struct Balance {
    pub(super) open: HashMap<String, i64>,
}

impl Balance {
    pub(super) fn weigh(&mut self, partition: &Partition) {
        let Some((meta, _)) = partition.record() else { return };
        self.add(partition.pk.clone(), items::integer(meta, ATTR_BRANCHES).unwrap_or(0));
        if let Some(parent) = parent_of(meta) {
            self.add(parent, -1);
        }
    }

    fn add(&mut self, pk: String, by: i64) {
        match self.open.entry(pk) {
            Entry::Occupied(open) if *open.get() == -by => drop(open.remove()),
            Entry::Occupied(mut open) => *open.get_mut() += by,
            Entry::Vacant(even) if by != 0 => drop(even.insert(by)),
            Entry::Vacant(_) => {}
        }
    }
}
