//! `serve --upstream`: replicas of a service.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{LONG, Serving, free_address, run, spawn_serve, spawn_serve_with};

pub(super) fn spawn_replica(data: &Path, upstream: &str) -> Serving {
    spawn_serve_with(data, &["--listen", "127.0.0.1:0", "--upstream", upstream])
}

/// Status, headers in small letters, and body of a request.
pub(super) fn ask(url: &str, method: &str, path: &str, body: &str) -> (u16, String, Value) {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split_whitespace().nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), serde_json::from_str(body).unwrap_or(Value::Null))
}

/// The body of an answer that is not JSON.
pub(super) fn text(url: &str, path: &str) -> String {
    let host = url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

pub(super) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Waits until a condition holds.
pub(super) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn position(url: &str) -> u64 {
    let (_, _, answer) = ask(url, "POST", "/v1/changes/compare", "{\"subscriptions\":{}}");
    answer["position"].as_u64().unwrap_or(0)
}

pub(super) fn is_ready(url: &str) -> bool {
    ask(url, "GET", "/v1/records", "").0 == 200
}

pub(super) fn push(url: &str, t: i64) -> u16 {
    let body = format!("{{\"new\":{{\"id\":\"{}\",\"t\":{t}}}}}", super::ID);
    let (status, head, _) = ask(url, "PUT", "/v1/heads/mydb", &body);
    wait_if_not_shown(url, &head, t);
    status
}

/// Waits until a push is shown, if its answer says by an age that the replica does not show it yet: after ten seconds
/// a replica answers all the same.
pub(super) fn wait_if_not_shown(url: &str, head: &str, t: i64) {
    if header(head, "age").is_some() {
        eventually("what was written", || head_t(url) >= t);
    }
}

pub(super) fn head_t(url: &str) -> i64 {
    ask(url, "GET", "/v1/records/mydb", "").2["head"]["t"].as_i64().unwrap_or(-1)
}

#[test]
fn a_replica_answers_reads_and_forwards_writes_that_are_read_immediately() {
    let parent = tempfile::tempdir().unwrap();
    let upstream = spawn_serve(&parent.path().join("upstream"));
    for line in ["create mydb", "branch create mydb:dev --from main", "config mydb {\"password\":\"p\",\"n\":1}"] {
        run(&["--url", &upstream.url], line);
    }
    let replica = spawn_replica(&parent.path().join("replica"), &upstream.url);
    let chained = spawn_replica(&parent.path().join("chained"), &replica.url);
    for url in [&replica.url, &chained.url] {
        eventually("the first snapshot", || is_ready(url));
    }
    for t in 1..30 {
        let url = if t % 2 == 0 { &replica.url } else { &chained.url };
        assert_eq!(push(url, t), 200);
        assert_eq!(head_t(url), t, "whoever writes at a replica reads it there");
        assert_eq!(head_t(&upstream.url), t);
    }
    // Conflicts, stale writes and unknown records are the upstream's answers.
    assert_eq!(run(&["--url", &replica.url], "push head mydb OTHER 3 --monotonic").0, 9);
    assert_eq!(run(&["--url", &replica.url], "push head nowhere ID 1 --monotonic").0, 4);
    assert_eq!(run(&["--url", &replica.url], "config mydb {\"password\":\"q\"}").0, 0);
    for line in ["create x --source-type f:T --depends-on mydb", "retract x", "restore x", "purge x --yes"] {
        assert_eq!(run(&["--url", &chained.url], line).0, 0, "{line}");
    }
    // The same positions, changes and records everywhere.
    let end = position(&upstream.url);
    for url in [&replica.url, &chained.url] {
        eventually("the end of the feed", || position(url) == end);
        let (of_upstream, of_replica) =
            (ask(&upstream.url, "GET", "/v1/snapshot", ""), ask(url, "GET", "/v1/snapshot", ""));
        assert_eq!(of_replica.2["records"], of_upstream.2["records"]);
        let (code, _, answer) = ask(url, "GET", &format!("/v1/changes?after={}", end - 3), "");
        let expected = ask(&upstream.url, "GET", &format!("/v1/changes?after={}", end - 3), "");
        assert_eq!((code, answer), (200, expected.2));
        let (_, head, _) = ask(url, "GET", "/v1/records/mydb", "");
        assert_eq!(header(&head, "nameservice-position"), Some(end.to_string().as_str()));
        let age = |head: &str| header(head, "age").unwrap_or_else(|| panic!("{head}")).parse::<u64>().unwrap();
        eventually("a small age", || age(&ask(url, "GET", "/v1/records/mydb", "").1) < 20);
        eventually("health", || ask(url, "GET", "/v1/health", "").2["status"] == "ok");
        let age = || {
            let metrics = text(url, "/metrics");
            let age = metrics.lines().find_map(|line| line.strip_prefix("nameservice_replica_age_seconds "));
            age.unwrap_or_else(|| panic!("{metrics}")).parse::<f64>().unwrap()
        };
        eventually("a small age", || age() < 20.0);
    }
    let doctor = run(&["--data", parent.path().join("replica").to_str().unwrap()], "list");
    assert!(doctor.0 != 0 && doctor.2.contains("in use"), "{doctor:?}");
}

#[test]
fn a_replica_whose_position_is_not_in_the_feed_begins_again() {
    let parent = tempfile::tempdir().unwrap();
    let listen = free_address();
    let mut upstream = spawn_serve_with(&parent.path().join("first"), &["--listen", &listen]);
    for line in ["create mydb", "create other", "create third"] {
        run(&["--url", &upstream.url], line);
    }
    let replica = spawn_replica(&parent.path().join("replica"), &upstream.url);
    eventually("the first snapshot", || is_ready(&replica.url));
    upstream.kill();
    // Another feed at the same URL: it has other positions, and the replica discards what it had.
    let upstream = spawn_serve_with(&parent.path().join("second"), &["--listen", &listen]);
    run(&["--url", &upstream.url], "create fresh");
    eventually("the other records", || {
        ask(&replica.url, "GET", "/v1/records/fresh", "").0 == 200
            && ask(&replica.url, "GET", "/v1/records/mydb", "").0 == 404
    });
    assert_eq!(position(&replica.url), position(&upstream.url));
}

#[test]
fn locations_of_what_was_created_are_below_the_path_of_the_service_that_was_asked() {
    let parent = tempfile::tempdir().unwrap();
    let below = |name: &str, options: &[&str]| {
        spawn_serve_with(&parent.path().join(name), &[&["--listen", "127.0.0.1:0"], options].concat())
    };
    // The path is one that the log on stdout has, or not.
    let bare = |url: &str| url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    let upstream = below("upstream", &["--base-path", "/up"]);
    let upstream = (bare(&upstream.url), upstream);
    let replica = below("replica", &["--upstream", &format!("{}/up", upstream.0), "--base-path", "/here/it/is"]);
    let replica = (bare(&replica.url), replica);
    let chained = below("chained", &["--upstream", &format!("{}/here/it/is", replica.0)]);
    let chained = (bare(&chained.url), chained);
    for (name, url, base) in [("a", &upstream.0, "/up"), ("b", &replica.0, "/here/it/is"), ("c", &chained.0, "")] {
        eventually("the first snapshot", || ask(url, "GET", &format!("{base}/v1/records"), "").0 == 200);
        let body = format!("{{\"address\":\"{name}\"}}");
        let (status, head, _) = ask(url, "POST", &format!("{base}/v1/ledgers"), &body);
        assert_eq!(status, 201, "{head}");
        let location = header(&head, "location").unwrap();
        assert_eq!(location, format!("{base}/v1/records/{name}:main"));
        assert_eq!(ask(url, "GET", location, "").0, 200, "it leads to the record at the same service");
    }
}

#[test]
fn the_deep_health_of_a_replica_whose_upstream_is_away_is_degraded() {
    let parent = tempfile::tempdir().unwrap();
    let mut upstream = spawn_serve(&parent.path().join("upstream"));
    run(&["--url", &upstream.url], "create mydb");
    let replica = spawn_replica(&parent.path().join("replica"), &upstream.url);
    eventually("the first snapshot", || is_ready(&replica.url));
    for path in ["/v1/health", "/v1/health?deep=true"] {
        eventually("health", || ask(&replica.url, "GET", path, "").2["status"] == "ok");
    }
    upstream.kill();
    // A write finds it away. Reads continue, and the replica is no outage of its own.
    assert_eq!(push(&replica.url, 1), 503);
    for path in ["/v1/health", "/v1/health?deep=true"] {
        eventually("the failure of the upstream", || ask(&replica.url, "GET", path, "").2["status"] == "degraded");
        let (status, _, health) = ask(&replica.url, "GET", path, "");
        assert_eq!((status, &health["replica"]["upstream"]), (200, &Value::from(upstream.url.as_str())), "{health}");
        assert!(health["replica"]["reason"].is_string() && health["capabilities"].is_object(), "{health}");
        assert!(health["replica"]["age"].is_u64(), "{health}");
    }
    assert_eq!(ask(&replica.url, "GET", "/v1/records/mydb", "").0, 200);
    assert_eq!(run(&["--url", &replica.url], "health --deep").0, 0);
}
