//! `Idempotency-Key` (docs/specification.md, Answers).

use super::*;

async fn keyed(service: &Service, key: &str, method: Method, path: &str, body: Value) -> Answer {
    service.send(method, path, &[("idempotency-key", key)], Some(body)).await
}

async fn keyed_put(service: &Service, key: &str, path: &str, body: Value) -> Answer {
    keyed(service, key, Method::PUT, path, body).await
}

/// A concern, where it is pushed, and the body that takes it from one watermark to the next.
type Step = (&'static str, &'static str, fn(i64) -> Value);

fn pushes() -> [Step; 4] {
    let head = |n: i64| json!({ "expected": if n == 1 { unborn() } else { commit(n - 1) }, "new": commit(n) });
    let index = |n: i64| json!({ "expected": if n == 1 { unborn() } else { root(n - 1) }, "new": root(n) });
    let status = |n: i64| json!({ "expected": { "v": n }, "new": { "payload": { "state": n.to_string() } } });
    let config = |n: i64| json!({ "expected": { "v": n - 1 }, "new": { "payload": { "n": n } } });
    [
        ("head", "/v1/heads/mydb", head),
        ("index", "/v1/indexes/mydb", index),
        ("status", "/v1/statuses/mydb", status),
        ("config", "/v1/configs/mydb", config),
    ]
}

#[tokio::test]
async fn a_repeated_push_is_answered_again_and_applied_once_though_others_have_written_since() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    for (concern, path, body) in pushes() {
        let first = keyed_put(&service, "key-1", path, body(1)).await.expect(200);
        assert_eq!((&first["status"], first.get("replayed")), (&json!("updated"), None), "{concern}");
        let again = keyed_put(&service, "key-1", path, body(1)).await.expect(200);
        assert_eq!((&again["status"], &again["value"]), (&json!("updated"), &first["value"]), "{concern}");
        assert_eq!(again["replayed"], json!(true), "{concern}");
        // Remembered over three other writes.
        for n in 2..=4 {
            service.put(path, body(n)).await.expect(200);
            let again = keyed_put(&service, "key-1", path, body(1)).await.expect(200);
            assert_eq!((&again["status"], &again["replayed"]), (&json!("updated"), &json!(true)), "{concern} {n}");
        }
        let before = shown(&service, "mydb").await[concern].clone();
        // The fourth pushes it out: from here on, only its expected value decides.
        service.put(path, body(5)).await.expect(200);
        let rejected = keyed_put(&service, "key-1", path, body(1)).await.problem(409, "conflict");
        assert_eq!(rejected["actual"], shown(&service, "mydb").await[concern], "{concern}");
        assert_ne!(rejected["actual"], before, "{concern}");
    }
}

#[tokio::test]
async fn a_monotonic_push_that_is_forgotten_is_stale() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let path = "/v1/heads/mydb";
    let push = json!({ "new": commit(1) });
    keyed_put(&service, "key-1", path, push.clone()).await.expect(200);
    for n in 2..=5 {
        assert_eq!(keyed_put(&service, "key-1", path, push.clone()).await.expect(200)["status"], "updated");
        service.put(path, json!({ "new": commit(n) })).await.expect(200);
    }
    let stale = keyed_put(&service, "key-1", path, push).await.expect(200);
    assert_eq!(stale, json!({ "status": "stale", "value": commit(5) }));
}

#[tokio::test]
async fn a_key_speaks_for_its_exact_request_alone() {
    let service = Service::start().await;
    for name in ["mydb", "other"] {
        ledger(&service, name).await;
    }
    let status = |state: &str| json!({ "expected": { "v": 1 }, "new": { "payload": { "state": state } } });
    keyed_put(&service, "key-1", "/v1/statuses/mydb", status("a")).await.expect(200);
    // Another body, another way to write the same body: other requests under the same key.
    keyed_put(&service, "key-1", "/v1/statuses/mydb", status("b")).await.problem(422, "idempotency-key-reused");
    keyed_put(&service, "key-2", "/v1/statuses/mydb", status("a")).await.problem(409, "conflict");
    service.put("/v1/statuses/mydb", status("a")).await.problem(409, "conflict");
    let spaced = format!("{} ", status("a"));
    let headers = [("idempotency-key", "key-1"), ("content-type", "application/json")];
    let answer = raw(&service, &Method::PUT, "/v1/statuses/mydb", &headers, spaced.as_bytes()).await;
    answer.problem(422, "idempotency-key-reused");
    // The same key for another record is accepted.
    let other = keyed_put(&service, "key-1", "/v1/statuses/other", status("a")).await.expect(200);
    assert_eq!(other.get("replayed"), None);
    assert_eq!(shown(&service, "mydb").await["status"]["v"], json!(2));
}

#[tokio::test]
async fn a_creation_that_is_repeated_under_its_key_is_answered_as_created() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    for (method, path, body) in [
        (Method::POST, "/v1/ledgers", json!({ "address": "new" })),
        (Method::POST, "/v1/branches", json!({ "name": "mydb", "branch": "dev", "source": "main" })),
        (
            Method::PUT,
            "/v1/graph-sources/search",
            json!({ "source_type": "t", "config": {}, "dependencies": ["mydb"] }),
        ),
    ] {
        let first = keyed(&service, "key-1", method.clone(), path, body.clone()).await.expect(201);
        let again = keyed(&service, "key-1", method, path, body).await;
        assert!(again.header("location").is_some(), "{path}: {again:#?}");
        assert_eq!(timeless(again.expect(201)), timeless(first));
    }
    let record = shown(&service, "mydb").await;
    assert_eq!((&record["branches"], &record["dependents"]), (&json!(1), &json!(1)), "counted once");
}

#[tokio::test]
async fn a_creation_that_is_repeated_after_a_purge_is_answered_as_created_and_creates_nothing() {
    let service = Service::start().await;
    let create = async || keyed(&service, "key-1", Method::POST, "/v1/ledgers", json!({ "address": "mydb" })).await;
    let created = create().await.expect(201);
    service.delete("/v1/records/mydb").await.expect(204);
    assert_eq!(timeless(create().await.expect(201)), timeless(created));
    service.get("/v1/records/mydb").await.problem(404, "unknown-record");
}

#[tokio::test]
async fn a_republication_that_is_repeated_under_its_key_applies_once() {
    let service = Service::start().await;
    source(&service, "search", &[]).await;
    let body = json!({ "source_type": "f:Bm25Index", "config": { "k1": 9 } });
    for _ in 0..2 {
        let record = keyed_put(&service, "key-1", "/v1/graph-sources/search", body.clone()).await.expect(200);
        assert_eq!(record["config"], json!({ "v": 2, "payload": { "k1": 9 } }));
    }
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_rejected_before_anything_is_done() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let (path, body) = ("/v1/heads/mydb", json!({ "new": commit(1) }));
    let long = "k".repeat(129);
    for headers in [
        &[("idempotency-key", "")] as &[_],
        &[("idempotency-key", " ")],
        &[("idempotency-key", "a b")],
        &[("idempotency-key", "schlüssel")],
        &[("idempotency-key", &long)],
        &[("idempotency-key", "a"), ("idempotency-key", "a")],
    ] {
        let answer = service.send(Method::PUT, path, headers, Some(body.clone())).await;
        answer.problem(400, "invalid-idempotency-key");
    }
    assert_eq!(shown(&service, "mydb").await["head"], unborn());
    let longest = "k".repeat(128);
    let pushed = keyed_put(&service, &longest, path, body).await.expect(200);
    assert_eq!(pushed["status"], "updated");
}

#[tokio::test]
async fn the_query_is_part_of_what_a_key_stands_for() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let take = async |holder: &str| {
        let body = json!({ "name": "index_lock", "holder": holder });
        service.put("/v1/leases/mydb", body).await.expect(200)["token"].clone()
    };
    let release = async |holder: &str, token: &Value| {
        let path = format!("/v1/leases/mydb?name=index_lock&holder={holder}&token={token}");
        service.send(Method::DELETE, &path, &[("idempotency-key", "one")], None).await
    };
    let first = take("a").await;
    release("a", &first).await.expect(204);
    let second = take("b").await;
    release("b", &second).await.problem(422, "idempotency-key-reused");
    let status = shown(&service, "mydb").await["status"]["payload"].clone();
    assert_eq!(status["index_lock"]["holder"], "b", "{status}");
}
