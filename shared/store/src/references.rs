//! Counts of dependents (docs/specification.md, References): each dependency has one counter at its target and one row in the
//! target's partition, always changed together, in the transaction that changes the dependent.

use std::collections::BTreeMap;

use nameservice_model::{Address, Result};

use crate::{
    Store,
    client::{Attempts, Failed},
    expressions::{Action, Expression, Key},
    items::{self, Item, number, string},
    records::Part,
    schema::*,
};

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

/// What one transaction does about all targets of one dependent.
#[derive(Clone, Debug, Default)]
pub(crate) struct References {
    pub(crate) steps: BTreeMap<Address, Step>,
}

impl References {
    pub(crate) fn count(targets: &[Address]) -> Self {
        Self { steps: targets.iter().map(|target| (target.clone(), Step::Count)).collect() }
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
        Self { steps }
    }

    pub(crate) fn undo(counted: &[Address]) -> Self {
        Self::change(counted, &[])
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
                        Step::CountAgain(0) => count.equals_or_absent(ATTR_DEPENDENTS, number(0)),
                        Step::CountAgain(seen) => count.equals(ATTR_DEPENDENTS, number(*seen)),
                        _ => {}
                    }
                    count.add(ATTR_DEPENDENTS, 1);
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
                Part::Meta | Part::Concern(_) | Part::Parent | Part::Log | Part::Calls => {}
            }
        }
        missing
    }
}

impl Store {
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
            }
        }
        Ok(())
    }

    /// Returns the records that depend on this one, from the rows in its partition.
    pub(crate) async fn backrefs(&self, operation: &'static str, target: &Address) -> Result<Vec<Address>> {
        let rows = self.query_partition(operation, target, "begins_with(#sk, :from)", SK_BACKREF_PREFIX, None).await?;
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
