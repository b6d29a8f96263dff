//! Histories: clients push, read, lease and commit concurrently, while requests, replies and processes are lost; then two judges
//! search for an order that explains every answer (linearizability; of transactions, strict serializability), and Elle's check
//! looks for cycles of dependencies between transactions.
//!
//! `cargo histories` prints figures; `NAMESERVICE_HISTORY_ROUNDS` sets how many histories each test runs, with the seeds from
//! `NAMESERVICE_TEST_BASE` on. `NAMESERVICE_TEST_SEED` repeats a seed that a failure has printed: the same operations and faults,
//! as far as the scheduler allows.

mod appends;
mod checkers;
pub(crate) mod clients;
mod elle;
pub(crate) mod feed;
mod found;
pub(crate) mod judge;
pub(crate) mod process;
pub(crate) mod replicas;
mod second;
pub(crate) mod spec;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use futures_util::future::join_all;
use nameservice_http::Auth;
use nameservice_tests::{
    in_process::InProcess,
    prelude::*,
    proxy::Tally,
    seeds::{self, SEED, Seeds},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use self::{
    clients::{Client, Mix, World},
    judge::{Entry, Judged, Rejection, judge},
    process::Process,
};

/// How many histories each test runs.
const ROUNDS: &str = "NAMESERVICE_HISTORY_ROUNDS";
/// One of each mix.
const DEFAULT_ROUNDS: u64 = 4;
const CLIENTS: u32 = 4;
const STEPS: usize = 14;
/// The share of requests that meet a fault.
pub(crate) const RATE: f64 = 0.12;

/// The figures of one test.
#[derive(Default)]
struct Figures {
    judged: Judged,
    faults: BTreeMap<&'static str, u64>,
}

impl Figures {
    fn count(&mut self, kind: &'static str, times: u64) {
        *self.faults.entry(kind).or_default() += times;
    }

    fn add(&mut self, tally: Tally) {
        tally.into_iter().for_each(|(kind, times)| self.count(kind, times));
    }

    fn print(&self, name: &str) {
        let Judged { histories, operations, open, transactions, .. } = self.judged;
        println!(
            "{name}: {histories} histories accepted by both judges, {operations} operations ({open} never answered, {transactions} transactions)"
        );
        let faults: Vec<_> = self.faults.iter().map(|(kind, times)| format!("{times} {kind}")).collect();
        println!("  faults: {}", if faults.is_empty() { "none".to_owned() } else { faults.join(", ") });
        self.judged.all_are_decided();
    }
}

/// Returns the seeds of the histories of a test.
fn seeds() -> Seeds {
    seeds::seeds(seeds::number(ROUNDS).unwrap_or(DEFAULT_ROUNDS))
}

pub(crate) fn mix_of(seed: u64) -> Mix {
    [Mix::PUSHES, Mix::LEASES, Mix::TRANSACTIONS, Mix::EVERYTHING][(seed % 4) as usize]
}

/// Runs clients against a world and judges their history.
pub(crate) async fn run(world: impl Into<Arc<World>>, seed: u64, leases_end: bool) -> (Judged, Vec<Entry>) {
    let world = world.into();
    let clients = (0..CLIENTS).map(|number| tokio::spawn(Client::new(number, seed, world.clone()).run(STEPS)));
    for client in join_all(clients).await {
        client.unwrap_or_else(|error| panic!("{SEED}={seed}: {error}"));
    }
    let entries = world.recorder.take();
    (both_judge(entries.clone(), leases_end, seed).await, entries)
}

/// Judges a history twice. Both judges must accept it; if one is undecided and none rejects it, its seed is noted.
async fn both_judge(entries: Vec<Entry>, leases_end: bool, seed: u64) -> Judged {
    let both = move || (second::judge(&entries, leases_end), judge(entries, leases_end));
    match tokio::task::spawn_blocking(both).await.unwrap() {
        (Ok(()), Ok(judged)) => judged,
        (Err(Rejection::Impossible(why)), _) | (_, Err(Rejection::Impossible(why))) => panic!("{SEED}={seed}\n{why}"),
        (Err(Rejection::Undecided(why)), _) | (_, Err(Rejection::Undecided(why))) => {
            println!("undecided, {SEED}={seed}\n{why}");
            Judged { undecided: vec![seed], ..Judged::default() }
        }
    }
}

/// Creates ledgers. A request that is lost is repeated.
pub(crate) async fn create(service: &str, names: &[String]) {
    let client = nameservice_tests::service::client();
    for name in names {
        let begun = Instant::now();
        loop {
            let body = json!({ "address": name }).to_string();
            let request = http::Request::post(format!("{service}/v1/ledgers"))
                .header("content-type", "application/json")
                .header("idempotency-key", name)
                .body(body.into())
                .unwrap();
            match client.request(request).await {
                Ok(answer) if answer.status() == 201 || answer.status() == 409 => break,
                Ok(answer) => assert!(answer.status().is_server_error(), "{name}: {answer:?}"),
                Err(_) => {}
            }
            assert!(begun.elapsed() < LONG, "{name} cannot be created at {service}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

pub(crate) fn names(seed: u64, round: usize) -> Vec<String> {
    // One record makes the histories of its concerns long, two let transactions connect records.
    (0..1 + seed % 2).map(|n| format!("h{round}-{n}:main")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_lost_on_the_way_some_order_explains_all_answers() {
    let service = Service::on(Proxied::fresh().await, Auth::Open).await;
    let proxy = Proxy::start(service.url()).await;
    let mut figures = Figures::default();
    for (round, seed) in seeds().enumerate() {
        let names = names(seed, round);
        create(service.url(), &names).await;
        service.table.proxy.strike_at_random(seed, RATE);
        proxy.strike_at_random(seed + 1, RATE);
        let world = World::new(vec![proxy.url().to_owned(), service.url().to_owned()], names, mix_of(seed));
        figures.judged.add(&run(world, seed, false).await.0);
        figures.add(service.table.proxy.stop_striking());
        figures.add(proxy.stop_striking());
        service.table.proxy.take_requests();
        proxy.take_requests();
    }
    figures.print("in one process");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_the_embedded_backend_some_order_explains_all_answers_and_the_feed_reports_all_of_it() {
    let service = InProcess::new();
    let url = service.serve().await;
    let proxy = Proxy::start(&url).await;
    let mut figures = Figures::default();
    let (mut entries, mut records) = (Vec::new(), Vec::new());
    let following = feed::Following::start(&url, 1, false);
    for (round, seed) in seeds().enumerate() {
        let names = names(seed, round);
        create(&url, &names).await;
        proxy.strike_at_random(seed, RATE);
        let world = World::new(vec![proxy.url().to_owned(), url.clone()], names.clone(), mix_of(seed));
        let (judged, run) = run(world, seed, false).await;
        figures.judged.add(&judged);
        entries.extend(run);
        records.extend(names);
        figures.add(proxy.stop_striking());
        proxy.take_requests();
    }
    let last = vec!["last:main".to_owned()];
    create(&url, &last).await;
    records.extend(last.clone());
    feed::caught_up(&url, &last).await;
    let seen = following.end().await;
    let changes = feed::judge(&url, &seen, &entries, &records, 1).await;
    figures.print("the embedded backend");
    println!("  its feed: {changes} changes in order, each once, as clients received them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_back_and_forth_gives_no_lease_of_the_embedded_backend_twice() {
    let ahead = Arc::new(AtomicU64::new(0));
    let service = InProcess::new();
    let steps = ahead.clone();
    let _clock = service
        .backend
        .clone()
        .with_clock(move || SystemTime::now() + Duration::from_secs(steps.load(Ordering::SeqCst)));
    let url = service.serve().await;
    let mut figures = Figures::default();
    for (round, seed) in seeds().enumerate() {
        let names = names(seed, round);
        create(&url, &names).await;
        let mut world = World::new(vec![url.clone()], names, Mix::LEASES);
        world.lease_seconds = (1, 120);
        let history = run(world, seed, true);
        tokio::pin!(history);
        let mut random = StdRng::seed_from_u64(seed);
        let judged = loop {
            tokio::select! {
                judged = &mut history => break judged,
                () = tokio::time::sleep(Duration::from_millis(1)) => {
                    ahead.store(random.random_range(0..300), Ordering::SeqCst);
                    figures.count("clock steps", 1);
                }
            }
        };
        figures.judged.add(&judged.0);
    }
    figures.print("a clock that steps, over the embedded backend");
}

/// Kills the process again and again while a history runs.
async fn run_and_kill(process: &mut Process, world: World, seed: u64) -> (Judged, Vec<Entry>) {
    let world = Arc::new(world);
    let history = run(world.clone(), seed, false);
    tokio::pin!(history);
    let mut random = StdRng::seed_from_u64(seed);
    loop {
        let pause = Duration::from_millis(random.random_range(20..400));
        tokio::select! {
            judged = &mut history => return judged,
            () = world.until_the_next_fault(pause) => process.kill_and_restart().await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_with_its_engine_loses_nothing_and_its_feed_reports_all_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = Process::start(&["--data", directory.path().to_str().unwrap()]).await;
    let mut figures = Figures::default();
    let (mut entries, mut records) = (Vec::new(), Vec::new());
    let following = feed::Following::start(&process.url(), 1, false);
    for (round, seed) in seeds().enumerate() {
        let names = names(seed, round);
        create(&process.url(), &names).await;
        let world = World::new(vec![process.url()], names.clone(), mix_of(seed));
        let (judged, run) = run_and_kill(&mut process, world, seed).await;
        figures.judged.add(&judged);
        entries.extend(run);
        records.extend(names);
    }
    // Written last, so that everything else is in the feed once this is.
    let last = vec!["last:main".to_owned()];
    create(&process.url(), &last).await;
    records.extend(last.clone());
    feed::caught_up(&process.url(), &last).await;
    let seen = following.end().await;
    let changes = feed::judge(&process.url(), &seen, &entries, &records, 1).await;
    figures.count("killed with -9", process.kills);
    figures.print("a process and its engine, killed");
    println!("  its feed: {changes} changes in order, each once, as clients received them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_between_service_and_engine_leaves_a_history_in_order() {
    let table = Proxied::fresh().await;
    let place = ["--endpoint-url", table.proxy.url(), "--table", &table.name];
    let mut process = Process::start(&place).await;
    let mut figures = Figures::default();
    for (round, seed) in seeds().enumerate() {
        let names = names(seed, round);
        create(&process.url(), &names).await;
        table.proxy.strike_at_random(seed, RATE);
        let world = World::new(vec![process.url()], names, mix_of(seed));
        figures.judged.add(&run_and_kill(&mut process, world, seed).await.0);
        figures.add(table.proxy.stop_striking());
        table.proxy.take_requests();
    }
    figures.count("killed with -9", process.kills);
    figures.print("a process, killed, its engine not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_steps_back_and_forth_gives_no_lease_twice() {
    let ahead = Arc::new(AtomicU64::new(0));
    let mut table = Proxied::fresh().await;
    let steps = ahead.clone();
    table.store = table.store.with_clock(move || SystemTime::now() + Duration::from_secs(steps.load(Ordering::SeqCst)));
    let service = Service::on(table, Auth::Open).await;
    let mut figures = Figures::default();
    for (round, seed) in seeds().enumerate() {
        let names = names(seed, round);
        create(service.url(), &names).await;
        service.table.proxy.strike_at_random(seed, RATE);
        let mut world = World::new(vec![service.url().to_owned()], names, Mix::LEASES);
        world.lease_seconds = (1, 120);
        let history = run(world, seed, true);
        tokio::pin!(history);
        let mut random = StdRng::seed_from_u64(seed);
        let judged = loop {
            tokio::select! {
                judged = &mut history => break judged,
                () = tokio::time::sleep(Duration::from_millis(10)) => {
                    ahead.store(random.random_range(0..300), Ordering::SeqCst);
                    figures.count("clock steps", 1);
                }
            }
        };
        figures.judged.add(&judged.0);
        figures.add(service.table.proxy.stop_striking());
        service.table.proxy.take_requests();
    }
    figures.print("a clock that steps");
}
