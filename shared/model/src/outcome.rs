use crate::{
    Address, CasResult, ConcernValue, Config, ContentId, Head, Index, Lease, LeaseClaim, Object, Record, RecordKind,
};

/// What a push expects to find.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected<T> {
    /// Anything older than what it brings (monotonic).
    Older,
    /// No record at all: the push creates a ledger that has this value.
    NoRecord,
    /// This very value. Of a status or a config the payload may be left out: then the watermark alone is compared.
    Value(ConcernValue<T>),
}

/// A write to one concern: what it expects (`E`) and what it brings (`N`).
#[derive(Clone, Debug, PartialEq)]
pub struct Push<E, N> {
    /// What must be in place.
    pub expected: Expected<E>,
    /// What shall be in place.
    pub new: N,
    /// Of an index push without an expectation: whether it may replace an index at the same `t`.
    pub allow_equal: bool,
    /// The lease that must be held for it.
    pub lease: Option<LeaseClaim>,
}

/// The outcome of a push.
#[derive(Clone, Debug, PartialEq)]
pub enum PushOutcome<T> {
    /// The value is in place.
    Updated {
        /// The value as it was written.
        value: ConcernValue<T>,
        /// It was in place before this call: an earlier call of the same identity or content had written it.
        replayed: bool,
    },
    /// Not written: what is there is as new or newer. Only for pushes without an expectation.
    Stale {
        /// What is there.
        actual: ConcernValue<T>,
    },
    /// Not written: the expectation did not hold.
    Conflict {
        /// What is there; `None` where it cannot be told.
        actual: Option<ConcernValue<T>>,
    },
    /// Not written: there is no such record.
    Unknown,
    /// Not written: the record is retracted.
    Retracted,
    /// Not written: this kind of record has no such concern, or keeps it for itself.
    WrongKind(RecordKind),
    /// Not written: the lease that the push claims is not held.
    LeaseLost {
        /// The lease that is there instead.
        lease: Option<Lease>,
    },
}

impl<T> PushOutcome<T> {
    /// The outcome in the words of a plain compare-and-set, which knows only two.
    pub fn into_cas(self) -> CasResult<T> {
        match self {
            Self::Updated { .. } => CasResult::Updated,
            Self::Stale { actual } => CasResult::Conflict { actual: Some(actual) },
            Self::Conflict { actual } => CasResult::Conflict { actual },
            Self::Unknown | Self::Retracted | Self::WrongKind(_) | Self::LeaseLost { .. } => {
                CasResult::Conflict { actual: None }
            }
        }
    }
}

/// The outcome of the creation of a ledger.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    /// The ledger exists now, as this call made it.
    Created(Box<Record>),
    /// A record of this address exists (live or retracted).
    AlreadyExists,
}

/// What a graph source is published with.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphSourcePublication {
    /// Its type, such as `f:Bm25Index`.
    pub source_type: String,
    /// Its configuration, opaque to the nameservice.
    pub config: Object,
    /// What it depends on: distinct, not itself, at most [`crate::MAX_DEPENDENCIES`]. `None` leaves those of an
    /// existing graph source as they are.
    pub dependencies: Option<Vec<Address>>,
    /// The `config_v` that must be in place; 0 where the graph source must not exist yet.
    pub expected_v: Option<i64>,
}

/// The outcome of the publication of a graph source.
#[derive(Clone, Debug, PartialEq)]
pub enum Published {
    /// The graph source exists now.
    Created(Box<Record>),
    /// Its config and dependencies were replaced.
    Updated(Box<Record>),
    /// Another config is in place than was expected.
    Conflict {
        /// The config that is there; `None` where there is no such record.
        actual: Option<Config>,
    },
    /// These dependencies are missing or retracted: all that are.
    MissingDependencies(Vec<Address>),
    /// The address belongs to a ledger, or to a graph source of another type.
    WrongKind {
        /// What the record is.
        kind: RecordKind,
        /// Its type, of a graph source.
        source_type: Option<String>,
    },
    /// The graph source is retracted.
    Retracted,
}

/// The outcome of a retraction.
#[derive(Clone, Debug, PartialEq)]
pub enum Retracted {
    /// Retracted by this call.
    Retracted(Box<Record>),
    /// It was retracted before.
    Already(Box<Record>),
    /// Others depend on it: branches or graph sources.
    HasDependents,
    /// There is no such record.
    Unknown,
}

/// The outcome of a restoration.
#[derive(Clone, Debug, PartialEq)]
pub enum Restored {
    /// Live again by this call.
    Restored(Box<Record>),
    /// It was live.
    NotRetracted(Box<Record>),
    /// There is no such record.
    Unknown,
}

/// The outcome of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged {
    /// Gone, or what an interrupted purge had left is gone now.
    Purged,
    /// Others depend on it.
    HasDependents,
    /// There is no such record, nor anything left of one.
    Unknown,
}

/// The outcome of dropping a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// Gone.
    Dropped {
        /// How many branches its source has left.
        parent_branches: i64,
    },
    /// Others depend on it.
    HasDependents,
    /// The record was not created as a branch.
    NotABranch,
    /// There is no such record.
    Unknown,
}

/// The outcome of the creation of a branch.
#[derive(Clone, Debug, PartialEq)]
pub enum BranchCreated {
    /// The branch exists now.
    Created(Box<Record>),
    /// A record of its address exists.
    AlreadyExists,
    /// Its source does not exist, or is retracted, or is no ledger.
    UnknownSource,
    /// Its source has no commit to start from.
    UnbornSource,
}

/// Where a reset puts a ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct ResetTo {
    /// The head, born or not.
    pub head: Head,
    /// The index, born or not: id and `t`.
    pub index: ConcernValue<ContentId>,
}

/// The outcome of a reset.
#[derive(Clone, Debug, PartialEq)]
pub enum Reset {
    /// Head and index are where they were asked to be.
    Reset {
        /// The head now.
        head: Head,
        /// The index now: rev 0, without named graphs.
        index: Index,
    },
    /// There is no such record.
    Unknown,
    /// The record is retracted.
    Retracted,
    /// The record is no ledger.
    WrongKind(RecordKind),
}
