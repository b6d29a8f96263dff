use super::*;

#[tokio::test]
async fn the_document_is_the_one_that_describes_the_routes_mounted() {
    let service = Service::start().await;
    let answer = service.get("/v1/openapi.json").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.expect(200), json!(nameservice_cli::routes::document()));
}

#[tokio::test]
async fn the_page_for_people_loads_nothing_from_elsewhere() {
    let service = Service::start().await;
    let answer = service.get("/v1/docs").await;
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(answer.header("content-security-policy").unwrap().contains("default-src 'none'"));
    let page = answer.expect(200);
    assert!(!page.as_str().unwrap().contains("src=\"http"));
}
