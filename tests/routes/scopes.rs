//! Every route with every scope, without a token, and with one that has expired or is not of this service.

use http_body_util::BodyExt as _;
use nameservice_cli::routes;
use nameservice_tests::service::client;

use super::{
    authorization::{expired, foreign, guarded, scope},
    *,
};

/// The scope that each operation needs. Those that only read need `nameservice:read`.
fn needed(method: &str, path: &str) -> usize {
    match (method, path) {
        ("delete", "/v1/records/{address}" | "/v1/branches/{address}") => 3,
        (_, "/v1/resets/{address}" | "/v1/protections/{address}") => 3,
        ("get", _) | (_, "/v1/changes/compare") => 1,
        _ => 2,
    }
}

/// Asks the service at a URL, which verifies these tests' tokens, with every token on every route.
pub(crate) async fn matrix(url: &str) {
    let scopes = ["openid", "nameservice:read", "nameservice:write", "nameservice:admin"];
    let mut callers =
        vec![("no token", None, None), ("expired", Some(expired()), None), ("foreign", Some(foreign()), None)];
    callers.extend(scopes.iter().enumerate().map(|(rank, name)| (*name, Some(scope(name)), Some(rank))));
    let (client, document) = (client(), json!(routes::document()));
    let mut asked = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let route = if path.contains("refs") { format!("{path}/commit") } else { path.clone() };
            let route = route.replace("{address}", "nowhere").replace("{file}", "app.js");
            for (name, token, rank) in &callers {
                let mut request =
                    Request::builder().method(method.to_uppercase().as_str()).uri(format!("{url}{route}"));
                request = request.header("content-type", "application/json");
                if let Some(token) = token {
                    request = request.header("authorization", format!("Bearer {token}"));
                }
                let answer = client.request(request.body(Full::new(Bytes::from_static(b"{}"))).unwrap()).await.unwrap();
                let status = answer.status().as_u16();
                let what = format!("{name}: {method} {route}: {status}");
                match rank {
                    _ if operation.get("security").is_none() => assert!(!matches!(status, 401 | 403), "{what}"),
                    None => assert_eq!(status, 401, "{what}"),
                    Some(rank) if *rank < needed(method, path) => {
                        assert_eq!(status, 403, "{what}");
                        let text = answer.into_body().collect().await.unwrap().to_bytes();
                        assert!(String::from_utf8_lossy(&text).contains("insufficient-scope"), "{what}: {text:?}");
                    }
                    Some(_) => assert!(!matches!(status, 401 | 403), "{what}"),
                }
                asked += 1;
            }
        }
    }
    assert!(asked > 200, "{asked}");
}

#[tokio::test]
async fn every_route_checks_the_token_and_its_scope() {
    let service = guarded().await;
    matrix(service.url()).await;
}
