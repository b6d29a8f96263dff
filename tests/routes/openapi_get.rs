use super::*;

#[tokio::test]
async fn the_document_is_the_one_that_describes_the_routes_mounted() {
    let service = Service::start().await;
    let answer = service.get("/v1/openapi.json").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.expect(200), json!(nameservice_cli::routes::document()));
}

#[tokio::test]
async fn flurees_command_line_tool_finds_its_routes() {
    let service = Service::start().await;
    let found = service.get("/.well-known/fluree.json").await.expect(200);
    assert_eq!(found, json!({ "version": 1, "api_base_url": "/v1/fluree" }));
    let base = found["api_base_url"].as_str().unwrap();
    assert_eq!(service.get(&format!("{base}/nameservice/snapshot")).await.expect(200)["ledgers"], json!([]));
    // One that checks tokens says so, and needs none for it.
    let found = authorization::guarded().await.get("/.well-known/fluree.json").await.expect(200);
    assert_eq!(found, json!({ "version": 1, "api_base_url": "/v1/fluree", "auth": { "type": "token" } }));
}

#[tokio::test]
async fn every_file_of_the_page_for_people_is_served_under_its_type_and_a_strict_policy() {
    let service = Service::start().await;
    let all = assets::assets("openapi_get");
    assert!(all.len() > 5, "{all:?}");
    assets::are_served(&service, &all, "/v1/docs").await;
    assets::is_relative_and_without_script(&service, "/v1/docs").await;
    for path in ["/v1/docs/nowhere.js", "/v1/docs/../Cargo.toml", "/v1/docs/%FF", "/v1/docs/vendor/"] {
        service.get(path).await.problem(404, "not-found");
    }
}

#[tokio::test]
async fn a_browser_that_has_the_page_is_not_sent_it_again() {
    let service = Service::start().await;
    for path in ["/v1/docs", "/v1/docs/vendor/swagger-ui-bundle.js"] {
        let first = service.get(path).await;
        let tag = first.header("etag").unwrap().to_owned();
        let again = service.send(Method::GET, path, &[("if-none-match", &tag)], None).await;
        assert_eq!(again.expect(304), Value::Null, "{path}");
    }
}
