//! Possible contents of a directory, and how opening it answers.

use std::{
    fs::{self, File},
    path::Path,
    sync::Mutex,
};

use nameservice_model::{AdminPublisher as _, Call, NameService, Progress, Protection, Purged};
use rusqlite::Connection;

use super::{at, head_of, open, pushed};
use crate::{
    BackupError, Embedded, OpenError, Options, backup_observed,
    directory::{FORMAT, LOG_FILE},
    examine_observed,
};

/// Returns the files of a directory with their contents, without the lock.
fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .filter(|(name, _)| name != "lock")
        .collect();
    found.sort();
    found
}

fn rejection(directory: &Path) -> OpenError {
    let before = contents(directory);
    let one = Embedded::open(directory, Options::default()).unwrap_err();
    let other = Embedded::open_existing(directory, Options::default()).unwrap_err();
    assert_eq!(one.to_string(), other.to_string());
    assert_eq!(contents(directory), before, "nothing was touched");
    one
}

/// A directory with a log that has a few records.
async fn filled() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    for n in 0..200 {
        pushed(&names, &format!("a{n}"), 1).await;
    }
    directory
}

#[tokio::test]
async fn a_directory_serves_one_process_at_a_time() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a/b");
    let names = open(&directory);
    let rejected = Embedded::open(&directory, Options::default()).unwrap_err();
    assert!(matches!(rejected, OpenError::InUse { .. }), "{rejected:?}");
    assert!(rejected.to_string().contains(&format!("process {}", std::process::id())), "{rejected}");
    drop(names);
    drop(open(&directory));
}

#[test]
#[cfg(unix)]
fn a_directory_that_is_created_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("data");
    drop(open(&directory));
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn opening_what_exists_creates_nothing() {
    let parent = tempfile::tempdir().unwrap();
    for directory in [parent.path().to_owned(), parent.path().join("missing")] {
        let rejected = Embedded::open_existing(&directory, Options::default()).unwrap_err();
        assert!(matches!(rejected, OpenError::Missing { .. }), "{rejected:?}");
    }
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_of_the_former_engine_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("nameservice.db"), b"SQLite format 3\0 and more").unwrap();
    let rejected = rejection(directory.path());
    assert!(matches!(rejected, OpenError::FormerEngine { .. }), "{rejected:?}");
    assert!(rejected.to_string().contains("earlier version"), "{rejected}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "not even a lock");
}

#[test]
fn a_path_that_is_no_directory_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [file.path().to_owned(), file.path().join("data")] {
        let rejected = Embedded::open(&path, Options::default()).unwrap_err();
        assert!(matches!(rejected, OpenError::Io { .. }), "{rejected:?}");
        assert!(rejected.to_string().contains(path.to_str().unwrap()), "{rejected}");
    }
}

#[tokio::test]
async fn a_log_of_a_newer_format_is_named_and_left_as_it_is() {
    let directory = filled().await;
    let file = directory.path().join(LOG_FILE);
    let mut bytes = fs::read(&file).unwrap();
    bytes[60..64].copy_from_slice(&9_u32.to_be_bytes());
    fs::write(&file, bytes).unwrap();
    let rejected = rejection(directory.path());
    assert!(matches!(rejected, OpenError::NewerFormat { found: 9, known: FORMAT, .. }), "{rejected:?}");
}

#[test]
fn a_file_that_is_no_log_is_named_and_left_as_it_is() {
    let other = tempfile::tempdir().unwrap();
    let another = Connection::open(other.path().join("x")).unwrap();
    another.execute_batch("CREATE TABLE t (a)").unwrap();
    drop(another);
    for bytes in [
        Vec::new(),
        b"text".to_vec(),
        b"SQLite format 3\0".to_vec(),
        vec![7; 5_000],
        fs::read(other.path().join("x")).unwrap(),
    ] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(LOG_FILE), &bytes).unwrap();
        let rejected = rejection(directory.path());
        assert!(matches!(rejected, OpenError::NotALog { .. }), "{} bytes: {rejected:?}", bytes.len());
    }
}

#[tokio::test]
async fn a_truncated_or_overwritten_log_is_damaged_and_left_as_it_is() {
    let directory = filled().await;
    let file = directory.path().join(LOG_FILE);
    let whole = fs::read(&file).unwrap();
    for length in [whole.len() / 2, whole.len() - 4096, 4096, 512] {
        fs::write(&file, &whole[..length]).unwrap();
        let rejected = Embedded::open(directory.path(), Options::default()).unwrap_err();
        assert!(matches!(rejected, OpenError::Damaged { .. }), "{length} bytes: {rejected:?}");
        assert_eq!(fs::read(&file).unwrap(), whole[..length]);
    }
    // What was rejected has left nothing behind that would damage the whole log.
    fs::write(&file, &whole).unwrap();
    drop(open(directory.path()));
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_damage() {
    for damage in [
        "UPDATE records SET body = x'00' WHERE id = 1",
        "UPDATE records SET id = 2 WHERE id = 1",
        "INSERT INTO records SELECT 100000, body FROM records WHERE id = 1",
        "DELETE FROM log; DELETE FROM tail",
    ] {
        let directory = filled().await;
        let connection = Connection::open(directory.path().join(LOG_FILE)).unwrap();
        connection.execute_batch(damage).unwrap();
        drop(connection);
        let rejected = Embedded::open_existing(directory.path(), Options::default()).unwrap_err();
        assert!(matches!(rejected, OpenError::Damaged { .. }), "{damage}: {rejected:?}");
    }
}

#[tokio::test]
async fn an_interrupted_creation_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("nameservice.log.db.new"), b"half of it").unwrap();
    let names = open(directory.path());
    pushed(&names, "a", 1).await;
    assert!(!directory.path().join("nameservice.log.db.new").exists());
}

#[tokio::test]
async fn a_closed_log_is_one_file_and_its_write_ahead_file_is_empty() {
    let directory = filled().await;
    let write_ahead = directory.path().join(format!("{LOG_FILE}-wal"));
    assert_eq!(fs::metadata(write_ahead).map_or(0, |file| file.len()), 0);
    let names = open(directory.path());
    assert_eq!(names.view().len(), 200);
}

#[tokio::test]
async fn a_log_does_not_grow_with_what_was_written_to_one_record() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().with_checkpoint_bytes(100_000).with_retention(std::time::Duration::ZERO);
    let names = Embedded::open(directory.path(), options).unwrap();
    for t in 1..400 {
        pushed(&names, "a", t).await;
        let size = |name: &str| fs::metadata(directory.path().join(name)).map_or(0, |file| file.len());
        assert!(size(LOG_FILE) < 200_000 && size(&format!("{LOG_FILE}-wal")) < 300_000, "{t}");
    }
}

#[tokio::test]
async fn a_backup_of_a_served_directory_is_consistent_and_opens() {
    let directory = filled().await;
    let parent = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    let writing = tokio::spawn({
        let names = names.clone();
        async move {
            for t in 2..30 {
                for n in 0..3 {
                    pushed(&names, &format!("a{n}"), t).await;
                }
            }
        }
    });
    let before = names.view().position();
    let to = parent.path().join("copies/today");
    let position = names.backup(&to).await.unwrap();
    assert!(position >= before);
    writing.await.unwrap();
    let copy = open(&to);
    assert_eq!((copy.view().position(), copy.view().len()), (position, 200));
    pushed(&copy, "b", 1).await;
    assert!(head_of(&names, "b").await.is_none());
    let rejected = names.backup(&to).await.unwrap_err();
    assert!(matches!(rejected, BackupError::Exists { .. }), "{rejected:?}");
    let memory = Embedded::memory(Options::default()).unwrap();
    assert!(matches!(memory.backup(parent.path().join("x")).await, Err(BackupError::InMemory)));
    assert!(!parent.path().join("x").exists());
    assert!(names.lookup(&at("a0")).await.unwrap().is_some());
}

#[tokio::test]
async fn whoever_waits_for_a_backup_or_an_examination_sees_how_far_it_is() {
    let directory = filled().await;
    let parent = tempfile::tempdir().unwrap();
    let to = parent.path().join("copy");
    let seen = Mutex::new(Vec::new());
    backup_observed(directory.path(), &to, &|progress| seen.lock().unwrap().push(progress)).await.unwrap();
    let seen = seen.into_inner().unwrap();
    let last = *seen.last().unwrap();
    assert!(
        seen.is_sorted_by_key(|progress| progress.done) && seen.iter().all(|progress| progress.total == last.total)
    );
    let size = fs::metadata(to.join(LOG_FILE)).unwrap().len();
    assert!(last.done == size && last.total.is_some_and(|total| total >= size), "{last:?} {size}");

    let seen = Mutex::new(Vec::new());
    let examined = examine_observed(&to, false, &mut |_| {}, &|progress| seen.lock().unwrap().push(progress)).unwrap();
    let rows = examined.records + examined.changes;
    assert_eq!(seen.into_inner().unwrap().last(), Some(&Progress { done: rows, total: Some(rows) }));
}

#[tokio::test]
#[cfg(unix)]
async fn a_directory_whose_lock_was_removed_is_still_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    fs::remove_file(directory.path().join("lock")).unwrap();
    let rejected = Embedded::open(directory.path(), Options::default()).unwrap_err();
    assert!(matches!(rejected, OpenError::InUse { process: None, .. }), "{rejected:?}");
    drop(names);
    drop(open(directory.path()));
}

#[tokio::test]
async fn a_lock_that_was_left_behind_locks_nothing() {
    let directory = filled().await;
    fs::write(directory.path().join("lock"), "99999999\n").unwrap();
    let held = File::open(directory.path().join("lock")).unwrap();
    drop(open(directory.path()));
    drop(held);
}

#[tokio::test]
async fn a_protection_is_there_after_a_restart_and_so_is_its_end() {
    let directory = tempfile::tempdir().unwrap();
    for protected in [true, false] {
        let names = open(directory.path());
        if protected {
            pushed(&names, "a", 1).await;
        }
        assert_eq!(names.protect(&Call::fresh(), &at("a"), protected).await.unwrap(), Protection::Set);
        drop(names);
        let names = open(directory.path());
        assert_eq!(names.lookup(&at("a")).await.unwrap().unwrap().protected, protected);
        assert_eq!(names.protect(&Call::fresh(), &at("a"), protected).await.unwrap(), Protection::Already);
        if protected {
            assert_eq!(names.purge(&Call::fresh(), &at("a")).await.unwrap(), Purged::Protected);
        }
    }
}
