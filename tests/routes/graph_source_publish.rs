use super::*;

const SEARCH: &str = "/v1/graph-sources/search";

fn body(config: Value) -> Value {
    json!({ "source_type": "f:Bm25Index", "config": config })
}

#[tokio::test]
async fn a_graph_source_is_created_once_and_reconfigured_afterwards() {
    let service = Service::start().await;
    for name in ["a", "b"] {
        ledger(&service, name).await;
    }
    let mut new = body(json!({ "k1": 1.2, "any": "opaque" }));
    new["dependencies"] = json!(["a", "b:main"]);
    let answer = service.put(SEARCH, new).await;
    assert_eq!(answer.header("location"), Some("/v1/records/search:main"));
    let record = answer.expect(201);
    assert_eq!(record["dependencies"], json!(["a:main", "b:main"]));
    assert_eq!(record["config"], json!({ "v": 1, "payload": { "k1": 1.2, "any": "opaque" } }));
    service.put("/v1/indexes/search", json!({ "new": root(1) })).await.expect(200);

    let answer = service.put(SEARCH, body(json!({ "k1": 2 }))).await;
    assert_eq!(answer.header("location"), None);
    let record = answer.expect(200);
    assert_eq!(record["config"], json!({ "v": 2, "payload": { "k1": 2 } }));
    assert_eq!(record["dependencies"], json!(["a:main", "b:main"]), "left out, they stay");
    assert_eq!(record["index"]["t"], json!(1), "its index stays");
    let mut new = body(json!({}));
    new["dependencies"] = json!(["b"]);
    assert_eq!(service.put(SEARCH, new).await.expect(200)["dependencies"], json!(["b:main"]));
    assert_eq!(shown(&service, "a").await["dependents"], json!(0));
    assert_eq!(shown(&service, "b").await["dependents"], json!(1));
}

#[tokio::test]
async fn the_expected_version_of_the_config_is_compared() {
    let service = Service::start().await;
    let publish = async |v: i64| {
        let mut body = body(json!({ "v": v }));
        body["expected_v"] = json!(v);
        service.put(SEARCH, body).await
    };
    let rejected = publish(1).await.problem(409, "conflict");
    assert_eq!(rejected["actual"], Value::Null);
    publish(0).await.expect(201);
    assert_eq!(publish(0).await.problem(409, "conflict")["actual"], json!({ "v": 1, "payload": { "v": 0 } }));
    assert_eq!(publish(1).await.expect(200)["config"], json!({ "v": 2, "payload": { "v": 1 } }));
}

#[tokio::test]
async fn all_dependencies_that_are_missing_or_retracted_are_named() {
    let service = Service::start().await;
    for name in ["live", "gone"] {
        ledger(&service, name).await;
    }
    retract(&service, "gone").await;
    let mut new = body(json!({}));
    new["dependencies"] = json!(["live", "nobody", "gone", "a/b:dev"]);
    let rejected = service.put(SEARCH, new.clone()).await.problem(422, "missing-dependencies");
    assert_eq!(sorted(&rejected["missing"]), ["a/b:dev", "gone:main", "nobody:main"]);
    service.get("/v1/records/search").await.problem(404, "unknown-record");
    assert_eq!(shown(&service, "live").await["dependents"], json!(0));

    source(&service, "search", &["live"]).await;
    let rejected = service.put(SEARCH, new).await.problem(422, "missing-dependencies");
    assert_eq!(sorted(&rejected["missing"]), ["a/b:dev", "gone:main", "nobody:main"]);
    assert_eq!(shown(&service, "search").await["config"]["v"], json!(1), "nothing was written");
}

#[tokio::test]
async fn neither_a_ledger_nor_another_type_nor_a_retracted_one_is_reconfigured() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    service.put("/v1/graph-sources/mydb", body(json!({}))).await.problem(409, "wrong-kind");
    source(&service, "search", &[]).await;
    let other = json!({ "source_type": "f:HnswIndex", "config": {} });
    service.put(SEARCH, other).await.problem(409, "wrong-kind");
    retract(&service, "search").await;
    service.put(SEARCH, body(json!({}))).await.problem(410, "retracted");
}

#[tokio::test]
async fn a_publication_that_cannot_be_names_its_field() {
    let service = Service::start().await;
    let with = |name: &str, value: Value| {
        let mut body = body(json!({}));
        body[name] = value;
        body
    };
    let many: Vec<_> = (0..25).map(|i| format!("db{i}")).collect();
    let long = "t".repeat(129);
    for (body, kind, field) in [
        (json!({ "config": {} }), "invalid-body", "source_type"),
        (json!({ "source_type": "f:Bm25Index" }), "invalid-body", "config"),
        (with("source_type", json!(" ")), "invalid-body", "source_type"),
        (with("source_type", json!(long)), "invalid-body", "source_type"),
        (with("source_type", json!(1)), "invalid-body", "source_type"),
        (with("config", json!("{}")), "invalid-body", "config"),
        (with("config", json!(null)), "invalid-body", "config"),
        (with("expected_v", json!(-1)), "invalid-body", "expected_v"),
        (with("expected_v", json!("1")), "invalid-body", "expected_v"),
        (with("dependencies", json!("mydb")), "invalid-body", "dependencies"),
        (with("dependencies", json!(["a", 1])), "invalid-body", "dependencies[1]"),
        (with("dependencies", json!(["a", "b@"])), "invalid-address", "dependencies[1]"),
        (with("dependencies", json!(["a", "a:main"])), "invalid-body", "dependencies[1]"),
        (with("dependencies", json!(["a", "search:main"])), "invalid-body", "dependencies[1]"),
        (with("dependencies", json!(many)), "invalid-body", "dependencies"),
    ] {
        rejects(service.put(SEARCH, body).await, kind, field);
    }
    service.get("/v1/records/search").await.problem(404, "unknown-record");
}

#[tokio::test]
async fn the_most_dependencies_are_taken() {
    let service = Service::start().await;
    let names: Vec<_> = (0..24).map(|i| format!("db{i}")).collect();
    for name in &names {
        ledger(&service, name).await;
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    source(&service, "search", &names).await;
    service.delete("/v1/records/search").await.expect(204);
    assert_eq!(shown(&service, "db23").await["dependents"], json!(0));
}
