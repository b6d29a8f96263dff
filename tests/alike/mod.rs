//! The same random requests, valid and not, to a service over each backend: answers, records, lists and feeds are the same.
//!
//! `NAMESERVICE_ALIKE_ROUNDS` is how many sequences are tried, `NAMESERVICE_TEST_BASE` the seed of the first, and
//! `NAMESERVICE_TEST_SEED` that of the only one. A failure prints the shortest sequence that still shows it, and its seed.
//! `allowed.rs` has the differences that are right, each with its reason.

mod allowed;
mod compare;
mod integers;
mod places;
mod requests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use nameservice_tests::{
    backends::Place,
    prelude::*,
    seeds::{SEED, number, seeds},
};

use self::{
    allowed::{Case, Then, allowed, not_compared},
    compare::{difference, feed_difference, kind_of},
    places::{Request, Side, Step, sides},
    requests::Maker,
};
use crate::model::requests::addresses;

/// How many sequences are tried.
const ROUNDS: &str = "NAMESERVICE_ALIKE_ROUNDS";
const DEFAULT_ROUNDS: u64 = 12;
/// How many steps a sequence has, and after how many of them everything is compared.
const STEPS: usize = 48;
const BATCH: usize = 12;
/// How many different failures end a run, and how often each is tried again with fewer steps.
const FAILURES: usize = 12;
const TRIES: usize = 150;

/// A record that the sequences leave alone, and that must always take a plain push.
const PLAIN: &str = "Q.plain:main";

/// The services of one sequence. The first is over the embedded backend, with which the others are compared.
struct Alike {
    sides: Vec<Side>,
    sent: Vec<Request>,
    t: i64,
}

/// A difference that is a defect.
#[derive(Clone, Debug)]
struct Failure {
    kind: String,
    what: String,
}

impl Alike {
    async fn start(places: &[Place]) -> Self {
        Self { sides: sides(places).await, sent: Vec::new(), t: 0 }
    }

    /// Sends a request to all. Returns the answer of the first, or the first difference.
    async fn send(&mut self, request: &Request) -> Result<Answer, Failure> {
        let is_repetition = request.header("idempotency-key").is_some() && self.sent.contains(request);
        if request.is_write() {
            self.sent.push(request.clone());
        }
        let mut answers = Vec::new();
        for side in &mut self.sides {
            answers.push(side.send(request).await);
        }
        let embedded = answers.remove(0);
        let failed = |place: Place, what: &str, other: &Answer| Failure {
            kind: format!("{place:?} {}", kind_of(request, what)),
            what: format!(
                "{place:?}: {what}\nEmbedded: {} {}\n{place:?}: {} {}",
                embedded.status, embedded.body, other.status, other.body
            ),
        };
        if embedded.status == 500 {
            return Err(failed(Place::Memory, "an internal error", &embedded));
        }
        if let Some(beyond) = beyond(&embedded.body) {
            return Err(failed(Place::Memory, &format!("{beyond} is beyond the greatest watermark"), &embedded));
        }
        let mut at = 1;
        for other in answers {
            let place = self.sides[at].place;
            if place == Place::Directory && is_repetition && request.is_write() {
                // Files remember no calls, so the repetition may be applied there.
                self.sides.remove(at).stop(false).await;
                continue;
            }
            if let Some(what) = difference(&embedded, &other, not_compared(place)) {
                let case = Case { request, place, embedded: &embedded, other: &other };
                match allowed(&case) {
                    None => return Err(failed(place, &what, &other)),
                    Some(Then::Continue) => {}
                    Some(Then::Leave) => {
                        self.sides.remove(at).stop(false).await;
                        continue;
                    }
                }
            }
            at += 1;
        }
        Ok(embedded)
    }

    async fn step(&mut self, step: &Step) -> Result<Option<Answer>, Failure> {
        match step {
            Step::Later(seconds) => {
                self.sides.iter().for_each(|side| side.later(*seconds));
                Ok(None)
            }
            Step::Send(request) => self.send(request).await.map(Some),
        }
    }

    /// Compares every record, the lists and the feeds, and pushes to a record of its own.
    async fn compare(&mut self) -> Result<(), Failure> {
        for address in addresses() {
            self.send(&Request::get(format!("/v1/records/{address}"))).await?;
        }
        for list in ["/v1/records?view=full", "/v1/records?state=ready", "/v1/snapshot", "/fluree/nameservice/snapshot"]
        {
            self.send(&Request::get(list)).await?;
        }
        self.is_well().await?;
        let request = Request::get("/v1/changes?after=0&limit=1000");
        let mut feeds = Vec::new();
        for side in &mut self.sides {
            feeds.push((side.place, side.send(&request).await.expect(200)));
        }
        let (_, embedded) = feeds.remove(0);
        for (place, feed) in feeds {
            if let Some(what) = feed_difference(&embedded, &feed, not_compared(place)) {
                let kind = format!("{place:?} feed{}", kind_of(&request, &what).trim_start_matches("GET /v1/changes"));
                return Err(Failure { kind, what: format!("{place:?} feed: {what}") });
            }
        }
        Ok(())
    }

    /// Checks the health of all, and that a plain push works.
    async fn is_well(&mut self) -> Result<(), Failure> {
        self.t += 1;
        let head = json!({ "id": cid(self.t).as_str(), "t": self.t });
        let push = match self.t {
            1 => Request::new(http::Method::POST, "/v1/ledgers").with_body(json!({ "address": PLAIN, "head": head })),
            _ => Request::new(http::Method::PUT, format!("/v1/heads/{PLAIN}")).with_body(json!({ "new": head })),
        };
        for request in [push, Request::get("/v1/health?deep=true")] {
            let answer = self.send(&request).await?;
            if !answer.status.is_success() || request.is_write() && self.t > 1 && answer.body["status"] != "updated" {
                let what = format!("{request}: {} {}", answer.status, answer.body);
                return Err(Failure { kind: "a plain push or health fails".to_owned(), what });
            }
        }
        Ok(())
    }

    async fn stop(self, examined: bool) {
        for side in self.sides {
            side.stop(examined).await;
        }
    }
}

/// A watermark, revision or token that is greater than any may be.
fn beyond(body: &Value) -> Option<String> {
    const COUNTERS: [&str; 5] = ["t", "v", "rev", "token", "watermark"];
    match body {
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            let is_beyond = COUNTERS.contains(&name.as_str()) && value.as_i64().is_some_and(|n| n > MAX_WATERMARK);
            // What a payload holds is its writer's.
            let inner = name == "payload";
            if is_beyond {
                Some(format!("{name} {value}"))
            } else if inner {
                None
            } else {
                beyond(value)
            }
        }),
        Value::Array(values) => values.iter().find_map(beyond),
        _ => None,
    }
}

/// Sends a sequence to new services.
async fn run(places: &[Place], steps: &[Step]) -> Option<Failure> {
    let mut alike = Alike::start(places).await;
    let outcome = async {
        for (at, step) in steps.iter().enumerate() {
            alike.step(step).await?;
            if (at + 1) % BATCH == 0 {
                alike.compare().await?;
            }
        }
        alike.compare().await
    };
    let outcome = outcome.await.err();
    alike.stop(outcome.is_none()).await;
    outcome
}

/// The places of a sequence: every second one includes files, and asks mostly for what these can do.
fn places(seed: u64) -> &'static [Place] {
    match seed % 2 {
        0 => &[Place::Memory, Place::DynamoDb],
        _ => &[Place::Memory, Place::DynamoDb, Place::Directory],
    }
}

/// Draws a sequence and sends it. Returns the steps up to the failure.
async fn draw(seed: u64, figures: &mut BTreeMap<String, u64>) -> Option<(Vec<Step>, Failure)> {
    let places = places(seed);
    let mut alike = Alike::start(places).await;
    let mut maker = Maker::new(seed, places.contains(&Place::Directory));
    let mut steps = Vec::new();
    let mut failure = None;
    while failure.is_none() && steps.len() < STEPS {
        let step = maker.step();
        steps.push(step.clone());
        match alike.step(&step).await {
            Ok(Some(answer)) => {
                if let Step::Send(request) = &step {
                    maker.note(request, &answer);
                    *figures.entry(format!("{} {}", request.route(), answer.status.as_u16())).or_default() += 1;
                    if request.is_write() {
                        see(&mut maker, &mut alike.sides[0]).await;
                    }
                }
            }
            Ok(None) => {}
            Err(found) => failure = Some(found),
        }
        if failure.is_none() && steps.len() % BATCH == 0 {
            failure = alike.compare().await.err();
        }
    }
    alike.stop(failure.is_none()).await;
    failure.map(|failure| (steps, failure))
}

/// Reads what the records hold.
async fn see(maker: &mut Maker, embedded: &mut Side) {
    let shown = embedded.send(&Request::get("/v1/records?view=full&prefix=P.")).await.expect(200);
    for address in addresses() {
        let mut records = shown["records"].as_array().unwrap().iter();
        let record = records.find(|record| record["address"] == *address).cloned().unwrap_or_default();
        maker.seen.records.insert(address, record);
    }
}

/// The sequence with as few steps as still show the same failure.
async fn shortest(places: &[Place], mut steps: Vec<Step>, mut failure: Failure) -> (Vec<Step>, Failure) {
    let mut tries = 0;
    let mut size = steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < steps.len() && tries < TRIES {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + size).min(fewer.len()));
            tries += 1;
            match run(places, &fewer).await.filter(|found| found.kind == failure.kind) {
                Some(found) => (steps, failure) = (fewer, found),
                None => at += size,
            }
        }
        size /= 2;
    }
    (steps, failure)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_backend_answers_the_same_requests_alike() {
    let (mut sequences, mut figures) = (0, BTreeMap::new());
    let (mut kinds, mut report) = (BTreeSet::new(), String::new());
    for seed in seeds(number(ROUNDS).unwrap_or(DEFAULT_ROUNDS)) {
        if kinds.len() == FAILURES {
            break;
        }
        sequences += 1;
        let Some((steps, failure)) = draw(seed, &mut figures).await else { continue };
        if !kinds.insert(failure.kind.clone()) {
            continue;
        }
        let places = places(seed);
        let (steps, failure) = shortest(places, steps, failure).await;
        writeln!(report, "\n== {} ({SEED}={seed})", failure.kind).unwrap();
        for step in &steps {
            writeln!(report, "   {step}").unwrap();
        }
        writeln!(report, "{}", failure.what).unwrap();
    }
    println!("{sequences} sequences, {} requests", figures.values().sum::<u64>());
    if std::env::var_os("NAMESERVICE_ALIKE_FIGURES").is_some() {
        figures.iter().for_each(|(what, count)| println!("{count:6} {what}"));
    }
    assert!(kinds.is_empty(), "{} differences between backends:\n{report}", kinds.len());
}
