//! Mixed load for as long as requested: memory and latency must stay flat.
//!
//! `cargo soak` runs 30 seconds of it, `NAMESERVICE_SOAK_SECONDS=3600 cargo soak` an hour.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::BodyExt;
use nameservice_tests::{cids::id_of, prelude::*, service::client};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::history::process::Process;

const SECONDS: &str = "NAMESERVICE_SOAK_SECONDS";
const DEFAULT_SECONDS: u64 = 30;
const CLIENTS: u64 = 4;
const LEDGERS: u64 = 50;
/// How many stretches the time is divided into. The first is for warming up, and is not judged.
const STRETCHES: usize = 10;
/// What two stretches may differ by, on a machine that others use too.
const SLOWER: f64 = 2.5;
const LARGER: f64 = 1.25;
const LARGER_BY: f64 = 16.0;

/// The figures of one stretch.
struct Stretch {
    requests: usize,
    p50: Duration,
    p99: Duration,
    memory: f64,
}

struct Load {
    url: String,
    ended: AtomicBool,
    failed: AtomicU64,
    latencies: Mutex<Vec<Duration>>,
}

impl Load {
    async fn ask(
        &self,
        http: &nameservice_tests::service::Http,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Value {
        let begun = Instant::now();
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let answer = http.request(request.body(body.into()).unwrap()).await.unwrap();
        if answer.status().is_server_error() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        self.latencies.lock().unwrap().push(begun.elapsed());
        serde_json::from_slice(&body).unwrap_or_default()
    }

    /// One client: mostly pushes and reads, now and then everything else.
    async fn run(&self, number: u64) {
        let http = client();
        let mut random = StdRng::seed_from_u64(number);
        let mut n = number;
        while !self.ended.load(Ordering::Relaxed) {
            n += CLIENTS;
            let name = format!("soak{}", random.random_range(0..LEDGERS));
            let read = |concern: &str| format!("/v1/records/{name}?concerns={concern}");
            let id = |n: u64| id_of(&format!("soak {n}")).to_string();
            match random.random_range(0..20) {
                0..5 => drop(self.ask(&http, Method::GET, &format!("/v1/records/{name}"), None).await),
                5..11 => {
                    let there = self.ask(&http, Method::GET, &read("head"), None).await;
                    let t = there["head"]["t"].as_i64().unwrap_or(0) + 1;
                    let body = json!({ "expected": there["head"], "new": { "id": id(n), "t": t } });
                    self.ask(&http, Method::PUT, &format!("/v1/heads/{name}"), Some(body)).await;
                }
                11..14 => {
                    let body = json!({ "new": { "id": id(n), "t": n } });
                    self.ask(&http, Method::PUT, &format!("/v1/indexes/{name}"), Some(body)).await;
                }
                14 => {
                    let there = self.ask(&http, Method::GET, &read("status"), None).await;
                    let v = &there["status"]["v"];
                    let body = json!({ "expected": { "v": v }, "new": { "payload": { "state": "syncing", "n": n } } });
                    self.ask(&http, Method::PUT, &format!("/v1/statuses/{name}"), Some(body)).await;
                }
                15 => {
                    let holder = format!("h{number}");
                    let wanted = json!({ "name": "index_lock", "holder": holder, "ttl_seconds": 60 });
                    let held = self.ask(&http, Method::PUT, &format!("/v1/leases/{name}"), Some(wanted)).await;
                    if let Some(token) = held["token"].as_i64() {
                        let path = format!("/v1/leases/{name}?name=index_lock&holder={holder}&token={token}");
                        self.ask(&http, Method::DELETE, &path, None).await;
                    }
                }
                16 => {
                    let operations = json!([
                        { "op": "push_index", "address": name, "new": { "id": id(n), "t": n } },
                        { "op": "push_index", "address": format!("soak{}", n % LEDGERS), "new": { "id": id(n), "t": n } },
                    ]);
                    let body = json!({ "operations": operations });
                    self.ask(&http, Method::POST, "/v1/transactions", Some(body)).await;
                }
                17 => drop(self.ask(&http, Method::GET, "/v1/records?limit=20&view=full", None).await),
                18 => {
                    let source = format!("/v1/graph-sources/search{number}");
                    let body = json!({ "source_type": "t", "config": { "n": n }, "dependencies": [name] });
                    self.ask(&http, Method::PUT, &source, Some(body)).await;
                    self.ask(&http, Method::DELETE, &format!("/v1/records/search{number}"), None).await;
                }
                _ => {
                    let end = self.ask(&http, Method::GET, "/v1/changes?after=0&limit=1", None).await;
                    let after = end["position"].as_u64().or(end["oldest"].as_u64()).unwrap_or(0);
                    self.ask(&http, Method::GET, &format!("/v1/changes?after={after}&limit=100"), None).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half a minute, or as long as one likes: cargo soak"]
async fn memory_and_latency_stay_flat() {
    let seconds = std::env::var(SECONDS).map_or(DEFAULT_SECONDS, |seconds| seconds.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let process = Process::start(&["--data", directory.path().to_str().unwrap()]).await;
    let load = Arc::new(Load {
        url: process.url(),
        ended: AtomicBool::new(false),
        failed: AtomicU64::new(0),
        latencies: Mutex::default(),
    });
    let http = client();
    for n in 0..LEDGERS {
        load.ask(&http, Method::POST, "/v1/ledgers", Some(json!({ "address": format!("soak{n}") }))).await;
    }
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let load = load.clone();
            tokio::spawn(async move { load.run(number).await })
        })
        .collect();
    let mut stretches = Vec::new();
    println!("  requests      p50      p99   memory");
    for _ in 0..STRETCHES {
        load.latencies.lock().unwrap().clear();
        tokio::time::sleep(Duration::from_secs(seconds) / STRETCHES as u32).await;
        let mut latencies = std::mem::take(&mut *load.latencies.lock().unwrap());
        latencies.sort_unstable();
        let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        let stretch = Stretch { requests: latencies.len(), p50: at(0.5), p99: at(0.99), memory: process.memory() };
        let Stretch { requests, p50, p99, memory } = stretch;
        println!("  {requests:8} {p50:8.1?} {p99:8.1?} {memory:4.1} MiB");
        stretches.push(stretch);
    }
    load.ended.store(true, Ordering::Relaxed);
    join_all(clients).await.into_iter().for_each(Result::unwrap);
    let requests: usize = stretches.iter().map(|stretch| stretch.requests).sum();
    println!("{requests} requests in {seconds} s, none failed");
    assert_eq!(load.failed.load(Ordering::Relaxed), 0, "requests were answered with a failure");
    // The best of some stretches each: what else runs on the machine only makes a stretch worse.
    let best = |of: &[Stretch]| of.iter().map(|stretch| stretch.p50.as_secs_f64()).fold(f64::INFINITY, f64::min);
    let (early, late) = (&stretches[1..5], &stretches[STRETCHES - 4..]);
    assert!(best(late) < best(early) * SLOWER, "requests have become slower");
    let most = |of: &[Stretch]| of.iter().map(|stretch| stretch.memory).fold(0.0, f64::max);
    assert!(most(late) < most(early) * LARGER + LARGER_BY, "memory has grown");
}
