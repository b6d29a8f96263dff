use super::*;

fn release(holder: &str, token: i64) -> String {
    format!("/v1/leases/tenant/mydb:main?name=index_lock&holder={holder}&token={token}")
}

async fn held() -> (Service, Value) {
    let service = Service::start().await;
    ledger(&service, "tenant/mydb").await;
    let body = json!({ "name": "index_lock", "holder": "one" });
    let lease = service.put("/v1/leases/tenant/mydb:main", body).await.expect(200)["lease"].clone();
    (service, lease)
}

#[tokio::test]
async fn a_released_lease_is_free_and_its_record_ready() {
    let (service, _) = held().await;
    assert_eq!(service.delete(&release("one", 1)).await.expect(204), Value::Null);
    let status = shown(&service, "tenant/mydb").await["status"].clone();
    assert_eq!(status, json!({ "v": 3, "payload": { "state": "ready" } }));
    let body = json!({ "name": "index_lock", "holder": "two" });
    assert_eq!(service.put("/v1/leases/tenant/mydb:main", body).await.expect(200)["token"], json!(2));
}

#[tokio::test]
async fn what_is_not_held_is_a_conflict_that_shows_the_lease() {
    let (service, lease) = held().await;
    assert_eq!(service.delete(&release("one", 2)).await.problem(409, "lease-lost")["lease"], lease);
    assert_eq!(service.delete(&release("two", 1)).await.problem(409, "lease-lost")["lease"], lease);
    service.delete(&release("one", 1)).await.expect(204);
    assert_eq!(service.delete(&release("one", 1)).await.problem(409, "lease-lost")["lease"], Value::Null);
}

#[tokio::test]
async fn unknown_and_retracted_records_have_no_lease() {
    let (service, _) = held().await;
    service.delete("/v1/leases/nowhere?name=index_lock&holder=one&token=1").await.problem(404, "unknown-record");
    retract(&service, "tenant/mydb").await;
    service.delete(&release("one", 1)).await.problem(410, "retracted");
}

#[tokio::test]
async fn a_query_that_names_no_lease_names_its_parameter() {
    let (service, _) = held().await;
    service.table.proxy.take_requests();
    for (query, field) in [
        ("name=index_lock&holder=one&token=0", "token"),
        ("name=index_lock&holder=%20&token=1", "holder"),
        ("name=Not%20A%20Name&holder=one&token=1", "name"),
        ("name=index_lock&holder=one", "token"),
    ] {
        let problem =
            service.delete(&format!("/v1/leases/tenant/mydb:main?{query}")).await.problem(400, "invalid-parameter");
        assert!(problem.to_string().contains(field), "{query}: {problem}");
    }
    assert_eq!(service.table.proxy.take_requests().len(), 0);
}
