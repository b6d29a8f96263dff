//! Clients that call random operations on a few records over HTTP, and record each call and its answer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::{Client as Http, connect::HttpConnector};
use nameservice_tests::{LONG, cids::id_for, service::client};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::history::{
    CLIENTS,
    judge::{Entry, Recorder},
    spec::{Answered, Asked, Concern, Spot},
};

/// How many calls of a history may stay without an answer: each doubles the orders that a judge has to try, and a slow machine would
/// leave ever more of them. Past it, clients send a call until it is answered. A fast machine needs half of one.
const OPEN: i64 = 8;

/// Weights of the operations that clients call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) reads: u32,
    pub(crate) pushes: u32,
    pub(crate) leases: u32,
    pub(crate) fenced: u32,
    pub(crate) transactions: u32,
}

impl Mix {
    /// Many pushes on one concern.
    pub(crate) const PUSHES: Self = Self { reads: 3, pushes: 8, leases: 0, fenced: 0, transactions: 0 };
    /// Lease holders that lose their leases to one another.
    pub(crate) const LEASES: Self = Self { reads: 3, pushes: 2, leases: 5, fenced: 4, transactions: 0 };
    /// Operations that connect concerns.
    pub(crate) const TRANSACTIONS: Self = Self { reads: 3, pushes: 3, leases: 0, fenced: 0, transactions: 5 };
    /// All of it.
    pub(crate) const EVERYTHING: Self = Self { reads: 3, pushes: 5, leases: 2, fenced: 2, transactions: 2 };
}

/// State that all clients of a history share.
pub(crate) struct World {
    /// URLs of the service; the first may be behind faults, the last never is.
    pub(crate) urls: Vec<String>,
    /// URLs that reads go to, if not every service answers them linearizably; empty for all.
    pub(crate) readable: Vec<String>,
    pub(crate) records: Vec<String>,
    pub(crate) mix: Mix,
    pub(crate) lease_seconds: (i64, i64),
    pub(crate) recorder: Recorder,
    /// Makes every pushed id unique.
    ids: AtomicI64,
    /// How many more calls may stay without an answer.
    open_left: AtomicI64,
}

impl World {
    pub(crate) fn new(urls: Vec<String>, records: Vec<String>, mix: Mix) -> Self {
        let (recorder, ids, open_left) = (Recorder::default(), AtomicI64::new(0), AtomicI64::new(OPEN));
        Self { urls, readable: Vec::new(), records, mix, lease_seconds: (300, 301), recorder, ids, open_left }
    }

    /// Waits until the next fault: for so long, and until calls were answered meanwhile. By time alone, a slow machine would lose
    /// most calls, and the judges would be struck at, too.
    pub(crate) async fn until_the_next_fault(&self, pause: Duration) {
        let before = self.recorder.answers();
        // lint: faults come at different moments
        tokio::time::sleep(pause).await;
        while self.recorder.answers() < before + u64::from(CLIENTS) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(super) enum Sent {
    Answered(Answered),
    /// The connection was refused, so nothing was sent.
    Rejected,
    /// Sent, and perhaps received.
    Lost,
}

/// One client.
pub(crate) struct Client {
    pub(super) number: u32,
    pub(super) random: StdRng,
    http: Http<HttpConnector, Full<Bytes>>,
    pub(super) world: Arc<World>,
    /// The last value of each concern that it received.
    known: BTreeMap<Spot, Value>,
    /// The claims of the leases that it was granted.
    claims: Vec<(String, Value)>,
}

impl Client {
    pub(crate) fn new(number: u32, seed: u64, world: Arc<World>) -> Self {
        let random = StdRng::seed_from_u64(seed ^ u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self { number, random, http: client(), world, known: BTreeMap::new(), claims: Vec::new() }
    }

    /// Makes this many calls, one after the other.
    pub(crate) async fn run(mut self, steps: usize) {
        for _ in 0..steps {
            self.step().await;
        }
    }

    async fn step(&mut self) {
        let Mix { reads, pushes, leases, fenced, transactions } = self.world.mix;
        let mut throw = self.random.random_range(0..reads + pushes + leases + fenced + transactions);
        let mut falls_on = |weight: u32| {
            let here = throw < weight;
            throw = throw.wrapping_sub(weight);
            here
        };
        if falls_on(reads) {
            self.read().await;
        } else if falls_on(pushes) {
            let record = self.record();
            let concern = *Concern::ALL.choose(&mut self.random).unwrap();
            self.push(&record, concern, None).await;
        } else if falls_on(leases) {
            self.lease().await;
        } else if falls_on(fenced) {
            // Not only the current claim: a client that has lost its lease does not know it.
            match self.claims.choose(&mut self.random).cloned() {
                Some((record, claim)) => {
                    let concern = *[Concern::Head, Concern::Index, Concern::Status].choose(&mut self.random).unwrap();
                    self.push(&record, concern, Some(claim)).await;
                }
                None => self.lease().await,
            }
        } else {
            self.transaction().await;
        }
    }

    pub(super) fn record(&mut self) -> String {
        self.world.records.choose(&mut self.random).unwrap().clone()
    }

    pub(super) fn known(&self, spot: &Spot) -> Value {
        self.known.get(spot).cloned().unwrap_or_else(|| spot.concern.unborn())
    }

    pub(super) fn number(&self) -> i64 {
        self.world.ids.fetch_add(1, Ordering::Relaxed)
    }

    // ---- requests ----

    /// The body of a push, mostly one that can succeed.
    fn body(&mut self, spot: &Spot) -> Value {
        let (known, number) = (self.known(spot), self.number());
        match spot.concern {
            Concern::Head | Concern::Index => {
                let index = spot.concern == Concern::Index;
                let mut expected = json!({ "id": known["id"], "t": known["t"] });
                if known["id"] != Value::Null && self.random.random_bool(0.05) {
                    return json!({ "new": { "id": known["id"], "t": known["t"] } });
                }
                if index {
                    // The revision is not compared, but decides the result.
                    expected["rev"] = known["rev"].clone();
                }
                let ahead = *[1, 1, 1, 2, 3, 0, -1].choose(&mut self.random).unwrap();
                let t = (known["t"].as_i64().unwrap() + ahead).max(1);
                let concern = spot.concern.name();
                let new = json!({ "id": id_for(concern, &format!("{concern} {number}")).as_str(), "t": t });
                let throw = self.random.random_range(0..10);
                if throw == 4 && index {
                    // An answer may be unknown then, but never counts from a revision that was not stored.
                    expected.as_object_mut().unwrap().remove("rev");
                }
                match throw {
                    0..5 => json!({ "expected": expected, "new": new }),
                    5 if index => json!({ "new": new, "allow_equal": true }),
                    _ => json!({ "new": new }),
                }
            }
            Concern::Status | Concern::Config => {
                let mut expected = json!({ "v": known["v"] });
                if known["payload"] != Value::Null && self.random.random_bool(0.4) {
                    expected["payload"] = known["payload"].clone();
                }
                let payload = match spot.concern {
                    Concern::Status => json!({ "state": format!("s{}", number % 3), "n": number }),
                    _ => json!({ "n": number }),
                };
                let mut new = json!({ "payload": payload });
                if self.random.random_bool(0.2) {
                    new["v"] = json!((known["v"].as_i64().unwrap() + self.random.random_range(0..4)).max(1));
                }
                json!({ "expected": expected, "new": new })
            }
        }
    }

    async fn push(&mut self, record: &str, concern: Concern, claim: Option<Value>) {
        let spot = Spot::new(record, concern);
        let mut body = self.body(&spot);
        if let Some(claim) = claim {
            body["lease"] = claim;
        }
        let path = format!("/v1/{}/{record}", concern.path());
        let answer = self.call(Asked::Push(spot.clone(), body.clone()), Method::PUT, &path, Some(body)).await;
        if let Some(answer) = answer {
            let shown = if answer.status == 200 { &answer.body["value"] } else { &answer.body["actual"] };
            self.learn(&spot, shown);
        }
    }

    pub(super) fn learn(&mut self, spot: &Spot, shown: &Value) {
        if shown.is_object() {
            self.known.insert(spot.clone(), shown.clone());
        }
    }

    async fn read(&mut self) {
        let record = self.record();
        let name = record.split(':').next().unwrap();
        let (path, listed) = match self.random.random_range(0..4) {
            0 => (
                format!("/v1/records/{record}?concerns={}", Concern::ALL.choose(&mut self.random).unwrap().name()),
                false,
            ),
            1 => (format!("/v1/records?name={name}&view=full"), true),
            _ => (format!("/v1/records/{record}"), false),
        };
        let invoked = self.world.recorder.tick();
        let Sent::Answered(answer) = self.send(Method::GET, &path, None, None).await else { return };
        let returned = self.world.recorder.tick();
        if answer.problem() == "unavailable" {
            return;
        }
        assert_eq!(answer.status, 200, "GET {path}: {answer:?}");
        let shown = if listed { &answer.body["records"][0] } else { &answer.body };
        for concern in Concern::ALL {
            if let Some(value) = shown.get(concern.name()) {
                let spot = Spot::new(&record, concern);
                self.learn(&spot, value);
                self.world.recorder.record(Entry {
                    client: self.number,
                    asked: Arc::new(Asked::Read(spot)),
                    invoked,
                    returned: Some((returned, Arc::new(Answered { status: 200, body: value.clone() }))),
                    repeated: false,
                });
            }
        }
    }

    async fn lease(&mut self) {
        let held = self.claims.choose(&mut self.random).cloned();
        match (self.random.random_range(0..6), held) {
            (0, Some((record, claim))) => {
                let path = format!(
                    "/v1/leases/{record}?name={}&holder={}&token={}",
                    claim["name"].as_str().unwrap(),
                    claim["holder"].as_str().unwrap(),
                    claim["token"]
                );
                self.call(Asked::Release(record, claim), Method::DELETE, &path, None).await;
            }
            (1, Some((record, mut claim))) => {
                claim["ttl_seconds"] = json!(self.seconds());
                let path = format!("/v1/leases/{record}");
                self.call(Asked::Lease(record, claim.clone()), Method::PUT, &path, Some(claim)).await;
            }
            _ => {
                let record = self.record();
                let name = *["index_lock", "reindex_lock", "maintenance_lock"].choose(&mut self.random).unwrap();
                // Few holders: sometimes another client takes over under the same holder's name.
                let holder = format!("h{}", self.random.random_range(0..3));
                let wanted = json!({ "name": name, "holder": holder, "ttl_seconds": self.seconds() });
                let path = format!("/v1/leases/{record}");
                let asked = Asked::Lease(record.clone(), wanted.clone());
                let Some(answer) = self.call(asked, Method::PUT, &path, Some(wanted)).await else { return };
                if answer.status == 200 {
                    let claim = json!({ "name": name, "holder": holder, "token": answer.body["token"] });
                    self.claims.push((record, claim));
                }
            }
        }
    }

    fn seconds(&mut self) -> i64 {
        self.random.random_range(self.world.lease_seconds.0..self.world.lease_seconds.1)
    }

    async fn transaction(&mut self) {
        let mut spots: Vec<Spot> = Vec::new();
        for _ in 0..self.random.random_range(2..5) {
            let spot = Spot::new(&self.record(), *Concern::ALL.choose(&mut self.random).unwrap());
            if !spots.contains(&spot) {
                spots.push(spot);
            }
        }
        let operations: Vec<Value> = spots
            .iter()
            .map(|spot| {
                let known = self.known(spot);
                if self.random.random_bool(0.25) {
                    let expected = match spot.concern {
                        Concern::Head | Concern::Index => json!({ "id": known["id"], "t": known["t"] }),
                        Concern::Status | Concern::Config => json!({ "v": known["v"] }),
                    };
                    return json!({ "op": "check", "address": spot.record, "concern": spot.concern.name(), "expected": expected });
                }
                let mut body = self.body(spot);
                body["op"] = json!(format!("push_{}", spot.concern.name()));
                body["address"] = json!(spot.record);
                body
            })
            .collect();
        let body = json!({ "operations": operations });
        let asked = Asked::Transaction(operations);
        let Some(answer) = self.call(asked, Method::POST, "/v1/transactions", Some(body)).await else { return };
        let results = answer.body["results"].as_array().cloned().unwrap_or_default();
        for (spot, result) in spots.iter().zip(results) {
            self.learn(spot, result.get("value").or(result.get("actual")).unwrap_or(&Value::Null));
        }
    }

    // ---- sending ----

    /// Makes a call, sometimes again with the same key where no answer came, and records it. `None`: no answer.
    pub(super) async fn call(
        &mut self,
        asked: Asked,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Option<Answered> {
        let asked = Arc::new(asked);
        let key = Uuid::new_v4().to_string();
        let (invoked, mut lost, mut repeated) = (self.world.recorder.tick(), false, false);
        loop {
            let sent = self.send(method.clone(), path, Some(&key), body.as_ref()).await;
            match sent {
                Sent::Answered(answer) if !matches!(answer.problem(), "unavailable" | "outcome-unknown") => {
                    let known = answer.status < 300
                        || matches!(answer.problem(), "conflict" | "lease-held" | "lease-lost" | "transaction-refused");
                    assert!(known, "{asked:?}: {} {}", answer.status, answer.body);
                    let returned = Some((self.world.recorder.tick(), Arc::new(answer.clone())));
                    self.world.recorder.record(Entry { client: self.number, asked, invoked, returned, repeated });
                    return Some(answer);
                }
                // Certainly not applied, unless an earlier attempt was.
                Sent::Answered(answer) if answer.problem() == "unavailable" => {}
                Sent::Rejected => tokio::time::sleep(Duration::from_millis(20)).await,
                Sent::Answered(_) | Sent::Lost => lost = true,
            }
            if !lost {
                return None;
            }
            if self.random.random_bool(0.4) && self.world.open_left.fetch_sub(1, Ordering::Relaxed) > 0 {
                self.world.recorder.record(Entry { client: self.number, asked, invoked, returned: None, repeated });
                return None;
            }
            repeated = true;
        }
    }

    pub(super) async fn send(&mut self, method: Method, path: &str, key: Option<&str>, body: Option<&Value>) -> Sent {
        let urls = match method == Method::GET && !self.world.readable.is_empty() {
            true => &self.world.readable,
            false => &self.world.urls,
        };
        let url = urls.choose(&mut self.random).unwrap();
        let mut request = Request::builder().method(method).uri(format!("{url}{path}"));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        let request = request.body(Full::new(body.into())).unwrap();
        let begun = Instant::now();
        let exchange = async {
            let (parts, body) = match self.http.request(request).await {
                Ok(response) => response.into_parts(),
                Err(error) if error.is_connect() => return Sent::Rejected,
                Err(_) => return Sent::Lost,
            };
            let Ok(body) = body.collect().await else { return Sent::Lost };
            let body = body.to_bytes();
            let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
            self.world.recorder.answered(begun.elapsed());
            Sent::Answered(Answered { status: parts.status.as_u16(), body })
        };
        tokio::time::timeout(LONG, exchange).await.unwrap_or(Sent::Lost)
    }
}
