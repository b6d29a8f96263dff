//! A directory that is unmounted, unreadable or replaced, and a bucket that is gone: outages, never deletions.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use nameservice_embedded::Embedded;
use tokio::time::timeout;

use super::*;
use crate::storage::Directory;

/// What becomes of a directory that is no longer mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    /// The whole directory is gone.
    Root,
    /// An empty mount point is there instead.
    EmptyRoot,
    /// A file is there instead.
    FileForRoot,
    /// `ns@v2` is gone.
    Place,
    /// An empty mount point is there instead.
    EmptyPlace,
    /// Another `ns@v2`, with another record, is there instead.
    OtherPlace,
    /// A symbolic link is there instead.
    LinkForPlace,
}

const ALL: [Away; 7] = [
    Away::Root,
    Away::EmptyRoot,
    Away::FileForRoot,
    Away::Place,
    Away::EmptyPlace,
    Away::OtherPlace,
    Away::LinkForPlace,
];

/// A directory below a temporary one, so that it can be moved away.
struct Mounted {
    directory: TempDir,
}

impl Mounted {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("root")).unwrap();
        Self { directory }
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn unmount(&self, away: Away) {
        unmount(self.directory.path(), away);
    }

    fn mount(&self) {
        mount(self.directory.path());
    }
}

fn unmount(base: &Path, away: Away) {
    let (root, place, beside) = (base.join("root"), base.join("root/ns@v2"), base.join("away"));
    match away {
        Away::Root | Away::EmptyRoot | Away::FileForRoot => fs::rename(&root, beside).unwrap(),
        _ => fs::rename(&place, beside).unwrap(),
    }
    match away {
        Away::Root | Away::Place => {}
        Away::EmptyRoot => fs::create_dir(root).unwrap(),
        Away::FileForRoot => fs::write(root, "x").unwrap(),
        Away::EmptyPlace => fs::create_dir(place).unwrap(),
        Away::OtherPlace => copy_tree(&fixture().join("ns@v2"), &place),
        Away::LinkForPlace => std::os::unix::fs::symlink(fixture().join("ns@v2"), place).unwrap(),
    }
}

fn mount(base: &Path) {
    let (root, place, beside) = (base.join("root"), base.join("root/ns@v2"), base.join("away"));
    let to = if beside.join("ns@v2").exists() { root } else { place };
    match fs::symlink_metadata(&to) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(&to).unwrap(),
        Ok(_) => fs::remove_file(&to).unwrap(),
        Err(_) => {}
    }
    fs::rename(beside, to).unwrap();
}

async fn changes(files: &Files) -> Vec<Change> {
    match files.changes(0, Limit::MAX).await.unwrap() {
        Run::Changes(changes) => changes,
        gone => panic!("{gone:?}"),
    }
}

#[track_caller]
fn is_out<T: std::fmt::Debug>(result: Result<T>, what: &str) {
    assert!(matches!(result, Err(Error::Unavailable { .. })), "{what}: {result:?}");
}

async fn everything_is_out(files: &Files, what: &str) {
    let (known, new) = (at("tenant/own"), at("new"));
    is_out(files.compare().await, what);
    is_out(files.ping().await, what);
    for address in [&known, &new] {
        is_out(files.lookup(address).await, what);
    }
    is_out(files.lookup_all(&[known.clone(), new.clone()]).await, what);
    is_out(files.list(&ListQuery::default(), &|_| true).await, what);
    let named = ListQuery { name: Some("tenant/own".into()), ..ListQuery::default() };
    is_out(files.list(&named, &|_| true).await, what);
    is_out(files.snapshot(Limit::MAX, None, &|_| true).await, what);
    is_out(files.dependents(&known).await, what);
    is_out(files.create_ledger(&Call::fresh(), &new, None, None).await, what);
    is_out(files.push_head(&Call::fresh(), &known, &HeadPush::monotonic(head(1, 9))).await, what);
    is_out(files.purge(&Call::fresh(), &known).await, what);
    is_out(files.examine(true, &mut |_| {}).await, what);
}

/// Three records, one under a tenant and one with a dot in its name, and the feed of them.
async fn filled(files: &Files) -> Vec<Change> {
    for name in ["tenant/own", "b.c", "d"] {
        born(files, name, 1).await;
    }
    files.compare().await.unwrap();
    changes(files).await
}

#[tokio::test]
async fn a_directory_that_is_away_is_an_outage_and_everything_continues_after_it() {
    for away in ALL {
        let mounted = Mounted::new();
        let kept = tempfile::tempdir().unwrap();
        let opened = async || loop {
            // The feed of before may still be looking at what has changed.
            match Embedded::open(kept.path(), Default::default()) {
                Ok(log) => break log,
                Err(nameservice_embedded::OpenError::InUse { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        };
        let open = async || timeout(LONG, opened()).await.expect("the feed of before is over");
        let files = Files::directory(mounted.root(), false, options().with_log(open().await)).unwrap();
        let before = filled(&files).await;
        // Between two comparisons, twice.
        for t in 2..4 {
            // One that follows nothing, and has only looked.
            let reader = Files::directory(mounted.root(), false, options()).unwrap();
            assert!(reader.lookup(&at("d")).await.unwrap().is_some());
            mounted.unmount(away);
            for name in ["d", "nobody"] {
                is_out(reader.lookup(&at(name)).await, &format!("{away:?} {t}"));
            }
            is_out(reader.list(&ListQuery::default(), &|_| true).await, &format!("{away:?} {t}"));
            everything_is_out(&files, &format!("{away:?}")).await;
            assert_eq!(changes(&files).await, before[..], "{away:?}");
            mounted.mount();
            files.compare().await.unwrap();
            assert_eq!(everything(&files).await.len(), 3, "{away:?}");
            // Others take the values back, so that each round begins with the same feed.
            assert!(files.lookup(&at("tenant/own")).await.unwrap().is_some(), "{away:?} {t}");
            assert_eq!(changes(&files).await, before[..], "{away:?}");
        }
        drop(files);
        // Before a start, with a feed that knows the records.
        mounted.unmount(away);
        match Files::directory(mounted.root(), false, options().with_log(open().await)) {
            Err(_) => assert!(matches!(away, Away::Root | Away::FileForRoot), "{away:?}"),
            Ok(files) => {
                everything_is_out(&files, &format!("{away:?} at the start")).await;
                is_out(files.changes(0, Limit::MAX).await, "nothing is followed yet");
                mounted.mount();
                assert_eq!(changes(&files).await, before[..], "{away:?}");
                assert!(push(&files, &at("d"), 1, 2).await.is_updated());
                assert_eq!(changes(&files).await.len(), before.len() + 1, "{away:?}");
            }
        }
    }
}

/// Waits until the feed shows an outage, or none.
async fn shows(files: &Files, is_so: fn(Option<String>) -> bool) {
    let shown = async {
        while !is_so(files.outage()) {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, shown).await.expect("the feed notices it");
}

#[tokio::test]
async fn a_running_feed_shows_the_outage_and_notices_changes_again_after_it() {
    for away in [Away::Place, Away::EmptyRoot] {
        let mounted = Mounted::new();
        let quick = options().with_interval(Duration::from_millis(10));
        let files = Files::directory(mounted.root(), false, quick).unwrap();
        let before = filled(&files).await;
        assert_eq!(files.outage(), None);
        mounted.unmount(away);
        shows(&files, |outage| outage.is_some()).await;
        assert_eq!(changes(&files).await, before[..]);
        mounted.mount();
        shows(&files, |outage| outage.is_none()).await;
        let theirs = Files::directory(mounted.root(), false, options()).unwrap();
        assert!(push(&theirs, &at("d"), 1, 2).await.is_updated());
        files.wait(before.len() as u64, LONG).await.unwrap();
        let after = changes(&files).await;
        assert_eq!(after[..before.len()], before[..]);
        assert_eq!((after.len(), after.last().unwrap().watermark), (before.len() + 1, 2));
    }
}

/// The directory goes before one look at a file, and comes back before a later one.
#[tokio::test]
async fn whenever_a_directory_disappears_and_reappears_nothing_is_taken_for_deleted() {
    for away in [Away::EmptyRoot, Away::Place, Away::EmptyPlace] {
        let mounted = Mounted::new();
        // Without notifications, so that nothing else looks at it meanwhile.
        let open = || {
            let directory = Directory::open(&mounted.root(), false).unwrap();
            (Files::open(Arc::new(directory.clone()), options(), Duration::from_secs(3_600), None), directory)
        };
        let (files, directory) = open();
        let before = filled(&files).await;
        let known = at("tenant/own");
        let mut moments = usize::MAX;
        let mut goes = 0;
        while goes < moments {
            for stays in [1, 2, 3, 5] {
                // A process that has nothing in its cache.
                let (fresh, other) = open();
                fresh.inner.storage.list("ns@v2").await.unwrap();
                let count = Arc::new(AtomicUsize::new(0));
                let (base, counted) = (mounted.directory.path().to_owned(), count.clone());
                let moment = move |_: &str| {
                    let n = counted.fetch_add(1, SeqCst);
                    if n == goes {
                        unmount(&base, away);
                    } else if n == goes + stays {
                        mount(&base);
                    }
                };
                let directories = [&directory, &other];
                let moment = Arc::new(std::sync::Mutex::new(moment));
                for each in directories {
                    let moment = moment.clone();
                    each.at_each_moment(Some(Box::new(move |key| (moment.lock().unwrap())(key))));
                }
                let compared = files.compare().await;
                let found = fresh.lookup(&known).await;
                let listed = fresh.list(&ListQuery::default(), &|_| true).await;
                directories.iter().for_each(|each| each.at_each_moment(None));
                let seen = count.load(SeqCst);
                if (goes + 1..=goes + stays).contains(&seen) {
                    mounted.mount();
                }
                moments = if seen > goes { usize::MAX } else { 0 };
                let what = format!("{away:?} from {goes} for {stays}");
                assert!(matches!(compared, Ok(()) | Err(Error::Unavailable { .. })), "{what}: {compared:?}");
                assert!(matches!(found, Ok(Some(_)) | Err(Error::Unavailable { .. })), "{what}: {found:?}");
                match listed {
                    Ok(page) => assert_eq!(page.items.len(), 3, "{what}"),
                    Err(error) => assert!(matches!(error, Error::Unavailable { .. }), "{what}: {error:?}"),
                }
                assert_eq!(changes(&files).await, before[..], "{what}");
            }
            goes += 1;
        }
        assert!(goes > 20, "{goes} moments");
        files.compare().await.unwrap();
        assert_eq!(changes(&files).await, before[..]);
    }
}

#[tokio::test]
async fn a_directory_that_is_truly_emptied_is_reported_as_purges() {
    let (theirs, directory) = directory();
    let kept = tempfile::tempdir().unwrap();
    let open = || Embedded::open(kept.path(), Default::default()).unwrap();
    let purged = async |files: &Files| {
        let all = changes(files).await;
        all.iter().filter(|change| change.part == ChangedPart::Meta && change.kind == ChangeKind::Purged).count()
    };
    {
        let files = Files::directory(directory.path(), false, options().with_log(open())).unwrap();
        filled(&files).await;
        // Somebody removes a record with its directory, while the feed is followed.
        fs::remove_dir_all(directory.path().join("ns@v2/d")).unwrap();
        files.compare().await.unwrap();
        assert_eq!(purged(&files).await, 1);
        fs::remove_dir_all(directory.path().join("ns@v2/b.c")).unwrap();
        fs::remove_dir_all(directory.path().join("ns@v2/tenant")).unwrap();
        files.compare().await.unwrap();
        assert_eq!((purged(&files).await, everything(&files).await.len()), (3, 0));
        // Every file goes, and an empty directory stays.
        born(&files, "left", 1).await;
        for file in fs::read_dir(directory.path().join("ns@v2/left")).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
        files.compare().await.unwrap();
        assert_eq!((purged(&files).await, everything(&files).await.len()), (4, 0));
        born(&files, "last", 1).await;
    }
    // The last record is purged while nothing is followed: its directory stays.
    assert_eq!(theirs.purge(&Call::fresh(), &at("last")).await.unwrap(), Purged::Purged);
    let files = Files::directory(directory.path(), false, options().with_log(open())).unwrap();
    files.compare().await.unwrap();
    assert_eq!(purged(&files).await, 5);
}

#[tokio::test]
async fn a_restored_directory_is_the_same_one() {
    let mounted = Mounted::new();
    let files = Files::directory(mounted.root(), false, options()).unwrap();
    let before = filled(&files).await;
    let backup = mounted.directory.path().join("backup");
    copy_tree(&mounted.root().join("ns@v2"), &backup);
    assert!(push(&files, &at("d"), 1, 2).await.is_updated());
    fs::remove_dir_all(mounted.root().join("ns@v2")).unwrap();
    is_out(files.lookup(&at("d")).await, "between the removal and the restore");
    fs::rename(&backup, mounted.root().join("ns@v2")).unwrap();
    files.compare().await.unwrap();
    let after = changes(&files).await;
    assert_eq!(after[before.len()..].iter().map(|change| change.watermark).collect::<Vec<_>>(), [2, 1]);
}

#[tokio::test]
async fn a_file_that_may_not_be_read_hides_no_others_and_is_not_deleted() {
    use std::os::unix::fs::PermissionsExt as _;
    let (files, directory) = directory();
    let before = filled(&files).await;
    let path = directory.path().join("ns@v2/d/main.json");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&path).is_ok() {
        // The system's administrator reads everything.
        return;
    }
    let fresh = Files::directory(directory.path(), false, options()).unwrap();
    assert_eq!(everything(&fresh).await.len(), 2);
    assert!(fresh.lookup(&at("d")).await.is_err());
    files.compare().await.unwrap();
    assert_eq!(changes(&files).await, before);
    let place = directory.path().join("ns@v2");
    fs::set_permissions(&place, fs::Permissions::from_mode(0o000)).unwrap();
    everything_is_out(&files, "unreadable").await;
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
}
