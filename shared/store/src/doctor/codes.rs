//! The kinds of findings.

pub(super) const MARKS_MISSING: &str = "marks-missing";
pub(super) const MARKS_LEFT: &str = "marks-left";
pub(super) const RETRACTED_IN_USE: &str = "retracted-in-use";
pub(super) const REFERENCES_UNCOUNTED: &str = "references-uncounted";
pub(super) const REFERENCES_OUTDATED: &str = "references-outdated";
pub(super) const BACKREF_MISSING: &str = "backref-missing";
pub(super) const BACKREF_STALE: &str = "backref-stale";
pub(super) const BACKREF_MALFORMED: &str = "backref-malformed";
pub(super) const DEPENDENTS_MISCOUNTED: &str = "dependents-miscounted";
pub(super) const BRANCHES_MISCOUNTED: &str = "branches-miscounted";
pub(super) const DEPENDENCY_MISSING: &str = "dependency-missing";
pub(super) const DEPENDENCY_RETRACTED: &str = "dependency-retracted";
pub(super) const DEPENDENCY_UNREADABLE: &str = "dependency-unreadable";
pub(super) const PARENT_MISSING: &str = "parent-missing";
pub(super) const ORPHAN_ITEMS: &str = "orphan-items";
pub(super) const GHOST_META: &str = "ghost-meta";
pub(super) const LEFTOVER_COMMITS: &str = "leftover-commits";
pub(super) const COMMITS_ABOVE_HEAD: &str = "commits-above-head";
pub(super) const COMMIT_NOT_HEAD: &str = "commit-not-head";
pub(super) const COMMITS_SUPERSEDED: &str = "commits-superseded";
pub(super) const KIND_UNKNOWN: &str = "kind-unknown";
pub(super) const ATTRIBUTE_MALFORMED: &str = "attribute-malformed";
pub(super) const ID_MISSING: &str = "id-missing";
pub(super) const ID_FOREIGN: &str = "id-foreign";
pub(super) const ID_UNREADABLE: &str = "id-unreadable";
pub(super) const NAME_DISAGREES: &str = "name-disagrees";
pub(super) const CONFIG_NOT_JSON: &str = "config-not-json";
pub(super) const LEASE_MALFORMED: &str = "lease-malformed";
pub(super) const CONTEXTS_DIFFER: &str = "contexts-differ";
pub(super) const ADDRESS_UNUSABLE: &str = "address-unusable";
pub(super) const UNSETTLED: &str = "unsettled";

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
    (LEFTOVER_COMMITS, "a commit log without a ledger"),
    (COMMITS_ABOVE_HEAD, "rows of Fluree's commit log above the head"),
    (COMMIT_NOT_HEAD, "Fluree's commit log has another commit at the head's `t`"),
    (COMMITS_SUPERSEDED, "Fluree's commit log has commits that the history of the head contradicts"),
    (KIND_UNKNOWN, "a meta item of an unknown kind"),
    (ATTRIBUTE_MALFORMED, "an attribute of the wrong type, read as absent"),
    (ID_MISSING, "a `t` above 0 without an id"),
    (ID_FOREIGN, "a head or an index that Fluree's engine cannot read, on a ledger of Fluree's"),
    (ID_UNREADABLE, "an id that is no content id: Fluree's readers have none there"),
    (NAME_DISAGREES, "name or branch are not those of the address"),
    (CONFIG_NOT_JSON, "a configuration that is not a JSON object"),
    (LEASE_MALFORMED, "a lease that cannot be read and does not count"),
    (CONTEXTS_DIFFER, "the two names of the default context hold different values"),
    (ADDRESS_UNUSABLE, "an address that only the library can read"),
    (UNSETTLED, "changed at every examination"),
];
