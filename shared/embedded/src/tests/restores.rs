//! A backup takes the place of data only if that loses nothing, or if the loss is accepted.

use std::{fs, io, path::Path};

use rusqlite::Connection;

use super::{backups::damage, head_of, open, pushed, without_sums};
use crate::{
    BackupError, Embedded, OpenError, Options, RestoreError, Restored, backup,
    directory::{DURABLE_FILE, LOG_FILE},
    restore::{not_copied, replace, set_aside},
    restore_backup,
};

/// Data with a backup, and what was written since.
async fn prepared() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let names = open(&root.path().join("data"));
    pushed(&names, "a", 1).await;
    let _ = names.backup(root.path().join("backup")).await.unwrap();
    pushed(&names, "later", 1).await;
    root
}

async fn restored(root: &Path, data: &str, accept_loss: bool) -> Result<Restored, RestoreError> {
    restore_backup(root.join("backup"), root.join(data), accept_loss, &|_| {}).await
}

async fn has(directory: &Path, address: &str) -> bool {
    let names = Embedded::open_existing(directory, Options::default()).unwrap();
    head_of(&names, address).await.is_some()
}

#[tokio::test]
async fn a_directory_that_is_missing_or_empty_gets_the_data_and_the_backup_stays() {
    let root = prepared().await;
    fs::create_dir(root.path().join("empty")).unwrap();
    drop(open(&root.path().join("unused")));
    let before = fs::read(root.path().join("backup").join(LOG_FILE)).unwrap();
    for data in ["missing/below", "empty"] {
        let done = restored(root.path(), data, false).await.unwrap();
        assert_eq!((done.lost, done.replaced), (None, None));
        let data = root.path().join(data);
        assert!(has(&data, "a").await && !has(&data, "later").await);
    }
    // An empty service has nothing to lose.
    let done = restored(root.path(), "unused", false).await.unwrap();
    assert!(done.lost.is_none() && done.replaced.is_some() && has(&root.path().join("unused"), "a").await);
    assert_eq!(fs::read(root.path().join("backup").join(LOG_FILE)).unwrap(), before);
}

#[tokio::test]
async fn what_would_be_lost_is_named_and_moved_aside_once_it_is_accepted() {
    let root = prepared().await;
    let data = root.path().join("data");
    let rejected = restored(root.path(), "data", false).await.unwrap_err();
    let RestoreError::Loss { reason, .. } = &rejected else { panic!("{rejected:?}") };
    assert!(
        reason.starts_with("it is at position 6 (20") && reason.contains("the backup is at position 3 ("),
        "{reason}"
    );
    assert!(has(&data, "later").await, "nothing has changed");
    // What an interrupted restore has left does not matter.
    fs::create_dir(data.join("restoring")).unwrap();
    let done = restored(root.path(), "data", true).await.unwrap();
    assert_eq!((done.position, done.lost.as_ref()), (3, Some(reason)));
    assert!(has(&data, "a").await && !has(&data, "later").await);
    assert!(!data.join("restoring").exists());
    let replaced = done.replaced.unwrap();
    assert!(replaced.parent() == Some(root.path()) && has(&replaced, "later").await, "{replaced:?}");
    // Again: nothing is lost, since the data is the backup's.
    assert_eq!(restored(root.path(), "data", false).await.unwrap().lost, None);
}

#[tokio::test]
async fn a_volume_keeps_what_was_replaced_within() {
    let root = prepared().await;
    // It has no name beside which something could be.
    fs::create_dir(root.path().join("data/sub")).unwrap();
    let done = restored(root.path(), "data/sub/..", true).await.unwrap();
    let replaced = done.replaced.unwrap();
    assert!(fs::canonicalize(&replaced).unwrap().starts_with(fs::canonicalize(root.path().join("data")).unwrap()));
    assert!(has(&replaced, "later").await && !has(&root.path().join("data"), "later").await);
}

#[tokio::test]
async fn data_in_use_and_a_damaged_backup_change_nothing() {
    let root = prepared().await;
    let data = root.path().join("data");
    let names = open(&data);
    let rejected = restored(root.path(), "data", true).await.unwrap_err();
    assert!(matches!(rejected, RestoreError::Directory(OpenError::InUse { .. })), "{rejected:?}");
    drop(names);
    let log = Connection::open(root.path().join("backup").join(LOG_FILE)).unwrap();
    log.execute("UPDATE records SET body = x'00'", []).unwrap();
    drop(log);
    let rejected = restored(root.path(), "data", true).await.unwrap_err();
    assert!(matches!(&rejected, RestoreError::Damaged { .. }), "{rejected:?}");
    assert!(!rejected.to_string().contains("the data is damaged"), "{rejected}");
    assert!(has(&data, "later").await);
    let rejected = restore_backup(root.path().join("nothing"), &data, true, &|_| {}).await.unwrap_err();
    assert!(matches!(rejected, RestoreError::Backup { .. }), "{rejected:?}");
}

#[tokio::test]
async fn data_of_another_history_or_that_cannot_be_read_is_not_replaced_without_a_word() {
    let root = prepared().await;
    let reason = async |data: &str| match restored(root.path(), data, false).await {
        Err(RestoreError::Loss { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    pushed(&open(&root.path().join("other")), "b", 1).await;
    let found = reason("other").await;
    assert!(found.contains("another history than the backup, it is at position 3"), "{found}");
    // A branch: the backup, written on.
    restored(root.path(), "branch", false).await.unwrap();
    let names = open(&root.path().join("branch"));
    pushed(&names, "c", 1).await;
    fs::remove_dir_all(root.path().join("backup")).unwrap();
    let _ = names.backup(root.path().join("backup")).await.unwrap();
    drop(names);
    let found = reason("data").await;
    assert!(found.contains("since an earlier restore"), "{found}");
    assert_eq!(restored(root.path(), "branch", false).await.unwrap().lost, None);
    fs::write(root.path().join("data").join(LOG_FILE), "not a log").unwrap();
    let found = reason("data").await;
    assert!(found.starts_with("it cannot be read"), "{found}");
    let replaced = restored(root.path(), "data", true).await.unwrap().replaced.unwrap();
    assert!(replaced.join(DURABLE_FILE).exists() && has(&root.path().join("data"), "c").await);
}

#[tokio::test]
async fn data_that_can_have_no_further_name_is_copied_and_what_fails_leaves_nothing() {
    let root = prepared().await;
    let data = root.path().join("data");
    let files = [data.join(LOG_FILE), data.join(DURABLE_FILE)];
    let entries = || {
        let below = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let mut entries = [below(root.path()), below(&data)].concat();
        entries.sort();
        entries
    };
    let before = entries();
    let kinds = [io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied, io::ErrorKind::CrossesDevices];
    for (kind, parent) in kinds.into_iter().zip([root.path(), &data, &data]) {
        let aside = set_aside(&data, &files, |_, _| Err(kind.into())).unwrap();
        assert_eq!(aside.parent(), Some(parent), "{kind}");
        for file in &files {
            assert_eq!(fs::read(file).unwrap(), fs::read(aside.join(file.file_name().unwrap())).unwrap());
        }
        fs::remove_dir_all(aside).unwrap();
    }
    let missing = [files[0].clone(), data.join("missing")];
    set_aside(&data, &missing, |from, to| fs::hard_link(from, to)).unwrap_err();
    assert_eq!(entries(), before);
    // Names that are taken are left alone.
    let link = |from: &Path, to: &Path| fs::hard_link(from, to);
    let asides = [0, 1, 2].map(|_| set_aside(&data, &files, link).unwrap());
    assert!(asides[0] != asides[1] && asides[1] != asides[2] && asides[0] != asides[2], "{asides:?}");
}

/// As of a service whose user the superuser is not.
#[tokio::test]
#[cfg(unix)]
async fn what_the_superuser_restores_belongs_to_the_owner_of_the_data() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    const SERVICE: u32 = 61_234;
    let root = prepared().await;
    let data = root.path().join("data");
    let owner = |path: &Path| fs::metadata(path).unwrap().uid();
    let own = owner(&data);
    let expected = if own == 0 { SERVICE } else { own };
    if own == 0 {
        if let Err(error) = chown(root.path(), Some(SERVICE), Some(SERVICE)) {
            return eprintln!("skipped, since this superuser cannot give files away: {error}");
        }
        for path in [root.path().to_owned(), data.clone(), data.join(LOG_FILE), data.join(DURABLE_FILE)] {
            chown(path, Some(SERVICE), Some(SERVICE)).unwrap();
        }
    }
    fs::remove_file(data.join("lock")).unwrap();
    restored(root.path(), "data", false).await.unwrap_err();
    assert_eq!(owner(&data.join("lock")), expected, "also of a restore that was rejected");
    let replaced = restored(root.path(), "data", true).await.unwrap().replaced.unwrap();
    restored(root.path(), "new/below", false).await.unwrap();
    let new = root.path().join("new");
    for path in [data, new.join("below")].map(|data| [data.join(LOG_FILE), data.join("lock"), data]).concat() {
        assert_eq!(owner(&path), expected, "{path:?}");
    }
    assert_eq!((owner(&new), owner(&replaced)), (expected, expected));
    assert_eq!(owner(&root.path().join("backup")), own, "the backup stays as it is");
}

#[test]
fn a_full_volume_of_the_data_is_not_blamed_on_the_backup() {
    let full = BackupError::Io { path: "data/restoring".into(), source: io::ErrorKind::StorageFull.into() };
    let failed = not_copied(Path::new("saved"), Path::new("data"), full);
    assert_eq!(failed.to_string(), "cannot copy the backup saved to data");
    let findings = Vec::new();
    let failed = not_copied(Path::new("saved"), Path::new("data"), BackupError::Copied { findings });
    assert!(matches!(failed, RestoreError::Copy { .. }), "{failed:?}");
}

#[tokio::test]
#[cfg(unix)]
async fn a_lock_that_leads_to_another_file_leaves_it_as_it_is() {
    let root = prepared().await;
    let (data, other) = (root.path().join("data"), root.path().join("other"));
    fs::write(&other, "of somebody else").unwrap();
    fs::remove_file(data.join("lock")).unwrap();
    let link = |to: &Path| std::os::unix::fs::symlink(to, data.join("lock")).unwrap();
    link(&other);
    restored(root.path(), "data", true).await.unwrap();
    let names = open(&data);
    assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
    // Nor is it shown as the process that uses the directory.
    let in_use = |directory: &Path| match Embedded::open(directory, Options::default()) {
        Err(OpenError::InUse { process, .. }) => process,
        other => panic!("{other:?}"),
    };
    assert_eq!(in_use(&data), None);
    drop(names);
    // Nor is what a restore writes beside the log.
    let beside = data.join("nameservice.log.durable.new");
    let links: [fn(&Path, &Path) -> io::Result<()>; 2] =
        [|to, at| std::os::unix::fs::symlink(to, at), |to, at| fs::hard_link(to, at)];
    for linked in links {
        linked(&other, &beside).unwrap();
        restored(root.path(), "data", true).await.unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
        let _ = fs::remove_file(&beside);
    }
    // What does not exist is not created.
    let nothing = root.path().join("nothing");
    fs::remove_file(data.join("lock")).unwrap();
    link(&nothing);
    restored(root.path(), "data", true).await.unwrap();
    assert!(!nothing.exists());
    // A file of its own names the process, unless it has another name, too: it may be a copy's.
    fs::remove_file(data.join("lock")).unwrap();
    let names = open(&data);
    assert_eq!(in_use(&data), Some(std::process::id().to_string()));
    fs::hard_link(data.join("lock"), root.path().join("copied")).unwrap();
    assert_eq!(in_use(&data), None);
    drop(names);
}

#[tokio::test]
async fn data_that_has_lost_what_was_answered_is_not_replaced_without_a_word() {
    let root = prepared().await;
    // An older copy of the log alone, without the write-ahead file.
    let log = root.path().join("data").join(LOG_FILE);
    fs::copy(root.path().join("backup").join(LOG_FILE), &log).unwrap();
    fs::remove_file(log.with_file_name(format!("{LOG_FILE}-wal"))).unwrap();
    let rejected = restored(root.path(), "data", false).await.unwrap_err();
    let RestoreError::Loss { reason, .. } = &rejected else { panic!("{rejected:?}") };
    assert!(reason.contains("were answered") && reason.contains("the backup is at position 3 ("), "{reason}");
    let done = restored(root.path(), "data", true).await.unwrap();
    assert!(done.replaced.unwrap().join(DURABLE_FILE).exists());
    assert_eq!(restored(root.path(), "data", false).await.unwrap().lost, None);
}

/// A restored log is no one with a write-ahead file before its first start, which may be killed.
#[tokio::test]
async fn pages_from_before_a_transaction_that_was_interrupted_go_with_the_data_that_they_are_of() {
    let root = prepared().await;
    let large = open(&root.path().join("large"));
    for n in 0..100 {
        pushed(&large, &format!("r{n}"), 1).await;
    }
    let _ = large.backup(root.path().join("later")).await.unwrap();
    restored(root.path(), "small", false).await.unwrap();
    let data = root.path().join("small");
    let (log, journal) = (data.join(LOG_FILE), data.join(format!("{LOG_FILE}-journal")));
    let connection = Connection::open(&log).unwrap();
    let spilled = "PRAGMA cache_size = 1; BEGIN IMMEDIATE; UPDATE records SET body = zeroblob(100000)";
    connection.execute_batch(spilled).unwrap();
    let interrupted = fs::read(&journal).unwrap();
    assert!(interrupted.len() > 4096, "{}", interrupted.len());
    drop(connection);
    fs::write(&journal, &interrupted).unwrap();
    let done = restore_backup(root.path().join("later"), &data, true, &|_| {}).await.unwrap();
    assert!(has(&data, "r99").await && !journal.exists());
    let (_, findings) = Embedded::open_existing(&data, Options::default()).unwrap().examine().await.unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    let kept = done.replaced.unwrap().join(journal.file_name().unwrap());
    assert_eq!(fs::read(kept).unwrap(), interrupted);
    // Without its log, they belong to one that is gone.
    fs::create_dir(root.path().join("gone")).unwrap();
    fs::write(root.path().join("gone").join(journal.file_name().unwrap()), &interrupted).unwrap();
    let rejected = Embedded::open(root.path().join("gone"), Options::default()).unwrap_err();
    assert!(matches!(rejected, OpenError::Gone { .. }), "{rejected:?}");
}

#[tokio::test]
async fn what_a_restore_has_left_is_no_backup_and_nothing_beside_a_copy_makes_it_fail() {
    let root = prepared().await;
    let data = root.path().join("data");
    let left = data.join("restoring");
    let _ = backup(root.path().join("backup"), &left).await.unwrap();
    let rejected = restore_backup(&left, &data, true, &|_| {}).await.unwrap_err();
    assert!(matches!(rejected, RestoreError::Unfinished { .. }) && left.join(LOG_FILE).exists(), "{rejected:?}");
    fs::write(left.join(".other"), "of a file manager").unwrap();
    let mut replaced = None;
    replace(&data, &left, None, &mut replaced).unwrap();
    assert!(has(&data, "a").await && !has(&data, "later").await && !left.exists());
    // What fails once the former data was moved aside says where that is, and what is left of it is not opened without its last changes.
    pushed(&open(&data), "b", 1).await;
    replace(&data, &left, None, &mut replaced).unwrap_err();
    let replaced = replaced.unwrap();
    assert!(has(&replaced, "b").await);
    let rejected = Embedded::open(&data, Options::default()).unwrap_err();
    assert!(matches!(rejected, OpenError::Incomplete { .. }), "{rejected:?}");
    let failed = RestoreError::Io { path: data, replaced: Some(replaced.clone()), source: io::ErrorKind::Other.into() };
    assert!(failed.to_string().contains(replaced.to_str().unwrap()), "{failed}");
}

#[tokio::test]
async fn a_replica_that_has_just_begun_is_not_said_to_be_what_a_backup_has() {
    let root = tempfile::tempdir().unwrap();
    let replica = Embedded::open_replica(root.path().join("data"), "http://up", Options::default()).unwrap();
    replica.adopt(Vec::new(), 5).await.unwrap();
    let _ = replica.backup(root.path().join("backup")).await.unwrap();
    // Its upstream was restored, and went on.
    replica.adopt(Vec::new(), 4).await.unwrap();
    drop(replica);
    let rejected = restored(root.path(), "data", false).await.unwrap_err();
    assert!(matches!(rejected, RestoreError::Loss { .. }), "{rejected:?}");
}

#[tokio::test]
async fn data_that_an_earlier_version_has_written_is_not_said_to_be_of_another_history() {
    let root = prepared().await;
    without_sums(&root.path().join("data"));
    let rejected = restored(root.path(), "data", false).await.unwrap_err();
    assert!(rejected.to_string().contains("an earlier version has written one of them"), "{rejected}");
}

#[tokio::test]
async fn a_backup_that_cannot_show_that_it_has_the_data_replaces_it_only_with_consent() {
    let root = prepared().await;
    let names = Embedded::open_existing(root.path().join("backup"), Options::default()).unwrap();
    for n in 0..3 {
        pushed(&names, &format!("b{n}"), 1).await;
    }
    drop(names);
    // As after the retention of its feed.
    damage(
        &root.path().join("backup"),
        "DELETE FROM log; DELETE FROM tail WHERE position < (SELECT max(position) FROM tail)",
    );
    let error = restored(root.path(), "data", false).await.unwrap_err();
    assert!(error.to_string().contains("cannot show"), "{error}");
    restored(root.path(), "data", true).await.unwrap();
    assert!(has(&root.path().join("data"), "b2").await);
}
