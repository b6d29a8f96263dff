//! Searches over the index: what they find, what they look at, and how they are sent.

use nameservice_http::{App, Auth};
use nameservice_opensearch::DEFAULT_INDEX;
use nameservice_tests::table::Table;
use tower::ServiceExt as _;

use super::*;

/// What is searched for in the tests.
const SEARCHES: [&str; 12] =
    ["books", "a", "main", "tenant/b", "old", "ooks", "bm25", "ready", "retracted a", "example", "ünï", "s:ma*n"];

/// The same words over the same records: in memory, and in the index.
#[tokio::test]
async fn a_search_finds_the_same_in_the_same_order_as_in_memory() {
    let ground = Ground::on_the_engine().await;
    let mut rng = StdRng::seed_from_u64(23);
    for _ in 0..150 {
        write(&ground.names, &mut rng).await;
    }
    assert!(ground.deliver(&ground.messages(0).await).await.is_empty());
    ground.index.refresh().await.unwrap();
    let mut hits = 0;
    for text in SEARCHES {
        for kind in [None, Some(RecordKind::Ledger)] {
            for state in [None, Some("ready".to_owned())] {
                for limit in [1, 3, 100] {
                    let words = SearchWords::parse(text).unwrap();
                    let limit = Limit::new(limit).unwrap();
                    let mut query = SearchQuery { kind, state: state.clone(), limit, ..SearchQuery::new(words) };
                    loop {
                        let expected = ground.names.search(&query, &anything).await.unwrap();
                        let found = ground.index.search(&query, None, &anything).await.unwrap();
                        assert_eq!(found, expected, "{text}: {query:?}");
                        hits += found.items.len();
                        match found.cursor {
                            Some(cursor) => query.cursor = Some(cursor),
                            None => break,
                        }
                    }
                }
            }
        }
    }
    assert!(hits > 100, "{hits}");
}

#[tokio::test]
async fn a_search_looks_at_nothing_that_its_caller_may_not_see() {
    let ground = Ground::on_the_engine().await;
    for name in NAMES {
        drop(ground.names.create_ledger(&Call::fresh(), &at(name), None, None).await.unwrap());
    }
    assert!(ground.deliver(&ground.messages(0).await).await.is_empty());
    ground.index.refresh().await.unwrap();
    let within = Within { globs: vec!["tenant/?/*".parse().unwrap()], addresses: vec![at("a:dev")] };
    let visible =
        |address: &Address| within.addresses.contains(address) || within.globs.iter().any(|glob| glob.matches(address));
    for text in ["a", "books", "main"] {
        for limit in [1, 100] {
            let mut query = SearchQuery::new(SearchWords::parse(text).unwrap());
            query.limit = Limit::new(limit).unwrap();
            loop {
                let expected = ground.names.search(&query, &visible).await.unwrap();
                assert_eq!(ground.index.search(&query, Some(&within), &visible).await.unwrap(), expected, "{text}");
                match expected.cursor {
                    Some(cursor) => query.cursor = Some(cursor),
                    None => break,
                }
            }
        }
    }
    let nothing = Within::default();
    let query = SearchQuery::new(SearchWords::parse("a").unwrap());
    assert!(ground.index.search(&query, Some(&nothing), &|_| false).await.unwrap().items.is_empty());
}

/// Answers a search through a route of the function. It could search the records of the nameservice itself, but must not.
async fn get(
    route: nameservice_http::Route,
    names: Arc<impl nameservice_model::Backend + 'static>,
    path: &str,
) -> (u16, Value) {
    let service = nameservice_http::service(axum::Router::from(route), App::new(names.clone(), names, Auth::Open));
    let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
    let answer = service.oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice::<Value>(&body).unwrap())
}

#[tokio::test]
async fn the_function_answers_from_the_index_and_knows_no_position() {
    let (ground, server) = Ground::new().await;
    drop(ground.names.create_ledger(&Call::fresh(), &at("tenant/a/books"), None, None).await.unwrap());
    assert!(ground.deliver(&ground.messages(0).await).await.is_empty());
    ground.index.refresh().await.unwrap();
    let get = |path| get(search_get::route_with(Arc::new(ground.index.clone())), Arc::new(ground.names.clone()), path);
    let (status, found) = get("/v1/search?q=books").await;
    assert_eq!((status, &found["hits"][0]["address"]), (200, &json!("tenant/a/books:main")));
    assert_eq!(get("/v1/search?q=books&min_position=1").await.0, 501);
    server.down(Some(503));
    assert_eq!(get("/v1/search?q=books").await.0, 503);
    server.down(Some(403));
    assert_eq!(get("/v1/search?q=books").await.0, 500);
}

#[tokio::test]
async fn the_function_without_an_index_has_no_search_and_reads_no_store() {
    let names = Embedded::memory(Options::default()).unwrap();
    drop(names.create_ledger(&Call::fresh(), &at("books"), None, None).await.unwrap());
    for path in ["/v1/search?q=books", "/v1/search?q=books&min_position=1"] {
        let (status, problem) = get(search_get::deployed().unwrap(), Arc::new(names.clone()), path).await;
        assert_eq!((status, &problem["capability"]), (501, &json!("search")), "{path}");
    }
    assert_eq!(get(search_get::deployed().unwrap(), Arc::new(names.clone()), "/v1/search?q=").await.0, 400);
}

#[tokio::test]
async fn the_health_of_a_deployment_with_an_index_shows_the_search() {
    let table = Table::fresh().await;
    let backend = nameservice::DynamoDb::new(table.store.clone(), table.feed.clone());
    for (route, has_search) in [(health_get::route(), false), (health_get::route_with_index(), true)] {
        let (status, health) = get(route, Arc::new(backend.clone()), "/v1/health").await;
        assert_eq!((status, &health["capabilities"]["search"]), (200, &json!(has_search)));
    }
}

#[tokio::test]
async fn requests_to_a_domain_are_signed() {
    let (server, address) = Server::start().await;
    let credentials =
        aws_sdk_sqs::config::Credentials::new("AKIDEXAMPLE", "secret", Some("session".to_owned()), None, "test");
    let credentials = aws_sdk_sqs::config::SharedCredentialsProvider::new(credentials);
    let signer = nameservice_opensearch::Signer::new(credentials, "eu-central-1", nameservice_opensearch::SERVICE);
    let index = OpenSearch::new(&format!("http://{address}"), "names", Some(signer)).unwrap();
    index.create().await.unwrap();
    assert!(index.get(&at("tenant/a:main")).await.unwrap().is_none());
    for headers in &server.index().headers {
        let authorization = headers["authorization"].to_str().unwrap();
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{authorization}");
        assert!(authorization.contains("/eu-central-1/es/aws4_request"), "{authorization}");
        assert!(authorization.contains("host;x-amz-date;x-amz-security-token"), "{authorization}");
        assert_eq!(headers["x-amz-security-token"], "session");
    }
    for (url, name) in
        [("ftp://x", DEFAULT_INDEX), ("https://x?a", DEFAULT_INDEX), ("https://x", "Names"), ("https://x", "_all")]
    {
        assert!(OpenSearch::new(url, name, None).is_err(), "{url} {name}");
    }
}
