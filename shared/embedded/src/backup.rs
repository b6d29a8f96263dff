//! Copies a log while it is being written, and checks the copy.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use nameservice_model::{Error, Finding, Observer, Progress};
use rusqlite::{ErrorCode, OpenFlags, ffi::SQLITE_ERROR};
use tokio::time::timeout;

use crate::{
    Embedded, OpenError,
    directory::{LOG_FILE, NEW_LOG_FILE, check_header, create_directory, has_log, sync_directory},
    doctor::{damage_of, damage_of_pages, unreadable_file},
    feed::blocking,
    log::{Failure, Interrupt, Readers, connect, failed, incomplete, is_unavailable},
    timeline::Timeline,
};

/// How often the progress of a copy is reported.
const LOOK: Duration = Duration::from_millis(200);

/// The reason why there is no backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The directory of the backup has something in it already.
    #[error("{} exists: name a new directory for the backup", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// There is no log to copy.
    #[error("a nameservice in memory has nothing to back up: use an export")]
    InMemory,
    /// The backup cannot be written.
    #[error("cannot write the backup {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The log cannot be copied.
    #[error("cannot copy the log")]
    Copy(#[source] nameservice_model::Error),
    /// The directory to copy cannot be used.
    #[error(transparent)]
    Source(OpenError),
    /// The copy is damaged, and what was copied is not.
    #[error(
        "the copy is damaged, and what was copied is not: {}; examine the volume of the copy, and the memory of the machine",
        first_of(findings)
    )]
    Copied {
        /// What is damaged.
        findings: Vec<Finding>,
    },
    /// The data is damaged, and so would be its backup.
    #[error(
        "the data is damaged, and nothing was backed up: {}; restore a backup, or examine the data with `nameservice doctor`",
        first_of(findings)
    )]
    Damaged {
        /// What is damaged.
        findings: Vec<Finding>,
    },
}

impl BackupError {
    /// Returns whether the data is damaged, rather than that the copy has failed.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Source(error) => matches!(
                error,
                OpenError::Incomplete { .. }
                    | OpenError::Damaged { .. }
                    | OpenError::NotALog { .. }
                    | OpenError::Gone { .. }
            ),
            _ => false,
        }
    }
}

/// Returns the first finding of each kind, and how many others there are.
pub(crate) fn first_of(findings: &[Finding]) -> String {
    let mut shown: Vec<&Finding> = Vec::new();
    for finding in findings {
        if shown.iter().all(|shown| shown.code != finding.code) {
            shown.push(finding);
        }
    }
    let words = shown.iter().map(|finding| {
        let address = finding.address.as_deref().map(|address| format!(" (`{address}`)")).unwrap_or_default();
        format!("{}: {}{address}", finding.code, finding.what)
    });
    let words = words.collect::<Vec<_>>().join("; ");
    match findings.len() - shown.len() {
        0 => words,
        others => format!("{words}; and {others} more"),
    }
}

/// Whether a copy is checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// A backup: what is damaged is not backed up.
    Content,
    /// A copy that is examined by its caller.
    Nothing,
}

impl Embedded {
    /// Copies the current nameservice into a new directory, while it is in use, and checks the copy. Returns the position of the
    /// copy.
    ///
    /// The copy is consistent, and durable once this returns. It was examined as by [`examine`](crate::examine): if the data is
    /// damaged, there is no backup. To restore it, open its directory like any other. Its feed ends at the position of the backup,
    /// so readers that are ahead of it get `410 Gone` and begin again with a snapshot.
    ///
    /// If the future is dropped, the copy ends soon, and what there is of it stays in the directory.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<u64, BackupError> {
        let readers = self.readers().ok_or(BackupError::InMemory)?;
        copy(readers.path(), to.as_ref(), Check::Content, &|_| {}).await
    }

    /// Returns the most bytes that a backup takes now.
    pub async fn backup_bytes(&self) -> Result<u64, BackupError> {
        let readers = self.readers().ok_or(BackupError::InMemory)?;
        blocking(move || readers.bytes()).await.map_err(not_copied)
    }
}

/// Copies the nameservice of a directory into a new one, and checks the copy, as [`Embedded::backup`] does, even while another
/// process uses it. Returns the position of the copy.
pub async fn backup(directory: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64, BackupError> {
    backup_observed(directory, to, &|_| {}).await
}

/// Backs up the data of a directory, and reports the size of the copy to `observe`, in bytes. The copy may be smaller than the total,
/// which includes pages that are only partly filled. Its check follows, and does not report progress.
pub async fn backup_observed(
    directory: impl AsRef<Path>,
    to: impl AsRef<Path>,
    observe: Observer<'_>,
) -> Result<u64, BackupError> {
    copy(&log_of(directory.as_ref())?, to.as_ref(), Check::Content, observe).await
}

/// Copies the data of a directory, damaged or not, so that it can be examined while another process uses the directory. Returns the
/// position of the copy, and reports its size to `observe`.
pub async fn copy_observed(
    directory: impl AsRef<Path>,
    to: impl AsRef<Path>,
    observe: Observer<'_>,
) -> Result<u64, BackupError> {
    copy(&log_of(directory.as_ref())?, to.as_ref(), Check::Nothing, observe).await
}

fn log_of(directory: &Path) -> Result<PathBuf, BackupError> {
    let log = directory.join(LOG_FILE);
    match has_log(&log).map_err(BackupError::Source)? {
        true => Ok(log),
        false => Err(BackupError::Source(OpenError::Missing { directory: directory.to_owned() })),
    }
}

/// Fails, as for damaged data, if a file no longer holds the log. It is not opened: see `Readers::read`.
pub(crate) fn still_there(log: &Path) -> Result<(), BackupError> {
    match has_log(log).map_err(BackupError::Source)? {
        true => Ok(()),
        false => Err(BackupError::Source(OpenError::NotALog { path: log.to_owned(), reason: "it is gone" })),
    }
}

/// Interrupts a copy that nobody waits for: otherwise a process that ends would wait for it.
struct Waiting(Interrupt);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// `log` may be in use, also by this process: it is read through SQLite alone, which keeps its locks.
async fn copy(log: &Path, to: &Path, check: Check, observe: Observer<'_>) -> Result<u64, BackupError> {
    if to.try_exists().map_err(not_written(to))? {
        return Err(BackupError::Exists { path: to.to_owned() });
    }
    still_there(log)?;
    let waiting = Waiting(Interrupt::default());
    // Connections of its own: those of readers would show what they have cached, and not what the file has become.
    let readers = Arc::new(Readers::interrupted_by(log, waiting.0.clone()));
    let header = readers.clone();
    let checked = blocking(move || header.read(|connection| Ok(check_header(connection, header.path())?)));
    checked.await.map_err(not_copied)?.map_err(BackupError::Source)?;
    check_complete(&readers).await?;
    if check == Check::Content {
        let pages = readers.clone();
        let damaged = blocking(move || pages.read(|connection| Ok(damage_of_pages(connection)?))).await;
        sound(damaged.map_err(not_copied)?)?;
    }
    create_directory(to).map_err(not_written(to))?;
    let copied = copy_into(readers, to, check, &waiting.0, observe).await;
    if copied.is_err() {
        // No directory is left that looks like a backup, or takes space. It was created above.
        let _ = fs::remove_dir_all(to);
    }
    copied
}

async fn copy_into(
    readers: Arc<Readers>,
    to: &Path,
    check: Check,
    interrupt: &Interrupt,
    observe: Observer<'_>,
) -> Result<u64, BackupError> {
    // It gets its final name once it is complete and checked.
    let (file, new) = (to.join(LOG_FILE), to.join(NEW_LOG_FILE));
    let copy = new.clone();
    let (sized, copied) = (readers.clone(), readers.clone());
    let total = Some(blocking(move || sized.bytes()).await.map_err(not_copied)?);
    let mut copying = pin!(blocking(move || {
        copied.copy(&copy)?;
        let timeline = Timeline::read(&copy).map_err(|error| failed(Failure::Sqlite(error)))?;
        Ok(timeline.position())
    }));
    let copied = || Progress { done: fs::metadata(&new).map_or(0, |file| file.len()), total };
    let position = loop {
        match timeout(LOOK, &mut copying).await {
            Ok(position) => break position.map_err(not_copied)?,
            Err(_) => observe(copied()),
        }
    };
    observe(copied());
    File::open(&new).and_then(|new| new.sync_all()).map_err(not_written(&new))?;
    if check == Check::Content {
        let (copy, interrupt) = (new.clone(), interrupt.clone());
        let damaged = blocking(move || {
            let examined = connect(&copy, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(|copy| {
                interrupt.watch(&copy);
                damage_of(&copy)
            });
            damaged_by(examined)
        });
        let findings = damaged.await.map_err(not_copied)?;
        if !findings.is_empty() {
            // Most of it is only read in the copy.
            let source = blocking(move || readers.read(|connection| Ok(damaged_by(damage_of(connection)))));
            sound(source.await.and_then(|source| source).map_err(not_copied)?)?;
            return Err(BackupError::Copied { findings });
        }
    }
    fs::rename(&new, &file).map_err(not_written(&file))?;
    sync_directory(to).map_err(not_written(to))?;
    Ok(position)
}

/// Returns the findings of an examination. What cannot be examined is damaged, unless that passes.
pub(crate) fn damaged_by(examined: rusqlite::Result<Vec<Finding>>) -> Result<Vec<Finding>, Error> {
    match examined {
        Err(error) if is_unavailable(&error) => Err(failed(Failure::Sqlite(error))),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Err(failed(Failure::Sqlite(error)))
        }
        Err(error) => Ok(vec![unreadable_file(&error)]),
        Ok(findings) => Ok(findings),
    }
}

/// Returns an error if there are findings.
fn sound(findings: Vec<Finding>) -> Result<(), BackupError> {
    if findings.is_empty() { Ok(()) } else { Err(BackupError::Damaged { findings }) }
}

/// Returns the error for a log that cannot be read: that of a damaged one, if SQLite says so.
fn not_copied(error: Error) -> BackupError {
    if let Error::Store { source, .. } = &error
        && let Some(Failure::Sqlite(error)) = source.downcast_ref::<Failure>()
        && is_of_damage(error)
    {
        return BackupError::Damaged { findings: vec![unreadable_file(error)] };
    }
    BackupError::Copy(error)
}

/// Returns whether a file is damaged: SQLite says so, or it has other tables, columns or types than every log.
fn is_of_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::Error::{InvalidColumnType, QueryReturnedNoRows, SqlInputError, SqliteFailure};
    match error {
        // The statements are the same for every log: what rejects one is the file.
        SqliteFailure(error, _) if error.extended_code == SQLITE_ERROR => true,
        SqliteFailure(error, _) => matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase),
        SqlInputError { .. } | InvalidColumnType(..) | QueryReturnedNoRows => true,
        _ => false,
    }
}

fn not_written(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Io { path, source }
}

/// Checks that a log holds all that it has answered: a copy would not show what is missing, since it has no mark of its
/// own.
async fn check_complete(readers: &Arc<Readers>) -> Result<(), BackupError> {
    let (readers, path) = (readers.clone(), readers.path().to_owned());
    let missing = blocking(move || readers.missing()).await.map_err(not_copied)?;
    missing.map_or(Ok(()), |reason| Err(BackupError::Source(incomplete(&path, reason))))
}
