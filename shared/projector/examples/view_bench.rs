//! Prints how long a push takes to reach a row of the read model, and the cost of a rebuild during pushes. It reads rows all the
//! while, and fails if one is wrong.
//!
//! ```text
//! cargo view-bench                  # 100,000 records, 100 pushes a second
//! cargo view-bench 1000000 100 30   # records, pushes a second, seconds of pushes
//! ```

#![allow(clippy::print_stdout, reason = "it is a report")]

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use nameservice_embedded::{Embedded, Options};
use nameservice_model::{
    Address, Call, ChangeFeed as _, ContentId, HeadPush, Limit, NewHead, Publisher as _, PushOutcome, RecordKind,
    RefPublisher as _,
};
use nameservice_projector::{
    MemoryRows, Projector,
    records::{By, RecordPages as _, RecordQuery, RecordRow, Records},
};
use rand::RngExt as _;
use tokio::time::{MissedTickBehavior, interval};

type Failure = Box<dyn Error + Send + Sync>;

/// How many writers create records, and push as fast as they can.
const WRITERS: usize = 64;
/// How long they push.
const AT_FULL_SPEED: Duration = Duration::from_secs(4);

/// A ledger, and the progress of its writer.
struct Ledger {
    address: Address,
    /// The last `t` that a push was begun for.
    begun: AtomicI64,
    /// The last `t` that a push was answered for.
    done: AtomicI64,
}

struct Ground {
    names: Embedded,
    rows: Arc<MemoryRows<RecordRow>>,
    /// By address.
    ledgers: Vec<Ledger>,
}

fn head(t: i64) -> Result<NewHead, Failure> {
    Ok(NewHead::new(ContentId::stored(format!("bafy{t}")), t)?)
}

impl Ground {
    async fn new(names: Embedded, count: usize) -> Result<Self, Failure> {
        let mut ledgers = (0..count)
            .map(|n| {
                let address = Address::parse(&format!("tenant-{}/ledger-{n}", (n * 31) % 5_000))?;
                Ok(Ledger { address, begun: AtomicI64::new(1), done: AtomicI64::new(1) })
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        ledgers.sort_by(|one, other| one.address.cmp(&other.address));
        let first = head(1)?;
        let (of, at) = (&names, &first);
        let created = stream::iter(&ledgers).map(|ledger| async move {
            let _ = of.create_ledger(&Call::fresh(), &ledger.address, Some(at), None).await?;
            Ok::<_, Failure>(())
        });
        let created: Vec<_> = created.buffer_unordered(4 * WRITERS).collect().await;
        created.into_iter().collect::<Result<(), Failure>>()?;
        Ok(Self { names, rows: Arc::new(MemoryRows::new()), ledgers })
    }

    fn projector(&self) -> Projector<Records> {
        Projector::new(Records, Arc::new(self.names.clone()), Arc::new(self.names.clone()), self.rows.clone())
    }

    /// Pushes the next head of a ledger, which has one writer at a time.
    async fn push(&self, ledger: &Ledger) -> Result<i64, Failure> {
        let t = ledger.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let outcome = self.names.push_head(&Call::fresh(), &ledger.address, &HeadPush::monotonic(head(t)?)).await?;
        let PushOutcome::Updated { .. } = outcome else { return Err(format!("{outcome:?}").into()) };
        ledger.done.store(t, Ordering::SeqCst);
        Ok(t)
    }

    /// Pushes once, and waits for the row.
    async fn push_to_row(&self, ledger: &Ledger) -> Result<Duration, Failure> {
        let began = Instant::now();
        let t = self.push(ledger).await?;
        self.rows.reached(self.names.position().await?).await;
        let took = began.elapsed();
        match self.rows.get(&ledger.address) {
            Some(row) if row.commit_t >= t => Ok(took),
            row => Err(format!("{} at t {t} is {row:?}", ledger.address).into()),
        }
    }

    /// Pushes at this rate until it is stopped, each time to another ledger. Returns how long each push took to reach its row.
    async fn push_at(self: Arc<Self>, rate: u64, stop: Arc<AtomicBool>) -> Result<Vec<Duration>, Failure> {
        let mut due = interval(Duration::from_secs(1) / u32::try_from(rate)?);
        due.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut pushes = tokio::task::JoinSet::new();
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            due.tick().await;
            n += 7_919;
            let ground = self.clone();
            pushes.spawn(async move { ground.push_to_row(&ground.ledgers[n % ground.ledgers.len()]).await });
        }
        pushes.join_all().await.into_iter().collect()
    }

    /// Reads lists until it is stopped. Returns how many rows it has seen, or an error if one is wrong.
    async fn look(self: Arc<Self>, stop: Arc<AtomicBool>) -> Result<u64, Failure> {
        let mut seen = 0;
        while !stop.load(Ordering::Relaxed) {
            seen += self.look_at_a_list().await?;
            tokio::task::yield_now().await;
        }
        Ok(seen)
    }

    async fn look_at_a_list(&self) -> Result<u64, Failure> {
        let from = rand::rng().random_range(0..self.ledgers.len());
        let is_due = rand::rng().random_bool(0.5);
        let by = if is_due { By::IndexDue } else { By::Kind(RecordKind::Ledger) };
        let query = RecordQuery {
            after: Some(self.ledgers[from].address.clone()),
            limit: Limit::new(200)?,
            ..RecordQuery::new(by)
        };
        let expected: Vec<&Ledger> = self.ledgers[from + 1..].iter().take(query.limit.get()).collect();
        let done: Vec<i64> = expected.iter().map(|ledger| ledger.done.load(Ordering::SeqCst)).collect();
        // As a list of a service does.
        self.rows.reached(self.names.position().await?).await;
        let page = self.rows.records(&query, &|_| true).await?;
        if page.rows.len() != expected.len() {
            return Err(format!("a list has {} rows instead of {}", page.rows.len(), expected.len()).into());
        }
        for ((address, row), (ledger, done)) in page.rows.iter().zip(expected.iter().zip(done)) {
            let begun = ledger.begun.load(Ordering::SeqCst);
            let is_right = *address == ledger.address && (done..=begun).contains(&row.commit_t);
            if !is_right || row.due.is_none() || row.commit_id != Some(format!("bafy{}", row.commit_t)) {
                return Err(
                    format!("{} is at t {done} to {begun}, its row is {address} {row:?}", ledger.address).into()
                );
            }
        }
        Ok(page.rows.len() as u64)
    }

    /// Pushes as fast as it can for a while. Returns the number of pushes per second.
    async fn full_speed(self: &Arc<Self>) -> Result<f64, Failure> {
        let (count, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let mut writers = tokio::task::JoinSet::new();
        for writer in 0..WRITERS {
            let (ground, count) = (self.clone(), count.clone());
            writers.spawn(async move {
                // Each has ledgers of its own.
                let own = ground.ledgers.len() / WRITERS;
                for n in 0.. {
                    if began.elapsed() > AT_FULL_SPEED {
                        break;
                    }
                    ground.push(&ground.ledgers[n % own * WRITERS + writer]).await?;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, Failure>(())
            });
        }
        writers.join_all().await.into_iter().collect::<Result<(), _>>()?;
        Ok(count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64())
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (count, rate, seconds) = (number(100_000)?, number(100)?, number(10)?);
    let directory = tempfile::tempdir()?;
    let names = Embedded::open(directory.path(), Options::default())?;
    let began = Instant::now();
    let ground = Arc::new(Ground::new(names, usize::try_from(count)?.max(WRITERS)).await?);
    println!("{count} ledgers created on disk in {}", shown(began.elapsed()));
    let without = ground.full_speed().await?;

    let began = Instant::now();
    let projector = ground.projector();
    projector.catch_up(None).await?;
    println!("the read model built of them in {}", shown(began.elapsed()));
    let follower = tokio::spawn(projector.clone().run());
    let with = ground.full_speed().await?;
    println!("{WRITERS} writers at full speed: {without:.0} pushes/s without the read model, {with:.0} with it");

    let start = || {
        let stop = Arc::new(AtomicBool::new(false));
        let looks = tokio::spawn(ground.clone().look(stop.clone()));
        let pushes = tokio::spawn(ground.clone().push_at(rate, stop.clone()));
        (stop, looks, pushes)
    };
    println!(
        "{:<34} {:>8} {:>10} {:>10} {:>10} {:>12}",
        "from a push to its row", "pushes", "p50", "p99", "slowest", "rows seen"
    );
    let (stop, looks, pushes) = start();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    stop.store(true, Ordering::Relaxed);
    report(&format!("at {rate} pushes/s"), pushes.await??, looks.await??);

    let (stop, looks, pushes) = start();
    let (began, mut rebuilds) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_secs(seconds) || rebuilds.is_empty() {
        let began = Instant::now();
        projector.rebuild().await?;
        rebuilds.push(began.elapsed());
    }
    stop.store(true, Ordering::Relaxed);
    report(&format!("the same beside {} rebuilds", rebuilds.len()), pushes.await??, looks.await??);
    println!("a rebuild beside them: {}", percentiles(rebuilds).map(shown).join(" / "));
    follower.abort();
    // At the end each row matches its record.
    while !projector.catch_up(None).await?.is_complete {}
    for ledger in &ground.ledgers {
        let (t, row) = (ledger.done.load(Ordering::SeqCst), ground.rows.get(&ledger.address));
        if row.as_ref().map(|row| row.commit_t) != Some(t) {
            return Err(format!("{} is at t {t}, its row is {row:?}", ledger.address).into());
        }
    }
    println!("no row was wrong at any time");
    Ok(())
}

fn report(what: &str, times: Vec<Duration>, rows: u64) {
    let count = times.len();
    let [p50, p99, slowest] = percentiles(times).map(shown);
    println!("{what:<34} {count:>8} {p50:>10} {p99:>10} {slowest:>10} {rows:>12}");
}

/// The median, the 99th percentile, and the longest.
fn percentiles(mut times: Vec<Duration>) -> [Duration; 3] {
    times.sort();
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
    [50, 99, 100].map(|percent| at(percent).copied().unwrap_or_default())
}

fn shown(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.2} ms", seconds * 1_000.0),
        seconds => format!("{seconds:.2} s"),
    }
}
