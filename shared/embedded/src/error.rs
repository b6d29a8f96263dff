use std::{
    io::{self, ErrorKind},
    path::PathBuf,
};

use rusqlite::ffi;

/// The reason why a directory cannot be opened. It is left unchanged in every case.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no data, and none should be created.
    #[error("there is no nameservice data in {}: create it with `nameservice init`, or name another directory", directory.display())]
    Missing {
        /// The directory.
        directory: PathBuf,
    },
    /// Another process has the directory open.
    #[error(
        "the data in {} is in use by another nameservice{}: use that one with --url, stop it, or choose another directory",
        directory.display(),
        process.as_deref().map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The id of the process, if it is known.
        process: Option<String>,
    },
    /// The directory holds data of the engine that emulated DynamoDB.
    #[error(
        "{} is the database of an earlier version of the nameservice, which this version cannot read; it was left as it \
         is: choose another directory, or remove that file",
        path.display()
    )]
    FormerEngine {
        /// The database.
        path: PathBuf,
    },
    /// The file was written by a later version of the nameservice.
    #[error("{} has format {found}, and this version reads up to format {known}: use a later version", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The latest format that is known.
        known: u32,
    },
    /// The file is something else.
    #[error("{} is not a nameservice log ({reason}): choose another directory, or restore a backup", path.display())]
    NotALog {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The directory is a replica of another nameservice, or of another one than was named.
    #[error(
        "{} is a replica of {upstream}: serve it with --upstream {upstream}, or choose another directory",
        path.display()
    )]
    Replica {
        /// The log.
        path: PathBuf,
        /// What it is a replica of.
        upstream: String,
    },
    /// The directory should become a replica, but holds a nameservice of its own.
    #[error("{} is not a replica: it has its own records, which a replica would replace; choose another directory", path.display())]
    NoReplica {
        /// The log.
        path: PathBuf,
    },
    /// The log is gone, and files that belong to it are there.
    #[error(
        "{} is gone, and {} is there: put it back, or restore a backup into a new directory; to start over, remove that \
         file, too",
        path.display(),
        left.display()
    )]
    Gone {
        /// The log.
        path: PathBuf,
        /// What is there.
        left: PathBuf,
    },
    /// The log does not hold what it held when its last writes were answered.
    #[error(
        "{} is not as it was left ({reason}): put back the files that were beside it, or restore a backup into a new \
         directory; to continue with what is left, remove {}",
        path.display(),
        durable.display()
    )]
    Incomplete {
        /// The log.
        path: PathBuf,
        /// The file that names the last durable change.
        durable: PathBuf,
        /// What is missing, or different.
        reason: String,
    },
    /// The file is damaged.
    #[error("{} is damaged ({reason}): restore a backup, or examine it with `nameservice doctor`", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file or directory cannot be used.
    #[error("cannot use {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// SQLite cannot use the file.
    #[error("cannot open {}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// There is no space for the files of a log that is opened, or for a new log.
    #[error("{} cannot be opened, since its disk is full, or its quota is used up: free some space, and start again", path.display())]
    Full {
        /// The log.
        path: PathBuf,
        /// The cause.
        #[source]
        source: rusqlite::Error,
    },
    /// The thread of the writer could not be started.
    #[error("cannot start the writer of the log")]
    Thread(#[source] io::Error),
}

impl OpenError {
    /// Returns whether opening it again later may succeed: it is in use, or its disk is full or read-only for now.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::InUse { .. } | Self::Full { .. } => true,
            Self::Io { source, .. } => matches!(
                source.kind(),
                ErrorKind::ReadOnlyFilesystem | ErrorKind::StorageFull | ErrorKind::QuotaExceeded
            ),
            Self::Sqlite { source, .. } => source.sqlite_error_code() == Some(ffi::ErrorCode::ReadOnly),
            _ => false,
        }
    }
}
