use super::*;

#[tokio::test]
async fn a_new_ledger_is_shown_with_four_unborn_concerns_and_its_location() {
    let service = Service::start().await;
    let answer = service.post("/v1/ledgers", json!({ "address": "mydb" })).await;
    assert_eq!(answer.header("location"), Some("/v1/records/mydb:main"));
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let record = answer.expect(201);
    assert_eq!(record, shown(&service, "mydb").await);
    let expected = json!({
        "address": "mydb:main", "kind": "ledger", "name": "mydb", "branch": "main", "retracted": false,
        "branches": 0, "dependents": 0,
        "head": { "id": null, "t": 0 },
        "index": { "id": null, "t": 0, "rev": 0 },
        "status": { "v": 1, "payload": { "state": "ready" } },
        "config": { "v": 0, "payload": null },
    });
    assert_eq!(timeless(record), expected);
}

#[tokio::test]
async fn a_ledger_begins_with_the_head_and_the_config_given() {
    let service = Service::start().await;
    let config = json!({ "default_context_id": cid(8).as_str(), "nested": { "a": [1, 2.5, null, "x"] } });
    let body = json!({ "address": "mydb:dev", "head": commit(7), "config": config });
    let record = service.post("/v1/ledgers", body).await.expect(201);
    assert_eq!((&record["name"], &record["branch"]), (&json!("mydb"), &json!("dev")));
    assert_eq!(record["head"], commit(7));
    assert_eq!(record["config"], json!({ "v": 1, "payload": config }));
    assert_eq!(record.get("source_branch"), None, "it is no branch of another");
    let nothing = json!({ "address": "plain", "head": null, "config": null });
    let record = service.post("/v1/ledgers", nothing).await.expect(201);
    assert_eq!((&record["head"], &record["config"]["v"]), (&unborn(), &json!(0)));
}

#[tokio::test]
async fn an_address_that_is_taken_is_rejected_live_or_retracted() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    service.post("/v1/ledgers", json!({ "address": "mydb:main" })).await.problem(409, "already-exists");
    source(&service, "search", &[]).await;
    service.post("/v1/ledgers", json!({ "address": "search" })).await.problem(409, "already-exists");
    retract(&service, "mydb").await;
    service.post("/v1/ledgers", json!({ "address": "mydb" })).await.problem(409, "already-exists");
    assert_eq!(shown(&service, "mydb").await["head"], commit(1), "nothing was written");
}

#[tokio::test]
async fn a_body_that_breaks_a_rule_names_the_field() {
    let service = Service::start().await;
    let with = |name: &str, value: Value| {
        let mut body = json!({ "address": "mydb" });
        body[name] = value;
        body
    };
    for (body, kind, field) in [
        (json!({ "address": "a@b" }), "invalid-address", "address"),
        (json!({ "address": 1 }), "invalid-body", "address"),
        (with("head", json!({ "id": null, "t": 0 })), "invalid-body", "head.id"),
        (with("head", json!({ "id": cid(1).as_str(), "t": 0 })), "invalid-body", "head.t"),
        (with("head", json!({ "id": cid(1).as_str(), "t": -1 })), "invalid-body", "head.t"),
        (with("head", json!({ "id": cid(1).as_str() })), "invalid-body", "head.t"),
        (with("head", json!({ "id": cid(1).as_str(), "t": 1, "rev": 0 })), "invalid-body", "head.rev"),
        (with("config", json!("text")), "invalid-body", "config"),
        (with("config", json!({ "default_context_id": "x" })), "invalid-content-id", "config.default_context_id"),
        (with("config", json!({ "default_context_id": 1 })), "invalid-content-id", "config.default_context_id"),
        (with("config", json!({ "a": { "": 1 } })), "invalid-body", "config.a."),
        (with("config", json!({ "a": [1e300] })), "invalid-body", "config.a[0]"),
    ] {
        rejects(service.post("/v1/ledgers", body).await, kind, field);
    }
    service.get("/v1/records/mydb").await.problem(404, "unknown-record");
}
