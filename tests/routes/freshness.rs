//! Reads that ask for a minimum freshness, over a table and over the embedded backend.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::body::Body;
use http_body_util::BodyExt as _;
use nameservice_cli::routes;
use nameservice_embedded::{Embedded, Options};
use nameservice_files::{Bucket, Files};
use nameservice_http::{App, Auth, service};
use nameservice_model::{
    Address, Call, ChangeFeed, Cursor, History, HistoryQuery, Limit, Publisher as _, RecordKind, Run,
};
use nameservice_tests::{LONG, pump::pump};
use tower::ServiceExt as _;

use super::*;

#[tokio::test]
async fn a_record_is_shown_once_it_is_as_fresh_as_asked() {
    let service = Service::with_stream().await;
    born(&service, "mydb", 4).await;
    for query in
        ["min_t=4", "min_t=4&concern=head", "min_t=0&concern=index", "min_v=1&concern=status", "min_position=0"]
    {
        service.get(&format!("/v1/records/mydb?{query}")).await.expect(200);
    }
    for (query, record) in [("min_t=5", true), ("min_t=1&concern=index", true), ("min_v=1&concern=config", true)] {
        let problem = service.get(&format!("/v1/records/mydb?{query}")).await;
        assert!(problem.headers.contains_key("retry-after"));
        let problem = problem.problem(503, "not-yet");
        assert_eq!(problem["record"]["head"]["t"] == 4, record, "{query}");
    }
    let problem = service.get("/v1/records/nobody?min_t=1").await.problem(503, "not-yet");
    assert_eq!(problem["record"], json!(null));
    service.get("/v1/records/nobody").await.problem(404, "unknown-record");
    // The feed of a table follows its writes, and only those who ask pay for its position.
    let problem = service.get("/v1/records/mydb?min_position=9").await.problem(503, "not-yet");
    assert_eq!(problem["position"], 0);
    pump(&service.table).await;
    service.get("/v1/records/mydb?min_position=1").await.expect(200);
    for path in ["/v1/records", "/v1/snapshot"] {
        service.get(&format!("{path}?min_position=1")).await.expect(200);
        service.get(&format!("{path}?min_position=1000")).await.problem(503, "not-yet");
    }
    assert_eq!(service.get("/v1/records/mydb").await.header("nameservice-position"), None);
}

#[tokio::test]
async fn what_cannot_be_asked_names_the_parameter() {
    let service = Service::start().await;
    for (query, field) in [
        ("min_t=1&concern=status", "concern"),
        ("min_v=1&concern=head", "concern"),
        ("min_v=1", "concern"),
        ("concern=head", "concern"),
        ("min_t=1&min_v=1&concern=head", "min_v"),
        ("min_t=1&wait=21", "wait"),
    ] {
        rejects(service.get(&format!("/v1/records/mydb?{query}")).await, "invalid-parameter", field);
    }
    rejects(service.get("/v1/snapshot?wait=21").await, "invalid-parameter", "wait");
    rejects(service.get("/v1/records?min_position=-1").await, "invalid-parameter", "min_position");
}

#[tokio::test]
async fn a_reader_who_waits_is_answered_by_the_write() {
    let names = Embedded::memory(Options::default()).unwrap();
    let backend = Arc::new(names.clone());
    let router = service(routes::router(), App::new(backend.clone(), backend, Auth::Open));
    let ask = |method: &'static str, path: &str, body: Value| {
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        let (router, request) = (router.clone(), request.body(Body::from(body.to_string())).unwrap());
        async move {
            let response = router.oneshot(request).await.unwrap();
            let position =
                response.headers().get("nameservice-position").map(|value| value.to_str().unwrap().to_owned());
            let (status, body) = (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes());
            (status, position, serde_json::from_slice::<Value>(&body).unwrap())
        }
    };
    let created = ask("POST", "/v1/ledgers", json!({ "address": "mydb", "head": commit(1) })).await;
    assert_eq!((created.0, created.1), (201, Some(names.position().await.unwrap().to_string())));
    let waiting = tokio::spawn(ask("GET", "/v1/records/mydb?min_t=2&wait=20", json!(null)));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!waiting.is_finished());
    ask("PUT", "/v1/heads/mydb", json!({ "new": commit(2) })).await;
    let (status, position, record) = waiting.await.unwrap();
    assert_eq!((status, record["head"]["t"].as_i64()), (200, Some(2)));
    assert!(position.is_some());
    // A read whose wait is over fails, and shows the record as it is.
    let (status, _, problem) = ask("GET", "/v1/records/mydb?min_t=3&wait=1", json!(null)).await;
    assert_eq!((status, problem["record"]["head"]["t"].as_i64()), (503, Some(2)));
    let (status, ..) = ask("GET", "/v1/records/mydb?min_position=99", json!(null)).await;
    assert_eq!(status, 503);
}

/// A reader may ask before the record is created: every backend lets it wait.
#[tokio::test]
async fn a_record_that_does_not_exist_is_not_yet_as_fresh_as_asked_on_any_backend() {
    let (table, directory) = (Table::fresh().await, tempfile::tempdir().unwrap());
    let options = || nameservice_files::Options::default().with_interval(Duration::from_secs(3_600)).with_timeout(LONG);
    let embedded = Arc::new(Embedded::memory(Options::default()).unwrap());
    let files = Arc::new(Files::directory(directory.path(), false, options()).unwrap());
    let bucket = Bucket::over(Arc::new(nameservice_files::object_store::memory::InMemory::new()), "");
    let bucket = Arc::new(Files::bucket(bucket, options()));
    type Place = (&'static str, Arc<dyn Records>, Arc<dyn ChangeFeed>);
    let places: [Place; 4] = [
        ("dynamodb", Arc::new(table.store.clone()), Arc::new(table.feed.clone())),
        ("embedded", embedded.clone(), embedded),
        ("directory", files.clone(), files),
        ("bucket", bucket.clone(), bucket),
    ];
    for (name, backend, feed) in places {
        let router = service(routes::router(), App::new(backend.clone(), feed, Auth::Open));
        let ask = |query: &str| {
            let request = http::Request::get(format!("/v1/records/mydb{query}")).body(Body::empty()).unwrap();
            let router = router.clone();
            async move {
                let response = router.oneshot(request).await.unwrap();
                let status = response.status().as_u16();
                let body = response.into_body().collect().await.unwrap().to_bytes();
                (status, serde_json::from_slice::<Value>(&body).unwrap())
            }
        };
        for query in ["min_t=0", "min_t=1", "min_t=0&concern=index", "min_v=0&concern=status", "min_v=1&concern=config"]
        {
            let (status, problem) = ask(&format!("?{query}")).await;
            assert_eq!(status, 503, "{name}: {query}: {problem}");
            assert!(problem["type"].as_str().unwrap().ends_with("/not-yet"), "{name}: {query}: {problem}");
            assert!(problem.as_object().unwrap().get("record").is_some_and(Value::is_null), "{name}: {problem}");
        }
        assert_eq!(ask("").await.0, 404, "{name}");
        let waiting = tokio::spawn(ask("?min_t=1&wait=20"));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!waiting.is_finished(), "{name}");
        backend.create_ledger(&Call::fresh(), &at("mydb"), Some(&new_head(1)), None).await.unwrap().applied();
        let (status, record) = waiting.await.unwrap();
        assert_eq!((status, record["head"]["t"].as_i64()), (200, Some(1)), "{name}");
    }
}

/// A feed in which a change follows every look at its end.
struct Busy(Embedded);

#[async_trait]
impl ChangeFeed for Busy {
    async fn position(&self) -> nameservice_model::Result<u64> {
        let position = self.0.position().await?;
        let address = Address::parse(&format!("after{position}")).unwrap();
        let _ = self.0.create_ledger(&Call::fresh(), &address, None, None).await?;
        Ok(position)
    }

    fn is_immediate(&self) -> bool {
        self.0.is_immediate()
    }

    async fn changes(&self, after: u64, limit: Limit) -> nameservice_model::Result<Run> {
        self.0.changes(after, limit).await
    }

    async fn wait(&self, after: u64, at_most: Duration) -> nameservice_model::Result<()> {
        self.0.wait(after, at_most).await
    }

    async fn history(&self, address: &Address, query: &HistoryQuery) -> nameservice_model::Result<History> {
        self.0.history(address, query).await
    }
}

#[tokio::test]
async fn a_comparison_names_the_position_that_it_was_read_after_in_its_header_too() {
    let names = Embedded::memory(Options::default()).unwrap();
    let app = App::new(Arc::new(names.clone()), Arc::new(Busy(names)), Auth::Open);
    let request = http::Request::post("/v1/changes/compare").header("content-type", "application/json");
    let request = request.body(Body::from(json!({ "subscriptions": { "after0": {} } }).to_string())).unwrap();
    let response = service(routes::router(), app).oneshot(request).await.unwrap();
    let position = response.headers()["nameservice-position"].to_str().unwrap().to_owned();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(position, serde_json::from_slice::<Value>(&body).unwrap()["position"].to_string());
}

#[tokio::test]
async fn what_can_never_be_fresh_enough_is_rejected_immediately() {
    let service = Service::start().await;
    source(&service, "search", &[]).await;
    ledger(&service, "mydb").await;
    for path in
        ["/v1/records/search?min_t=1&wait=20", "/v1/records/mydb?min_t=-1", "/v1/records/mydb?min_t=9007199254740992"]
    {
        rejects(service.get(path).await, "invalid-parameter", "min_t");
    }
    rejects(service.get("/v1/records/mydb?min_v=-1&concern=status").await, "invalid-parameter", "min_v");
    rejects(service.get("/v1/records?limit=%2B5").await, "invalid-parameter", "limit");
    rejects(service.get("/v1/records?prefix=%FF").await, "invalid-parameter", "prefix");
    service.get("/v1/records?prefix=%2B5").await.expect(200);
    let cursor = service.get("/v1/records?limit=1").await.expect(200)["cursor"].as_str().unwrap().to_owned();
    for path in ["/v1/snapshot?", "/v1/search?q=a&"] {
        service.get(&format!("{path}cursor={cursor}")).await.problem(400, "invalid-cursor");
    }
    let cursor = service.get("/v1/snapshot?limit=1").await.expect(200)["cursor"].as_str().unwrap().to_owned();
    for path in ["/v1/records?", "/v1/branches/mydb?", "/v1/search?q=a&"] {
        service.get(&format!("{path}cursor={cursor}")).await.problem(400, "invalid-cursor");
    }
    let cursor = Cursor::after_hit(RecordKind::Ledger, "mydb:main", 1).encode();
    for path in ["/v1/records?", "/v1/branches/mydb?", "/v1/snapshot?"] {
        service.get(&format!("{path}cursor={cursor}")).await.problem(400, "invalid-cursor");
    }
}

#[tokio::test]
async fn a_payload_that_would_change_is_rejected_where_it_would() {
    let service = Service::start().await;
    ledger(&service, "mydb").await;
    for (payload, field) in [
        ("{\"a\": [1, 18446744073709551616]}", "a[1]"),
        ("{\"a\": 1e-400}", "a"),
        ("{\"a\": 1, \"a\": 2}", "a"),
        ("{\"a\": 0.1234567890123456789012345678901234567890}", "a"),
    ] {
        let headers = [("content-type", "application/json")];
        let config = format!("{{\"expected\": {{\"v\": 0}}, \"new\": {{\"payload\": {payload}}}}}");
        let answer = raw(&service, &Method::PUT, "/v1/configs/mydb", &headers, config.as_bytes()).await;
        rejects(answer, "invalid-body", &format!("new.payload.{field}"));
        let source = format!("{{\"source_type\": \"f:X\", \"config\": {payload}}}");
        let answer = raw(&service, &Method::PUT, "/v1/graph-sources/x", &headers, source.as_bytes()).await;
        rejects(answer, "invalid-body", &format!("config.{field}"));
    }
    // Configs of graph sources have the limits of all payloads.
    let mut deep = json!(1);
    for _ in 0..40 {
        deep = json!({ "a": deep });
    }
    for config in [deep, json!({ "a": { "": 1 } }), json!({ "a": 1e126 })] {
        let source = json!({ "source_type": "f:X", "config": config });
        service.put("/v1/graph-sources/x", source).await.problem(400, "invalid-body");
    }
}
