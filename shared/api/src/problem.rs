//! Problem documents (RFC 9457, `application/problem+json`).
//!
//! [`ProblemKind`] is the single table of everything that the service rejects or fails at, with its status and title.

use nameservice_model::Object;
use serde::{Deserialize, Serialize};

/// The prefix of every problem's `type`. The types are names, not pages, and never change.
pub const TYPE_BASE: &str = "https://nameservice.dev/problems/";

macro_rules! kinds {
    ($($name:ident $slug:literal $status:literal $title:literal)*) => {
        /// What can be rejected. The last segment of a problem's `type` is its slug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "each is described by its title in the table")]
        pub enum ProblemKind { $($name),* }

        impl ProblemKind {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            const fn row(self) -> (&'static str, u16, &'static str) {
                match self { $(Self::$name => ($slug, $status, $title)),* }
            }
        }
    };
}

kinds! {
    InvalidAddress        "invalid-address"         400 "The text is not an address"
    InvalidContentId      "invalid-content-id"      400 "The text is not a content id"
    InvalidBody           "invalid-body"            400 "The body is not valid for this operation"
    InvalidParameter      "invalid-parameter"       400 "A query parameter is not valid"
    InvalidCursor         "invalid-cursor"          400 "The cursor is not one that this service returned"
    InvalidIdempotencyKey "invalid-idempotency-key" 400 "The Idempotency-Key cannot be used"
    Unauthorized          "unauthorized"            401 "A valid token is required"
    InsufficientScope     "insufficient-scope"      403 "The token does not allow this operation"
    AddressNotCovered     "address-not-covered"     403 "The token does not cover the address"
    NotFound              "not-found"               404 "There is no such route"
    UnknownRecord         "unknown-record"          404 "There is no such record"
    UnknownSource         "unknown-source"          404 "There is no such live ledger to branch from"
    MethodNotAllowed      "method-not-allowed"      405 "The route does not support this method"
    RequestTimeout        "request-timeout"         408 "The request did not arrive in time"
    Conflict              "conflict"                409 "The expected value is not the stored one"
    AlreadyExists         "already-exists"          409 "A record with this address exists"
    WrongKind             "wrong-kind"              409 "The record is of another kind"
    HasDependents         "has-dependents"          409 "Other records depend on the record"
    Protected             "protected"               409 "The record is protected"
    UnbornSource          "unborn-source"           409 "The source has no commit to branch from"
    NotABranch            "not-a-branch"            409 "The record was not created as a branch"
    LimitReached          "limit-reached"           409 "A counter is at its maximum"
    LeaseHeld             "lease-held"              409 "Another holder has a lease on the record"
    LeaseLost             "lease-lost"              409 "The lease is not held under this token"
    TransactionRejected    "transaction-refused"     409 "The transaction was not applied"
    Retracted             "retracted"               410 "The record is retracted"
    Expired               "expired"                 410 "The feed no longer holds what follows the position"
    PositionAhead         "position-ahead"          410 "The position is beyond the end of the feed"
    PayloadTooLarge       "payload-too-large"       413 "The payload is larger than the limit"
    Misdirected           "misdirected"             403 "The request was meant for another host"
    UnsupportedMediaType  "unsupported-media-type"  415 "The body must be JSON"
    MissingDependencies   "missing-dependencies"    422 "Dependencies do not exist or are retracted"
    NotFluree             "not-fluree"              422 "Fluree cannot use the id or the name"
    IdempotencyKeyReused  "idempotency-key-reused"  422 "The Idempotency-Key was used for another request"
    Unsupported           "unsupported"             501 "The backend cannot do this"
    Internal              "internal"                500 "The service failed"
    OutcomeUnknown        "outcome-unknown"         503 "It is unknown whether the write was applied"
    FeedUnavailable       "feed-unavailable"        503 "The change feed is not available"
    NotYet                "not-yet"                 503 "The data is older than requested"
    Unavailable           "unavailable"             503 "The service is temporarily unavailable"
}

impl ProblemKind {
    /// The last segment of the problem's `type`.
    pub const fn slug(self) -> &'static str {
        self.row().0
    }

    /// The HTTP status of the answer.
    pub const fn status(self) -> u16 {
        self.row().1
    }

    /// The title for people, the same for every occurrence.
    pub const fn title(self) -> &'static str {
        self.row().2
    }

    /// The problem's `type`.
    pub fn type_uri(self) -> String {
        format!("{TYPE_BASE}{}", self.slug())
    }

    /// The kind of a problem's `type`; `None` for one that this version does not know.
    pub fn from_type_uri(uri: &str) -> Option<Self> {
        let slug = uri.strip_prefix(TYPE_BASE)?;
        Self::ALL.iter().copied().find(|kind| kind.slug() == slug)
    }
}

/// A rejection (RFC 9457). Some carry more members: `field`, `actual`, `dependents`, `missing`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Problem))]
pub struct ProblemDocument {
    /// A stable URI that identifies the kind of problem.
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(example = "https://nameservice.dev/problems/unknown-record"))]
    pub type_uri: String,
    /// The kind of problem in words.
    pub title: String,
    /// The status code of the answer.
    pub status: u16,
    /// What was wrong in this case.
    pub detail: String,
    /// Further members.
    #[serde(flatten)]
    pub members: Object,
}

impl ProblemDocument {
    /// The kind that its `type` names; `None` for one that this version does not know.
    pub fn kind(&self) -> Option<ProblemKind> {
        ProblemKind::from_type_uri(&self.type_uri)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_kind_has_a_slug_of_its_own_an_error_status_and_a_title() {
        let mut slugs = HashSet::new();
        for kind in ProblemKind::ALL {
            assert!(slugs.insert(kind.slug()), "{kind:?}");
            assert!(kind.slug().chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{kind:?}");
            assert!((400..600).contains(&kind.status()), "{kind:?}");
            assert!(!kind.title().is_empty(), "{kind:?}");
            assert_eq!(ProblemKind::from_type_uri(&kind.type_uri()), Some(*kind));
        }
    }
}
