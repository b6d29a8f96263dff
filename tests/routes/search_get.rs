use nameservice_http::{App, Auth};
use nameservice_tests::in_process::InProcess;

use super::{
    authorization::{narrow, scope, verifying},
    *,
};

async fn ask(service: &InProcess, token: Option<&str>, path: &str) -> Answer {
    let bearer = token.map(|token| format!("Bearer {token}")).unwrap_or_default();
    let headers = [("authorization", bearer.as_str())];
    service.send(Method::GET, path, if token.is_some() { &headers } else { &[] }, None).await
}

async fn put(service: &InProcess, token: Option<&str>, path: &str, body: Value) {
    let bearer = token.map(|token| format!("Bearer {token}")).unwrap_or_default();
    let headers = [("authorization", bearer.as_str())];
    service.send(Method::PUT, path, if token.is_some() { &headers } else { &[] }, Some(body)).await.expect(201);
}

fn found(page: &Value) -> Vec<&str> {
    page["hits"].as_array().unwrap().iter().map(|hit| hit["address"].as_str().unwrap()).collect()
}

fn catalog(address: &str) -> (String, Value) {
    let config = json!({ "catalog": { "uri": "https://u:Hidden@rest.example" }, "clientSecret": "Hidden" });
    (format!("/v1/graph-sources/{address}"), json!({ "source_type": "f:IcebergMapping", "config": config }))
}

#[tokio::test]
async fn a_hit_says_what_it_is_and_where_the_words_were_found() {
    let service = InProcess::new();
    let (path, mut body) = catalog("lake/orders");
    body["config"] = json!({ "catalog": { "uri": "https://rest.example" } });
    put(&service, None, &path, body).await;
    // One with secrets is found by its address and type alone.
    let (path, body) = catalog("other");
    put(&service, None, &path, body).await;
    let page = ask(&service, None, "/v1/search?q=orders%20iceberg+rest.example").await.expect(200);
    let hit = json!({
        "address": "lake/orders:main", "kind": "graph_source", "name": "lake/orders", "branch": "main",
        "retracted": false, "source_type": "f:IcebergMapping", "state": "ready",
        "matched": ["address", "source_type", "config"], "rank": 1 + 5 + 6,
    });
    assert_eq!(page, json!({ "hits": [hit] }), "no cursor on the last page");
    let page = ask(&service, None, "/v1/search?q=orders&kind=ledger").await.expect(200);
    assert_eq!(page, json!({ "hits": [] }));
    for secret in ["hidden", "Hidden", "redacted"] {
        let page = ask(&service, None, &format!("/v1/search?q={secret}")).await.expect(200);
        assert_eq!(page, json!({ "hits": [] }), "{secret}");
    }
}

#[tokio::test]
async fn pages_follow_each_other_and_the_answer_names_its_position() {
    let service = InProcess::new();
    for name in ["a", "b", "c"] {
        service
            .send(Method::POST, "/v1/ledgers", &[], Some(json!({ "address": format!("db-{name}") })))
            .await
            .expect(201);
    }
    let position = service.backend.view().position();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let answer = ask(&service, None, &format!("/v1/search?q=db&limit=1{cursor}&min_position={position}")).await;
        assert_eq!(answer.header("nameservice-position"), Some(position.to_string().as_str()));
        let page = answer.expect(200);
        seen.extend(found(&page).into_iter().map(str::to_owned));
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, ["db-a:main", "db-b:main", "db-c:main"]);
    ask(&service, None, &format!("/v1/search?q=db&min_position={}", position + 1)).await.problem(503, "not-yet");
}

#[tokio::test]
async fn a_caller_finds_only_what_its_token_covers() {
    let service = InProcess::with(|backend| App::new(backend.clone(), backend, verifying()));
    let admin = scope("nameservice:admin");
    for address in ["tenant/a/x", "tenant/b/x", "other"] {
        let (path, body) = catalog(address);
        put(&service, Some(&admin), &path, body).await;
    }
    let all = ask(&service, Some(&admin), "/v1/search?q=iceberg").await.expect(200);
    assert_eq!(found(&all), ["other:main", "tenant/a/x:main", "tenant/b/x:main"]);
    let narrow = narrow("nameservice:read", json!(["tenant/a/*"]));
    for limit in [1, 20] {
        let page = ask(&service, Some(&narrow), &format!("/v1/search?q=iceberg&limit={limit}")).await.expect(200);
        assert_eq!(found(&page), ["tenant/a/x:main"]);
        assert_eq!(members(&page), ["hits"], "a cursor would say that there is more");
    }
    // Not even a caller who may read secrets finds records by them.
    assert!(found(&ask(&service, Some(&admin), "/v1/search?q=hidden").await.expect(200)).is_empty());
    ask(&service, None, "/v1/search?q=x").await.problem(401, "unauthorized");
    ask(&service, Some(&scope("openid")), "/v1/search?q=x").await.problem(403, "insufficient-scope");
}

#[tokio::test]
async fn a_parameter_that_cannot_be_is_named() {
    let service = InProcess::with(|backend| App::new(backend.clone(), backend, Auth::Open));
    let (long, many) = ("a".repeat(257), "a%20b%20c%20d%20e%20f%20g%20h%20i");
    for (query, field) in [
        ("", "q"),
        ("q=", "q"),
        ("q=%20%09", "q"),
        (&*format!("q={long}"), "q"),
        (&*format!("q={many}"), "q"),
        ("q=a&q=b", "q"),
        ("q=a&limit=0", "limit"),
        ("q=a&limit=1001", "limit"),
        ("q=a&kind=x", "kind"),
        ("q=a&order=name", "order"),
    ] {
        rejects(ask(&service, None, &format!("/v1/search?{query}")).await, "invalid-parameter", field);
    }
    rejects(ask(&service, None, "/v1/search?q=a&cursor=x").await, "invalid-cursor", "cursor");
}

#[tokio::test]
async fn a_table_has_no_search_and_is_not_asked() {
    let service = Service::start().await;
    service.table.proxy.take_requests();
    let problem = service.get("/v1/search?q=books").await.problem(501, "unsupported");
    assert_eq!(problem["capability"], "search");
    assert!(service.table.proxy.take_requests().is_empty());
}
