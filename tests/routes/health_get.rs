use super::*;

#[tokio::test]
async fn a_store_that_does_not_answer_makes_only_the_deep_check_fail() {
    let service = Service::start().await;
    assert_eq!(service.get("/v1/health").await.expect(200), json!({ "status": "ok" }));
    assert_eq!(service.get("/v1/health?deep=true").await.expect(200), json!({ "status": "ok" }));
    let rejected = Fault::answer(400, "ResourceNotFoundException").always();
    service.table.proxy.on_each(&["Query", "GetItem", "DescribeTable", "Scan"], rejected);
    let answer = service.get("/v1/health?deep=true").await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    answer.problem(503, "unavailable");
    service.get("/v1/health?deep=false").await.expect(200);
    for (query, field) in [("deep=1", "deep"), ("deep", "deep"), ("depth=1", "depth")] {
        refuses(service.get(&format!("/v1/health?{query}")).await, "invalid-parameter", field);
    }
}
