//! The change feed beside a history, judged as etcd judges its watches: ordered, unique, complete, resumable, and
//! consistent with the answers that clients received.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use http::Request;
use http_body_util::BodyExt;
use nameservice_tests::{prelude::*, service::client};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::sync::watch;

use super::{
    judge::Entry,
    spec::{Asked, Concern, Spot, spot_of, without_lease},
};

/// A 410 is an answer, too: it says where the feed begins.
pub(super) async fn get(url: &str, path: &str) -> Option<Value> {
    let answer = client().request(Request::get(format!("{url}{path}")).body(Default::default()).unwrap()).await.ok()?;
    let status = answer.status().as_u16();
    assert!([200, 410, 503].contains(&status), "{path}: {answer:?}");
    let body = answer.into_body().collect().await.ok()?.to_bytes();
    (status != 503).then(|| serde_json::from_slice(&body).unwrap())
}

/// What a reader has seen of a feed.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) changes: Vec<Value>,
    /// Whether changes may expire meanwhile.
    pub(crate) expires: bool,
    /// How many times the next changes had expired.
    pub(crate) gaps: u64,
}

/// Follows the feed until it is stopped, and then to its end. Repeats a request that gets no answer.
pub(crate) async fn follow(url: String, seed: u64, expires: bool, ended: watch::Receiver<bool>) -> Seen {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut seen, mut after) = (Seen { expires, ..Seen::default() }, 0);
    loop {
        let last = *ended.borrow();
        let limit = random.random_range(1..40);
        let path = format!("/v1/changes?after={after}&limit={limit}&wait={}", random.random_range(0..2));
        match get(&url, &path).await {
            Some(page) if page["oldest"].is_u64() => {
                let oldest = page["oldest"].as_u64().unwrap();
                assert!(expires && oldest > after + 1, "changes after {after} have not expired: {page}");
                (after, seen.gaps) = (oldest - 1, seen.gaps + 1);
            }
            Some(page) => {
                let changes = page["changes"].as_array().unwrap();
                let position = page["position"].as_u64().unwrap();
                assert_eq!(position, after + changes.len() as u64, "nothing is left out: {page}");
                for (at, change) in (after + 1..).zip(changes) {
                    assert_eq!(change["position"], json!(at), "{change}");
                }
                after = position;
                seen.changes.extend(changes.iter().cloned());
                if last && changes.is_empty() {
                    return seen;
                }
            }
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// The value that a change shows, as a read shows it, less a lease.
fn value(concern: Concern, change: &Value) -> Value {
    match concern {
        Concern::Head | Concern::Index => change["payload"].clone(),
        Concern::Status | Concern::Config => {
            without_lease(json!({ "v": change["watermark"], "payload": change["payload"] }))
        }
    }
}

/// The values that answers reported as stored.
fn reported(entries: &[Entry]) -> BTreeSet<(Spot, String)> {
    let mut reported = BTreeSet::new();
    let mut report =
        |spot: &Spot, value: &Value| reported.insert((spot.clone(), without_lease(value.clone()).to_string()));
    for entry in entries {
        let Some((_, answer)) = entry.returned.as_ref().filter(|(_, answer)| answer.status == 200) else { continue };
        match &*entry.asked {
            Asked::Push(spot, _) if answer.body["status"] == "updated" => drop(report(spot, &answer.body["value"])),
            Asked::Transaction(operations) => {
                for (operation, result) in operations.iter().zip(answer.body["results"].as_array().unwrap()) {
                    if result["status"] == "updated" {
                        report(&spot_of(operation), &result["value"]);
                    }
                }
            }
            _ => {}
        }
    }
    reported
}

/// Every value that clients requested: ids of heads and indexes, numbers of configs.
fn asked(entries: &[Entry]) -> BTreeSet<String> {
    let marks = |body: &Value| [body["new"]["id"].to_string(), body["new"]["payload"]["n"].to_string()];
    entries
        .iter()
        .flat_map(|entry| match &*entry.asked {
            Asked::Push(_, body) => marks(body).to_vec(),
            Asked::Transaction(operations) => operations.iter().flat_map(marks).collect(),
            _ => Vec::new(),
        })
        .collect()
}

/// Judges a feed that was followed beside histories of these records; returns the number of its changes. A feed with gaps is
/// judged by what is left.
pub(crate) async fn judge(url: &str, seen: &Seen, entries: &[Entry], records: &[String], seed: u64) -> usize {
    let Seen { changes: seen, expires, gaps } = seen;
    let is_whole = *gaps == 0;
    // Ordered, and without a gap but where changes had expired.
    for (at, change) in (1_u64..).zip(seen) {
        assert!(!is_whole || change["position"] == json!(at), "{change}");
    }
    let judged: BTreeSet<&str> = records.iter().map(String::as_str).collect();
    let mut by_spot: BTreeMap<Spot, Vec<&Value>> = BTreeMap::new();
    for change in seen.iter().filter(|change| judged.contains(change["address"].as_str().unwrap())) {
        let concern = Concern::ALL.into_iter().find(|concern| change["concern"] == json!(concern.name()));
        if let Some(concern) = concern {
            by_spot.entry(Spot::new(change["address"].as_str().unwrap(), concern)).or_default().push(change);
        }
    }
    let asked = asked(entries);
    let mut shown: BTreeMap<(Spot, String), usize> = BTreeMap::new();
    for (spot, changes) in &by_spot {
        for change in changes {
            let value = value(spot.concern, change);
            let mark = match spot.concern {
                Concern::Head | Concern::Index => value["id"].to_string(),
                Concern::Config => value["payload"]["n"].to_string(),
                Concern::Status => value["payload"].get("n").map_or_else(String::new, Value::to_string),
            };
            // A status without a mark is from a new record or a lease; an unborn value is one that no client requested.
            let unborn = change["watermark"] == json!(0);
            assert!(unborn || mark.is_empty() || asked.contains(&mark), "from nowhere: {change}");
            *shown.entry((spot.clone(), value.to_string())).or_default() += 1;
        }
        // In the order of the commits: watermarks grow, or the revision does.
        for pair in changes.windows(2) {
            let rank = |change: &Value| (change["watermark"].as_i64(), change["payload"]["rev"].as_i64());
            assert!(rank(pair[0]) < rank(pair[1]), "out of order: {} before {}", pair[0], pair[1]);
            let follows = pair[1].get("previous") == pair[0].get("watermark");
            assert!(follows || !is_whole, "{} before {}", pair[0], pair[1]);
        }
    }
    // Complete, and nothing twice.
    for (spot, value) in reported(entries) {
        let times = shown.get(&(spot.clone(), value.clone())).copied().unwrap_or(0);
        let right = if is_whole { times == 1 } else { times <= 1 };
        assert!(right, "{} {} {value} is in the feed {times} times", spot.record, spot.concern.name());
    }
    if !is_whole {
        return seen.len();
    }
    // Consistent with the stored values.
    for record in records {
        let there = get(url, &format!("/v1/records/{record}")).await.unwrap();
        for concern in Concern::ALL {
            let there = without_lease(there[concern.name()].clone());
            let changes = by_spot.get(&Spot::new(record, concern)).map(Vec::as_slice).unwrap_or_default();
            let last = changes.last().map_or_else(|| concern.unborn(), |change| value(concern, change));
            assert_eq!(there, last, "{record} {}", concern.name());
        }
    }
    // Resumable from anywhere that has not expired.
    let oldest = get(url, "/v1/changes?after=0&limit=1").await.unwrap()["oldest"].as_u64();
    assert!(*expires || oldest.is_none(), "the feed begins at {oldest:?}");
    let first = oldest.map_or(0, |oldest| usize::try_from(oldest - 1).unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..5 {
        let after = random.random_range(first..=seen.len());
        let page = get(url, &format!("/v1/changes?after={after}&limit=25")).await.unwrap();
        let until = (after + page["changes"].as_array().unwrap().len()).max(after);
        assert_eq!(page["changes"], json!(seen[after..until]), "after {after}");
        assert!(until > after || after == seen.len(), "after {after}");
    }
    seen.len()
}

/// Waits until the feed has shown every write.
pub(crate) async fn caught_up(url: &str, records: &[String]) {
    let begun = Instant::now();
    for record in records {
        loop {
            let there = get(url, &format!("/v1/records/{record}")).await;
            let changes = get(url, &format!("/v1/history/{record}?limit=100")).await;
            if let (Some(there), Some(changes)) = (there, changes) {
                let v = |change: &&Value| change["concern"] == "status" && change["watermark"] == there["status"]["v"];
                // The last change is the status of a record of its own, written after everything else.
                if changes["changes"].as_array().unwrap().iter().any(|change| v(&change)) {
                    break;
                }
            }
            assert!(begun.elapsed() < LONG, "the feed does not catch up with {record}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A task that follows, and how to end it.
pub(crate) struct Following {
    end: watch::Sender<bool>,
    task: tokio::task::JoinHandle<Seen>,
}

impl Following {
    /// Starts to follow a feed whose changes may expire or not.
    pub(crate) fn start(url: &str, seed: u64, expires: bool) -> Self {
        let (end, ended) = watch::channel(false);
        Self { end, task: tokio::spawn(follow(url.to_owned(), seed, expires, ended)) }
    }

    pub(crate) async fn end(self) -> Arc<Seen> {
        self.end.send(true).unwrap();
        Arc::new(self.task.await.unwrap())
    }
}
