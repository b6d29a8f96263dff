//! Puts a backup in the place of the data of a directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use nameservice_model::{Finding, Observer};
use tokio::task::spawn_blocking;

use crate::{
    BackupError, OpenError, Timeline,
    backup::{backup_observed, first_of},
    directory::{
        DURABLE_FILE, Directory, LOG_FILE, create_directory, examine, journal, shared_memory, sync_directory,
        write_ahead,
    },
    log::{Mark, reject},
    owner::Owner,
};

/// The directory within the data in which the copy is made: it is on the volume of the data, whatever is mounted where.
const RESTORING: &str = "restoring";

/// The reason why a backup was not restored. The data is as it was, unless a file could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The backup cannot be opened.
    #[error("the backup {} cannot be restored", path.display())]
    Backup {
        /// The backup.
        path: PathBuf,
        /// The cause.
        #[source]
        source: OpenError,
    },
    /// The backup is damaged.
    #[error("the backup {} is damaged, and was not restored: {}; restore another one", path.display(), first_of(findings))]
    Damaged {
        /// The backup.
        path: PathBuf,
        /// What is damaged.
        findings: Vec<Finding>,
    },
    /// The backup was not copied to the data, of whose volume it takes space first.
    #[error("cannot copy the backup {} to {}", path.display(), directory.display())]
    Copy {
        /// The backup.
        path: PathBuf,
        /// The directory of the data.
        directory: PathBuf,
        /// The cause.
        #[source]
        source: Box<BackupError>,
    },
    /// The backup is what an interrupted restore has left in the data, which is removed first.
    #[error("{} is what an interrupted restore has left: restore the backup that it was copying", path.display())]
    Unfinished {
        /// What was to be restored.
        path: PathBuf,
    },
    /// The directory cannot be used: a process uses it.
    #[error(transparent)]
    Directory(#[from] OpenError),
    /// The directory holds what the backup does not.
    #[error(
        "the data in {} would be lost: {reason}; to replace it all the same, repeat with --accept-loss, which moves it aside",
        path.display()
    )]
    Loss {
        /// The directory of the data.
        path: PathBuf,
        /// What would be lost.
        reason: String,
    },
    /// The files of the data cannot be replaced.
    #[error("cannot replace the data in {}{}", path.display(), kept_in(replaced.as_deref()))]
    Io {
        /// The directory.
        path: PathBuf,
        /// Where the data is that was to be replaced, once it was moved aside.
        replaced: Option<PathBuf>,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

fn kept_in(replaced: Option<&Path>) -> String {
    replaced.map(|replaced| format!("; all of the former data is in {}", replaced.display())).unwrap_or_default()
}

/// What was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The position of the data, which is that of the backup.
    pub position: u64,
    /// What would be lost, if anything was.
    pub lost: Option<String>,
    /// Where the data is that was replaced; `None` if there was none.
    pub replaced: Option<PathBuf>,
}

/// Makes the content of a backup the data of a directory that no process uses. The backup is checked, and stays as it is.
///
/// Data that the directory holds is moved aside, to `DIRECTORY.replaced-TIME`, or to `replaced-TIME` within the directory if it is
/// a volume or its parent cannot be written. If it has what the backup has not, that requires `accept_loss`. At every moment, also
/// after a power failure, the directory holds the former data or that of the backup, or cannot be opened. What was restored is
/// durable once this returns. What the superuser writes is given to the owner of the replaced log, or otherwise of the directory.
pub async fn restore_backup(
    backup: impl AsRef<Path>,
    directory: impl AsRef<Path>,
    accept_loss: bool,
    observe: Observer<'_>,
) -> Result<Restored, RestoreError> {
    let (backup, path) = (backup.as_ref(), directory.as_ref());
    let failed = |source| RestoreError::Io { path: path.to_owned(), replaced: None, source };
    let unusable = |source| RestoreError::Backup { path: backup.to_owned(), source };
    let copy = path.join(RESTORING);
    if let (Ok(backup), Ok(copy)) = (backup.canonicalize(), copy.canonicalize())
        && backup.starts_with(copy)
    {
        return Err(RestoreError::Unfinished { path: backup });
    }
    let new = Timeline::open(backup).map_err(unusable)?;
    let is_there = path.try_exists().map_err(failed)?;
    let (owner, missing) = owner_of(path);
    create_directory(path).map_err(failed)?;
    let locked = Directory::lock(path)?;
    if let Some(owner) = owner {
        // First of all, since a service that cannot write the file does not start.
        let lock = locked.lock_file();
        let given = missing.iter().copied().chain(lock.exists().then_some(lock.as_path()));
        given.into_iter().try_for_each(|path| owner.take(path)).map_err(failed)?;
    }
    let lost = if is_there { loss(&new, path) } else { None };
    drop(new);
    if let Some(reason) = lost.clone().filter(|_| !accept_loss) {
        return Err(RestoreError::Loss { path: path.to_owned(), reason });
    }
    // What an interrupted restore has left.
    remove_all(&copy).map_err(failed)?;
    let position = backup_observed(backup, &copy, observe).await.map_err(|error| not_copied(backup, path, error))?;
    let (replacing, replacement) = (path.to_owned(), copy.clone());
    let replacing = spawn_blocking(move || {
        let mut replaced = None;
        let done = replace(&replacing, &replacement, owner, &mut replaced);
        if done.is_err() {
            let _ = remove_all(&replacement);
        }
        drop(locked);
        (done, replaced)
    });
    let (done, replaced) = replacing.await.map_err(io::Error::other).map_err(failed)?;
    match done {
        Ok(()) => Ok(Restored { position, lost, replaced }),
        Err(source) => Err(RestoreError::Io { path: path.to_owned(), replaced, source }),
    }
}

/// Returns for whom files are written in a directory, and the directories of its path that are missing, if it does not exist.
fn owner_of(directory: &Path) -> (Option<Owner>, Vec<&Path>) {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && !path.is_dir();
    let missing: Vec<_> = directory.ancestors().take_while(is_missing).collect();
    let existing = missing.last().map_or(directory, |missing| parent_of(missing));
    (Owner::of(&[&directory.join(LOG_FILE), existing]), missing)
}

/// Returns the error for a backup that was not copied: that of the backup, if it is damaged.
pub(crate) fn not_copied(backup: &Path, directory: &Path, error: BackupError) -> RestoreError {
    let path = backup.to_owned();
    match error {
        BackupError::Damaged { findings } => RestoreError::Damaged { path, findings },
        BackupError::Source(source) => RestoreError::Backup { path, source },
        source => RestoreError::Copy { path, directory: directory.to_owned(), source: Box::new(source) },
    }
}

/// Describes what a directory holds, and a backup does not; `None` if there is nothing.
fn loss(backup: &Timeline, directory: &Path) -> Option<String> {
    let shown = |timeline: &Timeline| {
        let at = timeline.recorded_at().and_then(|at| Timestamp::from_millisecond(at).ok());
        let at = at.map(|at| format!(" ({at})")).unwrap_or_default();
        format!("position {}{at}", timeline.position())
    };
    let ends = format!("the backup is at {}", shown(backup));
    let data = match examine(directory) {
        Ok(false) => return None,
        Ok(true) => Timeline::open(directory),
        Err(error) => Err(error),
    };
    let data = match data {
        Ok(data) => data,
        Err(error) => return Some(format!("it cannot be read ({}); {ends}", nameservice_model::chain(&error))),
    };
    match missing_in(&data, directory) {
        Ok(None) => {}
        Ok(Some(missing)) => {
            let rest = "files that were beside it may have the rest";
            return Some(format!("it is not complete ({missing}), and {rest}; {ends}"));
        }
        Err(error) => return Some(format!("it cannot be read ({error}); {ends}")),
    }
    // What cannot be read shows nothing.
    let shown_by_backup = backup.shows(&data).unwrap_or(None);
    if data.position() == 0 || shown_by_backup == Some(true) {
        return None;
    }
    let what = match (data.identity() == backup.identity(), data.position() > backup.position()) {
        _ if data.identity().is_none() || backup.identity().is_none() => {
            "an earlier version has written one of them, so that nothing shows that the backup has the data, "
        }
        (false, _) => "it is of another history than the backup, ",
        (true, true) => "",
        (true, false) if shown_by_backup.is_none() => {
            "the backup no longer holds its last change, and cannot show that it has what came before, "
        }
        (true, false) => "its history is not that of the backup since an earlier restore, ",
    };
    Some(format!("{what}it is at {}, {ends}", shown(&data)))
}

/// Returns what the log of a directory has lost that was answered, as the file beside it says.
fn missing_in(data: &Timeline, directory: &Path) -> rusqlite::Result<Option<String>> {
    match Mark::beside(&directory.join(LOG_FILE)) {
        Some(mark) => data.missing(&mark),
        None => Ok(None),
    }
}

/// Replaces the files of a log by that of a copy. Names in `replaced` where they are.
pub(crate) fn replace(
    directory: &Path,
    copy: &Path,
    owner: Option<Owner>,
    replaced: &mut Option<PathBuf>,
) -> io::Result<()> {
    let log = directory.join(LOG_FILE);
    let (changes, journal, durable) = (write_ahead(&log), journal(&log), directory.join(DURABLE_FILE));
    let mut files = Vec::new();
    for file in [&log, &changes, &journal, &durable] {
        if file.try_exists()? {
            files.push(file.clone());
        }
    }
    if !files.is_empty() {
        *replaced = Some(set_aside(directory, &files, |from, to| fs::hard_link(from, to))?);
    }
    if let Some(owner) = owner {
        owner.take(&copy.join(LOG_FILE))?;
        if let Some(aside) = &replaced {
            owner.take(aside)?;
        }
    }
    if log.try_exists()? {
        // The former log without its last changes is rejected, and so is the new one until this is removed.
        reject(&log)?;
        sync_directory(directory)?;
    }
    for file in [changes, shared_memory(&log), journal] {
        remove(&file)?;
    }
    sync_directory(directory)?;
    fs::rename(copy.join(LOG_FILE), &log)?;
    sync_directory(directory)?;
    remove(&durable)?;
    // The data is there. Whatever else came to be in the directory of the copy, the next restore removes.
    let _ = remove_all(copy);
    sync_directory(directory)
}

/// Gives files further names with `link`, in a new directory beside the data, or within it if there is none beside it. Files
/// that can have no further name are copied.
pub(crate) fn set_aside(
    directory: &Path,
    files: &[PathBuf],
    link: impl Fn(&Path, &Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let name = format!("replaced-{}", Timestamp::now().strftime("%Y%m%dT%H%M%SZ"));
    let beside = directory.file_name().map(|own| {
        let mut own = own.to_owned();
        own.push(format!(".{name}"));
        directory.with_file_name(own)
    });
    // The directory is a volume of its own, or its parent cannot be written.
    let is_elsewhere = |error: &io::Error| {
        use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem};
        matches!(error.kind(), CrossesDevices | PermissionDenied | ReadOnlyFilesystem)
    };
    if let Some(beside) = beside {
        let link_or_copy = |from: &Path, to: &Path| match link(from, to) {
            Err(error) if !is_elsewhere(&error) => copy_file(from, to),
            linked => linked,
        };
        match set_in(&beside, files, link_or_copy) {
            Err(error) if is_elsewhere(&error) => {}
            done => return done,
        }
    }
    set_in(&directory.join(name), files, |from, to| link(from, to).or_else(|_| copy_file(from, to)))
}

/// Gives files further names in a new directory with this name, or with a number after it, durably. If that fails, nothing is left.
fn set_in(name: &Path, files: &[PathBuf], link: impl Fn(&Path, &Path) -> io::Result<()>) -> io::Result<PathBuf> {
    let aside = create_unused(name)?;
    let linked = files
        .iter()
        .try_for_each(|file| file.file_name().map_or(Ok(()), |name| link(file, &aside.join(name))))
        .and_then(|()| sync_directory(&aside))
        .and_then(|()| sync_directory(parent_of(&aside)));
    match linked {
        Ok(()) => Ok(aside),
        Err(error) => {
            let _ = fs::remove_dir_all(&aside);
            Err(error)
        }
    }
}

/// Creates a directory with this name, or with the first free number after it.
fn create_unused(name: &Path) -> io::Result<PathBuf> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let mut path = name.to_owned();
    let mut number = 1;
    loop {
        match builder.create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|()| path),
        }
        number += 1;
        let mut numbered = name.as_os_str().to_owned();
        numbered.push(format!("-{number}"));
        path = numbered.into();
    }
}

/// Copies a file durably, with its permissions. No connection of this process has it open: see `check_log`.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    fs::File::open(to)?.sync_all()
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn remove_all(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
