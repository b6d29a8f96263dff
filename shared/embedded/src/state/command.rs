//! The commands of the state machine, and their outcomes.

use nameservice_model::{
    Address, BranchCreated, Call, Committed, ConfigPush, ContentId, Created, Dropped, GraphSourcePublication, HeadPush,
    IndexPush, IndexRoot, LeaseClaim, LeaseRequest, Leased, NewConfig, NewHead, Protection, Published, Purged,
    PushOutcome, Record, Released, Reset, ResetTo, Restored, Retracted, StatusPayload, StatusPush, Transaction,
};
use serde_json::Value;

use super::{Replicated, call_id::CallId, portable::Portable};

/// A write, and the call that it belongs to.
#[derive(Clone, Debug)]
pub struct Command {
    pub(crate) call: CallId,
    pub(crate) action: Action,
}

impl Command {
    /// Returns the command of a call.
    pub fn new(call: &Call, action: Action) -> Self {
        Self { call: CallId::from(&call.request_id), action }
    }

    /// Returns the call as a record that remembers it shows it: see [`Portable::calls`](super::Portable::calls).
    pub fn call(&self) -> String {
        self.call.to_text()
    }
}

/// A write.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Replaces everything with the records of another nameservice. For replicas.
    Adopt {
        /// The records.
        records: Vec<Record>,
        /// The position of the other's feed at which they were read.
        position: u64,
    },
    /// Applies changes of another nameservice, under its positions. For replicas.
    Replicate(Vec<Replicated>),
    /// Creates a ledger.
    CreateLedger {
        /// Its address.
        address: Address,
        /// The head that it begins with.
        head: Option<NewHead>,
        /// The config that it begins with.
        config: Option<NewConfig>,
    },
    /// Creates a branch of a ledger.
    CreateBranch {
        /// The address of the branch.
        branch: Address,
        /// The ledger that it branches from.
        source: Address,
        /// The commit that it begins with; the source's head if there is none.
        at: Option<NewHead>,
    },
    /// Creates or reconfigures a graph source.
    PublishGraphSource(GraphSourcePublication),
    /// Moves a head.
    PushHead {
        /// The record.
        address: Address,
        /// The push.
        push: HeadPush,
    },
    /// Moves an index.
    PushIndex {
        /// The record.
        address: Address,
        /// The push.
        push: IndexPush,
    },
    /// Changes a status.
    PushStatus {
        /// The record.
        address: Address,
        /// The push.
        push: StatusPush,
    },
    /// Changes the config of a ledger.
    PushConfig {
        /// The record.
        address: Address,
        /// The push.
        push: ConfigPush,
    },
    /// Soft-deletes a record.
    Retract {
        /// The record.
        address: Address,
        /// The reason to show.
        reason: Option<String>,
    },
    /// Undoes a retraction.
    Restore {
        /// The record.
        address: Address,
    },
    /// Deletes a record permanently.
    Purge {
        /// The record.
        address: Address,
    },
    /// Marks a record as protected, or removes the mark.
    Protect {
        /// The record.
        address: Address,
        /// Whether to protect the record.
        protected: bool,
    },
    /// Deletes a branch permanently.
    DropBranch {
        /// The branch.
        address: Address,
    },
    /// Sets head and index of a ledger to a snapshot.
    ResetHead {
        /// The ledger.
        address: Address,
        /// The snapshot.
        to: ResetTo,
    },
    /// Acquires a lease.
    AcquireLease {
        /// The record.
        address: Address,
        /// The lease.
        request: LeaseRequest,
    },
    /// Extends a lease.
    RefreshLease {
        /// The record.
        address: Address,
        /// The lease.
        request: LeaseRequest,
        /// Its token.
        token: i64,
    },
    /// Releases a lease.
    ReleaseLease {
        /// The record.
        address: Address,
        /// The lease and its token.
        claim: LeaseClaim,
    },
    /// Asks whether something can be written. Changes nothing.
    Probe,
    /// Applies several operations, all or none.
    Commit(Transaction),
    /// Stores a record as it is elsewhere, whatever it was here. The differences become changes in the feed.
    Observe {
        /// The record.
        address: Address,
        /// Its state elsewhere; `None` if it does not exist there.
        record: Option<Box<Portable>>,
    },
}

impl Action {
    /// Returns the addresses of the records that it is about.
    pub(crate) fn addresses(&self) -> Vec<Address> {
        match self {
            Self::Adopt { .. } | Self::Replicate(_) | Self::Probe => Vec::new(),
            Self::CreateBranch { branch, source, .. } => vec![branch.clone(), source.clone()],
            Self::PublishGraphSource(publication) => vec![publication.address().clone()],
            Self::Commit(transaction) => {
                transaction.operations().iter().map(|operation| operation.address.clone()).collect()
            }
            Self::CreateLedger { address, .. }
            | Self::PushHead { address, .. }
            | Self::PushIndex { address, .. }
            | Self::PushStatus { address, .. }
            | Self::PushConfig { address, .. }
            | Self::Retract { address, .. }
            | Self::Restore { address }
            | Self::Purge { address }
            | Self::Protect { address, .. }
            | Self::DropBranch { address }
            | Self::ResetHead { address, .. }
            | Self::AcquireLease { address, .. }
            | Self::RefreshLease { address, .. }
            | Self::ReleaseLease { address, .. }
            | Self::Observe { address, .. } => vec![address.clone()],
        }
    }
}

/// The outcome of a command, by what it did.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Outcome {
    /// Of records or changes from another nameservice.
    Replicated,
    /// Of the creation of a ledger.
    Created(Created),
    /// Of the creation of a branch.
    BranchCreated(BranchCreated),
    /// Of the publication of a graph source.
    Published(Published),
    /// Of a head push.
    Head(PushOutcome<ContentId>),
    /// Of an index push.
    Index(PushOutcome<IndexRoot>),
    /// Of a status push.
    Status(PushOutcome<StatusPayload>),
    /// Of a config push.
    Config(PushOutcome<Value>),
    /// Of a retraction.
    Retracted(Retracted),
    /// Of a restoration.
    Restored(Restored),
    /// Of a purge.
    Purged(Purged),
    /// Of a protection.
    Protection(Protection),
    /// Of dropping a branch.
    Dropped(Dropped),
    /// Of a reset.
    Reset(Reset),
    /// Of acquiring or refreshing a lease.
    Leased(Leased),
    /// Of releasing a lease.
    Released(Released),
    /// Of a transaction.
    Committed(Committed),
    /// Of storing a record as it is elsewhere.
    Observed,
    /// Of asking whether something can be written: it can.
    Probed,
}
