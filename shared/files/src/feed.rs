//! The change feed of files: what is stored, compared with what was stored at the last comparison.
//!
//! The records as they were last seen are an embedded nameservice, whose log is the feed. A write of this process is
//! noticed at once; those of other programs on a notification from the directory, or at the next interval. Several
//! writes of one concern between two comparisons are one change.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use nameservice_embedded::{Embedded, Options};
use nameservice_model::{Address, ChangeFeed, Error, History, HistoryQuery, Limit, Result, Run, chain};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::{
    sync::{Mutex, Notify, OnceCell},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use crate::{Files, Inner, names, scan::Found, scan::Pair, storage::failed};

/// How many records are read concurrently.
const TOGETHER: usize = 64;
/// The delay between a notification from the directory and the comparison: one write causes several notifications.
const SETTLE: Duration = Duration::from_millis(20);
const FOLLOW: &str = "follow the files";

/// The parts of the feed of files.
pub(crate) struct Feed {
    log: Option<Embedded>,
    interval: Duration,
    watched: Option<PathBuf>,
    following: OnceCell<Following>,
    outage: Arc<RwLock<Option<String>>>,
}

/// A running feed.
struct Following {
    log: Embedded,
    /// The files as they were last seen.
    seen: Mutex<HashMap<String, Seen>>,
    /// Held while a record is read and its change is logged, so that the log never returns to an older value.
    locks: Vec<Mutex<()>>,
    task: JoinHandle<()>,
    _watcher: Option<RecommendedWatcher>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    main: String,
    index: Option<String>,
    address: Option<Address>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Feed {
    pub(crate) fn new(log: Option<Embedded>, interval: Duration, watched: Option<PathBuf>) -> Self {
        Self { log, interval, watched, following: OnceCell::new(), outage: Arc::default() }
    }

    /// Returns the position; 0 if the feed is not followed.
    pub(crate) async fn position(&self) -> u64 {
        match self.following.get() {
            Some(following) => following.log.view().position(),
            None => self.log.as_ref().map_or(0, |log| log.view().position()),
        }
    }

    /// Reads a record that this process has written, if the feed is followed.
    pub(crate) async fn look_again(&self, files: &Files, address: &Address) {
        if let Some(following) = self.following.get()
            && let Err(error) = following.look(files, address).await
        {
            tracing::warn!(%address, error = chain(&error), "a written record could not be read again; the next comparison will find it");
        }
    }

    fn set_outage(&self, outage: Option<String>) {
        *self.outage.write().unwrap_or_else(PoisonError::into_inner) = outage;
    }
}

impl Following {
    async fn look(&self, files: &Files, address: &Address) -> Result<()> {
        let _alone = self.lock(address).lock().await;
        let stored = files.load(address).await?;
        self.log.observe(address, stored.map(|stored| stored.portable)).await
    }

    fn lock(&self, address: &Address) -> &Mutex<()> {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        address.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % self.locks.len() as u64).unwrap_or(0);
        &self.locks[place]
    }

    /// Compares everything that is stored with what was last seen.
    async fn compare(&self, files: &Files) -> Result<()> {
        let mut seen = self.seen.lock().await;
        let pairs = files.pairs(names::ROOT).await?;
        let stamps = |pair: &Pair| (pair.main.stamp.clone(), pair.index.as_ref().map(|index| index.stamp.clone()));
        let is_new = |pair: &&Pair| {
            let (main, index) = stamps(pair);
            seen.get(&pair.main.key).is_none_or(|seen| seen.main != main || seen.index != index)
        };
        let changed: Vec<Pair> = pairs.iter().filter(is_new).cloned().collect();
        let mut found: Vec<(Pair, Option<Address>)> = Vec::new();
        let each = |pair: &Pair, stored: Found| found.push((pair.clone(), stored.ok().map(|s| s.address().clone())));
        files.read_pairs(&changed, each).await?;
        let addresses = found.iter().filter_map(|(_, address)| address.clone());
        self.look_all(files, addresses.collect()).await?;
        for (pair, address) in found {
            let (main, index) = stamps(&pair);
            seen.insert(pair.main.key, Seen { main, index, address });
        }
        let listed: HashSet<&str> = pairs.iter().map(|pair| &*pair.main.key).collect();
        seen.retain(|key, _| listed.contains(&**key));
        let there: HashSet<&Address> = seen.values().filter_map(|seen| seen.address.as_ref()).collect();
        let known = self.log.view();
        let gone: Vec<Address> = known.state().addresses().filter(|address| !there.contains(address)).collect();
        self.look_all(files, gone).await
    }

    async fn look_all(&self, files: &Files, mut addresses: Vec<Address>) -> Result<()> {
        // Positions follow the order of addresses, as far as concurrent reads allow.
        addresses.sort();
        let looks = stream::iter(addresses).map(|address| async move { self.look(files, &address).await });
        let mut looks = looks.buffered(TOGETHER);
        while let Some(looked) = looks.next().await {
            match looked {
                // A file that can no longer be read does not hide others.
                Err(Error::Store { .. }) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Files {
    /// Compares everything that is stored, and returns once the feed shows it.
    pub async fn compare(&self) -> Result<()> {
        let following = self.following().await?;
        following.compare(self).await
    }

    /// Begins to follow, unless that has been done.
    async fn following(&self) -> Result<&Following> {
        let feed = &self.inner.feed;
        feed.following
            .get_or_try_init(|| async {
                let log = match &feed.log {
                    Some(log) => log.clone(),
                    None => Embedded::memory(Options::default()).map_err(|error| failed(FOLLOW, error))?,
                };
                let changed = Arc::new(Notify::new());
                let watcher = feed.watched.as_deref().and_then(|path| watch(path, changed.clone()));
                let task = tokio::spawn(follow(Arc::downgrade(&self.inner), changed, feed.interval));
                let following = Following {
                    log,
                    seen: Mutex::default(),
                    locks: (0..TOGETHER).map(|_| Mutex::default()).collect(),
                    task,
                    _watcher: watcher,
                };
                following.compare(self).await?;
                Ok(following)
            })
            .await
    }
}

/// Compares whenever something has changed, at the latest after each interval, until the files are closed.
async fn follow(files: Weak<Inner>, changed: Arc<Notify>, interval: Duration) {
    loop {
        let began = Instant::now();
        let _ = timeout(interval, changed.notified()).await;
        if began.elapsed() < interval {
            sleep(SETTLE).await;
        }
        let Some(inner) = files.upgrade() else { return };
        let files = Files { inner };
        let feed = &files.inner.feed;
        let Some(following) = feed.following.get() else { continue };
        match following.compare(&files).await {
            Ok(()) => feed.set_outage(None),
            Err(error) => {
                let reason = chain(&error);
                tracing::warn!(error = reason, "the files could not be compared; retrying at the next interval");
                feed.set_outage(Some(format!("the files cannot be compared with what was seen last: {reason}")));
            }
        }
    }
}

/// Watches a directory for changes. Where the system does not support that, only the interval remains.
fn watch(path: &Path, changed: Arc<Notify>) -> Option<RecommendedWatcher> {
    let root = path.join(names::ROOT);
    let event = move |event: notify::Result<notify::Event>| {
        let is_ours = |event: &notify::Event| {
            !event.kind.is_access()
                && event.paths.iter().any(|path| path.extension().is_none_or(|extension| extension == "json"))
        };
        if event.as_ref().map_or(true, is_ours) {
            changed.notify_one();
        }
    };
    let watcher = notify::recommended_watcher(event).and_then(|mut watcher| {
        // Only the nameservice's own directory: beside it there may be large amounts of data.
        std::fs::create_dir_all(&root)?;
        watcher.watch(&root, RecursiveMode::Recursive)?;
        Ok(watcher)
    });
    watcher.inspect_err(|error| tracing::warn!(%error, "the directory cannot be watched; it is read at intervals")).ok()
}

#[async_trait]
impl ChangeFeed for Files {
    async fn position(&self) -> Result<u64> {
        self.following().await?.log.position().await
    }

    fn outage(&self) -> Option<String> {
        self.inner.feed.outage.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        self.following().await?.log.changes(after, limit).await
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        self.following().await?.log.wait(after, at_most).await
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        self.following().await?.log.history(address, query).await
    }
}
