use super::*;

const STATUSES: &str = "/v1/statuses/mydb";

fn body(expected: Value, new: Value) -> Value {
    json!({ "expected": expected, "new": new })
}

fn ready() -> Value {
    json!({ "payload": { "state": "ready" } })
}

#[tokio::test]
async fn a_status_is_replaced_whole_by_the_next_version_or_the_one_given() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let payload = json!({ "state": "syncing", "progress": 0.5, "queue": { "depth": 3, "names": ["a"] } });
    let pushed = service.put(STATUSES, body(json!({ "v": 1 }), json!({ "payload": payload }))).await.expect(200);
    assert_eq!(pushed, json!({ "status": "updated", "value": { "v": 2, "payload": payload } }));
    let whole = json!({ "v": 2, "payload": payload });
    let pushed = service.put(STATUSES, body(whole, json!({ "v": 9, "payload": { "state": "ready" } }))).await;
    assert_eq!(pushed.expect(200)["value"], json!({ "v": 9, "payload": { "state": "ready" } }));
    assert_eq!(shown(&service, "mydb").await["status"], json!({ "v": 9, "payload": { "state": "ready" } }));
    source(&service, "search", &[]).await;
    let pushed = service.put("/v1/statuses/search", body(json!({ "v": 1 }), ready())).await.expect(200);
    assert_eq!(pushed["value"]["v"], json!(2));
}

#[tokio::test]
async fn another_version_or_payload_than_expected_is_a_conflict_that_shows_it() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let actual = json!({ "v": 1, "payload": { "state": "ready" } });
    for (expected, new) in [
        (json!({ "v": 2 }), ready()),
        (json!({ "v": 1, "payload": { "state": "indexing" } }), ready()),
        (json!({ "v": 1, "payload": { "state": "ready", "more": 1 } }), ready()),
        (json!({ "v": 1 }), json!({ "v": 1, "payload": { "state": "other" } })),
    ] {
        let rejected = service.put(STATUSES, body(expected, new)).await.problem(409, "conflict");
        assert_eq!(rejected["actual"], actual);
    }
    service.put("/v1/statuses/nobody", body(json!({ "v": 1 }), ready())).await.problem(404, "unknown-record");
    retract(&service, "mydb").await;
    service.put(STATUSES, body(json!({ "v": 2 }), ready())).await.problem(410, "retracted");
}

#[tokio::test]
async fn a_status_that_cannot_be_names_its_field() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let payload = |payload: Value| body(json!({ "v": 1 }), json!({ "payload": payload }));
    let long = "s".repeat(129);
    let mut deep = json!({ "state": "x" });
    for _ in 0..40 {
        deep = json!({ "state": "x", "d": deep });
    }
    for (body, field) in [
        (json!({ "new": ready() }), "expected"),
        (body(Value::Null, ready()), "expected"),
        (body(json!({}), ready()), "expected.v"),
        (body(json!({ "v": 0 }), ready()), "expected.v"),
        (body(json!({ "v": i64::MAX }), ready()), "expected.v"),
        (body(json!({ "v": 1, "payload": {} }), ready()), "expected.payload.state"),
        (body(json!({ "v": 1, "state": "ready" }), ready()), "expected.state"),
        (body(json!({ "v": 1 }), json!({})), "new.payload"),
        (body(json!({ "v": 1 }), json!({ "v": 0, "payload": { "state": "x" } })), "new.v"),
        (payload(Value::Null), "new.payload"),
        (payload(json!("ready")), "new.payload"),
        (payload(json!({})), "new.payload.state"),
        (payload(json!({ "state": null })), "new.payload.state"),
        (payload(json!({ "state": "" })), "new.payload.state"),
        (payload(json!({ "state": " \t" })), "new.payload.state"),
        (payload(json!({ "state": long })), "new.payload.state"),
        (payload(json!({ "state": "x", "a": [{ "": 1 }] })), "new.payload.a[0]."),
        (payload(json!({ "state": "x", "a": 1e126 })), "new.payload.a"),
        (payload(json!({ "state": "x", "index_lock": {} })), "new.payload.index_lock"),
        (payload(json!({ "state": "x", "reindex_lock": null })), "new.payload.reindex_lock"),
        (payload(json!({ "state": "x", "maintenance_lock": "me" })), "new.payload.maintenance_lock"),
    ] {
        rejects(service.put(STATUSES, body).await, "invalid-body", field);
    }
    let rejected = service.put(STATUSES, payload(deep)).await.problem(400, "invalid-body");
    assert!(rejected["field"].as_str().unwrap().starts_with("new.payload.d.d."), "{rejected}");
    assert_eq!(shown(&service, "mydb").await["status"]["v"], json!(1));
}
