//! Counts of dependents (docs/specification.md, References): each dependency has one counter at its target and one row in the
//! target's partition, always changed together, in the transaction that changes the dependent.

use std::collections::BTreeMap;

use aws_sdk_dynamodb::types::AttributeValue;
use nameservice_model::{Address, Result};

use crate::{
    Store,
    client::{Attempts, Failed, MAX_PLANS, Outcome, contended},
    expressions::{Action, Expression, Key, unreadable},
    items::{self, Item, number, string, strings},
    records::{Part, rejected_at},
    schema::*,
};

/// The most actions of one transaction.
const MAX_ACTIONS: usize = 100;
/// The most targets that one transaction uncounts beside an action at the dependent: two actions each.
const UNCOUNTED_AT_ONCE: usize = (MAX_ACTIONS - 1) / 2;

/// What a transaction does about one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Count it and put the row; the target must be live.
    Count,
    /// It is counted already: only check that the target is live.
    AlreadyCounted,
    /// The row outlived its target, which was created again without the count: count it again, if the counter is still
    /// this one.
    CountAgain(i64),
    /// Uncount it and delete the row.
    Uncount,
    /// The target is gone, or its counter was never incremented: only delete the row.
    DropRow,
}

impl Step {
    /// How many actions it takes.
    const fn actions(self) -> usize {
        match self {
            Self::Count | Self::CountAgain(_) | Self::Uncount => 2,
            Self::AlreadyCounted | Self::DropRow => 1,
        }
    }

    const fn undoes(self) -> bool {
        matches!(self, Self::Uncount | Self::DropRow)
    }
}

/// The dependent of references that are undone after the transaction that changed it.
pub(crate) enum Dependent<'a> {
    /// It was purged.
    Purged,
    /// It has this meta item, and lists these targets as counted beside those that are to be undone.
    Stays(&'a Item, &'a [Address]),
}

/// What one transaction does about all targets of one dependent.
#[derive(Clone, Debug, Default)]
pub(crate) struct References {
    pub(crate) steps: BTreeMap<Address, Step>,
    /// Counters that are not numbers, as others have left them. They count as absent.
    unreadable: BTreeMap<Address, AttributeValue>,
}

impl References {
    pub(crate) fn count(targets: &[Address]) -> Self {
        Self::of(targets.iter().map(|target| (target.clone(), Step::Count)))
    }

    pub(crate) fn of(steps: impl IntoIterator<Item = (Address, Step)>) -> Self {
        Self { steps: steps.into_iter().collect(), unreadable: BTreeMap::new() }
    }

    /// Plans for the counter that was read in a target's meta item.
    pub(crate) fn see(&mut self, target: &Address, meta: &Item) {
        match unreadable(meta, ATTR_DEPENDENTS) {
            Some(stored) => drop(self.unreadable.insert(target.clone(), stored.clone())),
            None => drop(self.unreadable.remove(target)),
        }
    }

    /// Returns the steps from the targets that are counted now to those that should be.
    pub(crate) fn change(counted: &[Address], wanted: &[Address]) -> Self {
        let kept = |target: &Address| counted.contains(target);
        let mut steps: BTreeMap<_, _> = wanted
            .iter()
            .map(|target| (target.clone(), if kept(target) { Step::AlreadyCounted } else { Step::Count }))
            .collect();
        for target in counted.iter().filter(|target| !wanted.contains(target)) {
            steps.insert(target.clone(), Step::Uncount);
        }
        Self::of(steps)
    }

    pub(crate) fn undo(counted: &[Address]) -> Self {
        Self::change(counted, &[])
    }

    /// Leaves as many steps as fit in a transaction with this many other actions. Returns the targets that are not undone by
    /// it. That is safe to do later: until then, they cannot be retracted or purged.
    pub(crate) fn limit(&mut self, others: usize) -> Vec<Address> {
        let mut actions = others + self.steps.values().map(|step| step.actions()).sum::<usize>();
        let mut later = Vec::new();
        while actions > MAX_ACTIONS
            && let Some((target, step)) = self.steps.iter().rev().find(|(_, step)| step.undoes())
        {
            actions -= step.actions();
            later.push(target.clone());
            self.steps.remove(&later[later.len() - 1]);
        }
        later
    }

    pub(crate) fn actions(&self, dependent: &Address, now: i64) -> Vec<(Part, Action)> {
        let mut actions = Vec::new();
        for (target, step) in &self.steps {
            let meta = Key::meta(target);
            let row = Key::new(target, sk_backref(dependent.as_str()));
            let at_meta = Part::Target(target.clone());
            let at_row = Part::Backref(target.clone());
            match step {
                Step::Count | Step::CountAgain(_) => {
                    let mut count = live_record();
                    match step {
                        Step::CountAgain(_) if self.unreadable.contains_key(target) => {}
                        Step::CountAgain(0) => count.equals_or_absent(ATTR_DEPENDENTS, number(0)),
                        Step::CountAgain(seen) => count.equals(ATTR_DEPENDENTS, number(*seen)),
                        _ => {}
                    }
                    count.count(ATTR_DEPENDENTS, self.unreadable.get(target));
                    count.touch(now);
                    actions.push((at_meta, count.into_update(&meta)));
                    let mut put = Expression::new();
                    if *step == Step::Count {
                        put.not_exists(ATTR_PK);
                    }
                    let mut item = items::base(target, &row.sk, now);
                    item.insert(ATTR_DEPENDENT.to_owned(), string(dependent.as_str()));
                    actions.push((at_row, put.into_put(item)));
                }
                Step::AlreadyCounted => actions.push((at_meta, live_record().into_check(&meta))),
                Step::Uncount => {
                    let mut count = Expression::new();
                    count.record_exists();
                    count.at_least(ATTR_DEPENDENTS, 1);
                    count.add(ATTR_DEPENDENTS, -1);
                    count.touch(now);
                    actions.push((at_meta, count.into_update(&meta)));
                    let mut delete = Expression::new();
                    delete.exists(ATTR_PK);
                    actions.push((at_row, delete.into_delete(&row)));
                }
                Step::DropRow => actions.push((at_row, Expression::new().into_delete(&row))),
            }
        }
        actions
    }

    /// Adjusts the steps after a rejection: targets that are gone need not be uncounted, and those that are counted
    /// need not be counted again. Returns all targets that are missing or retracted.
    pub(crate) fn learn(&mut self, failed: &[(Part, Failed)]) -> Vec<Address> {
        let mut missing = Vec::new();
        for (part, Failed(item)) in failed {
            match part {
                Part::Target(target) => match self.steps.get_mut(target) {
                    Some(step @ Step::Uncount) => *step = Step::DropRow,
                    // Its counter is not what it was planned for.
                    Some(Step::Count | Step::CountAgain(_))
                        if let Some(meta) = item.as_ref().filter(|item| is_live(item))
                            && unreadable(meta, ATTR_DEPENDENTS) != self.unreadable.get(target) =>
                    {
                        self.see(target, meta);
                    }
                    // The target may only have another count by now: then the row is looked at again.
                    Some(step @ Step::CountAgain(_)) if item.as_ref().is_some_and(is_live) => *step = Step::Count,
                    Some(Step::Count | Step::CountAgain(_) | Step::AlreadyCounted) => missing.push(target.clone()),
                    Some(Step::DropRow) | None => {}
                },
                Part::Backref(target) => match self.steps.get_mut(target) {
                    // The row exists, left by an earlier record at the address of the dependent or of the target.
                    Some(step @ Step::Count) if item.is_some() => *step = Step::AlreadyCounted,
                    // No row, so nothing is counted.
                    Some(Step::Uncount | Step::DropRow) => {
                        self.steps.remove(target);
                    }
                    _ => {}
                },
                Part::Meta | Part::Concern(_) | Part::Parent | Part::ParentHead | Part::Log | Part::Calls => {}
            }
        }
        missing
    }
}

impl Store {
    /// Undoes what did not fit in the transaction that changed the dependent: see [`References::limit`]. What has changed
    /// since then is left to the caller that has changed it, and what fails to the doctor.
    pub(crate) async fn undo_afterwards(
        &self,
        operation: &'static str,
        dependent: &Address,
        (stored, later): (Dependent<'_>, Vec<Address>),
        now: i64,
        attempts: &mut Attempts,
    ) {
        if later.is_empty() {
            return;
        }
        let mut undone = Attempts::default();
        let undoing = self.undo_rest(operation, dependent, stored, later, now, &mut undone);
        self.afterwards(operation, dependent, attempts, undoing).await;
    }

    async fn undo_rest(
        &self,
        operation: &'static str,
        dependent: &Address,
        stored: Dependent<'_>,
        mut later: Vec<Address>,
        now: i64,
        attempts: &mut Attempts,
    ) -> Result<()> {
        while !later.is_empty() {
            let rest = later.split_off(later.len().min(UNCOUNTED_AT_ONCE));
            let mut references = References::undo(&later);
            let mut plans = 0;
            loop {
                let mut at_dependent = Expression::new();
                let key = Key::meta(dependent);
                let action = match stored {
                    Dependent::Purged => {
                        at_dependent.not_exists(ATTR_KIND);
                        at_dependent.into_check(&key)
                    }
                    Dependent::Stays(meta, kept) => {
                        let list = |uncounted: &[&[Address]]| {
                            strings([&[kept], uncounted].concat().concat().iter().map(Address::as_str))
                        };
                        at_dependent.same_record(meta);
                        at_dependent.equals(ATTR_COUNTED, list(&[&later, &rest]));
                        at_dependent.set(ATTR_COUNTED, list(&[&rest]));
                        at_dependent.touch(now);
                        at_dependent.into_update(&key)
                    }
                };
                let actions = [vec![(Part::Meta, action)], references.actions(dependent, now)].concat();
                let failed = match self.transact(operation, actions, attempts).await? {
                    Outcome::Applied(()) => break,
                    Outcome::Rejected(failed) => failed,
                };
                if rejected_at(&failed, &Part::Meta).is_some() {
                    return Ok(());
                }
                references.learn(&failed);
                plans += 1;
                if plans == MAX_PLANS {
                    return Err(contended(operation, *attempts));
                }
            }
            later = rest;
        }
        Ok(())
    }

    /// For each row that the plan wanted to put and that exists, checks whether the target's counter includes it.
    pub(crate) async fn check_found_rows(
        &self,
        operation: &'static str,
        references: &mut References,
        failed: &[(Part, Failed)],
        attempts: &mut Attempts,
    ) -> Result<()> {
        for (part, _) in failed {
            let Part::Backref(target) = part else { continue };
            let Some(step @ Step::AlreadyCounted) = references.steps.get_mut(target) else { continue };
            let meta = self.within(operation, attempts, self.get_item(operation, &Key::meta(target))).await?;
            let rows = self.within(operation, attempts, self.backrefs(operation, target)).await?.len();
            let counter = items::integer(&meta, ATTR_DEPENDENTS).unwrap_or(0);
            if usize::try_from(counter).unwrap_or(0) < rows {
                *step = Step::CountAgain(counter);
                references.see(target, &meta);
            }
        }
        Ok(())
    }

    /// Returns the records that depend on this one, from the rows in its partition.
    pub(crate) async fn backrefs(&self, operation: &'static str, target: &Address) -> Result<Vec<Address>> {
        let rows = self.query_partition(operation, target, "begins_with(#sk, :from)", SK_BACKREF_PREFIX).await?;
        Ok(rows.iter().filter_map(|row| items::text(row, ATTR_DEPENDENT)).map(Address::stored).collect())
    }
}

fn is_live(meta: &Item) -> bool {
    items::kind(meta).is_some() && !items::flag(meta, ATTR_RETRACTED)
}

fn live_record() -> Expression {
    let mut expression = Expression::new();
    expression.record_exists();
    expression.live();
    expression
}

/// Returns the targets that a dependent's meta lists as counted. Only well-formed addresses are ever counted.
pub(crate) fn counted(meta: &Item) -> Vec<Address> {
    items::list_of_strings(meta, ATTR_COUNTED).iter().filter_map(|target| Address::parse(target).ok()).collect()
}

/// Requires that no record depends on this one.
pub(crate) fn require_unreferenced(expression: &mut Expression) {
    expression.no_references(ATTR_BRANCHES);
    expression.no_references(ATTR_DEPENDENTS);
}

/// Returns whether any record depends on the one with this meta item.
pub(crate) fn is_referenced(meta: &Item) -> bool {
    [ATTR_BRANCHES, ATTR_DEPENDENTS].iter().any(|counter| items::integer(meta, counter).unwrap_or(0) > 0)
}
