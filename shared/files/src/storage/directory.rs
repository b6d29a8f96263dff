//! A local directory, shared with Fluree's servers.
//!
//! Writers exclude each other by `flock` on Fluree's own lock files. A file is written beside its place, synced, and
//! renamed onto it; then its directory is synced. Neither a lock file is ever deleted, nor a symbolic link followed.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, ErrorKind, Read as _, Write as _},
    path::{Component, Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use bytes::Bytes;
use nameservice_model::{Error, Result};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task::spawn_blocking,
    time::timeout,
};

use super::{Blob, Entry, Guard, Storage, Version, Written, epoch_ms, failed};
use crate::{codec::Content, names};

/// Mutexes on which the writers of this process wait for each other, so that few threads block on file locks.
const SHARDS: usize = 128;
const READ: &str = "read a file";
const WRITE: &str = "write a file";
const LOCK: &str = "lock a file";
const LIST: &str = "list a directory";
/// The environment variable by which Fluree turns syncing off.
const FSYNC: &str = "FLUREE_STORAGE_FSYNC";

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the directory {}", path.display())]
pub struct DirectoryError {
    path: PathBuf,
    source: io::Error,
}

/// The files under a directory.
#[derive(Clone)]
pub(crate) struct Directory {
    /// The canonical path, without symbolic links.
    root: PathBuf,
    shards: Arc<[Arc<Mutex<()>>]>,
    stages: Arc<AtomicU64>,
    sync: bool,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Directory {
    /// Opens the files under this directory. With `create`, a missing directory is created.
    pub(crate) fn open(path: &Path, create: bool) -> Result<Self, DirectoryError> {
        let open = || {
            if create {
                fs::create_dir_all(path)?;
            }
            let root = fs::canonicalize(path)?;
            match fs::metadata(&root)?.is_dir() {
                true => Ok(root),
                false => Err(ErrorKind::NotADirectory.into()),
            }
        };
        let root = open().map_err(|source| DirectoryError { path: path.to_owned(), source })?;
        let sync = !std::env::var(FSYNC)
            .is_ok_and(|value| ["0", "false", "off", "no"].contains(&&*value.trim().to_ascii_lowercase()));
        let shards = (0..SHARDS).map(|_| Arc::default()).collect();
        Ok(Self { root, shards, stages: Arc::default(), sync })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a file, if no part of it leads out of the directory.
    fn path(&self, key: &str) -> io::Result<PathBuf> {
        let relative = Path::new(key);
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if key.contains(['\0', '\\']) || !relative.components().all(is_plain) || key.split('/').any(str::is_empty) {
            return Err(invalid(format!("`{}` is not a path inside the directory", key.escape_debug())));
        }
        let path = self.root.join(relative);
        let mut part = self.root.clone();
        for component in relative.components() {
            part.push(component);
            match fs::symlink_metadata(&part) {
                Ok(found) if found.file_type().is_symlink() => {
                    return Err(invalid(format!("{} is a symbolic link, which is not followed", part.display())));
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(path)
    }

    pub(crate) fn read_now(&self, key: &str) -> io::Result<Option<Blob>> {
        let path = self.path(key)?;
        let absent = |error: io::Error| match error.kind() {
            // If a parent is a file, there is nothing under it.
            ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
            _ => Err(error),
        };
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) => return absent(error),
        };
        let found = file.metadata()?;
        if found.len() == 0 || !found.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(0).min(1 << 20));
        file.read_to_end(&mut bytes)?;
        let modified = epoch_ms(found.modified()?);
        Ok(Some(Blob { content: Content { bytes: bytes.into(), modified }, version: Version::default() }))
    }

    /// Writes a staging file beside the final path. The caller renames or removes it.
    fn stage(&self, path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let n = self.stages.fetch_add(1, Ordering::Relaxed);
        let stage = path.with_file_name(format!("{name}.{}.{n}.tmp", std::process::id()));
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&stage)?;
            file.write_all(bytes)?;
            if self.sync { file.sync_all() } else { Ok(()) }
        };
        match write() {
            Ok(()) => Ok(stage),
            Err(error) => {
                let _ = fs::remove_file(&stage);
                Err(error)
            }
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        match path.parent().filter(|_| self.sync) {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    }

    /// Creates the parent directories of a file, and makes each durable.
    fn make_parents(&self, path: &Path) -> io::Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if parent.is_dir() {
            return Ok(());
        }
        self.make_parents(parent)?;
        match fs::create_dir(parent) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.sync_directory(parent)
    }

    pub(crate) fn create_now(&self, key: &str, bytes: &[u8]) -> Result<Written> {
        let path = self.path(key).map_err(not_written)?;
        let stage = self.make_parents(&path).and_then(|()| self.stage(&path, bytes)).map_err(not_written)?;
        // Fluree creates files without a lock. If it was faster, a link fails, where a rename would overwrite its file.
        let linked = fs::hard_link(&stage, &path);
        let placed = match linked {
            Ok(()) => Ok(Written::Done),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                match fs::metadata(&path).map(|found| found.len()) {
                    // An empty file counts as absent.
                    Ok(0) => fs::rename(&stage, &path).map(|()| Written::Done),
                    _ => Ok(Written::Overtaken),
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) => {
                self.create_in_place(&path, bytes)
            }
            Err(error) => Err(error),
        };
        let _ = fs::remove_file(&stage);
        match placed.map_err(not_written)? {
            Written::Done => self.sync_directory(&path).map_err(maybe_written).map(|()| Written::Done),
            Written::Overtaken => Ok(Written::Overtaken),
        }
    }

    /// Creates a file without staging, for file systems without hard links.
    fn create_in_place(&self, path: &Path, bytes: &[u8]) -> io::Result<Written> {
        let mut file = match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Written::Overtaken),
            Err(error) => return Err(error),
        };
        file.write_all(bytes)?;
        if self.sync {
            file.sync_all()?;
        }
        Ok(Written::Done)
    }

    pub(crate) fn replace_now(&self, key: &str, bytes: &[u8]) -> Result<Written> {
        let path = self.path(key).map_err(not_written)?;
        let stage = self.stage(&path, bytes).map_err(not_written)?;
        if let Err(error) = fs::rename(&stage, &path) {
            let _ = fs::remove_file(&stage);
            return Err(not_written(error));
        }
        self.sync_directory(&path).map_err(maybe_written)?;
        Ok(Written::Done)
    }

    pub(crate) fn delete_now(&self, key: &str) -> Result<()> {
        let path = self.path(key).map_err(not_written)?;
        match fs::remove_file(&path) {
            Ok(()) => self.sync_directory(&path).map_err(maybe_written),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            Err(error) => Err(not_written(error)),
        }
    }

    /// Lists every file below a directory, skipping symbolic links.
    pub(crate) fn list_now(&self, under: &str) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        let mut left = vec![under.trim_end_matches('/').to_owned()];
        while let Some(directory) = left.pop() {
            let path = match self.path(&directory) {
                Ok(path) => path,
                Err(error) if error.kind() == ErrorKind::InvalidInput => continue,
                Err(error) => return Err(error),
            };
            let entries = match fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry?;
                // No record has a file name that is not UTF-8.
                let Ok(name) = entry.file_name().into_string() else { continue };
                let key = format!("{directory}/{name}");
                // Lock files are half of all files, and empty.
                if key.ends_with(".lock") {
                    continue;
                }
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    left.push(key);
                } else if kind.is_file() {
                    // It may be gone by now.
                    let Ok(about) = entry.metadata() else { continue };
                    let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                    found.push(Entry {
                        key,
                        modified: epoch_ms(modified),
                        stamp: stamp(&about, modified),
                        is_empty: about.len() == 0,
                    });
                }
            }
        }
        Ok(found)
    }

    /// Opens and locks a lock file. Lock files are never deleted: that would let two writers in.
    fn lock_now(&self, key: &str) -> io::Result<File> {
        let path = self.path(key)?;
        self.make_parents(&path)?;
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => file.lock().map(|()| file),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn shard(&self, key: &str) -> usize {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        usize::try_from(hasher.finish() % SHARDS as u64).unwrap_or(0)
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        run: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let directory = self.clone();
        spawn_blocking(move || run(&directory)).await.map_err(|error| failed(operation, error))?
    }
}

#[async_trait]
impl Storage for Directory {
    fn locks(&self) -> bool {
        true
    }

    async fn lock(&self, keys: &[String], at_most: Duration) -> Result<Guard> {
        let mut locks: Vec<String> = keys.iter().map(|key| names::lock_key(key)).collect();
        // Locks are always taken in the same order, to avoid deadlocks.
        locks.sort();
        locks.dedup();
        let mut shards: Vec<usize> = locks.iter().map(|lock| self.shard(lock)).collect();
        shards.sort_unstable();
        shards.dedup();
        let all = async {
            let mut held: Vec<OwnedMutexGuard<()>> = Vec::with_capacity(shards.len());
            for shard in shards {
                held.push(self.shards[shard].clone().lock_owned().await);
            }
            let lock = move |directory: &Self| {
                locks.iter().map(|lock| directory.lock_now(lock).map_err(not_locked)).collect::<Result<Vec<_>>>()
            };
            // File locks are released before the mutexes, so that the next writer of this process finds the files unlocked.
            self.run(LOCK, lock).await.map(|files| Guard(Box::new((files, held))))
        };
        let expired = |_| Error::Unavailable {
            operation: LOCK,
            source: Some("another program holds the lock of the record".into()),
        };
        timeout(at_most, all).await.map_err(expired)?
    }

    async fn read(&self, key: &str) -> Result<Option<Blob>> {
        let key = key.to_owned();
        self.run(READ, move |directory| directory.read_now(&key).map_err(not_read)).await
    }

    async fn read_all(&self, keys: Vec<String>) -> Vec<Result<Option<Blob>>> {
        let count = keys.len();
        let read = move |directory: &Self| {
            Ok(keys.iter().map(|key| directory.read_now(key).map_err(not_read)).collect::<Vec<_>>())
        };
        match self.run(READ, read).await {
            Ok(all) => all,
            Err(error) => (0..count).map(|_| Err(failed(READ, error.to_string()))).collect(),
        }
    }

    async fn create(&self, key: &str, bytes: Bytes) -> Result<Written> {
        let key = key.to_owned();
        self.run(WRITE, move |directory| directory.create_now(&key, &bytes)).await
    }

    async fn replace(&self, key: &str, bytes: Bytes, _: &Version) -> Result<Written> {
        let key = key.to_owned();
        self.run(WRITE, move |directory| directory.replace_now(&key, &bytes)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        let key = key.to_owned();
        self.run(WRITE, move |directory| directory.delete_now(&key)).await
    }

    async fn list(&self, under: &str) -> Result<Vec<Entry>> {
        let under = under.to_owned();
        self.run(LIST, move |directory| directory.list_now(&under).map_err(|error| failed(LIST, error))).await
    }

    fn describe(&self, key: &str) -> String {
        self.root.join(key).display().to_string()
    }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, reason)
}

fn not_read(error: io::Error) -> Error {
    failed(READ, error)
}

/// The error of a write that has changed nothing.
fn not_written(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem => {
            Error::Unavailable { operation: WRITE, source: Some(error.into()) }
        }
        _ => failed(WRITE, error),
    }
}

/// The error of a write that may not be durable.
fn maybe_written(error: io::Error) -> Error {
    Error::OutcomeUnknown { operation: WRITE, source: Some(error.into()) }
}

fn not_locked(error: io::Error) -> Error {
    failed(LOCK, error)
}

fn stamp(about: &fs::Metadata, modified: SystemTime) -> String {
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(about);
    #[cfg(not(unix))]
    let inode = 0;
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{inode}", since.as_nanos(), about.len())
}
