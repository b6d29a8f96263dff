use crate::{Address, Capability, ContentId, FlureeContent};

/// An error of any kind, kept as the source of ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The result of every operation of the nameservice.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of an operation. Conflicts, stale writes and unknown records are outcomes, not errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A write was sent, its answer was lost, and the current value does not show whether it was applied.
    #[error("the outcome of {operation} is unknown: its answer was lost, and the current value does not show it")]
    OutcomeUnknown {
        /// What was attempted.
        operation: &'static str,
        /// The last failure of the transport or the engine.
        #[source]
        source: Option<BoxError>,
    },
    /// The store did not answer in time, or is overloaded. Nothing was written.
    #[error("the store is not available for {operation}")]
    Unavailable {
        /// What was attempted.
        operation: &'static str,
        /// The last failure of the transport or the engine.
        #[source]
        source: Option<BoxError>,
    },
    /// The idempotency key was used for another request before. Nothing was written.
    #[error("the idempotency key of {operation} was used for another request")]
    IdempotencyKeyReused {
        /// What was attempted.
        operation: &'static str,
    },
    /// A counter is at its maximum, [`MAX_WATERMARK`](crate::MAX_WATERMARK), and cannot grow. Nothing was written.
    #[error("{counter} is at its maximum and cannot grow")]
    LimitReached {
        /// The attribute: `status_v`, `config_v`, `rev`, `lease_token`, `branches`, `dependents`.
        counter: &'static str,
    },
    /// The backend cannot do this. Nothing was written.
    #[error("this backend does not support {capability}: {reason}")]
    Unsupported {
        /// The missing capability.
        capability: Capability,
        /// What was asked for, and what to do instead.
        reason: String,
    },
    /// This is a replica, whose writes are for its upstream. Nothing was written.
    #[error("this is a replica: {operation} at its upstream")]
    ReadOnly {
        /// What was attempted.
        operation: &'static str,
        /// The records that the write is about.
        addresses: Vec<Address>,
    },
    /// The place is shared with Fluree, whose engine cannot read this id. Nothing was written.
    #[error("{field}: `{id}` is not the id of {}, whose engine shares this place", .expected.describe())]
    NotFluree {
        /// The member of the write that has the id.
        field: String,
        /// The id.
        id: ContentId,
        /// What it would have to name.
        expected: FlureeContent,
    },
    /// The place is shared with Fluree, which creates no ledger of this name. Nothing was written.
    #[error("{field}: Fluree, which shares this place, creates no ledger `{address}`: {reason}")]
    NotFlureeName {
        /// The member of the write that has the name.
        field: String,
        /// The ledger that would have been created.
        address: Address,
        /// Why Fluree creates none.
        reason: String,
    },
    /// The value does not fit a DynamoDB item (400 KB).
    #[error("the value is too large for one item of the store")]
    TooLarge,
    /// The store rejected the request, or its answer cannot be understood: a missing table, missing permissions, a bug.
    #[error("{operation} failed")]
    Store {
        /// What was attempted.
        operation: &'static str,
        /// The reason why it failed.
        #[source]
        source: BoxError,
    },
}

/// Returns an error and all its sources, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        // Some errors repeat their source.
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = error.source();
    }
    line
}
