use crate::{Address, Config, Head, Index, Record, RecordKind};

/// The outcome of creating a ledger.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Created {
    /// The ledger was created by this call.
    Created(Box<Record>),
    /// A record of this address exists (live or retracted).
    AlreadyExists,
}

/// The outcome of publishing a graph source.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Published {
    /// The graph source was created.
    Created(Box<Record>),
    /// Its config and dependencies were replaced.
    Updated(Box<Record>),
    /// The expected config did not match.
    Conflict {
        /// The current config; `None` if there is no such record.
        actual: Option<Config>,
    },
    /// Some dependencies are missing or retracted. Lists all of them.
    MissingDependencies(Vec<Address>),
    /// The address belongs to a ledger, or to a graph source of another type.
    WrongKind {
        /// What the record is.
        kind: RecordKind,
        /// Its type, if it is a graph source.
        source_type: Option<String>,
    },
    /// The graph source is retracted.
    Retracted,
}

/// The outcome of retracting a record.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Retracted {
    /// Retracted by this call.
    Retracted(Box<Record>),
    /// It was already retracted.
    Already(Box<Record>),
    /// Others depend on it: branches or graph sources.
    HasDependents,
    /// It is protected.
    Protected,
    /// There is no such record.
    Unknown,
}

/// The outcome of restoring a record.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Restored {
    /// Restored by this call.
    Restored(Box<Record>),
    /// It was not retracted.
    NotRetracted(Box<Record>),
    /// There is no such record.
    Unknown,
}

/// The outcome of purging a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Purged {
    /// Deleted: the record, or what an interrupted purge had left of it.
    Purged,
    /// Others depend on it.
    HasDependents,
    /// It is protected.
    Protected,
    /// There is no such record, nor any remains of one.
    Unknown,
}

/// The outcome of dropping a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Dropped {
    /// Deleted.
    Dropped {
        /// How many branches its source still has.
        parent_branches: i64,
    },
    /// Others depend on it.
    HasDependents,
    /// It is protected.
    Protected,
    /// The record was not created as a branch.
    NotABranch,
    /// There is no such record.
    Unknown,
}

/// The outcome of creating a branch.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum BranchCreated {
    /// The branch was created.
    Created(Box<Record>),
    /// A record of its address exists.
    AlreadyExists,
    /// Its source does not exist, is retracted, or is not a ledger.
    UnknownSource,
    /// Its source has no commit to start from.
    UnbornSource,
}

/// The outcome of resetting a ledger.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Reset {
    /// Head and index are at the given snapshot.
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
    /// The record is protected.
    Protected,
    /// The record is not a ledger.
    WrongKind(RecordKind),
}

/// The outcome of protecting a record, or of removing its protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Protection {
    /// The mark was changed by this call.
    Set,
    /// The mark was already as requested.
    Already,
    /// There is no such record.
    Unknown,
}
