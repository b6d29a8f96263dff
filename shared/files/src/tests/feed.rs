//! Changes of files that other programs write.

use std::sync::Mutex;

use super::*;
use crate::storage::Directory;

async fn changes(files: &Files) -> Vec<Change> {
    match files.changes(0, Limit::MAX).await.unwrap() {
        Run::Changes(changes) => changes,
        gone => panic!("{gone:?}"),
    }
}

fn kinds(changes: &[Change]) -> Vec<(String, String, ChangeKind, i64)> {
    let of = |change: &Change| (change.address.to_string(), change.part.to_string(), change.kind, change.watermark);
    changes.iter().map(of).collect()
}

#[tokio::test]
async fn what_another_program_writes_is_in_the_feed_after_a_look() {
    // A bucket sends no notifications.
    let store = Arc::new(InMemory::new());
    let (ours, theirs) = (bucket(store.clone()), bucket(store));
    ours.compare().await.unwrap();
    let db = born(&theirs, "mydb", 1).await;
    for t in 2..=5 {
        assert!(push(&theirs, &db, 1, t).await.is_updated());
    }
    assert_eq!(changes(&ours).await, []);
    ours.compare().await.unwrap();
    let seen = kinds(&changes(&ours).await);
    // Five writes of one concern are one change.
    assert!(seen.contains(&("mydb:main".into(), "head".into(), ChangeKind::Created, 5)), "{seen:?}");
    let before = seen.len();
    assert!(push(&theirs, &db, 2, 6).await.is_updated());
    assert_eq!(theirs.purge(&Call::fresh(), &at("nobody")).await.unwrap(), Purged::Unknown);
    ours.compare().await.unwrap();
    ours.compare().await.unwrap();
    let seen = kinds(&changes(&ours).await).split_off(before);
    assert_eq!(seen, [("mydb:main".into(), "head".into(), ChangeKind::Updated, 6)]);
    theirs.inner.storage.delete(&crate::names::main_key(&db)).await.unwrap();
    ours.compare().await.unwrap();
    let seen = kinds(&changes(&ours).await).split_off(before + 1);
    assert_eq!(seen[0], ("mydb:main".into(), "meta".into(), ChangeKind::Purged, 0));
}

#[tokio::test]
async fn own_writes_are_in_the_feed_immediately_each() {
    let (all, _directory) = both();
    for files in all {
        files.compare().await.unwrap();
        let db = born(&files, "mydb", 1).await;
        for t in 2..=4 {
            assert!(push(&files, &db, 1, t).await.is_updated());
        }
        let heads: Vec<i64> = changes(&files)
            .await
            .iter()
            .filter(|change| change.part == ChangedPart::Concern(ConcernKind::Head))
            .map(|change| change.watermark)
            .collect();
        assert_eq!(heads, [1, 2, 3, 4]);
    }
}

#[tokio::test]
async fn a_feed_that_is_kept_continues_where_it_was() {
    let (files, directory) = directory();
    let kept = tempfile::tempdir().unwrap();
    let open = || nameservice_embedded::Embedded::open(kept.path(), Default::default()).unwrap();
    let position = {
        let following = Files::directory(directory.path(), false, options().with_log(open())).unwrap();
        born(&files, "a", 1).await;
        born(&files, "b", 1).await;
        following.compare().await.unwrap();
        following.position().await.unwrap()
    };
    assert!(push(&files, &at("a"), 1, 2).await.is_updated());
    assert_eq!(files.purge(&Call::fresh(), &at("b")).await.unwrap(), Purged::Purged);
    // What was written while the feed was not followed is found, and nothing appears twice.
    let following = Files::directory(directory.path(), false, options().with_log(open())).unwrap();
    let seen = kinds(&changes(&following).await);
    let new = &seen[usize::try_from(position).unwrap()..];
    assert_eq!(new[0], ("a:main".into(), "head".into(), ChangeKind::Updated, 2));
    assert!(
        new[1..].iter().all(|(address, .., kind, _)| address == "b:main" && *kind == ChangeKind::Purged),
        "{new:?}"
    );
}

#[tokio::test]
async fn a_directory_says_by_itself_that_it_has_changed() {
    let (theirs, directory) = directory();
    // The interval is an hour, so only a notification from the directory can come before.
    let ours = Files::directory(directory.path(), false, options()).unwrap();
    let before = ours.position().await.unwrap();
    born(&theirs, "mydb", 1).await;
    ours.wait(before, LONG).await.unwrap();
    assert!(ours.position().await.unwrap() > before);
}

#[tokio::test]
async fn an_interval_finds_what_nothing_announces() {
    let store = Arc::new(InMemory::new());
    let theirs = bucket(store.clone());
    let quick = options().with_interval(Duration::from_millis(20));
    let ours = Files::bucket(Bucket::over(store, "some/prefix"), quick);
    let before = ours.position().await.unwrap();
    born(&theirs, "mydb", 1).await;
    ours.wait(before, LONG).await.unwrap();
    assert!(ours.position().await.unwrap() > before);
}

/// The files that are looked at from now on.
fn looked_at(directory: &Directory) -> Arc<Mutex<Vec<String>>> {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let looks = seen.clone();
    directory.at_each_moment(Some(Box::new(move |key| looks.lock().unwrap().push(key.to_owned()))));
    seen
}

/// File systems have coarse clocks, and use inodes again.
#[tokio::test]
async fn a_file_that_changes_twice_at_one_time_of_the_file_system_is_read_twice() {
    let (files, directory) = directory();
    let db = born(&files, "mydb", 1).await;
    let path = directory.path().join(crate::names::main_key(&db));
    let directory = Directory::open(directory.path(), false).unwrap();
    // Without notifications.
    let files = Files::open(Arc::new(directory), options(), Duration::from_secs(3_600), None);
    // A clock of the file system that is ahead: the file is young, however long this takes.
    let time = std::time::SystemTime::now() + Duration::from_secs(3_600);
    let mut before = std::fs::read_to_string(&path).unwrap();
    for t in 2..5 {
        let text = before.replace(&format!("\"f:t\": {}", t - 1), &format!("\"f:t\": {t}"));
        assert_ne!(text, before);
        std::fs::write(&path, &text).unwrap();
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
        files.compare().await.unwrap();
        let last = kinds(&changes(&files).await).into_iter().rfind(|(_, part, ..)| part == "head");
        assert_eq!(last.unwrap().3, t);
        before = text;
    }
}

#[tokio::test]
async fn after_a_notification_only_what_it_names_is_looked_at() {
    let (theirs, path) = directory();
    for n in 0..30 {
        born(&theirs, &format!("db{n}"), 1).await;
    }
    let db = at("db7");
    let branch = at("db7:b.2");
    let _ = theirs.create_branch(&Call::fresh(), &branch, &db, None).await.unwrap();
    let directory = Directory::open(path.path(), false).unwrap();
    // The interval is an hour.
    let ours = Files::open(Arc::new(directory.clone()), options(), Duration::ZERO, Some(directory.clone()));
    let mut position = ours.position().await.unwrap();
    let seen = looked_at(&directory);
    for n in 0..6 {
        match n {
            0 => assert!(push(&theirs, &db, 1, 2).await.is_updated()),
            1 => {
                let pushed = theirs.push_index(&Call::fresh(), &db, &IndexPush::monotonic(index(1, 2))).await;
                assert!(pushed.unwrap().is_updated());
            }
            2 => assert!(push(&theirs, &branch, 1, 2).await.is_updated()),
            3 => {
                let dropped = theirs.drop_branch(&Call::fresh(), &branch).await.unwrap();
                assert!(matches!(dropped, Dropped::Dropped { .. }));
            }
            4 => assert_eq!(theirs.purge(&Call::fresh(), &db).await.unwrap(), Purged::Purged),
            _ => drop(born(&theirs, "db7/new.one", 1).await),
        }
        ours.wait(position, LONG).await.unwrap();
        // One write may be several changes: all of them are there once the next comparison is over.
        ours.settled().await;
        assert!(ours.position().await.unwrap() > position, "{n}");
        position = ours.position().await.unwrap();
    }
    let others: Vec<String> =
        seen.lock().unwrap().iter().filter(|key| !key.is_empty() && !key.contains("/db7/")).cloned().collect();
    assert_eq!(others.iter().filter(|key| *key != "ns@v2/db7").collect::<Vec<_>>(), Vec::<&String>::new());
    // Nothing was missed.
    directory.at_each_moment(None);
    ours.compare().await.unwrap();
    assert_eq!(ours.position().await.unwrap(), position);
    let known: Vec<Record> = everything(&ours).await;
    assert_eq!((known.len(), ours.lookup(&db).await.unwrap()), (30, None));
}

#[tokio::test]
async fn a_followed_feed_counts_what_depends_on_a_record() {
    let (all, _directory) = both();
    for files in all {
        files.compare().await.unwrap();
        let db = born(&files, "mydb", 1).await;
        let sources = ["one", "two"].map(at);
        for (n, source) in (1..).zip(&sources) {
            let publication = GraphSourcePublication::new(source.clone(), "f:Bm25Index", Object::new()).unwrap();
            let publication = publication.with_dependencies(vec![db.clone()]).unwrap();
            let _ = files.publish_graph_source(&Call::fresh(), &publication).await.unwrap();
            let _ = files.create_branch(&Call::fresh(), &at(&format!("mydb:b{n}")), &db, None).await.unwrap();
            assert_eq!(files.lookup(&db).await.unwrap().unwrap().dependents, n);
            let full = ListQuery { full: true, name: Some("mydb".into()), ..ListQuery::default() };
            for listed in files.list(&full, &|_| true).await.unwrap().items {
                let Listed::Full(record) = listed else { panic!("{listed:?}") };
                assert_eq!(record.dependents, if record.address == db { n } else { 0 });
            }
            let record = everything(&files).await.into_iter().find(|record| record.address == db);
            assert_eq!(record.unwrap().dependents, n);
        }
        let before = changes(&files).await.len();
        files.compare().await.unwrap();
        assert_eq!(changes(&files).await.len(), before, "a count is no change");
        for (left, source) in [(1, &sources[0]), (0, &sources[1])] {
            assert_eq!(files.purge(&Call::fresh(), source).await.unwrap(), Purged::Purged);
            assert_eq!(files.lookup(&db).await.unwrap().unwrap().dependents, left);
        }
    }
}
