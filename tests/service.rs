//! The whole service over HTTP: every handler is mounted and answers in the shapes of docs/specification.md (HTTP).

use nameservice_tests::prelude::*;

fn value(n: i64) -> Value {
    json!({ "id": cid(n).as_str(), "t": n })
}

#[tokio::test]
async fn a_ledger_lives_from_creation_to_purge() {
    let service = Service::start().await;
    let created = service.post("/v1/ledgers", json!({ "address": "tenant/mydb" })).await;
    assert_eq!(created.header("location"), Some("/v1/records/tenant/mydb:main"));
    let record = created.expect(201);
    assert_eq!((&record["address"], &record["kind"]), (&json!("tenant/mydb:main"), &json!("ledger")));
    assert_eq!(record["head"], json!({ "id": null, "t": 0 }));
    service.post("/v1/ledgers", json!({ "address": "tenant/mydb" })).await.problem(409, "already-exists");

    let heads = "/v1/heads/tenant/mydb:main";
    let pushed = service.put(heads, json!({ "expected": { "id": null, "t": 0 }, "new": value(1) })).await.expect(200);
    assert_eq!(pushed["status"], "updated");
    assert_eq!(pushed["value"], value(1));
    let pushed = service.put(heads, json!({ "new": value(1) })).await.expect(200);
    assert_eq!((&pushed["status"], &pushed["replayed"]), (&json!("updated"), &json!(true)));
    let pushed = service.put(heads, json!({ "new": { "id": cid(9).as_str(), "t": 1 } })).await.expect(200);
    assert_eq!((&pushed["status"], &pushed["value"]), (&json!("stale"), &value(1)));
    let problem = service.put(heads, json!({ "expected": value(2), "new": value(3) })).await;
    assert_eq!(problem.problem(409, "conflict")["actual"], value(1));
    service.put("/v1/heads/nobody", json!({ "new": value(1) })).await.problem(404, "unknown-record");

    let index = json!({ "new": { "id": index_cid(1).as_str(), "t": 1 } });
    let pushed = service.put("/v1/indexes/tenant/mydb:main", index).await.expect(200);
    assert_eq!((&pushed["value"]["t"], &pushed["value"]["rev"]), (&json!(1), &json!(0)));
    let status = json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "syncing", "progress": 0.5 } } });
    let pushed = service.put("/v1/statuses/tenant/mydb:main", status).await.expect(200);
    assert_eq!(pushed["value"], json!({ "v": 2, "payload": { "state": "syncing", "progress": 0.5 } }));
    let config = json!({ "expected": { "v": 0, "payload": null }, "new": { "payload": { "theme": "dark" } } });
    let pushed = service.put("/v1/configs/tenant/mydb:main", config).await.expect(200);
    assert_eq!(pushed["value"], json!({ "v": 1, "payload": { "theme": "dark" } }));

    let branch = json!({ "name": "tenant/mydb", "branch": "dev", "source": "main" });
    let branch = service.post("/v1/branches", branch).await.expect(201);
    assert_eq!((&branch["head"], &branch["source_branch"]), (&value(1), &json!("main")));
    let publication = json!({ "source_type": "f:Bm25Index", "config": { "k1": 1.2 }, "dependencies": ["tenant/mydb"] });
    service.put("/v1/graph-sources/search", publication).await.expect(201);
    let retraction = "/v1/retractions/tenant/mydb:main";
    let rejected = service.post(retraction, json!({})).await.problem(409, "has-dependents");
    let mut dependents: Vec<_> = rejected["dependents"].as_array().unwrap().iter().map(Value::to_string).collect();
    dependents.sort();
    assert_eq!(dependents, ["\"search:main\"", "\"tenant/mydb:dev\""]);
    service.delete("/v1/records/search").await.expect(204);
    assert_eq!(service.delete("/v1/branches/tenant/mydb:dev").await.expect(200)["parent_branches"], json!(0));

    assert_eq!(service.post(retraction, json!({ "reason": "why" })).await.expect(200)["retracted"], json!(true));
    service.put(heads, json!({ "new": value(2) })).await.problem(410, "retracted");
    assert_eq!(
        service.post("/v1/restorations/tenant/mydb:main", json!({})).await.expect(200)["retracted"],
        json!(false)
    );
    let reset = json!({ "head": { "id": null, "t": 0 }, "index": { "id": null, "t": 0 } });
    service.post("/v1/resets/tenant/mydb:main", reset).await.expect(200);
    service.delete("/v1/records/tenant/mydb:main").await.expect(204);
    service.get("/v1/records/tenant/mydb:main").await.problem(404, "unknown-record");
    service.delete("/v1/records/tenant/mydb:main").await.problem(404, "unknown-record");
}

#[tokio::test]
async fn records_are_listed_in_pages_and_snapshots() {
    let service = Service::start().await;
    for name in ["a", "b", "c"] {
        service.post("/v1/ledgers", json!({ "address": name })).await.expect(201);
    }
    let page = service.get("/v1/records?limit=2").await.expect(200);
    assert_eq!(page["records"].as_array().unwrap().len(), 2);
    let cursor = page["cursor"].as_str().unwrap();
    let page = service.get(&format!("/v1/records?limit=2&cursor={cursor}")).await.expect(200);
    assert_eq!((&page["records"][0]["address"], page.get("cursor")), (&json!("c:main"), None));
    let snapshot = service.get("/v1/snapshot").await.expect(200);
    assert_eq!(snapshot["records"].as_array().unwrap().len(), 3);
    service.get("/v1/records?limit=nonsense").await.problem(400, "invalid-parameter");
    service.get("/v1/records?cursor=nonsense").await.problem(400, "invalid-cursor");
}

#[tokio::test]
async fn a_record_that_has_not_changed_is_not_sent_again() {
    let service = Service::start().await;
    service.post("/v1/ledgers", json!({ "address": "mydb" })).await.expect(201);
    let answer = service.get("/v1/records/mydb").await;
    let tag = answer.header("etag").unwrap().to_owned();
    let get = async || service.send(http::Method::GET, "/v1/records/mydb", &[("if-none-match", &tag)], None).await;
    assert_eq!(get().await.expect(304), Value::Null);
    service.put("/v1/heads/mydb", json!({ "new": value(1) })).await.expect(200);
    assert_eq!(get().await.expect(200)["head"], value(1));
}

#[tokio::test]
async fn a_repeated_call_under_its_key_applies_once_and_a_changed_body_is_rejected() {
    let service = Service::start().await;
    service.post("/v1/ledgers", json!({ "address": "mydb" })).await.expect(201);
    let push = async |v: i64| {
        let body = json!({ "expected": { "v": 1 }, "new": { "v": v, "payload": { "state": "x" } } });
        service.send(http::Method::PUT, "/v1/statuses/mydb", &[("idempotency-key", "one")], Some(body)).await
    };
    assert_eq!(push(2).await.expect(200)["status"], "updated");
    let again = push(2).await.expect(200);
    assert_eq!((&again["status"], &again["value"]["v"]), (&json!("updated"), &json!(2)));
    push(3).await.problem(422, "idempotency-key-reused");
    assert_eq!(service.get("/v1/records/mydb").await.expect(200)["status"]["v"], 2);
}

#[tokio::test]
async fn a_push_whose_reply_is_lost_is_updated_or_outcome_unknown_over_http() {
    let service = Service::start().await;
    service.post("/v1/ledgers", json!({ "address": "mydb" })).await.expect(201);
    service.table.proxy.on("UpdateItem", Fault::cut_reply());
    let answer = service.put("/v1/heads/mydb", json!({ "expected": { "id": null, "t": 0 }, "new": value(1) })).await;
    assert_eq!(answer.expect(200)["status"], "updated");
    let store = service.table.direct().clone();
    let overtaken = Fault::cut_request().after(move || {
        let store = store.clone();
        async move { drop(store.push_head(&Call::fresh(), &at("mydb"), &older(head(5))).await.unwrap()) }
    });
    service.table.proxy.on("UpdateItem", overtaken);
    let answer = service.put("/v1/heads/mydb", json!({ "expected": value(1), "new": value(2) })).await;
    answer.problem(503, "outcome-unknown");
}

#[tokio::test]
async fn every_rejection_is_a_problem_with_a_request_id() {
    let service = Service::start().await;
    for answer in [
        service.get("/v1/nowhere").await,
        service.delete("/v1/heads/mydb").await,
        service.get("/v1/records/a%25b").await,
        service.post("/v1/ledgers", json!({ "address": "mydb", "unknown": 1 })).await,
        service.put("/v1/heads/mydb", json!({ "new": { "id": "nonsense", "t": 1 } })).await,
    ] {
        assert!(answer.status.is_client_error(), "{answer:#?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{answer:#?}");
        assert!(answer.header("x-request-id").is_some(), "{answer:#?}");
        assert_eq!(answer.body["status"], json!(answer.status.as_u16()));
    }
}

#[tokio::test]
async fn the_service_reports_its_health_and_itself() {
    let service = Service::start().await;
    service.get("/v1/health").await.expect(200);
    assert!(service.table.proxy.take_requests().is_empty(), "the health of the process needs no store");
    service.get("/v1/health?deep=true").await.expect(200);
    assert_eq!(service.table.proxy.take_requests().len(), 1);
    let document = service.get("/v1/openapi.json").await.expect(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for path in ["/v1/ledgers", "/v1/heads/{address}", "/v1/records/{address}", "/v1/snapshot"] {
        assert!(document["paths"].get(path).is_some(), "{path}: {:?}", document["paths"].as_object().unwrap().keys());
    }
}

#[tokio::test]
async fn a_fluree_server_finds_its_remote() {
    let service = Service::start().await;
    service.table.put(&rows::ledger("mydb:main").commit(cid(1), 1).context("fluree:ctx", 1).rows()).await;
    for prefix in ["/fluree", "/v1/fluree"] {
        for id in ["mydb:main", "mydb%3Amain"] {
            let record = service.get(&format!("{prefix}/storage/ns/{id}")).await.expect(200);
            assert_eq!((&record["ledger_id"], &record["commit_t"]), (&json!("mydb:main"), &json!(1)));
            assert_eq!(record["commit_head_id"], cid(1).as_str());
        }
    }
    let commit = "/fluree/nameservice/refs/mydb:main/commit";
    let answer = service.post(commit, json!({ "expected": value(1), "new": value(2) })).await.expect(200);
    assert_eq!((&answer["status"], &answer["ref"]), (&json!("updated"), &value(2)));
    let answer = service.post(commit, json!({ "expected": value(1), "new": value(3) })).await.expect(409);
    assert_eq!(answer, json!({ "status": "conflict", "actual": value(2) }));
    let answer = service.post("/fluree/nameservice/refs/new:main/init", json!({})).await.expect(200);
    assert_eq!(answer["created"], json!(true));
    let snapshot = service.get("/fluree/nameservice/snapshot").await.expect(200);
    assert_eq!(snapshot["ledgers"].as_array().unwrap().len(), 2);
    assert_eq!(snapshot["graph_sources"], json!([]));
}
