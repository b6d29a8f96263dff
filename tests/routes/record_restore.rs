use super::*;

#[tokio::test]
async fn a_restored_record_is_ready_and_takes_every_push() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    retract(&service, "mydb").await;
    let record = service.post("/v1/restorations/mydb", json!({})).await.expect(200);
    assert_eq!(record, shown(&service, "mydb").await);
    assert_eq!(record["retracted"], json!(false));
    assert_eq!(record["status"], json!({ "v": 3, "payload": { "state": "ready" } }));
    for (path, body) in [
        ("/v1/heads/mydb", json!({ "expected": commit(1), "new": commit(2) })),
        ("/v1/indexes/mydb", json!({ "new": root(1) })),
        ("/v1/statuses/mydb", json!({ "expected": { "v": 3 }, "new": { "payload": { "state": "x" } } })),
        ("/v1/configs/mydb", json!({ "expected": { "v": 0 }, "new": { "payload": {} } })),
    ] {
        assert_eq!(service.put(path, body).await.expect(200)["status"], "updated", "{path}");
    }
}

#[tokio::test]
async fn restoring_a_live_record_changes_nothing_and_an_unknown_one_is_not_found() {
    let service = Service::start().await;
    let record = born(&service, "mydb", 1).await;
    assert_eq!(raw(&service, &Method::POST, "/v1/restorations/mydb", &[], b"").await.expect(200), record);
    service.post("/v1/restorations/nobody", json!({})).await.problem(404, "unknown-record");
}

#[tokio::test]
async fn a_graph_source_is_restored_too() {
    let service = Service::start().await;
    source(&service, "search", &[]).await;
    retract(&service, "search").await;
    let record = service.post("/v1/restorations/search", json!({})).await.expect(200);
    assert_eq!((&record["retracted"], record.get("head")), (&json!(false), None));
}
