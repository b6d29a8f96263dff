//! Whether one log continues another: which of two backups is the older one of the same data.

use std::path::{Path, PathBuf};

use nameservice_model::{Finding, Result};
use rusqlite::{Connection, OpenFlags};

use crate::{
    BackupError, Embedded, OpenError,
    backup::{damaged_by, still_there},
    directory::{LOG_FILE, check_header, has_log},
    doctor::damage_of,
    log::{Failure, Mark, connect, failed, identity_of, position_of},
};

/// What distinguishes a log from others, and how far it is: its identity and its last change. A restored backup that is written to begins a
/// timeline of its own.
///
/// Only a few rows are read, and nothing is written: the log may be in use.
#[derive(Debug)]
pub struct Timeline {
    connection: Connection,
    identity: Option<String>,
    position: u64,
    last: Option<Row>,
}

/// A change as it is stored, with its checksum and that of all changes before it.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    position: u64,
    at: i64,
    address: String,
    body: Vec<u8>,
}

impl Timeline {
    /// Opens the log of a data directory or a backup.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, OpenError> {
        let directory = directory.as_ref();
        let path = directory.join(LOG_FILE);
        if !has_log(&path)? {
            return Err(OpenError::Missing { directory: PathBuf::from(directory) });
        }
        let checked = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .and_then(|connection| Ok(check_header(&connection, &path)?.map(|()| connection)));
        let failed = |source| OpenError::Sqlite { path: path.clone(), source };
        Self::of(checked.map_err(failed)??).map_err(failed)
    }

    /// Reads what a log is of.
    pub(crate) fn read(path: &Path) -> rusqlite::Result<Self> {
        Self::of(connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?)
    }

    fn of(connection: Connection) -> rusqlite::Result<Self> {
        let transaction = connection.unchecked_transaction()?;
        let identity = identity_of(&transaction)?.map(|(identity, _)| identity);
        let last = "SELECT position, at, address, body FROM changes ORDER BY position DESC LIMIT 1";
        let last = row(&transaction, last, [])?;
        let position = position_of(&transaction, last.as_ref().map_or(0, |last| last.position))?;
        transaction.finish()?;
        Ok(Self { connection, identity, position, last })
    }

    /// Returns the identity of the log; `None` if an earlier version has written it, which gave it none.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Returns the position of the last change.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns when the last change was recorded, in epoch milliseconds; `None` if there is none.
    pub fn recorded_at(&self) -> Option<i64> {
        self.last.as_ref().map(|last| last.at)
    }

    /// Returns whether this log has all that another has: it has the same identity, is as far or further, and has the other's last
    /// change with all that came before it.
    ///
    /// A log that no longer holds a change at that position, because of the retention of its feed, cannot show that: then identity
    /// and position decide.
    pub fn continues(&self, other: &Self) -> Result<bool> {
        Ok(self.shows(other)?.unwrap_or(true))
    }

    /// Returns whether this log has all that another has; `None` if it can no longer show that.
    pub(crate) fn shows(&self, other: &Self) -> Result<Option<bool>> {
        if self.identity.is_none() || self.identity != other.identity || self.position < other.position {
            return Ok(Some(false));
        }
        // A replica that has just begun with a snapshot has a position, and no change that shows of which history it is.
        let Some(last) = &other.last else { return Ok((other.position == 0).then_some(true)) };
        let select = "SELECT position, at, address, body FROM changes WHERE position = ?1";
        let held = row(&self.connection, select, [last.position]).map_err(|error| failed(Failure::Sqlite(error)))?;
        Ok(held.map(|held| held == *last))
    }
}

impl Timeline {
    /// Returns what the log has lost, if it does not hold what its mark names.
    pub(crate) fn missing(&self, mark: &Mark) -> rusqlite::Result<Option<String>> {
        mark.missing_in(&self.connection, self.identity.as_deref().unwrap_or_default(), self.position)
    }

    /// Returns what is damaged in the log.
    pub fn damage(&self) -> Result<Vec<Finding>> {
        damaged_by(damage_of(&self.connection))
    }
}

impl Embedded {
    /// Returns what distinguishes this log from others, as it is now.
    pub fn timeline(&self) -> Result<Timeline, BackupError> {
        let readers = self.readers().ok_or(BackupError::InMemory)?;
        still_there(readers.path())?;
        let failed = |source| OpenError::Sqlite { path: readers.path().to_owned(), source };
        Timeline::read(readers.path()).map_err(|source| BackupError::Source(failed(source)))
    }
}

fn row(connection: &Connection, select: &str, of: impl rusqlite::Params) -> rusqlite::Result<Option<Row>> {
    let mut select = connection.prepare(select)?;
    let mut rows = select.query(of)?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Row { position: row.get(0)?, at: row.get(1)?, address: row.get(2)?, body: row.get(3)? }))
}
