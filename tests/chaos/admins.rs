//! Administrators who retract and restore records, beside clients who push to them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Method;
use nameservice_tests::{cids::id_of, prelude::*, service::client};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use tokio::time::sleep;

use crate::history::{feed::Seen, replicas::ask};

/// The outcome of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Applied,
    /// Certainly not applied.
    Rejected,
    Unknown,
}

/// The pushes to a record by its one client, by their `t`, each sent once.
pub(super) type Pushes = BTreeMap<i64, Outcome>;

fn problem(answer: &Value) -> &str {
    answer["type"].as_str().and_then(|kind| kind.rsplit('/').next()).unwrap_or_default()
}

/// Pushes heads to a record until it is stopped.
pub(super) async fn push(urls: Vec<String>, record: String, seed: u64, stop: Arc<AtomicBool>) -> PushesOf {
    let (http, mut random) = (client(), StdRng::seed_from_u64(seed));
    let mut pushes = Pushes::new();
    for t in 1.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let url = format!("{}/v1/heads/{record}", urls.choose(&mut random).unwrap());
        let body = json!({ "new": { "id": id_of(&format!("{record} {t}")).as_str(), "t": t } });
        let outcome = match ask(&http, Method::PUT, &url, Some(body)).await {
            None => Outcome::Unknown,
            Some((200, _, answer)) if answer["status"] == "updated" => Outcome::Applied,
            Some((410, _, answer)) if problem(&answer) == "retracted" => Outcome::Rejected,
            Some((503, _, answer)) if problem(&answer) == "unavailable" => Outcome::Rejected,
            Some((503, ..)) => Outcome::Unknown,
            // No other client pushes to the record, and `t` only grows: nothing else can reject a push.
            Some((status, _, answer)) => panic!("{url}: {status} {answer}"),
        };
        pushes.insert(t, outcome);
        let pause = Duration::from_millis(random.random_range(5..60));
        sleep(pause).await;
    }
    PushesOf { record, pushes }
}

/// What was pushed to a record.
pub(super) struct PushesOf {
    record: String,
    pushes: Pushes,
}

/// Retracts and restores a record in turns until it is stopped; then it is live. Returns how many calls were answered.
pub(super) async fn administer(
    urls: Vec<String>,
    service: String,
    record: String,
    seed: u64,
    stop: Arc<AtomicBool>,
) -> u64 {
    let (http, mut random) = (client(), StdRng::seed_from_u64(seed));
    let (mut answered, mut is_open) = (0, false);
    loop {
        for (path, retracted) in [("retractions", true), ("restorations", false)] {
            let url = format!("{}/v1/{path}/{record}", urls.choose(&mut random).unwrap());
            match ask(&http, Method::POST, &url, Some(json!({}))).await {
                Some((200, _, answer)) => {
                    assert_eq!(answer["retracted"], json!(retracted), "{url}: {answer}");
                    answered += 1;
                }
                // It may be applied at any time from here on.
                None | Some((503, ..)) => is_open = true,
                Some((status, _, answer)) => panic!("{url}: {status} {answer}"),
            }
            if !is_open {
                let url = format!("{service}/v1/records/{record}");
                if let Some((200, _, shown)) = ask(&http, Method::GET, &url, None).await {
                    assert_eq!(shown["retracted"], json!(retracted), "{shown}");
                }
            }
            let pause = Duration::from_millis(random.random_range(20..400));
            sleep(pause).await;
        }
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    loop {
        let url = format!("{service}/v1/restorations/{record}");
        if let Some((200, ..)) = ask(&http, Method::POST, &url, None).await {
            return answered;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

impl PushesOf {
    /// Checks the pushes against the feed: each acknowledged push is there once, no rejected one is, and none was applied while the
    /// record was retracted. Returns how many pushes there were.
    pub(super) fn judge(&self, seen: &Seen) -> u64 {
        let Self { record, pushes } = self;
        let of_record = || seen.changes.iter().filter(|change| change["address"] == json!(record));
        let mut times: BTreeMap<i64, usize> = BTreeMap::new();
        for change in of_record().filter(|change| change["concern"] == "head") {
            if matches!(change["change"].as_str(), Some("created" | "updated")) {
                *times.entry(change["watermark"].as_i64().unwrap()).or_default() += 1;
            }
        }
        for (t, outcome) in pushes {
            let times = times.get(t).copied().unwrap_or(0);
            let right = match outcome {
                Outcome::Applied => times == 1 || (times == 0 && seen.gaps > 0),
                Outcome::Rejected => times == 0,
                Outcome::Unknown => times <= 1,
            };
            assert!(right, "the push of t {t} to {record} was {outcome:?}, but is in the feed {times} times");
        }
        // After a gap, it is unknown whether the record is retracted.
        if seen.gaps == 0 {
            let mut retracted: BTreeMap<&str, bool> = BTreeMap::new();
            for change in of_record() {
                let is_retracted = retracted.entry(change["concern"].as_str().unwrap()).or_default();
                match change["change"].as_str().unwrap() {
                    "retracted" => assert!(!std::mem::replace(is_retracted, true), "twice: {change}"),
                    "restored" => assert!(std::mem::replace(is_retracted, false), "it was live: {change}"),
                    _ => assert!(!*is_retracted, "it was retracted: {change}"),
                }
            }
        }
        pushes.len() as u64
    }
}

#[test]
fn a_lost_a_rejected_and_a_forbidden_push_are_noticed() {
    let change = |concern: &str, kind: &str, watermark: i64| json!({ "address": "a:main", "concern": concern, "change": kind, "watermark": watermark });
    let is_right = |outcome: Outcome, changes: &[Value]| {
        let of_record = PushesOf { record: "a:main".into(), pushes: Pushes::from([(1, outcome)]) };
        let seen = Seen { changes: changes.to_vec(), ..Seen::default() };
        std::panic::catch_unwind(move || of_record.judge(&seen)).is_ok()
    };
    let (pushed, retracted, restored) =
        (change("head", "updated", 1), change("head", "retracted", 0), change("head", "restored", 0));
    assert!(is_right(Outcome::Applied, std::slice::from_ref(&pushed)));
    assert!(is_right(Outcome::Rejected, &[retracted.clone(), restored.clone()]));
    assert!(is_right(Outcome::Unknown, &[]));
    for (name, outcome, changes) in [
        ("lost", Outcome::Applied, vec![]),
        ("applied twice", Outcome::Applied, vec![pushed.clone(), pushed.clone()]),
        ("rejected, and applied", Outcome::Rejected, vec![pushed.clone()]),
        ("applied to a retracted record", Outcome::Applied, vec![retracted.clone(), pushed.clone(), restored.clone()]),
        ("restored though it was live", Outcome::Applied, vec![pushed, restored]),
    ] {
        assert!(!is_right(outcome, &changes), "accepted: {name}");
    }
}
