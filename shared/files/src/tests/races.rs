//! Others that write between two requests of one write: another server of this service, or Fluree.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::SystemTime,
};

use futures_util::FutureExt as _;

use super::{
    buckets::{Fault, Meanwhile, Outage, Request, faulty},
    *,
};
use crate::{Fix, names, storage::Directory};

fn is_unknown<T: std::fmt::Debug>(answer: Result<T>) {
    assert!(matches!(answer, Err(Error::OutcomeUnknown { .. })), "{answer:?}");
}

/// Two servers over one bucket, whose clocks begin this many seconds apart.
fn servers(apart: u64) -> (Files, Files, Arc<super::buckets::Faulty>) {
    let (ours, store) = faulty();
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let ours = ours.with_clock(move || at(1_000_000));
    let theirs = bucket(store.clone()).with_clock(move || at(1_000_000 + apart));
    (ours, theirs, store)
}

async fn push_index(files: &Files, address: &Address, n: usize, t: i64) {
    let pushed = files.push_index(&Call::fresh(), address, &IndexPush::monotonic(index(n, t))).await.unwrap();
    assert!(pushed.is_updated(), "{pushed:?}");
}

#[tokio::test]
async fn a_purge_whose_answer_is_lost_never_deletes_a_record_that_another_creates_again() {
    for (apart, is_certain) in [(60, true), (0, false)] {
        let (ours, theirs, store) = servers(apart);
        let db = born(&ours, "mydb", 3).await;
        push_index(&ours, &db, 1, 3).await;
        let successor = async move {
            let db = born(&theirs, "mydb", 7).await;
            push_index(&theirs, &db, 2, 7).await;
        };
        store.beside_deletion(Meanwhile { of: "/main.json", request: Request::Lost, others: successor.boxed() });
        let purged = ours.purge(&Call::fresh(), &db).await;
        match is_certain {
            true => assert_eq!(purged.unwrap(), Purged::Purged),
            false => is_unknown(purged),
        }
        let record = ours.lookup(&db).await.unwrap().unwrap();
        assert_eq!((record.head.unwrap().v, record.index.v), (7, 7), "{apart}");
    }
}

#[tokio::test]
async fn a_purge_whose_deletion_is_lost_repeats_it_only_while_its_own_mark_is_there() {
    let (ours, theirs, store) = servers(0);
    let db = born(&ours, "mydb", 3).await;
    push_index(&ours, &db, 1, 3).await;
    for of in ["/main.index.json", "/main.json"] {
        let db = born(&ours, "other", 3).await;
        push_index(&ours, &db, 1, 3).await;
        store.beside_deletion(Meanwhile { of, request: Request::Never, others: async {}.boxed() });
        assert_eq!(ours.purge(&Call::fresh(), &db).await.unwrap(), Purged::Purged, "{of}");
        assert!(!store_has(&ours, &db).await, "{of}");
    }
    let restored = {
        let db = db.clone();
        async move {
            let restored = theirs.restore(&Call::fresh(), &db).await.unwrap();
            assert!(matches!(restored, Restored::Restored(_)), "{restored:?}");
        }
    };
    store.beside_deletion(Meanwhile { of: "/main.json", request: Request::Never, others: restored.boxed() });
    is_unknown(ours.purge(&Call::fresh(), &db).await);
    assert_eq!(ours.head(&db).await.unwrap().unwrap().v, 3, "what another has written is kept");
}

#[tokio::test]
async fn a_purge_leaves_its_mark_if_its_index_was_pushed_meanwhile() {
    let (ours, theirs, store) = servers(0);
    let db = born(&ours, "mydb", 3).await;
    push_index(&ours, &db, 1, 3).await;
    let pushed = async move {
        let (storage, key) = (&theirs.inner.storage, names::index_key(&at("mydb")));
        let there = storage.read(&key).await.unwrap().unwrap();
        let other = [&there.content.bytes[..], b"\n"].concat().into();
        assert_eq!(storage.replace(&key, other, &there.version).await.unwrap(), crate::storage::Written::Done);
    };
    store.beside_deletion(Meanwhile { of: "/main.index.json", request: Request::Never, others: pushed.boxed() });
    is_unknown(ours.purge(&Call::fresh(), &db).await);
    assert!(ours.lookup(&db).await.unwrap().unwrap().retracted, "the mark stays, and no index is left alone");
    assert_eq!(ours.purge(&Call::fresh(), &db).await.unwrap(), Purged::Purged);
    assert!(!store_has(&ours, &db).await);
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_not_repeated_on_a_record_that_was_created_since() {
    let (ours, theirs, store) = servers(60);
    let db = born(&ours, "mydb", 3).await;
    let again = |theirs: Files, db: Address, is_created: bool| async move {
        assert_eq!(theirs.purge(&Call::fresh(), &db).await.unwrap(), Purged::Purged);
        if is_created {
            born(&theirs, "mydb", 1).await;
        }
    };
    let others = again(theirs.clone(), db.clone(), true).boxed();
    store.beside_write(Meanwhile { of: "/main.json", request: Request::Lost, others });
    is_unknown(ours.push_head(&Call::fresh(), &db, &HeadPush::monotonic(head(1, 5))).await);
    assert_eq!(ours.head(&db).await.unwrap().unwrap().v, 1);
    // A publication would create the record again.
    let source = at("search");
    let publish = |k: &str| {
        let config = [("k".to_owned(), k.into())].into_iter().collect();
        GraphSourcePublication::new(source.clone(), "f:Bm25Index", config).unwrap()
    };
    let _ = ours.publish_graph_source(&Call::fresh(), &publish("1")).await.unwrap();
    let others = again(theirs, source.clone(), false).boxed();
    store.beside_write(Meanwhile { of: "/main.json", request: Request::Lost, others });
    is_unknown(ours.publish_graph_source(&Call::fresh(), &publish("2")).await);
    assert_eq!(ours.lookup(&source).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_purge_whose_deletion_cannot_be_looked_at_is_not_begun_again() {
    for outage in [Outage::Forbidden, Outage::Unauthenticated] {
        let (ours, theirs, store) = servers(0);
        let db = born(&ours, "mydb", 3).await;
        let successor = {
            let (theirs, store) = (theirs.clone(), store.clone());
            async move {
                born(&theirs, "mydb", 7).await;
                *store.outage.lock().unwrap() = Some(outage);
            }
        };
        store.beside_deletion(Meanwhile { of: "/main.json", request: Request::Lost, others: successor.boxed() });
        is_unknown(ours.purge(&Call::fresh(), &db).await);
        *store.outage.lock().unwrap() = None;
        assert_eq!(theirs.head(&db).await.unwrap().unwrap().v, 7, "{outage:?}");
    }
}

async fn store_has(files: &Files, address: &Address) -> bool {
    let storage = &files.inner.storage;
    let found =
        [names::main_key(address), names::index_key(address)].map(|key| async move { storage.read(&key).await });
    futures_util::future::join_all(found).await.into_iter().any(|found| found.unwrap().is_some())
}

#[tokio::test]
async fn a_creation_never_removes_the_index_of_a_record_that_another_creates_at_the_same_time() {
    let (ours, theirs, store) = servers(0);
    let db = born(&ours, "mydb", 3).await;
    push_index(&ours, &db, 1, 3).await;
    // An interrupted purge has left the index.
    ours.inner.storage.delete(&names::main_key(&db)).await.unwrap();
    store.beside("/main.index.json", || {
        let theirs = theirs.clone();
        async move {
            let db = born(&theirs, "mydb", 7).await;
            push_index(&theirs, &db, 2, 7).await;
        }
        .boxed()
    });
    let created = ours.create_ledger(&Call::fresh(), &db, Some(&head(0, 1)), None).await.unwrap();
    assert!(matches!(created, Created::AlreadyExists), "{created:?}");
    let record = ours.lookup(&db).await.unwrap().unwrap();
    assert_eq!((record.head.unwrap().v, record.index.v), (7, 7));
}

#[tokio::test]
async fn the_second_file_of_a_write_never_replaces_what_others_have_pushed_on_top() {
    // A reset whose second answer is lost, and whose value Fluree has replaced.
    let (files, store) = faulty();
    let db = born(&files, "mydb", 9).await;
    push_index(&files, &db, 1, 5).await;
    let to = ResetTo::new(Some(head(0, 4)), Some(index(0, 3))).unwrap();
    store.then([None, Some(Fault::Overwritten)]);
    is_unknown(files.reset_head(&Call::fresh(), &db, &to).await);
    assert_eq!(files.index(&db).await.unwrap().unwrap().v, 9, "what Fluree has pushed since is kept");
    // What Fluree has pushed before is reset.
    store.then([None, Some(Fault::Preceded)]);
    let reset = files.reset_head(&Call::fresh(), &db, &to).await.unwrap();
    assert!(matches!(&reset, Reset::Reset { index, .. } if index.v == 3), "{reset:?}");
    assert_eq!(files.index(&db).await.unwrap().unwrap().v, 3);
    // A creation by an index push, overtaken by a push to the record that it has created.
    for fault in [Fault::Preceded, Fault::Overwritten] {
        let new = at(&format!("new{fault:?}"));
        store.then([None, Some(fault)]);
        is_unknown(files.push_index(&Call::fresh(), &new, &IndexPush::create(index(1, 3))).await);
        assert_eq!(files.index(&new).await.unwrap().unwrap().v, 9, "{fault:?}");
    }
    // One of ours remembers the reset that it was pushed on.
    let (ours, theirs, store) = servers(0);
    let db = born(&ours, "mydb", 9).await;
    push_index(&ours, &db, 1, 5).await;
    let call = Call::fresh();
    store.then([None, Some(Fault::LostRequest)]);
    let reset = ours.reset_head(&call, &db, &to).await.unwrap();
    assert!(matches!(reset, Reset::Reset { .. }));
    push_index(&theirs, &db, 2, 4).await;
    let again = ours.reset_head(&call, &db, &to).await.unwrap();
    assert!(matches!(&again, Reset::Reset { index, .. } if index.v == 4), "{again:?}");
}

#[tokio::test]
async fn half_a_reset_is_never_answered_as_done_whatever_is_pushed_after_it() {
    let (files, store) = faulty();
    let db = born(&files, "mydb", 9).await;
    push_index(&files, &db, 1, 5).await;
    let to = ResetTo::new(Some(head(0, 4)), Some(index(0, 3))).unwrap();
    let call = Call::fresh();
    store.then([None, Some(Fault::Forbidden)]);
    is_unknown(files.reset_head(&call, &db, &to).await);
    // The index file is newer than the main file now. Times have milliseconds.
    let main = files.inner.storage.read(&names::main_key(&db)).await.unwrap().unwrap();
    loop {
        push_index(&files, &db, 2, files.index(&db).await.unwrap().unwrap().v + 1).await;
        let index = files.inner.storage.read(&names::index_key(&db)).await.unwrap().unwrap();
        if index.content.modified > main.content.modified {
            break;
        }
    }
    is_unknown(files.reset_head(&call, &db, &to).await);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_branch_is_answered_though_it_cannot_be_counted_and_the_doctor_counts_it() {
    let (files, store) = faulty();
    let db = born(&files, "mydb", 1).await;
    let (call, dev) = (Call::fresh(), at("mydb:dev"));
    let create = async || files.create_branch(&call, &dev, &db, None).await;
    store.then([None, Some(Fault::Forbidden)]);
    assert!(matches!(create().await.unwrap(), BranchCreated::Created(_)));
    *store.outage.lock().unwrap() = Some(Outage::Partial);
    let again = create().await;
    assert!(matches!(again, Ok(BranchCreated::Created(_))), "{again:?}");
    *store.outage.lock().unwrap() = None;
    assert_eq!(files.lookup(&db).await.unwrap().unwrap().branches, 0);
    let mut fixes = Vec::new();
    files.examine(true, &mut |finding| fixes.push((finding.code, finding.fix))).await.unwrap();
    assert_eq!(fixes, [("count-wrong", Fix::Done)]);
    assert_eq!(files.lookup(&db).await.unwrap().unwrap().branches, 1);
    // So does a repetition.
    let (call, other) = (Call::fresh(), at("mydb:other"));
    store.then([None, Some(Fault::Forbidden)]);
    for branches in [1, 2] {
        let made = files.create_branch(&call, &other, &db, None).await.unwrap();
        assert!(matches!(made, BranchCreated::Created(_)));
        assert_eq!(files.lookup(&db).await.unwrap().unwrap().branches, branches);
    }
}

/// A record in a directory under a name that only Fluree allows.
fn put_under(files: &TempDir, from: &str, address: &str) -> PathBuf {
    let (from, to) = (at(from), at(address));
    let root = files.path();
    let text = fs::read_to_string(root.join(names::main_key(&from))).unwrap();
    let text = text.replace(from.as_str(), to.as_str());
    let text = text.replace(&format!("\"{}\"", from.name()), &format!("\"{}\"", to.name()));
    let text = text.replace(&format!("\"{}\"", from.branch()), &format!("\"{}\"", to.branch()));
    let path = root.join(names::main_key(&to));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

fn hold(directory: &TempDir, address: &Address) -> fs::File {
    let path = directory.path().join(names::lock_key(&names::main_key(address)));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let lock = fs::File::create(path).unwrap();
    lock.lock().unwrap();
    lock
}

#[tokio::test]
async fn nothing_is_written_without_the_lock_whatever_the_name_is() {
    let (files, directory) = directory();
    let publish = |address: Address, k: &str| {
        let config = [("k".to_owned(), k.into())].into_iter().collect();
        GraphSourcePublication::new(address, "f:Bm25Index", config).unwrap()
    };
    let _ = files.publish_graph_source(&Call::fresh(), &publish(at("gs:v1"), "1")).await.unwrap();
    let path = put_under(&directory, "gs:v1", "gs:release/v1");
    let odd = at("gs:release/v1");
    assert!(files.lookup(&odd).await.unwrap().is_some());
    let before = fs::read(&path).unwrap();
    let lock = hold(&directory, &odd);
    let quick = options().with_timeout(Duration::from_millis(100));
    let quick = Files::directory(directory.path(), false, quick).unwrap();
    let published = quick.publish_graph_source(&Call::fresh(), &publish(odd.clone(), "2")).await;
    assert!(matches!(published, Err(Error::Unavailable { .. })), "{published:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
    drop(lock);
    let published = files.publish_graph_source(&Call::fresh(), &publish(odd.clone(), "2")).await.unwrap();
    assert!(matches!(published, Published::Updated(_)), "{published:?}");
}

#[tokio::test]
async fn a_record_that_is_created_between_two_looks_is_written_only_under_its_lock() {
    let (files, template) = directory();
    born(&files, "mydb", 1).await;
    let record = fs::read(template.path().join("ns@v2/mydb/main.json")).unwrap();
    let db = at("mydb");
    let (mut n, mut found) = (0, 0);
    loop {
        let target = tempfile::tempdir().unwrap();
        let path = target.path().join(names::main_key(&db));
        let _lock = hold(&target, &db);
        let directory = Directory::open(target.path(), false).unwrap();
        let quick = options().with_timeout(Duration::from_millis(40));
        let files = Files::open(Arc::new(directory.clone()), quick, Duration::from_secs(3_600), None);
        let moments = Arc::<AtomicUsize>::default();
        let (count, put, bytes) = (moments.clone(), path.clone(), record.clone());
        directory.at_each_moment(Some(Box::new(move |_| {
            if count.fetch_add(1, SeqCst) == n {
                fs::write(&put, &bytes).unwrap();
            }
        })));
        let pushed = files.push_head(&Call::fresh(), &db, &HeadPush::monotonic(head(1, 2))).await;
        directory.at_each_moment(None);
        if moments.load(SeqCst) <= n {
            assert_eq!(pushed.unwrap(), PushOutcome::Unknown);
            break;
        }
        match pushed {
            Ok(PushOutcome::Unknown) => {}
            Err(Error::Unavailable { .. }) => found += 1,
            other => panic!("{n}: {other:?}"),
        }
        assert_eq!(fs::read(&path).unwrap(), record, "{n}");
        n += 1;
    }
    assert!(found > 0 && n > 4, "{found} of {n}");
}

#[tokio::test]
async fn a_directory_without_hard_links_never_holds_a_part_of_a_record() {
    for kind in [std::io::ErrorKind::Unsupported, std::io::ErrorKind::PermissionDenied] {
        let target = tempfile::tempdir().unwrap();
        let mut directory = Directory::open(target.path(), false).unwrap();
        directory.links = Some(kind);
        let files = Files::open(Arc::new(directory.clone()), options(), Duration::from_secs(3_600), None);
        let db = born(&files, "mydb", 1).await;
        let path = target.path().join(names::main_key(&db));
        let whole = fs::read(&path).unwrap();
        // The file that is there stays.
        let key = names::main_key(&db);
        assert_eq!(directory.create_now(&key, b"{}").unwrap(), crate::storage::Written::Overtaken);
        assert_eq!(fs::read(&path).unwrap(), whole);
        // What fails, or is interrupted, after the name was taken leaves no record, and the next creation succeeds.
        fs::remove_file(&path).unwrap();
        Directory::create_without_links(&target.path().join("nothing"), &path).unwrap_err();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        assert_eq!(files.lookup(&db).await.unwrap(), None);
        assert!(everything(&files).await.is_empty());
        let mut codes = Vec::new();
        files.examine(true, &mut |finding| codes.push(finding.code)).await.unwrap();
        assert_eq!(codes, ["file-empty"]);
        born(&files, "mydb", 2).await;
        assert_eq!(files.head(&db).await.unwrap().unwrap().v, 2);
        let names: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(!names.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{names:?}");
    }
}

#[tokio::test]
async fn the_feed_leaves_out_names_that_only_fluree_allows_and_files_without_a_record() {
    let (files, directory) = directory();
    born(&files, "mydb", 1).await;
    files.compare().await.unwrap();
    let before = files.position().await.unwrap();
    let names = ["my@db", "my@db:dev"];
    assert!(names.iter().all(|name| !at(name).is_well_formed()));
    for name in names {
        put_under(&directory, "mydb", name);
    }
    fs::create_dir_all(directory.path().join("ns@v2/orphan")).unwrap();
    let index = format!(r#"{{"@context": {{}}, "f:ledgerIndex": {{"f:cid": "{}", "f:t": 9}}}}"#, IDS[2]);
    fs::write(directory.path().join("ns@v2/orphan/main.index.json"), index).unwrap();
    files.compare().await.unwrap();
    for name in names {
        assert!(files.lookup(&at(name)).await.unwrap().is_some(), "{name} is readable through the library");
        assert!(push(&files, &at(name), 1, 2).await.is_updated());
    }
    files.compare().await.unwrap();
    assert_eq!(files.purge(&Call::fresh(), &at("my@db")).await.unwrap(), Purged::Purged);
    files.compare().await.unwrap();
    assert_eq!(files.position().await.unwrap(), before);
    born(&files, "next", 1).await;
    let Run::Changes(changes) = files.changes(before, Limit::MAX).await.unwrap() else { panic!() };
    assert!(changes.iter().all(|change| change.address == at("next")), "{changes:?}");
    let positions: Vec<u64> = changes.iter().map(|change| change.position).collect();
    assert_eq!(positions, (before + 1..=before + positions.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_branch_that_is_created_again_from_another_source_is_taken_from_the_count_of_that_one() {
    let (ours, theirs, store) = servers(0);
    let (a, b) = (born(&ours, "mydb:a", 1).await, born(&ours, "mydb:b", 1).await);
    let dev = at("mydb:dev");
    let _ = ours.create_branch(&Call::fresh(), &dev, &a, None).await.unwrap();
    // Beside the mark of a purge, another server purges the branch, and creates it again.
    store.beside("/dev.json", || {
        let (theirs, dev, b) = (theirs.clone(), dev.clone(), b.clone());
        async move {
            assert_eq!(theirs.purge(&Call::fresh(), &dev).await.unwrap(), Purged::Purged);
            let _ = theirs.create_branch(&Call::fresh(), &dev, &b, None).await.unwrap();
        }
        .boxed()
    });
    assert_eq!(ours.purge(&Call::fresh(), &dev).await.unwrap(), Purged::Purged);
    for address in [a, b] {
        assert_eq!(ours.lookup(&address).await.unwrap().unwrap().branches, 0, "{address}");
    }
}
