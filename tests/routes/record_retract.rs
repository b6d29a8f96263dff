use super::*;

const RETRACTION: &str = "/v1/retractions/mydb";

#[tokio::test]
async fn a_retracted_record_stays_readable_and_says_when_and_why() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    let record = service.post(RETRACTION, json!({ "reason": "moved" })).await.expect(200);
    assert_eq!(record, shown(&service, "mydb").await);
    assert_eq!((&record["retracted"], &record["head"]), (&json!(true), &commit(1)));
    assert_eq!(record["status"]["v"], json!(2));
    let payload = &record["status"]["payload"];
    assert_eq!(members(payload), ["reason", "retracted_at", "state"]);
    assert_eq!((&payload["state"], &payload["reason"]), (&json!("retracted"), &json!("moved")));
    let again = service.post(RETRACTION, json!({ "reason": "again" })).await.expect(200);
    assert_eq!(again, record, "nothing changes");
}

#[tokio::test]
async fn the_body_may_be_left_out_but_not_be_anything() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    for (body, field) in [
        (json!({ "reason": 1 }), "reason"),
        (json!({ "reason": "r".repeat(1025) }), "reason"),
        (json!({ "why": "x" }), "why"),
    ] {
        rejects(service.post(RETRACTION, body).await, "invalid-body", field);
    }
    let rejected = raw(&service, &Method::POST, RETRACTION, &[], b"{}").await;
    rejected.problem(415, "unsupported-media-type");
    assert_eq!(shown(&service, "mydb").await["retracted"], json!(false));
    let record = raw(&service, &Method::POST, RETRACTION, &[], b"").await.expect(200);
    assert_eq!(record["retracted"], json!(true));
    assert_eq!(record["status"]["payload"].get("reason"), None);
    born(&service, "other", 1).await;
    let reason = "r".repeat(1024);
    let record = service.post("/v1/retractions/other", json!({ "reason": reason })).await.expect(200);
    assert_eq!(record["status"]["payload"]["reason"], json!(reason));
}

#[tokio::test]
async fn a_record_that_others_depend_on_stays_live_and_names_them() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    branch(&service, "mydb", "dev").await;
    source(&service, "search", &["mydb"]).await;
    let rejected = service.post(RETRACTION, json!({})).await.problem(409, "has-dependents");
    assert_eq!(sorted(&rejected["dependents"]), ["mydb:dev", "search:main"]);
    let described = rejected["dependent_records"].as_array().unwrap();
    assert_eq!(described.len(), 2);
    assert!(described.contains(&json!({ "address": "mydb:dev", "kind": "ledger" })), "{rejected}");
    let search = json!({ "address": "search:main", "kind": "graph_source", "source_type": "f:Bm25Index" });
    assert!(described.contains(&search), "{rejected}");
    assert_eq!(shown(&service, "mydb").await["retracted"], json!(false));
    // A retracted dependent still counts: it can be restored.
    retract(&service, "search").await;
    service.delete("/v1/branches/mydb:dev").await.expect(200);
    let rejected = service.post(RETRACTION, json!({})).await.problem(409, "has-dependents");
    assert_eq!(sorted(&rejected["dependents"]), ["search:main"]);
    service.delete("/v1/records/search").await.expect(204);
    service.post(RETRACTION, json!({})).await.expect(200);
    service.post("/v1/retractions/nobody", json!({})).await.problem(404, "unknown-record");
}
