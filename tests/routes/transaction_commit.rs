use super::*;

async fn service() -> Service {
    let service = Service::start().await;
    for name in ["a", "tenant/b"] {
        born(&service, name, 1).await;
    }
    service.table.proxy.take_requests();
    service
}

#[tokio::test]
async fn every_result_has_the_shape_of_its_operation() {
    let service = service().await;
    let transact =
        async |operations: Value| service.post("/v1/transactions", json!({ "operations": operations })).await;
    let answer = transact(json!([
        { "op": "push_head", "address": "a", "expected": commit(1), "new": commit(2) },
        { "op": "push_head", "address": "tenant/b:main", "new": commit(1) },
        { "op": "push_index", "address": "a", "new": { "id": index_cid(1).as_str(), "t": 1, "graphs": { "g": null } } },
        { "op": "push_status", "address": "a", "expected": { "v": 1 }, "new": { "payload": { "state": "x" } } },
        { "op": "push_config", "address": "a", "expected": { "v": 0 }, "new": { "payload": { "k": 1 } } },
        { "op": "check", "address": "tenant/b", "concern": "status", "expected": { "v": 1 } },
        { "op": "check", "address": "tenant/b", "concern": "config", "expected": { "v": 0 } },
        { "op": "check", "address": "tenant/b", "concern": "index", "expected": { "id": null, "t": 0 } },
    ]))
    .await
    .expect(200);
    let results = [
        json!({ "status": "updated", "value": commit(2) }),
        json!({ "status": "updated", "value": commit(1), "replayed": true }),
        json!({ "status": "updated", "value": { "id": index_cid(1).as_str(), "t": 1, "rev": 0, "graphs": { "g": null } } }),
        json!({ "status": "updated", "value": { "v": 2, "payload": { "state": "x" } } }),
        json!({ "status": "updated", "value": { "v": 1, "payload": { "k": 1 } } }),
        json!({ "status": "passed" }),
        json!({ "status": "passed" }),
        json!({ "status": "passed" }),
    ];
    assert_eq!(answer, json!({ "results": results }));

    service.put("/v1/leases/tenant/b", json!({ "name": "index_lock", "holder": "one" })).await.expect(200);
    let lease = json!({ "name": "index_lock", "holder": "two", "token": 1 });
    let rejected = transact(json!([
        { "op": "push_head", "address": "a", "new": commit(3) },
        { "op": "push_head", "address": "tenant/b", "new": commit(3), "lease": lease },
        { "op": "push_index", "address": "a", "new": { "id": index_cid(9).as_str(), "t": 1 } },
        { "op": "push_status", "address": "a", "expected": { "v": 1 }, "new": { "payload": { "state": "x" } } },
        { "op": "push_head", "address": "nowhere", "new": commit(1) },
    ]))
    .await
    .problem(409, "transaction-refused");
    let results = rejected["results"].as_array().unwrap();
    assert_eq!(results[0], json!({ "status": "passed" }));
    assert_eq!((&results[1]["status"], &results[1]["lease"]["holder"]), (&json!("lease-lost"), &json!("one")));
    assert_eq!((&results[2]["status"], &results[2]["actual"]["t"]), (&json!("stale"), &json!(1)));
    assert_eq!((&results[3]["status"], &results[3]["actual"]["v"]), (&json!("conflict"), &json!(2)));
    assert_eq!(results[4], json!({ "status": "unknown-record", "actual": null }));
    assert_eq!(service.get("/v1/records/a").await.expect(200)["head"], commit(2));
}

#[tokio::test]
async fn what_no_transaction_can_be_is_rejected_naming_the_operation_and_the_field() {
    let service = service().await;
    let head = |n: i64| json!({ "op": "push_head", "address": format!("db{n}"), "new": commit(1) });
    let status =
        json!({ "op": "push_status", "address": "a", "expected": { "v": 1 }, "new": { "payload": { "state": "x" } } });
    for (operations, field) in [
        (json!([]), "operations"),
        ((0..49).map(head).collect::<Value>(), "operations"),
        (json!("x"), "operations"),
        (json!([1]), "operations[0]"),
        (
            json!([head(1), { "op": "push_head", "address": "a", "new": { "id": cid(1).as_str(), "t": 0 } }]),
            "operations[1].new.t",
        ),
        (
            json!([head(1), { "op": "push_head", "address": "a", "new": { "id": cid(1).as_str(), "t": "x" } }]),
            "operations[1].new.t",
        ),
        (json!([head(1), { "op": "push_head", "address": "a", "new": commit(1), "more": 1 }]), "operations[1].more"),
        (json!([{ "op": "push_head", "new": commit(1) }]), "operations[0].address"),
        (json!([{ "address": "a", "new": commit(1) }]), "operations[0].op"),
        (json!([{ "op": "drop", "address": "a" }]), "operations[0].op"),
        (json!([{ "op": "push_head", "address": "a", "expected": null, "new": commit(1) }]), "operations[0].expected"),
        (json!([{ "op": "push_index", "address": "a", "expected": null, "new": commit(1) }]), "operations[0].expected"),
        (
            json!([{ "op": "push_status", "address": "a", "new": { "payload": { "state": "x" } } }]),
            "operations[0].expected",
        ),
        (json!([{ "op": "check", "address": "a", "concern": "head" }]), "operations[0].expected"),
        (json!([{ "op": "check", "address": "a", "concern": "meta", "expected": {} }]), "operations[0].concern"),
        (json!([{ "op": "check", "address": "a", "concern": "head", "expected": null }]), "operations[0].expected"),
        (
            json!([head(1), { "op": "check", "address": "a", "concern": "status", "expected": { "v": 0 } }]),
            "operations[1].expected.v",
        ),
        (json!([head(1), head(2), head(1)]), "operations[2]"),
        (
            json!([status, { "op": "check", "address": "a:main", "concern": "status", "expected": { "v": 1 } }]),
            "operations[1]",
        ),
        (
            json!([{ "op": "push_head", "address": "a", "new": commit(1), "lease": { "name": "index_lock", "holder": "x", "token": 0 } }]),
            "operations[0].lease.token",
        ),
    ] {
        let body = json!({ "operations": operations });
        let problem = service.post("/v1/transactions", body.clone()).await.problem(400, "invalid-body");
        assert_eq!(problem["field"], field, "{body}: {problem}");
    }
    for (operation, kind, field) in [
        (json!({ "op": "push_head", "address": "a%b", "new": commit(1) }), "invalid-address", "operations[0].address"),
        (
            json!({ "op": "push_head", "address": "a", "new": { "id": "Qm", "t": 1 } }),
            "invalid-content-id",
            "operations[0].new.id",
        ),
    ] {
        let problem = service.post("/v1/transactions", json!({ "operations": [operation] })).await.problem(400, kind);
        assert_eq!(problem["field"], field, "{problem}");
    }
    for text in [
        r#"{"operations":[{"op":"check","op":"check","address":"a","concern":"head","expected":{"id":null,"t":0}}]}"#,
        r#"{"operations":[{"op":"push_head","address":"a","address":"tenant/b","new":{"id":null,"t":0}}]}"#,
        r#"{"operations":[],"operations":[]}"#,
        r#"{"operations":[],"more":1}"#,
        "{}",
    ] {
        let request = http::Request::post(format!("{}/v1/transactions", service.url()))
            .header("content-type", "application/json")
            .body(text.to_owned().into_bytes().into())
            .unwrap();
        service.exchange(request).await.problem(400, "invalid-body");
    }
    assert_eq!(service.table.proxy.take_requests().len(), 0, "nothing of this reaches the store");
    let most: Value = (0..48).map(head).collect();
    let rejected = service.post("/v1/transactions", json!({ "operations": most })).await;
    assert_eq!(rejected.problem(409, "transaction-refused")["results"].as_array().unwrap().len(), 48);
}

#[tokio::test]
async fn the_most_operations_each_under_a_lease_fit_one_transaction() {
    let service = Service::over(Table::fresh().await, nameservice_http::Auth::Open).await;
    for n in 0..48 {
        ledger(&service, &format!("db{n}")).await;
        let body = json!({ "name": "index_lock", "holder": "one" });
        service.put(&format!("/v1/leases/db{n}"), body).await.expect(200);
    }
    service.table.proxy.take_requests();
    let lease = json!({ "name": "index_lock", "holder": "one", "token": 1 });
    let one = |n: i64| json!({ "op": "push_head", "address": format!("db{n}"), "new": commit(1), "lease": lease });
    let operations: Value = (0..48).map(one).collect();
    let answer = service.post("/v1/transactions", json!({ "operations": operations })).await.expect(200);
    assert_eq!(answer["results"].as_array().unwrap().len(), 48);
    let requests = service.table.proxy.take_requests();
    assert_eq!((requests.len(), requests[0].body["TransactItems"].as_array().unwrap().len()), (1, 96));
}

#[tokio::test]
async fn a_transaction_repeated_under_its_key_is_applied_once() {
    let service = service().await;
    let send = async |key: &str, v: i64| {
        let operations = json!([
            { "op": "push_head", "address": "a", "new": commit(2) },
            { "op": "push_status", "address": "tenant/b", "expected": { "v": 1 },
              "new": { "v": v, "payload": { "state": "x" } } },
        ]);
        let body = json!({ "operations": operations });
        service.send(Method::POST, "/v1/transactions", &[("idempotency-key", key)], Some(body)).await
    };
    let first = send("one", 2).await.expect(200);
    assert_eq!(first["results"][1], json!({ "status": "updated", "value": { "v": 2, "payload": { "state": "x" } } }));
    let again = send("one", 2).await.expect(200);
    for result in again["results"].as_array().unwrap() {
        assert_eq!((&result["status"], &result["replayed"]), (&json!("updated"), &json!(true)), "{again}");
    }
    send("one", 3).await.problem(422, "idempotency-key-reused");
    send("two", 2).await.problem(409, "transaction-refused");
    // Others have moved one of the two on; the call is still recognised.
    service.put("/v1/heads/a", json!({ "new": commit(5) })).await.expect(200);
    let again = send("one", 2).await.expect(200);
    assert_eq!(again["results"][0], json!({ "status": "updated", "value": commit(2), "replayed": true }));
    let status = service.get("/v1/records/tenant/b").await.expect(200)["status"].clone();
    assert_eq!((&status["v"], service.get("/v1/records/a").await.expect(200)["head"].clone()), (&json!(2), commit(5)));
}
