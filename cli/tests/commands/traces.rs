//! `serve --otlp`: what a collector is sent.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use serde_json::Value;

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0bc902b7";
const CANARY: &str = "canary-7e11d0";

/// A collector that accepts everything: its address, and the documents that it was sent.
fn collector() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, sender) = (stream.unwrap(), sender.clone());
            std::thread::spawn(move || while answer(&stream, &sender) {});
        }
    });
    (url, received)
}

/// Answers one request of a connection; false if there is none.
fn answer(stream: &TcpStream, sender: &mpsc::Sender<Value>) -> bool {
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    if !matches!(reader.read_line(&mut line), Ok(1..)) {
        return false;
    }
    assert!(line.starts_with("POST /v1/traces "), "{line}");
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    sender.send(serde_json::from_slice(&body).unwrap()).unwrap();
    (&mut &*stream)
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}")
        .is_ok()
}

/// The spans of the documents, each with its attributes as an object.
fn spans(documents: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let lists = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for document in documents {
        for resource in lists(&document, "resourceSpans") {
            for scope in lists(&resource, "scopeSpans") {
                found.extend(lists(&scope, "spans"));
            }
        }
    }
    found
}

/// Sends a request of a trace. Returns its answer.
fn send(url: &str, route: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    write!(
        stream,
        "{route} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {CANARY}\r\nconnection: close\r\n\
         traceparent: 00-{TRACE}-{PARENT}-01\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The spans that a service has sent once it has stopped: what was not sent yet is sent at the end.
#[cfg(unix)]
fn stopped(service: &mut Serving, received: &mpsc::Receiver<Value>, names: &[&str]) -> Vec<Value> {
    Command::new("kill").args(["-TERM", &service.process.id().to_string()]).status().unwrap();
    service.process.wait().unwrap();
    let mut found: Vec<Value> = Vec::new();
    while !names.iter().all(|name| found.iter().any(|span| span["name"] == *name)) {
        let document =
            received.recv_timeout(LONG).unwrap_or_else(|error| panic!("no document with {names:?}: {error}"));
        assert!(!document.to_string().contains(CANARY), "{document}");
        assert!(document.to_string().contains("\"nameservice\""), "it names the service: {document}");
        found.extend(spans([document]));
    }
    found
}

#[cfg(unix)]
fn named<'a>(found: &'a [Value], name: &str) -> &'a Value {
    found.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{name}: {found:#?}"))
}

#[cfg(unix)]
#[test]
fn the_consumer_of_the_stream_continues_the_trace_that_the_write_links_to() {
    let (url, received) = collector();
    let engine = engine::Engine::start();
    let options = ["--listen", "127.0.0.1:0", "--endpoint-url", engine.url(), "--otlp", &url];
    let mut service = spawn(&options);
    let created = send(&service.url, "POST /v1/ledgers", &format!(r#"{{"address": "{CANARY}"}}"#));
    assert!(created.starts_with("HTTP/1.1 201"), "{created}");
    let body = format!(r#"{{"new": {{"id": "{ID}", "t": 1}}}}"#);
    let pushed = send(&service.url, &format!("PUT /v1/heads/{CANARY}"), &body);
    assert!(pushed.starts_with("HTTP/1.1 200"), "{pushed}");
    let found = stopped(&mut service, &received, &["PUT /v1/heads/{address}", "append a change", "consume"]);
    let request = named(&found, "PUT /v1/heads/{address}");
    assert_eq!(request["traceId"].as_str().unwrap().to_lowercase(), TRACE);
    let link = &request["links"][0];
    let continues =
        |span: &&Value| span["traceId"] == link["traceId"] && span["parentSpanId"] == link["spanId"] && !link.is_null();
    let appended = found.iter().find(continues).unwrap_or_else(|| panic!("{link}: {found:#?}"));
    assert_eq!(appended["name"], "append a change");
    // The work of the consumer for it, in a batch with others.
    let around = &appended["links"][0];
    let batch = found.iter().find(|span| span["spanId"] == around["spanId"]).unwrap();
    assert_eq!(batch["name"], "consume");
    assert!(found.iter().any(|span| span["parentSpanId"] == batch["spanId"]), "requests to the table: {found:#?}");
}

#[cfg(unix)]
#[test]
fn a_request_continues_the_trace_of_its_caller_down_to_the_log_and_shows_no_payload() {
    let (url, received) = collector();
    let directory = tempfile::tempdir().unwrap();
    let mut service = spawn_serve_with(directory.path(), &["--listen", "127.0.0.1:0", "--otlp", &url]);
    let body = format!(r#"{{"address": "{CANARY}", "config": {{"password": "{CANARY}"}}}}"#);
    let answer = send(&service.url, "POST /v1/ledgers", &body);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let found = stopped(&mut service, &received, &["POST /v1/ledgers"]);
    let named = |name: &str| named(&found, name);
    let (request, write) = (named("POST /v1/ledgers"), named("create a ledger"));
    assert_eq!(request["traceId"].as_str().unwrap().to_lowercase(), TRACE);
    assert_eq!(request["parentSpanId"].as_str().unwrap().to_lowercase(), PARENT);
    assert_eq!((&write["traceId"], &write["parentSpanId"]), (&request["traceId"], &request["spanId"]));
    let attributes = request["attributes"].to_string();
    for word in ["/v1/ledgers", "201", "http.route"] {
        assert!(attributes.contains(word), "{word}: {attributes}");
    }
}

#[test]
fn a_collector_that_is_away_keeps_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--listen", "127.0.0.1:0", "--otlp", "http://127.0.0.1:1"];
    let service = spawn_serve_with(directory.path(), &options);
    assert_eq!(run(&["--url", &service.url], "create mydb").0, 0);
    assert_eq!(run(&["--url", &service.url], "show mydb").0, 0);
}

#[test]
fn a_collector_without_a_usable_url_is_bad_usage() {
    for url in ["nowhere", "ftp://127.0.0.1"] {
        let (code, _, stderr) = run(&[], &format!("serve --memory --otlp {url}"));
        assert!(code == 2 && stderr.contains("--otlp"), "{code} {stderr}");
    }
}
