//! Every operation over HTTP: one module per function, and one for each rule that all of them keep.

mod addresses;
mod assets;
pub(crate) mod authorization;
mod bodies;
mod branch_create;
mod branch_drop;
mod branch_list;
mod change_compare;
mod change_list;
mod change_stream;
mod config_push;
mod console_get;
mod content_ids;
mod fluree;
mod fluree_events;
mod freshness;
mod graph_source_publish;
mod head_push;
mod head_reset;
mod health_get;
mod history_list;
mod idempotency;
mod index_push;
mod lease_acquire;
mod lease_release;
mod ledger_create;
mod not_found;
mod openapi_get;
mod protection_set;
mod record_get;
mod record_list;
mod record_purge;
mod record_restore;
mod record_retract;
pub(crate) mod scopes;
mod search_get;
mod secrets;
mod snapshot_get;
mod status_push;
mod transaction_commit;

use std::{fs, path::Path};

use http::{Method, Request};
use http_body_util::Full;
use hyper::body::Bytes;
use nameservice_tests::prelude::*;

#[test]
fn every_function_with_a_route_has_its_tests_here() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut functions = 0;
    for function in fs::read_dir(tests.join("../functions")).unwrap() {
        let function = function.unwrap();
        let code = fs::read_to_string(function.path().join("src/lib.rs")).unwrap();
        if code.contains("pub fn route()") {
            let name = function.file_name().into_string().unwrap();
            assert!(tests.join(format!("routes/{name}.rs")).exists(), "tests/routes/{name}.rs is missing");
            functions += 1;
        }
    }
    assert!(functions > 20, "{functions} functions were found");
}

/// The n-th commit.
fn commit(n: i64) -> Value {
    json!({ "id": cid(n).as_str(), "t": n })
}

/// The n-th index root.
fn root(n: i64) -> Value {
    json!({ "id": index_cid(n).as_str(), "t": n })
}

/// Neither commit nor index.
fn unborn() -> Value {
    json!({ "id": null, "t": 0 })
}

/// A ledger without anything.
async fn ledger(service: &Service, address: &str) -> Value {
    service.post("/v1/ledgers", json!({ "address": address })).await.expect(201)
}

/// A ledger with its t-th commit.
async fn born(service: &Service, address: &str, t: i64) -> Value {
    service.post("/v1/ledgers", json!({ "address": address, "head": commit(t) })).await.expect(201)
}

/// A branch of `name:main`.
async fn branch(service: &Service, name: &str, branch: &str) -> Value {
    let body = json!({ "name": name, "branch": branch, "source": "main" });
    service.post("/v1/branches", body).await.expect(201)
}

/// A graph source that depends on these.
async fn source(service: &Service, address: &str, dependencies: &[&str]) -> Value {
    let body = json!({ "source_type": "f:Bm25Index", "config": { "k1": 1.2 }, "dependencies": dependencies });
    service.put(&format!("/v1/graph-sources/{}", escaped(address)), body).await.expect(201)
}

async fn retract(service: &Service, address: &str) -> Value {
    service.post(&format!("/v1/retractions/{}", escaped(address)), json!({})).await.expect(200)
}

/// What the service shows of a record.
async fn shown(service: &Service, address: &str) -> Value {
    service.get(&format!("/v1/records/{}", escaped(address))).await.expect(200)
}

/// A request whose body is just these bytes.
async fn raw(service: &Service, method: &Method, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut request = Request::builder().method(method).uri(format!("{}{path}", service.url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    service.exchange(request.body(Full::new(Bytes::copy_from_slice(body))).unwrap()).await
}

/// Text with everything escaped that a segment of a path could not hold, and `/` and `:` too.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// The names of an object's members, in order.
fn members(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// The addresses of a page.
fn addresses(page: &Value) -> Vec<&str> {
    page["records"].as_array().unwrap().iter().map(|record| record["address"].as_str().unwrap()).collect()
}

/// A list of texts, in order.
fn sorted(texts: &Value) -> Vec<&str> {
    let mut texts: Vec<_> = texts.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    texts.sort_unstable();
    texts
}

/// Takes the times out of a record; panics unless they are RFC 3339 in UTC.
#[track_caller]
fn timeless(mut record: Value) -> Value {
    let is_time = |time: &Value| {
        let form: String = time.as_str()?.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        let (seconds, fraction) = (form.get(..19)?, form.get(19..)?.strip_suffix('Z')?);
        Some(seconds == "0000-00-00T00:00:00" && fraction.chars().all(|c| matches!(c, '.' | '0')))
    };
    for name in ["created_at", "updated_at"] {
        let time = record.as_object_mut().unwrap().remove(name).unwrap();
        assert_eq!(is_time(&time), Some(true), "{name}: {time}");
    }
    record
}

/// Panics unless the answer rejects the request for this field.
#[track_caller]
fn rejects(answer: Answer, kind: &str, field: &str) {
    let problem = answer.problem(400, kind);
    assert_eq!(problem["field"], field, "{problem:#}");
    assert!(problem["detail"].as_str().unwrap().contains(field) || field == "address", "{problem:#}");
}

/// A service with this many ledgers, each with a config of 200 KiB.
async fn large(count: usize) -> Service {
    let table = Table::fresh().await;
    let text = rows::s("x".repeat(200 * 1024));
    let mut all = Vec::new();
    for i in 0..count {
        let mut rows = rows::ledger(&format!("db{i:03}:main")).context("fluree:ctx", 1).rows();
        let config = rows.iter_mut().find(|row| row["sk"] == rows::s("config")).unwrap();
        config.insert("config_meta".into(), json!({ "M": { "text": text } }));
        all.append(&mut rows);
    }
    table.put_many(&all).await;
    Service::over(table, nameservice_http::Auth::Open).await
}
