//! Reads what is not in memory: older changes, and the history of a record. Readers never wait for the writer.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use nameservice_model::{Change, Error, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, params};

use super::{Mark, connect, identity_of, position_of, rows};
use crate::{OpenError, directory::has_log};

const READ: &str = "read the log";
/// The largest integer of SQLite.
const MAX: u64 = i64::MAX as u64;
/// How many idle connections are kept.
const KEPT: usize = 4;
/// After how many steps of a statement SQLite asks whether it is to end.
const STEPS: i32 = 4096;

/// Part of a record's history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistoryRange {
    /// Only changes after this position.
    pub(crate) after: u64,
    /// The last position.
    pub(crate) until: u64,
    /// The newest change first.
    pub(crate) newest_first: bool,
}

/// Connections that read one log.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    interrupt: Option<Interrupt>,
}

/// Interrupts the statements of connections once it is set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Interrupts this connection, too.
    pub(crate) fn watch(&self, connection: &Connection) {
        let is_set = self.0.clone();
        connection.progress_handler(STEPS, Some(move || is_set.load(Ordering::Relaxed)));
    }
}

impl Readers {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), idle: Mutex::default(), interrupt: None }
    }

    /// Returns readers whose statements can be interrupted.
    pub(crate) fn interrupted_by(path: &Path, interrupt: Interrupt) -> Self {
        Self { interrupt: Some(interrupt), ..Self::new(path) }
    }

    /// Returns at most `limit` changes after a position, up to another one.
    pub(crate) fn changes(&self, after: u64, until: u64, limit: usize) -> Result<Vec<Change>> {
        self.read(|connection| {
            let mut select = connection.prepare_cached(
                "SELECT position, at, address, body FROM changes WHERE position > ?1 AND position <= ?2
                 ORDER BY position LIMIT ?3",
            )?;
            let mut rows = select.query(params![after.min(MAX), until, sql_limit(limit)])?;
            collect(&mut rows)
        })
    }

    /// Returns at most `limit` changes of one address in a range.
    pub(crate) fn history(&self, address: &str, range: HistoryRange, limit: usize) -> Result<Vec<Change>> {
        let query = match range.newest_first {
            true => {
                "SELECT position, at, address, body FROM changes WHERE address = ?1 AND position > ?2 AND position <= ?3
                 ORDER BY position DESC LIMIT ?4"
            }
            false => {
                "SELECT position, at, address, body FROM changes WHERE address = ?1 AND position > ?2 AND position <= ?3
                 ORDER BY position LIMIT ?4"
            }
        };
        self.read(|connection| {
            let mut select = connection.prepare_cached(query)?;
            let (after, until) = (range.after.min(MAX), range.until.min(MAX));
            let mut rows = select.query(params![address, after, until, sql_limit(limit)])?;
            collect(&mut rows)
        })
    }

    /// Returns the oldest position that was recorded at a time or later.
    pub(crate) fn oldest(&self, at: i64) -> Result<Option<u64>> {
        self.read(|connection| {
            let mut select =
                connection.prepare_cached("SELECT position FROM changes WHERE at >= ?1 ORDER BY position LIMIT 1")?;
            let mut rows = select.query([at])?;
            Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
        })
    }

    /// Copies the current log into a new file.
    pub(crate) fn copy(&self, to: &Path) -> Result<()> {
        let to = to.to_str().ok_or_else(|| failed(Failure::Path))?;
        self.read(|connection| {
            connection.execute("VACUUM INTO ?1", [to])?;
            Ok(())
        })
    }

    /// Returns an upper bound of the size of a copy of the log, in bytes.
    pub(crate) fn bytes(&self) -> Result<u64> {
        self.read(|connection| {
            let pragma = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, u64>(0));
            let pages = pragma("page_count")?.saturating_sub(pragma("freelist_count")?);
            Ok(pages.saturating_mul(pragma("page_size")?))
        })
    }

    /// Returns what the log has lost, if it does not hold what its mark names; `None` if it is complete.
    pub(crate) fn missing(&self) -> Result<Option<String>> {
        loop {
            // Read first: a log in use only gets ahead of it.
            let mark = Mark::beside(&self.path);
            let Some(named) = &mark else { return Ok(None) };
            let missing = self.read(|connection| {
                let transaction = connection.unchecked_transaction()?;
                let position = "SELECT coalesce(max(position), 0) FROM changes";
                let position = position_of(&transaction, transaction.query_row(position, [], |row| row.get(0))?)?;
                let identity = identity_of(&transaction)?.map(|(identity, _)| identity);
                Ok(named.missing_in(&transaction, identity.as_deref().unwrap_or_default(), position)?)
            })?;
            // Meanwhile the log of a replica may have begun again.
            if missing.is_none() || Mark::beside(&self.path) == mark {
                return Ok(missing);
            }
        }
    }

    /// Returns the path of the log.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the log with one of the connections.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T> {
        let idle = self.idle().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => {
                // Of a file that was cut to nothing, SQLite would remove the write-ahead file, which is in use.
                if !has_log(&self.path).map_err(|error| failed(Failure::File(error)))? {
                    return Err(failed(Failure::Gone));
                }
                let opened = connect(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY);
                let opened = opened.map_err(|error| failed(error.into()))?;
                if let Some(interrupt) = &self.interrupt {
                    interrupt.watch(&opened);
                }
                opened
            }
        };
        let result = read(&connection).map_err(failed)?;
        let mut idle = self.idle();
        if idle.len() < KEPT {
            idle.push(connection);
        }
        Ok(result)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // A list of idle connections is consistent even if a thread panicked while it held the lock.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The reason why the log was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Row(#[from] rows::Unreadable),
    #[error("the path is not UTF-8")]
    Path,
    #[error("the file of the log is gone")]
    Gone,
    #[error(transparent)]
    File(OpenError),
}

/// Returns whether an error passes: no descriptor or memory is left, the disk does not answer, or another process is in the way.
pub(crate) fn is_unavailable(error: &rusqlite::Error) -> bool {
    const PASSING: [ErrorCode; 7] = [
        ErrorCode::CannotOpen,
        ErrorCode::DatabaseLocked,
        ErrorCode::FileLockingProtocolFailed,
        ErrorCode::OutOfMemory,
        ErrorCode::SystemIoFailure,
        ErrorCode::DatabaseBusy,
        ErrorCode::DiskFull,
    ];
    error.sqlite_error_code().is_some_and(|code| PASSING.contains(&code))
}

pub(crate) fn failed(source: Failure) -> Error {
    match &source {
        Failure::Sqlite(error) if !is_unavailable(error) => Error::Store { operation: READ, source: source.into() },
        Failure::Sqlite(_) | Failure::Gone | Failure::File(OpenError::Io { .. }) => {
            Error::Unavailable { operation: READ, source: Some(source.into()) }
        }
        _ => Error::Store { operation: READ, source: source.into() },
    }
}

fn collect(rows: &mut rusqlite::Rows<'_>) -> Result<Vec<Change>, Failure> {
    let mut changes = Vec::new();
    while let Some(row) = rows.next()? {
        changes.push(change(row)?);
    }
    Ok(changes)
}

fn change(row: &Row<'_>) -> Result<Change, Failure> {
    let address = row.get_ref(2).and_then(|value| Ok(value.as_str()?))?;
    let body = row.get_ref(3).and_then(|value| Ok(value.as_blob()?))?;
    Ok(rows::checked_change(row.get(0)?, row.get(1)?, address, body)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_cannot_be_opened_for_now_is_unavailable() {
        // As with no descriptor left, SQLite reports that it cannot open the file.
        let readers = Readers::new(Path::new("/nowhere/log"));
        let failed = readers.oldest(0).unwrap_err();
        assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
    }
}
