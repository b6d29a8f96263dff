use super::*;

#[tokio::test]
async fn a_dropped_branch_is_gone_and_its_source_has_one_less() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    for name in ["dev", "test"] {
        branch(&service, "mydb", name).await;
    }
    assert_eq!(service.delete("/v1/branches/mydb:dev").await.expect(200), json!({ "parent_branches": 1 }));
    service.get("/v1/records/mydb:dev").await.problem(404, "unknown-record");
    service.delete("/v1/branches/mydb:dev").await.problem(404, "unknown-record");
    assert_eq!(service.delete("/v1/branches/mydb:test").await.expect(200), json!({ "parent_branches": 0 }));
    assert_eq!(shown(&service, "mydb").await["branches"], json!(0));
    branch(&service, "mydb", "dev").await;
}

#[tokio::test]
async fn a_branch_with_branches_or_dependents_stays_and_names_them() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    branch(&service, "mydb", "dev").await;
    let child = json!({ "name": "mydb", "branch": "child", "source": "dev" });
    service.post("/v1/branches", child).await.expect(201);
    source(&service, "search", &["mydb:dev"]).await;
    let rejected = service.delete("/v1/branches/mydb:dev").await.problem(409, "has-dependents");
    assert_eq!(sorted(&rejected["dependents"]), ["mydb:child", "search:main"]);
    shown(&service, "mydb:dev").await;
}

#[tokio::test]
async fn what_was_not_created_as_a_branch_is_not_dropped() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    service.delete("/v1/branches/mydb").await.problem(409, "not-a-branch");
    source(&service, "search", &[]).await;
    service.delete("/v1/branches/search").await.problem(409, "not-a-branch");
    service.delete("/v1/branches/nobody").await.problem(404, "unknown-record");
    shown(&service, "mydb").await;
}
