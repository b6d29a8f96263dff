//! Changes of files that other programs write.

use super::*;

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
async fn own_writes_are_in_the_feed_at_once_each() {
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
async fn a_feed_that_is_kept_goes_on_where_it_was() {
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
    ours.wait(before, Duration::from_secs(30)).await.unwrap();
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
    ours.wait(before, Duration::from_secs(30)).await.unwrap();
    assert!(ours.position().await.unwrap() > before);
}
