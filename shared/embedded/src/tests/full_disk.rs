//! A disk that is really full: a file system of three megabytes.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use nameservice_model::{Call, Error, NameService, NewConfig, Object, Publisher};
use rusqlite::ffi;
use serde_json::json;
use tokio::time::timeout;

use super::{LONG, at, head_of, open, push, pushed};
use crate::{
    Embedded, OpenError, Options,
    directory::{DURABLE_FILE, LOG_FILE, write_ahead},
    log::Hook,
};

const MIB: u64 = 1024 * 1024;

/// A small file system, mounted for one test.
struct Small(tempfile::TempDir);

impl Small {
    /// Mounts it; `None`, with a message, if this process may not mount file systems.
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"]).arg(directory.path()).output();
        match mount {
            Ok(mount) if mount.status.success() => Some(Self(directory)),
            failed => {
                eprintln!("skipped, since this process cannot mount a file system: {failed:?}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Fills it but for some pages.
    fn fill(&self, left: u64) {
        let mut ballast = fs::File::options().create(true).append(true).open(self.ballast()).unwrap();
        while ballast.write_all(&[1; 4096]).is_ok() {}
        let length = ballast.metadata().unwrap().len() / 4096 * 4096;
        ballast.set_len(length - left * 4096).unwrap();
    }

    fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy".as_ref(), self.0.path()]).output();
    }
}

/// Copies what a process that was killed now would leave.
fn left_by(served: &Path, to: &Path) {
    for file in [PathBuf::from(LOG_FILE), write_ahead(LOG_FILE.as_ref()), DURABLE_FILE.into()] {
        let _ = fs::copy(served.join(&file), to.join(&file));
    }
}

async fn create(names: &Embedded, address: &str, bytes: usize) -> nameservice_model::Result<()> {
    let config = Object::from_iter([("text".to_owned(), json!("x".repeat(bytes)))]);
    let config = NewConfig::new(config).unwrap();
    names.create_ledger(&Call::fresh(), &at(address), None, Some(&config)).await.map(drop)
}

#[tokio::test]
async fn what_is_there_after_a_full_disk_is_what_was_answered_at_whichever_write_it_was_full() {
    let Some(disk) = Small::mount() else { return };
    let mut unknown = 0;
    for left in 0..24 {
        let data = disk.path().join("data");
        let names = open(&data);
        pushed(&names, "a", 1).await;
        disk.fill(left);
        let (mut answered, mut in_doubt) = (BTreeSet::from(["a:main".to_owned()]), BTreeSet::new());
        let mut failed = 0;
        for n in 0.. {
            // A few pages, more of them each time.
            let address = format!("b{n}:main");
            match create(&names, &address, 600 * n).await {
                Ok(()) => {
                    answered.insert(address);
                    continue;
                }
                Err(Error::OutcomeUnknown { .. }) => _ = in_doubt.insert(address),
                Err(Error::Unavailable { .. }) => {}
                Err(other) => panic!("{other:?}"),
            }
            let crashed = tempfile::tempdir().unwrap();
            left_by(&data, crashed.path());
            let found = open(crashed.path());
            let found: BTreeSet<_> = found.view().state().addresses().map(|address| address.to_string()).collect();
            assert!(found.is_superset(&answered), "{left} pages: {found:?} of {answered:?}");
            let allowed: BTreeSet<_> = answered.union(&in_doubt).cloned().collect();
            assert!(found.is_subset(&allowed), "{left} pages: {found:?}, answered {answered:?}, in doubt {in_doubt:?}");
            failed += 1;
            if failed == 2 {
                break;
            }
        }
        unknown += in_doubt.len();
        assert!(head_of(&names, "a").await.is_some());
        disk.free();
        // Without a restart.
        pushed(&names, "a", 2).await;
        assert!(names.ping().await.is_ok());
        drop(names);
        fs::remove_dir_all(&data).unwrap();
    }
    assert!(unknown > 0, "no commit has failed");
}

#[tokio::test]
async fn a_service_starts_on_a_full_disk_serves_reads_and_writes_once_there_is_space() {
    let Some(disk) = Small::mount() else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    let names = open(elsewhere.path());
    for n in 0..60 {
        pushed(&names, &format!("a{n}"), 1).await;
    }
    let data = disk.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(data.join("lock"), "1\n").unwrap();
    left_by(elsewhere.path(), &data);
    assert!(fs::metadata(write_ahead(&data.join(LOG_FILE))).unwrap().len() > MIB / 4);
    // The file that connections share is as long as they have left it.
    fs::copy(elsewhere.path().join(format!("{LOG_FILE}-shm")), data.join(format!("{LOG_FILE}-shm"))).unwrap();
    disk.fill(0);

    let names = Embedded::open(&data, Options::default()).unwrap();
    assert_eq!(names.view().len(), 60);
    let history = nameservice_model::ChangeFeed::changes(&names, 0, nameservice_model::Limit::MAX).await.unwrap();
    assert!(matches!(history, nameservice_model::Run::Changes(changes) if changes.len() == 180));
    let failed = names.ping().await.unwrap_err();
    assert!(nameservice_model::chain(&failed).contains("the disk is full"), "{failed:?}");
    let failed = push(&names, "a0", 2).await.unwrap_err();
    assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
    disk.free();
    // By itself, too.
    let sound = async {
        while names.ping().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, sound).await.unwrap();
    pushed(&names, "a0", 2).await;
}

#[tokio::test]
async fn a_service_that_cannot_open_its_files_on_a_full_disk_says_so_and_starts_once_there_is_space() {
    let Some(disk) = Small::mount() else { return };
    let data = disk.path().join("data");
    drop(open(&data));
    let names = open(&data);
    pushed(&names, "a", 1).await;
    let left = tempfile::tempdir().unwrap();
    left_by(&data, left.path());
    drop(names);
    // As after a copy to another disk: the file that connections share is not part of it.
    fs::remove_dir_all(&data).unwrap();
    fs::create_dir(&data).unwrap();
    left_by(left.path(), &data);
    disk.fill(0);
    let before: Vec<_> = [PathBuf::from(LOG_FILE), write_ahead(LOG_FILE.as_ref()), DURABLE_FILE.into()]
        .map(|file| fs::read(data.join(file)).unwrap())
        .into();
    let rejected = Embedded::open(&data, Options::default()).unwrap_err();
    assert!(matches!(rejected, OpenError::Full { .. }), "{rejected:?}");
    let after: Vec<_> = [PathBuf::from(LOG_FILE), write_ahead(LOG_FILE.as_ref()), DURABLE_FILE.into()]
        .map(|file| fs::read(data.join(file)).unwrap())
        .into();
    assert!(before == after, "it is left as it was");
    // Neither is a new one created.
    let rejected = Embedded::open(disk.path().join("new"), Options::default()).unwrap_err();
    assert!(matches!(rejected, OpenError::Full { .. } | OpenError::Io { .. }), "{rejected:?}");
    disk.free();
    let names = open(&data);
    assert!(head_of(&names, "a").await.is_some());
    pushed(&names, "a", 2).await;
}

/// Fails a commit with an I/O error, as SQLite does if a quota is used up.
struct OverQuota(AtomicUsize);

impl Hook for OverQuota {
    fn at_commit(&self) -> rusqlite::Result<()> {
        match self.0.fetch_sub(1, Ordering::SeqCst) {
            1 => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_WRITE), None)),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn an_io_error_on_a_disk_without_space_is_a_full_disk_and_ends_nothing() {
    let Some(disk) = Small::mount() else { return };
    let options = Options::default().with_hook(Arc::new(OverQuota(2.into())));
    let names = Embedded::open(disk.path().join("data"), options).unwrap();
    pushed(&names, "a", 1).await;
    // More than the commit needs: it does not fail by itself.
    disk.fill(100);
    let failed = push(&names, "a", 2).await.unwrap_err();
    assert!(matches!(failed, Error::OutcomeUnknown { .. }), "{failed:?}");
    let failed = push(&names, "a", 3).await.unwrap_err();
    let reason = nameservice_model::chain(&failed);
    assert!(matches!(failed, Error::Unavailable { .. }) && reason.contains("the disk is full"), "{reason}");
    disk.free();
    pushed(&names, "a", 4).await;
}

/// Waits until health shows that the disk is full.
async fn is_full(names: &Embedded) {
    let full = async {
        while names.ping().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, full).await.expect("health shows the full disk");
}

#[tokio::test]
async fn a_disk_with_space_for_small_writes_alone_stays_full_for_health_and_writes() {
    let Some(disk) = Small::mount() else { return };
    for left in [1, 2, 3, 4, 6, 8, 16, 64, 120] {
        let data = disk.path().join("data");
        let names = open(&data);
        pushed(&names, "a", 1).await;
        disk.fill(left);
        is_full(&names).await;
        // Whatever tries it meanwhile: writes of all sizes, and the writer by itself.
        for round in 0..3 {
            assert!(create(&names, &format!("b{round}"), 1).await.is_err(), "{left} pages");
            assert!(names.ping().await.is_err(), "{left} pages, round {round}");
        }
        disk.free();
        pushed(&names, "a", 2).await;
        assert!(names.ping().await.is_ok());
        drop(names);
        fs::remove_dir_all(&data).unwrap();
    }
}

#[tokio::test]
async fn health_is_bad_while_the_disk_is_full_even_if_nobody_writes() {
    let Some(disk) = Small::mount() else { return };
    let names = open(&disk.path().join("data"));
    assert!(names.ping().await.is_ok());
    pushed(&names, "a", 1).await;
    disk.fill(0);
    is_full(&names).await;
    disk.free();
    pushed(&names, "a", 2).await;
}
