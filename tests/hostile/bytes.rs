//! Bodies and parameters with wrong bytes and values, mutated from valid ones.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, Request};
use http_body_util::Full;
use nameservice_tests::{
    prelude::*,
    seeds::{SEED, number, seeds},
};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::{ledger, unharmed};

/// How many bodies of each kind.
const BODIES: &str = "NAMESERVICE_HOSTILE_BODIES";
const DEFAULT_BODIES: u64 = 60;

static TRIED: AtomicU64 = AtomicU64::new(0);

/// Requests that would be applied if their expected values matched: they never do, so that a valid mutation changes nothing.
fn requests() -> Vec<(Method, &'static str, Value)> {
    let head = |n: i64| json!({ "id": cid(n).as_str(), "t": n });
    let claim = json!({ "name": "index_lock", "holder": "h", "token": 77 });
    let push = |new: Value, expected: Value| json!({ "expected": expected, "new": new, "lease": claim });
    let counter = |v: i64| json!({ "v": v });
    vec![
        (
            Method::POST,
            "/v1/ledgers",
            json!({ "address": "mydb", "head": head(2), "config": { "a": [1, 2.5, null, "x"] } }),
        ),
        (Method::PUT, "/v1/heads/mydb", push(head(2), head(9))),
        (
            Method::PUT,
            "/v1/indexes/mydb",
            push(json!({ "id": index_cid(2).as_str(), "t": 2, "graphs": { "g": head(1) } }), head(9)),
        ),
        (
            Method::PUT,
            "/v1/statuses/mydb",
            push(json!({ "v": 99, "payload": { "state": "x", "n": { "m": [true] } } }), counter(77)),
        ),
        (
            Method::PUT,
            "/v1/configs/mydb",
            push(json!({ "v": 99, "payload": { "default_context_id": cid(1).as_str() } }), counter(77)),
        ),
        (
            Method::PUT,
            "/v1/graph-sources/mydb",
            json!({ "source_type": "t", "config": { "k": 1 }, "dependencies": ["a"], "expected_v": 7 }),
        ),
        (Method::POST, "/v1/branches", json!({ "name": "mydb", "branch": "main", "source": "other", "at": head(1) })),
        (Method::POST, "/v1/resets/nobody", json!({ "head": head(1), "index": head(1) })),
        (Method::PUT, "/v1/protections/nobody", json!({ "protected": true })),
        (Method::POST, "/v1/retractions/nobody", json!({ "reason": "why" })),
        (
            Method::PUT,
            "/v1/leases/nobody",
            json!({ "name": "index_lock", "holder": "h", "ttl_seconds": 5, "target_t": 1 }),
        ),
        (
            Method::POST,
            "/v1/transactions",
            json!({ "operations": [
                { "op": "push_head", "address": "mydb", "expected": head(9), "new": head(2), "lease": claim },
                { "op": "check", "address": "mydb", "concern": "status", "expected": counter(77) },
            ] }),
        ),
        (
            Method::POST,
            "/v1/changes/compare",
            json!({ "subscriptions": { "mydb:main": { "commit_t": 7, "kind": "ledger" } } }),
        ),
        (Method::POST, "/fluree/nameservice/refs/mydb:main/commit", json!({ "expected": head(9), "new": head(2) })),
    ]
}

/// Values that numbers, texts and objects are replaced with.
fn strange() -> Vec<String> {
    let mut strange: Vec<String> = [
        "2147483648",
        "9007199254740991",
        "9007199254740992",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "1e400",
        "-1e400",
        "1e-400",
        "1.5",
        "-0",
        "-0.0",
        "1E2",
        "0x10",
        "01",
        "NaN",
        "Infinity",
        "null",
        "true",
        "[]",
        "{}",
        "[[]]",
        "[null]",
        r#"{"":1}"#,
        r#"{"a":1,"a":2}"#,
        r#""""#,
        r#"" ""#,
        r#""\u0000""#,
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#""a:b:c""#,
        r#""../..""#,
        r#""%2e""#,
        r#""\\""#,
        r#""'; DROP TABLE records; --""#,
        r#""=cmd|'/c calc'!A1""#,
    ]
    .map(str::to_owned)
    .to_vec();
    strange.push("9".repeat(400));
    strange.push(format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000)));
    strange.push(format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000)));
    strange.push(format!("\"{}\"", "x".repeat(10_000)));
    strange.push(format!("\"{}\"", "\u{1F980}".repeat(600)));
    strange.push(format!("[{}1]", "1,".repeat(20_000)));
    strange
}

/// A JSON text with one of its values replaced.
pub(crate) fn replaced(body: &Value, random: &mut StdRng) -> Vec<u8> {
    const MARK: &str = "\u{e000}here\u{e000}";
    let (mut pointer, mut at) = (String::new(), body);
    while random.random_bool(0.7) {
        let step = match at {
            Value::Object(members) => members.keys().cloned().collect::<Vec<_>>().choose(random).cloned(),
            Value::Array(values) => (0..values.len()).collect::<Vec<_>>().choose(random).map(usize::to_string),
            _ => None,
        };
        let Some(step) = step else { break };
        pointer = format!("{pointer}/{step}");
        at = body.pointer(&pointer).unwrap();
    }
    let mut body = body.clone();
    *body.pointer_mut(&pointer).unwrap() = MARK.into();
    let strange = strange();
    body.to_string().replace(&format!("\"{MARK}\""), strange.choose(random).unwrap()).into_bytes()
}

/// Bytes with some of them changed, lost, doubled or moved.
fn damaged(mut bytes: Vec<u8>, random: &mut StdRng) -> Vec<u8> {
    for _ in 0..random.random_range(1..6) {
        let at = random.random_range(0..bytes.len().max(1)).min(bytes.len().saturating_sub(1));
        match random.random_range(0..6) {
            0 if !bytes.is_empty() => bytes[at] = random.random(),
            1 if !bytes.is_empty() => drop(bytes.remove(at)),
            2 => bytes.insert(at.min(bytes.len()), *b"{}[]\",:\\0\xff\xc0\x00".choose(random).unwrap()),
            3 => bytes.truncate(at),
            4 => {
                let copy = bytes[at..(at + 20).min(bytes.len())].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => bytes.reverse(),
        }
    }
    bytes
}

async fn try_body(service: &Service, method: &Method, path: &str, body: Vec<u8>, why: &str) {
    TRIED.fetch_add(1, Ordering::Relaxed);
    let shown = String::from_utf8_lossy(&body[..body.len().min(300)]).into_owned();
    let request = Request::builder()
        .method(method)
        .uri(format!("{}{path}", service.url()))
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap();
    let answer = service.exchange(request).await;
    assert!(answer.status.as_u16() < 500, "{why}: {method} {path} {shown}\n{answer:#?}");
    if !answer.status.is_success() && !path.starts_with("/fluree") {
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json"),
            "{why}: {path} {shown}\n{answer:#?}"
        );
        let detail = answer.body["detail"].as_str().unwrap();
        assert!(!detail.is_empty() && detail.len() < 2_000, "{detail}");
    }
}

#[tokio::test]
async fn bodies_with_bytes_and_values_out_of_place_never_fail_the_service() {
    let service = Service::start().await;
    let before = ledger(&service).await;
    let seed = seeds(1).next().unwrap();
    let bodies = number(BODIES).unwrap_or(DEFAULT_BODIES);
    let why = format!("{SEED}={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for (method, path, body) in requests() {
        for n in 0..bodies {
            let bytes = match n % 3 {
                0 => replaced(&body, &mut random),
                1 => damaged(body.to_string().into_bytes(), &mut random),
                _ => damaged(replaced(&body, &mut random), &mut random),
            };
            try_body(&service, &method, path, bytes, &why).await;
        }
        for size in [256 * 1024 + 1, 300 * 1024, 2 << 20] {
            let text = format!("{{\"x\":\"{}\"}}", "y".repeat(size));
            try_body(&service, &method, path, text.into_bytes(), &why).await;
        }
    }
    unharmed(&service, &before).await;
    println!("{} bad bodies tried, none stored, none answered with a failure", TRIED.load(Ordering::Relaxed));
}

#[tokio::test]
async fn parameters_out_of_place_never_fail_the_service() {
    let service = Service::start().await;
    let before = ledger(&service).await;
    let mut tried = 0;
    for path in [
        "/v1/records",
        "/v1/snapshot",
        "/v1/records/mydb",
        "/v1/branches/mydb",
        "/v1/leases/mydb",
        "/v1/health",
        "/v1/changes",
        "/v1/history/mydb",
        "/fluree/nameservice/snapshot",
    ] {
        for name in [
            "limit",
            "cursor",
            "kind",
            "after",
            "concerns",
            "concern",
            "address",
            "retracted",
            "view",
            "token",
            "name",
            "deep",
            "nonsense",
        ] {
            for value in [
                "",
                "%00",
                "%FF",
                "-1",
                "0",
                "1.5",
                "99999999999999999999",
                "true",
                "null",
                "%F0%9F%A6%80",
                "a%26b%3Dc",
                "../..",
                "eyJrIjoibGVkZ2VyIiwiYSI6IiJ9",
                "eyJrIjoibGVkZ2VyIiwiYSI6Im15ZGI6bWFpbiIsInAiOjk5OTk5OTk5OTk5OTk5OTk5OTl9",
                "%",
            ] {
                for query in
                    [format!("{name}={value}"), format!("{name}={value}&{name}={value}"), format!("{name}[]={value}")]
                {
                    tried += 1;
                    let method = if path.contains("leases") { Method::DELETE } else { Method::GET };
                    let answer = service.send(method, &format!("{path}?{query}"), &[], None).await;
                    assert!(answer.status.as_u16() < 500, "{path}?{query}\n{answer:#?}");
                }
            }
        }
    }
    unharmed(&service, &before).await;
    println!("{tried} bad parameters tried");
}
