use super::*;

const LEASES: &str = "/v1/leases/tenant/mydb:main";

#[tokio::test]
async fn a_lease_is_answered_with_its_token_and_shown_in_the_status() {
    let service = Service::start().await;
    ledger(&service, "tenant/mydb").await;
    let body = json!({ "name": "index_lock", "holder": "one", "ttl_seconds": 60, "target_t": 42 });
    let held = service.put(LEASES, body).await.expect(200);
    assert_eq!(members(&held), ["lease", "token"]);
    let lease = &held["lease"];
    assert_eq!(held["token"], json!(1));
    assert_eq!(members(lease), ["acquired_at", "expires_at", "holder", "name", "target_t"]);
    assert_eq!(
        (&lease["name"], &lease["holder"], &lease["target_t"]),
        (&json!("index_lock"), &json!("one"), &json!(42))
    );
    let status = shown(&service, "tenant/mydb").await["status"].clone();
    assert_eq!((&status["v"], &status["payload"]["state"]), (&json!(2), &json!("indexing")));
    assert_eq!(status["payload"]["index_lock"]["holder"], json!("one"));
}

#[tokio::test]
async fn a_held_lease_is_a_conflict_that_shows_it() {
    let service = Service::start().await;
    ledger(&service, "tenant/mydb").await;
    let lease =
        service.put(LEASES, json!({ "name": "index_lock", "holder": "one" })).await.expect(200)["lease"].clone();
    let busy = service.put(LEASES, json!({ "name": "maintenance_lock", "holder": "two" })).await;
    assert_eq!(busy.problem(409, "lease-held")["lease"], lease);
}

#[tokio::test]
async fn a_caller_that_waits_is_given_the_lease_once_it_is_released() {
    let service = Service::start().await;
    ledger(&service, "tenant/mydb").await;
    service.put(LEASES, json!({ "name": "index_lock", "holder": "one" })).await.expect(200);
    let waiting = service.put("/v1/leases/tenant/mydb:main?wait=20", json!({ "name": "index_lock", "holder": "two" }));
    let before = service.table.proxy.count("UpdateItem");
    let asked = async {
        while service.table.proxy.count("UpdateItem") == before {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let released = async {
        // The first attempt has found the lease held, or finds it released: both are right.
        tokio::time::timeout(nameservice_tests::LONG, asked).await.expect("the lease is asked for");
        service.delete("/v1/leases/tenant/mydb:main?name=index_lock&holder=one&token=1").await.expect(204)
    };
    let (held, _) = tokio::join!(waiting, released);
    let held = held.expect(200);
    assert_eq!((&held["lease"]["holder"], &held["token"]), (&json!("two"), &json!(2)));
}

#[tokio::test]
async fn a_caller_that_waits_is_shown_the_lease_where_it_stays_held() {
    let service = Service::start().await;
    ledger(&service, "tenant/mydb").await;
    service.put(LEASES, json!({ "name": "index_lock", "holder": "one" })).await.expect(200);
    let body = json!({ "name": "index_lock", "holder": "two" });
    let busy = service.put("/v1/leases/tenant/mydb:main?wait=1", body.clone()).await;
    assert_eq!(busy.problem(409, "lease-held")["lease"]["holder"], "one");
    for query in ["wait=21", "wait=-1", "wait=x", "wait="] {
        rejects(
            service.put(&format!("/v1/leases/tenant/mydb:main?{query}"), body.clone()).await,
            "invalid-parameter",
            "wait",
        );
    }
}

#[tokio::test]
async fn a_refresh_keeps_the_token_and_what_it_does_not_name() {
    let service = Service::start().await;
    ledger(&service, "tenant/mydb").await;
    let body = json!({ "name": "index_lock", "holder": "one", "target_t": 42 });
    service.put(LEASES, body).await.expect(200);
    let refreshed = service.put(LEASES, json!({ "name": "index_lock", "holder": "one", "token": 1 })).await.expect(200);
    assert_eq!((&refreshed["token"], &refreshed["lease"]["target_t"]), (&json!(1), &json!(42)));
    assert!(refreshed["lease"]["refreshed_at"].is_i64());
    let lost = service.put(LEASES, json!({ "name": "index_lock", "holder": "one", "token": 2 })).await;
    assert_eq!(lost.problem(409, "lease-lost")["lease"], refreshed["lease"]);
}

#[tokio::test]
async fn a_lease_lasts_five_minutes_by_default() {
    let service = Service::start().await;
    ledger(&service, "tenant/mydb").await;
    let held = service.put(LEASES, json!({ "name": "index_lock", "holder": "one" })).await.expect(200);
    let ttl = held["lease"]["expires_at"].as_i64().unwrap() - held["lease"]["acquired_at"].as_i64().unwrap();
    assert!((300..=301).contains(&ttl), "{held}");
}

#[tokio::test]
async fn only_the_current_token_pushes() {
    let service = Service::start().await;
    ledger(&service, "tenant/mydb").await;
    let lease =
        service.put(LEASES, json!({ "name": "index_lock", "holder": "one" })).await.expect(200)["lease"].clone();
    let with =
        |token: i64| json!({ "new": commit(1), "lease": { "name": "index_lock", "holder": "one", "token": token } });
    let heads = "/v1/heads/tenant/mydb:main";
    assert_eq!(service.put(heads, with(2)).await.problem(409, "lease-lost")["lease"], lease);
    assert_eq!(service.put(heads, with(1)).await.expect(200)["status"], "updated");
}

#[tokio::test]
async fn unknown_and_retracted_records_have_no_lease() {
    let service = Service::start().await;
    let anyone = json!({ "name": "index_lock", "holder": "one" });
    service.put(LEASES, anyone.clone()).await.problem(404, "unknown-record");
    ledger(&service, "tenant/mydb").await;
    retract(&service, "tenant/mydb").await;
    service.put(LEASES, anyone).await.problem(410, "retracted");
}

#[tokio::test]
async fn a_body_that_is_no_lease_names_its_field_and_reaches_no_store() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    service.table.proxy.take_requests();
    let good = json!({ "name": "index_lock", "holder": "one" });
    for (member, value) in [
        ("ttl_seconds", json!(0)),
        ("ttl_seconds", json!(3601)),
        ("ttl_seconds", json!(-1)),
        ("ttl_seconds", json!(1.5)),
        ("holder", json!("")),
        ("holder", json!(" \t")),
        ("holder", json!("x".repeat(257))),
        ("holder", json!(null)),
        ("name", json!("Not A Name")),
        ("token", json!(0)),
        ("target_t", json!(-1)),
        ("more", json!(1)),
    ] {
        let mut body = good.clone();
        body[member] = value;
        let problem = service.put("/v1/leases/mydb", body.clone()).await.problem(400, "invalid-body");
        let named = problem["field"] == member || problem["detail"].as_str().unwrap().contains(member);
        assert!(named, "{body}: {problem}");
    }
    let smuggled = json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "x", "index_lock": {} } } });
    service.put("/v1/statuses/mydb", smuggled).await.problem(400, "invalid-body");
    for lease in [
        json!({ "name": "index_lock", "holder": "one", "token": 0 }),
        json!({ "name": "index_lock", "holder": " ", "token": 1 }),
        json!({ "name": "index_lock", "holder": "one" }),
        json!({ "name": "index_lock", "holder": "one", "token": 1, "more": 1 }),
    ] {
        service.put("/v1/heads/mydb", json!({ "new": commit(1), "lease": lease })).await.problem(400, "invalid-body");
    }
    assert_eq!(service.table.proxy.take_requests().len(), 0);
    for ttl in [1, 3600] {
        let mut body = good.clone();
        body["ttl_seconds"] = json!(ttl);
        service.put("/v1/leases/mydb", body).await.expect(200);
    }
}

#[tokio::test]
async fn an_acquisition_repeated_under_its_key_takes_one_token() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    let take = async |key: &str| {
        let body = json!({ "name": "index_lock", "holder": "one" });
        service.send(Method::PUT, "/v1/leases/mydb", &[("idempotency-key", key)], Some(body)).await.expect(200)
    };
    let first = take("a").await;
    assert_eq!(take("a").await, first);
    assert_eq!(take("b").await["token"], json!(2));
}
