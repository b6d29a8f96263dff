//! Many processes on one directory.

use std::process::{Command, Stdio};

use super::*;

const ROLE: &str = "NAMESERVICE_FILES_TEST_DIRECTORY";
const PROCESSES: i64 = 4;
const PUSHES: i64 = 25;

/// Runs in each of the processes: increments a status by compare-and-set.
#[tokio::test]
async fn one_of_many_processes() {
    let Some(directory) = std::env::var_os(ROLE) else { return };
    let files = Files::directory(directory, false, options().with_timeout(Duration::from_secs(60))).unwrap();
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
