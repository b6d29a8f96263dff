use std::convert::Infallible;

use nameservice_model::{
    BoxError, BranchCreated, Committed, Created, Dropped, Error as BackendError, InvalidAddress, InvalidContentId,
    InvalidGlob, InvalidLimit, InvalidPayload, InvalidSearch, Leased, Protection, Published, Purged, PushOutcome,
    Released, Reset, Restored, Retracted, ShownUrl,
};

use crate::{InvalidPlace, Place};

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

/// The reason why a write was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
    #[error("the record is of another kind")]
    WrongKind,
    /// The current value is as new or newer.
    #[error("the current value is as new or newer")]
    Stale,
    /// The expected value does not match.
    #[error("the expected value does not match")]
    Conflict,
    /// The lease is not held.
    #[error("the lease is not held")]
    LeaseLost,
    /// Another holder has a lease of the record.
    #[error("another holder has a lease of the record")]
    LeaseHeld,
    /// Other records depend on it.
    #[error("other records depend on it")]
    HasDependents,
    /// It is protected.
    #[error("the record is protected")]
    Protected,
    /// Dependencies are missing or retracted.
    #[error("dependencies are missing or retracted")]
    MissingDependencies,
    /// The source of a branch has no commit.
    #[error("the source has no commit")]
    UnbornSource,
    /// Operations of a transaction were rejected.
    #[error("operations of the transaction were rejected")]
    TransactionRejected,
    /// An outcome that this version does not know.
    #[error("{0}")]
    Other(&'static str),
}

/// Converts the outcomes of writes to errors, for callers that cannot continue with them. From a successful outcome the caller
/// should have taken the value instead.
macro_rules! rejections {
    ($($outcome:ty: { $($pattern:pat => $rejection:ident),* $(,)? })*) => {$(
        impl From<$outcome> for Error {
            #[allow(unreachable_patterns, reason = "outcomes may grow")]
            fn from(outcome: $outcome) -> Self {
                Self::Rejected(match outcome {
                    $($pattern => Rejection::$rejection,)*
                    _ => Rejection::Other("the outcome is not one that was asked for"),
                })
            }
        }
    )*};
}

impl<T> From<PushOutcome<T>> for Error {
    fn from(outcome: PushOutcome<T>) -> Self {
        Self::Rejected(match outcome {
            PushOutcome::Stale { .. } => Rejection::Stale,
            PushOutcome::Conflict { .. } => Rejection::Conflict,
            PushOutcome::Unknown => Rejection::Unknown,
            PushOutcome::Retracted => Rejection::Retracted,
            PushOutcome::WrongKind(_) => Rejection::WrongKind,
            PushOutcome::LeaseLost { .. } => Rejection::LeaseLost,
            _ => Rejection::Other("the outcome is not one that was asked for"),
        })
    }
}

rejections! {
    Created: { Created::AlreadyExists => AlreadyExists }
    BranchCreated: {
        BranchCreated::AlreadyExists => AlreadyExists,
        BranchCreated::UnknownSource => Unknown,
        BranchCreated::UnbornSource => UnbornSource,
    }
    Published: {
        Published::Conflict { .. } => Conflict,
        Published::MissingDependencies(_) => MissingDependencies,
        Published::WrongKind { .. } => WrongKind,
        Published::Retracted => Retracted,
    }
    Retracted: {
        Retracted::HasDependents => HasDependents,
        Retracted::Protected => Protected,
        Retracted::Unknown => Unknown,
    }
    Restored: { Restored::Unknown => Unknown }
    Reset: {
        Reset::Unknown => Unknown,
        Reset::Retracted => Retracted,
        Reset::Protected => Protected,
        Reset::WrongKind(_) => WrongKind,
    }
    Purged: {
        Purged::HasDependents => HasDependents,
        Purged::Protected => Protected,
        Purged::Unknown => Unknown,
    }
    Dropped: {
        Dropped::HasDependents => HasDependents,
        Dropped::Protected => Protected,
        Dropped::Unknown => Unknown,
    }
    Protection: { Protection::Unknown => Unknown }
    Leased: {
        Leased::Busy(_) => LeaseHeld,
        Leased::Lost { .. } => LeaseLost,
        Leased::Unknown => Unknown,
        Leased::Retracted => Retracted,
    }
    Released: { Released::Lost { .. } => LeaseLost, Released::Unknown => Unknown, Released::Retracted => Retracted }
    Committed: { Committed::Rejected(_) => TransactionRejected }
}

/// Returns a function that converts a backend's own error to one that names the place.
pub(crate) fn cannot_open<E: Into<BoxError>>(place: &Place) -> impl Fn(E) -> Error {
    let place = match place {
        Place::Service(url) => ShownUrl(url).to_string(),
        place => place.to_string(),
    };
    move |source| Error::Connect { place: place.clone(), source: source.into() }
}
