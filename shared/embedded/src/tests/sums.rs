//! Damage, and files that do not belong together, are noticed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use nameservice_model::{ChangeFeed, Limit, Run};
use rusqlite::Connection;

use super::{commands::Commands, open, push, pushed, without_sums};
use crate::{
    BackupError, Embedded, OpenError, Options, backup,
    directory::{DURABLE_FILE, FORMAT, LOG_FILE, write_ahead},
    examine,
};

/// A directory with a few records, and what an unclean end would leave of it: the changes since are in the write-ahead
/// file alone.
async fn left() -> tempfile::TempDir {
    let (served, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let names = open(served.path());
    for n in 0..20 {
        pushed(&names, &format!("a{n}"), 1).await;
    }
    drop(names);
    let names = open(served.path());
    for n in 20..40 {
        pushed(&names, &format!("a{n}"), 1).await;
    }
    copy(served.path(), left.path());
    left
}

fn copy(from: &Path, to: &Path) {
    for file in [PathBuf::from(LOG_FILE), write_ahead(LOG_FILE.as_ref()), DURABLE_FILE.into()] {
        if from.join(&file).exists() {
            fs::copy(from.join(&file), to.join(&file)).unwrap();
        }
    }
}

fn rejected(directory: &Path) -> OpenError {
    Embedded::open(directory, Options::default()).unwrap_err()
}

#[tokio::test]
async fn a_write_ahead_file_that_is_gone_or_cut_off_is_noticed_and_can_be_put_back() {
    let whole = left().await;
    let log = write_ahead(&whole.path().join(LOG_FILE));
    let bytes = fs::read(&log).unwrap();
    for length in [None, Some(0), Some(32), Some(bytes.len() / 2), Some(bytes.len() * 3 / 4)] {
        let directory = tempfile::tempdir().unwrap();
        copy(whole.path(), directory.path());
        let log = write_ahead(&directory.path().join(LOG_FILE));
        match length {
            None => fs::remove_file(&log).unwrap(),
            Some(length) => fs::write(&log, &bytes[..length]).unwrap(),
        }
        let error = rejected(directory.path());
        assert!(matches!(error, OpenError::Incomplete { .. }), "{length:?}: {error:?}");
        assert!(error.to_string().contains("were answered"), "{error}");
        let mut found = Vec::new();
        examine(directory.path(), false, &mut |finding| found.push(finding.code)).unwrap();
        assert_eq!(found, ["answered-lost"]);
        // Neither an examination nor a repair touches what is left, which may be needed to put the rest back.
        let left = length.map(|length| bytes[..length].to_vec());
        for fix in [false, true] {
            examine(directory.path(), fix, &mut |_| {}).unwrap();
            let now = fs::read(&log).unwrap_or_default();
            assert_eq!(now, left.clone().unwrap_or_default(), "{length:?} {fix}");
        }
        fs::write(&log, &bytes).unwrap();
        assert_eq!(open(directory.path()).view().len(), 40);
    }
    // To continue with what is left is possible, and on purpose.
    fs::remove_file(&log).unwrap();
    fs::remove_file(whole.path().join(DURABLE_FILE)).unwrap();
    let names = open(whole.path());
    assert_eq!(names.view().len(), 20);
    pushed(&names, "b", 1).await;
}

#[tokio::test]
async fn a_log_that_is_gone_beside_its_files_is_not_begun_anew() {
    let whole = left().await;
    for removed in [None, Some(PathBuf::from(DURABLE_FILE)), Some(write_ahead(LOG_FILE.as_ref()))] {
        let directory = tempfile::tempdir().unwrap();
        copy(whole.path(), directory.path());
        fs::remove_file(directory.path().join(LOG_FILE)).unwrap();
        if let Some(removed) = removed {
            fs::remove_file(directory.path().join(removed)).unwrap();
        }
        let error = rejected(directory.path());
        assert!(matches!(error, OpenError::Gone { .. }), "{error:?}");
        let error = Embedded::open_existing(directory.path(), Options::default()).unwrap_err();
        assert!(matches!(error, OpenError::Gone { .. }), "{error:?}");
        fs::copy(whole.path().join(LOG_FILE), directory.path().join(LOG_FILE)).unwrap();
    }
}

#[tokio::test]
async fn another_log_an_older_copy_and_another_history_are_noticed() {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let names = open(directory.path());
    pushed(&names, "a", 1).await;
    drop(names);
    let log = directory.path().join(LOG_FILE);
    let older = fs::read(&log).unwrap();
    // Of the same beginning, and as long.
    copy(directory.path(), other.path());
    for (place, t) in [(&directory, 2), (&other, 3)] {
        let names = open(place.path());
        assert!(push(&names, "a", t).await.unwrap().is_updated());
    }
    fs::copy(other.path().join(LOG_FILE), &log).unwrap();
    let error = rejected(directory.path());
    assert!(error.to_string().contains("not the one that was answered"), "{error}");
    fs::write(&log, older).unwrap();
    let error = rejected(directory.path());
    assert!(error.to_string().contains("changes 4 to 4 were answered"), "{error}");

    let foreign = tempfile::tempdir().unwrap();
    let names = open(foreign.path());
    for t in 1..10 {
        pushed(&names, "a", t).await;
    }
    drop(names);
    fs::copy(foreign.path().join(LOG_FILE), &log).unwrap();
    let error = rejected(directory.path());
    assert!(error.to_string().contains("another log"), "{error}");
}

#[tokio::test]
async fn every_flipped_bit_of_a_row_is_noticed_by_readers_the_start_and_the_doctor() {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    let mut commands = Commands::new(3);
    for _ in 0..60 {
        let _ = names.inner.writer.write("test", commands.next().0).await;
    }
    drop(names);
    let log = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    let mut rows: Vec<(&str, &str, i64, Vec<u8>)> = Vec::new();
    for (table, key) in [("log", "position"), ("tail", "position"), ("records", "id")] {
        let mut select = log.prepare(&format!("SELECT {key}, body FROM {table}")).unwrap();
        let found = select.query_map([], |row| Ok((table, key, row.get(0)?, row.get(1)?))).unwrap();
        rows.extend(found.map(Result::unwrap));
    }
    for (n, (table, key, id, body)) in rows.iter().enumerate() {
        let put = |body: &[u8]| {
            log.execute(&format!("UPDATE {table} SET body = ?2 WHERE {key} = ?1"), rusqlite::params![id, body]).unwrap()
        };
        let mut damaged = body.clone();
        let bit = (n * 7_919) % (8 * body.len());
        damaged[bit / 8] ^= 1 << (bit % 8);
        put(&damaged);
        let mut found = Vec::new();
        examine(directory.path(), false, &mut |finding| found.push(finding.code)).unwrap();
        let is_found = found.contains(&"change-unreadable") || found.contains(&"record-unreadable");
        assert!(is_found, "{table} {id}, bit {bit}: {found:?}");
        if *table == "records" {
            let error = rejected(directory.path());
            assert!(matches!(error, OpenError::Damaged { .. }), "{id}: {error:?}");
        }
        put(body);
    }
    // Readers of the file see it, too.
    log.execute("UPDATE log SET at = at + 1 WHERE position = 3", []).unwrap();
    drop(log);
    let names = open(directory.path());
    let read = names.changes(0, Limit::default()).await;
    assert!(read.as_ref().is_err_and(|error| nameservice_model::chain(error).contains("checksum")), "{read:?}");
}

#[tokio::test]
async fn changes_that_were_exchanged_or_removed_break_the_chain() {
    for damage in [
        "UPDATE log SET body = (SELECT body FROM log WHERE position = 4) WHERE position = 5",
        "DELETE FROM log WHERE position = 4",
        "UPDATE log SET body = CAST(substr(body, 1, length(body) - 4) || x'00000000' AS BLOB) WHERE position = 4",
        "UPDATE log SET body = substr(body, 1, length(body) - 8) WHERE position = 4",
    ] {
        let directory = left().await;
        drop(open(directory.path()));
        Connection::open(directory.path().join(LOG_FILE)).unwrap().execute_batch(damage).unwrap();
        let mut found = Vec::new();
        examine(directory.path(), false, &mut |finding| found.push(finding.code)).unwrap();
        assert!(!found.is_empty(), "{damage}");
    }
}

#[tokio::test]
async fn a_log_of_the_format_before_is_converted_and_what_it_holds_stays() {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    let mut commands = Commands::new(9);
    for _ in 0..200 {
        let _ = names.inner.writer.write("test", commands.next().0).await;
    }
    drop(names);
    without_sums(directory.path());
    // A copy without conversion is read, too: backups are made of it.
    let names = open(directory.path());
    let (dump, changes) = (names.view().state().dump(), all(&names).await);
    pushed(&names, "later", 1).await;
    pushed(&names, "later", 2).await;
    drop(names);
    let mut found = Vec::new();
    examine(directory.path(), false, &mut |finding| found.push(finding.code)).unwrap();
    assert_eq!(found, [""; 0]);
    let log = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    let format: u32 = log.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(format, FORMAT);
    // What was written since has checksums, and must have them.
    log.execute_batch(
        "UPDATE log SET body = substr(body, 1, length(body) - 8) WHERE position = (SELECT max(position) FROM log);
        UPDATE tail SET body = substr(body, 1, length(body) - 8) WHERE position = (SELECT max(position) FROM tail)",
    )
    .unwrap();
    drop(log);
    let error = rejected(directory.path());
    assert!(matches!(error, OpenError::Damaged { .. } | OpenError::Incomplete { .. }), "{error:?}");
    // Records were read as they were.
    assert!(dump.lines().count() > 3 && changes.len() > 20);
    without(&directory, &dump).await;
}

async fn all(names: &Embedded) -> Vec<nameservice_model::Change> {
    let Run::Changes(changes) = names.changes(0, Limit::MAX).await.unwrap() else { panic!("gone") };
    changes
}

/// Checks that the records which were not written since are as they were, in a log that was made by the format before.
async fn without(directory: &tempfile::TempDir, dump: &str) {
    fs::remove_file(directory.path().join(DURABLE_FILE)).unwrap();
    let log = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    let last: i64 = log.query_row("SELECT checked_after FROM identity", [], |row| row.get(0)).unwrap();
    for table in ["log", "tail"] {
        log.execute(&format!("DELETE FROM {table} WHERE position > ?1"), [last]).unwrap();
    }
    log.execute("DELETE FROM records WHERE id > ?1", [last]).unwrap();
    drop(log);
    let names = open(directory.path());
    assert_eq!(names.view().state().dump(), dump);
}

#[tokio::test]
async fn an_examination_leaves_the_write_ahead_file_as_it_is() {
    let left = left().await;
    let files = [left.path().join(LOG_FILE), write_ahead(&left.path().join(LOG_FILE))];
    let before = files.clone().map(|file| fs::read(file).unwrap());
    examine(left.path(), false, &mut |finding| panic!("{finding:?}")).unwrap();
    assert!(files.map(|file| fs::read(file).unwrap()) == before);
    assert_eq!(open(left.path()).view().len(), 40);
}

#[tokio::test]
async fn a_log_of_the_format_before_does_not_take_the_place_of_another() {
    let (directory, former) = (left().await, left().await);
    drop(open(former.path()));
    super::without_sums(former.path());
    let _ = fs::remove_file(write_ahead(&directory.path().join(LOG_FILE)));
    fs::copy(former.path().join(LOG_FILE), directory.path().join(LOG_FILE)).unwrap();
    let error = rejected(directory.path());
    assert!(matches!(error, OpenError::Incomplete { .. }), "{error:?}");
    fs::remove_file(directory.path().join(DURABLE_FILE)).unwrap();
    assert_eq!(open(directory.path()).view().len(), 40);
}

#[tokio::test]
async fn a_hole_in_the_changes_is_noticed_when_the_log_is_opened() {
    for damage in ["DELETE FROM log WHERE position = 7", "DELETE FROM tail WHERE position = 118"] {
        let left = left().await;
        let connection = Connection::open(left.path().join(LOG_FILE)).unwrap();
        let removed = connection.execute(damage, []).unwrap();
        drop(connection);
        if removed == 0 {
            continue;
        }
        let error = rejected(left.path());
        assert!(matches!(error, OpenError::Damaged { .. }), "{damage}: {error:?}");
        let reason = error.to_string();
        assert!(reason.contains("missing") || reason.contains("does not follow"), "{reason}");
    }
}

#[tokio::test]
async fn a_copy_of_files_made_one_after_another_never_opens_without_what_was_answered() {
    let served = tempfile::tempdir().unwrap();
    let names = Embedded::open(served.path(), Options::default().with_checkpoint_bytes(60_000)).unwrap();
    let (mut rejected, mut copies) = (0, Vec::new());
    for n in 0..160 {
        pushed(&names, &format!("a{n}"), 1).await;
        if n % 10 == 0 {
            copies.push((n, fs::read(served.path().join(LOG_FILE)).unwrap()));
        }
        if n % 16 != 15 {
            continue;
        }
        for (_, older) in copies.iter().rev().take(6) {
            let mixed = tempfile::tempdir().unwrap();
            copy(served.path(), mixed.path());
            fs::write(mixed.path().join(LOG_FILE), older).unwrap();
            match Embedded::open(mixed.path(), Options::default()) {
                Ok(names) => assert_eq!(names.view().len(), n + 1),
                Err(_) => rejected += 1,
            }
        }
    }
    assert!(rejected > 0);
}

#[tokio::test]
async fn a_log_that_has_lost_what_it_answered_is_not_backed_up() {
    let (directory, parent) = (left().await, tempfile::tempdir().unwrap());
    let to = parent.path().join("copy");
    fs::remove_file(write_ahead(&directory.path().join(LOG_FILE))).unwrap();
    let rejected = backup(directory.path(), &to).await.unwrap_err();
    let BackupError::Source(OpenError::Incomplete { .. }) = &rejected else { panic!("{rejected:?}") };
    assert!(rejected.to_string().contains("changes 61 to 120 were answered"), "{rejected}");
    assert!(!to.exists(), "no directory is left that looks like a backup");
    // Knowingly.
    fs::remove_file(directory.path().join(DURABLE_FILE)).unwrap();
    assert_eq!(backup(directory.path(), &to).await.unwrap(), 60);
}

#[tokio::test]
async fn a_log_in_use_or_one_that_was_killed_is_backed_up_whole() {
    let (directory, parent) = (left().await, tempfile::tempdir().unwrap());
    assert_eq!(backup(directory.path(), parent.path().join("killed")).await.unwrap(), 120);
    let names = open(directory.path());
    pushed(&names, "b", 1).await;
    assert_eq!(backup(directory.path(), parent.path().join("used")).await.unwrap(), 123);
}
