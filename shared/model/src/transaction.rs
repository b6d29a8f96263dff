use std::collections::HashSet;

use crate::{
    Address, ConcernKind, ConcernState, ConfigPush, HeadPush, IndexPush, InvalidPayload, Lease, LeaseClaim, RecordKind,
    StatusPush,
};

/// The most operations of one transaction: with a lease each, they still fit the 100 actions of a DynamoDB transaction.
pub const MAX_OPERATIONS: usize = 48;

/// Operations that are applied together, all or none: 1 to [`MAX_OPERATIONS`], none that creates a record, no two about
/// one concern of one record.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction(Vec<Operation>);

impl Transaction {
    /// Returns a transaction of these operations.
    pub fn new(operations: Vec<Operation>) -> Result<Self, InvalidPayload> {
        if operations.is_empty() || operations.len() > MAX_OPERATIONS {
            return Err(InvalidPayload::new("operations", format!("must be 1 to {MAX_OPERATIONS} operations")));
        }
        let mut seen = HashSet::new();
        for (i, operation) in operations.iter().enumerate() {
            if operation.action.creates() {
                let reason = "cannot be null: a transaction does not create records";
                return Err(InvalidPayload::new(format!("operations[{i}].expected"), reason));
            }
            let concern = operation.action.concern();
            if !seen.insert((&operation.address, concern)) {
                let reason = format!("the {concern} of `{}` occurs twice", operation.address);
                return Err(InvalidPayload::new(format!("operations[{i}]"), reason));
            }
        }
        Ok(Self(operations))
    }

    /// Returns the operations.
    pub fn operations(&self) -> &[Operation] {
        &self.0
    }
}

impl TryFrom<Vec<Operation>> for Transaction {
    type Error = InvalidPayload;

    fn try_from(operations: Vec<Operation>) -> Result<Self, InvalidPayload> {
        Self::new(operations)
    }
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The record that it is about.
    pub address: Address,
    /// What it does.
    pub action: OperationKind,
}

impl Operation {
    /// Returns an operation.
    pub fn new(address: Address, action: impl Into<OperationKind>) -> Self {
        Self { address, action: action.into() }
    }
}

/// The action of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationKind {
    /// Pushes the head.
    PushHead(HeadPush),
    /// Pushes the index.
    PushIndex(IndexPush),
    /// Pushes the status.
    PushStatus(StatusPush),
    /// Pushes the config of a ledger.
    PushConfig(ConfigPush),
    /// Writes nothing: this concern must have this value.
    Check(ConcernState),
}

impl OperationKind {
    /// Returns the concern that it is about.
    pub const fn concern(&self) -> ConcernKind {
        match self {
            Self::PushHead(_) => ConcernKind::Head,
            Self::PushIndex(_) => ConcernKind::Index,
            Self::PushStatus(_) => ConcernKind::Status,
            Self::PushConfig(_) => ConcernKind::Config,
            Self::Check(state) => state.concern(),
        }
    }

    /// Returns the lease that it claims.
    pub const fn lease(&self) -> Option<&LeaseClaim> {
        match self {
            Self::PushHead(push) => push.lease(),
            Self::PushIndex(push) => push.lease(),
            Self::PushStatus(push) => push.lease(),
            Self::PushConfig(push) => push.lease(),
            Self::Check(_) => None,
        }
    }

    const fn creates(&self) -> bool {
        match self {
            Self::PushHead(push) => push.creates(),
            Self::PushIndex(push) => push.creates(),
            Self::PushStatus(push) => push.creates(),
            Self::PushConfig(push) => push.creates(),
            Self::Check(_) => false,
        }
    }
}

impl From<HeadPush> for OperationKind {
    fn from(push: HeadPush) -> Self {
        Self::PushHead(push)
    }
}

impl From<IndexPush> for OperationKind {
    fn from(push: IndexPush) -> Self {
        Self::PushIndex(push)
    }
}

impl From<StatusPush> for OperationKind {
    fn from(push: StatusPush) -> Self {
        Self::PushStatus(push)
    }
}

impl From<ConfigPush> for OperationKind {
    fn from(push: ConfigPush) -> Self {
        Self::PushConfig(push)
    }
}

impl From<ConcernState> for OperationKind {
    fn from(state: ConcernState) -> Self {
        Self::Check(state)
    }
}

/// The outcome of one operation.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum OperationOutcome {
    /// Its value is stored.
    Updated {
        /// The value.
        value: ConcernState,
        /// It was stored before.
        replayed: bool,
    },
    /// A check that held; or, in a rejected transaction, an operation that was not the reason.
    Passed,
    /// The current value is as new or newer.
    Stale {
        /// The current value.
        actual: ConcernState,
    },
    /// The expected value did not match.
    Conflict {
        /// The current value.
        actual: Option<ConcernState>,
    },
    /// There is no such record.
    Unknown,
    /// The record is retracted.
    Retracted,
    /// This kind of record has no such concern, or does not take pushes of it.
    WrongKind(RecordKind),
    /// The lease that it claims is not held.
    LeaseLost {
        /// The current lease, if there is one.
        lease: Option<Lease>,
    },
}

impl OperationOutcome {
    /// Returns the value that is stored now, or the outcome itself if the operation was rejected, or was a check.
    pub fn updated(self) -> Result<ConcernState, Self> {
        match self {
            Self::Updated { value, .. } => Ok(value),
            other => Err(other),
        }
    }

    /// Returns whether it is a reason to reject the transaction.
    pub const fn rejects(&self) -> bool {
        !matches!(self, Self::Updated { .. } | Self::Passed)
    }
}

/// The outcome of a transaction: the outcome of each operation, in order.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Committed {
    /// All were applied.
    Committed(Vec<OperationOutcome>),
    /// None was.
    Rejected(Vec<OperationOutcome>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ContentId, Head, NewHead};

    #[test]
    fn a_transaction_is_bounded_and_names_each_concern_once() {
        let id = || ContentId::parse("bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi").unwrap();
        let head = || NewHead::new(id(), 1).unwrap();
        let at = |i: usize| Address::parse(&format!("a{i}")).unwrap();
        let push = |i| Operation::new(at(i), HeadPush::monotonic(head()));
        assert_eq!(Transaction::new(Vec::new()).unwrap_err().path, "operations");
        assert!(Transaction::new((0..MAX_OPERATIONS).map(push).collect()).is_ok());
        assert_eq!(Transaction::new((0..=MAX_OPERATIONS).map(push).collect()).unwrap_err().path, "operations");
        let check = Operation::new(at(0), ConcernState::Head(Head::unborn()));
        assert_eq!(Transaction::new(vec![push(0), check]).unwrap_err().path, "operations[1]");
        let create = Operation::new(at(1), HeadPush::create(head()));
        assert_eq!(Transaction::new(vec![push(0), create]).unwrap_err().path, "operations[1].expected");
    }
}
