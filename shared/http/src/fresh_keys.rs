//! The keys of a source, read again when they are due.
//!
//! A read is a task of the service, not of the request that begins it: a caller who hangs up ends no read that others need,
//! and a read counts only once its keys are in use.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use metrics::gauge;
use nameservice_model::chain;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{
    key_set::{InvalidKeys, Key, KeySet, find},
    key_source::KeySource,
};

/// The minimum time between reads of a key set because a token names an unknown key: anybody can send such tokens.
const READ_FOR_UNKNOWN_KEYS_EVERY: Duration = Duration::from_secs(10);
/// How long before their time is over keys are read again. Until then, one caller waits for it; after that, all do.
const AHEAD: Duration = Duration::from_secs(10);
/// The minimum time between the beginnings of two reads of keys that are due: an issuer that is down is not flooded.
const RETRY_EVERY: Duration = Duration::from_secs(10);
/// How long a read may take, whatever its source allows.
const READ_FOR_AT_MOST: Duration = Duration::from_secs(10);
/// How long after the first read has failed the next one begins. The time doubles with each failure, up to [`RETRY_EVERY`].
const FIRST_RETRY_AFTER: Duration = Duration::from_secs(1);

/// How often the same complaint about a source is logged.
const LOGGED_EVERY: Duration = Duration::from_secs(3600);

/// Keys that are read again when they are due.
pub(crate) struct FreshKeys(Arc<Inner>);

struct Inner {
    source: Arc<dyn KeySource>,
    /// `None` until a key set was read.
    keys: Mutex<Option<Arc<[Key]>>>,
    created_at: Instant,
    reads: Mutex<Reads>,
    /// What was last logged about the source, and when: the same is logged once an hour.
    complaint: Mutex<(String, Option<Instant>)>,
}

#[derive(Default)]
struct Reads {
    /// When the last read began.
    begun_at: Option<Instant>,
    /// When the read began whose keys are in use.
    used_from: Option<Instant>,
    /// When a read last began because of an unknown key.
    unknown_at: Option<Instant>,
    /// The read that is running, or was.
    last: Option<Read>,
    /// Whether keys of the age of those in use have already been asked for in vain, when the last read began.
    is_retry: bool,
}

/// A read: its sender is dropped when it ends, however it ends.
type Read = watch::Receiver<()>;

/// Why there is no key for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKey {
    /// The key set has none of its id.
    Unknown,
    /// No key set could be read yet.
    NotYet,
}

impl FreshKeys {
    /// Reads a source for the first time. One that may be away is read again until it has answered with keys.
    pub(crate) async fn read(source: Arc<dyn KeySource>) -> Result<Self, InvalidKeys> {
        let begun = Instant::now();
        let fresh = Self::without_keys(source);
        fresh.0.reads().begun_at = Some(begun);
        match fresh.0.fetched().await {
            Ok(set) => {
                fresh.0.take(set);
                fresh.0.reads().used_from = Some(begun);
            }
            Err(error) if fresh.0.source.may_be_away() => {
                fresh.0.complain(&error);
                fresh.read_until_there();
            }
            Err(error) => return Err(error),
        }
        Ok(fresh)
    }

    /// Begins with the keys of a set. The source is due.
    pub(crate) fn from_set(set: KeySet, source: Arc<dyn KeySource>) -> Self {
        let fresh = Self::without_keys(source);
        fresh.0.take(set);
        fresh
    }

    fn without_keys(source: Arc<dyn KeySource>) -> Self {
        Self(Arc::new(Inner {
            source,
            keys: Mutex::default(),
            created_at: Instant::now(),
            reads: Mutex::default(),
            complaint: Mutex::default(),
        }))
    }

    /// Reads the source in the background until that has succeeded, or nobody uses the keys any more.
    fn read_until_there(&self) {
        let inner = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let mut pause = FIRST_RETRY_AFTER;
            loop {
                sleep(pause).await;
                let Some(fresh) = inner.upgrade().map(Self) else { return };
                if fresh.0.keys().is_some() {
                    return;
                }
                let read = fresh.running_or_new(&mut fresh.0.reads());
                ended(read).await;
                pause = (pause * 2).min(RETRY_EVERY);
            }
        });
    }

    /// Returns whether no key set could be read yet.
    pub(crate) fn are_missing(&self) -> bool {
        self.0.keys().is_none()
    }

    /// Returns the keys if the one that a token names is among them, after another read if necessary.
    pub(crate) async fn with(&self, id: Option<&str>) -> Result<Arc<[Key]>, NoKey> {
        if let Some(read) = self.due() {
            ended(read).await;
        }
        let keys = self.0.keys().ok_or(NoKey::NotYet)?;
        if find(&keys, id).is_some() {
            return Ok(keys);
        }
        if let Some(read) = self.for_unknown_key() {
            ended(read).await;
        }
        let keys = self.0.keys().ok_or(NoKey::NotYet)?;
        if find(&keys, id).is_some() { Ok(keys) } else { Err(NoKey::Unknown) }
    }

    /// Reads the source again, whether it is due or not. A read that is running may have seen it as it was before.
    pub(crate) async fn reload(&self) {
        // Whoever asks for it wants to know what is wrong.
        *self.0.complaint() = Default::default();
        let running = self.0.reads().running();
        if let Some(read) = running {
            ended(read).await;
        }
        let read = self.running_or_new(&mut self.0.reads());
        ended(read).await;
    }

    /// Sets the gauge of the age of the keys, if they have a time: that of the service, as long as it has read none. A read that is
    /// due begins: of a service that nobody calls, too, keys are old only if they cannot be read.
    pub(crate) fn sample(&self) {
        if self.0.source.max_age().is_none() {
            return;
        }
        // Nobody waits for it.
        drop(self.due());
        let since = self.0.reads().used_from.unwrap_or(self.0.created_at);
        gauge!("nameservice_keys_age_seconds").set(since.elapsed().as_secs_f64());
    }

    /// Returns the read for which a caller has to wait before it uses the keys, and begins it if nobody has.
    ///
    /// A key that was withdrawn must not be used after its time. So callers wait for the first read of keys whose time is
    /// over. If it fails, the keys stay in use: until another one succeeds, only the caller who begins it waits for it.
    fn due(&self) -> Option<Read> {
        let has_changed = self.0.source.has_changed();
        let mut reads = self.0.reads();
        if has_changed {
            return Some(self.running_or_new(&mut reads));
        }
        let max_age = self.0.source.max_age()?;
        match reads.running() {
            Some(running) => (reads.are_older_than(max_age) && !reads.is_retry).then_some(running),
            None => {
                let is_allowed = reads.begun_at.is_none_or(|at| at.elapsed() >= RETRY_EVERY);
                let is_due = is_allowed && reads.are_older_than(max_age.saturating_sub(AHEAD));
                is_due.then(|| self.begin(&mut reads))
            }
        }
    }

    /// Returns the read that may find a key that is not known; `None` if there was one a moment ago.
    fn for_unknown_key(&self) -> Option<Read> {
        let mut reads = self.0.reads();
        if let Some(running) = reads.running() {
            return Some(running);
        }
        if reads.unknown_at.is_some_and(|at| at.elapsed() < READ_FOR_UNKNOWN_KEYS_EVERY) {
            return None;
        }
        reads.unknown_at = Some(Instant::now());
        Some(self.begin(&mut reads))
    }

    fn running_or_new(&self, reads: &mut Reads) -> Read {
        reads.running().unwrap_or_else(|| self.begin(reads))
    }

    fn begin(&self, reads: &mut Reads) -> Read {
        let (ends, read) = watch::channel(());
        let begun = Instant::now();
        // One that failed long ago says nothing of this one: then nobody has asked since.
        let is_soon = reads.begun_at.is_some_and(|at| at.elapsed() < RETRY_EVERY + READ_FOR_AT_MOST);
        let due_age = self.0.source.max_age().map(|max_age| max_age.saturating_sub(AHEAD));
        reads.is_retry = is_soon && due_age.is_some_and(|age| reads.have_failed(age));
        reads.begun_at = Some(begun);
        reads.last = Some(read.clone());
        let inner = self.0.clone();
        tokio::spawn(async move {
            inner.read_again(begun).await;
            drop(ends);
        });
        read
    }
}

impl Inner {
    fn keys(&self) -> Option<Arc<[Key]>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn reads(&self) -> MutexGuard<'_, Reads> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the key set of the source. The first one must have a key.
    async fn fetched(&self) -> Result<KeySet, InvalidKeys> {
        let json = match timeout(READ_FOR_AT_MOST, self.source.read()).await {
            Ok(read) => read.map_err(|error| InvalidKeys::new("it cannot be read", Some(error)))?,
            Err(elapsed) => return Err(InvalidKeys::new("it cannot be read", Some(elapsed.into()))),
        };
        if self.keys().is_none() { KeySet::parse_some(&json) } else { KeySet::parse(&json) }
    }

    async fn read_again(&self, begun: Instant) {
        match self.fetched().await {
            Ok(set) => {
                match set.keys.len() {
                    0 => tracing::warn!(source = ?self.source, "the key set no longer has any keys: no token is valid"),
                    keys => tracing::info!(source = ?self.source, keys, "the key set was read again"),
                }
                self.take(set);
                self.reads().used_from = Some(begun);
            }
            Err(error) => self.complain(&error),
        }
    }

    /// Logs why the source gives no keys.
    fn complain(&self, error: &InvalidKeys) {
        let error = chain(error);
        if !self.is_news(&error) {
            return;
        }
        let consequence = match self.keys() {
            Some(_) => "the previous keys stay in use",
            None => "requests with tokens are answered 503 until there are keys",
        };
        tracing::error!(source = ?self.source, error, "the key set cannot be used: {consequence}");
    }

    fn take(&self, set: KeySet) {
        if self.is_news(&set.skipped) && !set.skipped.is_empty() {
            tracing::warn!(source = ?self.source, keys = set.skipped, "keys of the set are malformed, and not used");
        }
        *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = Some(set.keys.into());
    }

    /// Returns whether this was not logged about the source within the last hour, and notes it.
    fn is_news(&self, complaint: &str) -> bool {
        let mut last = self.complaint();
        let is_news = last.0 != complaint || last.1.is_none_or(|at| at.elapsed() >= LOGGED_EVERY);
        if is_news {
            *last = (complaint.to_owned(), Some(Instant::now()));
        }
        is_news
    }

    fn complaint(&self) -> MutexGuard<'_, (String, Option<Instant>)> {
        self.complaint.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reads {
    fn running(&self) -> Option<Read> {
        self.last.clone().filter(|read| read.has_changed().is_ok())
    }

    fn are_older_than(&self, age: Duration) -> bool {
        self.used_from.is_none_or(|at| at.elapsed() >= age)
    }

    /// Returns whether the last read failed, and its keys were due: at least this old when it began.
    fn have_failed(&self, due_age: Duration) -> bool {
        let Some(begun_at) = self.begun_at else { return false };
        self.used_from.is_none_or(|used_from| begun_at.saturating_duration_since(used_from) >= due_age)
    }
}

async fn ended(mut read: Read) {
    // An error says that the read has ended; nothing else is sent.
    let _ = read.changed().await;
}
