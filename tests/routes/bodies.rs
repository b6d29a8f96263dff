//! What a body may be, whichever operation takes it (docs/specification.md, HTTP).

use super::*;

const LIMIT: usize = 256 * 1024;
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

struct Operation {
    method: Method,
    path: &'static str,
    /// A body that is accepted.
    good: Value,
    /// Its required members.
    required: &'static [&'static str],
}

fn operations() -> Vec<Operation> {
    let of = |method: Method, path, good, required| Operation { method, path, good, required };
    vec![
        of(Method::POST, "/v1/ledgers", json!({ "address": "new" }), &["address"]),
        of(Method::PUT, "/v1/heads/mydb", json!({ "new": commit(5) }), &["new"]),
        of(Method::PUT, "/v1/indexes/mydb", json!({ "new": root(5) }), &["new"]),
        of(
            Method::PUT,
            "/v1/statuses/mydb",
            json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "x" } } }),
            &["expected", "new"],
        ),
        of(
            Method::PUT,
            "/v1/configs/mydb",
            json!({ "expected": { "v": 0 }, "new": { "payload": {} } }),
            &["expected", "new"],
        ),
        of(
            Method::PUT,
            "/v1/graph-sources/search",
            json!({ "source_type": "t", "config": {} }),
            &["source_type", "config"],
        ),
        of(
            Method::POST,
            "/v1/branches",
            json!({ "name": "mydb", "branch": "dev", "source": "main" }),
            &["name", "branch", "source"],
        ),
        of(Method::POST, "/v1/resets/mydb", json!({ "head": unborn(), "index": unborn() }), &["head", "index"]),
        of(Method::POST, "/v1/changes/compare", json!({ "subscriptions": { "mydb": {} } }), &["subscriptions"]),
        of(Method::POST, "/v1/retractions/mydb", json!({ "reason": "x" }), &[]),
        of(Method::PUT, "/v1/protections/mydb", json!({ "protected": true }), &["protected"]),
    ]
}

async fn send(service: &Service, operation: &Operation, body: impl AsRef<[u8]>) -> Answer {
    raw(service, &operation.method, operation.path, JSON, body.as_ref()).await
}

#[tokio::test]
async fn a_body_that_is_not_the_json_asked_for_is_rejected_and_its_field_named() {
    let service = Service::start().await;
    let before = born(&service, "mydb", 1).await;
    for operation in operations() {
        let good = operation.good.to_string();
        for missing in operation.required {
            let mut body = operation.good.clone();
            body.as_object_mut().unwrap().remove(*missing);
            rejects(send(&service, &operation, body.to_string()).await, "invalid-body", missing);
        }
        let surplus = good.replacen('{', r#"{"surplus": 1, "#, 1);
        rejects(send(&service, &operation, surplus).await, "invalid-body", "surplus");
        let first = members(&operation.good)[0].to_owned();
        let twice = good.replacen('{', &format!(r#"{{"{first}": {}, "#, operation.good[&first]), 1);
        rejects(send(&service, &operation, twice).await, "invalid-body", &first);
        let deep = format!("{}{}", r#"{"a":["#.repeat(10_000), "]}".repeat(10_000));
        let broken = [
            good.trim_end_matches('}').as_bytes().to_vec(),
            format!("{good} x").into_bytes(),
            format!("{good}{good}").into_bytes(),
            [b"{\"a\": \"\xff\xfe\"}".as_slice()].concat(),
            good.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            deep.into_bytes(),
            b"[".repeat(100_000),
            b"null".to_vec(),
            b"1".to_vec(),
            b"\"text\"".to_vec(),
            b"NaN".to_vec(),
            b" ".to_vec(),
        ];
        for body in broken {
            let problem = send(&service, &operation, &body).await.problem(400, "invalid-body");
            let shown = problem["detail"].as_str().unwrap();
            assert!(!shown.is_empty() && shown.len() < 1000, "{problem}");
        }
        if !operation.required.is_empty() {
            send(&service, &operation, "").await.problem(400, "invalid-body");
        }
    }
    assert_eq!(shown(&service, "mydb").await, before);
}

#[tokio::test]
async fn a_body_that_is_not_declared_as_json_is_rejected() {
    let service = Service::start().await;
    let before = born(&service, "mydb", 1).await;
    for operation in operations() {
        let good = operation.good.to_string();
        for headers in [
            &[] as &[(&str, &str)],
            &[("content-type", "text/plain")],
            &[("content-type", "text/json")],
            &[("content-type", "application/x-www-form-urlencoded")],
            &[("content-type", "application/jsonlines")],
            &[("content-type", "")],
        ] {
            let answer = raw(&service, &operation.method, operation.path, headers, good.as_bytes()).await;
            answer.problem(415, "unsupported-media-type");
        }
    }
    assert_eq!(shown(&service, "mydb").await, before);
    for declared in ["application/json; charset=utf-8", "Application/JSON", "application/ld+json"] {
        let body = json!({ "new": commit(2) }).to_string();
        let headers = [("content-type", declared)];
        let answer = raw(&service, &Method::PUT, "/v1/heads/mydb", &headers, body.as_bytes()).await;
        assert_eq!(answer.expect(200)["status"], "updated");
    }
}

/// The accepted body, padded with spaces to this size.
fn padded(operation: &Operation, bytes: usize) -> Vec<u8> {
    let mut body = operation.good.to_string().into_bytes();
    body.resize(bytes, b' ');
    body
}

#[tokio::test]
async fn a_body_of_the_largest_size_is_taken_and_one_byte_more_is_not() {
    let service = Service::start().await;
    let before = born(&service, "mydb", 1).await;
    for operation in operations() {
        let body = padded(&operation, LIMIT + 1);
        send(&service, &operation, body).await.problem(413, "payload-too-large");
    }
    raw(&service, &Method::GET, "/v1/records/mydb", &[], &vec![b' '; LIMIT + 1])
        .await
        .problem(413, "payload-too-large");
    assert_eq!(shown(&service, "mydb").await, before);
    for operation in operations() {
        let answer = send(&service, &operation, padded(&operation, LIMIT)).await;
        // The branch exists by then, so the retraction is rejected, after its body was read.
        assert!(answer.status.is_success() || answer.status == 409, "{answer:#?}");
    }
}

#[tokio::test]
async fn a_large_payload_is_returned_as_it_was_sent() {
    let service = Service::start().await;
    let config =
        json!({ "text": "é".repeat(100_000), "list": vec![1; 5_000], "n": [0.1, -2.5e-7, i64::MIN, u64::MAX] });
    let body = json!({ "address": "mydb", "config": config });
    assert!(body.to_string().len() < LIMIT);
    let record = service.post("/v1/ledgers", body).await.expect(201);
    assert_eq!(record["config"]["payload"], config);
    assert_eq!(shown(&service, "mydb").await["config"]["payload"], config);
}

/// serde would also read a struct from an array of its fields, and let unknown ones pass.
#[tokio::test]
async fn an_array_is_never_taken_for_an_object() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    let id = cid(2).as_str().to_owned();
    for (method, path, body, field) in [
        (Method::POST, "/v1/ledgers", json!(["arr", null, null]), None),
        (Method::POST, "/v1/retractions/mydb", json!(["why"]), None),
        (Method::PUT, "/v1/heads/mydb", json!({ "new": [id, 2] }), Some("new")),
        (Method::PUT, "/v1/heads/mydb", json!({ "expected": [id, 1], "new": commit(2) }), Some("expected")),
        (
            Method::PUT,
            "/v1/indexes/mydb",
            json!({ "new": { "id": id, "t": 2, "graphs": { "g": [id, 1, 0] } } }),
            Some("new.graphs.g"),
        ),
        (
            Method::PUT,
            "/v1/statuses/mydb",
            json!({ "expected": [1, null], "new": { "payload": { "state": "x" } } }),
            Some("expected"),
        ),
        (Method::POST, "/v1/transactions", json!({ "operations": [["push_head", "mydb"]] }), Some("operations[0]")),
    ] {
        let answer = raw(&service, &method, path, JSON, body.to_string().as_bytes()).await;
        match field {
            Some(field) => rejects(answer, "invalid-body", field),
            None => drop(answer.problem(400, "invalid-body")),
        }
    }
}
