//! Histories over replicas. Writes go through them to the upstream, if all answers must have one order. What a client
//! reads at one replica never goes back, and includes what it has written there: while links are cut, replicas and the
//! upstream are killed, and positions expire. In the end all replicas have the same state.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use http::{HeaderMap, Method, Request, header};
use http_body_util::BodyExt as _;
use nameservice_embedded::{Embedded, Options};
use nameservice_tests::{
    in_process::InProcess,
    link::Link,
    prelude::*,
    seeds::SEED,
    service::{Http, client},
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

use super::{Figures, clients::World, create, mix_of, names, process::Process, run, seeds, spec::Concern};

pub(crate) async fn ask(
    http: &Http,
    method: Method,
    url: &str,
    body: Option<Value>,
) -> Option<(u16, HeaderMap, Value)> {
    let request = Request::builder().method(method).uri(url).header("content-type", "application/json");
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let answer = tokio::time::timeout(LONG, http.request(request.body(body.into()).unwrap())).await.ok()?.ok()?;
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    Some((parts.status.as_u16(), parts.headers, serde_json::from_slice(&body).unwrap_or(Value::Null)))
}

/// A client of one replica, and the newest that it has seen.
struct Session {
    http: Http,
    url: String,
    seen: BTreeMap<(String, &'static str), (i64, i64)>,
    position: u64,
    reads: u64,
    writes: u64,
}

fn rank(concern: Concern, value: &Value) -> (i64, i64) {
    match concern {
        Concern::Head | Concern::Index => (value["t"].as_i64().unwrap_or(0), value["rev"].as_i64().unwrap_or(0)),
        Concern::Status | Concern::Config => (value["v"].as_i64().unwrap_or(0), 0),
    }
}

impl Session {
    fn new(url: String) -> Self {
        Self { http: client(), url, seen: BTreeMap::new(), position: 0, reads: 0, writes: 0 }
    }

    /// Notes what is shown, which must not be older than what was shown before.
    fn see(&mut self, record: &Value) {
        let address = record["address"].as_str().unwrap().to_owned();
        for concern in Concern::ALL {
            let rank = rank(concern, &record[concern.name()]);
            let before = self.seen.insert((address.clone(), concern.name()), rank).unwrap_or_default();
            assert!(before <= rank, "{} went back from {before:?}: {record:#}", self.url);
        }
    }

    async fn read(&mut self, record: &str, random: &mut StdRng) {
        let listed = random.random_bool(0.3);
        let path = if listed { "/v1/records?view=full&limit=1000".to_owned() } else { format!("/v1/records/{record}") };
        let Some((status, headers, body)) = ask(&self.http, Method::GET, &format!("{}{path}", self.url), None).await
        else {
            return;
        };
        if status == 503 {
            return;
        }
        let was_seen = self.seen.keys().any(|(address, _)| address == record);
        assert!(status == 200 || (status == 404 && !was_seen), "{}{path}: {status} {body}", self.url);
        if status != 200 {
            return;
        }
        self.reads += 1;
        let position = headers.get("nameservice-position").and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(position) = position {
            assert!(position >= self.position, "{} went back from {} to {position}", self.url, self.position);
            self.position = position;
        }
        match listed {
            true => body["records"].as_array().unwrap().iter().for_each(|record| self.see(record)),
            false => self.see(&body),
        }
    }

    /// Writes a config, and reads it.
    async fn write(&mut self, record: &str, number: u64) {
        let key = (record.to_owned(), Concern::Config.name());
        let v = self.seen.get(&key).map_or(0, |(v, _)| *v);
        let body = json!({ "expected": { "v": v }, "new": { "payload": { "n": number } } });
        let url = format!("{}/v1/configs/{record}", self.url);
        let Some((status, headers, answer)) = ask(&self.http, Method::PUT, &url, Some(body)).await else { return };
        match status {
            // With an age, it was answered before the replica shows it.
            200 if !headers.contains_key(header::AGE) => {
                self.writes += 1;
                let written = rank(Concern::Config, &answer["value"]);
                // Later reads must show at least this.
                let seen = self.seen.entry(key).or_default();
                *seen = (*seen).max(written);
            }
            // An earlier write without an answer was applied; the next read shows the current version.
            409 => {}
            200 | 503 => {}
            other => panic!("{url}: {other} {answer}"),
        }
    }

    /// Reads and writes until it is stopped, and until it has done both.
    async fn run(mut self, records: Known, own: String, seed: u64, stop: Arc<AtomicBool>) -> (u64, u64) {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut number, mut until) = (0, None);
        loop {
            if stop.load(Ordering::SeqCst) {
                if self.reads > 0 && self.writes > 0 {
                    break;
                }
                let is_due = Instant::now() > *until.get_or_insert_with(|| Instant::now() + LONG);
                assert!(!is_due, "{}: {} reads, {} writes", self.url, self.reads, self.writes);
            }
            if random.random_bool(0.2) {
                number += 1;
                self.write(&own, number).await;
                self.read(&own, &mut random).await;
            } else {
                let record = records.read().unwrap().choose(&mut random).unwrap().clone();
                self.read(&record, &mut random).await;
            }
        }
        (self.reads, self.writes)
    }
}

/// The position of a snapshot and its records by address; `None` if it cannot be read to its end.
async fn snapshot(url: &str) -> Option<(u64, Vec<Value>)> {
    let (http, mut next) = (client(), String::new());
    let (mut position, mut records) = (None, Vec::new());
    loop {
        let (status, _, body) = ask(&http, Method::GET, &format!("{url}/v1/snapshot?limit=1000{next}"), None).await?;
        if status != 200 {
            return None;
        }
        position = position.or(body["position"].as_u64());
        records.extend(body["records"].as_array().unwrap().iter().cloned());
        match body["cursor"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => break,
        }
    }
    records.sort_by_key(|record| record["address"].as_str().unwrap_or_default().to_owned());
    Some((position?, records))
}

/// Waits until all are at one position, and compares what they have there. Returns how many records that are.
///
/// The times of records are left out where replicas may have begun at different positions, and over a table, whose stream has
/// times of its own.
pub(crate) async fn same_state(upstream: &str, replicas: &[String], with_times: bool) -> usize {
    let begun = Instant::now();
    loop {
        let there = snapshot(upstream).await;
        let mut here = Vec::new();
        for url in replicas {
            here.extend(snapshot(url).await);
        }
        if let Some((position, records)) = &there
            && here.len() == replicas.len()
            && here.iter().all(|(here, _)| here == position)
        {
            for (url, (_, found)) in replicas.iter().zip(&here) {
                assert!(!with_times || *found == here[0].1, "{url} and {}: {found:?}", replicas[0]);
                let comparable = |records: &[Value]| without_times(records, with_times);
                let (found, records) = (comparable(found), comparable(records));
                for (found, record) in found.iter().zip(&records) {
                    assert_eq!(found, record, "{url} and its upstream");
                }
                assert_eq!(found.len(), records.len(), "{url} and its upstream");
            }
            return records.len();
        }
        let positions: Vec<u64> = here.iter().map(|(position, _)| *position).collect();
        let end = there.map(|(position, _)| position);
        assert!(begun.elapsed() < LONG, "the replicas do not catch up: {positions:?} of {end:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A write that changes nothing moves the time of the record at the upstream only.
fn without_times(records: &[Value], is_created_kept: bool) -> Vec<Value> {
    let mut records = records.to_vec();
    for record in records.iter_mut().filter_map(Value::as_object_mut) {
        record.remove("updated_at");
        if !is_created_kept {
            record.remove("created_at");
        }
    }
    records
}

/// Starts two replicas of a process, each over a link of its own and with a directory, and waits until they can be read.
pub(super) async fn two_replicas(upstream: &Process, path: impl Fn(&str) -> String) -> (Vec<Link>, Vec<Process>) {
    let (mut links, mut replicas) = (Vec::new(), Vec::new());
    for n in 0..2 {
        let link = Link::to(&upstream.url()).await;
        let data = path(&format!("replica{n}"));
        replicas.push(Process::start_with(&["--data", &data], &["--upstream", link.url()]).await);
        links.push(link);
    }
    for replica in &replicas {
        is_ready(&replica.url()).await;
    }
    (links, replicas)
}

pub(crate) async fn is_ready(url: &str) {
    let begun = Instant::now();
    while snapshot(url).await.is_none() {
        assert!(begun.elapsed() < LONG, "{url} does not begin");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The records that exist so far.
pub(crate) type Known = Arc<RwLock<Vec<String>>>;

/// Starts a client at each replica, which reads all of these records and writes one of its own, `own0:main`, … Each returns its
/// reads and writes.
pub(crate) fn sessions(
    urls: &[String],
    records: &Known,
    seed: u64,
) -> (Arc<AtomicBool>, Vec<tokio::task::JoinHandle<(u64, u64)>>) {
    let stop = Arc::new(AtomicBool::new(false));
    let sessions = urls.iter().enumerate().map(|(n, url)| {
        let session = Session::new(url.clone());
        tokio::spawn(session.run(records.clone(), format!("own{n}:main"), seed + n as u64, stop.clone()))
    });
    (stop.clone(), sessions.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_replica_reads_never_go_back_and_include_own_writes_whatever_is_cut_or_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let mut upstream = Process::start(&["--data", &path("upstream")]).await;
    let own: Vec<String> = (0..2).map(|n| format!("own{n}:main")).collect();
    create(&upstream.url(), &own).await;
    let (mut links, mut replicas) = two_replicas(&upstream, path).await;
    let urls: Vec<String> = replicas.iter().map(Process::url).collect();
    let (mut figures, mut reads, mut writes) = (Figures::default(), 0, 0);
    let records: Known = Arc::new(RwLock::new(own.clone()));
    for (round, seed) in seeds().enumerate() {
        let names = names(seed, round);
        create(&upstream.url(), &names).await;
        records.write().unwrap().extend(names.clone());
        let (stop, sessions) = sessions(&urls, &records, seed);
        let mut world = World::new([urls.clone(), vec![upstream.url()]].concat(), names, mix_of(seed));
        world.readable = vec![upstream.url()];
        let world = Arc::new(world);
        let history = run(world.clone(), seed, false);
        tokio::pin!(history);
        let mut random = StdRng::seed_from_u64(seed);
        let judged = loop {
            let pause = Duration::from_millis(random.random_range(20..300));
            tokio::select! {
                judged = &mut history => break judged,
                () = world.until_the_next_fault(pause) => match random.random_range(0..8) {
                    0 => replicas[random.random_range(0..2)].kill_and_restart().await,
                    1 => upstream.kill_and_restart().await,
                    _ => links[random.random_range(0..2)].interrupt(pause / 2).await,
                },
            }
        };
        figures.judged.add(&judged.0);
        stop.store(true, Ordering::SeqCst);
        for session in sessions {
            let (read, written) = session.await.unwrap_or_else(|error| panic!("{SEED}={seed}: {error}"));
            (reads, writes) = (reads + read, writes + written);
        }
        same_state(&upstream.url(), &urls, true).await;
    }
    figures.count("links cut", links.iter().map(|link| link.cuts).sum());
    figures.count("upstream killed with -9", upstream.kills);
    figures.count("replicas killed with -9", replicas.iter().map(|replica| replica.kills).sum());
    figures.print("two replicas and their upstream");
    println!("  at the replicas: {reads} reads that never went back, {writes} own writes read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_whose_position_expires_begins_again_and_never_goes_back() {
    let ahead = Arc::new(AtomicU64::new(0));
    let hour = Duration::from_secs(3_600);
    let backend = Embedded::memory(Options::default().with_retention(hour)).unwrap();
    let steps = ahead.clone();
    let _clock =
        backend.clone().with_clock(move || SystemTime::now() + Duration::from_secs(steps.load(Ordering::SeqCst)));
    let service = InProcess::over(backend);
    let upstream = service.serve().await;
    let own: Vec<String> = (0..2).map(|n| format!("own{n}:main")).collect();
    create(&upstream, &own).await;
    let directory = tempfile::tempdir().unwrap();
    let (mut links, mut replicas) = (Vec::new(), Vec::new());
    for n in 0..2 {
        let link = Link::to(&upstream).await;
        let data = directory.path().join(format!("replica{n}")).to_str().unwrap().to_owned();
        replicas.push(Process::start_with(&["--data", &data], &["--upstream", link.url()]).await);
        links.push(link);
    }
    let urls: Vec<String> = replicas.iter().map(Process::url).collect();
    for url in &urls {
        is_ready(url).await;
    }
    let (mut figures, mut reads, mut writes) = (Figures::default(), 0, 0);
    let records: Known = Arc::new(RwLock::new(own.clone()));
    for (round, seed) in seeds().enumerate() {
        let names = names(seed, round);
        create(&upstream, &names).await;
        records.write().unwrap().extend(names.clone());
        let (stop, sessions) = sessions(&urls, &records, seed);
        let mut world = World::new([urls.clone(), vec![upstream.clone()]].concat(), names, super::Mix::PUSHES);
        world.readable = vec![upstream.clone()];
        let world = Arc::new(world);
        let history = run(world.clone(), seed, false);
        tokio::pin!(history);
        let mut random = StdRng::seed_from_u64(seed);
        let judged = loop {
            let pause = Duration::from_millis(random.random_range(20..200));
            tokio::select! {
                judged = &mut history => break judged,
                () = world.until_the_next_fault(pause) => {
                    // Everything that was written so far expires while nobody reads it.
                    let link = &mut links[random.random_range(0..2)];
                    link.cut();
                    tokio::time::sleep(pause).await;
                    ahead.fetch_add(2 * hour.as_secs(), Ordering::SeqCst);
                    create(&upstream, &[format!("later{}:main", ahead.load(Ordering::SeqCst))]).await;
                    figures.count("positions expired", 1);
                    link.mend();
                }
            }
        };
        figures.judged.add(&judged.0);
        stop.store(true, Ordering::SeqCst);
        for session in sessions {
            let (read, written) = session.await.unwrap_or_else(|error| panic!("{SEED}={seed}: {error}"));
            (reads, writes) = (reads + read, writes + written);
        }
        same_state(&upstream, &urls, true).await;
    }
    figures.print("two replicas whose positions expire");
    println!("  at the replicas: {reads} reads that never went back, {writes} own writes read");
}
