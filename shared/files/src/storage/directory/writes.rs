//! Writes: a file is written beside its place, synced, and renamed onto it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write as _},
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};

use nameservice_model::{Error, Result};

use super::{Directory, WRITE, is_absence, mount::identity};
use crate::{
    names,
    storage::{Written, failed},
};

impl Directory {
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
    pub(super) fn make_parents(&self, path: &Path) -> io::Result<()> {
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
