/// An error of any kind, kept as the source of ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The result of every operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of an operation on a table. A condition that does not hold is an [`Outcome`], not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A write was sent and its reply was lost: it may or may not have been applied.
    #[error("the outcome of {operation} is unknown: its reply was lost")]
    OutcomeUnknown {
        /// What was attempted.
        operation: &'static str,
        /// The last failure of the transport or the engine.
        #[source]
        source: Option<BoxError>,
    },
    /// The table did not answer in time, or is overloaded. Nothing was written.
    #[error("the table is not available for {operation}")]
    Unavailable {
        /// What was attempted.
        operation: &'static str,
        /// The last failure of the transport or the engine.
        #[source]
        source: Option<BoxError>,
    },
    /// An item does not fit DynamoDB's 400 KB.
    #[error("the item is too large for the table")]
    TooLarge,
    /// The request was rejected, or its answer cannot be understood: a missing table, missing permissions, a bug.
    #[error("{operation} failed")]
    Failed {
        /// What was attempted.
        operation: &'static str,
        /// The reason why it failed.
        #[source]
        source: BoxError,
    },
}

/// The outcome of a conditional write.
#[derive(Debug)]
#[must_use]
pub enum Outcome<T, R> {
    /// It was applied.
    Applied(T),
    /// A condition did not hold: nothing was written.
    Rejected(R),
}

impl<T, R> Outcome<T, R> {
    /// Returns it as a result, whose error is the rejection.
    pub fn into_result(self) -> Result<T, R> {
        match self {
            Self::Applied(applied) => Ok(applied),
            Self::Rejected(rejected) => Err(rejected),
        }
    }
}
