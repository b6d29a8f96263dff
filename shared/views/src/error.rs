use nameservice_dynamo::BoxError;

use crate::{BatchFailure, RowKey};

/// The result of the operations of a view.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The source of a failed operation: the error of the request.
pub type Source = nameservice_dynamo::Error;

/// A failed operation, with its table, its row and the source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Rows were not read.
    #[error("`{id}` was not loaded from {table}")]
    NotLoaded {
        /// The table.
        table: String,
        /// The key, or the index and its key.
        id: String,
        /// The cause.
        #[source]
        source: Source,
    },
    /// A row with this key exists. It was not changed.
    #[error("there is a row `{key}` in {table} already")]
    AlreadyExists {
        /// The table.
        table: String,
        /// The key.
        key: RowKey,
    },
    /// A row was not saved.
    #[error("`{id}` was not saved to {table}")]
    NotSaved {
        /// The table.
        table: String,
        /// The key, or what the row is otherwise.
        id: String,
        /// The cause.
        #[source]
        source: Source,
    },
    /// A counter was not changed.
    #[error("the counter `{field}` of `{id}` was not incremented in {table}")]
    NotCounted {
        /// The table.
        table: String,
        /// The key of the row.
        id: String,
        /// The counter.
        field: String,
        /// The cause.
        #[source]
        source: Source,
    },
    /// A row was not deleted.
    #[error("`{id}` was not deleted from {table}")]
    NotDeleted {
        /// The table.
        table: String,
        /// The key.
        id: String,
        /// The cause.
        #[source]
        source: Source,
    },
    /// A transaction was not applied.
    #[error("a transaction on {table} failed")]
    NotWritten {
        /// The table.
        table: String,
        /// The cause.
        #[source]
        source: Source,
    },
    /// Some rows of a batch were not written; the others were.
    #[error(transparent)]
    BatchNotFullyWritten(#[from] BatchFailure),
    /// The table could not be created or described.
    #[error("table {table} is not ready")]
    TableNotReady {
        /// The table.
        table: String,
        /// The cause.
        #[source]
        source: Source,
    },
}

impl Error {
    fn sources(&self) -> Vec<&Source> {
        match self {
            Self::NotLoaded { source, .. }
            | Self::NotSaved { source, .. }
            | Self::NotCounted { source, .. }
            | Self::NotDeleted { source, .. }
            | Self::NotWritten { source, .. }
            | Self::TableNotReady { source, .. } => vec![source],
            Self::BatchNotFullyWritten(failure) => failure.failed.iter().map(|row| row.source.as_ref()).collect(),
            Self::AlreadyExists { .. } => Vec::new(),
        }
    }

    /// Returns whether a write was sent and its reply was lost: read to find out whether it was applied.
    pub fn is_outcome_unknown(&self) -> bool {
        self.sources().iter().any(|source| matches!(source, Source::OutcomeUnknown { .. }))
    }

    /// Returns whether the table was busy or did not answer in time and nothing was written (of the rows that a batch
    /// failure names): the same call may succeed later.
    pub fn is_unavailable(&self) -> bool {
        let sources = self.sources();
        !sources.is_empty() && sources.iter().all(|source| matches!(source, Source::Unavailable { .. }))
    }

    /// Returns whether a row does not fit an item of DynamoDB (400 KB).
    pub fn is_too_large(&self) -> bool {
        self.sources().iter().any(|source| matches!(source, Source::TooLarge))
    }
}

/// Creates an error that no retry resolves.
pub(crate) fn broken(operation: &'static str, source: impl Into<BoxError>) -> Source {
    Source::Failed { operation, source: source.into() }
}

/// Converts to an error of the nameservice, for those of its parts that are built on views.
impl From<Error> for nameservice_model::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::NotLoaded { source, .. }
            | Error::NotSaved { source, .. }
            | Error::NotCounted { source, .. }
            | Error::NotDeleted { source, .. }
            | Error::NotWritten { source, .. }
            | Error::TableNotReady { source, .. } => match source {
                Source::OutcomeUnknown { operation, source } => Self::OutcomeUnknown { operation, source },
                Source::Unavailable { operation, source } => Self::Unavailable { operation, source },
                Source::TooLarge => Self::TooLarge,
                Source::Failed { operation, source } => Self::Store { operation, source },
                other => Self::Store { operation: "use a table", source: other.into() },
            },
            Error::AlreadyExists { .. } | Error::BatchNotFullyWritten(_) => {
                let operation = "write rows";
                match () {
                    () if error.is_outcome_unknown() => Self::OutcomeUnknown { operation, source: Some(error.into()) },
                    () if error.is_unavailable() => Self::Unavailable { operation, source: Some(error.into()) },
                    () => Self::Store { operation, source: error.into() },
                }
            }
        }
    }
}
