//! Findings of one partition and their repairs: rules over items that were read, without requests.
//!
//! The rules are methods of [`Doctor`], in one file for each kind of inconsistency.

use nameservice_model::{Address, Call, ConcernKind, Finding, Fix, RecordKind, Severity};

use super::{
    codes::*,
    partition::{Partition, RecordState, Related},
};
use crate::{
    concern::as_seen,
    expressions::{Action, Expression, Key},
    items::{self, Item},
    schema::*,
};

/// The most targets, or dependents, of one repair: up to two actions each, and one for the record itself.
pub(super) const REFERENCES_AT_ONCE: usize = 24;
/// How many examples a sentence names.
const NAMED: usize = 5;

/// A finding, with its repair if there is one.
pub(super) struct Diagnosis {
    pub(super) finding: Finding,
    pub(super) repair: Option<Repair>,
}

/// Creates a finding of a record that can be repaired.
pub(super) fn repairable(
    pk: &str,
    code: &'static str,
    severity: Severity,
    what: String,
    mend: String,
    repair: Repair,
) -> Diagnosis {
    let finding = Finding::new(code, severity, what, mend).at(pk).with_fix(Fix::Possible);
    Diagnosis { finding, repair: Some(repair) }
}

/// One transaction that repairs a finding, conditional on the diagnosed state.
pub(super) struct Repair(pub(super) Vec<Action>);

/// Creates the finding of a record that changed at every examination, because others write it.
pub(super) fn unsettled(pk: &str) -> Finding {
    Finding::new(UNSETTLED, Severity::Note, "it changed at every examination", "run again").at(pk)
}

/// Returns the findings of a partition, in the order of repair.
pub(super) fn diagnose(partition: &Partition, related: &Related, call: &Call, now: i64) -> Vec<Diagnosis> {
    let mut doctor = Doctor { partition, address: partition.address(), related, call, now, found: Vec::new() };
    doctor.backrefs();
    match partition.record_state() {
        RecordState::Record(meta, kind) => {
            doctor.marks(meta, kind);
            match kind {
                RecordKind::GraphSource => {
                    doctor.references(meta);
                    doctor.leftover_commits(Some(kind));
                }
                RecordKind::Ledger => doctor.commits_against_head(),
            }
            doctor.dependents(meta);
            doctor.parent(meta);
            doctor.names(meta);
            doctor.attributes(kind);
            doctor.lease();
        }
        RecordState::UnknownKind => doctor.by_hand(
            KIND_UNKNOWN,
            Severity::Error,
            "the kind in its meta item is neither ledger nor graph_source: it is not a record, and none can be created",
            "delete the meta item, or set its kind",
        ),
        RecordState::NoRecord(meta) => {
            doctor.ghost(meta);
            doctor.orphans();
            doctor.leftover_commits(None);
        }
    }
    doctor.found
}

/// Formats an attribute for a sentence.
pub(super) fn shown(item: &Item, attribute: &str) -> String {
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
pub(super) fn named<T: AsRef<str>>(all: &[T]) -> String {
    let first = all.iter().take(NAMED).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// The diagnosis of one partition.
pub(super) struct Doctor<'a> {
    pub(super) partition: &'a Partition,
    pub(super) address: Address,
    pub(super) related: &'a Related,
    pub(super) call: &'a Call,
    pub(super) now: i64,
    pub(super) found: Vec<Diagnosis>,
}

impl Doctor<'_> {
    pub(super) fn find(
        &mut self,
        code: &'static str,
        severity: Severity,
        what: String,
        mend: String,
        repair: Option<Repair>,
    ) {
        let finding = Finding::new(code, severity, what, mend).at(&self.partition.pk);
        let fix = if repair.is_some() { Fix::Possible } else { Fix::ByHand };
        self.found.push(Diagnosis { finding: finding.with_fix(fix), repair });
    }

    pub(super) fn by_hand(&mut self, code: &'static str, severity: Severity, what: impl Into<String>, mend: &str) {
        self.find(code, severity, what.into(), mend.to_owned(), None);
    }
}

/// Creates the condition that there is no record, as a part of a transaction.
pub(super) fn no_record(key: &Key) -> Action {
    let mut none = Expression::new();
    none.not_exists(ATTR_KIND);
    none.into_check(key)
}

/// Creates the condition that an item still has the attributes that were read.
pub(super) fn unchanged(item: &Item) -> Expression {
    let mut unchanged = Expression::new();
    unchanged.exists(ATTR_PK);
    let mut attributes: Vec<&str> =
        item.keys().map(String::as_str).filter(|name| ![ATTR_PK, ATTR_SK].contains(name)).collect();
    attributes.sort_unstable();
    as_seen(&mut unchanged, item, &attributes);
    unchanged
}

pub(super) fn concerns(concerns: &[ConcernKind]) -> String {
    concerns.iter().map(|concern| concern.as_str()).collect::<Vec<_>>().join(", ")
}
