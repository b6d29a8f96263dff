use async_trait::async_trait;
use serde_json::Value;

use crate::{
    Address, AdminPublisher, BranchCreated, Call, Committed, Config, ConfigPublisher, ConfigPush, ContentId, Created,
    Dropped, Error, GraphSourcePublication, GraphSourcePublisher, Head, HeadPush, Index, IndexPush, IndexRoot,
    LeaseClaim, LeasePublisher, LeaseRequest, Leased, NameService, NewHead, NewLedger, Protection, Published,
    Publisher, Purged, PushOutcome, Records, RefPublisher, Released, Reset, ResetTo, Restored, Result, Retracted,
    Status, StatusPayload, StatusPublisher, StatusPush, Transaction, TransactionPublisher,
};

/// A write, as a value: for backends that treat all writes alike.
#[derive(Clone, Debug)]
pub enum Write {
    /// Creates a ledger.
    CreateLedger(NewLedger),
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
    /// Applies several operations, all or none.
    Commit(Transaction),
}

/// The outcome of a [`Write`], by what it did.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum Written {
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
}

impl Write {
    /// Returns the name of the operation, as errors show it.
    pub fn operation(&self) -> &'static str {
        match self {
            Self::CreateLedger(_) => "create a ledger",
            Self::CreateBranch { .. } => "create a branch",
            Self::PublishGraphSource(_) => "publish a graph source",
            Self::PushHead { .. } => "push a head",
            Self::PushIndex { .. } => "push an index",
            Self::PushStatus { .. } => "push a status",
            Self::PushConfig { .. } => "push a config",
            Self::Retract { .. } => "retract a record",
            Self::Restore { .. } => "restore a record",
            Self::Purge { .. } => "purge a record",
            Self::Protect { .. } => "protect a record",
            Self::DropBranch { .. } => "drop a branch",
            Self::ResetHead { .. } => "reset a head",
            Self::AcquireLease { .. } => "acquire a lease",
            Self::RefreshLease { .. } => "refresh a lease",
            Self::ReleaseLease { .. } => "release a lease",
            Self::Commit(_) => "commit a transaction",
        }
    }

    /// Returns the addresses of the records that it is about.
    pub fn addresses(&self) -> Vec<Address> {
        match self {
            Self::CreateBranch { branch, source, .. } => vec![branch.clone(), source.clone()],
            Self::PublishGraphSource(publication) => vec![publication.address().clone()],
            Self::Commit(transaction) => {
                transaction.operations().iter().map(|operation| operation.address.clone()).collect()
            }
            Self::CreateLedger(NewLedger { address, .. })
            | Self::PushHead { address, .. }
            | Self::PushIndex { address, .. }
            | Self::PushStatus { address, .. }
            | Self::PushConfig { address, .. }
            | Self::Retract { address, .. }
            | Self::Restore { address, .. }
            | Self::Purge { address, .. }
            | Self::Protect { address, .. }
            | Self::DropBranch { address, .. }
            | Self::ResetHead { address, .. }
            | Self::AcquireLease { address, .. }
            | Self::RefreshLease { address, .. }
            | Self::ReleaseLease { address, .. } => vec![address.clone()],
        }
    }

    /// Writes it to a backend.
    pub async fn send<B: Records + ?Sized>(&self, call: &Call, backend: &B) -> Result<Written> {
        Ok(match self {
            Self::CreateLedger(ledger) => Written::Created(backend.create(call, ledger).await?),
            Self::CreateBranch { branch, source, at } => {
                Written::BranchCreated(backend.create_branch(call, branch, source, at.as_ref()).await?)
            }
            Self::PublishGraphSource(publication) => {
                Written::Published(backend.publish_graph_source(call, publication).await?)
            }
            Self::PushHead { address, push } => Written::Head(backend.push_head(call, address, push).await?),
            Self::PushIndex { address, push } => Written::Index(backend.push_index(call, address, push).await?),
            Self::PushStatus { address, push } => Written::Status(backend.push_status(call, address, push).await?),
            Self::PushConfig { address, push } => Written::Config(backend.push_config(call, address, push).await?),
            Self::Retract { address, reason } => {
                Written::Retracted(backend.retract(call, address, reason.as_deref()).await?)
            }
            Self::Restore { address } => Written::Restored(backend.restore(call, address).await?),
            Self::Purge { address } => Written::Purged(backend.purge(call, address).await?),
            Self::Protect { address, protected } => {
                Written::Protection(backend.protect(call, address, *protected).await?)
            }
            Self::DropBranch { address } => Written::Dropped(backend.drop_branch(call, address).await?),
            Self::ResetHead { address, to } => Written::Reset(backend.reset_head(call, address, to).await?),
            Self::AcquireLease { address, request } => {
                Written::Leased(backend.acquire_lease(call, address, request).await?)
            }
            Self::RefreshLease { address, request, token } => {
                Written::Leased(backend.refresh_lease(call, address, request, *token).await?)
            }
            Self::ReleaseLease { address, claim } => {
                Written::Released(backend.release_lease(call, address, claim).await?)
            }
            Self::Commit(transaction) => Written::Committed(backend.commit(call, transaction).await?),
        })
    }
}

/// A backend that treats all writes alike, such as one that is in front of another: it has one function for them, and gets the
/// traits of the operations from it.
///
/// ```
/// use async_trait::async_trait;
/// use nameservice_model::{Call, Records, Result, Write, WriteAll, Written};
/// # use nameservice_model::*;
///
/// struct Logged<B>(B);
///
/// #[async_trait]
/// impl<B: Records> WriteAll for Logged<B> {
///     async fn write(&self, call: &Call, write: Write) -> Result<Written> {
///         println!("{} {:?}", write.operation(), write.addresses());
///         write.send(call, &self.0).await
///     }
/// }
/// # #[async_trait]
/// # impl<B: Records> GraphSourceLookup for Logged<B> {
/// #     async fn graph_source(&self, address: &Address) -> Result<Option<Record>> { self.0.graph_source(address).await }
/// # }
/// # #[async_trait]
/// # impl<B: Records> NameService for Logged<B> {
/// #     async fn lookup(&self, address: &Address) -> Result<Option<Record>> { self.0.lookup(address).await }
/// #     async fn lookup_all(&self, addresses: &[Address]) -> Result<Vec<Record>> { self.0.lookup_all(addresses).await }
/// #     async fn list(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> { self.0.list(query, visible).await }
/// #     async fn snapshot(&self, limit: Limit, after: Option<&Cursor>, visible: Visible<'_>) -> Result<Page<Record>> {
/// #         self.0.snapshot(limit, after, visible).await
/// #     }
/// #     async fn dependents(&self, address: &Address) -> Result<Vec<Address>> { self.0.dependents(address).await }
/// #     async fn ping(&self) -> Result<()> { self.0.ping().await }
/// # }
/// fn is_a_publisher(backend: &impl Publisher) {}
/// fn of<B: Records>(logged: &Logged<B>) {
///     is_a_publisher(logged);
/// }
/// ```
#[async_trait]
pub trait WriteAll: NameService {
    /// Writes, and returns an outcome of the write's kind.
    async fn write(&self, call: &Call, write: Write) -> Result<Written>;

    /// Returns the head of a ledger; by default, that of the whole record.
    async fn read_head(&self, address: &Address) -> Result<Option<Head>> {
        Ok(self.lookup(address).await?.and_then(|record| record.head))
    }

    /// Returns the index of a record; by default, that of the whole record.
    async fn read_index(&self, address: &Address) -> Result<Option<Index>> {
        Ok(self.lookup(address).await?.map(|record| record.index))
    }

    /// Returns the status of a record; by default, that of the whole record.
    async fn read_status(&self, address: &Address) -> Result<Option<Status>> {
        Ok(self.lookup(address).await?.map(|record| record.status))
    }

    /// Returns the config of a record; by default, that of the whole record.
    async fn read_config(&self, address: &Address) -> Result<Option<Config>> {
        Ok(self.lookup(address).await?.map(|record| record.config))
    }
}

/// Writes, and takes the outcome out.
async fn written<W: WriteAll + ?Sized, T>(
    to: &W,
    call: &Call,
    write: Write,
    outcome: impl FnOnce(Written) -> Option<T> + Send,
) -> Result<T> {
    let operation = write.operation();
    outcome(to.write(call, write).await?)
        .ok_or_else(|| Error::Store { operation, source: "the outcome is that of another write".into() })
}

/// Takes the outcome of one kind of write out.
macro_rules! outcome {
    ($kind:ident) => {
        |written| match written {
            Written::$kind(outcome) => Some(outcome),
            _ => None,
        }
    };
}

#[async_trait]
impl<W: WriteAll + ?Sized> Publisher for W {
    async fn create(&self, call: &Call, ledger: &NewLedger) -> Result<Created> {
        written(self, call, Write::CreateLedger(ledger.clone()), outcome!(Created)).await
    }

    async fn create_branch(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        let write = Write::CreateBranch { branch: branch.clone(), source: source.clone(), at: at.cloned() };
        written(self, call, write, outcome!(BranchCreated)).await
    }

    async fn retract(&self, call: &Call, address: &Address, reason: Option<&str>) -> Result<Retracted> {
        let write = Write::Retract { address: address.clone(), reason: reason.map(str::to_owned) };
        written(self, call, write, outcome!(Retracted)).await
    }

    async fn restore(&self, call: &Call, address: &Address) -> Result<Restored> {
        let write = Write::Restore { address: address.clone() };
        written(self, call, write, outcome!(Restored)).await
    }
}

#[async_trait]
impl<W: WriteAll + ?Sized> AdminPublisher for W {
    async fn purge(&self, call: &Call, address: &Address) -> Result<Purged> {
        let write = Write::Purge { address: address.clone() };
        written(self, call, write, outcome!(Purged)).await
    }

    async fn protect(&self, call: &Call, address: &Address, protected: bool) -> Result<Protection> {
        let write = Write::Protect { address: address.clone(), protected };
        written(self, call, write, outcome!(Protection)).await
    }

    async fn drop_branch(&self, call: &Call, address: &Address) -> Result<Dropped> {
        let write = Write::DropBranch { address: address.clone() };
        written(self, call, write, outcome!(Dropped)).await
    }

    async fn reset_head(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        let write = Write::ResetHead { address: address.clone(), to: to.clone() };
        written(self, call, write, outcome!(Reset)).await
    }
}

#[async_trait]
impl<W: WriteAll + ?Sized> RefPublisher for W {
    async fn head(&self, address: &Address) -> Result<Option<Head>> {
        self.read_head(address).await
    }

    async fn index(&self, address: &Address) -> Result<Option<Index>> {
        self.read_index(address).await
    }

    async fn push_head(&self, call: &Call, address: &Address, push: &HeadPush) -> Result<PushOutcome<ContentId>> {
        let write = Write::PushHead { address: address.clone(), push: push.clone() };
        written(self, call, write, outcome!(Head)).await
    }

    async fn push_index(&self, call: &Call, address: &Address, push: &IndexPush) -> Result<PushOutcome<IndexRoot>> {
        let write = Write::PushIndex { address: address.clone(), push: push.clone() };
        written(self, call, write, outcome!(Index)).await
    }
}

#[async_trait]
impl<W: WriteAll + ?Sized> StatusPublisher for W {
    async fn status(&self, address: &Address) -> Result<Option<Status>> {
        self.read_status(address).await
    }

    async fn push_status(
        &self,
        call: &Call,
        address: &Address,
        push: &StatusPush,
    ) -> Result<PushOutcome<StatusPayload>> {
        let write = Write::PushStatus { address: address.clone(), push: push.clone() };
        written(self, call, write, outcome!(Status)).await
    }
}

#[async_trait]
impl<W: WriteAll + ?Sized> ConfigPublisher for W {
    async fn config(&self, address: &Address) -> Result<Option<Config>> {
        self.read_config(address).await
    }

    async fn push_config(&self, call: &Call, address: &Address, push: &ConfigPush) -> Result<PushOutcome<Value>> {
        let write = Write::PushConfig { address: address.clone(), push: push.clone() };
        written(self, call, write, outcome!(Config)).await
    }
}

#[async_trait]
impl<W: WriteAll + ?Sized> GraphSourcePublisher for W {
    async fn publish_graph_source(&self, call: &Call, publication: &GraphSourcePublication) -> Result<Published> {
        let write = Write::PublishGraphSource(publication.clone());
        written(self, call, write, outcome!(Published)).await
    }
}

#[async_trait]
impl<W: WriteAll + ?Sized> LeasePublisher for W {
    async fn acquire_lease(&self, call: &Call, address: &Address, request: &LeaseRequest) -> Result<Leased> {
        let write = Write::AcquireLease { address: address.clone(), request: request.clone() };
        written(self, call, write, outcome!(Leased)).await
    }

    async fn refresh_lease(
        &self,
        call: &Call,
        address: &Address,
        request: &LeaseRequest,
        token: i64,
    ) -> Result<Leased> {
        let write = Write::RefreshLease { address: address.clone(), request: request.clone(), token };
        written(self, call, write, outcome!(Leased)).await
    }

    async fn release_lease(&self, call: &Call, address: &Address, claim: &LeaseClaim) -> Result<Released> {
        let write = Write::ReleaseLease { address: address.clone(), claim: claim.clone() };
        written(self, call, write, outcome!(Released)).await
    }
}

#[async_trait]
impl<W: WriteAll + ?Sized> TransactionPublisher for W {
    async fn commit(&self, call: &Call, transaction: &Transaction) -> Result<Committed> {
        let write = Write::Commit(transaction.clone());
        written(self, call, write, outcome!(Committed)).await
    }
}
