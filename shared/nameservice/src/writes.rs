//! Builders of what an administrator does, and of transactions.

use nameservice_model::{
    Address, Call, Committed, ContentId, Dropped, Head, Index, InvalidAddress, InvalidPayload, NewHead, NewIndex,
    Operation, OperationOutcome, Protection, Purged, Record, Reset, ResetTo, Restored, Retracted, Transaction,
};

use crate::{
    Error, IntoAddress, Nameservice, Result,
    builder::sent,
    names::{new_head, new_index},
};

impl Nameservice {
    /// Begins to retract a record, on which nothing may depend.
    pub fn retract(&self, address: impl IntoAddress) -> Retract {
        Retract { names: self.clone(), call: Call::fresh(), address: address.into_address(), reason: None }
    }

    /// Begins to undo the retraction of a record.
    pub fn restore(&self, address: impl IntoAddress) -> Restore {
        Restore { names: self.clone(), call: Call::fresh(), address: address.into_address() }
    }

    /// Begins to delete a record permanently.
    pub fn purge(&self, address: impl IntoAddress) -> Purge {
        Purge { names: self.clone(), call: Call::fresh(), address: address.into_address() }
    }

    /// Begins to delete a branch permanently.
    pub fn drop_branch(&self, address: impl IntoAddress) -> DropBranch {
        DropBranch { names: self.clone(), call: Call::fresh(), address: address.into_address() }
    }

    /// Begins to set head and index of a ledger to an earlier snapshot, or to any other.
    pub fn reset(&self, address: impl IntoAddress) -> ResetLedger {
        let address = address.into_address();
        ResetLedger { names: self.clone(), call: Call::fresh(), address, to: Ok(None), index: Ok(None) }
    }

    /// Begins to protect a record from retraction, purge and reset, or to remove the protection.
    pub fn protect(&self, address: impl IntoAddress, protected: bool) -> Protect {
        Protect { names: self.clone(), call: Call::fresh(), address: address.into_address(), protected }
    }

    /// Begins to apply operations together, all or none: awaited, it returns the outcome of each.
    pub fn commit(&self, operations: impl IntoIterator<Item = Operation>) -> Commit {
        Commit { names: self.clone(), call: Call::fresh(), operations: operations.into_iter().collect() }
    }
}

/// The retraction of a record: awaited, it returns the record.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nameservice::Error> {
/// # let ns = nameservice::connect("memory:").await?;
/// # let commit = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
/// # let head = ns.create_ledger("mydb").head(commit, 1).await?.head.unwrap();
/// # use nameservice::{Error, Rejection};
/// let head = ns.head("mydb")?.push(commit, 2).expect(head).await?.updated()?;
/// match ns.retract("mydb").reason("moved").await {
///     Ok(record) => println!("{} is retracted", record.address),
///     Err(Error::Rejected(Rejection::HasDependents)) => println!("first: {:?}", ns.dependents("mydb").await?),
///     Err(error) => return Err(error),
/// }
/// # assert_eq!(head.t(), 2);
/// assert!(!ns.restore("mydb").await?.retracted);
/// ns.purge("mydb").await?;
/// # assert!(ns.lookup("mydb").await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct Retract {
    names: Nameservice,
    call: Call,
    address: Result<Address, InvalidAddress>,
    reason: Option<String>,
}

impl Retract {
    /// Sets the reason, which the status shows.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

sent!(Retract -> Record, self => {
    match self.names.backend().retract(&self.call, &self.address?, self.reason.as_deref()).await? {
        Retracted::Retracted(record) | Retracted::Already(record) => Ok(*record),
        other => Err(other.into()),
    }
});

/// The restoration of a retracted record: awaited, it returns the record.
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct Restore {
    names: Nameservice,
    call: Call,
    address: Result<Address, InvalidAddress>,
}

sent!(Restore -> Record, self => {
    match self.names.backend().restore(&self.call, &self.address?).await? {
        Restored::Restored(record) | Restored::NotRetracted(record) => Ok(*record),
        other => Err(other.into()),
    }
});

/// The deletion of a record.
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct Purge {
    names: Nameservice,
    call: Call,
    address: Result<Address, InvalidAddress>,
}

sent!(Purge -> (), self => {
    match self.names.backend().purge(&self.call, &self.address?).await? {
        Purged::Purged => Ok(()),
        other => Err(other.into()),
    }
});

/// The deletion of a branch: awaited, it returns how many branches its source still has.
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct DropBranch {
    names: Nameservice,
    call: Call,
    address: Result<Address, InvalidAddress>,
}

sent!(DropBranch -> i64, self => {
    match self.names.backend().drop_branch(&self.call, &self.address?).await? {
        Dropped::Dropped { parent_branches } => Ok(parent_branches),
        other => Err(other.into()),
    }
});

/// The reset of a ledger: awaited, it returns the head and the index that are stored now.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nameservice::Error> {
/// # let commit = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
/// # let ns = nameservice::connect("memory:").await?;
/// # ns.create_ledger("mydb").head(commit, 7).await?;
/// let (head, index) = ns.reset("mydb").head(commit, 5).await?;
/// assert_eq!((head.t(), index.t()), (5, 0));
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct ResetLedger {
    names: Nameservice,
    call: Call,
    address: Result<Address, InvalidAddress>,
    /// The head; `Some(None)` for a ledger without a commit.
    to: Result<Option<Option<NewHead>>>,
    index: Result<Option<NewIndex>>,
}

impl ResetLedger {
    /// Sets the head to this commit.
    pub fn head<I>(mut self, id: I, t: i64) -> Self
    where
        I: TryInto<ContentId>,
        Error: From<I::Error>,
    {
        self.to = new_head(id, t).map(|head| Some(Some(head)));
        self
    }

    /// Sets the index to this root; without it, the ledger has no index.
    pub fn index<I>(mut self, id: I, t: i64) -> Self
    where
        I: TryInto<ContentId>,
        Error: From<I::Error>,
    {
        self.index = new_index(id, t).map(Some);
        self
    }

    /// Removes the head: the ledger has no commit.
    pub fn unborn(mut self) -> Self {
        self.to = Ok(Some(None));
        self
    }
}

sent!(ResetLedger -> (Head, Index), self => {
    let head = self.to?.ok_or_else(|| InvalidPayload::new("head", "is required; `unborn` removes it".to_owned()))?;
    let to = ResetTo::new(head, self.index?)?;
    match self.names.backend().reset_head(&self.call, &self.address?, &to).await? {
        Reset::Reset { head, index } => Ok((head, index)),
        other => Err(other.into()),
    }
});

/// The protection of a record, or its removal.
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct Protect {
    names: Nameservice,
    call: Call,
    address: Result<Address, InvalidAddress>,
    protected: bool,
}

sent!(Protect -> (), self => {
    match self.names.backend().protect(&self.call, &self.address?, self.protected).await? {
        Protection::Set | Protection::Already => Ok(()),
        other => Err(other.into()),
    }
});

/// A transaction: awaited, it returns the outcome of each operation.
#[derive(Debug)]
#[must_use = "nothing is sent before it is awaited"]
pub struct Commit {
    names: Nameservice,
    call: Call,
    operations: Vec<Operation>,
}

sent!(Commit -> Vec<OperationOutcome>, self => {
    match self.names.backend().commit(&self.call, &Transaction::new(self.operations)?).await? {
        Committed::Committed(outcomes) => Ok(outcomes),
        other => Err(other.into()),
    }
});
