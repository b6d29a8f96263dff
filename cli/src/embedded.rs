//! The embedded engine: DynamoDB's protocol over SQLite, inside this process.
//!
//! It runs SQLite under one mutex on whichever worker took the request, so it has a thread and a runtime of its own,
//! where it cannot hold up the service's.

use std::{
    collections::HashMap,
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use dynoxide::Database;
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

/// The file that holds the data.
const DATABASE_FILE: &str = "nameservice.db";
/// The file whose lock says that a process uses the data.
const LOCK_FILE: &str = "lock";
/// What the engine adds to the sequence number of a stream record when it shows it: 21 digits are the least that
/// DynamoDB's have.
const SEQUENCE_NUMBER_OFFSET: u128 = 100_000_000_000_000_000_000;
/// How many stream records one transaction deletes: requests wait while it runs, for about a millisecond.
const STREAM_RECORDS_PER_TRIM: u32 = 500;
const TRIM_EVERY: Duration = Duration::from_secs(1);
/// DynamoDB promises to delete expired rows within days; this is often enough.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// How long a write of ours waits for the engine's to finish.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long running requests may take to finish when the engine stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the engine did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Another process holds the lock of the directory.
    #[error(
        "the data in {} is in use by another nameservice{}: talk to that one with --url, stop it, or choose another \
         directory with --data",
        directory.display(),
        process.as_deref().map(|id| format!(" (process {id})")).unwrap_or_default()
    )]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The process that holds it, where it has said so.
        process: Option<String>,
    },
    /// The directory or a file in it cannot be used.
    #[error("cannot use {}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The database cannot be opened.
    #[error("cannot open the database {location}")]
    Database {
        /// Which.
        location: String,
        /// Why.
        #[source]
        source: nameservice_model::BoxError,
    },
    /// No loopback port, or no thread, was to be had.
    #[error("cannot start the embedded engine")]
    Start(#[source] io::Error),
}

/// A running engine. It stops when dropped.
///
/// It listens on a loopback port of the system's choosing, asks nobody for credentials, and so trusts every local
/// process that finds the port.
#[derive(Debug)]
pub struct Engine {
    address: SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    server: Option<thread::JoinHandle<()>>,
    /// Held, never written: dropping it ends the housekeeping.
    housekeeping_stop: Option<mpsc::Sender<()>>,
    housekeeping: Option<thread::JoinHandle<()>>,
    trimmer: Trimmer,
    /// Unlocked last, once nothing writes to the directory any more.
    _lock: Option<File>,
}

impl Engine {
    /// Opens the database of a directory, making both where they are missing.
    ///
    /// What was acknowledged is on the disk: SQLite keeps a write-ahead log and syncs it with every commit
    /// (`synchronous = FULL`), so neither a killed process nor a lost power supply takes it back.
    pub fn open(directory: &Path) -> Result<Self, EngineError> {
        let lock = lock(directory)?;
        let path = directory.join(DATABASE_FILE);
        // A path could be taken for a URI; `file:` in front would need escaping, `./` does not.
        let location = if path.is_absolute() { path.clone() } else { Path::new(".").join(&path) };
        let location = location.to_str().ok_or_else(|| EngineError::Directory {
            path: path.clone(),
            source: io::Error::new(io::ErrorKind::InvalidInput, "its name is not UTF-8"),
        })?;
        Self::start(location, Some(lock))
    }

    /// An empty database in memory, gone when the engine stops.
    pub fn in_memory() -> Result<Self, EngineError> {
        // The `memdb` file system of SQLite shares a database of this name between the connections of one process,
        // which the housekeeping needs; `:memory:` is private to its connection.
        let location = format!("file:/{}?vfs=memdb", uuid::Uuid::new_v4().simple());
        Self::start(&location, None)
    }

    /// Where the engine listens, as an endpoint URL for an SDK.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// For the consumer of the streams: what it has passed is dropped. Nothing else ever is.
    pub fn trimmer(&self) -> Trimmer {
        self.trimmer.clone()
    }

    /// Stops the engine: running requests finish, the database is closed, the directory is unlocked.
    pub fn stop(self) {
        drop(self);
    }

    fn start(location: &str, lock: Option<File>) -> Result<Self, EngineError> {
        let refused =
            |source: nameservice_model::BoxError| EngineError::Database { location: location.to_owned(), source };
        let database = Database::new(location).map_err(|error| refused(error.into()))?;
        let stream = StreamTable::open(location).map_err(|error| refused(error.into()))?;

        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(EngineError::Start)?;
        listener.set_nonblocking(true).map_err(EngineError::Start)?;
        let address = listener.local_addr().map_err(EngineError::Start)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(EngineError::Start)?;

        let (shutdown, stopped) = oneshot::channel();
        let served = database.clone();
        let server = thread::Builder::new()
            .name("embedded-engine".to_owned())
            .spawn(move || serve(&runtime, listener, served, stopped))
            .map_err(EngineError::Start)?;
        let (housekeeping_stop, ticks) = mpsc::channel();
        let trimmer = Trimmer::default();
        let passed = trimmer.clone();
        let housekeeping = thread::Builder::new()
            .name("embedded-housekeeping".to_owned())
            .spawn(move || keep_house(&database, &stream, &passed, &ticks))
            .map_err(EngineError::Start)?;

        Ok(Self {
            address,
            shutdown: Some(shutdown),
            server: Some(server),
            housekeeping_stop: Some(housekeeping_stop),
            housekeeping: Some(housekeeping),
            trimmer,
            _lock: lock,
        })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        drop(self.housekeeping_stop.take());
        drop(self.shutdown.take());
        for thread in [self.server.take(), self.housekeeping.take()].into_iter().flatten() {
            // A thread that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

fn lock(directory: &Path) -> Result<File, EngineError> {
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |source| EngineError::Directory { path, source }
    };
    make_private(directory).map_err(unusable(directory))?;
    let path = directory.join(LOCK_FILE);
    let mut file =
        File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(unusable(&path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let process = fs::read_to_string(&path).ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
            return Err(EngineError::InUse { directory: directory.to_owned(), process });
        }
        Err(TryLockError::Error(source)) => return Err(EngineError::Directory { path, source }),
    }
    // Told to whoever finds the directory locked.
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(unusable(&path))?;
    Ok(file)
}

/// Configurations may hold secrets: a directory that is made here is its owner's alone.
fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

fn serve(runtime: &tokio::runtime::Runtime, listener: TcpListener, database: Database, stopped: oneshot::Receiver<()>) {
    let served: Result<(), String> = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).map_err(|error| error.to_string())?;
        let (stop_serving, told_to_stop) = oneshot::channel::<()>();
        let server = dynoxide::server::serve_with_shutdown(listener, database, async {
            let _ = told_to_stop.await;
        });
        tokio::pin!(server);
        tokio::select! {
            ended = &mut server => return ended,
            _ = stopped => drop(stop_serving),
        }
        // A client that sent half a request would hold the server for ever.
        tokio::time::timeout(SHUTDOWN_TIMEOUT, server).await.unwrap_or(Ok(()))
    });
    if let Err(error) = served {
        tracing::error!(%error, "the embedded engine stopped serving");
    }
}

/// Tells the engine which stream records nobody will ask for again.
#[derive(Clone, Debug, Default)]
pub struct Trimmer(Arc<Mutex<HashMap<String, i64>>>);

impl Trimmer {
    /// The stream of this table was read up to this sequence number, and that is remembered elsewhere: soon the records
    /// before it are dropped.
    pub fn passed(&self, table: &str, sequence_number: &str) {
        let stored = sequence_number.parse().ok().and_then(|shown: u128| shown.checked_sub(SEQUENCE_NUMBER_OFFSET));
        match stored.and_then(|stored| i64::try_from(stored).ok()) {
            Some(stored) => {
                self.all().insert(table.to_owned(), stored);
            }
            None => tracing::error!(sequence_number, "this is no sequence number of the embedded engine"),
        }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<String, i64>> {
        // A map of numbers is whole whatever its holder did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Trims the streams and removes expired rows until the sender of `ticks` is gone.
fn keep_house(database: &Database, stream: &StreamTable, passed: &Trimmer, ticks: &mpsc::Receiver<()>) {
    let mut swept = Instant::now();
    while ticks.recv_timeout(TRIM_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
        let passed: Vec<_> = passed.all().drain().collect();
        for (table, sequence_number) in passed {
            if let Err(error) = stream.trim(&table, sequence_number) {
                tracing::warn!(%error, table, "the embedded engine's stream was not trimmed; it will be once more of it was read");
            }
        }
        if swept.elapsed() >= SWEEP_EVERY {
            swept = Instant::now();
            if let Err(error) = database.sweep_ttl() {
                tracing::warn!(%error, "expired rows were not removed; the next round tries again");
            }
        }
    }
}

/// The engine's table of stream records, reached past the engine.
///
/// The engine finds the next sequence number by looking at every record that the stream of the table ever had, in each
/// write, and never drops one: at 8,000 records a write takes ten times as long as at first. An index answers that
/// question in one step, and trimming keeps the file from growing.
///
/// A table that was dropped and made again under its name has the records of the one before it too, as far as nobody has
/// passed them.
struct StreamTable {
    connection: Connection,
}

impl StreamTable {
    fn open(location: &str) -> rusqlite::Result<Self> {
        let connection = Connection::open(location)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // Losing a trim to a power failure costs nothing: it is done again.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.execute_batch(
            "CREATE INDEX IF NOT EXISTS nameservice_stream_sequence
             ON _stream_records (table_name, CAST(sequence_number AS INTEGER))",
        )?;
        Ok(Self { connection })
    }

    /// Drops the records of a table's stream that come before a sequence number, as it is stored. The one that has it
    /// stays: the engine counts on from the last, so that also with a clock that was put back no number comes twice.
    fn trim(&self, table: &str, before: i64) -> rusqlite::Result<()> {
        let mut delete = self.connection.prepare_cached(
            "DELETE FROM _stream_records WHERE id IN (
                 SELECT id FROM _stream_records
                 WHERE table_name = ?1 AND CAST(sequence_number AS INTEGER) < ?2
                 ORDER BY CAST(sequence_number AS INTEGER) LIMIT ?3)",
        )?;
        while delete.execute(params![table, before, STREAM_RECORDS_PER_TRIM])? > 0 {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_serves_one_engine_at_a_time() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        let engine = Engine::open(&directory).unwrap();
        let refused = Engine::open(&directory).unwrap_err();
        let message = refused.to_string();
        assert!(matches!(refused, EngineError::InUse { .. }));
        assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
        engine.stop();
        Engine::open(&directory).unwrap().stop();
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = Engine::open(&file.path().join("data")).unwrap_err().to_string();
        assert!(refused.contains("data"), "{refused}");
    }

    #[test]
    fn a_stream_is_trimmed_up_to_where_it_was_read_on_disk_and_in_memory() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.db");
        for location in [file.to_str().unwrap(), "file:/trim-test?vfs=memdb"] {
            // The engine makes the table; the test fills it.
            let _engine = Database::new(location).unwrap();
            let stream = StreamTable::open(location).unwrap();
            stream
                .connection
                .execute_batch(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1700)
                     INSERT INTO _stream_records
                         (table_name, event_name, keys_json, sequence_number, shard_id, created_at)
                     SELECT CASE WHEN i % 2 = 0 THEN 't' ELSE 'other' END, 'INSERT', '{}', CAST(i AS TEXT), 's', 0 FROM n",
                )
                .unwrap();
            let of = |table: &str| -> (i64, i64, i64) {
                let query = "SELECT COUNT(*), MIN(id), MAX(id) FROM _stream_records WHERE table_name = ?1";
                let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                stream.connection.query_row(query, [table], row).unwrap()
            };
            stream.trim("t", 1602).unwrap();
            assert_eq!(of("t"), (50, 1602, 1700));
            stream.trim("t", 1700).unwrap();
            assert_eq!(of("t"), (1, 1700, 1700));
            assert_eq!(of("other"), (850, 1, 1699));
        }
    }

    #[test]
    fn only_sequence_numbers_of_the_engine_trim() {
        let trimmer = Trimmer::default();
        for wrong in ["", "x", "12", "99999999999999999999", "1000000000000000000000000000000000000000"] {
            trimmer.passed("t", wrong);
        }
        assert!(trimmer.all().is_empty());
        trimmer.passed("t", "100000000000000000005");
        assert_eq!(trimmer.all().get("t"), Some(&5));
    }
}
