//! What is counted while a disk is full. The only test of its program: the recorder is that of the whole process.

use std::{fs, io::Write as _, path::Path, process::Command, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use nameservice_embedded::{Embedded, Options};
use nameservice_model::{Address, Call, Error, Publisher as _};
use tokio::task::JoinSet;

const LONG: Duration = Duration::from_secs(120);

/// Returns how many writes were rejected since the last call.
fn rejected(recorded: &Snapshotter) -> u64 {
    let found = recorded.snapshot().into_vec().into_iter();
    let named = found.filter(|(key, ..)| key.key().name() == "nameservice_log_commit_failures_total");
    let counts = named.map(|(.., value)| if let DebugValue::Counter(count) = value { count } else { 0 });
    counts.sum()
}

async fn create(names: &Embedded, address: &str) -> nameservice_model::Result<()> {
    let address = Address::parse(address).map_err(|error| Error::Store { operation: "parse", source: error.into() })?;
    names.create_ledger(&Call::fresh(), &address, None, None).await.map(drop)
}

/// A mounted file system.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).output();
    }
}

#[tokio::test]
async fn each_write_that_a_full_disk_rejects_is_counted_for_as_long_as_it_is_full() {
    let disk = tempfile::tempdir().unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=3m", "tmpfs"]).arg(disk.path()).output();
    if !mount.as_ref().is_ok_and(|mount| mount.status.success()) {
        return eprintln!("skipped, since this process cannot mount a file system: {mount:?}");
    }
    let _mounted = Mounted(disk.path());
    let recorder = DebuggingRecorder::new();
    let recorded = recorder.snapshotter();
    recorder.install().unwrap();
    let names = Embedded::open(disk.path().join("data"), Options::default()).unwrap();
    create(&names, "a").await.unwrap();
    assert_eq!(rejected(&recorded), 0);

    let ballast = disk.path().join("ballast");
    let mut filling = fs::File::create(&ballast).unwrap();
    while filling.write_all(&[1; 4096]).is_ok() {}
    let full = async {
        let mut n = 0;
        while create(&names, &format!("b{n}")).await.is_ok() {
            n += 1;
        }
    };
    tokio::time::timeout(LONG, full).await.unwrap();
    // The group that could not be written.
    assert_eq!(rejected(&recorded), 1);
    // Those that were not even tried, in several rounds: alone, and many at a time.
    for round in 0..3 {
        for n in 0..20 {
            let failed = create(&names, &format!("c{round}-{n}")).await.unwrap_err();
            assert!(matches!(failed, Error::Unavailable { .. }), "{failed:?}");
        }
        assert_eq!(rejected(&recorded), 20, "round {round}");
        let mut many = JoinSet::new();
        for n in 0..50 {
            let names = names.clone();
            many.spawn(async move { create(&names, &format!("d{round}-{n}")).await });
        }
        assert!(many.join_all().await.iter().all(Result::is_err));
        assert_eq!(rejected(&recorded), 50, "round {round}");
    }

    drop(filling);
    fs::remove_file(&ballast).unwrap();
    create(&names, "e").await.unwrap();
    assert_eq!(rejected(&recorded), 0);
}
