//! Whether the disk of a log has space.
//!
//! SQLite reports a full disk as such only for `ENOSPC`. A quota that is used up (`EDQUOT`), and an index of the
//! write-ahead file that cannot grow, are the I/O errors of a dying disk for it. So after such an error a file is written:
//! if that has no space either, the disk is full. A file system that became read-only (`EROFS`) is no full disk: the
//! kernel has remounted it after an error, and what was written before may be lost.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use rusqlite::ffi;

use crate::OpenError;

/// The file that is written to see whether there is space. It has no name while it is written.
const ROOM_FILE: &str = "nameservice.log.room";
/// The free space without which a disk is full: about what the largest request writes. With less, small writes would
/// succeed and others fail, and health would change with each of them.
pub(crate) const ROOM: usize = 512 * 1024;
/// The free space with which a failed write has another reason than a full disk: more than a group of commands writes.
const PLENTY: usize = 64 * 1024 * 1024;

/// Writes this many bytes beside a log, and removes them. They cannot be compressed.
pub(super) fn write_beside(log: &Path, bytes: usize) -> io::Result<()> {
    let path = log.with_file_name(ROOM_FILE);
    let mut file = File::options().write(true).create(true).truncate(true).open(&path)?;
    fs::remove_file(&path)?;
    let mut block = [0; 64 * 1024];
    let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
    for _ in 0..bytes.div_ceil(block.len()) {
        for word in block.chunks_exact_mut(8) {
            // Xorshift.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            word.copy_from_slice(&random.to_le_bytes());
        }
        file.write_all(&block)?;
    }
    Ok(())
}

/// Returns whether an error says that there is no space on a disk, or that a quota is used up.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns an error if the disk of a log has less free space than this.
fn check(log: &Path, bytes: usize) -> Result<(), io::Error> {
    match write_beside(log, bytes) {
        Err(error) if is_no_space(&error) => Err(error),
        // Anything else shows in the write of the log itself.
        _ => Ok(()),
    }
}

/// Returns an error if a disk that could take a small write counts as full.
pub(super) fn check_room(log: &Path) -> rusqlite::Result<()> {
    check(log, ROOM).map_err(|error| full(&format!("less than {} KiB are free: {error}", ROOM / 1024)))
}

/// Returns an error as that of a full disk, if that is what it comes from.
pub(super) fn recognised(log: &Path, error: rusqlite::Error) -> rusqlite::Error {
    // A sync that has failed is not among them: what it should have written is lost, whatever the reason.
    const OF_WRITES: [i32; 3] = [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_CANTOPEN];
    let is_of_writes = error.sqlite_error().is_some_and(|error| OF_WRITES.contains(&error.extended_code));
    match is_of_writes.then(|| check(log, PLENTY)) {
        Some(Err(no_space)) => full(&format!("{error}: {no_space}")),
        _ => error,
    }
}

/// Returns the error for a log that cannot be opened or created.
pub(super) fn open_error(log: &Path, source: rusqlite::Error) -> OpenError {
    let path = log.to_owned();
    let source = recognised(log, source);
    match source.sqlite_error_code() {
        Some(ffi::ErrorCode::DatabaseCorrupt | ffi::ErrorCode::NotADatabase) => {
            OpenError::Damaged { path, reason: source.to_string() }
        }
        Some(ffi::ErrorCode::DiskFull) => OpenError::Full { path, source },
        _ => OpenError::Sqlite { path, source },
    }
}

fn full(reason: &str) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), Some(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_quota_that_is_used_up_is_a_full_disk_and_a_read_only_file_system_is_none() {
        // ENOSPC, EDQUOT, EROFS, EIO.
        for (code, expected) in [(28, true), (122, true), (30, false), (5, false)] {
            assert_eq!(is_no_space(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
    }

    #[test]
    fn what_was_written_to_see_whether_there_is_space_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        write_beside(&directory.path().join("log"), ROOM).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
