//! The failures of commands, and their exit codes.

use std::{io, process::ExitCode};

use nameservice_client::RequestError;
use nameservice_embedded::{BackupError, OpenError, RestoreError};
use nameservice_http::problem::ProblemDocument;
use nameservice_model::{BoxError, Error as StoreError};
#[cfg(feature = "sync")]
use nameservice_sync::SyncError;
use serde_json::Value;

#[cfg(feature = "serve")]
use crate::serve::error::ServeError;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const CONFLICT: u8 = 3;
const UNKNOWN: u8 = 4;
const NOT_ALLOWED: u8 = 5;
const RETRACTED: u8 = 6;
const UNAVAILABLE: u8 = 7;
const BEYOND_END: u8 = 8;

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The command line, or something that it names, cannot be used.
    #[error("{0}")]
    Usage(String),
    /// The service has rejected the request, with a reason.
    #[error("{}", .0.detail)]
    Rejected(Box<ProblemDocument>),
    /// The expected value of a push does not match.
    #[error("conflict, nothing written: {words}")]
    Conflict {
        /// What was expected, and what is stored.
        words: String,
        /// The answer.
        problem: Box<ProblemDocument>,
    },
    /// A push that came too late.
    #[error("stale: {0} is as new or newer")]
    Stale(String),
    /// The service, or something in front of it, has rejected the request without a problem document.
    #[error("the service answered {status}{}", if message.is_empty() { String::new() } else { format!(": {message}") })]
    Answered {
        /// The status of the answer.
        status: u16,
        /// What it says, as far as it can be read.
        message: String,
    },
    /// The files of a directory or a bucket cannot be used.
    #[error(transparent)]
    Files(BoxError),
    /// Nothing was sent.
    #[error("cannot reach {url}; `nameservice serve` runs a service here, --url names another")]
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
    /// A write was sent, and its answer did not come.
    #[error(
        "no answer from the service: the write may or may not have been applied. Look at the record, or repeat the \
         command with --idempotency-key {idempotency_key}"
    )]
    OutcomeUnknown {
        /// The key under which it was sent.
        idempotency_key: String,
        /// The cause of the missing answer.
        #[source]
        source: BoxError,
    },
    /// This program does not understand the answer.
    #[error("the answer cannot be read: is this the URL of a nameservice?")]
    BadAnswer(#[source] BoxError),
    /// The data of the embedded backend cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The data was not copied.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// A backup was not restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The data cannot be copied to be examined.
    #[error("cannot create a temporary directory")]
    Copy(#[source] io::Error),
    /// The service did not start.
    #[cfg(feature = "serve")]
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The table cannot be used.
    #[error("the table {table} cannot be used{hint}")]
    Table {
        /// Its name.
        table: String,
        /// What to do about it.
        hint: &'static str,
        /// The cause.
        #[source]
        source: StoreError,
    },
    /// A lease was lost while a command ran under it.
    #[error("lost the lease on {address}: {reason}; stopped the command")]
    LeaseLost {
        /// The record.
        address: String,
        /// How the loss was noticed.
        reason: String,
    },
    /// The command that was to run under a lease did not start.
    #[error("`{program}` cannot be run")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The system has failed to listen for signals, or to wait for a command.
    #[error("the command cannot be watched")]
    Watch(#[source] io::Error),
    /// The exit code of a command that ran under a lease.
    #[error("the command has ended with the code {0}")]
    Ended(u8),
    /// The doctor's findings need attention; they have been printed.
    #[error("{0} {are} left", are = if *.0 == 1 { "finding is" } else { "findings are" })]
    Findings(usize),
    /// Two places do not hold the same; the differences have been printed.
    #[error("{0}")]
    Differs(String),
    /// Records could not be copied, compared or followed.
    #[cfg(feature = "sync")]
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// A nameservice cannot be opened or used.
    #[error(transparent)]
    Library(#[from] nameservice::Error),
    /// An OpenID provider has given no token.
    #[error("no token from {url}: {reason}")]
    Provider {
        /// The provider.
        url: String,
        /// What it says, or why it does not answer.
        reason: String,
        /// Whether it has answered.
        is_there: bool,
    },
    /// A position that the feed has not reached.
    #[error("position {position} is beyond the end of the feed, whose oldest position is {oldest}")]
    BeyondEnd {
        /// Where to begin.
        position: u64,
        /// The oldest position that can be read.
        oldest: u64,
    },
    /// The result could not be printed.
    #[error("stdout cannot be written")]
    Output(#[source] io::Error),
}

impl Failure {
    /// The code to exit with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }

    fn code(&self) -> u8 {
        match self {
            // The reader has closed the pipe.
            _ if self.is_closed_pipe() => 0,
            Self::Usage(_) => USAGE,
            Self::Rejected(problem) => code_of_status(problem.status),
            Self::Answered { status, .. } => code_of_status(*status),
            Self::Conflict { .. } | Self::Stale(_) | Self::LeaseLost { .. } | Self::Differs(_) => CONFLICT,
            Self::BeyondEnd { .. } => BEYOND_END,
            Self::Provider { is_there, .. } => {
                if *is_there {
                    NOT_ALLOWED
                } else {
                    UNAVAILABLE
                }
            }
            Self::Ended(code) => *code,
            // Like shells, distinguishes a missing program from a file that cannot be executed.
            Self::Start { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            Self::Start { .. } => 126,
            Self::Unreachable { .. } | Self::NoAnswer(_) | Self::OutcomeUnknown { .. } => UNAVAILABLE,
            Self::Open(OpenError::InUse { .. })
            | Self::Restore(RestoreError::Directory(OpenError::InUse { .. }))
            | Self::Table { source: StoreError::Unavailable { .. }, .. } => UNAVAILABLE,
            #[cfg(feature = "sync")]
            Self::Sync(error) => match error {
                SyncError::Dump { .. } | SyncError::Unsupported(_) | SyncError::File { .. } => USAGE,
                SyncError::Source(error) | SyncError::Target(error) => code_of_backend(error),
                SyncError::Rejected { .. } => CONFLICT,
                _ => FAILED,
            },
            Self::Library(nameservice::Error::Backend(error)) => code_of_backend(error),
            Self::Library(nameservice::Error::Connect { .. }) => UNAVAILABLE,
            #[cfg(feature = "serve")]
            Self::Serve(error) => {
                if error.is_usage() {
                    USAGE
                } else {
                    FAILED
                }
            }
            Self::Open(OpenError::Missing { .. })
            | Self::Backup(BackupError::Exists { .. } | BackupError::Source(OpenError::Missing { .. })) => USAGE,
            Self::Restore(RestoreError::Loss { .. }) => CONFLICT,
            Self::Restore(
                RestoreError::Backup { source: OpenError::Missing { .. }, .. } | RestoreError::Unfinished { .. },
            ) => USAGE,
            Self::BadAnswer(_)
            | Self::Library(_)
            | Self::Open(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Copy(_)
            | Self::Files(_)
            | Self::Table { .. }
            | Self::Watch(_)
            | Self::Findings(_)
            | Self::Output(_) => FAILED,
        }
    }

    /// Returns whether nothing is to be printed: it has already been printed, or the reader is gone.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Ended(_)) || self.is_closed_pipe()
    }

    /// Whether the reader of stdout has closed it, as `head` does.
    fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            #[cfg(feature = "sync")]
            Self::Sync(SyncError::Stream(error)) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        }
    }

    /// Returns the problem document of the service, if there is one.
    pub fn problem(&self) -> Option<&ProblemDocument> {
        match self {
            Self::Rejected(problem) | Self::Conflict { problem, .. } => Some(problem),
            _ => None,
        }
    }

    /// Returns the stored value in the problem: `None` if it has none, null if nothing is stored.
    pub fn actual(&self) -> Option<&Value> {
        self.problem()?.members.get("actual")
    }
}

/// The code of a backend's error: that of the service's answer, if it was caused by one.
fn code_of_backend(error: &StoreError) -> u8 {
    match error {
        StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. } => UNAVAILABLE,
        StoreError::Store { source, .. } => match source.downcast_ref() {
            Some(RequestError::Problem(problem)) => code_of_status(problem.status),
            Some(RequestError::Answered { status, .. }) => code_of_status(*status),
            _ => FAILED,
        },
        _ => FAILED,
    }
}

/// The single table from the service's statuses to exit codes.
fn code_of_status(status: u16) -> u8 {
    match status {
        400 | 405 | 406 | 411..=415 | 431 => USAGE,
        401 | 403 => NOT_ALLOWED,
        404 => UNKNOWN,
        409 | 422 => CONFLICT,
        410 => RETRACTED,
        408 | 429 | 502..=504 => UNAVAILABLE,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use nameservice_http::problem::Kind;

    use super::*;

    #[test]
    fn every_status_has_its_exit_code() {
        for (status, code) in [
            (400, 2),
            (405, 2),
            (413, 2),
            (415, 2),
            (409, 3),
            (422, 3),
            (404, 4),
            (401, 5),
            (403, 5),
            (410, 6),
            (429, 7),
            (502, 7),
            (503, 7),
            (504, 7),
            (500, 1),
            (501, 1),
            (418, 1),
        ] {
            assert_eq!(code_of_status(status), code, "{status}");
        }
    }

    #[test]
    fn no_rejection_of_the_service_is_unexpected_but_its_own_failure() {
        for kind in Kind::ALL {
            let unexpected = code_of_status(kind.status()) == FAILED;
            assert_eq!(unexpected, matches!(kind, Kind::Internal | Kind::Unsupported), "{kind:?}");
        }
    }

    #[test]
    fn failures_of_this_side_have_theirs() {
        let closed = |kind| Failure::Output(io::Error::from(kind));
        for (failure, code) in [
            (Failure::Usage(String::new()), 2),
            (Failure::Stale(String::new()), 3),
            (Failure::Unreachable { url: String::new(), source: "x".into() }, 7),
            (Failure::NoAnswer("x".into()), 7),
            (Failure::OutcomeUnknown { idempotency_key: String::new(), source: "x".into() }, 7),
            (Failure::Answered { status: 429, message: String::new() }, 7),
            (Failure::BadAnswer("x".into()), 1),
            (Failure::LeaseLost { address: String::new(), reason: String::new() }, 3),
            (Failure::Start { program: String::new(), source: io::ErrorKind::NotFound.into() }, 127),
            (Failure::Start { program: String::new(), source: io::ErrorKind::PermissionDenied.into() }, 126),
            (Failure::Ended(42), 42),
            (Failure::Findings(3), 1),
            (closed(io::ErrorKind::BrokenPipe), 0),
            (closed(io::ErrorKind::StorageFull), 1),
        ] {
            assert_eq!(failure.code(), code, "{failure:?}");
        }
    }
}
