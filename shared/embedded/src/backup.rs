//! Copies a log while it is being written.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use nameservice_model::{Observer, Progress};
use tokio::time::timeout;

use crate::{
    Embedded,
    directory::{LOG_FILE, NEW_LOG_FILE, check_log, create_directory, sync_directory},
    feed::blocking,
    log::{Readers, incomplete},
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
    Source(crate::OpenError),
    /// The copy is not a log.
    #[error("the copy cannot be used")]
    Copied(#[source] crate::OpenError),
}

impl Embedded {
    /// Copies the current nameservice into a new directory, while it is in use. Returns the position of the copy.
    ///
    /// The copy is consistent, and durable once this returns. To restore it, open its directory like any other. Its
    /// feed ends at the position of the backup, so readers that are ahead of it get `410 Gone` and begin again with a
    /// snapshot.
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<u64, BackupError> {
        copy(self.readers().ok_or(BackupError::InMemory)?, to.as_ref(), &|_| {}).await
    }
}

/// Copies the nameservice of a directory into a new one, as [`Embedded::backup`] does, even while another process uses
/// it. Returns the position of the copy.
pub async fn backup(directory: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64, BackupError> {
    backup_observed(directory, to, &|_| {}).await
}

/// Copies the data of a directory, and reports the size of the copy to `observe`, in bytes. The copy may be smaller than the total,
/// which includes pages that are only partly filled.
pub async fn backup_observed(
    directory: impl AsRef<Path>,
    to: impl AsRef<Path>,
    observe: Observer<'_>,
) -> Result<u64, BackupError> {
    let directory = directory.as_ref();
    let log = directory.join(LOG_FILE);
    match check_log(&log).map_err(BackupError::Source)? {
        true => copy(Arc::new(Readers::new(&log)), to.as_ref(), observe).await,
        false => Err(BackupError::Source(crate::OpenError::Missing { directory: directory.to_owned() })),
    }
}

async fn copy(readers: Arc<Readers>, to: &Path, observe: Observer<'_>) -> Result<u64, BackupError> {
    let to = to.to_owned();
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| BackupError::Io { path, source }
    };
    if to.try_exists().map_err(failed(&to))? {
        return Err(BackupError::Exists { path: to });
    }
    check_complete(&readers).await?;
    create_directory(&to).map_err(failed(&to))?;
    // It gets its final name once it is complete.
    let (file, new) = (to.join(LOG_FILE), to.join(NEW_LOG_FILE));
    let copy = new.clone();
    let sized = readers.clone();
    let total = Some(blocking(move || sized.bytes()).await.map_err(BackupError::Copy)?);
    let mut copying = pin!(blocking(move || {
        readers.copy(&copy)?;
        Readers::position_of(&copy)
    }));
    let copied = || Progress { done: fs::metadata(&new).map_or(0, |file| file.len()), total };
    let position = loop {
        match timeout(LOOK, &mut copying).await {
            Ok(position) => break position.map_err(BackupError::Copy)?,
            Err(_) => observe(copied()),
        }
    };
    observe(copied());
    File::open(&new).and_then(|new| new.sync_all()).map_err(failed(&new))?;
    fs::rename(&new, &file).map_err(failed(&file))?;
    sync_directory(&to).map_err(failed(&to))?;
    match check_log(&file) {
        Ok(_) => Ok(position),
        Err(error) => Err(BackupError::Copied(error)),
    }
}

/// Checks that a log holds all that it has answered: a copy would not show what is missing, since it has no mark of its
/// own.
async fn check_complete(readers: &Arc<Readers>) -> Result<(), BackupError> {
    let (readers, path) = (readers.clone(), readers.path().to_owned());
    let missing = blocking(move || readers.missing()).await.map_err(BackupError::Copy)?;
    missing.map_or(Ok(()), |reason| Err(BackupError::Source(incomplete(&path, reason))))
}
