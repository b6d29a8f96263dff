//! Where backends may differ, and why.

use nameservice_model::Capability;
use nameservice_tests::{backends::Place, prelude::*};

use super::{compare::problem, places::Request};

/// What becomes of a backend that has differed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Its records are the same: it continues.
    Continue,
    /// Its records are others now: it is left out of the rest of the sequence.
    Leave,
}

/// A request that two backends answered differently: the embedded one, and another.
pub(super) struct Case<'a> {
    pub(super) request: &'a Request,
    /// The other backend.
    pub(super) place: Place,
    pub(super) embedded: &'a Answer,
    pub(super) other: &'a Answer,
}

impl Case<'_> {
    fn lacks(&self, capability: Capability) -> bool {
        let named = [&self.other.body["capability"], &self.other.body["errors"][0]["extensions"]["capability"]];
        // An answer to HEAD has no body to name it.
        let is_silent = self.other.status == 501 && self.request.method == http::Method::HEAD;
        is_silent || named.into_iter().any(|named| *named == capability.as_str())
    }

    /// Whether the records may be others now.
    fn has_parted(&self) -> bool {
        self.request.is_write() && (self.embedded.status.is_success() || self.other.status.is_success())
    }

    /// Whether one of them answered with this problem.
    fn either_is(&self, kind: &str) -> bool {
        [self.embedded, self.other].into_iter().any(|answer| problem(answer) == kind)
    }
}

/// A difference that is allowed.
struct Allowed {
    #[allow(dead_code, reason = "for whoever reads this table")]
    reason: &'static str,
    when: fn(&Case<'_>) -> bool,
}

/// The table.
const ALLOWED: &[Allowed] = &[
    Allowed {
        reason: "one file at a time is written: files have no transactions",
        when: |case| case.lacks(Capability::Transactions),
    },
    Allowed {
        reason: "Fluree's files have no place for the indexes of named graphs",
        when: |case| case.lacks(Capability::NamedGraphs),
    },
    Allowed {
        reason: "some addresses would share a file, or be taken for something else",
        when: |case| case.lacks(Capability::AnyAddress),
    },
    Allowed {
        reason: "files remember no calls: what is stored decides",
        when: |case| case.place == Place::Directory && case.either_is("idempotency-key-reused"),
    },
    Allowed {
        reason: "the order of snapshots is not defined, and lists by state are in the order of the table's index",
        when: |case| {
            let path = case.request.path.as_str();
            let is_snapshot = path.starts_with("/v1/snapshot");
            let is_by_state = path.starts_with("/v1/records?") && path.contains("state=");
            (is_snapshot || is_by_state) && (path.contains("limit=") || path.contains("cursor="))
        },
    },
    Allowed {
        reason: "only a service in one process keeps an index of words: a table's is OpenSearch, files have none",
        when: |case| case.lacks(Capability::Search),
    },
];

/// Members that are not compared with those of this backend.
pub(super) fn not_compared(place: Place) -> &'static [&'static str] {
    match place {
        // Counted only while the feed of the files is followed.
        Place::Directory => &["dependents"],
        _ => &[],
    }
}

/// What becomes of a backend after a difference; none if the difference is a defect.
pub(super) fn allowed(case: &Case<'_>) -> Option<Then> {
    ALLOWED.iter().any(|allowed| (allowed.when)(case)).then(|| match case.has_parted() {
        true => Then::Leave,
        false => Then::Continue,
    })
}
