use super::*;

#[tokio::test]
async fn a_store_that_does_not_answer_makes_only_the_deep_check_fail() {
    let service = Service::start().await;
    let healthy = json!({
        "status": "ok",
        "capabilities": {
            "leases": true,
            "leased_index_pushes": true,
            "atomic_references": true,
            "transactions": true,
            "named_graphs": true,
            "any_address": true,
            "search": false,
            "lost_replies": "request_ids",
            "feed": "stream",
        },
    });
    assert_eq!(service.get("/v1/health").await.expect(200), healthy);
    assert_eq!(service.get("/v1/health?deep=true").await.expect(200), healthy);
    let rejected = Fault::answer(400, "ResourceNotFoundException").always();
    service.table.proxy.on_each(&["Query", "GetItem", "DescribeTable", "Scan"], rejected);
    let answer = service.get("/v1/health?deep=true").await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    answer.problem(503, "unavailable");
    service.get("/v1/health?deep=false").await.expect(200);
    for (query, field) in [("deep=1", "deep"), ("deep", "deep"), ("depth=1", "depth")] {
        rejects(service.get(&format!("/v1/health?{query}")).await, "invalid-parameter", field);
    }
}

#[tokio::test]
async fn a_feed_that_nothing_comes_through_is_named_by_whoever_depends_on_it() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let reason = "the table has no stream";
    service.table.feed.set_outage(Some(reason.into()));
    service.table.proxy.take_requests();
    for path in ["/v1/changes", "/v1/changes?wait=20", "/v1/events", "/fluree/events?all=true", "/v1/history/mydb"] {
        let answer = service.get(path).await;
        assert_eq!(answer.header("retry-after"), Some("1"), "{path}");
        assert_eq!(answer.problem(503, "feed-unavailable")["detail"], reason, "{path}");
    }
    assert!(service.table.proxy.take_requests().is_empty());
    assert_eq!(service.get("/v1/health?deep=true").await.problem(503, "feed-unavailable")["detail"], reason);
    // What needs no feed still works.
    for path in ["/v1/health", "/v1/records/mydb", "/v1/snapshot"] {
        service.get(path).await.expect(200);
    }
    service.table.feed.set_outage(None);
    service.get("/v1/changes").await.expect(200);
    service.get("/v1/health?deep=true").await.expect(200);
}
