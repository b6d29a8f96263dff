use std::fmt;

use nameservice_model::{InvalidPayload, InvalidReason};

use crate::ProblemKind;

/// What a request got wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidKind {
    /// A member of the body does not hold an address.
    Address,
    /// A member of the body does not hold a content id.
    ContentId,
    /// A member of the body, or the body as a whole, is invalid.
    Body,
    /// A query parameter is invalid.
    Parameter,
}

impl InvalidKind {
    /// The problem that the service answers with.
    pub const fn problem(self) -> ProblemKind {
        match self {
            Self::Address => ProblemKind::InvalidAddress,
            Self::ContentId => ProblemKind::InvalidContentId,
            Self::Body => ProblemKind::InvalidBody,
            Self::Parameter => ProblemKind::InvalidParameter,
        }
    }
}

/// A request that breaks a rule, and the field that breaks it. The empty field means the body as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// What is wrong.
    pub kind: InvalidKind,
    /// Where: `new.id`, `operations[3].address`.
    pub field: String,
    /// The reason.
    pub reason: String,
}

impl std::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.reason),
            field => write!(f, "{field}: {}", self.reason),
        }
    }
}

impl From<InvalidPayload> for Invalid {
    fn from(error: InvalidPayload) -> Self {
        let kind = match error.reason {
            InvalidReason::ContentId(_) => InvalidKind::ContentId,
            InvalidReason::Address(_) => InvalidKind::Address,
            _ => InvalidKind::Body,
        };
        Self::new(kind, &error.path, error.reason)
    }
}

impl Invalid {
    fn new(kind: InvalidKind, field: &str, reason: impl ToString) -> Self {
        Self { kind, field: field.to_owned(), reason: reason.to_string() }
    }

    /// A member of the body does not hold an address.
    pub fn address(field: &str, reason: impl ToString) -> Self {
        Self::new(InvalidKind::Address, field, reason)
    }

    /// A member of the body does not hold a content id.
    pub fn content_id(field: &str, reason: impl ToString) -> Self {
        Self::new(InvalidKind::ContentId, field, reason)
    }

    /// A member of the body is invalid.
    pub fn body(field: &str, reason: impl ToString) -> Self {
        Self::new(InvalidKind::Body, field, reason)
    }

    /// A query parameter is invalid.
    pub fn parameter(name: &str, reason: impl ToString) -> Self {
        Self::new(InvalidKind::Parameter, name, reason)
    }

    /// Returns the same error for a part of the body, whose name is put before that of the field.
    pub fn within(mut self, at: &str) -> Self {
        self.field = match self.field.as_str() {
            "" => at.to_owned(),
            field => format!("{at}.{field}"),
        };
        self
    }
}
