//! Many processes on one directory.

use std::{
    io::Read as _,
    process::{Command, Stdio},
};

use futures_util::future::join_all;

use super::*;

const ROLE: &str = "NAMESERVICE_FILES_TEST_DIRECTORY";
const LOCKED: &str = "NAMESERVICE_FILES_TEST_LOCKED";
const PROCESSES: i64 = 4;
const PUSHES: i64 = 25;

/// Runs in each of the processes: increments a status by compare-and-set.
#[tokio::test]
async fn one_of_many_processes() {
    let Some(directory) = std::env::var_os(ROLE) else { return };
    let files = Files::directory(directory, false, options()).unwrap();
    let db = at("mydb");
    let mut left = PUSHES;
    while left > 0 {
        let status = files.status(&db).await.unwrap().unwrap();
        let new = NewStatus::new(StatusPayload::state("ready")).unwrap();
        let pushed = files.push_status(&Call::fresh(), &db, &StatusPush::cas(status, new)).await.unwrap();
        left -= i64::from(pushed.is_updated());
    }
    let branch = at(&format!("mydb:p{}", std::process::id()));
    let made = files.create_branch(&Call::fresh(), &branch, &db, None).await.unwrap();
    assert!(matches!(made, BranchCreated::Created(_)));
    let _ = files.create_ledger(&Call::fresh(), &at("one"), None, None).await.unwrap();
}

#[tokio::test]
async fn many_processes_on_one_directory_lose_nothing() {
    let (files, directory) = directory();
    let db = born(&files, "mydb", 1).await;
    let program = std::env::current_exe().unwrap();
    let start = |_| {
        Command::new(&program)
            .args(["--exact", "tests::processes::one_of_many_processes"])
            .env(ROLE, directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let started: Vec<_> = (0..PROCESSES).map(start).collect();
    for mut process in started {
        assert!(process.wait().unwrap().success());
    }
    let record = files.lookup(&db).await.unwrap().unwrap();
    assert_eq!((record.status.v, record.branches), (1 + PROCESSES * PUSHES, PROCESSES));
    assert_eq!(files.lookup(&at("one")).await.unwrap().unwrap().status.v, 1);
    let mut findings = Vec::new();
    files.examine(false, &mut |finding| findings.push(finding)).await.unwrap();
    assert_eq!(findings, []);
}

/// Runs in another process: holds the lock of a file until its input ends.
#[test]
fn one_that_holds_a_lock() {
    let Some(path) = std::env::var_os(LOCKED) else { return };
    let file = std::fs::File::open(path).unwrap();
    file.lock().unwrap();
    println!("held");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[test]
fn a_record_that_another_program_has_locked_holds_up_no_other() {
    const PUSHES: i64 = 40;
    let runtime = tokio::runtime::Builder::new_multi_thread();
    // With as many writers that wait as there are threads for files, nothing else would be done.
    let runtime = { runtime }.worker_threads(2).max_blocking_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::directory(directory.path(), false, options()).unwrap();
        let (locked, other) = (born(&files, "locked", 1).await, born(&files, "other", 1).await);
        files.compare().await.unwrap();
        let path = directory.path().join(crate::names::lock_key(&crate::names::main_key(&locked)));
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::processes::one_that_holds_a_lock", "--nocapture"])
            .env(LOCKED, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = Vec::new();
        let output = holder.stdout.as_mut().unwrap();
        while !said.ends_with(b"held\n") {
            let mut byte = [0];
            output.read_exact(&mut byte).unwrap();
            said.push(byte[0]);
        }
        // Without a time to wait, the lock is named.
        let hasty = Files::directory(directory.path(), false, options().with_timeout(Duration::ZERO)).unwrap();
        let rejected = hasty.push_head(&Call::fresh(), &locked, &HeadPush::monotonic(head(1, 2))).await;
        assert!(matches!(rejected, Err(Error::Unavailable { .. })), "{rejected:?}");
        let waiting: Vec<_> = (2..2 + PUSHES)
            .map(|t| {
                let (files, locked) = (files.clone(), locked.clone());
                tokio::spawn(async move { push(&files, &locked, 1, t).await })
            })
            .collect();
        for t in 2..2 + PUSHES {
            assert!(push(&files, &other, 1, t).await.is_updated());
            assert_eq!(files.head(&locked).await.unwrap().unwrap().v, 1);
            files.ping().await.unwrap();
        }
        born(&files, "new", 1).await;
        assert_eq!(everything(&files).await.len(), 3);
        files.compare().await.unwrap();
        assert!(waiting.iter().all(|push| !push.is_finished()));
        drop(holder.stdin.take());
        assert!(holder.wait().unwrap().success());
        let pushed: Vec<_> = join_all(waiting).await.into_iter().map(|push| push.unwrap()).collect();
        assert!(pushed.iter().any(PushOutcome::is_updated));
        assert!(pushed.iter().all(|push| push.is_updated() || matches!(push, PushOutcome::Stale { .. })));
        assert_eq!(files.head(&locked).await.unwrap().unwrap().v, 1 + PUSHES);
    });
}
