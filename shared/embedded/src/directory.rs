//! The directory of an embedded nameservice: its files, and the lock of the process that uses it.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode};

use crate::{OpenError, log::space::is_no_space};

/// The file that holds everything.
pub(crate) const LOG_FILE: &str = "nameservice.log.db";
/// A log that is being created.
pub(crate) const NEW_LOG_FILE: &str = "nameservice.log.db.new";
/// The file that names the last durable change of the log.
pub(crate) const DURABLE_FILE: &str = "nameservice.log.durable";
/// The file that is locked while a process uses the directory. It contains the id of the process.
const LOCK_FILE: &str = "lock";
/// The most bytes of the id of a process.
const LONGEST_ID: u64 = 20;
/// The database of the engine that emulated DynamoDB.
const FORMER_FILE: &str = "nameservice.db";

/// `application_id` of a log in the header of the SQLite file: "flns".
pub(crate) const APPLICATION_ID: u32 = 0x666c_6e73;
/// The format of the file, its `user_version`.
pub(crate) const FORMAT: u32 = 3;
/// The format without checksums, which is read, and converted when it is opened.
pub(crate) const FORMER_FORMAT: u32 = 2;

const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";
const HEADER_BYTES: usize = 100;
/// The offsets of `user_version` and `application_id` in the header.
const USER_VERSION: usize = 60;
const APPLICATION: usize = 68;

/// A directory that this process has locked. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The directory itself and the file are both locked: the file may be removed, and not every system locks
    /// directories.
    _locks: [Option<File>; 2],
}

impl Directory {
    /// Locks a directory that holds a log.
    pub(crate) fn existing(path: &Path) -> Result<Self, OpenError> {
        match Self::examine_unused(path)? {
            true => Self::lock(path),
            false => Err(OpenError::Missing { directory: path.to_owned() }),
        }
    }

    /// Locks a directory, and creates it if it is missing, accessible only to its owner because configs may hold
    /// secrets. Returns whether it holds a log.
    pub(crate) fn any(path: &Path) -> Result<(Self, bool), OpenError> {
        Self::examine_unused(path)?;
        create_directory(path).map_err(unusable(path))?;
        let directory = Self::lock(path)?;
        // Another process may have created the log meanwhile.
        let has_log = examine(path)?;
        Ok((directory, has_log))
    }

    /// Returns the path of the log.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join(LOG_FILE)
    }

    /// Returns the path at which a new log is created, before it gets its final name. Removes what an interrupted
    /// creation left there.
    pub(crate) fn new_log(&self) -> Result<PathBuf, OpenError> {
        let path = self.path.join(NEW_LOG_FILE);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unusable(&path)(error)),
            _ => Ok(path),
        }
    }

    /// Renames a new log to its final name, durably.
    pub(crate) fn adopt(&self, new: &Path) -> Result<(), OpenError> {
        let file = self.log();
        File::open(new).and_then(|new| new.sync_all()).map_err(unusable(new))?;
        fs::rename(new, &file).map_err(unusable(&file))?;
        sync_directory(&self.path).map_err(unusable(&self.path))
    }

    /// Examines a directory unless a process uses it, which may be this one. Changes nothing.
    fn examine_unused(path: &Path) -> Result<bool, OpenError> {
        let _locks = Self::locks(path, false)?;
        examine(path)
    }

    /// Locks a directory, whatever it holds.
    pub(crate) fn lock(directory: &Path) -> Result<Self, OpenError> {
        let mut locks = Self::locks(directory, true)?;
        if let [_, Some(file)] = &mut locks
            && is_of(file, &directory.join(LOCK_FILE))
        {
            // For the error message of a process that finds the directory locked. A full disk may have no place for it.
            let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        }
        Ok(Self { path: directory.to_owned(), _locks: locks })
    }

    /// Returns the path of the file that is locked.
    pub(crate) fn lock_file(&self) -> PathBuf {
        self.path.join(LOCK_FILE)
    }

    /// Locks a directory, and the file in it if that is there or is created.
    fn locks(directory: &Path, create: bool) -> Result<[Option<File>; 2], OpenError> {
        let path = directory.join(LOCK_FILE);
        let in_use = || OpenError::InUse { directory: directory.to_owned(), process: process_in(&path) };
        let itself = File::open(directory).ok();
        let is_locked = match itself.as_ref().map(try_lock) {
            Some(Err(TryLockError::WouldBlock)) => return Err(in_use()),
            Some(Ok(())) => true,
            // Some systems open or lock no directories.
            Some(Err(TryLockError::Error(_))) | None => false,
        };
        let file = match itself_only(File::options().read(true).write(true).create(create).truncate(false)).open(&path)
        {
            Ok(file) => Some(file),
            // What a link leads to is neither created nor locked, whoever made it.
            Err(_) if is_locked && path.is_symlink() => None,
            Err(_) if !create => None,
            // A full disk has no place for a new file: the lock of the directory is enough.
            Err(error) if is_locked && is_no_space(&error) => None,
            Err(source) => return Err(unusable(&path)(source)),
        };
        if let Some(file) = &file {
            match try_lock(file) {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(in_use()),
                Err(TryLockError::Error(source)) => return Err(unusable(&path)(source)),
            }
        }
        Ok([itself, file])
    }
}

/// Opens no file that a link leads to, and waits for none: whoever may write the directory could have the superuser create or show another.
fn itself_only(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    }
    options
}

/// Returns the id of the process that a file of a lock names; `None` unless it names one.
fn process_in(path: &Path) -> Option<String> {
    let file = itself_only(File::options().read(true)).open(path).ok().filter(|file| is_of(file, path))?;
    let mut id = String::new();
    file.take(LONGEST_ID).read_to_string(&mut id).ok()?;
    let id = id.trim();
    (!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())).then(|| id.to_owned())
}

/// Returns whether a file that was opened is the one of this name alone, and not one that has another name, too: whoever may write the
/// directory could have the superuser overwrite it.
fn is_of(file: &File, path: &Path) -> bool {
    let (Ok(opened), Ok(named)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    #[cfg(unix)]
    let is_same = {
        use std::os::unix::fs::MetadataExt as _;
        (opened.dev(), opened.ino()) == (named.dev(), named.ino()) && (opened.nlink(), named.nlink()) == (1, 1)
    };
    #[cfg(not(unix))]
    let is_same = true;
    is_same && opened.is_file() && named.is_file()
}

/// Locks a file. Tries for a moment: a child process that is being started holds the locks of its parent until it runs its
/// own program, also those that the parent has released meanwhile.
fn try_lock(file: &File) -> Result<(), TryLockError> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 1..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            decided => return decided,
        }
    }
    file.try_lock()
}

/// Returns whether a directory that is locked holds a log of a known format. Changes nothing.
pub(crate) fn examine(directory: &Path) -> Result<bool, OpenError> {
    let file = directory.join(LOG_FILE);
    if check_log(&file)? {
        return Ok(true);
    }
    // A new log would take over what belongs to the one that is gone.
    for left in [write_ahead(&file), journal(&file), directory.join(DURABLE_FILE)] {
        if fs::metadata(&left).is_ok_and(|left| left.len() > 0) {
            return Err(OpenError::Gone { path: file, left });
        }
    }
    let former = directory.join(FORMER_FILE);
    match former.try_exists() {
        Ok(true) => Err(OpenError::FormerEngine { path: former }),
        Ok(false) => Ok(false),
        // There is a file where the directory should be.
        Err(source) => Err(unusable(directory)(source)),
    }
}

/// Checks the header of a log that no process uses. Returns false if there is no file.
///
/// The file is opened and closed, and POSIX then drops all locks of this process on it: also those of SQLite, whose other users would
/// remove the write-ahead file in use. For a log that may be in use there is [`check_header`].
pub(crate) fn check_log(path: &Path) -> Result<bool, OpenError> {
    let mut header = [0; HEADER_BYTES];
    match File::open(path).and_then(|mut file| file.read_exact(&mut header)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(OpenError::NotALog { path: path.to_owned(), reason: "it is shorter than a header" });
        }
        Err(source) => return Err(unusable(path)(source)),
    }
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if header[..SQLITE_MAGIC.len()] != *SQLITE_MAGIC {
        return Err(OpenError::NotALog { path: path.to_owned(), reason: "it is not a SQLite database" });
    }
    check_format(path, number(APPLICATION), number(USER_VERSION)).map(|()| true)
}

/// Returns whether there is the file of a log. Does not open it.
pub(crate) fn has_log(path: &Path) -> Result<bool, OpenError> {
    match fs::metadata(path) {
        Ok(file) if file.len() < HEADER_BYTES as u64 => {
            Err(OpenError::NotALog { path: path.to_owned(), reason: "it is shorter than a header" })
        }
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(unusable(path)(source)),
    }
}

/// Checks the header of a log through a connection of SQLite: any process may use the log.
pub(crate) fn check_header(connection: &Connection, path: &Path) -> rusqlite::Result<Result<(), OpenError>> {
    let number = |name: &str| {
        let number = connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i32>(0));
        number.map(i32::cast_unsigned)
    };
    match number("application_id").and_then(|application| Ok((application, number("user_version")?))) {
        Ok((application, format)) => Ok(check_format(path, application, format)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Ok(Err(OpenError::NotALog { path: path.to_owned(), reason: "it is not a SQLite database" }))
        }
        Err(error) => Err(error),
    }
}

fn check_format(path: &Path, application: u32, format: u32) -> Result<(), OpenError> {
    if application != APPLICATION_ID {
        return Err(OpenError::NotALog { path: path.to_owned(), reason: "it is a database of another program" });
    }
    match format {
        FORMER_FORMAT | FORMAT => Ok(()),
        found if found > FORMAT => Err(OpenError::NewerFormat { path: path.to_owned(), found, known: FORMAT }),
        _ => Err(OpenError::NotALog { path: path.to_owned(), reason: "it has no known format" }),
    }
}

/// Returns the path of a log's write-ahead file.
pub(crate) fn write_ahead(log: &Path) -> PathBuf {
    beside(log, "-wal")
}

/// Returns the path of the index of a log's write-ahead file.
pub(crate) fn shared_memory(log: &Path) -> PathBuf {
    beside(log, "-shm")
}

/// Returns the path of the pages from before a transaction. A log has it until its first start has made it one with a write-ahead file;
/// with another log, SQLite would write those pages into it.
pub(crate) fn journal(log: &Path) -> PathBuf {
    beside(log, "-journal")
}

fn beside(log: &Path, end: &str) -> PathBuf {
    let mut path = log.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// Creates a directory with its parents, durably, if it is missing. It is accessible only to its owner.
pub(crate) fn create_directory(path: &Path) -> io::Result<()> {
    let missing = path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.is_dir()).count();
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    for parent in path.ancestors().skip(1).take(missing) {
        sync_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    }
    Ok(())
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    #[cfg(test)]
    SYNCED.with_borrow_mut(|synced| synced.push(path.to_owned()));
    #[cfg(unix)]
    File::open(path)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

#[cfg(test)]
thread_local! {
    /// The directories that this thread has made durable.
    static SYNCED: std::cell::RefCell<Vec<PathBuf>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn unusable(path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Embedded, Options};

    #[test]
    fn every_directory_with_a_new_entry_is_made_durable() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("a/b/data");
        drop(Embedded::open(&data, Options::default()).unwrap());
        // The parents of what was created, and the directory that the log was created in.
        let expected = [&data, &root.path().join("a/b"), &root.path().join("a"), root.path()].map(PathBuf::from);
        let mut synced = SYNCED.take();
        synced.sort();
        synced.reverse();
        assert_eq!(synced, expected);
        drop(Embedded::open(&data, Options::default()).unwrap());
        assert!(SYNCED.take().is_empty(), "nothing was created");
    }
}
