//! GraphiQL.

use super::*;
use crate::routes::authorization::verifying;

#[tokio::test]
async fn graphiql_loads_nothing_from_another_host() {
    let graph = Graph::with(verifying(), Writes::Here);
    let (status, headers, page) = graph.send(Request::get("/graphiql").body(Body::empty()).unwrap()).await;
    let page = String::from_utf8(page).unwrap();
    assert_eq!(status, 200);
    assert!(headers["content-security-policy"].to_str().unwrap().contains("script-src 'self'"));
    assert!(!page.contains("://") && !page.contains("<script>"), "{page}");
    let mut files = 0;
    for part in page.split('"').filter(|part| part.starts_with("graphiql/")) {
        let (status, headers, body) = graph.send(Request::get(format!("/{part}")).body(Body::empty()).unwrap()).await;
        assert!(status == 200 && !body.is_empty(), "{part}");
        // Vendored files are compressed.
        assert_eq!(headers.contains_key(header::CONTENT_ENCODING), body.starts_with(b"\x1f\x8b"), "{part}");
        files += 1;
    }
    assert_eq!(files, 6);
    let (status, ..) = graph.send(Request::get("/graphiql/nothing.js").body(Body::empty()).unwrap()).await;
    assert_eq!(status, 404);
}
