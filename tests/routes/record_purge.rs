use super::*;

#[tokio::test]
async fn a_purged_record_is_unknown_to_every_operation_and_may_be_created_anew() {
    let service = Service::start().await;
    born(&service, "mydb", 7).await;
    let answer = service.delete("/v1/records/mydb").await;
    assert!(answer.header("x-request-id").is_some());
    assert_eq!(answer.expect(204), Value::Null);
    assert!(service.table.all_rows().await.is_empty());
    for (method, path, body) in [
        (Method::GET, "/v1/records/mydb", None),
        (Method::GET, "/v1/branches/mydb", None),
        (Method::DELETE, "/v1/records/mydb", None),
        (Method::PUT, "/v1/heads/mydb", Some(json!({ "new": commit(8) }))),
        (Method::PUT, "/v1/indexes/mydb", Some(json!({ "new": root(8) }))),
        (
            Method::PUT,
            "/v1/statuses/mydb",
            Some(json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "x" } } })),
        ),
        (Method::PUT, "/v1/configs/mydb", Some(json!({ "expected": { "v": 0 }, "new": { "payload": {} } }))),
        (Method::POST, "/v1/retractions/mydb", None),
        (Method::POST, "/v1/restorations/mydb", None),
        (Method::POST, "/v1/resets/mydb", Some(json!({ "head": unborn(), "index": unborn() }))),
        (Method::GET, "/fluree/storage/ns/mydb", None),
    ] {
        service.send(method, path, &[], body).await.problem(404, "unknown-record");
    }
    assert_eq!(ledger(&service, "mydb").await["head"], unborn(), "nothing of its former life is left");
}

#[tokio::test]
async fn a_record_that_others_depend_on_stays_and_a_purged_dependent_no_longer_counts() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    branch(&service, "mydb", "dev").await;
    source(&service, "search", &["mydb"]).await;
    let rejected = service.delete("/v1/records/mydb").await.problem(409, "has-dependents");
    assert_eq!(sorted(&rejected["dependents"]), ["mydb:dev", "search:main"]);
    service.delete("/v1/records/mydb:dev").await.expect(204);
    assert_eq!(shown(&service, "mydb").await["branches"], json!(0));
    retract(&service, "search").await;
    service.delete("/v1/records/search").await.expect(204);
    assert_eq!(shown(&service, "mydb").await["dependents"], json!(0));
    service.delete("/v1/records/mydb").await.expect(204);
}
