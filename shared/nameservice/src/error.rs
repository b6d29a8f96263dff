use std::{convert::Infallible, fmt};

use nameservice_model::{
    Address, BoxError, BranchCreated, Committed, ConcernState, ConcernValue, Created, Dropped, Error as BackendError,
    InvalidAddress, InvalidContentId, InvalidGlob, InvalidLimit, InvalidPayload, InvalidSearch, Lease, Leased,
    OperationOutcome, Protection, Published, Purged, PushOutcome, RecordKind, Released, Reset, Restored, Retracted,
    ShownUrl,
};

use crate::{InvalidPlace, LeaseLost, Place};

/// The result of everything that [`Nameservice`](crate::Nameservice) and its handles do.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The backend failed, or the outcome of a write is unknown.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// Nothing was written, for this reason.
    #[error("nothing was written: {0}")]
    Rejected(#[from] Rejection),
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    /// The text is not a content id.
    #[error(transparent)]
    ContentId(#[from] InvalidContentId),
    /// The text is not a pattern of addresses.
    #[error(transparent)]
    Glob(#[from] InvalidGlob),
    /// The value cannot be stored.
    #[error(transparent)]
    Value(#[from] InvalidPayload),
    /// The limit is 0.
    #[error(transparent)]
    Limit(#[from] InvalidLimit),
    /// The text cannot be searched for.
    #[error("the search text {0}")]
    Search(#[from] InvalidSearch),
    /// A lease was lost while it was kept.
    #[error("the lease was lost")]
    LeaseLost(#[from] LeaseLost),
    /// The URL names no backend.
    #[error(transparent)]
    Place(#[from] InvalidPlace),
    /// The value is older than was asked for.
    #[error("the watermark is {actual}, below {wanted}", actual = actual.map_or_else(|| "missing".to_owned(), |v| v.to_string()))]
    NotYet {
        /// The watermark that was asked for.
        wanted: i64,
        /// The current watermark; `None` if there is no record.
        actual: Option<i64>,
    },
    /// The backend cannot be opened.
    #[error("cannot open {place}")]
    Connect {
        /// Its URL.
        place: String,
        /// The cause.
        #[source]
        source: nameservice_model::BoxError,
    },
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// The reason why a write was not applied, with the stored value if it is the reason.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nameservice::Error> {
/// # let commit = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
/// # let ns = nameservice::connect("memory:").await?;
/// use nameservice::{Error, Rejection};
///
/// ns.create_ledger("mydb").head(commit, 7).await?;
/// let pushed = ns.head("mydb")?.push(commit, 8).expect_unborn().await?;
/// match pushed.updated().map_err(Error::from) {
///     Err(Error::Rejected(Rejection::Conflict { actual: Some(head) })) => assert_eq!(head.v(), 7),
///     other => panic!("{other:?}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// A record of this address exists.
    #[error("a record of this address exists")]
    AlreadyExists,
    /// There is no such record.
    #[error("there is no such record")]
    Unknown,
    /// The record is retracted.
    #[error("the record is retracted")]
    Retracted,
    /// The record is of another kind.
    #[error("the record is {}", kind_of(.kind, .source_type))]
    WrongKind {
        /// What the record is.
        kind: RecordKind,
        /// Its type, if that is the reason.
        source_type: Option<String>,
    },
    /// The stored value is as new or newer.
    #[error("the stored value is as new or newer: {}", at(.actual))]
    Stale {
        /// The stored value.
        actual: Box<ConcernState>,
    },
    /// The expected value does not match.
    #[error("the expected value does not match{}", after_colon(.actual, at))]
    Conflict {
        /// The stored value; `None` if it is not known, or there is no such record.
        actual: Option<Box<ConcernState>>,
    },
    /// The lease is not held.
    #[error("the lease is not held{}", after_colon(.lease, held))]
    LeaseLost {
        /// The stored lease, if there is one.
        lease: Option<Box<Lease>>,
    },
    /// Another holder has a lease of the record.
    #[error("{}", held(.lease))]
    LeaseHeld {
        /// The stored lease.
        lease: Box<Lease>,
    },
    /// Other records depend on it.
    #[error("other records depend on it")]
    HasDependents,
    /// It is protected.
    #[error("the record is protected")]
    Protected,
    /// The record was not created as a branch.
    #[error("the record was not created as a branch")]
    NotABranch,
    /// These dependencies are missing or retracted.
    #[error("dependencies are missing or retracted: {}", listed(.0))]
    MissingDependencies(Vec<Address>),
    /// The source of a branch does not exist, is retracted, or is not a ledger.
    #[error("the source does not exist, is retracted, or is not a ledger")]
    UnknownSource,
    /// The source of a branch has no commit.
    #[error("the source has no commit")]
    UnbornSource,
    /// Operations of a transaction were rejected: the outcome of each.
    #[error("operations of the transaction were rejected: {}", rejected(.0))]
    TransactionRejected(Vec<OperationOutcome>),
    /// An outcome that this version does not know.
    #[error("{0}")]
    Other(&'static str),
}

/// Shows what [`Display`](fmt::Display) shows: a stored configuration may hold secrets.
impl fmt::Debug for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rejection({self})")
    }
}

const OTHER: Rejection = Rejection::Other("the outcome is not one that was asked for");

fn after_colon<T>(value: &Option<Box<T>>, shown: impl Fn(&T) -> String) -> String {
    value.as_deref().map(|value| format!(": {}", shown(value))).unwrap_or_default()
}

fn at(actual: &ConcernState) -> String {
    format!("the {} is at {}", actual.concern(), actual.v())
}

fn held(lease: &Lease) -> String {
    format!("the lease {} is held by {}", lease.name, lease.holder)
}

fn kind_of(kind: &RecordKind, source_type: &Option<String>) -> String {
    match (kind, source_type) {
        (RecordKind::Ledger, _) => "a ledger".to_owned(),
        (RecordKind::GraphSource, None) => "a graph source".to_owned(),
        (RecordKind::GraphSource, Some(source_type)) => format!("a graph source of the type {source_type}"),
    }
}

fn listed(addresses: &[Address]) -> String {
    addresses.iter().map(Address::as_str).collect::<Vec<_>>().join(", ")
}

/// Names the operations that are the reason, by their place in the transaction, from 1.
fn rejected(outcomes: &[OperationOutcome]) -> String {
    let reasons = outcomes.iter().zip(1..).filter(|(outcome, _)| outcome.rejects());
    let reasons = reasons.map(|(outcome, nth)| format!("{nth} ({})", Rejection::from(outcome.clone())));
    reasons.collect::<Vec<_>>().join(", ")
}

impl From<OperationOutcome> for Rejection {
    fn from(outcome: OperationOutcome) -> Self {
        match outcome {
            OperationOutcome::Stale { actual } => Self::Stale { actual: Box::new(actual) },
            OperationOutcome::Conflict { actual } => Self::Conflict { actual: actual.map(Box::new) },
            OperationOutcome::Unknown => Self::Unknown,
            OperationOutcome::Retracted => Self::Retracted,
            OperationOutcome::WrongKind(kind) => Self::WrongKind { kind, source_type: None },
            OperationOutcome::LeaseLost { lease } => Self::LeaseLost { lease: lease.map(Box::new) },
            OperationOutcome::Updated { .. } | OperationOutcome::Passed => OTHER,
        }
    }
}

impl From<OperationOutcome> for Error {
    fn from(outcome: OperationOutcome) -> Self {
        Self::Rejected(outcome.into())
    }
}

impl<T> From<PushOutcome<T>> for Error
where
    ConcernState: From<ConcernValue<T>>,
{
    fn from(outcome: PushOutcome<T>) -> Self {
        OperationOutcome::from(outcome).into()
    }
}

/// Converts the outcomes of other writes to errors, for callers that cannot continue with them. From a successful outcome
/// the caller should have taken the value instead.
macro_rules! rejections {
    ($($outcome:ty: { $($pattern:pat => $rejection:expr),* $(,)? })*) => {$(
        impl From<$outcome> for Error {
            #[allow(unreachable_patterns, reason = "outcomes may grow")]
            fn from(outcome: $outcome) -> Self {
                Self::Rejected(match outcome {
                    $($pattern => $rejection,)*
                    _ => OTHER,
                })
            }
        }
    )*};
}

rejections! {
    Created: { Created::AlreadyExists => Rejection::AlreadyExists }
    BranchCreated: {
        BranchCreated::AlreadyExists => Rejection::AlreadyExists,
        BranchCreated::UnknownSource => Rejection::UnknownSource,
        BranchCreated::UnbornSource => Rejection::UnbornSource,
    }
    Published: {
        Published::Conflict { actual } => Rejection::Conflict { actual: actual.map(|actual| Box::new(actual.into())) },
        Published::MissingDependencies(missing) => Rejection::MissingDependencies(missing),
        Published::WrongKind { kind, source_type } => Rejection::WrongKind { kind, source_type },
        Published::Retracted => Rejection::Retracted,
    }
    Retracted: {
        Retracted::HasDependents => Rejection::HasDependents,
        Retracted::Protected => Rejection::Protected,
        Retracted::Unknown => Rejection::Unknown,
    }
    Restored: { Restored::Unknown => Rejection::Unknown }
    Reset: {
        Reset::Unknown => Rejection::Unknown,
        Reset::Retracted => Rejection::Retracted,
        Reset::Protected => Rejection::Protected,
        Reset::WrongKind(kind) => Rejection::WrongKind { kind, source_type: None },
    }
    Purged: {
        Purged::HasDependents => Rejection::HasDependents,
        Purged::Protected => Rejection::Protected,
        Purged::Unknown => Rejection::Unknown,
    }
    Dropped: {
        Dropped::HasDependents => Rejection::HasDependents,
        Dropped::Protected => Rejection::Protected,
        Dropped::NotABranch => Rejection::NotABranch,
        Dropped::Unknown => Rejection::Unknown,
    }
    Protection: { Protection::Unknown => Rejection::Unknown }
    Leased: {
        Leased::Busy(lease) => Rejection::LeaseHeld { lease: Box::new(lease) },
        Leased::Lost { lease } => Rejection::LeaseLost { lease: lease.map(Box::new) },
        Leased::Unknown => Rejection::Unknown,
        Leased::Retracted => Rejection::Retracted,
    }
    Released: {
        Released::Lost { lease } => Rejection::LeaseLost { lease: lease.map(Box::new) },
        Released::Unknown => Rejection::Unknown,
        Released::Retracted => Rejection::Retracted,
    }
    Committed: { Committed::Rejected(outcomes) => Rejection::TransactionRejected(outcomes) }
}

/// Returns a function that converts a backend's own error to one that names the place.
pub(crate) fn cannot_open<E: Into<BoxError>>(place: &Place) -> impl Fn(E) -> Error {
    let place = match place {
        Place::Service(url) => ShownUrl(url).to_string(),
        place => place.to_string(),
    };
    move |source| Error::Connect { place: place.clone(), source: source.into() }
}
