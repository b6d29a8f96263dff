//! Backups are checked, and what they are backups of is known.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use nameservice_model::{ChangeFeed, Limit, NameService, Run};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rusqlite::{Connection, ErrorCode, types::Value};

use super::{at, commands::Commands, open, pushed, without_sums};
use crate::{
    BackupError, Embedded, OpenError, Options, RestoreError, Timeline, backup, copy_observed,
    directory::{DURABLE_FILE, LOG_FILE},
    examine,
    log::{Interrupt, Readers, rows},
    restore_backup,
};

/// A directory with records, some of whose changes have been removed, all of it in the file of the log.
pub(super) async fn filled() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let names = open(directory.path());
    let mut commands = Commands::new(3);
    for _ in 0..300 {
        let _ = names.inner.writer.write("test", commands.next().0).await;
    }
    for n in 0..40 {
        pushed(&names, &format!("kept/{n}"), 1).await;
    }
    drop(names);
    drop(open(directory.path()));
    for table in ["log", "tail"] {
        damage(directory.path(), &format!("DELETE FROM {table} WHERE position <= 60"));
    }
    drop(open(directory.path()));
    directory
}

pub(super) fn damage(directory: &Path, statement: &str) {
    Connection::open(directory.join(LOG_FILE)).unwrap().execute_batch(statement).unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in [LOG_FILE, DURABLE_FILE].into_iter().filter(|file| from.join(file).exists()) {
        fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

/// Returns everything that a log holds.
pub(super) fn content(directory: &Path) -> rusqlite::Result<Vec<Vec<Value>>> {
    let log = Connection::open(directory.join(LOG_FILE))?;
    let mut content = Vec::new();
    for (table, columns) in [("changes", 4), ("records", 2), ("memories", 2), ("identity", 2)] {
        let mut select = log.prepare(&format!("SELECT * FROM {table} ORDER BY 1"))?;
        for row in select.query_map([], |row| (0..columns).map(|column| row.get(column)).collect())? {
            content.push(row?);
        }
    }
    Ok(content)
}

#[tokio::test]
async fn a_damaged_record_is_named_and_there_is_no_backup() {
    let directory = tempfile::tempdir().unwrap();
    let parent = tempfile::tempdir().unwrap();
    let to = parent.path().join("copy");
    let names = open(directory.path());
    for n in 0..5 {
        pushed(&names, &format!("a{n}"), 1).await;
    }
    let id: u64 = names.view().state().get(&at("a3")).unwrap().id;
    drop(names);
    let log = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    let mut body: Vec<u8> = log.query_row("SELECT body FROM records WHERE id = ?1", [id], |row| row.get(0)).unwrap();
    let found = body.windows(5).position(|window| window == b"bafy1").unwrap();
    body[found + 4] ^= 2;
    log.execute("UPDATE records SET body = ?2 WHERE id = ?1", rusqlite::params![id, body]).unwrap();
    drop(log);
    let failed = backup(directory.path(), &to).await.unwrap_err();
    let BackupError::Damaged { findings } = &failed else { panic!("{failed:?}") };
    // The others say that there is no record for its changes.
    assert!(findings[1..].iter().all(|finding| finding.code == "state-unexplained"), "{findings:?}");
    let expected = format!("record-unreadable: record {id} cannot be read: its checksum is wrong");
    assert!(failed.is_damage() && failed.to_string().contains(&expected), "{failed}");
    assert!(!to.exists(), "nothing is left that looks like a backup");
    // What is to be examined is copied all the same.
    copy_observed(directory.path(), &to, &|_| {}).await.unwrap();
}

#[tokio::test]
async fn data_that_is_served_is_checked_too() {
    let (directory, parent) = (filled().await, tempfile::tempdir().unwrap());
    let names = open(directory.path());
    let to = parent.path().join("copy");
    let _ = names.backup(&to).await.unwrap();
    let log = directory.path().join(LOG_FILE);
    let mut bytes = fs::read(&log).unwrap();
    // Everywhere, since pages that are not used have copies of it.
    let places: Vec<_> = (0..bytes.len() - 7).filter(|at| bytes[*at..].starts_with(b"kept/38")).collect();
    for place in places {
        bytes[place] ^= 1;
    }
    fs::write(&log, bytes).unwrap();
    let failed = names.backup(parent.path().join("next")).await.unwrap_err();
    assert!(failed.is_damage() && failed.to_string().contains("record-unreadable: record "), "{failed}");
    assert_eq!(names.lookup(&at("kept/38")).await.unwrap().map(|record| record.head.unwrap().t()), Some(1));
    let restored = Embedded::open_existing(&to, Options::default()).unwrap();
    assert_eq!(restored.view().position(), names.view().position());
}

#[tokio::test]
async fn a_log_without_its_columns_or_its_identity_is_damaged() {
    for damaged in ["ALTER TABLE identity RENAME COLUMN checked_after TO checked_aftes", "DELETE FROM identity"] {
        let (directory, parent) = (filled().await, tempfile::tempdir().unwrap());
        damage(directory.path(), damaged);
        let failed = backup(directory.path(), parent.path().join("copy")).await.unwrap_err();
        assert!(failed.is_damage(), "{damaged}: {failed:?}");
    }
}

#[tokio::test]
async fn wrong_counts_and_the_format_before_are_backed_up() {
    let (directory, parent) = (filled().await, tempfile::tempdir().unwrap());
    let log = Connection::open(directory.path().join(LOG_FILE)).unwrap();
    let select = "SELECT id, body FROM records ORDER BY id DESC LIMIT 1";
    let (id, body): (u64, Vec<u8>) = log.query_row(select, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let (mut record, _) = rows::checked_record(id, &body).unwrap();
    record.branches += 7;
    let body = rows::encode_record(&record).unwrap();
    log.execute("UPDATE records SET body = ?2 WHERE id = ?1", rusqlite::params![id, body]).unwrap();
    drop(log);
    let _ = backup(directory.path(), parent.path().join("counts")).await.unwrap();
    without_sums(directory.path());
    let to = parent.path().join("former");
    let _ = backup(directory.path(), &to).await.unwrap();
    let former = Timeline::open(&to).unwrap();
    assert!(former.identity().is_none() && !former.continues(&former).unwrap(), "it cannot be compared with others");
}

#[tokio::test]
async fn a_replica_is_backed_up_whatever_its_snapshot_and_its_changes_have_left() {
    let (upstream, directory) = (Embedded::memory(Options::default()).unwrap(), tempfile::tempdir().unwrap());
    let parent = tempfile::tempdir().unwrap();
    let mut commands = Commands::new(9);
    for _ in 0..200 {
        let _ = upstream.inner.writer.write("test", commands.next().0).await;
    }
    let replica = Embedded::open_replica(directory.path(), "http://upstream", Options::default()).unwrap();
    let records = upstream.view().state().records().map(|record| record.to_model()).collect();
    let position = upstream.view().position();
    replica.adopt(records, position).await.unwrap();
    assert_eq!(replica.backup(parent.path().join("snapshot")).await.unwrap(), position);
    for _ in 0..20 {
        let _ = upstream.inner.writer.write("test", commands.next().0).await;
    }
    let Run::Changes(changes) = upstream.changes(position, Limit::MAX).await.unwrap() else { panic!("no changes") };
    replica.replicate(changes.into_iter().map(Into::into).collect()).await.unwrap();
    let to = parent.path().join("copy");
    let position = replica.backup(&to).await.unwrap();
    assert_eq!(position, upstream.view().position());
    let timeline = Timeline::open(&to).unwrap();
    assert!(timeline.continues(&Timeline::open(parent.path().join("snapshot")).unwrap()).unwrap());
}

#[tokio::test]
async fn a_log_continues_its_backups_but_neither_other_data_nor_what_a_restore_has_left_behind() {
    let parent = tempfile::tempdir().unwrap();
    let path = |name: &str| parent.path().join(name);
    let timeline = |name: &str| Timeline::open(path(name)).unwrap();
    let names = open(&path("data"));
    pushed(&names, "a", 1).await;
    let _ = names.backup(path("first")).await.unwrap();
    pushed(&names, "b", 1).await;
    let _ = names.backup(path("lost")).await.unwrap();
    copy(&path("first"), &path("restored"));
    let restored = open(&path("restored"));
    for address in ["c", "d"] {
        pushed(&restored, address, 1).await;
    }
    let other = open(&path("other"));
    pushed(&other, "a", 1).await;
    let continues = |new: &str, old: &str| timeline(new).continues(&timeline(old)).unwrap();
    assert!(continues("data", "first") && continues("data", "lost") && continues("lost", "lost"));
    assert!(continues("restored", "first"));
    assert!(!continues("first", "lost"), "it is not as far");
    assert!(!continues("restored", "lost"), "the same position has another change");
    assert!(!continues("data", "other") && !continues("other", "first"));
    assert!(timeline("lost").recorded_at() >= timeline("first").recorded_at());
    // Without the change, identity and position are all there is.
    damage(&path("restored"), "DELETE FROM log; DELETE FROM tail WHERE position < (SELECT max(position) FROM tail)");
    assert!(continues("restored", "lost"));
    assert_eq!(timeline("restored").shows(&timeline("lost")).unwrap(), None);
    assert!(Timeline::open(path("nowhere")).is_err());
    drop((names, restored, other));
}

#[tokio::test]
async fn each_flipped_bit_is_found_or_leaves_the_backup_as_it_would_be() {
    let (whole, parent) = (filled().await, tempfile::tempdir().unwrap());
    let (data, to) = (parent.path().join("data"), parent.path().join("copy"));
    let expected = content(whole.path()).unwrap();
    copy(whole.path(), &data);
    let bytes = fs::read(whole.path().join(LOG_FILE)).unwrap();
    let (mut found, mut harmless) = (BTreeMap::<&str, u32>::new(), 0);
    for Flip { at, bit, flipped } in flips(&bytes) {
        fs::write(data.join(LOG_FILE), flipped).unwrap();
        match backup(&data, &to).await {
            Ok(_) => {
                assert!(
                    content(&to).unwrap() == expected,
                    "byte {at}, bit {bit}: a backup that is not what was written"
                );
                harmless += 1;
                fs::remove_dir_all(&to).unwrap();
            }
            Err(error) => {
                assert!(error.is_damage() && !to.exists(), "byte {at}, bit {bit}: {error:?}");
                let by = match &error {
                    BackupError::Damaged { findings } => findings[0].code,
                    _ => "not the log that was answered from",
                };
                *found.entry(by).or_default() += 1;
            }
        }
    }
    println!("bits flipped in the {} bytes of a log: {harmless} change nothing, found by {found:?}", bytes.len());
    assert!(found.contains_key("record-unreadable") && found.contains_key("change-unreadable"), "{found:?}");
}

#[tokio::test]
async fn each_flipped_bit_of_a_backup_is_found_and_costs_no_other_backup() {
    let (whole, parent) = (filled().await, tempfile::tempdir().unwrap());
    let path = |name: &str| parent.path().join(name);
    let (damaged, to) = (path("damaged"), path("data"));
    let position = backup(whole.path(), &damaged).await.unwrap();
    let expected = content(&damaged);
    pushed(&open(whole.path()), "later", 1).await;
    let _ = backup(whole.path(), path("next")).await.unwrap();
    let next = Timeline::open(path("next")).unwrap();
    assert!(next.continues(&Timeline::open(&damaged).unwrap()).unwrap());
    let bytes = fs::read(damaged.join(LOG_FILE)).unwrap();
    let (mut found, mut harmless, mut apart) = (BTreeMap::<&str, u32>::new(), 0, 0);
    for Flip { at, bit, flipped } in flips(&bytes) {
        fs::write(damaged.join(LOG_FILE), flipped).unwrap();
        // Older backups are removed by their positions. It keeps its place among them, or is no longer one of them.
        match Timeline::open(&damaged) {
            Ok(old) if next.continues(&old).unwrap_or(false) => {
                assert_eq!(old.position(), position, "byte {at}, bit {bit}")
            }
            _ => apart += 1,
        }
        match restore_backup(&damaged, &to, false, &|_| {}).await {
            Ok(_) => {
                assert!(content(&to) == expected, "byte {at}, bit {bit}: what is restored is not what was backed up");
                harmless += 1;
                fs::remove_dir_all(&to).unwrap();
            }
            Err(error) => {
                let by = match &error {
                    RestoreError::Damaged { findings, .. } => findings[0].code,
                    RestoreError::Backup { .. } => "cannot be opened",
                    _ => panic!("byte {at}, bit {bit}: {error:?}"),
                };
                assert!(error.to_string().contains(damaged.to_str().unwrap()), "{error}");
                assert!(!to.join(LOG_FILE).exists(), "byte {at}, bit {bit}: {error}");
                *found.entry(by).or_default() += 1;
            }
        }
    }
    println!(
        "bits flipped in the {} bytes of a backup: {harmless} change nothing, found by {found:?}; {apart} no longer count as a backup",
        bytes.len()
    );
    assert!(found.contains_key("record-unreadable") && found.contains_key("change-unreadable"), "{found:?}");
}

/// Says in how many places a bit is flipped.
const FLIPS: &str = "NAMESERVICE_FLIPS";
const DEFAULT_FLIPS: u32 = 300;
/// The seed of the places.
const BASE: &str = "NAMESERVICE_TEST_BASE";
const DEFAULT_BASE: u64 = 1;

/// A file with one flipped bit.
struct Flip {
    at: usize,
    bit: u32,
    flipped: Vec<u8>,
}

/// Flips one bit of a file in each of many random places.
fn flips(bytes: &[u8]) -> impl Iterator<Item = Flip> {
    let count = std::env::var(FLIPS).map_or(DEFAULT_FLIPS, |count| count.parse().unwrap());
    let base = std::env::var(BASE).map_or(DEFAULT_BASE, |base| base.parse().unwrap());
    println!("{count} places, {BASE}={base}");
    let mut random = StdRng::seed_from_u64(base);
    (0..count).map(move |_| {
        let (at, bit) = (random.random_range(0..bytes.len()), random.random_range(0..8));
        let mut flipped = bytes.to_owned();
        flipped[at] ^= 1 << bit;
        Flip { at, bit, flipped }
    })
}

/// Names a log: the test then is another process, which ends with an error if it gets the log for itself.
const LOG_OF_ANOTHER: &str = "NAMESERVICE_TEST_LOG_OF_ANOTHER";

/// Returns whether the log is locked for another process.
fn is_locked_for_others(directory: &Path, test: &str) -> bool {
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", test]).env(LOG_OF_ANOTHER, directory.join(LOG_FILE)).stdout(Stdio::null());
    other.status().unwrap().success()
}

fn try_for_itself(log: &Path) {
    let log = Connection::open(log).unwrap();
    log.busy_timeout(Duration::ZERO).unwrap();
    let taken = log.execute_batch("PRAGMA locking_mode = exclusive; BEGIN EXCLUSIVE").unwrap_err();
    assert_eq!(taken.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{taken}");
}

/// A process loses its locks of a file when it closes any descriptor of it. Without them, the next process that closes the log removes
/// the write-ahead file, with what was answered.
#[tokio::test]
async fn nothing_that_reads_an_open_log_in_this_process_ends_its_locks() {
    const NAME: &str = "tests::backups::nothing_that_reads_an_open_log_in_this_process_ends_its_locks";
    if let Some(log) = std::env::var_os(LOG_OF_ANOTHER) {
        return try_for_itself(Path::new(&log));
    }
    let (directory, parent) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = directory.path();
    let names = open(path);
    pushed(&names, "a", 1).await;
    assert!(is_locked_for_others(path, NAME));
    let to = |name: &str| parent.path().join(name);
    let _ = names.backup(to("one")).await.unwrap();
    let _ = names.timeline().unwrap();
    assert!(names.backup_bytes().await.unwrap() > 0 && is_locked_for_others(path, NAME));
    assert!(names.scrub(&mut |_, _| true).unwrap().is_whole && is_locked_for_others(path, NAME));
    let _ = backup(path, to("two")).await.unwrap();
    copy_observed(path, to("three"), &|_| {}).await.unwrap();
    let timeline = Timeline::open(path).unwrap();
    assert!(is_locked_for_others(path, NAME));
    drop(timeline);
    for rejected in [
        Embedded::open(path, Options::default()).unwrap_err(),
        Embedded::open_existing(path, Options::default()).unwrap_err(),
        examine(path, false, &mut |_| {}).unwrap_err(),
    ] {
        assert!(matches!(rejected, OpenError::InUse { .. }), "{rejected:?}");
    }
    let restored = restore_backup(to("one"), path, true, &|_| {}).await.unwrap_err();
    assert!(matches!(restored, RestoreError::Directory(OpenError::InUse { .. })), "{restored:?}");
    assert!(is_locked_for_others(path, NAME) && path.join(format!("{LOG_FILE}-wal")).exists());
    // What this test is about: any other descriptor of the file, once it is closed.
    #[cfg(target_os = "linux")]
    {
        drop(fs::File::open(path.join(LOG_FILE)).unwrap());
        assert!(!is_locked_for_others(path, NAME));
    }
}

#[tokio::test]
async fn a_copy_that_nobody_waits_for_ends() {
    const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let interrupt = Interrupt::default();
    let readers = Readers::interrupted_by(&directory.path().join(LOG_FILE), interrupt.clone());
    interrupt.set();
    let ended = readers.read(|connection| Ok(connection.query_row(ENDLESS, [], |row| row.get::<_, i64>(0))?));
    assert!(format!("{:?}", ended.unwrap_err()).contains("OperationInterrupted"));
}
