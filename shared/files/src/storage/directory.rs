//! A local directory, shared with Fluree's servers.
//!
//! Writers exclude each other by `flock` on Fluree's own lock files. A file is written beside its place, synced, and
//! renamed onto it; then its directory is synced. Neither a lock file is ever deleted, nor a symbolic link followed.
//!
//! A directory that is not mounted looks like an empty one. So that nothing is taken for deleted in it, and nothing written
//! into it, every absence and every write is checked against what was last seen of `ns@v2` ([`Directory::check`]).

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read as _, Write as _},
    path::{Component, Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use bytes::Bytes;
use nameservice_model::{Address, Error, Result};
use tokio::{
    sync::{Mutex as Queue, OwnedMutexGuard},
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};

use super::{Blob, Entry, Guard, Storage, Version, Written, epoch_ms, failed};
use crate::{codec::Content, names};

/// How many queues of writers are remembered before those that nobody is in are dropped.
const QUEUES: usize = 1_024;
/// How many directories of records are remembered as signs by which `ns@v2` is recognized.
const SIGNS: usize = 1_000;
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

/// Identifies a directory while it is mounted: its device and inode.
pub(crate) type Identity = (u64, u64);

/// What was last seen of `ns@v2`.
#[derive(Debug, Default)]
struct Known {
    identity: Option<Identity>,
    /// Some of the directories of records in it, by name. A place with another identity, as after a remount, is the same
    /// if it has one of them. They stay when the record is purged, since lock files do.
    signs: BTreeSet<String>,
}

impl Known {
    fn is_nothing(&self) -> bool {
        self.identity.is_none() && self.signs.is_empty()
    }
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

    /// Expects these records in it, which an earlier process has seen.
    pub(crate) fn expect(&self, records: impl Iterator<Item = Address>) {
        let signs = records.filter(names::is_readable).map(|address| address.name().to_owned());
        self.known().signs.extend(signs.take(SIGNS));
    }

    /// Returns the path of `ns@v2`, and what identifies it. It is created if there never was one.
    pub(crate) fn place(&self) -> Result<(PathBuf, Option<Identity>)> {
        let path = self.root.join(names::ROOT);
        let mut identity = self.check(WATCH)?;
        if identity.is_none() {
            if let Err(error) = fs::create_dir_all(&path) {
                tracing::warn!(%error, "{} cannot be created", path.display());
            }
            identity = self.check(WATCH)?;
        }
        Ok((path, identity))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that `ns@v2` is there, and is what it was when it was last seen. `None` if there is none, and never was.
    ///
    /// An error means that the directory is unmounted, unreadable or replaced: then no file is known to be absent.
    fn check(&self, operation: &'static str) -> Result<Option<Identity>> {
        #[cfg(test)]
        self.moment("");
        let path = self.root.join(names::ROOT);
        let gone = |reason: String| Error::Unavailable { operation, source: Some(reason.into()) };
        let found = match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => identity(&found),
            Ok(_) if self.known().is_nothing() => return Ok(None),
            Ok(_) => return Err(gone(format!("{} is no longer a directory: is it mounted?", path.display()))),
            Err(error) if is_absence(&error) => {
                if !self.known().is_nothing() {
                    return Err(gone(format!("{} no longer exists: is it mounted?", path.display())));
                }
                return match fs::metadata(&self.root) {
                    Ok(root) if root.is_dir() => Ok(None),
                    _ => Err(gone(format!("{} no longer exists: is it mounted?", self.root.display()))),
                };
            }
            Err(error) => return Err(Error::Unavailable { operation, source: Some(error.into()) }),
        };
        let signs = {
            let known = self.known();
            if known.identity == Some(found) {
                return Ok(Some(found));
            }
            known.signs.clone()
        };
        if !signs.is_empty() && !signs.iter().any(|sign| fs::symlink_metadata(path.join(sign)).is_ok()) {
            return Err(gone(format!(
                "{} is another directory, with none of the records that were last seen: is it mounted? If it was \
                 emptied on purpose, start again with a new --feed-data DIR",
                path.display()
            )));
        }
        self.known().identity = Some(found);
        Ok(Some(found))
    }

    /// The path of a file, if no part of it leads out of the directory.
    fn path(&self, key: &str) -> io::Result<PathBuf> {
        #[cfg(test)]
        self.moment(key);
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

    pub(crate) fn read_now(&self, key: &str) -> Result<Option<Blob>> {
        // Twice, since the directory may have been away at the first time, and be back when it is checked.
        for _ in 0..2 {
            match self.try_read(key) {
                Ok(found) => {
                    if found.is_some() {
                        self.saw(key);
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

    /// Remembers that a file is there, if nothing was listed so far.
    fn saw(&self, key: &str) {
        let mut known = self.known();
        if known.signs.is_empty()
            && let Some((of, _)) = key.strip_prefix(ROOT_PREFIX).and_then(|rest| rest.rsplit_once('/'))
        {
            known.signs.insert(of.to_owned());
        }
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
        if parent == self.root.join(names::ROOT) && !self.known().is_nothing() {
            return Err(io::Error::new(ErrorKind::NotFound, format!("{} is gone", parent.display())));
        }
        self.make_parents(parent)?;
        match fs::create_dir(parent) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.sync_directory(parent)
    }

    pub(crate) fn create_now(&self, key: &str, bytes: &[u8]) -> Result<Written> {
        let before = self.check(WRITE)?;
        let path = self.path(key).map_err(not_written)?;
        let stage = self.make_parents(&path).and_then(|()| self.stage(&path, bytes)).map_err(not_written)?;
        // Fluree creates files without a lock. If it was faster, a link fails, where a rename would overwrite its file.
        let linked = self.link(&stage, &path);
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
                Self::create_without_links(&stage, &path)
            }
            Err(error) => Err(error),
        };
        let _ = fs::remove_file(&stage);
        match placed.map_err(not_placed)? {
            Written::Done => self.sync_directory(&path).map_err(maybe_written)?,
            Written::Overtaken => return Ok(Written::Overtaken),
        }
        // The only write that makes directories: it may have made them where nothing is mounted any more.
        match fs::symlink_metadata(self.root.join(names::ROOT)) {
            Ok(found) if before.is_none_or(|before| before == identity(&found)) => Ok(Written::Done),
            Ok(_) => Err(maybe_written(io::Error::other("the directory was replaced meanwhile"))),
            Err(error) => Err(maybe_written(error)),
        }
    }

    fn link(&self, stage: &Path, path: &Path) -> io::Result<()> {
        #[cfg(test)]
        if let Some(kind) = self.links {
            return Err(kind.into());
        }
        fs::hard_link(stage, path)
    }

    /// Puts a new file in its place on a file system without hard links: an empty file, which counts as absent, takes the
    /// name, and is replaced. Whatever fails, and wherever a crash interrupts it, no part of a record is ever there.
    pub(crate) fn create_without_links(stage: &Path, path: &Path) -> io::Result<Written> {
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !fs::metadata(path).is_ok_and(|found| found.len() == 0) {
                    return Ok(Written::Overtaken);
                }
            }
            Err(error) => return Err(error),
        }
        fs::rename(stage, path).map(|()| Written::Done)
    }

    pub(crate) fn replace_now(&self, key: &str, bytes: &[u8]) -> Result<Written> {
        self.check(WRITE)?;
        let path = self.path(key).map_err(not_written)?;
        let stage = self.stage(&path, bytes).map_err(not_written)?;
        if let Err(error) = fs::rename(&stage, &path) {
            let _ = fs::remove_file(&stage);
            return Err(not_placed(error));
        }
        self.sync_directory(&path).map_err(maybe_written)?;
        Ok(Written::Done)
    }

    pub(crate) fn delete_now(&self, key: &str) -> Result<()> {
        let path = self.path(key).map_err(not_written)?;
        match fs::remove_file(&path) {
            Ok(()) => self.sync_directory(&path).map_err(maybe_written),
            Err(error) if is_absence(&error) => self.check(WRITE).map(drop),
            Err(error) => Err(not_placed(error)),
        }
    }

    /// Lists every file below a directory, skipping symbolic links. An error means that nothing is known to be absent.
    pub(crate) fn list_now(&self, under: &str) -> Result<Vec<Entry>> {
        self.check(LIST)?;
        let cannot = |error| self.not_read(LIST, error);
        let (mut found, mut vanished) = (Vec::new(), Vec::new());
        let (mut visited, mut signs) = (BTreeSet::new(), BTreeSet::new());
        let under = under.trim_end_matches('/');
        let mut left = vec![under.to_owned()];
        while let Some(directory) = left.pop() {
            let path = match self.path(&directory) {
                Ok(path) => path,
                Err(error) if error.kind() == ErrorKind::InvalidInput => continue,
                Err(error) => return Err(cannot(error)),
            };
            let entries = match fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(error) if is_absence(&error) => {
                    vanished.push(path);
                    continue;
                }
                Err(error) => return Err(Error::Unavailable { operation: LIST, source: Some(error.into()) }),
            };
            visited.extend(directory.strip_prefix(ROOT_PREFIX).map(str::to_owned));
            for entry in entries {
                let entry = entry.map_err(cannot)?;
                // No record has a file name that is not UTF-8.
                let Ok(name) = entry.file_name().into_string() else { continue };
                let key = format!("{directory}/{name}");
                let kind = entry.file_type().map_err(cannot)?;
                if kind.is_file()
                    && let Some(of) = directory.strip_prefix(ROOT_PREFIX)
                    && !signs.contains(of)
                {
                    signs.insert(of.to_owned());
                }
                // Lock files are half of all files, and empty.
                if key.ends_with(".lock") {
                    continue;
                }
                if kind.is_dir() {
                    left.push(key);
                } else if kind.is_file() {
                    match entry.metadata() {
                        Ok(about) => found.push(listed(key, &about)),
                        Err(error) if is_absence(&error) => vanished.push(entry.path()),
                        Err(error) => return Err(cannot(error)),
                    }
                }
            }
        }
        self.check(LIST)?;
        let is_whole = under == names::ROOT;
        let mut known = self.known();
        if is_whole && visited.is_disjoint(&known.signs) {
            vanished.extend(known.signs.iter().map(|sign| self.root.join(under).join(sign)));
        }
        // What was there before, and is there now, and was not in between: then the directory was away.
        if vanished.iter().any(|path| path.symlink_metadata().is_ok()) {
            let source = Some("it was away, or changed, while it was listed".into());
            return Err(Error::Unavailable { operation: LIST, source });
        }
        if is_whole {
            known.signs = signs.into_iter().take(SIGNS).collect();
        }
        Ok(found)
    }

    /// Returns those of these files that exist.
    pub(crate) fn entries_now(&self, keys: &BTreeSet<String>) -> Result<Vec<Entry>> {
        let mut found = Vec::new();
        for key in keys {
            let about = match self.path(key) {
                Ok(path) => fs::symlink_metadata(path),
                // A symbolic link, which lists skip.
                Err(error) if error.kind() == ErrorKind::InvalidInput => continue,
                Err(error) => Err(error),
            };
            match about {
                Ok(about) if about.is_file() => found.push(listed(key.clone(), &about)),
                Ok(_) => {}
                Err(error) if is_absence(&error) => {}
                Err(error) => return Err(self.not_read(LIST, error)),
            }
        }
        self.check(LIST).map(|_| found)
    }

    /// Opens and locks a lock file, unless another program holds the lock. Lock files are never deleted: that would let two
    /// writers in.
    fn lock_now(&self, key: &str) -> Result<Option<File>> {
        self.check(LOCK)?;
        let locked = || {
            let path = self.path(key)?;
            self.make_parents(&path)?;
            let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
            match file.try_lock() {
                Ok(()) => Ok(Some(file)),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(error),
            }
        };
        locked().map_err(|error| self.not_read(LOCK, error))
    }

    /// Locks a lock file, trying again until that succeeds. No thread is held meanwhile.
    async fn locked(&self, key: &str) -> Result<File> {
        let delays = ExponentialBuilder::default().with_min_delay(Duration::from_millis(2));
        let mut delays = delays.with_max_delay(Duration::from_millis(100)).with_jitter().without_max_times().build();
        loop {
            let key = key.to_owned();
            if let Some(file) = self.run(LOCK, move |directory| directory.lock_now(&key)).await? {
                return Ok(file);
            }
            sleep(delays.next().unwrap_or_default()).await;
        }
    }

    fn queue(&self, lock: &str) -> Arc<Queue<()>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(lock).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.len() >= QUEUES && queues.len().is_power_of_two() {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::default();
        queues.insert(lock.to_owned(), Arc::downgrade(&queue));
        queue
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

fn invalid(reason: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, reason)
}

/// Whether there is no such file. If a parent is a file, there is nothing under it.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The error of a write that has changed nothing.
fn not_written(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::PermissionDenied | ErrorKind::NotADirectory => failed(WRITE, error),
        _ => Error::Unavailable { operation: WRITE, source: Some(error.into()) },
    }
}

/// The error of a request that puts a file in its place, or removes it. Unless the system has rejected it, it may have
/// been applied.
fn not_placed(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::IsADirectory
        | ErrorKind::PermissionDenied
        | ErrorKind::StorageFull
        | ErrorKind::QuotaExceeded
        | ErrorKind::FileTooLarge
        | ErrorKind::ReadOnlyFilesystem => not_written(error),
        _ => maybe_written(error),
    }
}

/// The error of a write that may not be durable.
fn maybe_written(error: io::Error) -> Error {
    Error::OutcomeUnknown { operation: WRITE, source: Some(error.into()) }
}

fn listed(key: String, about: &fs::Metadata) -> Entry {
    let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Entry { key, modified: epoch_ms(modified), stamp: stamp(about, modified), is_empty: about.len() == 0 }
}

/// If the system has no inodes, the time of creation identifies a directory.
fn identity(about: &fs::Metadata) -> Identity {
    #[cfg(unix)]
    return (std::os::unix::fs::MetadataExt::dev(about), std::os::unix::fs::MetadataExt::ino(about));
    #[cfg(not(unix))]
    return (0, about.created().map_or(0, |time| epoch_ms(time).unsigned_abs()));
}

fn stamp(about: &fs::Metadata, modified: SystemTime) -> String {
    let (_, inode) = identity(about);
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{inode}", since.as_nanos(), about.len())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// ENOSPC, EDQUOT and EFBIG.
    const FULL: [i32; 3] = [28, 122, 27];

    #[test]
    fn a_write_for_which_there_is_no_space_has_changed_nothing() {
        for code in FULL {
            for error in [not_written, not_placed].map(|error| error(io::Error::from_raw_os_error(code))) {
                assert!(matches!(error, Error::Unavailable { .. }), "{code}: {error:?}");
            }
        }
        let broken = not_placed(io::Error::from_raw_os_error(5));
        assert!(matches!(broken, Error::OutcomeUnknown { .. }), "{broken:?}");
    }
}
