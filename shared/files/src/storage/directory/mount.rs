//! Whether `ns@v2` is what was last seen of it, and which paths lead into it.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, ErrorKind},
    path::{Component, Path, PathBuf},
    sync::{MutexGuard, PoisonError},
};

use nameservice_model::{Address, Error, Result};

use super::{Directory, ROOT_PREFIX, WATCH, is_absence};
use crate::names;

/// How many directories of records are remembered as signs by which `ns@v2` is recognized.
pub(super) const SIGNS: usize = 1_000;

/// Identifies a directory while it is mounted: its device and inode.
pub(crate) type Identity = (u64, u64);

/// What was last seen of `ns@v2`.
#[derive(Debug, Default)]
pub(super) struct Known {
    identity: Option<Identity>,
    /// Some of the directories of records in it, by name. A place with another identity, as after a remount, is the same
    /// if it has one of them. They stay when the record is purged, since lock files do.
    pub(super) signs: BTreeSet<String>,
}

impl Known {
    pub(super) fn is_nothing(&self) -> bool {
        self.identity.is_none() && self.signs.is_empty()
    }
}

impl Directory {
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

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that `ns@v2` is there, and is what it was when it was last seen. `None` if there is none, and never was.
    ///
    /// An error means that the directory is unmounted, unreadable or replaced: then no file is known to be absent.
    pub(super) fn check(&self, operation: &'static str) -> Result<Option<Identity>> {
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
    pub(super) fn path(&self, key: &str) -> io::Result<PathBuf> {
        #[cfg(test)]
        self.moment(key);
        let relative = Path::new(key);
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if key.contains(names::NEVER) || !relative.components().all(is_plain) || key.split('/').any(str::is_empty) {
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

    /// Remembers that a file is there, if nothing was listed so far.
    pub(super) fn note_seen(&self, key: &str) {
        let mut known = self.known();
        if known.signs.is_empty()
            && let Some((of, _)) = key.strip_prefix(ROOT_PREFIX).and_then(|rest| rest.rsplit_once('/'))
        {
            known.signs.insert(of.to_owned());
        }
    }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, reason)
}

/// If the system has no inodes, the time of creation identifies a directory.
pub(super) fn identity(about: &fs::Metadata) -> Identity {
    #[cfg(unix)]
    return (std::os::unix::fs::MetadataExt::dev(about), std::os::unix::fs::MetadataExt::ino(about));
    #[cfg(not(unix))]
    return (0, about.created().map_or(0, |time| epoch_ms(time).unsigned_abs()));
}
