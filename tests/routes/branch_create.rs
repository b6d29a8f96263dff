use super::*;

fn body(branch: &str, source: &str) -> Value {
    json!({ "name": "mydb", "branch": branch, "source": source })
}

#[tokio::test]
async fn a_branch_starts_at_the_head_of_its_source_which_counts_it() {
    let service = Service::start().await;
    born(&service, "mydb", 3).await;
    let answer = service.post("/v1/branches", body("feature/x", "main")).await;
    assert_eq!(answer.header("location"), Some("/v1/records/mydb:feature/x"));
    let record = answer.expect(201);
    assert_eq!(record, shown(&service, "mydb:feature/x").await);
    let expected = json!({
        "address": "mydb:feature/x", "kind": "ledger", "name": "mydb", "branch": "feature/x", "retracted": false,
        "source_branch": "main", "branches": 0, "dependents": 0,
        "head": commit(3),
        "index": { "id": null, "t": 0, "rev": 0 },
        "status": { "v": 1, "payload": { "state": "ready" } },
        "config": { "v": 0, "payload": null },
    });
    assert_eq!(timeless(record), expected);
    assert_eq!(shown(&service, "mydb").await["branches"], json!(1));
}

#[tokio::test]
async fn a_branch_starts_at_the_commit_given_and_has_branches_of_its_own() {
    let service = Service::start().await;
    born(&service, "mydb", 3).await;
    let mut at = body("old", "main");
    at["at"] = commit(1);
    assert_eq!(service.post("/v1/branches", at).await.expect(201)["head"], commit(1));
    let child = service.post("/v1/branches", body("older", "old")).await.expect(201);
    assert_eq!((&child["head"], &child["source_branch"]), (&commit(1), &json!("old")));
    assert_eq!(shown(&service, "mydb").await["branches"], json!(1));
    assert_eq!(shown(&service, "mydb:old").await["branches"], json!(1));
}

#[tokio::test]
async fn a_source_must_be_a_live_ledger_with_a_commit() {
    let service = Service::start().await;
    service.post("/v1/branches", body("dev", "main")).await.problem(404, "unknown-source");
    ledger(&service, "mydb").await;
    service.post("/v1/branches", body("dev", "main")).await.problem(409, "unborn-source");
    service.put("/v1/heads/mydb", json!({ "new": commit(1) })).await.expect(200);
    retract(&service, "mydb").await;
    service.post("/v1/branches", body("dev", "main")).await.problem(404, "unknown-source");
    service.get("/v1/records/mydb:dev").await.problem(404, "unknown-record");
}

#[tokio::test]
async fn a_branch_that_exists_is_not_created_again_nor_counted_twice() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    branch(&service, "mydb", "dev").await;
    service.post("/v1/branches", body("dev", "main")).await.problem(409, "already-exists");
    assert_eq!(shown(&service, "mydb").await["branches"], json!(1));
}

#[tokio::test]
async fn a_branch_that_cannot_be_names_the_field() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    let with = |name: &str, value: Value| {
        let mut body = body("dev", "main");
        body[name] = value;
        body
    };
    for (body, kind, field) in [
        (with("name", json!("mydb:main")), "invalid-address", "name"),
        (with("name", json!("")), "invalid-address", "name"),
        (with("branch", json!("a:b")), "invalid-address", "branch"),
        (with("branch", json!("b".repeat(129))), "invalid-address", "branch"),
        (with("source", json!("..")), "invalid-address", "source"),
        (with("source", json!("dev")), "invalid-body", "source"),
        (with("at", unborn()), "invalid-body", "at.id"),
        (with("at", json!({ "id": cid(1).as_str(), "t": 0 })), "invalid-body", "at.t"),
        (with("at", json!({ "id": "x", "t": 1 })), "invalid-content-id", "at.id"),
        (with("name", Value::Null), "invalid-body", "name"),
        (json!({ "name": "mydb", "branch": "dev" }), "invalid-body", "source"),
    ] {
        rejects(service.post("/v1/branches", body).await, kind, field);
    }
    assert_eq!(shown(&service, "mydb").await["branches"], json!(0));
}
