//! The change feed of files: what is stored, compared with what was stored at the last comparison.
//!
//! The records as they were last seen are an embedded nameservice, whose log is the feed. A write of this process is
//! noticed immediately; those of other programs on a notification from the directory, or at the next interval. A
//! notification names the files that have changed, and only those are looked at; the interval compares everything. Several
//! writes of one concern between two comparisons are one change, whose `previous` is the watermark from which on it covers them.
//! Heads that Fluree has published meanwhile are changes of their own as far as its commit log still has them.
//!
//! A record is only reported as purged after its file was found to be absent in a directory that is certainly there
//! (`Directory::check`). Anything else is an outage.

mod steps;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex as Lock, MutexGuard, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use nameservice_embedded::{Embedded, Options};
use nameservice_model::{
    Address, ChangeFeed, Error, History, HistoryQuery, Limit, NameService as _, RecordKind, Result, Run, chain,
};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::{
    sync::{Mutex, Notify, OnceCell},
    task::{JoinHandle, spawn_blocking},
    time::{Instant, sleep, timeout_at},
};

use crate::{
    Files, Inner,
    cache::is_settled,
    names,
    scan::{Found, Pair, paired},
    storage::{Directory, Entry, Identity, epoch_ms, failed},
};

/// How many records are read concurrently.
const TOGETHER: usize = 64;
/// The delay between a notification from the directory and the comparison: one write causes several notifications.
const SETTLE: Duration = Duration::from_millis(20);
/// With more changed files than this, everything is compared.
const MAX_FILES: usize = 1_000;
/// A watched directory is compared as a whole at most this part of the time.
const SHARE: u32 = 20;
const FOLLOW: &str = "follow the files";

/// The parts of the feed of files.
pub(crate) struct Feed {
    log: Option<Embedded>,
    interval: Duration,
    watched: Option<Directory>,
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
    changed: Arc<Changed>,
    /// Whether everything was compared once: a record that is new then was created since.
    is_begun: AtomicBool,
    watching: Lock<Option<Watching>>,
    task: JoinHandle<()>,
}

/// A directory that reports its changes. A mount or a replacement of the directory ends that.
struct Watching {
    identity: Option<Identity>,
    watcher: Option<RecommendedWatcher>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    main: String,
    index: Option<String>,
    address: Option<Address>,
}

/// What the directory has reported, and was not looked at yet.
#[derive(Debug, Default)]
struct Changed {
    notify: Notify,
    scope: Lock<Scope>,
}

/// The files that a comparison looks at.
#[derive(Debug, Default)]
struct Scope {
    all: bool,
    /// Main files of records.
    files: BTreeSet<String>,
    /// Directories, with everything below them.
    under: BTreeSet<String>,
}

impl Changed {
    fn scope(&self) -> MutexGuard<'_, Scope> {
        self.scope.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Scope {
        mem::take(&mut *self.scope())
    }

    fn all(&self) {
        self.scope().all = true;
        self.notify.notify_one();
    }

    /// Takes a notification about paths under `ns@v2`.
    fn report(&self, root: &Path, event: &notify::Result<notify::Event>) {
        let is_news = match event {
            Ok(event) if event.kind.is_access() => false,
            Ok(event) => {
                let mut scope = self.scope();
                scope.all |= event.need_rescan();
                event.paths.iter().fold(scope.all, |is_news, path| scope.add(root, path) || is_news)
            }
            Err(_) => {
                self.scope().all = true;
                true
            }
        };
        if is_news {
            self.notify.notify_one();
        }
    }
}

impl Scope {
    const fn all() -> Self {
        Self { all: true, files: BTreeSet::new(), under: BTreeSet::new() }
    }

    fn is_empty(&self) -> bool {
        !self.all && self.files.is_empty() && self.under.is_empty()
    }

    /// Adds what a path refers to. Returns whether it may be of a record.
    fn add(&mut self, root: &Path, path: &Path) -> bool {
        let Ok(relative) = path.strip_prefix(root) else { return false };
        let Some(relative) = relative.to_str() else { return false };
        let key = match relative {
            "" => names::ROOT.to_owned(),
            relative => format!("{}/{}", names::ROOT, relative.replace(std::path::MAIN_SEPARATOR, "/")),
        };
        let ending = path.extension().and_then(|extension| extension.to_str());
        // A directory of such a name is one of a ledger.
        if matches!(ending, Some("lock" | "tmp" | "jsonl")) && !path.is_dir() {
            return false;
        }
        if names::is_index(&key) {
            self.files.insert(names::main_of_index(&key));
        } else if names::is_main(&key) {
            self.files.insert(key);
        } else {
            self.all |= key == names::ROOT;
            self.under.insert(key);
        }
        self.all |= self.files.len() + self.under.len() > MAX_FILES;
        true
    }

    fn covers(&self, key: &str) -> bool {
        let is_under = |directory: &String| key.strip_prefix(&**directory).is_some_and(|rest| rest.starts_with('/'));
        self.all || self.files.contains(key) || self.under.iter().any(is_under)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Feed {
    pub(crate) fn new(log: Option<Embedded>, interval: Duration, watched: Option<Directory>) -> Self {
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

    /// Returns how many graph sources depended on a record at the last comparison; `None` if the feed is not followed.
    pub(crate) async fn dependents(&self, address: &Address) -> Option<i64> {
        let log = &self.following.get()?.log;
        let view = log.view();
        let is_source = |of: &Address| view.record(of).is_some_and(|record| record.kind == RecordKind::GraphSource);
        let mut found: BTreeSet<Address> = log.dependents(address).await.ok()?.into_iter().collect();
        if address.branch() == "main" {
            found.extend(log.dependents(&Address::stored(address.name())).await.ok()?);
        }
        i64::try_from(found.iter().filter(|of| is_source(of)).count()).ok()
    }

    fn set_outage(&self, outage: Option<String>) {
        *self.outage.write().unwrap_or_else(PoisonError::into_inner) = outage;
    }
}

impl Following {
    async fn look(&self, files: &Files, address: &Address) -> Result<()> {
        // A name that only Fluree allows appears nowhere over HTTP: its changes would be gaps in the feed there.
        if !address.is_well_formed() {
            return Ok(());
        }
        let _alone = self.lock(address).lock().await;
        let stored = files.load(address).await?;
        let portable = stored.map(|stored| {
            let mut portable = stored.portable;
            portable.record.dependents = 0;
            portable
        });
        if let Some(portable) = &portable {
            for step in self.steps(files, address, portable).await {
                self.log.observe(address, Some(step)).await?;
            }
        }
        self.log.observe(address, portable).await
    }

    fn lock(&self, address: &Address) -> &Mutex<()> {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        address.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() % self.locks.len() as u64).unwrap_or(0);
        &self.locks[place]
    }

    /// Compares what is stored with what was last seen.
    async fn compare(&self, files: &Files, scope: &Scope) -> Result<()> {
        let mut seen = self.seen.lock().await;
        let began = epoch_ms(SystemTime::now());
        let is_exact = !files.inner.storage.locks();
        let pairs = paired(files.entries(scope).await?);
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
        let mut gone = Vec::new();
        for (pair, address) in found {
            let (main, index) = stamps(&pair);
            // A file that cannot be read is read again next time, whether it looks changed or not. So is one that may
            // change without looking so.
            let is_read = address.is_some() && (is_exact || is_settled(&pair, began));
            let main = if is_read { main } else { String::new() };
            let before = seen.insert(pair.main.key, Seen { main, index, address: address.clone() });
            gone.extend(before.and_then(|before| before.address).filter(|before| Some(before) != address.as_ref()));
        }
        let listed: HashSet<&str> = pairs.iter().map(|pair| &*pair.main.key).collect();
        let is_gone = |key: &str| scope.covers(key) && !listed.contains(key);
        gone.extend(seen.iter().filter(|(key, _)| is_gone(key)).filter_map(|(_, seen)| seen.address.clone()));
        if scope.all {
            let there: HashSet<&Address> = seen.values().filter_map(|seen| seen.address.as_ref()).collect();
            let known = self.log.view();
            gone.extend(known.state().addresses().filter(|address| !there.contains(address)));
        }
        self.look_all(files, gone).await?;
        // Last, so that what could not be looked at is looked at again.
        seen.retain(|key, _| !is_gone(key));
        Ok(())
    }

    /// Has the directory report its changes, if it can. Returns whether it did not before.
    async fn watch(&self, feed: &Feed, anew: bool) -> Result<bool> {
        let Some(directory) = feed.watched.clone() else { return Ok(false) };
        let changed = self.changed.clone();
        let known = self.watching().as_ref().filter(|_| !anew).map(|watching| watching.identity);
        let watched = move || {
            let (path, identity) = directory.place()?;
            Ok((known != Some(identity)).then(|| Watching { identity, watcher: watch(&path, changed) }))
        };
        let watched = spawn_blocking(watched).await.map_err(|error| failed(FOLLOW, error))??;
        let is_new = watched.is_some();
        if is_new {
            *self.watching() = watched;
        }
        Ok(is_new)
    }

    fn watching(&self) -> MutexGuard<'_, Option<Watching>> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_watched(&self) -> bool {
        self.watching().as_ref().is_some_and(|watching| watching.watcher.is_some())
    }

    async fn look_all(&self, files: &Files, mut addresses: Vec<Address>) -> Result<()> {
        // Positions follow the order of addresses, as far as concurrent reads allow.
        addresses.sort();
        addresses.dedup();
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
        following.compare(self, &Scope::all()).await
    }

    /// Waits until everything that was reported is compared.
    #[cfg(test)]
    pub(crate) async fn settled(&self) {
        let following = self.following().await.unwrap();
        while !following.changed.scope().is_empty() {
            tokio::task::yield_now().await;
        }
        drop(following.seen.lock().await);
    }

    /// Lists the files that a comparison looks at.
    async fn entries(&self, scope: &Scope) -> Result<Vec<Entry>> {
        let directory = match &self.inner.feed.watched {
            Some(directory) if !scope.all => directory.clone(),
            _ => return self.inner.storage.list(names::ROOT).await,
        };
        let mains = scope.files.iter();
        let files = mains.flat_map(|main| [main.clone(), names::index_of_main(main)]).collect();
        let under = scope.under.clone();
        let listed = move || {
            let mut found: BTreeMap<String, Entry> = BTreeMap::new();
            let mut add =
                |entries: Vec<Entry>| found.extend(entries.into_iter().map(|entry| (entry.key.clone(), entry)));
            add(directory.entries_now(&files)?);
            for directory_of in &under {
                add(directory.list_now(directory_of)?);
            }
            Ok(found.into_values().collect())
        };
        spawn_blocking(listed).await.map_err(|error| failed(FOLLOW, error))?
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
                let changed = Arc::<Changed>::default();
                let following = Following {
                    log,
                    seen: Mutex::default(),
                    locks: (0..TOGETHER).map(|_| Mutex::default()).collect(),
                    changed: changed.clone(),
                    is_begun: AtomicBool::new(false),
                    watching: Lock::default(),
                    task: tokio::spawn(follow(Arc::downgrade(&self.inner), changed, feed.interval)),
                };
                following.watch(feed, true).await?;
                following.compare(self, &Scope::all()).await?;
                following.is_begun.store(true, Ordering::Relaxed);
                Ok(following)
            })
            .await
    }
}

/// Compares what is reported to have changed, and everything after each interval, until the files are closed.
async fn follow(files: Weak<Inner>, changed: Arc<Changed>, interval: Duration) {
    let mut due = Instant::now() + interval;
    loop {
        if timeout_at(due, changed.notify.notified()).await.is_ok() {
            sleep(SETTLE).await;
        }
        let Some(inner) = files.upgrade() else { return };
        let files = Files { inner };
        let feed = &files.inner.feed;
        let began = Instant::now();
        let Some(following) = feed.following.get() else {
            due = began + interval;
            continue;
        };
        let mut scope = changed.take();
        // After a failure, everything is compared.
        let was_out = files.outage().is_some();
        scope.all |= began >= due || was_out;
        if scope.is_empty() {
            continue;
        }
        let compared = async {
            following.compare(&files, &scope).await?;
            if scope.all && following.watch(feed, was_out).await? {
                // What was written before is not reported.
                changed.all();
            }
            Ok::<_, Error>(())
        };
        match compared.await {
            Ok(()) => feed.set_outage(None),
            Err(error) => {
                let reason = chain(&error);
                if !was_out {
                    tracing::warn!(error = reason, "the files could not be compared; trying again at each interval");
                }
                feed.set_outage(Some(format!("the files cannot be compared with what was seen last: {reason}")));
                due = Instant::now() + interval;
                continue;
            }
        }
        if scope.all {
            let share = if following.is_watched() { began.elapsed() * SHARE } else { Duration::ZERO };
            due = Instant::now() + interval.max(share);
        }
    }
}

/// Watches `ns@v2` alone: beside it there may be large amounts of data. If the system does not support that, only the
/// interval remains.
fn watch(path: &Path, changed: Arc<Changed>) -> Option<RecommendedWatcher> {
    let root: PathBuf = path.to_owned();
    let event = move |event: notify::Result<notify::Event>| changed.report(&root, &event);
    let watcher = notify::recommended_watcher(event).and_then(|mut watcher| {
        watcher.watch(path, RecursiveMode::Recursive)?;
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
