//! A directory that other programs use too, and names that could lead out of it.

use std::fs;

use super::*;
use crate::names;

#[tokio::test]
async fn hostile_names_do_not_leave_the_directory() {
    let outside = tempfile::tempdir().unwrap();
    let directory = outside.path().join("base");
    let files = Files::directory(&directory, true, options()).unwrap();
    let record = fixture().join("ns@v2/unborn/main.json");
    fs::create_dir_all(outside.path().join("secret")).unwrap();
    fs::copy(&record, outside.path().join("secret/main.json")).unwrap();
    let before = listing(outside.path());
    for name in
        ["../../secret:main", "../secret:main", "a:../../../secret/main", "/etc/passwd:main", "a\0b:main", "..:main"]
    {
        assert_eq!(files.lookup(&at(name)).await.unwrap(), None, "{name:?}");
        let made = files.create_ledger(&Call::fresh(), &at(name), None, None).await;
        assert!(
            matches!(made, Err(Error::Unsupported { capability: Capability::AnyAddress, .. })),
            "{name:?}: {made:?}"
        );
        assert_eq!(files.purge(&Call::fresh(), &at(name)).await.unwrap(), Purged::Unknown, "{name:?}");
    }
    assert_eq!(listing(outside.path()), before);
}

#[cfg(unix)]
#[tokio::test]
async fn symbolic_links_are_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir_all(outside.path().join("evil")).unwrap();
    let (files, directory) = directory();
    born(&files, "mydb", 1).await;
    let root = directory.path().join("ns@v2");
    fs::copy(root.join("mydb/main.json"), outside.path().join("evil/main.json")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("evil"), root.join("evil")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("evil/main.json"), root.join("mydb/link.json")).unwrap();
    let before = listing(outside.path());
    for name in ["evil:main", "mydb:link"] {
        let error = files.lookup(&at(name)).await.unwrap_err();
        assert!(chain(&error).contains("symbolic link"), "{}", chain(&error));
    }
    let made = files.create_ledger(&Call::fresh(), &at("evil:dev"), None, None).await;
    assert!(made.is_err(), "{made:?}");
    assert_eq!(everything(&files).await.len(), 1, "lists pass over them");
    assert_eq!(listing(outside.path()), before);
}

#[tokio::test]
async fn a_purge_that_fails_after_its_first_file_has_an_unknown_outcome() {
    let (files, directory) = directory();
    let db = born(&files, "mydb", 1).await;
    fs::create_dir_all(directory.path().join(names::commits_key(&db)).join("x")).unwrap();
    let purged = files.purge(&Call::fresh(), &db).await;
    assert!(matches!(purged, Err(Error::OutcomeUnknown { .. })), "{purged:?}");
    assert_eq!(files.lookup(&db).await.unwrap(), None);
}

/// Every path below a directory.
fn listing(directory: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        found.push(path.clone());
        if path.is_dir() && !path.is_symlink() {
            found.extend(listing(&path));
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_directory_holds_what_fluree_lists_and_nothing_that_it_stumbles_over() {
    let (files, directory) = directory();
    let db = born(&files, "tenant/mydb", 1).await;
    let _ = files.create_branch(&Call::fresh(), &at("tenant/mydb:dev"), &db, None).await.unwrap();
    let _ = files.push_index(&Call::fresh(), &db, &IndexPush::monotonic(index(0, 1))).await.unwrap();
    let _ = files.push_head(&Call::fresh(), &at("nobody"), &HeadPush::monotonic(head(0, 1))).await.unwrap();
    assert_eq!(files.purge(&Call::fresh(), &at("nobody")).await.unwrap(), Purged::Unknown);
    let root = directory.path().to_owned();
    let files: Vec<String> = listing(&root)
        .into_iter()
        .filter(|path| path.is_file())
        .map(|path| path.strip_prefix(&root).unwrap().display().to_string())
        .collect();
    assert_eq!(
        files,
        [
            "ns@v2/tenant/mydb/dev.index.lock",
            "ns@v2/tenant/mydb/dev.json",
            "ns@v2/tenant/mydb/dev.lock",
            "ns@v2/tenant/mydb/main.index.json",
            "ns@v2/tenant/mydb/main.index.lock",
            "ns@v2/tenant/mydb/main.json",
            "ns@v2/tenant/mydb/main.lock",
        ]
    );
}

#[tokio::test]
async fn a_lock_that_another_program_holds_is_waited_for_and_then_named() {
    let (files, directory) = directory();
    let db = born(&files, "mydb", 1).await;
    let path = directory.path().join(names::lock_key(&names::main_key(&db)));
    let lock = fs::File::open(&path).unwrap();
    lock.lock().unwrap();
    let quick = Files::directory(directory.path(), false, options().with_timeout(Duration::from_millis(100))).unwrap();
    let pushed = quick.push_head(&Call::fresh(), &db, &HeadPush::monotonic(head(1, 2))).await;
    assert!(matches!(pushed, Err(Error::Unavailable { .. })), "{pushed:?}");
    // Reads do not wait for writers.
    assert_eq!(files.head(&db).await.unwrap().unwrap().v, 1);
    let waiting = {
        let (files, db) = (files.clone(), db.clone());
        tokio::spawn(async move { push(&files, &db, 1, 3).await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    lock.unlock().unwrap();
    assert!(waiting.await.unwrap().is_updated());
    assert!(path.exists(), "a lock file is never deleted");
}

#[tokio::test]
async fn a_record_that_fluree_creates_meanwhile_is_not_overwritten() {
    let (files, directory) = directory();
    // Fluree creates files without the lock, here between the read and the write of a creation.
    let key = names::main_key(&at("unborn"));
    let storage = crate::storage::Directory::open(directory.path(), false).unwrap();
    let path = directory.path().join(&key);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::copy(fixture().join("ns@v2/unborn/main.json"), &path).unwrap();
    let written = storage.create_now(&key, b"{}").unwrap();
    assert_eq!(written, crate::storage::Written::Overtaken);
    let made = files.create_ledger(&Call::fresh(), &at("unborn"), None, None).await.unwrap();
    assert!(matches!(made, Created::AlreadyExists));
    assert_eq!(fs::read(path).unwrap(), fs::read(fixture().join("ns@v2/unborn/main.json")).unwrap());
    assert_eq!(listing(directory.path()).iter().filter(|path| path.extension().is_some_and(|e| e == "tmp")).count(), 0);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_a_whole_write() {
    let (files, _directory) = directory();
    let db = born(&files, "mydb", 1).await;
    for t in 2..40 {
        let (files, db) = (files.clone(), db.clone());
        let pushing = tokio::spawn(async move { push(&files, &db, 1, t).await });
        tokio::task::yield_now().await;
        pushing.abort();
    }
    assert!(push(&files, &db, 2, 100).await.is_updated());
    let mut findings = Vec::new();
    files.examine(false, &mut |finding| findings.push(finding)).await.unwrap();
    assert_eq!(findings, []);
}

#[tokio::test]
async fn what_an_interrupted_purge_has_left_belongs_to_nobody() {
    let (all, directory) = both();
    for files in all {
        let db = born(&files, "mydb", 5).await;
        let _ = files.push_index(&Call::fresh(), &db, &IndexPush::monotonic(index(1, 5))).await.unwrap();
        files.inner.storage.delete(&names::main_key(&db)).await.unwrap();
        assert_eq!(files.lookup(&db).await.unwrap(), None);
        // A new record does not inherit the index of the previous one.
        born(&files, "mydb", 1).await;
        assert_eq!(files.index(&db).await.unwrap(), Some(Index::unborn()));
        let _ = files.push_index(&Call::fresh(), &db, &IndexPush::monotonic(index(1, 5))).await.unwrap();
        files.inner.storage.delete(&names::main_key(&db)).await.unwrap();
        assert_eq!(files.purge(&Call::fresh(), &db).await.unwrap(), Purged::Purged);
        assert_eq!(files.purge(&Call::fresh(), &db).await.unwrap(), Purged::Unknown);
    }
    drop(directory);
}
