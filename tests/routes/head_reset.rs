use super::*;

const RESETS: &str = "/v1/resets/mydb";

fn to(head: Value, index: Value) -> Value {
    json!({ "head": head, "index": index })
}

#[tokio::test]
async fn head_and_index_are_put_backwards_forwards_and_to_nothing() {
    let service = Service::start().await;
    born(&service, "mydb", 9).await;
    service.put("/v1/indexes/mydb", json!({ "new": root(8) })).await.expect(200);
    for (head, index) in [(commit(5), root(4)), (commit(20), root(20)), (commit(2), unborn()), (unborn(), unborn())] {
        let record = service.post(RESETS, to(head.clone(), index.clone())).await.expect(200);
        assert_eq!(record["head"], head);
        assert_eq!((&record["index"]["id"], &record["index"]["t"]), (&index["id"], &index["t"]));
        assert_eq!(record, shown(&service, "mydb").await);
    }
    service.put("/v1/heads/mydb", json!({ "expected": unborn(), "new": commit(1) })).await.expect(200);
}

#[tokio::test]
async fn only_a_live_ledger_is_reset() {
    let service = Service::start().await;
    let nothing = to(unborn(), unborn());
    service.post(RESETS, nothing.clone()).await.problem(404, "unknown-record");
    source(&service, "search", &[]).await;
    service.post("/v1/resets/search", nothing.clone()).await.problem(409, "wrong-kind");
    born(&service, "mydb", 1).await;
    retract(&service, "mydb").await;
    service.post(RESETS, nothing).await.problem(410, "retracted");
    assert_eq!(shown(&service, "mydb").await["head"], commit(1));
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_names_its_field() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    for (body, kind, field) in [
        (json!({ "head": commit(1) }), "invalid-body", "index"),
        (json!({ "index": root(1) }), "invalid-body", "head"),
        (to(json!({ "id": null, "t": 1 }), unborn()), "invalid-body", "head.t"),
        (to(commit(1), json!({ "id": index_cid(1).as_str(), "t": 0 })), "invalid-body", "index.t"),
        (to(commit(1), json!({ "id": null, "t": -1 })), "invalid-body", "index.t"),
        (to(Value::Null, unborn()), "invalid-body", "head"),
        (to(json!({ "id": "x", "t": 1 }), unborn()), "invalid-content-id", "head.id"),
        (to(commit(1), json!({ "id": "x", "t": 1 })), "invalid-content-id", "index.id"),
    ] {
        rejects(service.post(RESETS, body).await, kind, field);
    }
    assert_eq!(shown(&service, "mydb").await["head"], commit(1));
}
