//! Compares rows with a scan of the records, whatever fails on the way.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use nameservice_embedded::{Embedded, Options};
use nameservice_model::{
    Address, AdminPublisher as _, Call, ChangeFeed, ConfigPublisher as _, ConfigPush, ContentId, Error,
    GraphSourcePublication, GraphSourcePublisher as _, HeadPush, History, HistoryQuery, IndexPush, LeasePublisher as _,
    LeaseRequest, Limit, NameService as _, NewConfig, NewHead, NewIndex, NewStatus, Object, Publisher as _, Record,
    RecordKind, RefPublisher as _, Result, Run, StatusPayload, StatusPublisher as _, StatusPush,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::json;

use crate::{
    Checkpoint, MemoryRows, Over, Projection as _, Projector, RowWrite, Rows,
    records::{By, InProcess, RecordPages as _, RecordQuery, RecordRow, Records},
};

const NAMES: [&str; 8] = ["a:main", "a:dev", "b:main", "b/c:main", "c:main", "s:main", "t:main", "u:main"];

fn at(address: &str) -> Address {
    Address::parse(address).unwrap()
}

fn id(n: i64) -> ContentId {
    ContentId::stored(format!("bafy{n}"))
}

/// One random write. Outcomes of any kind are fine.
async fn write(names: &Embedded, rng: &mut StdRng) {
    let call = Call::fresh();
    let address = at(NAMES[rng.random_range(0..NAMES.len())]);
    let t = rng.random_range(1..20);
    match rng.random_range(0..14) {
        0 | 1 => drop(names.create_ledger(&call, &address, None, None).await),
        2..=4 => {
            let push = HeadPush::monotonic(NewHead::new(id(t), t).unwrap());
            drop(names.push_head(&call, &address, &push).await);
        }
        5 | 6 => {
            let push = IndexPush::monotonic(NewIndex::new(id(t), t).unwrap());
            drop(names.push_index(&call, &address, &push).await);
        }
        7 => {
            let Some(status) = names.status(&address).await.unwrap() else { return };
            let state = ["syncing", "error", "ready"][rng.random_range(0..3)].to_owned();
            let new = NewStatus::new(StatusPayload { state, meta: Object::new() }).unwrap();
            drop(names.push_status(&call, &address, &StatusPush::cas(status, new)).await);
        }
        8 => {
            let Some(config) = names.config(&address).await.unwrap() else { return };
            let Ok(serde_json::Value::Object(new)) = serde_json::to_value(json!({ "index_threshold": t })) else {
                return;
            };
            drop(names.push_config(&call, &address, &ConfigPush::cas(config, NewConfig::new(new).unwrap())).await);
        }
        9 => {
            let holder = format!("h{}", rng.random_range(0..2));
            let request = LeaseRequest::new("index_lock".parse().unwrap(), holder).unwrap();
            drop(names.acquire_lease(&call, &address, &request).await);
        }
        10 => drop(names.retract(&call, &address, None).await),
        11 => drop(names.restore(&call, &address).await),
        12 => drop(names.purge(&call, &address).await),
        _ => {
            let source_type = ["f:A", "f:B"][rng.random_range(0..2)].to_owned();
            let publication = GraphSourcePublication::new(address, source_type, Object::new()).unwrap();
            drop(names.publish_graph_source(&call, &publication).await);
        }
    }
}

/// The rows that a scan of the records gives.
async fn scanned(names: &Embedded) -> BTreeMap<Address, RecordRow> {
    let page = names.snapshot(Limit::MAX, None, &|_| true).await.unwrap();
    let row = |record: Record| Some((record.address.clone(), Records.row(&record)?));
    page.items.into_iter().filter_map(row).collect()
}

fn stored(rows: &MemoryRows<RecordRow>) -> BTreeMap<Address, RecordRow> {
    rows.all().into_iter().map(|(address, _, row)| (address, RecordRow::clone(&row))).collect()
}

/// Rows whose writes are cut off, fail after they were applied, and arrive again later.
struct Flaky {
    rows: Arc<MemoryRows<RecordRow>>,
    rng: Mutex<StdRng>,
    sent: Mutex<Vec<RowWrite<RecordRow>>>,
}

impl Flaky {
    fn below(&self, n: usize) -> usize {
        self.rng.lock().unwrap().random_range(0..n)
    }

    fn cut_off<T>() -> Result<T> {
        Err(Error::Unavailable { operation: "project", source: None })
    }
}

#[async_trait]
impl Rows<RecordRow> for Flaky {
    async fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        self.rows.checkpoint().await
    }

    async fn advance(&self, checkpoint: &Checkpoint) -> Result<()> {
        match self.below(4) {
            0 => Self::cut_off(),
            1 => {
                self.rows.advance(checkpoint).await?;
                Self::cut_off()
            }
            _ => self.rows.advance(checkpoint).await,
        }
    }

    async fn write(&self, mut writes: Vec<RowWrite<RecordRow>>, over: Over) -> Result<()> {
        self.sent.lock().unwrap().extend(writes.iter().cloned());
        // A write that was sent earlier arrives again.
        let late = {
            let sent = self.sent.lock().unwrap();
            (!sent.is_empty() && self.below(2) == 0).then(|| sent[self.below(sent.len())].clone())
        };
        if let Some(late) = late {
            self.rows.write(vec![late], Over::Older).await?;
        }
        if self.below(3) == 0 {
            writes.truncate(self.below(writes.len() + 1));
            self.rows.write(writes, over).await?;
            return Self::cut_off();
        }
        self.rows.write(writes, over).await
    }

    async fn older_than(&self, version: u64) -> Result<Vec<Address>> {
        self.rows.older_than(version).await
    }

    async fn clear(&self) -> Result<()> {
        self.rows.clear().await
    }
}

fn projector(names: &Embedded, rows: Arc<dyn Rows<RecordRow>>) -> Projector<Records> {
    Projector::new(Records, Arc::new(names.clone()), Arc::new(names.clone()), rows)
}

#[tokio::test]
async fn rows_are_what_a_scan_gives_whatever_was_cut_off_and_came_again() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let names = Embedded::memory(Options::default()).unwrap();
        let rows = Arc::new(MemoryRows::new());
        let flaky =
            Flaky { rows: rows.clone(), rng: Mutex::new(StdRng::seed_from_u64(seed + 1_000)), sent: Mutex::default() };
        let projectors = [projector(&names, Arc::new(flaky)), projector(&names, rows.clone())];
        for step in 0..200 {
            write(&names, &mut rng).await;
            match rng.random_range(0..12) {
                // A projector that is cut off, and does not retry immediately.
                0..=2 => drop(projectors[0].catch_up(None).await),
                3 if step > 100 => drop(projectors[0].rebuild().await),
                4 if step > 100 => drop(projectors[1].catch_up(None).await.unwrap()),
                _ => {}
            }
        }
        while !matches!(projectors[0].catch_up(None).await, Ok(progress) if progress.is_complete) {}
        assert_eq!(stored(&rows), scanned(&names).await, "seed {seed}");
        let end = names.position().await.unwrap();
        assert_eq!(rows.checkpoint().await.unwrap().map(|checkpoint| checkpoint.position), Some(end));
        assert!(rows.all().iter().all(|(_, version, _)| *version <= end));
        assert_pages(&names, &rows).await;
    }
}

/// Compares every list of the read model with the rows of a scan.
async fn assert_pages(names: &Embedded, rows: &MemoryRows<RecordRow>) {
    let scanned = scanned(names).await;
    let seen = |address: &Address| address.name() != "c";
    let any = |name: &str| name.to_owned();
    for by in [
        By::Kind(RecordKind::Ledger),
        By::Kind(RecordKind::GraphSource),
        By::State(any("ready")),
        By::State(any("syncing")),
        By::State(any("retracted")),
        By::State(any("indexing")),
        By::SourceType(any("f:A")),
        By::Holder(any("h0")),
        By::Holder(any("h1")),
        By::IndexDue,
    ] {
        let is_listed = |row: &RecordRow| match &by {
            By::Kind(kind) => row.kind == *kind,
            By::State(state) => row.state == *state,
            By::SourceType(name) => row.source_type.as_ref() == Some(name),
            By::Holder(holder) => row.holder.as_ref() == Some(holder),
            By::IndexDue => {
                let is_live = row.kind == RecordKind::Ledger && !row.retracted;
                is_live && row.commit_t - row.index_t >= row.index_threshold
            }
        };
        for prefix in ["", "b", "a:", "a:main", "z"] {
            let wanted = |(address, row): &(&Address, &RecordRow)| {
                seen(address) && address.as_str().starts_with(prefix) && is_listed(row)
            };
            let expected: Vec<&Address> = scanned.iter().filter(wanted).map(|(address, _)| address).collect();
            for limit in [1, 3, 100] {
                let mut query = RecordQuery {
                    prefix: prefix.to_owned(),
                    limit: Limit::new(limit).unwrap(),
                    ..RecordQuery::new(by.clone())
                };
                let mut found = Vec::new();
                loop {
                    let page = rows.records(&query, &seen).await.unwrap();
                    query.after = page.rows.last().map(|(address, _)| address.clone());
                    found.extend(page.rows.into_iter().map(|(address, _)| address));
                    if !page.has_more {
                        break;
                    }
                }
                assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{by:?} {prefix} {limit}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_beside_live_pushes_shows_no_wrong_row_at_any_time() {
    const LEDGERS: i64 = 300;
    let names = Embedded::memory(Options::default()).unwrap();
    for n in 0..LEDGERS {
        let head = NewHead::new(id(1), 1).unwrap();
        let _ = names.create_ledger(&Call::fresh(), &at(&format!("db{n}")), Some(&head), None).await.unwrap();
    }
    let rows = Arc::new(MemoryRows::new());
    let projector = projector(&names, rows.clone());
    projector.catch_up(None).await.unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (names, is_over) = (names.clone(), is_over.clone());
        async move {
            let mut t = 1;
            while !is_over.load(Ordering::Relaxed) {
                t += 1;
                for n in 0..LEDGERS {
                    let push = HeadPush::monotonic(NewHead::new(id(t), t).unwrap());
                    let _ = names.push_head(&Call::fresh(), &at(&format!("db{n}")), &push).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        }
    });
    let follower = tokio::spawn(projector.clone().run());
    let watcher = tokio::spawn({
        let (names, rows, is_over) = (names.clone(), rows.clone(), is_over.clone());
        async move {
            let mut before: BTreeMap<Address, (u64, i64)> = BTreeMap::new();
            let mut looks = 0;
            while !is_over.load(Ordering::Relaxed) {
                let all = rows.all();
                assert_eq!(all.len() as i64, LEDGERS, "a row is missing");
                let now = names.view();
                for (address, version, row) in all {
                    let truth = now.record(&address).and_then(|record| record.head).map_or(0, |head| head.v);
                    assert!(row.commit_t <= truth, "{address} shows {}, which is not written", row.commit_t);
                    let before = before.entry(address).or_default();
                    assert!(
                        *before <= (version, row.commit_t),
                        "a row went back: {before:?}, {version} {}",
                        row.commit_t
                    );
                    *before = (version, row.commit_t);
                }
                looks += 1;
                tokio::task::yield_now().await;
            }
            looks
        }
    });
    for _ in 0..20 {
        projector.rebuild().await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    writer.await.unwrap();
    assert!(watcher.await.unwrap() > 0);
    follower.abort();
    while !projector.catch_up(None).await.unwrap().is_complete {}
    assert_eq!(stored(&rows), scanned(&names).await);
}

/// A feed that answers with its position only after a further change, which another projector has processed by then.
struct Overtaken {
    names: Embedded,
    other: Projector<Records>,
}

#[async_trait]
impl ChangeFeed for Overtaken {
    async fn position(&self) -> Result<u64> {
        let position = self.names.position().await?;
        let _ = self.names.create_ledger(&Call::fresh(), &at(&format!("after{position}")), None, None).await?;
        self.other.catch_up(None).await?;
        Ok(position)
    }

    async fn changes(&self, after: u64, limit: Limit) -> Result<Run> {
        self.names.changes(after, limit).await
    }

    async fn wait(&self, after: u64, at_most: Duration) -> Result<()> {
        self.names.wait(after, at_most).await
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> Result<History> {
        self.names.history(address, query).await
    }
}

#[tokio::test]
async fn a_rebuild_that_another_projector_overtakes_removes_nothing() {
    let names = Embedded::memory(Options::default()).unwrap();
    let _ = names.create_ledger(&Call::fresh(), &at("db"), None, None).await.unwrap();
    let rows = Arc::new(MemoryRows::new());
    let other = projector(&names, rows.clone());
    other.catch_up(None).await.unwrap();
    let feed = Overtaken { names: names.clone(), other };
    let overtaken = Projector::new(Records, Arc::new(names.clone()), Arc::new(feed), rows.clone());
    let rebuilt = overtaken.rebuild().await.unwrap();
    let end = names.position().await.unwrap();
    assert!(rebuilt.position < end);
    // Rows that began again would have the position of the rebuild.
    assert_eq!(rows.checkpoint().await.unwrap().map(|checkpoint| checkpoint.position), Some(end));
    assert_eq!(stored(&rows), scanned(&names).await);
}

#[tokio::test]
async fn a_late_write_does_not_bring_a_removed_row_back() {
    let names = Embedded::memory(Options::default()).unwrap();
    let rows = Arc::new(MemoryRows::new());
    let projector = projector(&names, rows.clone());
    let db = at("db");
    let _ = names.create_ledger(&Call::fresh(), &db, None, None).await.unwrap();
    projector.catch_up(None).await.unwrap();
    let (_, version, row) = rows.all().remove(0);
    let late = RowWrite { address: db.clone(), version, row: Some(RecordRow::clone(&row)) };
    let _ = names.purge(&Call::fresh(), &db).await.unwrap();
    projector.catch_up(None).await.unwrap();
    for over in [Over::Older, Over::SameOrOlder] {
        rows.write(vec![late.clone()], over).await.unwrap();
        assert!(rows.get(&db).is_none());
    }
    assert!(rows.records(&RecordQuery::new(By::Kind(RecordKind::Ledger)), &|_| true).await.unwrap().rows.is_empty());
}

/// A manual clock.
fn clock() -> (Arc<AtomicI64>, impl Fn() -> SystemTime + Send + Sync + 'static) {
    let seconds = Arc::new(AtomicI64::new(1_800_000_000));
    let read = seconds.clone();
    (seconds, move || UNIX_EPOCH + Duration::from_secs(read.load(Ordering::SeqCst).unsigned_abs()))
}

#[tokio::test]
async fn what_the_feed_no_longer_holds_is_read_from_a_snapshot() {
    let (seconds, now) = clock();
    let options = Options::default().with_retention(Duration::from_secs(60));
    let names = Embedded::memory(options).unwrap().with_clock(now);
    let mut rng = StdRng::seed_from_u64(5);
    let rows = Arc::new(MemoryRows::new());
    let projector = projector(&names, rows.clone());
    for _ in 0..50 {
        write(&names, &mut rng).await;
    }
    let progress = projector.catch_up(None).await.unwrap();
    assert!(progress.rebuilt && progress.is_complete, "rows without a checkpoint come from a snapshot");
    for _ in 0..200 {
        write(&names, &mut rng).await;
        seconds.fetch_add(10, Ordering::SeqCst);
    }
    let progress = projector.catch_up(None).await.unwrap();
    assert!(progress.rebuilt && progress.is_complete, "{progress:?}");
    assert_eq!(stored(&rows), scanned(&names).await);
}

#[tokio::test]
async fn rows_of_a_feed_that_is_gone_begin_anew() {
    let rows = Arc::new(MemoryRows::new());
    let mut rng = StdRng::seed_from_u64(9);
    for writes in [300, 20] {
        // The second nameservice is unrelated to the first, and its feed is behind.
        let names = Embedded::memory(Options::default()).unwrap();
        for _ in 0..writes {
            write(&names, &mut rng).await;
        }
        let projector = projector(&names, rows.clone());
        projector.catch_up(None).await.unwrap();
        assert_eq!(stored(&rows), scanned(&names).await);
        let lag = projector.lag().await.unwrap().unwrap();
        assert_eq!((lag.position, lag.end, lag.behind), (lag.end, names.position().await.unwrap(), Duration::ZERO));
        write(&names, &mut rng).await;
        let _ = names.create_ledger(&Call::fresh(), &at(&format!("more{writes}")), None, None).await.unwrap();
        let lag = projector.lag().await.unwrap().unwrap();
        assert!(lag.end > lag.position);
    }
}

#[tokio::test]
async fn a_list_in_a_process_includes_every_write_before_it() {
    let names = Embedded::memory(Options::default()).unwrap();
    let pages = InProcess::new(Arc::new(names.clone()), Arc::new(names.clone()));
    let due = async || {
        let page = pages.records(&RecordQuery::new(By::IndexDue), &|_| true).await.unwrap();
        page.rows.into_iter().map(|(address, row)| (address.as_str().to_owned(), row.commit_t)).collect::<Vec<_>>()
    };
    assert!(due().await.is_empty());
    for t in 1..30 {
        let push = if t == 1 {
            HeadPush::create(NewHead::new(id(t), t).unwrap())
        } else {
            HeadPush::monotonic(NewHead::new(id(t), t).unwrap())
        };
        let _ = names.push_head(&Call::fresh(), &at("db"), &push).await.unwrap();
        assert_eq!(due().await, [("db:main".to_owned(), t)]);
        let push = IndexPush::monotonic(NewIndex::new(id(t), t).unwrap());
        let _ = names.push_index(&Call::fresh(), &at("db"), &push).await.unwrap();
        assert!(due().await.is_empty());
    }
}
