use super::*;

async fn protect(service: &Service, address: &str, protected: bool) -> Answer {
    service.put(&format!("/v1/protections/{}", escaped(address)), json!({ "protected": protected })).await
}

#[tokio::test]
async fn a_protected_record_says_so_and_what_would_lose_it_is_a_named_problem() {
    let service = Service::start().await;
    born(&service, "mydb", 3).await;
    branch(&service, "mydb", "dev").await;
    assert_eq!(shown(&service, "mydb").await.get("protected"), None, "other records have no such member");
    for address in ["mydb", "mydb:dev"] {
        let answer = protect(&service, address, true).await;
        assert_eq!(answer.header("nameservice-unchanged"), None);
        let full = if address == "mydb" { "mydb:main" } else { address };
        assert_eq!(answer.expect(200), json!({ "address": full, "protected": true }));
        assert_eq!(shown(&service, address).await["protected"], json!(true));
    }
    let snapshot = json!({ "head": commit(1), "index": unborn() });
    for (method, path, body) in [
        (Method::POST, "/v1/retractions/mydb", Some(json!({}))),
        (Method::DELETE, "/v1/records/mydb", None),
        (Method::POST, "/v1/resets/mydb", Some(snapshot)),
        (Method::DELETE, "/v1/branches/mydb:dev", None),
    ] {
        let problem = service.send(method, path, &[], body).await.problem(409, "protected");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("PUT /v1/protections/mydb"), "it says what to do: {detail}");
    }
    assert_eq!(shown(&service, "mydb").await["head"], commit(3));
    for address in ["mydb:dev", "mydb"] {
        assert_eq!(protect(&service, address, false).await.expect(200)["protected"], json!(false));
        service.delete(&format!("/v1/records/{address}")).await.expect(204);
    }
}

#[tokio::test]
async fn a_repetition_is_answered_alike_and_says_that_it_changed_nothing() {
    let service = Service::start().await;
    born(&service, "mydb", 3).await;
    for (protected, unchanged) in [(false, Some("true")), (true, None), (true, Some("true")), (false, None)] {
        let answer = protect(&service, "mydb", protected).await;
        assert_eq!(answer.header("nameservice-unchanged"), unchanged, "{protected}");
        assert_eq!(answer.expect(200)["protected"], json!(protected));
    }
}

#[tokio::test]
async fn an_unknown_record_is_not_found_and_anything_but_true_or_false_is_a_bad_body() {
    let service = Service::start().await;
    protect(&service, "nobody", true).await.problem(404, "unknown-record");
    born(&service, "mydb", 3).await;
    for body in
        [json!({}), json!({ "protected": "yes" }), json!({ "protected": null }), json!({ "protected": true, "x": 1 })]
    {
        service.put("/v1/protections/mydb", body).await.problem(400, "invalid-body");
    }
    assert_eq!(shown(&service, "mydb").await.get("protected"), None);
}

#[tokio::test]
async fn only_an_administrator_protects_and_unprotects() {
    use super::authorization::{as_, guarded, token};
    let service = guarded().await;
    let [admin, writer] = ["admin", "write"].map(|scope| token(json!({ "scope": format!("nameservice:{scope}") })));
    let ledger = json!({ "address": "mydb" });
    as_(&service, &writer, Method::POST, "/v1/ledgers", Some(ledger)).await.expect(201);
    let mark = |protected: bool| Some(json!({ "protected": protected }));
    let path = "/v1/protections/mydb";
    as_(&service, &writer, Method::PUT, path, mark(true)).await.problem(403, "insufficient-scope");
    as_(&service, &admin, Method::PUT, path, mark(true)).await.expect(200);
    as_(&service, &writer, Method::PUT, path, mark(false)).await.problem(403, "insufficient-scope");
    as_(&service, &writer, Method::POST, "/v1/retractions/mydb", None).await.problem(409, "protected");
}

#[tokio::test]
async fn a_protection_is_a_change_of_the_records_meta() {
    let service = Service::with_stream().await;
    born(&service, "mydb", 3).await;
    nameservice_tests::pump::pump(&service.table).await;
    let before = service.get("/v1/changes?after=0").await.expect(200)["position"].as_u64().unwrap();
    for protected in [true, true, false] {
        protect(&service, "mydb", protected).await.expect(200);
    }
    nameservice_tests::pump::pump(&service.table).await;
    let page = service.get(&format!("/v1/changes?after={before}")).await.expect(200);
    let changes: Vec<_> = page["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| json!([change["concern"], change["change"], change["payload"]]))
        .collect();
    assert_eq!(
        changes,
        [
            json!(["meta", "updated", { "retracted": false, "protected": true }]),
            json!(["meta", "updated", { "retracted": false }]),
        ]
    );
}
