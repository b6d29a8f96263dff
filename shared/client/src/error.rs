use nameservice_api::{ProblemDocument, ProblemKind};
use nameservice_model::{BoxError, Error};
use serde::de::DeserializeOwned;

/// The error of one request, as the caller of [`Client::send`](crate::Client::send) sees it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request cannot be sent.
    #[error("{0}")]
    Invalid(String),
    /// The service has rejected the request or failed, and gave the reason.
    #[error("{}", .0.detail)]
    Problem(Box<ProblemDocument>),
    /// Something in front of the service has answered.
    #[error("the service answered {status}{}", if message.is_empty() { String::new() } else { format!(": {message}") })]
    Answered {
        /// The status of the answer.
        status: u16,
        /// What it says, as far as it can be read.
        message: String,
    },
    /// Nothing was sent.
    #[error("cannot reach {url}")]
    Unreachable {
        /// What was tried.
        url: String,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// A read was sent, and its answer did not come.
    #[error("no answer from the service")]
    NoAnswer(#[source] BoxError),
    /// A write was sent, and its answer did not come: it may or may not have been applied.
    #[error("no answer from the service: the write may or may not have been applied")]
    OutcomeUnknown {
        /// The key under which it was sent, and can be repeated.
        idempotency_key: String,
        /// The cause of the missing answer.
        #[source]
        source: BoxError,
    },
    /// The answer is not one of this service.
    #[error("the answer cannot be read")]
    BadAnswer(#[source] BoxError),
}

impl RequestError {
    /// Returns the problem that the service named, if this version knows it.
    pub fn problem(&self) -> Option<ProblemKind> {
        match self {
            Self::Problem(problem) => problem.kind(),
            _ => None,
        }
    }

    /// Returns the status of the answer, if there was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            Self::Answered { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether repeating the request a moment later may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoAnswer(_) | Self::OutcomeUnknown { .. } => true,
            Self::Problem(_) | Self::Answered { .. } => matches!(self.status(), Some(429 | 502..=504)),
            Self::Invalid(_) | Self::BadAnswer(_) => false,
        }
    }

    /// Whether the request, a write, may have been applied.
    pub fn may_be_applied(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. }) || self.problem() == Some(ProblemKind::OutcomeUnknown)
    }

    /// Whether the service has decided on the write after it looked for its key: had an earlier attempt been applied, it
    /// would have answered as at first. What is answered before (a token, the size of a body) proves nothing about that attempt.
    /// Neither does a record that is gone, retracted, or of another kind: the one that remembered the attempt may have been
    /// purged since.
    pub(crate) fn is_decision(&self) -> bool {
        match self {
            Self::Problem(problem) => {
                matches!(problem.status, 409 | 410 | 422)
                    && !matches!(problem.kind(), Some(ProblemKind::Retracted | ProblemKind::WrongKind))
            }
            _ => false,
        }
    }

    /// Returns the problem that the last attempt was answered with, also if an earlier one may have been applied.
    pub(crate) fn last_problem(&self) -> Option<ProblemKind> {
        match self {
            Self::OutcomeUnknown { source, .. } => source.downcast_ref::<Self>().and_then(Self::problem),
            other => other.problem(),
        }
    }

    /// Whether the key was used for another request before.
    fn is_key_reused(&self) -> bool {
        matches!(self, Self::Problem(problem) if problem.type_uri.ends_with("/idempotency-key-reused"))
    }

    /// Returns a member of the problem document; `None` if it is absent, null, or not a `T`.
    pub(crate) fn member<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        match self {
            Self::Problem(problem) => problem.members.get(name).and_then(|value| T::deserialize(value).ok()),
            _ => None,
        }
    }

    /// Converts this error to that of an operation of the model.
    pub fn into_model(self, operation: &'static str) -> Error {
        let status = self.status();
        match self.problem() {
            _ if self.may_be_applied() => Error::OutcomeUnknown { operation, source: Some(self.into()) },
            Some(ProblemKind::PayloadTooLarge) => Error::TooLarge,
            Some(ProblemKind::LimitReached) => {
                let counter = self.member::<String>("counter").unwrap_or_default();
                let known = ["status_v", "config_v", "rev", "lease_token"].into_iter().find(|name| *name == counter);
                Error::LimitReached { counter: known.unwrap_or("a counter") }
            }
            Some(ProblemKind::NotFluree) => match (self.member("field"), self.member("id"), self.member("expected")) {
                (Some(field), Some(id), Some(expected)) => Error::NotFluree { field, id, expected },
                _ => match (self.member("field"), self.member("address"), self.member("reason")) {
                    (Some(field), Some(address), Some(reason)) => Error::NotFlureeName { field, address, reason },
                    _ => Error::Store { operation, source: self.into() },
                },
            },
            Some(ProblemKind::Unsupported) => match self.member("capability") {
                Some(capability) => Error::Unsupported { capability, reason: self.to_string() },
                None => Error::Store { operation, source: self.into() },
            },
            _ if self.is_key_reused() => Error::IdempotencyKeyReused { operation },
            _ if matches!(self, Self::Unreachable { .. } | Self::NoAnswer(_))
                || matches!(status, Some(429 | 502..=504)) =>
            {
                Error::Unavailable { operation, source: Some(self.into()) }
            }
            _ => Error::Store { operation, source: self.into() },
        }
    }
}
