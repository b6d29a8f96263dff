use super::*;

const CONFIGS: &str = "/v1/configs/mydb";

fn body(expected: Value, new: Value) -> Value {
    json!({ "expected": expected, "new": new })
}

#[tokio::test]
async fn a_config_is_replaced_whole_and_an_empty_one_is_still_a_config() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let payload = json!({ "default_context_id": cid(3).as_str(), "theme": { "dark": true } });
    let pushed = service.put(CONFIGS, body(json!({ "v": 0 }), json!({ "payload": payload }))).await.expect(200);
    assert_eq!(pushed, json!({ "status": "updated", "value": { "v": 1, "payload": payload } }));
    let whole = json!({ "v": 1, "payload": payload });
    let pushed = service.put(CONFIGS, body(whole, json!({ "v": 4, "payload": {} }))).await.expect(200);
    assert_eq!(pushed["value"], json!({ "v": 4, "payload": {} }));
    assert_eq!(shown(&service, "mydb").await["config"], json!({ "v": 4, "payload": {} }));
}

#[tokio::test]
async fn another_config_than_expected_is_a_conflict_that_shows_it() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let new = json!({ "payload": { "a": 2 } });
    let rejected = service.put(CONFIGS, body(json!({ "v": 1 }), new.clone())).await.problem(409, "conflict");
    assert_eq!(rejected["actual"], json!({ "v": 0, "payload": null }));
    let first = json!({ "payload": { "a": 1 } });
    service.put(CONFIGS, body(json!({ "v": 0, "payload": null }), first)).await.expect(200);
    for (expected, new) in [
        (json!({ "v": 0 }), new.clone()),
        (json!({ "v": 2 }), new.clone()),
        (json!({ "v": 1, "payload": { "a": 3 } }), new.clone()),
        (json!({ "v": 1 }), json!({ "v": 1, "payload": {} })),
    ] {
        let rejected = service.put(CONFIGS, body(expected, new)).await.problem(409, "conflict");
        assert_eq!(rejected["actual"], json!({ "v": 1, "payload": { "a": 1 } }));
    }
}

#[tokio::test]
async fn only_a_live_ledger_takes_a_config() {
    let service = Service::start().await;
    let push = body(json!({ "v": 1 }), json!({ "payload": {} }));
    service.put(CONFIGS, push.clone()).await.problem(404, "unknown-record");
    source(&service, "search", &[]).await;
    service.put("/v1/configs/search", push.clone()).await.problem(409, "wrong-kind");
    assert_eq!(shown(&service, "search").await["config"]["payload"], json!({ "k1": 1.2 }));
    ledger(&service, "mydb").await;
    retract(&service, "mydb").await;
    service.put(CONFIGS, push).await.problem(410, "retracted");
}

#[tokio::test]
async fn a_config_that_cannot_be_names_its_field() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let new = json!({ "payload": {} });
    for (body, field) in [
        (json!({ "new": new }), "expected"),
        (body(Value::Null, new.clone()), "expected"),
        (body(json!({ "v": -1 }), new.clone()), "expected.v"),
        (body(json!({ "v": i64::MAX }), new.clone()), "expected.v"),
        (body(json!({ "v": 0, "payload": {} }), new), "expected.payload"),
        (body(json!({ "v": 0 }), json!({})), "new.payload"),
        (body(json!({ "v": 0 }), json!({ "payload": [] })), "new.payload"),
        (body(json!({ "v": 0 }), json!({ "payload": null })), "new.payload"),
        (body(json!({ "v": 0 }), json!({ "v": 0, "payload": {} })), "new.v"),
        (body(json!({ "v": 0 }), json!({ "payload": { "": 1 } })), "new.payload."),
        (body(json!({ "v": 0 }), json!({ "payload": { "a": 1e-200 } })), "new.payload.a"),
    ] {
        rejects(service.put(CONFIGS, body).await, "invalid-body", field);
    }
    assert_eq!(shown(&service, "mydb").await["config"]["v"], json!(0));
}
