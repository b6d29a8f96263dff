//! Findings of one partition and their repairs: rules over items that were read, without requests.

use nameservice_model::{Address, Call, ConcernKind, ConcernValue, RecordKind, StatusPayload};
use serde_json::Value;

use super::{
    Finding, Fix, Severity,
    partition::{Partition, Related, SWEPT_AT_ONCE, Standing},
};
use crate::{
    concern::as_seen,
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems, number, strings},
    references::{References, Step, counted, is_referenced},
    retractions::{concern_action, retracted_status, set_marks, status_v, unmarked},
    schema::*,
};

const MARKS_MISSING: &str = "marks-missing";
const MARKS_LEFT: &str = "marks-left";
const RETRACTED_IN_USE: &str = "retracted-in-use";
const REFERENCES_UNCOUNTED: &str = "references-uncounted";
const REFERENCES_OUTDATED: &str = "references-outdated";
const BACKREF_MISSING: &str = "backref-missing";
const BACKREF_STALE: &str = "backref-stale";
const BACKREF_MALFORMED: &str = "backref-malformed";
const DEPENDENTS_MISCOUNTED: &str = "dependents-miscounted";
const BRANCHES_MISCOUNTED: &str = "branches-miscounted";
const DEPENDENCY_MISSING: &str = "dependency-missing";
const DEPENDENCY_RETRACTED: &str = "dependency-retracted";
const DEPENDENCY_UNREADABLE: &str = "dependency-unreadable";
const PARENT_MISSING: &str = "parent-missing";
const ORPHAN_ITEMS: &str = "orphan-items";
const GHOST_META: &str = "ghost-meta";
const LEFTOVER_COMMITS: &str = "leftover-commits";
const KIND_UNKNOWN: &str = "kind-unknown";
const ATTRIBUTE_MALFORMED: &str = "attribute-malformed";
const ID_MISSING: &str = "id-missing";
const NAME_DISAGREES: &str = "name-disagrees";
const CONFIG_NOT_JSON: &str = "config-not-json";
const LEASE_MALFORMED: &str = "lease-malformed";
const CONTEXTS_DIFFER: &str = "contexts-differ";
const ADDRESS_UNUSABLE: &str = "address-unusable";
const UNSETTLED: &str = "unsettled";

pub(super) const CODES: &[(&str, &str)] = &[
    (MARKS_MISSING, "retracted in the meta item only: pushes are still accepted"),
    (MARKS_LEFT, "live again in the meta item only: pushes are still rejected"),
    (RETRACTED_IN_USE, "retracted while others depend on it"),
    (REFERENCES_UNCOUNTED, "a dependency that is not counted at its target"),
    (REFERENCES_OUTDATED, "counted at a record that it no longer depends on"),
    (BACKREF_MISSING, "a counted dependency without its row at the target"),
    (BACKREF_STALE, "a row of a dependent that is gone or no longer depends on it"),
    (BACKREF_MALFORMED, "a malformed row of a dependent"),
    (DEPENDENTS_MISCOUNTED, "`dependents` is not the number of rows of dependents"),
    (BRANCHES_MISCOUNTED, "`branches` is not the number of branches"),
    (DEPENDENCY_MISSING, "it depends on a record that does not exist"),
    (DEPENDENCY_RETRACTED, "live, and depends on a retracted record"),
    (DEPENDENCY_UNREADABLE, "it depends on something that is not an address"),
    (PARENT_MISSING, "a branch of a record that does not exist"),
    (ORPHAN_ITEMS, "items without the meta item of a record"),
    (GHOST_META, "a meta item without a kind"),
    (LEFTOVER_COMMITS, "a commit log under no record"),
    (KIND_UNKNOWN, "a meta item of an unknown kind"),
    (ATTRIBUTE_MALFORMED, "an attribute of the wrong type, read as absent"),
    (ID_MISSING, "a `t` above 0 without an id"),
    (NAME_DISAGREES, "name or branch are not those of the address"),
    (CONFIG_NOT_JSON, "a configuration that is not a JSON object"),
    (LEASE_MALFORMED, "a lease that cannot be read and does not count"),
    (CONTEXTS_DIFFER, "the two names of the default context hold different values"),
    (ADDRESS_UNUSABLE, "an address that only the library can read"),
    (UNSETTLED, "changed at every examination"),
];

/// The most targets, or dependents, of one repair: up to two actions each, and one for the record itself.
const REFERENCES_AT_ONCE: usize = 24;
/// The most rows that a count can be conditional on.
const ROWS_CHECKED: usize = 90;
/// The longest partition key of DynamoDB, in bytes.
const MAX_PK_BYTES: usize = 2048;
/// How many examples a sentence names.
const NAMED: usize = 5;

/// A finding, with its repair where there is one.
pub(super) struct Diagnosis {
    pub(super) finding: Finding,
    pub(super) repair: Option<Repair>,
}

/// One transaction that repairs a finding, conditional on the diagnosed state.
pub(super) struct Repair(pub(super) Vec<Action>);

/// Creates the finding of a record that changed at every examination, because others write it.
pub(super) fn unsettled(pk: &str) -> Finding {
    Finding {
        code: UNSETTLED,
        severity: Severity::Note,
        address: Some(pk.to_owned()),
        what: "it changed at every examination".into(),
        mend: "run again".into(),
        fix: Fix::ByHand,
    }
}

/// Returns the source of a branch, from its meta item; `None` where it is not a branch.
pub(super) fn parent_of(meta: &Item) -> Option<String> {
    let (pk, source) = (items::pk(meta), items::text(meta, ATTR_BP_SOURCE)?);
    let parent = format!("{}:{source}", Address::stored(pk).name());
    (parent != pk && parent.len() <= MAX_PK_BYTES).then_some(parent)
}

/// Returns the keys of the items of other partitions that the diagnosis of this one needs.
pub(super) fn refers_to(partition: &Partition) -> Vec<Key> {
    let mut keys = Vec::new();
    if let Some((meta, kind)) = partition.record() {
        keys.extend(parent_of(meta).map(Key::meta));
        let address = partition.address();
        if kind == RecordKind::GraphSource && address.is_well_formed() {
            for target in wanted(meta, &address).0.into_iter().chain(counted(meta)) {
                keys.push(Key::new(&target, sk_backref(address.as_str())));
                keys.push(Key::meta(target));
            }
        }
    }
    keys.extend(partition.backrefs.iter().filter_map(dependent_of).map(Key::meta));
    keys
}

/// Returns the findings of a partition, in the order of repair.
pub(super) fn diagnose(partition: &Partition, related: &Related, call: &Call, now: i64) -> Vec<Diagnosis> {
    let mut doctor = Doctor { partition, address: partition.address(), related, call, now, found: Vec::new() };
    doctor.backrefs();
    match partition.standing() {
        Standing::Record(meta, kind) => {
            doctor.marks(meta, kind);
            if kind == RecordKind::GraphSource {
                doctor.references(meta);
            }
            doctor.dependents(meta);
            doctor.parent(meta);
            doctor.names(meta);
            doctor.attributes(kind);
            doctor.lease();
        }
        Standing::UnknownKind => doctor.by_hand(
            KIND_UNKNOWN,
            Severity::Error,
            "the kind in its meta item is neither ledger nor graph_source: it is not a record, and none can be created",
            "delete the meta item, or set its kind",
        ),
        Standing::NoRecord(meta) => {
            doctor.ghost(meta);
            doctor.orphans();
            doctor.commits();
        }
    }
    doctor.found
}

/// Creates the finding of a meta item with another count of branches than this.
pub(super) fn miscounted_branches(meta: &Item, branches: i64, now: i64) -> Option<Diagnosis> {
    if items::integer(meta, ATTR_BRANCHES).unwrap_or(0) == branches {
        return None;
    }
    let pk = items::pk(meta);
    let stored = shown(meta, ATTR_BRANCHES);
    let mut count = Expression::new();
    count.record_exists();
    // Creating and dropping a branch writes this item.
    as_seen(&mut count, meta, &[ATTR_BRANCHES, ATTR_UPDATED_AT_MS]);
    count.set(ATTR_BRANCHES, number(branches));
    count.touch(now);
    Some(Diagnosis {
        finding: Finding {
            code: BRANCHES_MISCOUNTED,
            severity: Severity::Error,
            address: Some(pk.to_owned()),
            what: format!("`branches` is {stored}, and {branches} branches name it as their source"),
            mend: format!("set it to {branches}, if the record has not changed since"),
            fix: Fix::Possible,
        },
        repair: Some(Repair(vec![count.into_update(&Key::meta(pk))])),
    })
}

/// Returns the dependencies of a graph source: the targets, normalised and distinct, and the entries that are not addresses.
fn wanted(meta: &Item, dependent: &Address) -> (Vec<Address>, Vec<String>) {
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

/// Returns the dependent of a row, from its sort key; `None` where the row contradicts itself.
fn dependent_of(row: &Item) -> Option<&str> {
    let dependent = items::sk(row).strip_prefix(SK_BACKREF_PREFIX).filter(|dependent| !dependent.is_empty())?;
    let stored = items::text(row, ATTR_DEPENDENT)?;
    (stored == dependent && dependent != items::pk(row)).then_some(dependent)
}

/// Formats an attribute for a sentence.
fn shown(item: &Item, attribute: &str) -> String {
    const LONGEST: usize = 60;
    match items::present(item, attribute).map(items::value_of) {
        None => "absent".to_owned(),
        Some(value) => {
            let text = value.to_string();
            match text.char_indices().nth(LONGEST) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        }
    }
}

/// Formats the first of many items for a sentence.
fn named<T: AsRef<str>>(all: &[T]) -> String {
    let first = all.iter().take(NAMED).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// The diagnosis of one partition.
struct Doctor<'a> {
    partition: &'a Partition,
    address: Address,
    related: &'a Related,
    call: &'a Call,
    now: i64,
    found: Vec<Diagnosis>,
}

impl Doctor<'_> {
    fn find(&mut self, code: &'static str, severity: Severity, what: String, mend: String, repair: Option<Repair>) {
        let fix = if repair.is_some() { Fix::Possible } else { Fix::ByHand };
        let address = Some(self.partition.pk.clone());
        self.found.push(Diagnosis { finding: Finding { code, severity, address, what, mend, fix }, repair });
    }

    fn by_hand(&mut self, code: &'static str, severity: Severity, what: impl Into<String>, mend: &str) {
        self.find(code, severity, what.into(), mend.to_owned(), None);
    }

    // ---- retractions ----

    fn marks(&mut self, meta: &Item, kind: RecordKind) {
        let items = &self.partition.items;
        let unmarked = unmarked(items, kind);
        let mut check = Expression::new();
        check.kind_is(kind);
        if items::flag(meta, ATTR_RETRACTED) {
            if is_referenced(meta) {
                let [branches, dependents] =
                    [ATTR_BRANCHES, ATTR_DEPENDENTS].map(|a| items::integer(meta, a).unwrap_or(0));
                self.by_hand(
                    RETRACTED_IN_USE,
                    Severity::Warning,
                    format!("it is retracted, with {branches} branches and {dependents} dependents"),
                    "restore it, or purge those that depend on it",
                );
            }
            if unmarked.is_empty() {
                return;
            }
            check.retracted();
            let status = retracted_status(items, None, self.now);
            let mut actions = vec![check.into_check(&Key::meta(&self.address))];
            let marks = set_marks(&self.address, kind, items, &status, self.call, self.now);
            actions.extend(marks.into_iter().map(|(_, action)| action));
            self.find(
                MARKS_MISSING,
                Severity::Error,
                format!("it is retracted in its meta item only: {} still accept pushes", concerns(&unmarked)),
                "mark them and set the status to retracted, as `nameservice retract` does".into(),
                Some(Repair(actions)),
            );
            return;
        }
        let marked: Vec<ConcernKind> =
            concerns_of(kind).iter().copied().filter(|concern| !unmarked.contains(concern)).collect();
        if marked.is_empty() {
            return;
        }
        check.live();
        let mut actions = vec![check.into_check(&Key::meta(&self.address))];
        actions.extend(marked.iter().map(|concern| self.unmark(items, *concern)));
        self.find(
            MARKS_LEFT,
            Severity::Error,
            format!("its meta item is live, and {} reject pushes as if it were retracted", concerns(&marked)),
            "remove the marks, and set the status to ready, as `nameservice restore` does".into(),
            Some(Repair(actions)),
        );
    }

    fn unmark(&self, items: &RecordItems, concern: ConcernKind) -> Action {
        let mut unmark = Expression::new();
        unmark.remove(ATTR_RETRACTED);
        let state = items.concern(concern).and_then(|item| items::text(item, ATTR_STATUS));
        if concern == ConcernKind::Status && state == Some(StatusPayload::RETRACTED) {
            let ready = ConcernValue::new(status_v(items) + 1, StatusPayload::state(StatusPayload::READY));
            return concern_action(&self.address, items, concern, unmark, &ready, self.call, self.now).1;
        }
        // Another state has been pushed since.
        unmark.touch(self.now);
        unmark.into_update(&Key::new(&self.address, sk_of(concern)))
    }

    // ---- references, from the side of the dependent ----

    fn references(&mut self, meta: &Item) {
        // Its dependencies are unreadable: no conclusion.
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
        // Nothing is counted for a record of such a name; its address has a finding of its own.
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

    /// One transaction: each target's count and row, and the list of what is counted.
    fn adopt(&self, meta: &Item, wanted: &[Address], counted: &[Address], uncounted: &[&Address]) -> Repair {
        let adopted = &uncounted[..uncounted.len().min(REFERENCES_AT_ONCE)];
        let kept = |target: &&Address| counted.contains(target) || adopted.contains(target);
        let outdated = counted.iter().filter(|target| !wanted.contains(target));
        let list: Vec<&Address> = wanted.iter().filter(kept).chain(outdated).collect();
        let mut actions = vec![self.list_counted(meta, &list)];
        let steps = adopted.iter().map(|target| {
            // An existing row may have been counted: the target's own finding decides.
            let step = if self.has_row(target) { Step::AlreadyCounted } else { Step::Count };
            ((*target).clone(), step)
        });
        let references = References { steps: steps.collect() };
        actions.extend(references.actions(&self.address, self.now).into_iter().map(|(_, action)| action));
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
        let references = References { steps: targets.iter().map(|target| ((*target).clone(), Step::Count)).collect() };
        actions.extend(references.actions(&self.address, self.now).into_iter().map(|(_, action)| action));
        // It may have been counted and only the row lost: the target's own finding corrects the count.
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
        let references = References { steps: steps.collect() };
        let mut actions = vec![self.list_counted(meta, &list)];
        actions.extend(references.actions(&self.address, self.now).into_iter().map(|(_, action)| action));
        Repair(actions)
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

    // ---- references, from the side of the target ----

    fn backrefs(&mut self) {
        let malformed: Vec<&str> =
            self.partition.backrefs.iter().filter(|row| dependent_of(row).is_none()).map(items::sk).collect();
        if !malformed.is_empty() {
            self.by_hand(
                BACKREF_MALFORMED,
                Severity::Warning,
                format!("malformed rows of dependents: {}", named(&malformed)),
                "delete these rows; the next run counts again",
            );
        }
        let stale: Vec<&Item> = self
            .partition
            .backrefs
            .iter()
            .filter(|row| dependent_of(row).is_some_and(|dependent| !self.depends(dependent)))
            .collect();
        if stale.is_empty() {
            return;
        }
        let dependents: Vec<&str> = stale.iter().filter_map(|row| dependent_of(row)).collect();
        let what = format!("rows of records that are gone, or no longer depend on it: {}", named(&dependents));
        let repair = self.drop_rows(&stale);
        self.find(BACKREF_STALE, Severity::Warning, what, "delete them, and decrement the count".into(), repair);
    }

    /// Returns whether a record counts itself as a dependent of this one.
    fn depends(&self, dependent: &str) -> bool {
        self.related.record(dependent).is_some_and(|meta| counted(meta).contains(&self.address))
    }

    /// Returns `None` where a meta item of an unknown kind occupies the address.
    fn drop_rows(&self, stale: &[&Item]) -> Option<Repair> {
        let dropped = &stale[..stale.len().min(REFERENCES_AT_ONCE)];
        let mut actions = Vec::new();
        let key = Key::meta(&self.address);
        match self.partition.standing() {
            Standing::Record(meta, _) => {
                let rows = self.partition.backrefs.len();
                let counted = items::integer(meta, ATTR_DEPENDENTS).unwrap_or(0);
                let mut count = Expression::new();
                count.record_exists();
                // Where the count matches the rows it stays so, whatever others write; otherwise it is set later.
                if usize::try_from(counted) == Ok(rows) {
                    let fewer = i64::try_from(dropped.len()).unwrap_or(i64::MAX);
                    count.at_least(ATTR_DEPENDENTS, fewer);
                    count.add(ATTR_DEPENDENTS, -fewer);
                    count.touch(self.now);
                    actions.push(count.into_update(&key));
                } else {
                    actions.push(count.into_check(&key));
                }
            }
            Standing::NoRecord(_) => actions.push(no_record(&key)),
            Standing::UnknownKind => return None,
        }
        for row in dropped {
            let Some(dependent) = dependent_of(row) else { continue };
            let mut still = Expression::new();
            match self.related.record(dependent) {
                Some(meta) => {
                    still.record_exists();
                    as_seen(&mut still, meta, &[ATTR_COUNTED]);
                    actions.push(still.into_check(&Key::meta(dependent)));
                }
                // A meta item of an unknown kind may belong to a record that is restored.
                None if self.related.is_taken(dependent) => return None,
                None => actions.push(no_record(&Key::meta(dependent))),
            }
            let mut delete = Expression::new();
            delete.exists(ATTR_PK);
            actions.push(delete.into_delete(&Key::new(&self.address, items::sk(row))));
        }
        Some(Repair(actions))
    }

    fn dependents(&mut self, meta: &Item) {
        let rows = &self.partition.backrefs;
        let counted = items::integer(meta, ATTR_DEPENDENTS);
        let readable = counted.is_some() || items::present(meta, ATTR_DEPENDENTS).is_none();
        let count = i64::try_from(rows.len()).unwrap_or(i64::MAX);
        if readable && counted.unwrap_or(0) == count {
            return;
        }
        let mut set = Expression::new();
        set.record_exists();
        // Counting writes this item.
        as_seen(&mut set, meta, &[ATTR_DEPENDENTS, ATTR_UPDATED_AT_MS]);
        set.set(ATTR_DEPENDENTS, number(count));
        set.touch(self.now);
        let mut actions = vec![set.into_update(&Key::meta(&self.address))];
        // Rows may be deleted without it where nothing was counted.
        for row in rows.iter().take(ROWS_CHECKED) {
            let mut there = Expression::new();
            there.exists(ATTR_PK);
            actions.push(there.into_check(&Key::new(&self.address, items::sk(row))));
        }
        self.find(
            DEPENDENTS_MISCOUNTED,
            Severity::Error,
            format!("`dependents` is {}, and it has {count} rows of dependents", shown(meta, ATTR_DEPENDENTS)),
            format!("set it to {count}, if the record has not changed since"),
            Some(Repair(actions)),
        );
    }

    fn parent(&mut self, meta: &Item) {
        let Some(parent) = parent_of(meta).filter(|parent| self.related.record(parent).is_none()) else { return };
        self.by_hand(
            PARENT_MISSING,
            Severity::Warning,
            format!("it is a branch of {parent}, which does not exist"),
            "nothing breaks; drop the branch if it should have gone with its source",
        );
    }

    // ---- rows that are no record ----

    fn ghost(&mut self, meta: Option<&Item>) {
        let Some(meta) = meta else { return };
        let key = Key::meta(&self.address);
        let mut delete = unchanged(meta);
        delete.not_exists(ATTR_KIND);
        self.find(
            GHOST_META,
            Severity::Warning,
            "its meta item has no kind: an unguarded update has left it, and it is not a record".into(),
            "delete it, if it is still without a kind".into(),
            Some(Repair(vec![delete.into_delete(&key)])),
        );
    }

    fn orphans(&mut self) {
        let items = &self.partition.items;
        let orphans: Vec<(ConcernKind, &Item)> =
            ConcernKind::ALL.into_iter().filter_map(|concern| Some((concern, items.concern(concern)?))).collect();
        if orphans.is_empty() {
            return;
        }
        let mut actions = vec![no_record(&Key::meta(&self.address))];
        for (concern, item) in &orphans {
            actions.push(unchanged(item).into_delete(&Key::new(&self.address, sk_of(*concern))));
        }
        let left: Vec<ConcernKind> = orphans.iter().map(|(concern, _)| *concern).collect();
        self.find(
            ORPHAN_ITEMS,
            Severity::Warning,
            format!("{} lie here without a meta item, and are no record", concerns(&left)),
            "delete them, if they are unchanged and there is still no record".into(),
            Some(Repair(actions)),
        );
    }

    fn commits(&mut self) {
        let commits = &self.partition.commits;
        if commits.is_empty() {
            return;
        }
        let mut actions = vec![no_record(&Key::meta(&self.address))];
        actions.extend(commits.iter().map(|key| Expression::new().into_delete(key)));
        let many = if commits.len() == SWEPT_AT_ONCE { " or more" } else { "" };
        self.find(
            LEFTOVER_COMMITS,
            Severity::Warning,
            format!("{}{many} rows of a commit log lie here without a record", commits.len()),
            "delete them, if there is still no record".into(),
            Some(Repair(actions)),
        );
    }

    // ---- items that cannot be read ----

    fn names(&mut self, meta: &Item) {
        if !self.address.is_well_formed() {
            return self.by_hand(
                ADDRESS_UNUSABLE,
                Severity::Note,
                "its address is not valid: it can be read through the library, but not over HTTP",
                "nothing, or a record of another name",
            );
        }
        let parts = [(ATTR_NAME, self.address.name()), (ATTR_BRANCH, self.address.branch())];
        let wrong: Vec<String> = parts
            .into_iter()
            .filter(|(attribute, right)| items::text(meta, attribute).is_some_and(|stored| stored != *right))
            .map(|(attribute, _)| format!("`{attribute}` is {}", shown(meta, attribute)))
            .collect();
        if !wrong.is_empty() {
            self.by_hand(
                NAME_DISAGREES,
                Severity::Error,
                format!("the meta item contradicts its address: {}", wrong.join(", ")),
                "set name and branch to those of the address, or move the record to the address that they name",
            );
        }
    }

    fn attributes(&mut self, kind: RecordKind) {
        let items = &self.partition.items;
        let mut malformed = Vec::new();
        for (sk, attributes) in ATTRIBUTES {
            let Some(item) = items.items.get(*sk) else { continue };
            for (attribute, shape) in *attributes {
                if items::present(item, attribute).is_some() && !shape.fits(item, attribute) {
                    // Configurations hold secrets.
                    let shown = match *sk == sk_of(ConcernKind::Config) {
                        true => String::new(),
                        false => format!(" but {}", shown(item, attribute)),
                    };
                    malformed.push(format!("{sk}.{attribute} is not {}{shown}", shape.words()));
                }
            }
        }
        if !malformed.is_empty() {
            self.by_hand(
                ATTRIBUTE_MALFORMED,
                Severity::Error,
                format!("read as if they were absent: {}", named(&malformed)),
                "correct or remove them",
            );
        }
        for (concern, id, t) in
            [(ConcernKind::Head, ATTR_COMMIT_ID, ATTR_COMMIT_T), (ConcernKind::Index, ATTR_INDEX_ID, ATTR_INDEX_T)]
        {
            let Some(item) = items.concern(concern) else { continue };
            let t = items::integer(item, t).filter(|t| *t > 0 && items::present(item, id).is_none());
            if let Some(t) = t {
                self.by_hand(
                    ID_MISSING,
                    Severity::Warning,
                    format!("its {concern} is at t {t}, without an id"),
                    "reset it to an id and its t, or push the next one",
                );
            }
        }
        let config = items.concern_or_empty(ConcernKind::Config);
        let json = items::text(&config, ATTR_CONFIG_JSON).filter(|_| kind == RecordKind::GraphSource);
        if let Some(json) = json.filter(|json| !matches!(serde_json::from_str(json), Ok(Value::Object(_)))) {
            self.by_hand(
                CONFIG_NOT_JSON,
                Severity::Error,
                // Not repeated here: configurations hold secrets.
                format!("its configuration, of {} bytes, is not a JSON object", json.len()),
                "publish it again with its configuration",
            );
        }
        let [deployed, guide] =
            [ATTR_DEFAULT_CONTEXT_ADDRESS, ATTR_DEFAULT_CONTEXT_ID].map(|a| items::present(&config, a));
        let ours = config.contains_key(ATTR_REQUEST_IDS[0]);
        // Fluree's servers write and remove only the first.
        if guide.is_some() && guide != deployed && (deployed.is_some() || ours) {
            let [deployed, guide] = [ATTR_DEFAULT_CONTEXT_ADDRESS, ATTR_DEFAULT_CONTEXT_ID].map(|a| shown(&config, a));
            self.by_hand(
                CONTEXTS_DIFFER,
                Severity::Note,
                format!("default_context_address is {deployed}, default_context_id is {guide}: the first one is used"),
                "nothing: the next push of the configuration sets both",
            );
        }
    }

    fn lease(&mut self) {
        let status = self.partition.items.concern_or_empty(ConcernKind::Status);
        if items::present(&status, ATTR_LEASE).is_none() || items::lease(&status).is_some() {
            return;
        }
        let mut remove = Expression::new();
        as_seen(&mut remove, &status, &[ATTR_LEASE]);
        remove.remove(ATTR_LEASE);
        remove.touch(self.now);
        let action = remove.into_update(&Key::new(&self.address, sk_of(ConcernKind::Status)));
        self.find(
            LEASE_MALFORMED,
            Severity::Warning,
            format!("its lease cannot be read and does not count: {}", shown(&status, ATTR_LEASE)),
            "remove it, if it is unchanged".into(),
            Some(Repair(vec![action])),
        );
    }
}

/// Creates the condition that there is no record, as a part of a transaction.
fn no_record(key: &Key) -> Action {
    let mut none = Expression::new();
    none.not_exists(ATTR_KIND);
    none.into_check(key)
}

/// Creates the condition that an item still has the attributes that were read.
fn unchanged(item: &Item) -> Expression {
    let mut unchanged = Expression::new();
    unchanged.exists(ATTR_PK);
    let mut attributes: Vec<&str> =
        item.keys().map(String::as_str).filter(|name| ![ATTR_PK, ATTR_SK].contains(name)).collect();
    attributes.sort_unstable();
    as_seen(&mut unchanged, item, &attributes);
    unchanged
}

fn texts<'a>(addresses: &[&'a Address]) -> Vec<&'a str> {
    addresses.iter().map(|address| address.as_str()).collect()
}

fn concerns(concerns: &[ConcernKind]) -> String {
    concerns.iter().map(|concern| concern.as_str()).collect::<Vec<_>>().join(", ")
}

/// The required type of an attribute, where it exists.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    /// An integer of 64 bits that is not negative: watermarks and counters.
    Count,
    Truth,
    Map,
    List,
}

impl Shape {
    fn fits(self, item: &Item, attribute: &str) -> bool {
        let Some(value) = item.get(attribute) else { return true };
        match self {
            Self::Text => value.is_s(),
            Self::Count => items::integer(item, attribute).is_some_and(|count| count >= 0),
            Self::Truth => value.is_bool(),
            Self::Map => value.is_m(),
            Self::List => value.as_l().is_ok_and(|entries| entries.iter().all(|entry| entry.is_s())),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Count => "a count",
            Self::Truth => "true or false",
            Self::Map => "a map",
            Self::List => "a list of strings",
        }
    }
}

/// The attributes of a record's items (docs/specification.md, Table). `dependents` and `lease` have findings of their
/// own.
const ATTRIBUTES: &[(&str, &[(&str, Shape)])] = &[
    (
        SK_META,
        &[
            (ATTR_NAME, Shape::Text),
            (ATTR_BRANCH, Shape::Text),
            (ATTR_RETRACTED, Shape::Truth),
            (ATTR_BP_SOURCE, Shape::Text),
            (ATTR_BRANCHES, Shape::Count),
            (ATTR_SOURCE_TYPE, Shape::Text),
            (ATTR_DEPENDENCIES, Shape::List),
            (ATTR_COUNTED, Shape::List),
            (ATTR_CREATED_AT, Shape::Count),
            (ATTR_UPDATED_AT_MS, Shape::Count),
        ],
    ),
    (
        sk_of(ConcernKind::Head),
        &[
            (ATTR_COMMIT_ID, Shape::Text),
            (ATTR_COMMIT_T, Shape::Count),
            (ATTR_RETRACTED, Shape::Truth),
            (ATTR_UPDATED_AT_MS, Shape::Count),
        ],
    ),
    (
        sk_of(ConcernKind::Index),
        &[
            (ATTR_INDEX_ID, Shape::Text),
            (ATTR_INDEX_T, Shape::Count),
            (ATTR_REV, Shape::Count),
            (ATTR_REV_ID, Shape::Text),
            (ATTR_GRAPHS, Shape::Map),
            (ATTR_RETRACTED, Shape::Truth),
            (ATTR_UPDATED_AT_MS, Shape::Count),
        ],
    ),
    (
        sk_of(ConcernKind::Config),
        &[
            (ATTR_CONFIG_V, Shape::Count),
            (ATTR_CONFIG_META, Shape::Map),
            (ATTR_CONFIG_JSON, Shape::Text),
            (ATTR_DEFAULT_CONTEXT_ADDRESS, Shape::Text),
            (ATTR_DEFAULT_CONTEXT_ID, Shape::Text),
            (ATTR_RETRACTED, Shape::Truth),
            (ATTR_UPDATED_AT_MS, Shape::Count),
        ],
    ),
    (
        sk_of(ConcernKind::Status),
        &[
            (ATTR_STATUS, Shape::Text),
            (ATTR_STATUS_V, Shape::Count),
            (ATTR_STATUS_META, Shape::Map),
            (ATTR_LEASE_TOKEN, Shape::Count),
            (ATTR_RETRACTED, Shape::Truth),
            (ATTR_UPDATED_AT_MS, Shape::Count),
        ],
    ),
];
