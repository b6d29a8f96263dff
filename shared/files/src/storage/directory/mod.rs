//! A local directory, shared with Fluree's servers.
//!
//! Writers exclude each other by `flock` on Fluree's own lock files. A file is written beside its place, synced, and
//! renamed onto it; then its directory is synced. Neither a lock file is ever deleted, nor a symbolic link followed.
//!
//! A directory that is not mounted looks like an empty one. So that nothing is taken for deleted in it, and nothing written
//! into it, every absence and every write is checked against what was last seen of `ns@v2` ([`Directory::check`]).

mod lists;
mod locks;
mod mount;
mod writes;

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, ErrorKind, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak, atomic::AtomicU64},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use nameservice_model::{Error, Result};
use tokio::{
    sync::{Mutex as Queue, OwnedMutexGuard},
    task::spawn_blocking,
    time::{Instant, timeout},
};

use self::mount::Known;
use super::{Blob, Entry, Guard, Storage, Version, Written, epoch_ms, failed};
use crate::{codec::Content, names};

pub(crate) use mount::Identity;

/// What the keys of all files of records begin with.
const ROOT_PREFIX: &str = "ns@v2/";
const READ: &str = "read a file";
const WRITE: &str = "write a file";
const LOCK: &str = "lock a file";
const LIST: &str = "list a directory";
const WATCH: &str = "watch a directory";
/// The environment variable by which Fluree turns syncing off.
const FSYNC: &str = "FLUREE_STORAGE_FSYNC";

/// The reason why a directory cannot be used.
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
    known: Arc<Mutex<Known>>,
    /// The writers of this process that lock the same file wait for each other here, in order.
    queues: Arc<Mutex<HashMap<String, Weak<Queue<()>>>>>,
    stages: Arc<AtomicU64>,
    sync: bool,
    #[cfg(test)]
    moments: Arc<Mutex<Option<Moment>>>,
    /// The error of every hard link, as on a file system without them.
    #[cfg(test)]
    pub(crate) links: Option<ErrorKind>,
}

/// What a test does before a file is looked at.
#[cfg(test)]
pub(crate) type Moment = Box<dyn FnMut(&str) + Send>;

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
        Ok(Self {
            root,
            known: Arc::default(),
            queues: Arc::default(),
            stages: Arc::default(),
            sync,
            #[cfg(test)]
            moments: Arc::default(),
            #[cfg(test)]
            links: None,
        })
    }

    /// Sets what happens before each look at a file; all clones share it.
    #[cfg(test)]
    pub(crate) fn at_each_moment(&self, moment: Option<Moment>) {
        *self.moments.lock().unwrap() = moment;
    }

    #[cfg(test)]
    fn moment(&self, key: &str) {
        if let Some(moment) = self.moments.lock().unwrap().as_mut() {
            moment(key);
        }
    }

    pub(crate) fn read_now(&self, key: &str) -> Result<Option<Blob>> {
        // Twice, since the directory may have been away at the first time, and be back when it is checked.
        for _ in 0..2 {
            match self.try_read(key) {
                Ok(found) => {
                    if found.is_some() {
                        self.note_seen(key);
                    }
                    return Ok(found);
                }
                Err(error) if is_absence(&error) => {
                    if self.check(READ)?.is_none() {
                        break;
                    }
                }
                Err(error) => return Err(self.not_read(READ, error)),
            }
        }
        Ok(None)
    }

    fn try_read(&self, key: &str) -> io::Result<Option<Blob>> {
        let mut file = File::open(self.path(key)?)?;
        let found = file.metadata()?;
        if found.len() == 0 || !found.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(found.len()).unwrap_or(0).min(1 << 20));
        file.read_to_end(&mut bytes)?;
        let modified = epoch_ms(found.modified()?);
        Ok(Some(Blob { content: Content { bytes: bytes.into(), modified }, version: Version::default() }))
    }

    /// Reads the end of a file, from the beginning of a line on; nothing if there is no file.
    pub(crate) fn tail_now(&self, key: &str, at_most: u64) -> io::Result<Vec<u8>> {
        let mut file = match File::open(self.path(key)?) {
            Err(error) if is_absence(&error) => return Ok(Vec::new()),
            opened => opened?,
        };
        let from = file.metadata()?.len().saturating_sub(at_most);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(at_most).read_to_end(&mut bytes)?;
        if from > 0 {
            let begun = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
            bytes.drain(..begun);
        }
        Ok(bytes)
    }

    /// The error of a read. A file that may not be read is one of its own kind: it hides no others.
    fn not_read(&self, operation: &'static str, error: io::Error) -> Error {
        let is_of_the_file = match error.kind() {
            ErrorKind::InvalidInput => match self.check(operation) {
                Ok(_) => true,
                Err(gone) => return gone,
            },
            ErrorKind::PermissionDenied => fs::read_dir(self.root.join(names::ROOT)).is_ok(),
            _ => false,
        };
        match is_of_the_file {
            true => failed(operation, error),
            false => Error::Unavailable { operation, source: Some(error.into()) },
        }
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
        let began = Instant::now();
        let all = async {
            let mut held: Vec<(File, OwnedMutexGuard<()>)> = Vec::with_capacity(locks.len());
            for lock in &locks {
                let turn = self.queue(lock).lock_owned().await;
                // The file is unlocked before the next writer of this process is let in, and so finds it unlocked.
                held.push((self.locked(lock).await?, turn));
            }
            Ok(Guard(Box::new(held)))
        };
        let expired = |_| Error::Unavailable {
            operation: LOCK,
            source: Some(format!("another writer has held the lock of the record for {:?}", began.elapsed()).into()),
        };
        timeout(at_most, all).await.map_err(expired)?
    }

    async fn read(&self, key: &str) -> Result<Option<Blob>> {
        let key = key.to_owned();
        self.run(READ, move |directory| directory.read_now(&key)).await
    }

    async fn read_all(&self, keys: Vec<String>) -> Vec<Result<Option<Blob>>> {
        let count = keys.len();
        let read = move |directory: &Self| Ok(keys.iter().map(|key| directory.read_now(key)).collect::<Vec<_>>());
        match self.run(READ, read).await {
            Ok(all) => all,
            Err(error) => (0..count).map(|_| Err(failed(READ, nameservice_model::chain(&error)))).collect(),
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
        self.run(LIST, move |directory| directory.list_now(&under)).await
    }

    fn describe(&self, key: &str) -> String {
        self.root.join(key).display().to_string()
    }
}

/// Whether there is no such file. If a parent is a file, there is nothing under it, and there is none of a name that is too long.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) || is_too_long(error)
}

/// Whether the file system has no names of this length.
fn is_too_long(error: &io::Error) -> bool {
    error.kind() == ErrorKind::InvalidFilename
}
