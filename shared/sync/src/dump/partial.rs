//! The file that an export writes before it is complete.
//!
//! Its name is its own, and it is locked while it is written. An export that is given up removes it. A program that is killed
//! leaves it behind without the lock, and the next export to the same file removes it.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
};

use tempfile::{Builder, NamedTempFile};

const PREFIX: &str = ".export-";
const SUFFIX: &str = ".partial";
/// How many random characters are between the two.
const RANDOM: usize = 6;
/// How often a file is created again that another export has removed before it was locked.
const ATTEMPTS: u32 = 16;

/// Creates the file for an export to this path, readable by its owner alone, and removes those that were left behind.
pub(super) fn create(path: &Path) -> io::Result<NamedTempFile> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    clean(directory, &name);
    for _ in 0..ATTEMPTS {
        let prefix = format!("{name}{PREFIX}");
        let file = Builder::new().prefix(&prefix).suffix(SUFFIX).rand_bytes(RANDOM).tempfile_in(directory)?;
        // Where files cannot be locked, none is removed either.
        let _ = file.as_file().lock();
        if file.path().exists() {
            return Ok(file);
        }
    }
    Err(io::Error::other("other exports remove the file"))
}

/// Removes what interrupted exports have left. Best effort: what cannot be removed does not hinder an export.
fn clean(directory: &Path, name: &str) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let is_left = entry.file_name().to_str().is_some_and(|found| is_partial(found, name));
        if !is_left || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(file) = File::open(entry.path()) else { continue };
        match file.try_lock() {
            // An export that is still running has it.
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
            Ok(()) => drop(fs::remove_file(entry.path())),
        }
    }
}

/// Whether a file is one of an export to this name: of this version, or of earlier ones, which had the id of their process.
fn is_partial(found: &str, name: &str) -> bool {
    let middle = found.strip_prefix(name).and_then(|rest| rest.strip_suffix(SUFFIX));
    middle.is_some_and(|middle| match middle.strip_prefix(PREFIX) {
        Some(random) => random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric()),
        None => {
            middle.strip_prefix('.').is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
        }
    })
}
