//! The log: one SQLite file that holds the changes and the resulting records.
//!
//! ```text
//! tail      position (key), at, address, body      a change; `at` is when it was recorded, epoch milliseconds
//! log       the same, and an index by address      older changes, moved from `tail` many at a time
//! changes   the view of both
//! records   id (key), body                         a record as it is now; its id is the position that created it
//! memories  address (key), body                    the calls that purged and created the record that was there
//! identity  id, checked_after                      16 hex digits; the last position that was written without checksums
//! ```
//!
//! A change is appended to `tail`, which writes few pages. In the index by address its place may be anywhere, and
//! changes share pages only if many are moved together.
//!
//! Changes and records are written in one transaction, whose commit is synced before any of it is visible:
//! `journal_mode = WAL`, `synchronous = FULL`. Bodies are [`rows`]. The last change is never trimmed, so the position
//! is that of the last row.
//!
//! Every row ends with its checksum, and a change also with one of all changes up to it. [`durable`] describes the file
//! that names the last durable change.

mod durable;
mod load;
mod reader;
pub(crate) mod rows;
pub(crate) mod space;

use std::{
    cell::Cell,
    collections::BTreeMap,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use metrics::counter;
use rusqlite::{Connection, OpenFlags, config::DbConfig, ffi, params};

use durable::Durable;
pub(crate) use durable::{Mark, incomplete, reject};
pub(crate) use reader::{Failure, HistoryRange, Interrupt, Readers, failed, is_unavailable};

use crate::{
    OpenError,
    directory::{APPLICATION_ID, Directory, FORMAT, FORMER_FORMAT, write_ahead},
    state::{Memory, Record, State},
};

const SCHEMA: &str = "
    CREATE TABLE log (position INTEGER PRIMARY KEY, at INTEGER NOT NULL, address TEXT NOT NULL, body BLOB NOT NULL) STRICT;
    CREATE INDEX log_by_address ON log (address);
    CREATE TABLE tail (position INTEGER PRIMARY KEY, at INTEGER NOT NULL, address TEXT NOT NULL, body BLOB NOT NULL) STRICT;
    CREATE VIEW changes AS
        SELECT position, at, address, body FROM log UNION ALL SELECT position, at, address, body FROM tail;
    CREATE TABLE records (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
";
/// What the format before did not have.
const ADDED_SCHEMA: &str = "
    CREATE TABLE memories (address TEXT PRIMARY KEY, body BLOB NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE identity (id TEXT NOT NULL, checked_after INTEGER NOT NULL) STRICT;
";

/// How many changes are moved from `tail` to `log` together. Few in tests, so that it happens there.
const MOVED: usize = if cfg!(test) { 16 } else { 1024 };
/// The additional table of a replica: its upstream, and the position and time of the snapshot that it began with.
const REPLICA_SCHEMA: &str =
    "CREATE TABLE replica (upstream TEXT NOT NULL, base INTEGER NOT NULL, base_at INTEGER NOT NULL) STRICT;";

/// The pause before old changes that could not be moved or removed are tried again.
const UNTIDY: Duration = Duration::from_secs(60);
/// The most expired changes that one transaction removes.
const TRIM: usize = 256;
/// How many bytes are written to the write-ahead file between two attempts at a checkpoint.
pub(crate) const CHECKPOINT_BYTES: u64 = 16 * 1024 * 1024;
/// The size of a page in the write-ahead file.
const FRAME_BYTES: u64 = 4096 + 24;

thread_local! {
    /// How many pages the write-ahead file held after the last commit of this thread. SQLite reports that to a plain
    /// function, which has no state.
    static FRAMES: Cell<u64> = const { Cell::new(0) };
}

/// Hooks around the steps that make writes durable. Tests block or fail in them, or copy the files.
pub(crate) trait Hook: Send + Sync {
    /// All statements of a transaction were executed, and its commit was not sent.
    fn before_commit(&self, _connection: &Connection) -> rusqlite::Result<()> {
        Ok(())
    }

    /// The commit is being sent.
    fn at_commit(&self) -> rusqlite::Result<()> {
        Ok(())
    }

    /// The transaction is durable, and not yet visible.
    fn after_commit(&self) {}

    /// The content of the write-ahead file was moved into the database.
    fn after_checkpoint(&self) {}
}

/// What one transaction writes.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) changes: Vec<Entry>,
    /// The records by their rows, in their final state; `None` for one that was removed.
    pub(crate) records: BTreeMap<u64, Option<Arc<Record>>>,
    /// What is remembered of addresses; `None` for one that was forgotten.
    pub(crate) memories: BTreeMap<Arc<str>, Option<Arc<Memory>>>,
    /// Everything before is replaced: the log begins again after this position and time.
    pub(crate) replaced: Option<(u64, i64)>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.records.is_empty() && self.memories.is_empty() && self.replaced.is_none()
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

/// The reason why a batch was not committed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommitError {
    /// Nothing was written. A later batch may be.
    #[error("the log cannot be written")]
    Rejected(#[source] nameservice_model::BoxError),
    /// Its commit was sent, and it is not known whether it is in the log. That shows in the next recovery of the log.
    #[error("the commit of the log failed")]
    Unknown(#[source] nameservice_model::BoxError),
}

impl CommitError {
    /// Returns whether the disk is full: nothing else prevents writes.
    pub(crate) fn is_full(&self) -> bool {
        let (Self::Rejected(source) | Self::Unknown(source)) = self;
        source.downcast_ref().is_some_and(is_full)
    }

    /// Returns whether this process can write nothing more: a commit was sent, or the file is damaged, read-only, or on a disk
    /// that fails.
    pub(crate) fn is_permanent(&self) -> bool {
        use ffi::ErrorCode::{ConstraintViolation, DatabaseCorrupt, NotADatabase, ReadOnly, SystemIoFailure};
        // Every row is new, or replaces the one before.
        let permanent = [ConstraintViolation, DatabaseCorrupt, NotADatabase, ReadOnly, SystemIoFailure];
        match self {
            Self::Unknown(_) => true,
            Self::Rejected(source) => source
                .downcast_ref::<rusqlite::Error>()
                .and_then(rusqlite::Error::sqlite_error_code)
                .is_some_and(|code| permanent.contains(&code)),
        }
    }
}

/// Returns whether an error says that the disk is full. The log returns every error of a full disk as such, as
/// [`space`] describes.
pub(crate) fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ffi::ErrorCode::DiskFull)
}

/// Returns whether what has failed may succeed later, with nothing lost meanwhile: another program holds SQLite's lock,
/// or memory or the disk has no space.
fn is_passing(error: &rusqlite::Error) -> bool {
    use ffi::ErrorCode::{DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed, OutOfMemory};
    let passing = [DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed, OutOfMemory];
    error.sqlite_error_code().is_some_and(|code| passing.contains(&code))
}

fn rejected(error: rusqlite::Error) -> CommitError {
    CommitError::Rejected(error.into())
}

/// A log that was opened, and what it holds.
pub(crate) struct Started {
    pub(crate) log: Log,
    pub(crate) state: State,
    /// The reason why it cannot be written for now, if the disk is full.
    pub(crate) full: Option<rusqlite::Error>,
}

/// The writer's side of a log.
pub(crate) struct Log {
    connection: Connection,
    /// How many pages the write-ahead file held after the last commit.
    frames: u64,
    /// How many pages it holds at the next checkpoint.
    checkpoint_at: u64,
    checkpoint_frames: u64,
    /// About how many changes are in `tail`.
    unmoved: usize,
    /// The position of the last change, and the checksum of all changes.
    position: u64,
    chain: u32,
    durable: Durable,
    /// Whether it has the format before, because there was no space to convert it.
    is_former: bool,
    oldest_at: Option<i64>,
    /// When old changes could not be moved or removed.
    untidy_since: Cell<Option<Instant>>,
    hook: Option<Arc<dyn Hook>>,
    path: PathBuf,
}

impl Log {
    /// Creates an empty log under its final name, atomically.
    pub(crate) fn create(directory: &Directory) -> Result<(), OpenError> {
        let path = directory.new_log()?;
        let create = || {
            let connection = Connection::open(&path)?;
            sync_fully(&connection)?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.execute_batch(SCHEMA)?;
            connection.execute_batch(ADDED_SCHEMA)?;
            connection.execute("INSERT INTO identity VALUES (lower(hex(randomblob(8))), 0)", [])?;
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
            connection.pragma_update(None, "user_version", FORMAT)?;
            connection.close().map_err(|(_, error)| error)
        };
        create().map_err(|source| space::open_error(&path, source))?;
        directory.adopt(&path)
    }

    /// Opens the log of a replica, and returns the state that it holds. A new log becomes a replica of this upstream.
    pub(crate) fn open_replica(
        path: &Path,
        upstream: &str,
        checkpoint_bytes: u64,
        hook: Option<Arc<dyn Hook>>,
    ) -> Result<Started, OpenError> {
        let failed = |source| space::open_error(path, source);
        let connection =
            connect(&torn_sector_safe(path), OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI);
        let connection = connection.map_err(failed)?;
        if upstream_of(&connection).map_err(failed)?.is_none() {
            let rows = "SELECT (SELECT count(*) FROM changes) + (SELECT count(*) FROM records)";
            let rows: i64 = connection.query_row(rows, [], |row| row.get(0)).map_err(failed)?;
            if rows > 0 {
                return Err(OpenError::NoReplica { path: path.to_owned() });
            }
            let mark = || {
                connection.pragma_update(None, "synchronous", "FULL")?;
                connection.execute_batch(&format!("BEGIN IMMEDIATE; {REPLICA_SCHEMA}"))?;
                connection.execute("INSERT INTO replica (upstream, base, base_at) VALUES (?1, 0, 0)", [upstream])?;
                connection.execute_batch("COMMIT")
            };
            mark().map_err(failed)?;
        }
        drop(connection);
        Self::open_as(path, Some(upstream), checkpoint_bytes, hook)
    }

    /// Opens a log, and returns the state that it holds.
    pub(crate) fn open(path: &Path, checkpoint_bytes: u64, hook: Option<Arc<dyn Hook>>) -> Result<Started, OpenError> {
        Self::open_as(path, None, checkpoint_bytes, hook)
    }

    fn open_as(
        path: &Path,
        upstream: Option<&str>,
        checkpoint_bytes: u64,
        hook: Option<Arc<dyn Hook>>,
    ) -> Result<Started, OpenError> {
        let failed = |source| space::open_error(path, source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
        let connection = connect(&torn_sector_safe(path), flags).map_err(failed)?;
        let configure = || {
            let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
            debug_assert_eq!(mode, "wal");
            connection.pragma_update(None, "synchronous", "FULL")?;
            // Checkpoints are made explicitly between transactions, so that their timing is known.
            connection.pragma_update(None, "wal_autocheckpoint", 0)?;
            // Whatever the directory of temporary files has space for.
            connection.pragma_update(None, "temp_store", "MEMORY")?;
            // If a reader made it grow beyond this, the excess is freed.
            connection.pragma_update(None, "journal_size_limit", 2 * checkpoint_bytes)?;
            connection.pragma_update(None, "cache_size", -32_768)
        };
        configure().map_err(failed)?;
        let found = upstream_of(&connection).map_err(failed)?;
        if let Some(found) = found
            && upstream != Some(found.as_str())
        {
            return Err(OpenError::Replica { path: path.to_owned(), upstream: found });
        }
        let loaded = load::load(&connection, path)?;
        // A log of the format before has no identity: a mark beside it is of another one.
        let identity = loaded.identity.as_deref().unwrap_or_default();
        if let Some(mark) = Mark::beside(path)
            && let Some(missing) = mark.missing_in(&connection, identity, loaded.state.position).map_err(failed)?
        {
            return Err(incomplete(path, missing));
        }
        connection.wal_hook(Some(|_, frames| {
            FRAMES.set(u64::try_from(frames).unwrap_or(0));
            Ok(())
        }));
        let checkpoint_frames = checkpoint_bytes.div_ceil(FRAME_BYTES);
        let (frames, checkpoint_at) = (0, checkpoint_frames);
        // The content of `tail` is moved with the next changes.
        let (unmoved, position, oldest_at) = (MOVED, loaded.state.position, None);
        let is_former = loaded.identity.is_none();
        let durable = Durable::new(path, loaded.identity.unwrap_or_default());
        let mut log = Self {
            connection,
            frames,
            checkpoint_at,
            checkpoint_frames,
            unmoved,
            position,
            chain: loaded.chain,
            durable,
            is_former,
            oldest_at,
            untidy_since: Cell::default(),
            hook,
            path: path.to_owned(),
        };
        // What an earlier process could not sync is written again, and synced.
        let full = match log.convert().and_then(|()| log.empty()) {
            Ok(()) => None,
            Err(error) if is_full(&error) => {
                // Then nothing is written, and what is served must be durable all the same.
                let synced = File::open(write_ahead(path)).and_then(|file| file.sync_all());
                synced.map_err(|source| OpenError::Io { path: write_ahead(path), source })?;
                Some(error)
            }
            Err(error) => return Err(failed(error)),
        };
        log.find_oldest().map_err(failed)?;
        log.note();
        Ok(Started { log, state: loaded.state, full })
    }

    /// Converts a log of the format before: its rows stay as they are until they are written again, without checksums.
    fn convert(&mut self) -> rusqlite::Result<()> {
        if !self.is_former {
            return Ok(());
        }
        let identity = self.add_identity().map_err(|error| space::recognised(&self.path, error))?;
        (self.is_former, self.durable) = (false, Durable::new(&self.path, identity));
        Ok(())
    }

    /// Adds what the format before did not have. Returns the identity of the log.
    fn add_identity(&self) -> rusqlite::Result<String> {
        let base = match upstream_of(&self.connection)? {
            Some(_) => "(SELECT base FROM replica)",
            None => "0",
        };
        let transaction = self.connection.unchecked_transaction()?;
        transaction.execute_batch(ADDED_SCHEMA)?;
        let checked_after = format!("coalesce((SELECT max(position) FROM changes), {base})");
        let insert = format!("INSERT INTO identity VALUES (lower(hex(randomblob(8))), {checked_after}) RETURNING id");
        let identity = transaction.query_row(&insert, [], |row| row.get(0))?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
        transaction.commit()?;
        Ok(identity)
    }

    /// Tries to write again after the disk was full: empties the write-ahead file, and commits something. Then what a
    /// failed commit has left in the file is overwritten.
    pub(crate) fn recover(&mut self) -> Result<(), CommitError> {
        self.convert().and_then(|()| self.empty()).map_err(|error| match is_passing(&error) {
            true => rejected(error),
            false => CommitError::Unknown(error.into()),
        })?;
        self.probe()?;
        self.note();
        Ok(())
    }

    /// Commits a transaction that changes nothing, to see whether that is possible. It also requires space for a
    /// transaction that changes much.
    pub(crate) fn probe(&self) -> Result<(), CommitError> {
        space::check_room(&self.path).map_err(rejected)?;
        let write = || {
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            // SQLite writes the page of a header's field even if the field stays the same; it does not do that for a
            // row.
            self.connection.pragma_update(None, "user_version", FORMAT)
        };
        let written = write()
            .map_err(rejected)
            .and_then(|()| self.connection.execute_batch("COMMIT").map_err(|error| CommitError::Unknown(error.into())));
        let written = written.map_err(|error| self.recognised(error));
        if written.is_err() {
            self.roll_back();
        }
        written
    }

    /// Notes what is durable.
    fn note(&mut self) {
        if !self.is_former {
            self.durable.note(self.position, self.chain);
        }
    }

    /// Writes a batch, and returns once it is durable.
    pub(crate) fn commit(&mut self, batch: &Batch, expired_before: i64) -> Result<(), CommitError> {
        let base = batch.replaced.map_or(self.position, |(position, _)| position);
        let position = batch.changes.last().map_or(base, |last| last.position);
        let was_untidy = self.is_untidy();
        let mut written = self.write(batch, position, expired_before);
        if written.is_err() && self.is_untidy() && !was_untidy {
            // Only what is old has failed, and has taken the transaction with it.
            self.roll_back();
            written = self.write(batch, position, expired_before);
        }
        let written = written.and_then(|written| {
            if batch.replaced.is_some() {
                // The position may go back: a log that ends before it has not lost anything.
                self.durable.begin_again().map_err(|error| CommitError::Rejected(error.into()))?;
            }
            if let Some(hook) = &self.hook {
                hook.before_commit(&self.connection).map_err(rejected)?;
            }
            Ok(written)
        });
        let (unmoved, chain) = match written {
            Ok(written) => written,
            Err(error) => {
                self.roll_back();
                return Err(self.recognised(error));
            }
        };
        let sent = self.hook.as_ref().map_or(Ok(()), |hook| hook.at_commit());
        // Even if the disk is full, the commit may be in the file: only what follows it in its sector has no space then.
        if let Err(error) = sent.and_then(|()| self.connection.execute_batch("COMMIT")) {
            self.roll_back();
            return Err(self.recognised(CommitError::Unknown(error.into())));
        }
        if let Some(hook) = &self.hook {
            hook.after_commit();
        }
        (self.position, self.chain, self.unmoved) = (position, chain, unmoved);
        if !batch.changes.is_empty() || batch.replaced.is_some() {
            self.note();
        }
        if self.oldest_at.is_none_or(|at| at < expired_before)
            && let Err(error) = self.find_oldest()
        {
            tracing::warn!(%error, "the oldest change of the log was not found; the next write looks again");
        }
        Ok(())
    }

    /// Returns an error of a commit as that of a full disk, if that is what it comes from.
    fn recognised(&self, error: CommitError) -> CommitError {
        let recognised = |source: nameservice_model::BoxError| match source.downcast() {
            Ok(error) => space::recognised(&self.path, *error).into(),
            Err(other) => other,
        };
        match error {
            CommitError::Rejected(source) => CommitError::Rejected(recognised(source)),
            CommitError::Unknown(source) => CommitError::Unknown(recognised(source)),
        }
    }

    /// Executes the statements of a batch that ends at a position. Returns how many changes `tail` then has, and the
    /// checksum of all changes.
    fn write(&self, batch: &Batch, position: u64, expired_before: i64) -> Result<(usize, u32), CommitError> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(rejected)?;
        let connection = &self.connection;
        if let Some((position, at)) = batch.replaced {
            connection
                .execute_batch("DELETE FROM log; DELETE FROM tail; DELETE FROM records; DELETE FROM memories")
                .map_err(rejected)?;
            let base = "UPDATE replica SET base = ?1, base_at = ?2";
            connection.execute(base, params![position, at]).map_err(rejected)?;
        }
        let mut append = connection
            .prepare_cached("INSERT INTO tail (position, at, address, body) VALUES (?1, ?2, ?3, ?4)")
            .map_err(rejected)?;
        let mut chain = if batch.replaced.is_some() { 0 } else { self.chain };
        for entry in &batch.changes {
            let row;
            (row, chain) = rows::sealed_change(chain, entry.position, entry.at, &entry.address, &entry.body);
            append.execute(params![entry.position, entry.at, &*entry.address, row]).map_err(rejected)?;
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
        for (address, memory) in &batch.memories {
            match memory {
                Some(memory) => {
                    let body = rows::encode_memory(address, memory);
                    let body = body.map_err(|error| CommitError::Rejected(error.into()))?;
                    let mut put = connection
                        .prepare_cached("REPLACE INTO memories (address, body) VALUES (?1, ?2)")
                        .map_err(rejected)?;
                    put.execute(params![&**address, body]).map_err(rejected)?;
                }
                None => {
                    let mut delete =
                        connection.prepare_cached("DELETE FROM memories WHERE address = ?1").map_err(rejected)?;
                    delete.execute([&**address]).map_err(rejected)?;
                }
            }
        }
        let unmoved = if batch.replaced.is_some() { 0 } else { self.unmoved };
        let unmoved = self.tidy(batch, unmoved + batch.changes.len(), position, expired_before).map_err(rejected)?;
        Ok((unmoved, chain))
    }

    /// Moves the changes of `tail` if they are many, and removes expired ones. Returns how many changes `tail` then has. If
    /// old changes are damaged, they stay where they are, and the batch is written all the same.
    fn tidy(&self, batch: &Batch, unmoved: usize, position: u64, expired_before: i64) -> rusqlite::Result<usize> {
        let is_moved = unmoved >= MOVED && !batch.is_empty();
        let is_trimmed = self.oldest_at().is_some_and(|at| at < expired_before);
        if self.is_untidy() || !(is_moved || is_trimmed) {
            return Ok(unmoved);
        }
        let connection = &self.connection;
        let tidy = || {
            connection.execute_batch("SAVEPOINT tidy")?;
            if is_moved {
                connection.prepare_cached("INSERT INTO log SELECT * FROM tail")?.execute([])?;
                connection.prepare_cached("DELETE FROM tail")?.execute([])?;
            }
            if is_trimmed {
                // Twice as many as were added, so that a backlog is eventually removed.
                trim(connection, expired_before, position, TRIM.max(2 * batch.changes.len()))?;
            }
            connection.execute_batch("RELEASE tidy")
        };
        let Err(error) = tidy() else {
            self.untidy_since.set(None);
            return Ok(if is_moved { 0 } else { unmoved });
        };
        self.untidy_since.set(Some(Instant::now()));
        counter!("nameservice_log_maintenance_failures_total").increment(1);
        let again = "old changes of the log were not moved or removed, and are tried again in a minute";
        match is_passing(&error) {
            true => tracing::warn!(%error, "{again}"),
            false => tracing::error!(%error, "{again}: examine the log with `nameservice doctor`"),
        }
        // After some errors, as those of the disk, SQLite has rolled back all of the transaction.
        match connection.execute_batch("ROLLBACK TO tidy; RELEASE tidy") {
            Ok(()) => Ok(unmoved),
            Err(_) => Err(error),
        }
    }

    /// Returns how long to wait before old changes that could not be moved or removed are tried again.
    pub(crate) fn untidy_for(&self) -> Option<Duration> {
        self.untidy_since.get().and_then(|since| UNTIDY.checked_sub(since.elapsed()))
    }

    fn is_untidy(&self) -> bool {
        self.untidy_for().is_some()
    }

    /// Returns when the oldest removable change was recorded; `None` if none can be removed for now. The last change is
    /// never removed.
    pub(crate) fn oldest_at(&self) -> Option<i64> {
        self.oldest_at.filter(|_| !self.is_untidy())
    }

    fn find_oldest(&mut self) -> rusqlite::Result<()> {
        let oldest = "SELECT position, at FROM changes ORDER BY position LIMIT 1";
        let mut oldest = self.connection.prepare_cached(oldest)?;
        let mut rows = oldest.query([])?;
        let oldest =
            rows.next()?.map(|row| Ok::<_, rusqlite::Error>((row.get::<_, u64>(0)?, row.get(1)?))).transpose()?;
        self.oldest_at = oldest.filter(|(position, _)| *position < self.position).map(|(_, at)| at);
        Ok(())
    }

    /// Makes a checkpoint if the write-ahead file has grown enough. A reader of the file may prevent it for a while.
    pub(crate) fn checkpoint_if_due(&mut self) -> rusqlite::Result<()> {
        let before = std::mem::replace(&mut self.frames, FRAMES.get());
        if self.frames < before {
            // The file is being written from its beginning again.
            self.checkpoint_at = self.checkpoint_frames;
        }
        if self.frames < self.checkpoint_at { Ok(()) } else { self.checkpoint() }
    }

    /// Makes a checkpoint: moves the content of the write-ahead file into the database. The file keeps its size and is
    /// written again from its beginning. As long as no file grows, a sync is one disk write instead of several.
    fn checkpoint(&mut self) -> rusqlite::Result<()> {
        self.checkpoint_at = self.frames + self.checkpoint_frames;
        self.checkpoint_as("PASSIVE")?;
        if let Some(hook) = &self.hook {
            hook.after_checkpoint();
        }
        Ok(())
    }

    /// Moves the content of the write-ahead file into the database, and truncates the file.
    pub(crate) fn empty(&mut self) -> rusqlite::Result<()> {
        self.checkpoint_as("TRUNCATE")?;
        if let Some(hook) = &self.hook {
            hook.after_checkpoint();
        }
        Ok(())
    }

    fn checkpoint_as(&self, mode: &str) -> rusqlite::Result<()> {
        let checkpoint = format!("PRAGMA wal_checkpoint({mode})");
        let made = self.connection.query_row(&checkpoint, [], |_| Ok(()));
        made.map_err(|error| space::recognised(&self.path, error))
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction of the log was not rolled back");
        }
    }
}

/// Returns the path as a URI with which SQLite does not rely on power-safe overwrites: each commit ends on its own
/// sector, so that a sector torn by the next commit holds nothing that was acknowledged.
pub(crate) fn torn_sector_safe(path: &Path) -> PathBuf {
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

/// Opens a connection that makes no checkpoint when it is closed: after a failed sync the write-ahead file may no
/// longer be used.
pub(crate) fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    sync_fully(&connection)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // There is no other writer, and what a reader blocks is tried again later.
    connection.busy_timeout(std::time::Duration::ZERO)?;
    connection.set_prepared_statement_cache_capacity(16);
    Ok(connection)
}

/// Has macOS write the cache of the disk, too, where a sync leaves what was written otherwise. Other systems do so anyway.
fn sync_fully(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)
}

/// Returns the identity of a log, and the last position that was written without checksums; `None` if it has the format
/// before.
pub(crate) fn identity_of(connection: &Connection) -> rusqlite::Result<Option<(String, u64)>> {
    let format: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if format == FORMER_FORMAT {
        return Ok(None);
    }
    connection.query_row("SELECT id, checked_after FROM identity", [], |row| Ok((row.get(0)?, row.get(1)?))).map(Some)
}

/// Returns what the log is a replica of; `None` if it is not a replica.
pub(crate) fn upstream_of(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let mut tables = connection.prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'replica'")?;
    if !tables.exists([])? {
        return Ok(None);
    }
    connection.query_row("SELECT upstream FROM replica", [], |row| row.get(0)).map(Some)
}

/// Returns the position of a log: that of its last change, or of the snapshot that a replica began with.
pub(crate) fn position_of(connection: &Connection, last: u64) -> rusqlite::Result<u64> {
    match upstream_of(connection)? {
        Some(_) => Ok(connection.query_row("SELECT base FROM replica", [], |row| row.get::<_, u64>(0))?.max(last)),
        None => Ok(last),
    }
}

/// Removes at most `at_most` expired changes before a position, oldest first.
fn trim(connection: &Connection, expired_before: i64, position: u64, at_most: usize) -> rusqlite::Result<()> {
    for table in ["log", "tail"] {
        let mut trim = connection.prepare_cached(&format!(
            "DELETE FROM {table} WHERE position IN (
                 SELECT position FROM (SELECT position, at FROM {table} ORDER BY position LIMIT ?2)
                 WHERE at < ?1 AND position < ?3)",
        ))?;
        if trim.execute(params![expired_before, at_most, position])? > 0 {
            break;
        }
    }
    Ok(())
}
