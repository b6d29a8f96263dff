//! The log: one SQLite file that holds the changes and the records that they have left.
//!
//! ```text
//! log       position (key), at, address, body      a change; `at` is when it was recorded, epoch milliseconds
//! records   id (key), body                         a record as it is now; its id is the position that created it
//! ```
//!
//! Both are written in one transaction, whose commit is synced before anything of it is seen: `journal_mode = WAL`,
//! `synchronous = FULL`. Bodies are [`rows`]. The last change is never trimmed, so the position is that of the last row.

mod reader;
pub(crate) mod rows;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig, ffi, params};

pub(crate) use reader::{HistoryRange, Readers};

use crate::{
    OpenError,
    directory::{APPLICATION_ID, Directory},
    state::{Record, State},
};

/// The format of the file, its `user_version`.
pub(crate) const FORMAT: u32 = 1;

const SCHEMA: &str = "
    CREATE TABLE log (position INTEGER PRIMARY KEY, at INTEGER NOT NULL, address TEXT NOT NULL, body BLOB NOT NULL) STRICT;
    CREATE INDEX log_by_address ON log (address);
    CREATE TABLE records (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
";

/// The most expired changes that one transaction removes.
const TRIM: usize = 256;
/// How much the write-ahead file grows between two attempts to empty it.
pub(crate) const CHECKPOINT_BYTES: u64 = 16 * 1024 * 1024;

/// Called around what makes writes durable. Tests block there, fail there, and copy the files.
pub(crate) trait Hook: Send + Sync {
    /// All statements of a transaction were made.
    fn before_commit(&self, _connection: &Connection) -> rusqlite::Result<()> {
        Ok(())
    }

    /// The transaction is durable, and nobody has seen it.
    fn after_commit(&self) {}

    /// The write-ahead file was moved into the database.
    fn after_checkpoint(&self) {}
}

/// What one transaction writes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) changes: Vec<Entry>,
    /// The records by their rows, as they are at the end; `None` where one was removed.
    pub(crate) records: BTreeMap<u64, Option<Arc<Record>>>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.records.is_empty()
    }
}

/// A change on its way to the log.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) position: u64,
    /// Epoch milliseconds.
    pub(crate) at: i64,
    pub(crate) address: Arc<str>,
    pub(crate) body: Arc<[u8]>,
}

/// Why a batch was not committed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// Nothing was written. A later batch may be.
    #[error("the log cannot be written")]
    Rejected(#[source] nameservice_model::BoxError),
    /// It is not known whether it was written: the log must not be written any more.
    #[error("the log was not synced")]
    Unsynced(#[source] nameservice_model::BoxError),
}

/// The writer's side of a log.
pub(crate) struct Log {
    connection: Connection,
    write_ahead: PathBuf,
    /// The size of the write-ahead file at which to empty it.
    checkpoint_at: u64,
    checkpoint_bytes: u64,
    oldest_at: Option<i64>,
    hook: Option<Arc<dyn Hook>>,
}

impl Log {
    /// Creates an empty log under its name, all of it or nothing.
    pub(crate) fn create(directory: &Directory) -> Result<(), OpenError> {
        let path = directory.new_log()?;
        let create = || {
            let connection = Connection::open(&path)?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.execute_batch(SCHEMA)?;
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
            connection.pragma_update(None, "user_version", FORMAT)?;
            connection.close().map_err(|(_, error)| error)
        };
        create().map_err(|source| OpenError::Sqlite { path: path.clone(), source })?;
        directory.adopt(&path)
    }

    /// Opens a log, and returns the state that it holds.
    pub(crate) fn open(
        path: &Path,
        checkpoint_bytes: u64,
        hook: Option<Arc<dyn Hook>>,
    ) -> Result<(Self, State), OpenError> {
        let failed = |source| open_error(path, source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
        let connection = connect(&torn_sector_safe(path), flags).map_err(failed)?;
        let configure = || {
            let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
            debug_assert_eq!(mode, "wal");
            connection.pragma_update(None, "synchronous", "FULL")?;
            // Checkpoints are made between transactions, where their time is known.
            connection.pragma_update(None, "wal_autocheckpoint", 0)?;
            connection.pragma_update(None, "cache_size", -32_768)
        };
        configure().map_err(failed)?;
        let state = load(&connection, path)?;
        let mut write_ahead = path.as_os_str().to_owned();
        write_ahead.push("-wal");
        let write_ahead = PathBuf::from(write_ahead);
        let mut log = Self { connection, write_ahead, checkpoint_at: 0, checkpoint_bytes, oldest_at: None, hook };
        // What a process before this one could not sync is written anew, and synced.
        log.checkpoint().and_then(|()| log.find_oldest()).map_err(failed)?;
        Ok((log, state))
    }

    /// Writes a batch, and returns once it is durable.
    pub(crate) fn commit(&mut self, batch: &Batch, expired_before: i64) -> Result<(), CommitError> {
        let written = self.write(batch, expired_before);
        if let Err(error) = written {
            self.roll_back();
            return Err(error);
        }
        let committed = match &self.hook {
            Some(hook) => hook.before_commit(&self.connection),
            None => Ok(()),
        };
        match committed.and_then(|()| self.connection.execute_batch("COMMIT")) {
            Ok(()) => {}
            Err(error) => {
                self.roll_back();
                return Err(match error.sqlite_error_code() {
                    // The pages did not fit, or could not be written at all: no commit record was.
                    Some(ffi::ErrorCode::DiskFull | ffi::ErrorCode::ReadOnly) => CommitError::Rejected(error.into()),
                    _ => CommitError::Unsynced(error.into()),
                });
            }
        }
        if let Some(hook) = &self.hook {
            hook.after_commit();
        }
        if self.oldest_at.is_none_or(|at| at < expired_before)
            && let Err(error) = self.find_oldest()
        {
            tracing::warn!(%error, "the oldest change of the log was not found; the next write looks again");
        }
        Ok(())
    }

    fn write(&mut self, batch: &Batch, expired_before: i64) -> Result<(), CommitError> {
        let rejected = |error: rusqlite::Error| CommitError::Rejected(error.into());
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(rejected)?;
        let connection = &self.connection;
        let mut append = connection
            .prepare_cached("INSERT INTO log (position, at, address, body) VALUES (?1, ?2, ?3, ?4)")
            .map_err(rejected)?;
        for entry in &batch.changes {
            append.execute(params![entry.position, entry.at, &*entry.address, &*entry.body]).map_err(rejected)?;
        }
        let mut put = connection.prepare_cached("REPLACE INTO records (id, body) VALUES (?1, ?2)").map_err(rejected)?;
        let mut delete = connection.prepare_cached("DELETE FROM records WHERE id = ?1").map_err(rejected)?;
        for (id, record) in &batch.records {
            match record {
                Some(record) => {
                    let body = rows::encode_record(record).map_err(|error| CommitError::Rejected(error.into()))?;
                    put.execute(params![id, body]).map_err(rejected)?;
                }
                None => {
                    delete.execute([id]).map_err(rejected)?;
                }
            }
        }
        if self.oldest_at.is_some_and(|at| at < expired_before) {
            // Twice as many as were added: what has piled up is removed in the end.
            trim(connection, expired_before, TRIM.max(2 * batch.changes.len())).map_err(rejected)?;
        }
        Ok(())
    }

    /// When the oldest change that can be removed was recorded. The last one stays.
    pub(crate) const fn oldest_at(&self) -> Option<i64> {
        self.oldest_at
    }

    fn find_oldest(&mut self) -> rusqlite::Result<()> {
        let mut oldest = self.connection.prepare_cached(
            "SELECT at FROM log WHERE position < (SELECT max(position) FROM log) ORDER BY position LIMIT 1",
        )?;
        let mut rows = oldest.query([])?;
        self.oldest_at = rows.next()?.map(|row| row.get(0)).transpose()?;
        Ok(())
    }

    /// Empties the write-ahead file once it has grown. A reader of the file may keep it from that for a while.
    pub(crate) fn checkpoint_if_due(&mut self) -> rusqlite::Result<()> {
        match std::fs::metadata(&self.write_ahead).map_or(0, |file| file.len()) {
            size if size < self.checkpoint_at => Ok(()),
            _ => self.checkpoint(),
        }
    }

    /// Moves what is in the write-ahead file into the database.
    pub(crate) fn checkpoint(&mut self) -> rusqlite::Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        let left = std::fs::metadata(&self.write_ahead).map_or(0, |file| file.len());
        self.checkpoint_at = left + self.checkpoint_bytes;
        if let Some(hook) = &self.hook {
            hook.after_checkpoint();
        }
        Ok(())
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction of the log was not rolled back");
        }
    }
}

/// The path as a URI with which SQLite does not count on power-safe overwrites: each commit ends on a sector of its own, so
/// that a sector torn by the next one holds nothing that was acknowledged.
fn torn_sector_safe(path: &Path) -> PathBuf {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?psow=0");
    PathBuf::from(uri)
}

/// Opens a connection that leaves the write-ahead file alone when it is closed: after a failed sync nothing may be made of
/// it any more.
fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Nobody else writes; who waits for a reader tries again later instead.
    connection.busy_timeout(std::time::Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(16);
    Ok(connection)
}

fn trim(connection: &Connection, expired_before: i64, at_most: usize) -> rusqlite::Result<usize> {
    let mut trim = connection.prepare_cached(
        "DELETE FROM log WHERE position IN (
             SELECT position FROM (SELECT position, at FROM log ORDER BY position LIMIT ?2)
             WHERE at < ?1 AND position < (SELECT max(position) FROM log))",
    )?;
    trim.execute(params![expired_before, at_most])
}

fn load(connection: &Connection, path: &Path) -> Result<State, OpenError> {
    let failed = |source| open_error(path, source);
    let damaged = |reason: String| OpenError::Damaged { path: path.to_owned(), reason };
    let mut state = State::new();
    let last = "SELECT position, at FROM log ORDER BY position DESC LIMIT 1";
    let mut last = connection.prepare(last).map_err(failed)?;
    let mut rows = last.query([]).map_err(failed)?;
    if let Some(row) = rows.next().map_err(failed)? {
        state.position = row.get(0).map_err(failed)?;
        state.recorded_at = row.get(1).map_err(failed)?;
    }
    let mut records = connection.prepare("SELECT id, body FROM records ORDER BY id").map_err(failed)?;
    let mut rows = records.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let id: u64 = row.get(0).map_err(failed)?;
        let body = row.get_ref(1).and_then(|body| Ok(body.as_blob()?)).map_err(failed)?;
        let record = rows::decode_record(id, body).map_err(|error| damaged(error.to_string()))?;
        if id > state.position {
            return Err(damaged(format!("record {id} is newer than the last change, {}", state.position)));
        }
        if state.records.contains_key(&record.address) {
            return Err(damaged(format!("there are two records {}", record.address)));
        }
        state.load(record);
    }
    Ok(state)
}

fn open_error(path: &Path, source: rusqlite::Error) -> OpenError {
    match source.sqlite_error_code() {
        Some(ffi::ErrorCode::DatabaseCorrupt | ffi::ErrorCode::NotADatabase) => {
            OpenError::Damaged { path: path.to_owned(), reason: source.to_string() }
        }
        _ => OpenError::Sqlite { path: path.to_owned(), source },
    }
}
