use std::{
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use nameservice_api as api;
use nameservice_model::{Address, BoxError, Record};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::{Result, SyncError};

const FILE: &str = "remotes.sqlite";

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tracked (
        remote TEXT NOT NULL, address TEXT NOT NULL, there TEXT, base TEXT, fetch INTEGER NOT NULL,
        PRIMARY KEY (remote, address)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS remotes (remote TEXT PRIMARY KEY, fetch INTEGER NOT NULL, position INTEGER) STRICT;
";

/// What is known about the records of remotes.
#[derive(Debug)]
pub struct Tracking {
    path: PathBuf,
    connection: Mutex<Connection>,
}

/// What is known about one record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tracked {
    /// The remote's record at the last fetch; `None` if it had none.
    pub theirs: Option<Record>,
    /// The value at which both sides last were the same; `None` if they never were.
    pub base: Option<Record>,
}

impl Tracking {
    /// Opens the tracking file of a directory.
    pub fn of(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        let failed = |error: rusqlite::Error| unusable(&path, error);
        std::fs::create_dir_all(directory).map_err(|source| SyncError::File { path: path.clone(), source })?;
        let connection = Connection::open(&path).map_err(failed)?;
        let configure = || {
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
            connection.busy_timeout(std::time::Duration::from_secs(5))?;
            connection.execute_batch(SCHEMA)
        };
        configure().map_err(failed)?;
        Ok(Self { path, connection: Mutex::new(connection) })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, run: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T> {
        run(&mut self.lock()).map_err(|error| unusable(&self.path, error))
    }

    /// Begins a fetch, and returns its number.
    pub(crate) fn begin(&self, remote: &str) -> Result<i64> {
        self.with(|connection| {
            let last = "SELECT max(fetch) FROM tracked WHERE remote = ?1";
            let last: Option<i64> = connection.query_row(last, [remote], |row| row.get(0))?;
            Ok(last.unwrap_or(0) + 1)
        })
    }

    /// Stores what the remote has. Returns how many of these records are new or changed.
    pub(crate) fn note(&self, remote: &str, fetch: i64, records: &[Record]) -> Result<u64> {
        let rows = records.iter().map(|record| Ok((record.address.as_str(), text(record)?)));
        let rows: Vec<(&str, String)> = rows.collect::<Result<_>>()?;
        self.with(|connection| {
            let transaction = connection.transaction()?;
            let mut news = 0;
            {
                let mut before =
                    transaction.prepare_cached("SELECT there FROM tracked WHERE remote = ?1 AND address = ?2")?;
                let mut put = transaction.prepare_cached(
                    "INSERT INTO tracked (remote, address, there, fetch) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (remote, address) DO UPDATE SET there = ?3, fetch = ?4",
                )?;
                for (address, theirs) in &rows {
                    let known: Option<Option<String>> =
                        before.query_row([remote, address], |row| row.get(0)).optional()?;
                    news += u64::from(known.flatten().as_ref() != Some(theirs));
                    put.execute(params![remote, address, theirs, fetch])?;
                }
            }
            transaction.commit()?;
            Ok(news)
        })
    }

    /// Ends a fetch: records that it has not seen are gone. Returns how many those are.
    pub(crate) fn end(&self, remote: &str, fetch: i64, position: Option<u64>) -> Result<u64> {
        self.with(|connection| {
            let transaction = connection.transaction()?;
            let gone = transaction.execute(
                "UPDATE tracked SET there = NULL WHERE remote = ?1 AND fetch < ?2 AND there IS NOT NULL",
                params![remote, fetch],
            )?;
            transaction
                .execute("DELETE FROM tracked WHERE remote = ?1 AND there IS NULL AND base IS NULL", [remote])?;
            transaction.execute(
                "REPLACE INTO remotes (remote, fetch, position) VALUES (?1, ?2, ?3)",
                params![remote, fetch, position],
            )?;
            transaction.commit()?;
            Ok(gone as u64)
        })
    }

    /// Stores that both sides of a record were the same at `base`, and what the remote has.
    pub(crate) fn settle(
        &self,
        remote: &str,
        address: &Address,
        theirs: Option<&Record>,
        base: Option<&Record>,
    ) -> Result<()> {
        let (theirs, base) = (theirs.map(text).transpose()?, base.map(text).transpose()?);
        self.with(|connection| {
            connection.execute(
                "INSERT INTO tracked (remote, address, there, base, fetch) VALUES (?1, ?2, ?3, ?4, 0)
                 ON CONFLICT (remote, address) DO UPDATE SET there = ?3, base = ?4",
                params![remote, address.as_str(), theirs, base],
            )?;
            Ok(())
        })
    }

    /// Returns what is known about a record.
    pub fn get(&self, remote: &str, address: &Address) -> Result<Tracked> {
        let row = self.with(|connection| {
            let mut get =
                connection.prepare_cached("SELECT there, base FROM tracked WHERE remote = ?1 AND address = ?2")?;
            get.query_row([remote, address.as_str()], |row| Ok((row.get(0)?, row.get(1)?))).optional()
        })?;
        let (theirs, base): (Option<String>, Option<String>) = row.unwrap_or_default();
        Ok(Tracked { theirs: self.record(theirs)?, base: self.record(base)? })
    }

    /// Returns what is known about at most `limit` records after an address, in order.
    pub fn after(&self, remote: &str, address: &str, limit: usize) -> Result<Vec<(Address, Tracked)>> {
        let rows: Vec<(String, Option<String>, Option<String>)> = self.with(|connection| {
            let mut page = connection.prepare_cached(
                "SELECT address, there, base FROM tracked WHERE remote = ?1 AND address > ?2 ORDER BY address LIMIT ?3",
            )?;
            let rows =
                page.query_map(params![remote, address, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            rows.collect()
        })?;
        let tracked = |(address, theirs, base)| {
            Ok((Address::stored(address), Tracked { theirs: self.record(theirs)?, base: self.record(base)? }))
        };
        rows.into_iter().map(tracked).collect()
    }

    /// Returns the position of the remote's feed at the last fetch; `None` if nothing was fetched, or it has no feed.
    pub fn position(&self, remote: &str) -> Result<Option<u64>> {
        self.with(|connection| {
            let position = "SELECT position FROM remotes WHERE remote = ?1";
            Ok(connection.query_row(position, [remote], |row| row.get(0)).optional()?.flatten())
        })
    }

    /// Forgets a remote.
    pub fn forget(&self, remote: &str) -> Result<()> {
        self.with(|connection| {
            connection.execute("DELETE FROM tracked WHERE remote = ?1", [remote])?;
            connection.execute("DELETE FROM remotes WHERE remote = ?1", [remote])?;
            Ok(())
        })
    }

    fn record(&self, text: Option<String>) -> Result<Option<Record>> {
        let damaged = |error: BoxError| SyncError::File {
            path: self.path.clone(),
            source: std::io::Error::new(std::io::ErrorKind::InvalidData, error),
        };
        let Some(text) = text else { return Ok(None) };
        let record: api::Record = serde_json::from_str(&text).map_err(|error| damaged(error.into()))?;
        Record::try_from(record).map(Some).map_err(|error| damaged(error.into()))
    }
}

fn text(record: &Record) -> Result<String> {
    serde_json::to_string(&api::Record::from(record)).map_err(|error| SyncError::Other(error.into()))
}

fn unusable(path: &Path, error: rusqlite::Error) -> SyncError {
    SyncError::File { path: path.to_owned(), source: std::io::Error::other(error) }
}
