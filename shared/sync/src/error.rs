use std::path::PathBuf;

use nameservice_model::{BoxError, Error as BackendError};

/// The reason why a copy, a comparison or a replica could not continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// The source cannot be read.
    #[error("the source cannot be read")]
    Source(#[source] BackendError),
    /// The target cannot be read or written.
    #[error("the target cannot be used")]
    Target(#[source] BackendError),
    /// The target takes nothing: it rejected all of the first records.
    #[error("the target accepted none of the first {count} records; the last reason: {reason}")]
    Rejected {
        /// How many.
        count: u64,
        /// The reason why the last one was rejected.
        reason: String,
    },
    /// A dump is invalid: it was cut off or edited, or the file is not a dump.
    #[error("{place} is not a complete dump: {reason}")]
    Dump {
        /// Which.
        place: String,
        /// What is wrong.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Standard input or output cannot be used.
    #[error("cannot use the stream")]
    Stream(#[source] std::io::Error),
    /// The request is not possible with these places.
    #[error("{0}")]
    Unsupported(String),
    /// Something else.
    #[error(transparent)]
    Other(BoxError),
}

/// The result of everything in this crate.
pub type Result<T, E = SyncError> = std::result::Result<T, E>;
