//! A nameservice that is a copy of another one: it reads a snapshot, follows the changes under the upstream's positions,
//! and answers reads from memory.
//!
//! At a given position, a replica has what the upstream had there. While the upstream cannot be reached, reads
//! continue, and [`Replica::age`] shows how old they may be. If the upstream's feed no longer holds what follows the
//! replica's position, the replica reads a new snapshot.

use std::{
    collections::HashMap,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use nameservice_api::ProblemKind;
use nameservice_client::{ChangeEvent, ChangeFilter, Client, Request};
use nameservice_embedded::{Embedded, OpenError, Options, Replicated};
use nameservice_model::{
    Address, Change, ChangeFeed, ChangeKind, ChangedPart, ConcernKind, Error, History, HistoryQuery, Limit, Record,
    Result, Run, ShownUrl, chain,
};
use serde_json::Value;
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

/// How many records a page of a snapshot has.
const PAGE: Limit = match Limit::new(1000) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};
/// How many changes are applied together.
const BATCH: usize = 1024;
/// The first and the longest pause while the upstream cannot be used.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// The service writes to a stream at least every fifteen seconds. After this time without a sign of it, a replica no
/// longer counts as fresh.
const FRESH: Duration = Duration::from_secs(20);
/// The shortest time between two gaps that are passed by a snapshot. If there are more, the token may not read every record.
const GAPS: Duration = Duration::from_secs(3_600);
/// How many seconds the upstream may wait for a position that it has announced.
const UPSTREAM_WAIT: u64 = 5;
/// The pause before an upstream that seems to be behind the replica is asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a reader waits for a position that the upstream has, and the replica has not reached.
const AHEAD: Duration = Duration::from_secs(5);
/// How long a stream without changes continues before an upstream that is a replica is asked for its age.
const ASK_AGE: Duration = Duration::from_secs(5);

/// The state of a replica with respect to its upstream.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReplicaState {
    /// It has no records yet: the first snapshot is being read.
    Starting,
    /// It follows the upstream.
    Following,
    /// The upstream cannot be reached or used, for this reason.
    Detached(String),
}

/// A running replica. It stops following when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Replica {
    names: Embedded,
    pub(crate) client: Client,
    shared: Arc<Shared>,
    _task: Arc<Task>,
}

#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Debug)]
struct Shared {
    names: Embedded,
    state: watch::Sender<ReplicaState>,
    /// When everything that had been received until then was last applied; `None` if not since the start.
    current: Mutex<Option<Instant>>,
    /// The greatest position that the upstream is known to have.
    known: AtomicU64,
    is_ready: AtomicBool,
    /// Notified when the upstream was heard at a position below the replica's own.
    fallen: Notify,
    /// When the upstream was last asked for its position for a reader, and its answer.
    asked: tokio::sync::Mutex<Option<(Instant, Option<u64>)>>,
    /// How old the upstream's reads were when it was last asked, if it is a replica itself.
    upstream_age: Mutex<Option<Duration>>,
}

impl Shared {
    /// Notes that the upstream was heard from, and has this position. That counts only while everything is applied:
    /// otherwise reads are as old as before.
    fn hear(&self, position: Option<u64>) -> bool {
        // Whatever the upstream had later than this was lost, or the position is from before: the follower asks for it.
        if position.is_some_and(|position| position < self.names.view().position()) {
            self.fallen.notify_one();
        }
        let known = self.known.fetch_max(position.unwrap_or(0), Ordering::AcqRel).max(position.unwrap_or(0));
        let is_current = self.names.view().position() >= known;
        if is_current {
            *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        is_current
    }

    /// Notes that the upstream has this position, whatever was known of an earlier feed, and how the replica compares.
    fn begin_at(&self, position: u64) {
        self.known.store(position, Ordering::Release);
        self.applied();
    }

    fn upstream_age(&self) -> Option<Duration> {
        *self.upstream_age.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that something was applied.
    fn applied(&self) {
        if self.hear(None) {
            self.set(ReplicaState::Following);
        }
    }

    fn set(&self, state: ReplicaState) {
        self.state.send_if_modified(|current| {
            let is_news = *current != state;
            *current = state;
            is_news
        });
    }

    fn detach(&self, error: &Error) {
        self.set(ReplicaState::Detached(chain(error)));
    }
}

impl Replica {
    /// Starts a replica of a service, in a directory. `upstream` is the service's URL, which the directory keeps without
    /// its credentials. The content of the directory is served immediately, even while the upstream is unavailable.
    pub async fn open(
        directory: &Path,
        upstream: &str,
        client: Client,
        options: Options,
    ) -> std::result::Result<Self, OpenError> {
        let (directory, url) = (directory.to_owned(), ShownUrl(upstream.trim_end_matches('/')).to_string());
        let opened = tokio::task::spawn_blocking(move || Embedded::open_replica(directory, &url, options));
        let names = opened.await.map_err(|error| OpenError::Thread(error.into()))??;
        Ok(Self::start(names, client))
    }

    /// Starts a replica of a service in the memory of this process.
    pub fn in_memory(client: Client, options: Options) -> std::result::Result<Self, OpenError> {
        Ok(Self::start(Embedded::memory_replica(options)?, client))
    }

    fn start(names: Embedded, client: Client) -> Self {
        let has_state = names.view().position() > 0;
        let initial = if has_state { ReplicaState::Detached("not reached yet".into()) } else { ReplicaState::Starting };
        let shared = Arc::new(Shared {
            names: names.clone(),
            state: watch::Sender::new(initial),
            current: Mutex::default(),
            known: AtomicU64::new(0),
            is_ready: AtomicBool::new(has_state),
            fallen: Notify::new(),
            asked: tokio::sync::Mutex::default(),
            upstream_age: Mutex::default(),
        });
        let follower =
            Follower { names: names.clone(), client: client.clone(), shared: shared.clone(), is_fresh: !has_state };
        let task = Arc::new(Task(tokio::spawn(follower.run())));
        Self { names, client, shared, _task: task }
    }

    /// Returns the backend of the replica, to read from. It takes no writes.
    pub fn names(&self) -> &Embedded {
        &self.names
    }

    /// Returns its state with respect to the upstream.
    pub fn state(&self) -> ReplicaState {
        self.shared.state.borrow().clone()
    }

    /// Returns whether it has records to answer from: those of its directory, or of the first snapshot.
    pub fn is_ready(&self) -> bool {
        self.shared.is_ready.load(Ordering::Acquire)
    }

    /// Waits until it has records to answer from.
    pub async fn ready(&self) {
        let mut state = self.shared.state.subscribe();
        // `self` keeps the sender, so this ends only when the condition holds.
        let _ = state.wait_for(|_| self.is_ready()).await;
    }

    /// Returns how long ago everything that had been received from the upstream was applied, and the upstream was heard
    /// from: reads are at most that old, apart from changes in transit. If the upstream is a replica, the age of its reads
    /// is added. `None` if that was not so since the start.
    pub fn age(&self) -> Option<Duration> {
        let current = *self.shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.map(|current| current.elapsed() + self.shared.upstream_age().unwrap_or_default())
    }

    /// Returns whether the upstream is a replica whose reads were too old when it was last asked.
    pub fn is_upstream_behind(&self) -> bool {
        self.shared.upstream_age().is_some_and(|age| age >= FRESH)
    }

    /// Returns whether it follows its upstream, has heard from it recently, and has applied what it received.
    pub fn is_fresh(&self) -> bool {
        let current = *self.shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.state() == ReplicaState::Following
            && current.is_some_and(|current| current.elapsed() < FRESH)
            && !self.is_upstream_behind()
    }

    /// Waits until it has reached a position, or for the given time. Returns whether it has.
    pub async fn reached(&self, position: u64, at_most: Duration) -> bool {
        let reach = async {
            loop {
                let here = self.names.view().position();
                if here >= position {
                    return;
                }
                // It waits in memory, and cannot fail.
                let _ = self.names.wait(here, at_most).await;
            }
        };
        timeout(at_most, reach).await.is_ok()
    }
}

/// The feed of the upstream, under its positions. A reader may come from the upstream, or from another replica, with a position
/// that this one has not reached yet.
#[async_trait]
impl ChangeFeed for Replica {
    async fn position(&self) -> Result<u64> {
        self.names.position().await
    }

    fn is_immediate(&self) -> bool {
        self.names.is_immediate()
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        if after > self.names.view().position() {
            self.await_position(after).await?;
        }
        self.names.changes(after, limit).await
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        self.names.wait(after, at_most).await
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        self.names.history(address, query).await
    }
}

impl Replica {
    /// Returns the position of the upstream; `None` if it does not answer. Readers that wait while another asks
    /// share the next answer.
    async fn ask_position(&self) -> Option<u64> {
        let came = Instant::now();
        let mut asked = self.shared.asked.lock().await;
        if let Some((at, upstream_position)) = *asked
            && at >= came
        {
            return upstream_position;
        }
        let at = Instant::now();
        let upstream_position = timeout(AHEAD, self.client.position()).await.ok().and_then(Result::ok);
        *asked = Some((at, upstream_position));
        upstream_position
    }

    /// Waits until a position is reached that the upstream has. Returns immediately if the upstream does not have it.
    async fn await_position(&self, position: u64) -> Result<()> {
        let unavailable = |reason: &str| {
            Err(Error::Unavailable { operation: "read changes at a replica", source: Some(reason.into()) })
        };
        if self.shared.known.load(Ordering::Acquire) < position {
            // Another replica behind the same address may be a moment behind.
            let mut upstream_position = self.ask_position().await;
            if upstream_position.is_some_and(|upstream_position| upstream_position < position) {
                sleep(AGAIN).await;
                upstream_position = self.ask_position().await;
            }
            match upstream_position {
                Some(upstream_position) if upstream_position < position => return Ok(()),
                Some(_) => {}
                None => {
                    return unavailable(
                        "the replica has not reached this position, and its upstream cannot be reached",
                    );
                }
            }
        }
        match self.reached(position, AHEAD).await {
            true => Ok(()),
            false => unavailable("the replica has not reached this position yet"),
        }
    }
}

/// Keeps the replica up to date with its upstream.
struct Follower {
    names: Embedded,
    client: Client,
    shared: Arc<Shared>,
    /// Whether a snapshot has to be read first.
    is_fresh: bool,
}

/// The reason why following has ended.
enum End {
    /// The feed does not hold what follows.
    Gone,
    /// A change is missing in the feed, or may not be seen.
    Gap,
    Failed(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn missing_changes() -> Error {
    let reason = "changes are missing in its feed: a replica must be allowed to read every record";
    Error::Unavailable { operation: "follow the upstream", source: Some(reason.into()) }
}

impl Follower {
    async fn run(mut self) {
        let (mut pause, mut was_gone, mut passed) = (PAUSES.0, false, None);
        loop {
            let begun = Instant::now();
            let end = match self.is_fresh {
                true => match self.snapshot().await {
                    Ok(()) => {
                        self.is_fresh = false;
                        continue;
                    }
                    Err(error) => End::Failed(error),
                },
                false => self.follow().await,
            };
            let is_next_gap = passed.is_some_and(|passed: Instant| passed.elapsed() < GAPS);
            let end = match end {
                End::Gap if is_next_gap => End::Failed(missing_changes()),
                end => end,
            };
            match end {
                End::Gone => {
                    tracing::info!("the upstream's feed does not hold the next change: reading a snapshot");
                    self.is_fresh = true;
                    // After the first one there is a pause before the next: replicas behind one address can differ.
                    if begun.elapsed() > PAUSES.1 || !std::mem::replace(&mut was_gone, true) {
                        continue;
                    }
                }
                End::Gap => {
                    tracing::warn!("a change is missing in the upstream's feed: reading a snapshot");
                    (self.is_fresh, passed) = (true, Some(Instant::now()));
                    continue;
                }
                End::Failed(error) => {
                    tracing::warn!(error = chain(&error), "the upstream cannot be followed; trying again");
                    self.shared.detach(&error);
                }
            }
            if begun.elapsed() > PAUSES.1 {
                pause = PAUSES.0;
            }
            sleep(pause).await;
            pause = PAUSES.1.min(pause * 2);
        }
    }

    /// Replaces everything with a snapshot of the upstream.
    async fn snapshot(&mut self) -> Result<()> {
        // Read before the first page, so that changes during the snapshot follow it in the feed.
        let position = self.client.position().await?;
        let mut records: Vec<Record> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = self.page(position, cursor.as_deref()).await?;
            records.extend(
                page.records
                    .into_iter()
                    .map(Record::try_from)
                    .collect::<std::result::Result<Vec<_>, _>>()
                    .map_err(|error| Error::Store { operation: "read a snapshot", source: error.into() })?,
            );
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        let count = records.len();
        self.names.adopt(records, position).await?;
        tracing::info!(records = count, position, "read a snapshot of the upstream");
        self.shared.is_ready.store(true, Ordering::Release);
        self.shared.begin_at(position);
        Ok(())
    }

    /// Reads a page of a snapshot that has at least this position: another replica behind the same address may be behind.
    async fn page(&self, position: u64, cursor: Option<&str>) -> Result<nameservice_api::SnapshotPage> {
        let request = Request::get("snapshot").query("limit", Some(PAGE.get())).query("cursor", cursor);
        let request = request.query("min_position", Some(position)).query("wait", Some(UPSTREAM_WAIT));
        self.client.send(&request).await.map_err(|error| error.into_model("read a snapshot"))
    }

    /// Reads the record of a change as it is at its position or later; `None` if there is none.
    async fn record(&self, change: &Change) -> Result<Option<Record>> {
        const OPERATION: &str = "look a record up";
        let request = Request::get("records").at(&change.address).query("min_position", Some(change.position));
        match self.client.send::<nameservice_api::Record>(&request.query("wait", Some(UPSTREAM_WAIT))).await {
            Ok(record) => {
                let record = Record::try_from(record);
                record.map(Some).map_err(|error| Error::Store { operation: OPERATION, source: error.into() })
            }
            Err(error) if error.problem() == Some(ProblemKind::UnknownRecord) => Ok(None),
            Err(error) => Err(error.into_model(OPERATION)),
        }
    }

    /// Applies changes as they arrive.
    async fn follow(&mut self) -> End {
        match self.check_position().await {
            Ok(()) => {}
            Err(end) => return end,
        }
        let after = self.names.view().position();
        let shared = self.shared.clone();
        let mut following = self.client.follow(ChangeFilter::default(), Some(after)).on_contact(move |position| {
            shared.hear(position);
        });
        let (events, mut incoming) = mpsc::channel(4 * BATCH);
        let pump = tokio::spawn(async move {
            loop {
                let event = following.next().await;
                let is_over = !matches!(event, Ok(ChangeEvent::Change(_)));
                if events.send(event).await.is_err() || is_over {
                    return;
                }
            }
        });
        let _pump = Task(pump);
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            batch.clear();
            let received = tokio::select! {
                biased;
                received = incoming.recv_many(&mut batch, BATCH) => received,
                () = self.asks_again() => match self.check_position().await {
                    Ok(()) => continue,
                    Err(end) => return end,
                },
            };
            if received == 0 {
                return End::Failed(Error::Unavailable { operation: "follow the upstream", source: None });
            }
            let mut end = None;
            let mut changes = Vec::with_capacity(batch.len());
            for event in batch.drain(..) {
                match event {
                    Ok(ChangeEvent::Change(change)) => changes.push(*change),
                    Ok(_) => end = Some(End::Gone),
                    Err(error) => end = Some(End::Failed(error)),
                }
            }
            if let Err(end) = self.take(changes).await {
                return end;
            }
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Completes when the upstream's position has to be asked for: it was heard to be lower, or the upstream is a replica,
    /// whose age the stream does not bring.
    async fn asks_again(&self) {
        match self.shared.upstream_age() {
            None => self.shared.fallen.notified().await,
            Some(_) => drop(timeout(ASK_AGE, self.shared.fallen.notified()).await),
        }
    }

    /// Checks the replica's position. One that the upstream has not reached belongs to a feed that was lost.
    async fn check_position(&self) -> std::result::Result<(), End> {
        let (mut upstream_position, age) = self.client.position_and_age().await?;
        *self.shared.upstream_age.lock().unwrap_or_else(PoisonError::into_inner) = age;
        if upstream_position < self.names.view().position() {
            // Another replica behind the same address may be a moment behind.
            sleep(AGAIN).await;
            upstream_position = self.client.position().await?;
            if upstream_position < self.names.view().position() {
                return Err(End::Gone);
            }
        }
        self.shared.begin_at(upstream_position);
        Ok(())
    }

    /// Applies changes. Ends at one that does not follow the last: what is between them is not in the feed, or the replica may not
    /// see it.
    async fn take(&self, changes: Vec<Change>) -> std::result::Result<(), End> {
        let mut taken = Vec::with_capacity(changes.len());
        let end = self.read(changes, &mut taken).await;
        if !taken.is_empty() {
            self.names.replicate(taken).await?;
            self.shared.applied();
        }
        end
    }

    /// Reads what these changes do not carry, up to the first that cannot be applied.
    async fn read(&self, changes: Vec<Change>, taken: &mut Vec<Replicated>) -> std::result::Result<(), End> {
        let position = self.names.view().position();
        // Whether a record exists, by the last change of its meta item before the present one.
        let mut exists: HashMap<Address, bool> = HashMap::new();
        let mut creations: HashMap<Address, usize> = HashMap::new();
        let is_creation = |change: &Change| change.part == ChangedPart::Meta && change.kind != ChangeKind::Purged;
        for change in changes.iter().filter(|change| is_creation(change)) {
            *creations.entry(change.address.clone()).or_default() += 1;
        }
        for change in changes {
            let next = position + taken.len() as u64 + 1;
            // A stream that was opened again may repeat its last change.
            if change.position < next {
                continue;
            }
            if change.position > next {
                return Err(End::Gap);
            }
            let is_orphan = match change.part {
                ChangedPart::Meta => {
                    exists.insert(change.address.clone(), change.kind != ChangeKind::Purged);
                    if is_creation(&change)
                        && let Some(left) = creations.get_mut(&change.address)
                    {
                        *left -= 1;
                    }
                    false
                }
                // A deletion needs no record.
                ChangedPart::Concern(_) if change.kind == ChangeKind::Purged => false,
                ChangedPart::Concern(_) => {
                    let is_known = match exists.get(&change.address) {
                        Some(exists) => *exists,
                        None => self.names.view().record(&change.address).is_some(),
                    };
                    // The changes of one transaction come in any order. Otherwise it may be an item that belongs to no record: Fluree can
                    // write the head of a ledger that was purged.
                    let follows = creations.get(&change.address).is_some_and(|left| *left > 0);
                    let is_known = is_known || follows || self.record(&change).await?.is_some();
                    if is_known && !follows {
                        exists.entry(change.address.clone()).or_insert(true);
                    }
                    !is_known
                }
            };
            let payload = match Replicated::is_partial(&change) {
                true => self.whole_payload(&change).await?,
                false => None,
            };
            taken.push(Replicated { change, payload, is_orphan });
        }
        Ok(())
    }

    /// Reads a payload that the change does not carry in full from the upstream's record. Returns `None` if the record
    /// has changed since: then a later change brings a newer value, and the older one stays until it arrives.
    async fn whole_payload(&self, change: &Change) -> Result<Option<Value>> {
        let Some(record) = self.record(change).await? else { return Ok(None) };
        let ChangedPart::Concern(concern) = change.part else {
            return Ok(Some(record.attributes().change_payload(record.retracted)));
        };
        let (v, payload) = match concern {
            ConcernKind::Config => (record.config.v, record.config.payload),
            ConcernKind::Status => {
                let payload = record.status.payload.map(|status| {
                    let mut members = status.meta;
                    members.insert("state".to_owned(), Value::String(status.state));
                    Value::Object(members)
                });
                (record.status.v, payload)
            }
            ConcernKind::Head => {
                let Some(head) = record.head else { return Ok(None) };
                (head.v, head.change_payload())
            }
            ConcernKind::Index => {
                let index = nameservice_api::Index::from(record.index.clone());
                (record.index.v, serde_json::to_value(index).ok())
            }
        };
        Ok(payload.filter(|_| v == change.watermark))
    }
}
