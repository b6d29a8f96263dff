use super::*;

const HEADS: &str = "/v1/heads/mydb";

#[tokio::test]
async fn a_push_without_an_expectation_only_goes_forward() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let pushed = service.put(HEADS, json!({ "new": commit(5) })).await.expect(200);
    assert_eq!(pushed, json!({ "status": "updated", "value": commit(5) }));
    for older in [commit(4), json!({ "id": cid(9).as_str(), "t": 5 })] {
        let pushed = service.put(HEADS, json!({ "new": older })).await.expect(200);
        assert_eq!(pushed, json!({ "status": "stale", "value": commit(5) }));
    }
    let pushed = service.put(HEADS, json!({ "new": commit(5) })).await.expect(200);
    assert_eq!(pushed, json!({ "status": "updated", "value": commit(5), "replayed": true }));
    assert_eq!(shown(&service, "mydb").await["head"], commit(5));
}

#[tokio::test]
async fn a_push_replaces_just_the_head_it_expects() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let push =
        async |expected: Value, new: Value| service.put(HEADS, json!({ "expected": expected, "new": new })).await;
    assert_eq!(push(unborn(), commit(3)).await.expect(200)["value"], commit(3));
    for expected in [unborn(), commit(2), json!({ "id": cid(9).as_str(), "t": 3 })] {
        assert_eq!(push(expected, commit(4)).await.problem(409, "conflict")["actual"], commit(3));
    }
    for new in [commit(2), json!({ "id": cid(9).as_str(), "t": 3 })] {
        assert_eq!(push(commit(3), new).await.problem(409, "conflict")["actual"], commit(3));
    }
    assert_eq!(push(commit(3), commit(4)).await.expect(200)["value"], commit(4));
    assert_eq!(push(commit(3), commit(4)).await.expect(200)["replayed"], json!(true));
    let latest = json!({ "id": cid(1).as_str(), "t": (1_i64 << 53) - 1 });
    assert_eq!(push(commit(4), latest.clone()).await.expect(200)["value"], latest);
}

#[tokio::test]
async fn expecting_null_creates_the_ledger_and_is_not_the_same_as_expecting_nothing() {
    let service = Service::start().await;
    service.put(HEADS, json!({ "new": commit(1) })).await.problem(404, "unknown-record");
    service.put(HEADS, json!({ "expected": unborn(), "new": commit(1) })).await.problem(404, "unknown-record");
    let body = json!({ "expected": null, "new": commit(1) });
    let pushed = service.put(HEADS, body).await.expect(200);
    assert_eq!(pushed, json!({ "status": "updated", "value": commit(1) }));
    let record = shown(&service, "mydb").await;
    assert_eq!((&record["kind"], &record["head"]), (&json!("ledger"), &commit(1)));
    let rejected = service.put(HEADS, json!({ "expected": null, "new": commit(2) })).await;
    assert_eq!(rejected.problem(409, "conflict")["actual"], commit(1));
}

#[tokio::test]
async fn a_graph_source_has_no_head_and_a_retracted_record_takes_none() {
    let service = Service::start().await;
    source(&service, "search", &[]).await;
    service.put("/v1/heads/search", json!({ "new": commit(1) })).await.problem(409, "wrong-kind");
    born(&service, "mydb", 1).await;
    retract(&service, "mydb").await;
    service.put(HEADS, json!({ "new": commit(2) })).await.problem(410, "retracted");
    service.put(HEADS, json!({ "expected": commit(1), "new": commit(2) })).await.problem(410, "retracted");
}

#[tokio::test]
async fn a_head_that_cannot_be_names_its_field_and_changes_nothing() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let id = cid(1);
    for (body, field) in [
        (json!({ "new": { "id": id.as_str(), "t": 0 } }), "new.t"),
        (json!({ "new": { "id": id.as_str(), "t": -5 } }), "new.t"),
        (json!({ "new": { "id": null, "t": 1 } }), "new.id"),
        (json!({ "new": { "id": null, "t": 0 } }), "new.id"),
        (json!({ "new": { "t": 1 } }), "new.id"),
        (json!({ "new": { "id": id.as_str(), "t": null } }), "new.t"),
        (json!({ "new": { "id": id.as_str(), "t": "1" } }), "new.t"),
        (json!({ "new": { "id": id.as_str(), "t": 1.0 } }), "new.t"),
        (json!({ "new": { "id": id.as_str(), "t": 9_223_372_036_854_775_808_u64 } }), "new.t"),
        (json!({ "new": { "id": 1, "t": 1 } }), "new.id"),
        (json!({ "new": { "id": id.as_str(), "t": 1, "rev": 0 } }), "new.rev"),
        (json!({ "new": null }), "new"),
        (json!({ "expected": { "id": null, "t": 1 }, "new": commit(2) }), "expected.t"),
        (json!({ "expected": { "id": id.as_str(), "t": 0 }, "new": commit(2) }), "expected.t"),
        (json!({ "expected": { "id": null }, "new": commit(2) }), "expected.t"),
        (json!({ "expected": "latest", "new": commit(2) }), "expected"),
        (json!({ "new": commit(2), "allow_equal": true }), "allow_equal"),
        (json!({ "new": commit(2), "lease": { "name": "index_lock", "holder": "h" } }), "lease.token"),
        (json!({ "new": commit(2), "lease": { "name": "index_lock", "holder": " ", "token": 1 } }), "lease.holder"),
        (json!({ "new": commit(2), "lease": { "name": "Other", "holder": "h", "token": 1 } }), "lease.name"),
        (json!({ "new": commit(2), "lease": { "name": "index_lock", "holder": "h", "token": 0 } }), "lease.token"),
    ] {
        rejects(service.put(HEADS, body).await, "invalid-body", field);
    }
    let creation = json!({
        "expected": null, "new": commit(1), "lease": { "name": "index_lock", "holder": "h", "token": 1 },
    });
    rejects(service.put("/v1/heads/other", creation).await, "invalid-body", "lease");
    assert_eq!(shown(&service, "mydb").await["head"], unborn());
}
