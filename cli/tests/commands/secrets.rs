//! What a service writes besides its answers: its log at the finest level, its metrics, its events. None of it contains a secret of
//! a configuration, a payload or a token.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use super::*;

/// In every place where a request can hold a secret.
const CANARY: &str = "canary-93ab17";

fn exchange(address: &str, token: &str, method: &str, path: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         {headers}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    // A stream of events has no end: what it must show is waited for.
    let shows = |answer: &[u8], words: &str| String::from_utf8_lossy(answer).contains(words);
    while !(shows(&answer, "last:main") && shows(&answer, "search:main") && shows(&answer, "[redacted]")) {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(read) => answer.extend_from_slice(&part[..read]),
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn no_secret_is_in_the_log_the_metrics_or_the_events_of_a_service() {
    let directory = tempfile::tempdir().unwrap();
    let token = format!("token-{CANARY}");
    let mut command = program();
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--log-level", "trace"]);
    command.args(["--dev-token", &token, "--data"]).arg(directory.path());
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut banner = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut banner).unwrap();
    let address = banner.split_whitespace().find_map(|word| word.strip_prefix("http://")).unwrap();
    let address = address.trim_end_matches(',').to_owned();
    let mut log = process.stderr.take().unwrap();
    let log = std::thread::spawn(move || {
        let mut text = String::new();
        log.read_to_string(&mut text).unwrap();
        text
    });
    let ask = |method: &str, path: &str, body: &str| exchange(&address, &token, method, path, "", body);

    let config = format!(
        r#"{{"password": "{CANARY}", "url": "pg://u:{CANARY}@db/x", "nested": {{"apiKey": "{CANARY}"}}, "k1": 1}}"#
    );
    let source = format!(r#"{{"source_type": "f:Bm25Index", "config": {config}}}"#);
    let graphql = |document: String| serde_json::json!({ "query": document, "variables": { "c": CANARY } }).to_string();
    let create =
        format!(r#"mutation {{ createLedger(address: "g", config: {{ password: "{CANARY}" }}) {{ __typename }} }}"#);
    let typed = format!(r#"mutation {{ createLedger(address: "{CANARY}:x:y", config: "{CANARY}") {{ __typename }} }}"#);
    for (method, path, body, status) in [
        ("POST", "/v1/ledgers", format!(r#"{{"address": "mydb", "config": {config}}}"#), 201),
        ("PUT", "/v1/graph-sources/search", source, 201),
        ("PUT", "/v1/configs/mydb", format!(r#"{{"expected": {{"v": 1}}, "new": {{"payload": {config}}}}}"#), 200),
        // Rejected, with a secret in the invalid part.
        ("PUT", "/v1/configs/mydb", format!(r#"{{"expected": {{"v": 9}}, "new": {{"payload": {config}}}}}"#), 409),
        ("POST", "/v1/ledgers", format!(r#"{{"address": "other", "config": "{CANARY}"}}"#), 400),
        ("POST", "/v1/ledgers", format!(r#"{{"address": "other", "config": {{"password": "{CANARY}"#), 400),
        ("POST", "/graphql", graphql(create), 200),
        ("POST", "/graphql", graphql(typed), 200),
        ("POST", "/graphql", graphql(format!("{{ {CANARY} }}")), 200),
        ("POST", "/graphql", format!(r#"{{"query": ["{CANARY}"]}}"#), 400),
        ("GET", "/v1/records/mydb", String::new(), 200),
        ("POST", "/v1/ledgers", r#"{"address": "last"}"#.to_owned(), 201),
    ] {
        let answer = ask(method, path, &body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{method} {path} {body}: {answer}");
    }
    let rejected = exchange(&address, &format!("wrong-{CANARY}"), "GET", "/v1/records", "", "");
    assert!(rejected.starts_with("HTTP/1.1 401") && !rejected.contains(CANARY), "{rejected}");

    for (path, headers) in [
        ("/metrics", ""),
        ("/v1/changes?after=0&limit=1000", ""),
        ("/v1/history/mydb", ""),
        ("/v1/events", "last-event-id: 0\r\n"),
        ("/fluree/events?all=true", ""),
    ] {
        let answer = exchange(&address, &token, "GET", path, headers, "");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        assert!(!answer.contains(CANARY), "{path}: {answer}");
        assert!(path == "/metrics" || answer.contains("[redacted]"), "{path} shows the configurations: {answer}");
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let log = log.join().unwrap();
    assert!(log.lines().count() > 10, "{log}");
    let found: Vec<_> = log.lines().filter(|line| line.contains(CANARY)).collect();
    assert!(found.is_empty(), "{found:#?}");
}
