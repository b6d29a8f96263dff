//! Lists of the files under a directory.

use std::{collections::BTreeSet, fs, io::ErrorKind, time::SystemTime};

use nameservice_model::{Error, Result};

use super::{
    Directory, LIST, ROOT_PREFIX, is_absence, is_too_long,
    mount::{SIGNS, identity},
};
use crate::{
    names,
    storage::{Entry, epoch_ms},
};

impl Directory {
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
                Err(error) if error.kind() == ErrorKind::InvalidInput || is_too_long(&error) => continue,
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
                if kind.is_dir() {
                    left.push(key);
                // Lock files are half of all files, and empty.
                } else if kind.is_file() && !key.ends_with(".lock") {
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
}

fn listed(key: String, about: &fs::Metadata) -> Entry {
    let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Entry { key, modified: epoch_ms(modified), stamp: stamp(about, modified), is_empty: about.len() == 0 }
}

fn stamp(about: &fs::Metadata, modified: SystemTime) -> String {
    let (_, inode) = identity(about);
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}-{inode}", since.as_nanos(), about.len())
}
