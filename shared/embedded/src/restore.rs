//! Puts a backup in the place of the data of a directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use nameservice_model::Observer;
use tokio::task::spawn_blocking;

use crate::{
    BackupError, OpenError, Timeline,
    backup::backup_observed,
    directory::{DURABLE_FILE, Directory, LOG_FILE, create_directory, examine, sync_directory, write_ahead},
};

/// The directory within the data in which the copy is made: it is on the volume of the data, whatever is mounted where.
const RESTORING: &str = "restoring";

/// The reason why a backup was not restored. The data is as it was, unless a file could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The backup cannot be read, or is damaged.
    #[error("the backup {} cannot be restored", path.display())]
    Backup {
        /// The backup.
        path: PathBuf,
        /// The cause.
        #[source]
        source: BackupError,
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
    #[error("cannot replace the data in {}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
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
/// durable once this returns.
pub async fn restore_backup(
    backup: impl AsRef<Path>,
    directory: impl AsRef<Path>,
    accept_loss: bool,
    observe: Observer<'_>,
) -> Result<Restored, RestoreError> {
    let (backup, path) = (backup.as_ref(), directory.as_ref());
    let unusable = |source| RestoreError::Backup { path: backup.to_owned(), source };
    let failed = |source| RestoreError::Io { path: path.to_owned(), source };
    let new = Timeline::open(backup).map_err(|error| unusable(BackupError::Source(error)))?;
    let is_there = path.try_exists().map_err(failed)?;
    create_directory(path).map_err(failed)?;
    let locked = Directory::lock(path)?;
    let lost = if is_there { loss(&new, path) } else { None };
    drop(new);
    if let Some(reason) = lost.clone().filter(|_| !accept_loss) {
        return Err(RestoreError::Loss { path: path.to_owned(), reason });
    }
    let copy = path.join(RESTORING);
    // What an interrupted restore has left.
    match fs::remove_dir_all(&copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let position = backup_observed(backup, &copy, observe).await.map_err(unusable)?;
    let replacing = path.to_owned();
    let replaced = spawn_blocking(move || {
        let replaced = replace(&replacing, &copy);
        drop(locked);
        replaced
    });
    let replaced = replaced.await.map_err(io::Error::other).and_then(|replaced| replaced).map_err(failed)?;
    Ok(Restored { position, lost, replaced })
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
    if data.position() == 0 || backup.continues(&data).unwrap_or(false) {
        return None;
    }
    let what = match (data.identity() == backup.identity(), data.position() > backup.position()) {
        (false, _) => "it is of another history than the backup, ",
        (true, true) => "",
        (true, false) => "its history is not that of the backup since an earlier restore, ",
    };
    Some(format!("{what}it is at {}, {ends}", shown(&data)))
}

/// Replaces the files of a log by that of a copy. Returns where they are.
fn replace(directory: &Path, copy: &Path) -> io::Result<Option<PathBuf>> {
    let log = directory.join(LOG_FILE);
    let (changes, index, durable) = (write_ahead(&log), shared_memory(&log), directory.join(DURABLE_FILE));
    let mut files = Vec::new();
    for file in [&log, &changes, &durable] {
        if file.try_exists()? {
            files.push(file.clone());
        }
    }
    let aside = if files.is_empty() { None } else { Some(link_aside(directory, &files)?) };
    // A log without its last changes is rejected, because of the file that names the last of them, and so is the new one until that
    // is gone, too.
    remove(&changes)?;
    remove(&index)?;
    sync_directory(directory)?;
    fs::rename(copy.join(LOG_FILE), &log)?;
    sync_directory(directory)?;
    remove(&durable)?;
    fs::remove_dir(copy)?;
    sync_directory(directory)?;
    Ok(aside)
}

/// Gives files further names, in a directory beside the data, or within it.
fn link_aside(directory: &Path, files: &[PathBuf]) -> io::Result<PathBuf> {
    let name = format!("replaced-{}", Timestamp::now().strftime("%Y%m%dT%H%M%SZ"));
    let within = directory.join(&name);
    let beside = directory.file_name().map(|own| {
        let mut own = own.to_owned();
        own.push(format!(".{name}"));
        directory.with_file_name(own)
    });
    let linked = |aside: &Path| {
        create_directory(aside)?;
        let link = |file: &PathBuf| match file.file_name() {
            Some(name) => fs::hard_link(file, aside.join(name)),
            None => Ok(()),
        };
        let linked = files.iter().try_for_each(link).and_then(|()| sync_directory(aside));
        if linked.is_err() {
            // Another volume: the directory is a mount point.
            let _ = fs::remove_dir(aside);
        }
        linked
    };
    match beside.filter(|beside| linked(beside).is_ok()) {
        Some(beside) => Ok(beside),
        None => linked(&within).map(|()| within),
    }
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the path of the index of a log's write-ahead file.
fn shared_memory(log: &Path) -> PathBuf {
    let mut path = log.as_os_str().to_owned();
    path.push("-shm");
    path.into()
}
