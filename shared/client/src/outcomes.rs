//! Problem documents as outcomes of the model.

use nameservice_api::{InvalidAnswer, ProblemKind, leases};
use nameservice_model::{Address, ConcernValue, Error, Lease, PushOutcome, RecordKind};
use serde::de::DeserializeOwned;

use crate::RequestError;

impl RequestError {
    /// Returns the lease that a problem shows.
    pub(crate) fn lease(&self) -> Option<Lease> {
        self.member::<leases::Lease>("lease").map(Lease::from)
    }

    /// Returns the kind of the record, if it is the wrong one.
    pub(crate) fn record_kind(&self) -> Option<RecordKind> {
        self.member::<RecordKind>("kind")
    }

    /// Returns the addresses that a problem lists.
    pub(crate) fn addresses(&self, member: &str) -> Vec<Address> {
        let texts: Vec<String> = self.member(member).unwrap_or_default();
        texts.iter().filter_map(|text| Address::parse(text).ok()).collect()
    }

    /// Returns the current value that a problem shows.
    pub(crate) fn actual<W, T>(&self) -> Result<Option<ConcernValue<T>>, InvalidAnswer>
    where
        W: DeserializeOwned,
        ConcernValue<T>: TryFrom<W, Error = InvalidAnswer>,
    {
        self.member::<W>("actual").map(ConcernValue::try_from).transpose()
    }

    /// Converts the rejection of a push to its outcome, or to an error.
    pub(crate) fn into_push_outcome<W, T>(self, operation: &'static str) -> Result<PushOutcome<T>, Error>
    where
        W: DeserializeOwned,
        ConcernValue<T>: TryFrom<W, Error = InvalidAnswer>,
    {
        Ok(match self.problem() {
            Some(ProblemKind::Conflict) => {
                PushOutcome::Conflict { actual: self.actual::<W, T>().map_err(invalid(operation))? }
            }
            Some(ProblemKind::UnknownRecord) => PushOutcome::Unknown,
            Some(ProblemKind::Retracted) => PushOutcome::Retracted,
            // Ledgers have every concern and accept pushes of it, so it can only be a graph source.
            Some(ProblemKind::WrongKind) => {
                PushOutcome::WrongKind(self.record_kind().unwrap_or(RecordKind::GraphSource))
            }
            Some(ProblemKind::LeaseLost) => PushOutcome::LeaseLost { lease: self.lease() },
            _ => return Err(self.into_model(operation)),
        })
    }
}

/// The error for an answer that cannot be read.
pub(crate) fn invalid(operation: &'static str) -> impl Fn(InvalidAnswer) -> Error {
    move |error| Error::Store { operation, source: error.into() }
}

/// The error for a rejection after an attempt that may have been applied and since superseded.
pub(crate) fn unknown(operation: &'static str) -> Error {
    Error::OutcomeUnknown { operation, source: None }
}
