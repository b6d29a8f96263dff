use serde_json::Value;

use crate::{
    Address, ConcernKind, Config, ContentId, Head, Index, IndexRoot, IndexUpdate, Lease, Push, RecordKind, Status,
    StatusPayload,
};

/// The most operations of one transaction: with a lease each, they still fit the 100 actions of DynamoDB's.
pub const MAX_OPERATIONS: usize = 48;

/// One operation of a transaction. No push may expect that there is no record.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The record it is about.
    pub address: Address,
    /// What it does there.
    pub action: OperationKind,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationKind {
    /// Moves the head.
    PushHead(Push<ContentId, Head>),
    /// Moves the index.
    PushIndex(Push<IndexRoot, IndexUpdate>),
    /// Changes the status.
    PushStatus(Push<StatusPayload, Status>),
    /// Changes the config of a ledger.
    PushConfig(Push<Value, Config>),
    /// Writes nothing: this concern must be at this value.
    Check(ConcernState),
}

impl OperationKind {
    /// The concern that it is about.
    pub const fn concern(&self) -> ConcernKind {
        match self {
            Self::PushHead(_) => ConcernKind::Head,
            Self::PushIndex(_) => ConcernKind::Index,
            Self::PushStatus(_) => ConcernKind::Status,
            Self::PushConfig(_) => ConcernKind::Config,
            Self::Check(state) => state.concern(),
        }
    }
}

/// The value of one of the concerns.
#[derive(Clone, Debug, PartialEq)]
pub enum ConcernState {
    /// Of the head.
    Head(Head),
    /// Of the index.
    Index(Index),
    /// Of the status.
    Status(Status),
    /// Of the config.
    Config(Config),
}

impl ConcernState {
    /// Whose value it is.
    pub const fn concern(&self) -> ConcernKind {
        match self {
            Self::Head(_) => ConcernKind::Head,
            Self::Index(_) => ConcernKind::Index,
            Self::Status(_) => ConcernKind::Status,
            Self::Config(_) => ConcernKind::Config,
        }
    }
}

/// What came of one operation.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationOutcome {
    /// Its value is in place.
    Updated {
        /// The value.
        value: ConcernState,
        /// It was in place before.
        replayed: bool,
    },
    /// A check that held; or, in a refused transaction, an operation that nothing stood in the way of.
    Passed,
    /// Nothing newer than what is there.
    Stale {
        /// What is there.
        actual: ConcernState,
    },
    /// Its expectation did not hold.
    Conflict {
        /// What is there.
        actual: Option<ConcernState>,
    },
    /// There is no such record.
    Unknown,
    /// The record is retracted.
    Retracted,
    /// This kind of record has no such concern for pushes.
    WrongKind(RecordKind),
    /// The lease that it claims is not held.
    LeaseLost {
        /// The lease that is there instead.
        lease: Option<Lease>,
    },
}

impl OperationOutcome {
    /// Whether it stands in the way of the transaction.
    pub const fn refuses(&self) -> bool {
        !matches!(self, Self::Updated { .. } | Self::Passed)
    }
}

/// The outcome of a transaction: what came of each operation, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Committed {
    /// All were applied.
    Committed(Vec<OperationOutcome>),
    /// None was.
    Refused(Vec<OperationOutcome>),
}
