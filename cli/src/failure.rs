//! The failures of commands, and their exit codes.

use std::{io, process::ExitCode};

use nameservice_client::RequestError;
use nameservice_embedded::{BackupError, OpenError, RestoreError};
use nameservice_http::problem::{Kind, ProblemDocument};
use nameservice_model::{BoxError, Error as StoreError};
#[cfg(feature = "sync")]
use nameservice_sync::SyncError;
use serde_json::Value;

use crate::exit::Exit;
#[cfg(feature = "serve")]
use crate::serve::error::ServeError;

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
    /// `lease run` has failed itself: its codes are not those that its command may have.
    #[error(transparent)]
    LeaseRun(Box<Self>),
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
    #[error("position {after} is beyond the end of the feed, which is at position {end}: continue with --after {end}")]
    BeyondEnd {
        /// The position after which to begin.
        after: u64,
        /// The last position of the feed.
        end: u64,
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
            Self::Ended(code) => *code,
            other => other.exit().code(),
        }
    }

    fn exit(&self) -> Exit {
        match self {
            // The reader has closed the pipe.
            _ if self.is_closed_pipe() => Exit::Done,
            Self::Usage(_) => Exit::Usage,
            Self::Rejected(problem) => exit_of_problem(problem),
            Self::Answered { status, .. } => exit_of_status(*status),
            Self::Conflict { .. } | Self::Differs(_) => Exit::Conflict,
            Self::Stale(_) => Exit::Stale,
            Self::BeyondEnd { .. } => Exit::BeyondEnd,
            Self::Provider { is_there: true, .. } => Exit::NotAllowed,
            Self::Provider { is_there: false, .. } => Exit::Unavailable,
            Self::LeaseLost { .. } => Exit::LeaseLost,
            Self::LeaseRun(failure) => match failure.problem().and_then(ProblemDocument::kind) {
                Some(Kind::LeaseHeld) => Exit::LeaseHeld,
                _ => Exit::LeaseRun,
            },
            // Like shells, distinguishes a missing program from a file that cannot be executed.
            Self::Start { source, .. } if source.kind() == io::ErrorKind::NotFound => Exit::NotFound,
            Self::Start { .. } => Exit::NotExecutable,
            Self::Unreachable { .. } | Self::NoAnswer(_) => Exit::Unavailable,
            Self::OutcomeUnknown { .. } => Exit::OutcomeUnknown,
            Self::Open(error) | Self::Restore(RestoreError::Directory(error)) if error.may_pass() => Exit::Unavailable,
            Self::Table { source: StoreError::Unavailable { .. }, .. } => Exit::Unavailable,
            #[cfg(feature = "sync")]
            Self::Sync(error) => match error {
                SyncError::Dump { .. } | SyncError::Unsupported(_) | SyncError::File { .. } => Exit::Usage,
                SyncError::Source(error) | SyncError::Target(error) => exit_of_backend(error),
                SyncError::Rejected { .. } => Exit::Conflict,
                _ => Exit::Failed,
            },
            Self::Library(nameservice::Error::Backend(error)) => exit_of_backend(error),
            Self::Library(nameservice::Error::Connect { .. }) => Exit::Unavailable,
            #[cfg(feature = "serve")]
            Self::Serve(error) if error.is_usage() => Exit::Usage,
            #[cfg(feature = "serve")]
            Self::Serve(error) if error.may_pass() => Exit::Unavailable,
            #[cfg(feature = "serve")]
            Self::Serve(_) => Exit::Failed,
            Self::Open(OpenError::Missing { .. })
            | Self::Backup(BackupError::Exists { .. } | BackupError::Source(OpenError::Missing { .. })) => Exit::Usage,
            Self::Restore(RestoreError::Loss { .. }) => Exit::Conflict,
            Self::Restore(
                RestoreError::Backup { source: OpenError::Missing { .. }, .. } | RestoreError::Unfinished { .. },
            ) => Exit::Usage,
            Self::Ended(_)
            | Self::BadAnswer(_)
            | Self::Library(_)
            | Self::Open(_)
            | Self::Backup(_)
            | Self::Restore(_)
            | Self::Copy(_)
            | Self::Files(_)
            | Self::Table { .. }
            | Self::Watch(_)
            | Self::Findings(_)
            | Self::Output(_) => Exit::Failed,
        }
    }

    /// Returns the failure of `lease run` for one of its parts. A mistake on its command line, and the end of its command, stay what
    /// they are.
    pub(crate) fn of_lease_run(self) -> Self {
        match self {
            Self::Usage(_) | Self::Ended(_) | Self::Start { .. } | Self::LeaseLost { .. } => self,
            failure => Self::LeaseRun(Box::new(failure)),
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
            Self::LeaseRun(failure) => failure.problem(),
            _ => None,
        }
    }

    /// Returns the stored value in the problem: `None` if it has none, null if nothing is stored.
    pub fn actual(&self) -> Option<&Value> {
        self.problem()?.members.get("actual")
    }
}

/// Returns what a backend's error exits with: as the service's answer, if it was caused by one.
fn exit_of_backend(error: &StoreError) -> Exit {
    match error {
        StoreError::Unavailable { .. } => Exit::Unavailable,
        StoreError::OutcomeUnknown { .. } => Exit::OutcomeUnknown,
        StoreError::Store { source, .. } => match source.downcast_ref() {
            Some(RequestError::Problem(problem)) => exit_of_problem(problem),
            Some(RequestError::Answered { status, .. }) => exit_of_status(*status),
            _ => Exit::Failed,
        },
        _ => Exit::Failed,
    }
}

/// Returns what a rejection of the service exits with.
fn exit_of_problem(problem: &ProblemDocument) -> Exit {
    match problem.kind() {
        Some(Kind::OutcomeUnknown) => Exit::OutcomeUnknown,
        Some(Kind::PositionAhead) => Exit::BeyondEnd,
        _ => exit_of_status(problem.status),
    }
}

/// The single table from the service's statuses to exit codes.
fn exit_of_status(status: u16) -> Exit {
    match status {
        400 | 405 | 406 | 411..=415 | 431 => Exit::Usage,
        401 | 403 => Exit::NotAllowed,
        404 => Exit::Unknown,
        409 | 422 => Exit::Conflict,
        410 => Exit::Retracted,
        408 | 429 | 502..=504 => Exit::Unavailable,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
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
            assert_eq!(exit_of_status(status).code(), code, "{status}");
        }
    }

    #[test]
    fn no_rejection_of_the_service_is_unexpected_but_its_own_failure() {
        for kind in Kind::ALL {
            let unexpected = exit_of_status(kind.status()) == Exit::Failed;
            assert_eq!(unexpected, matches!(kind, Kind::Internal | Kind::Unsupported), "{kind:?}");
        }
    }

    #[test]
    fn failures_of_this_side_have_theirs() {
        let closed = |kind| Failure::Output(io::Error::from(kind));
        let opened = |kind| Failure::Open(OpenError::Io { path: "data".into(), source: io::Error::from(kind) });
        for (failure, code) in [
            (Failure::Usage(String::new()), 2),
            (Failure::Stale(String::new()), 9),
            (Failure::Unreachable { url: String::new(), source: "x".into() }, 7),
            (Failure::NoAnswer("x".into()), 7),
            (Failure::OutcomeUnknown { idempotency_key: String::new(), source: "x".into() }, 10),
            (Failure::Answered { status: 429, message: String::new() }, 7),
            (Failure::BadAnswer("x".into()), 1),
            (Failure::LeaseLost { address: String::new(), reason: String::new() }, 124),
            (opened(io::ErrorKind::ReadOnlyFilesystem), 7),
            (opened(io::ErrorKind::PermissionDenied), 1),
            (Failure::BadAnswer("x".into()).of_lease_run(), 125),
            (Failure::Usage(String::new()).of_lease_run(), 2),
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
