use super::*;

#[tokio::test]
async fn no_route_is_a_problem_that_names_the_path() {
    let service = Service::start().await;
    for path in
        ["/nowhere", "/v2", "/v1/nowhere", "/v1/records/", "/v2/records/mydb", "/v1/ledgers/mydb", "/V1/records"]
    {
        let answer = service.get(path).await;
        assert!(answer.header("x-request-id").is_some(), "{path}");
        let problem = answer.problem(404, "not-found");
        assert!(problem["detail"].as_str().unwrap().contains(path), "{problem}");
    }
}

#[tokio::test]
async fn who_does_not_know_the_routes_is_led_to_them() {
    let service = Service::start().await;
    for (path, to) in [("/", "v1/docs"), ("/v1", "v1/docs"), ("/healthz", "v1/health"), ("/console/", "../console")] {
        let answer = service.get(path).await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (307, Some(to)), "{path}");
        service.get(&format!("/{}", to.trim_start_matches("../"))).await.expect(200);
        service.post(path, json!({})).await.problem(404, "not-found");
    }
}

#[tokio::test]
async fn another_method_is_answered_with_those_of_the_route() {
    let service = Service::start().await;
    for (method, path, allow) in [
        (Method::GET, "/v1/ledgers", &["POST"] as &[_]),
        (Method::POST, "/v1/records", &["GET", "HEAD"]),
        (Method::POST, "/v1/records/mydb", &["DELETE", "GET", "HEAD"]),
        (Method::PATCH, "/v1/snapshot", &["GET", "HEAD"]),
        (Method::POST, "/v1/heads/mydb", &["PUT"]),
        (Method::GET, "/v1/indexes/mydb", &["PUT"]),
        (Method::DELETE, "/v1/statuses/mydb", &["PUT"]),
        (Method::OPTIONS, "/v1/configs/mydb", &["PUT"]),
        (Method::POST, "/v1/graph-sources/a/b", &["PUT"]),
        (Method::PUT, "/v1/retractions/mydb", &["POST"]),
        (Method::GET, "/v1/restorations/mydb", &["POST"]),
        (Method::PUT, "/v1/resets/mydb", &["POST"]),
        (Method::DELETE, "/v1/protections/mydb", &["PUT"]),
        (Method::GET, "/v1/branches", &["POST"]),
        (Method::PUT, "/v1/branches/mydb", &["DELETE", "GET", "HEAD"]),
        (Method::POST, "/v1/health", &["GET", "HEAD"]),
        (Method::POST, "/v1/openapi.json", &["GET", "HEAD"]),
        (Method::POST, "/fluree/storage/ns/mydb", &["GET", "HEAD"]),
        (Method::GET, "/v1/fluree/nameservice/refs/mydb/commit", &["POST"]),
        (Method::HEAD, "/v1/ledgers", &["POST"]),
    ] {
        let answer = service.send(method.clone(), path, &[], None).await;
        let mut shown: Vec<_> = answer.header("allow").unwrap().split(',').map(str::trim).collect();
        shown.sort_unstable();
        assert_eq!(shown, allow, "{method} {path}");
        assert!(answer.header("x-request-id").is_some(), "{method} {path}");
        if method == Method::HEAD {
            assert_eq!(answer.expect(405), Value::Null);
        } else {
            answer.problem(405, "method-not-allowed");
        }
    }
}

#[tokio::test]
async fn every_answer_bears_the_id_of_its_request() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    for (method, path, status) in [
        (Method::GET, "/v1/records/mydb", 200),
        (Method::DELETE, "/v1/records/mydb", 204),
        (Method::GET, "/v1/records/mydb", 404),
        (Method::GET, "/v1/nowhere", 404),
        (Method::PATCH, "/v1/records", 405),
        (Method::PUT, "/v1/heads/mydb", 415),
        (Method::GET, "/v1/records?limit=0", 400),
        (Method::HEAD, "/v1/snapshot", 200),
    ] {
        let answer = service.send(method.clone(), path, &[("x-request-id", "mine-1")], None).await;
        assert_eq!(answer.header("x-request-id"), Some("mine-1"), "{method} {path}");
        answer.expect(status);
        let answer = service.send(method.clone(), path, &[("x-request-id", "not sane")], None).await;
        assert!(answer.header("x-request-id").is_some_and(|id| id != "not sane"), "{method} {path}");
    }
}
