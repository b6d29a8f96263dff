//! The results of mutations.

use async_graphql::{Enum, Json, Result, SimpleObject, Union};
use nameservice_api as api;
use nameservice_http::Problem;
use nameservice_model::{ConcernValue, PushOutcome, RecordKind};
use serde_json::Value;

use crate::{
    errors::problem,
    objects::{Config, Head, Index, Record, Status},
    scalars::Kind,
};

/// Whether a push wrote the value.
#[derive(Enum, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushStatus {
    /// This call wrote the new value.
    Updated,
    /// The new value was stored before this call.
    Replayed,
}

/// There is no such record, or none that the caller may see.
#[derive(SimpleObject)]
pub(crate) struct UnknownRecord {
    /// Its address.
    pub(super) address: String,
}

/// The record is retracted.
#[derive(SimpleObject)]
pub(crate) struct RetractedRecord {
    /// Its address.
    pub(super) address: String,
}

/// The record is of another kind.
#[derive(SimpleObject)]
pub(crate) struct WrongKind {
    /// Its address.
    pub(super) address: String,
    /// Its kind.
    pub(super) kind: Kind,
}

/// The lease of the push is not held: nothing was written.
#[derive(SimpleObject)]
pub(crate) struct LeaseLost {
    /// The current lease, if there is one.
    pub(super) lease: Option<Json<Value>>,
}

pub(super) fn kind(kind: RecordKind) -> Kind {
    kind.into()
}

/// The result of pushes of a concern: a union of the possible outcomes.
macro_rules! pushes {
    ($result:ident $pushed:ident $stale:ident $conflict:ident $value:ident $api:ty) => {
        /// The value is stored.
        #[derive(SimpleObject)]
        pub(crate) struct $pushed {
            /// Whether this call wrote it.
            pub(super) status: PushStatus,
            /// The value that is stored.
            pub(super) value: $value,
        }

        /// Certainly not written: the stored value is as new or newer.
        #[derive(SimpleObject)]
        pub(crate) struct $stale {
            /// The value that is stored.
            pub(super) actual: $value,
        }

        /// Certainly not written: the stored value is not the expected one, or the new value does not advance it.
        #[derive(SimpleObject)]
        pub(crate) struct $conflict {
            /// The value that is stored; null if there is no record.
            pub(super) actual: Option<$value>,
        }

        /// The outcome of a push.
        #[derive(Union)]
        pub(crate) enum $result {
            /// It is stored.
            Pushed($pushed),
            /// It is older than what is stored.
            Stale($stale),
            /// The expected value does not match the stored one.
            Conflict($conflict),
            /// There is no record.
            Unknown(UnknownRecord),
            /// The record is retracted.
            Retracted(RetractedRecord),
            /// The record has no such concern.
            WrongKind(WrongKind),
            /// The lease is not held.
            LeaseLost(LeaseLost),
        }

        impl $result {
            pub(super) fn of<T>(address: &str, outcome: PushOutcome<T>) -> Result<Self>
            where
                $api: From<ConcernValue<T>>,
            {
                let value = |value: ConcernValue<T>| $value::from(<$api>::from(value));
                let address = address.to_owned();
                Ok(match outcome {
                    PushOutcome::Updated { value: stored, replayed } => {
                        let status = if replayed { PushStatus::Replayed } else { PushStatus::Updated };
                        Self::Pushed($pushed { status, value: value(stored) })
                    }
                    PushOutcome::Stale { actual } => Self::Stale($stale { actual: value(actual) }),
                    PushOutcome::Conflict { actual } => Self::Conflict($conflict { actual: actual.map(value) }),
                    PushOutcome::Unknown => Self::Unknown(UnknownRecord { address }),
                    PushOutcome::Retracted => Self::Retracted(RetractedRecord { address }),
                    PushOutcome::WrongKind(found) => Self::WrongKind(WrongKind { address, kind: kind(found) }),
                    PushOutcome::LeaseLost { lease } => {
                        let lease = lease.and_then(|lease| serde_json::to_value(api::leases::Lease::from(lease)).ok());
                        Self::LeaseLost(LeaseLost { lease: lease.map(Json) })
                    }
                    _ => return Err(problem(Problem::unknown_outcome())),
                })
            }
        }
    };
}

pushes! { PushHeadResult HeadPushed HeadStale HeadConflict Head api::Head }
pushes! { PushIndexResult IndexPushed IndexStale IndexConflict Index api::Index }
pushes! { PushStatusResult StatusPushed StatusStale StatusConflict Status api::Status }
pushes! { PushConfigResult ConfigPushed ConfigStale ConfigConflict Config api::Config }

/// A record as a write has left it.
#[derive(SimpleObject)]
pub(crate) struct Written {
    /// The record.
    pub(super) record: Record,
    /// Whether this call changed anything.
    pub(super) changed: bool,
}

/// A record of the address exists, live or retracted.
#[derive(SimpleObject)]
pub(crate) struct AlreadyExists {
    /// Its address.
    pub(super) address: String,
}

/// Other records depend on this one: these, as far as the caller may see them.
#[derive(SimpleObject)]
pub(crate) struct HasDependents {
    /// Their addresses.
    pub(super) dependents: Vec<String>,
}

/// The record is protected: an administrator can remove the protection.
#[derive(SimpleObject)]
pub(crate) struct ProtectedRecord {
    /// Its address.
    pub(super) address: String,
}

/// Dependencies that do not exist, or are retracted.
#[derive(SimpleObject)]
pub(crate) struct MissingDependencies {
    /// Their addresses.
    pub(super) missing: Vec<String>,
}

/// The outcome of the creation of a ledger.
#[derive(Union)]
pub(crate) enum CreateLedgerResult {
    /// It was created.
    Written(Box<Written>),
    /// The address is taken.
    AlreadyExists(AlreadyExists),
}

/// The outcome of the publication of a graph source.
#[derive(Union)]
pub(crate) enum PublishGraphSourceResult {
    /// It is published.
    Written(Box<Written>),
    /// The expected version does not match the stored config.
    Conflict(ConfigConflict),
    /// It depends on records that do not exist.
    Missing(MissingDependencies),
    /// The address is that of a ledger, or of a graph source of another type.
    WrongKind(WrongKind),
    /// The graph source is retracted.
    Retracted(RetractedRecord),
}

/// The outcome of a retraction or restoration.
#[derive(Union)]
pub(crate) enum RetractionResult {
    /// The record is in the requested state.
    Written(Box<Written>),
    /// Other records depend on it.
    HasDependents(HasDependents),
    /// It is protected.
    Protected(ProtectedRecord),
    /// There is no record.
    Unknown(UnknownRecord),
}
