//! References as stored at the dependent: what is counted at its targets.

use nameservice_model::{Address, RecordKind, Severity};

use super::{
    codes::*,
    diagnosis::{Doctor, REFERENCES_AT_ONCE, Repair, named},
};
use crate::{
    concern::as_seen,
    expressions::{Action, Expression, Key},
    items::{self, Item, strings},
    references::{References, Step, counted},
    schema::*,
};

/// Returns the dependencies of a graph source: the targets, normalised and distinct, and the entries that are not addresses.
pub(super) fn wanted(meta: &Item, dependent: &Address) -> (Vec<Address>, Vec<String>) {
    let (mut targets, mut unreadable) = (Vec::new(), Vec::new());
    for entry in items::list_of_strings(meta, ATTR_DEPENDENCIES) {
        match Address::parse(&entry) {
            Ok(target) if target == *dependent => unreadable.push(entry),
            Ok(target) if targets.contains(&target) => {}
            Ok(target) => targets.push(target),
            Err(_) => unreadable.push(entry),
        }
    }
    (targets, unreadable)
}

fn texts<'a>(addresses: &[&'a Address]) -> Vec<&'a str> {
    addresses.iter().map(|address| address.as_str()).collect()
}

impl Doctor<'_> {
    pub(super) fn references(&mut self, meta: &Item) {
        // Its dependencies are unreadable, so nothing can be concluded.
        if items::present(meta, ATTR_DEPENDENCIES).is_some_and(|value| !value.is_l()) {
            return;
        }
        let related = self.related;
        let (wanted, unreadable) = wanted(meta, &self.address);
        if !unreadable.is_empty() {
            self.by_hand(
                DEPENDENCY_UNREADABLE,
                Severity::Warning,
                format!("it depends on entries that are not addresses: {}", named(&unreadable)),
                "publish it again with dependencies that are addresses of other records",
            );
        }
        // Nothing is counted for a record with such a name; its address has a finding of its own.
        if !self.address.is_well_formed() {
            return;
        }
        let counted = counted(meta);
        let retracted = items::flag(meta, ATTR_RETRACTED);
        let missing: Vec<&Address> = wanted.iter().filter(|target| related.record(target).is_none()).collect();
        let (live, gone): (Vec<&Address>, Vec<&Address>) = wanted
            .iter()
            .filter(|target| !missing.contains(target))
            .partition(|target| related.record(target).is_some_and(|meta| !items::flag(meta, ATTR_RETRACTED)));
        if !missing.is_empty() {
            self.by_hand(
                DEPENDENCY_MISSING,
                if retracted { Severity::Warning } else { Severity::Error },
                format!("it depends on records that do not exist: {}", named(&texts(&missing))),
                "create them, or publish it again without them",
            );
        }
        if !gone.is_empty() && !retracted {
            self.by_hand(
                DEPENDENCY_RETRACTED,
                Severity::Warning,
                format!("it is live and depends on retracted records: {}", named(&texts(&gone))),
                "restore them, retract it, or publish it again without them",
            );
        }
        let uncounted: Vec<&Address> = live.iter().copied().filter(|target| !counted.contains(target)).collect();
        if !uncounted.is_empty() {
            let repair = self.adopt(meta, &wanted, &counted, &uncounted);
            self.find(
                REFERENCES_UNCOUNTED,
                Severity::Error,
                format!(
                    "its dependencies are not counted, so these can be retracted or purged: {}",
                    named(&texts(&uncounted))
                ),
                "count them at their targets".into(),
                Some(repair),
            );
        }
        let without_row: Vec<&Address> =
            live.iter().copied().filter(|target| counted.contains(target) && !self.has_row(target)).collect();
        if !without_row.is_empty() {
            let repair = self.count_again(meta, &without_row);
            self.find(
                BACKREF_MISSING,
                Severity::Error,
                format!("it counts as a dependent of these, which have no row for it: {}", named(&texts(&without_row))),
                "count it at its targets".into(),
                Some(repair),
            );
        }
        let outdated: Vec<&Address> = counted.iter().filter(|target| !wanted.contains(target)).collect();
        if !outdated.is_empty() {
            let repair = self.uncount(meta, &counted, &outdated);
            self.find(
                REFERENCES_OUTDATED,
                Severity::Warning,
                format!("it is counted at records that it no longer depends on: {}", named(&texts(&outdated))),
                "decrement their counts".into(),
                Some(repair),
            );
        }
    }

    /// Returns whether a target has the row of this dependent.
    fn has_row(&self, target: &Address) -> bool {
        self.related.has(&Key::new(target, sk_backref(self.address.as_str())))
    }

    /// Creates one transaction: each target's count and row, and the list of counted targets.
    fn adopt(&self, meta: &Item, wanted: &[Address], counted: &[Address], uncounted: &[&Address]) -> Repair {
        let adopted = &uncounted[..uncounted.len().min(REFERENCES_AT_ONCE)];
        let kept = |target: &&Address| counted.contains(target) || adopted.contains(target);
        let outdated = counted.iter().filter(|target| !wanted.contains(target));
        let list: Vec<&Address> = wanted.iter().filter(kept).chain(outdated).collect();
        let mut actions = vec![self.list_counted(meta, &list)];
        let steps = adopted.iter().map(|target| {
            // An existing row may be counted already: the target's own finding corrects the count.
            let step = if self.has_row(target) { Step::AlreadyCounted } else { Step::Count };
            ((*target).clone(), step)
        });
        actions.extend(self.actions(steps));
        for target in adopted.iter().filter(|target| self.has_row(target)) {
            let mut row = Expression::new();
            row.exists(ATTR_PK);
            actions.push(row.into_check(&Key::new(target, sk_backref(self.address.as_str()))));
        }
        Repair(actions)
    }

    fn count_again(&self, meta: &Item, targets: &[&Address]) -> Repair {
        let targets = &targets[..targets.len().min(REFERENCES_AT_ONCE)];
        let mut check = Expression::new();
        check.kind_is(RecordKind::GraphSource);
        as_seen(&mut check, meta, &[ATTR_DEPENDENCIES, ATTR_COUNTED]);
        let mut actions = vec![check.into_check(&Key::meta(&self.address))];
        actions.extend(self.actions(targets.iter().map(|target| ((*target).clone(), Step::Count))));
        // The target may still include it in its count, with only the row lost: the target's own finding corrects the
        // count.
        Repair(actions)
    }

    fn uncount(&self, meta: &Item, counted: &[Address], outdated: &[&Address]) -> Repair {
        let undone = &outdated[..outdated.len().min(REFERENCES_AT_ONCE)];
        let list: Vec<&Address> = counted.iter().filter(|target| !undone.contains(target)).collect();
        let counts = |target: &Address| {
            self.related.record(target).is_some_and(|meta| items::integer(meta, ATTR_DEPENDENTS).unwrap_or(0) > 0)
        };
        let steps = undone.iter().filter(|target| self.has_row(target) && ***target != self.address).map(|target| {
            let step = if counts(target) { Step::Uncount } else { Step::DropRow };
            ((*target).clone(), step)
        });
        let mut actions = vec![self.list_counted(meta, &list)];
        actions.extend(self.actions(steps));
        Repair(actions)
    }

    /// Returns the actions of these steps, planned for the counters that were read.
    fn actions(&self, steps: impl Iterator<Item = (Address, Step)>) -> impl Iterator<Item = Action> {
        let mut references = References::of(steps);
        for target in references.steps.keys().cloned().collect::<Vec<_>>() {
            if let Some(meta) = self.related.record(&target) {
                references.see(&target, meta);
            }
        }
        references.actions(&self.address, self.now).into_iter().map(|(_, action)| action)
    }

    /// Writes the list of counted targets, on the condition that it and the dependencies are unchanged.
    fn list_counted(&self, meta: &Item, list: &[&Address]) -> Action {
        let mut update = Expression::new();
        update.kind_is(RecordKind::GraphSource);
        as_seen(&mut update, meta, &[ATTR_DEPENDENCIES, ATTR_COUNTED]);
        update.set(ATTR_COUNTED, strings(list.iter().map(|target| target.as_str())));
        update.touch(self.now);
        update.into_update(&Key::meta(&self.address))
    }
}
