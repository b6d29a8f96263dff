//! Every route with every scope, without a token, and with one that has expired or is not of this service.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use nameservice_cli::{routes, serve};
use nameservice_embedded::{Embedded, Options};
use nameservice_http::{App, Auth};
use nameservice_tests::service::client;

use super::{
    authorization::{expired, foreign, guarded, narrow, scope, verifying},
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

#[tokio::test]
async fn metrics_are_for_callers_who_may_read_and_open_only_where_the_service_is() {
    let names = Embedded::memory(Options::default()).unwrap();
    let started = async |auth: Auth| {
        let listener = serve::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        serve::start(listener, App::new(Arc::new(names.clone()), Arc::new(names.clone()), auth), None).unwrap()
    };
    let (keyed, open) = (started(verifying()).await, started(Auth::Open).await);
    let client = client();
    let ask = async |url: &str, token: Option<&str>| {
        let mut request = Request::get(format!("{url}/metrics"));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let answer = client.request(request.body(Full::default()).unwrap()).await.unwrap();
        let (status, challenge) = (answer.status().as_u16(), answer.headers().contains_key("www-authenticate"));
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (status, challenge, String::from_utf8_lossy(&text).into_owned())
    };
    for (token, status, kind) in [
        (None, 401, "unauthorized"),
        (Some("nonsense".to_owned()), 401, "unauthorized"),
        (Some(expired()), 401, "unauthorized"),
        (Some(foreign()), 401, "unauthorized"),
        (Some(scope("openid")), 403, "insufficient-scope"),
        (Some(scope("")), 403, "insufficient-scope"),
    ] {
        let (found, challenge, text) = ask(&keyed.url(), token.as_deref()).await;
        assert!(found == status && challenge && text.contains(kind), "{token:?}: {found} {text}");
        assert!(!text.contains("nameservice_"), "{token:?}: {text}");
    }
    for token in ["nameservice:read", "nameservice:write", "nameservice:admin"].map(scope) {
        let (status, _, text) = ask(&keyed.url(), Some(&token)).await;
        assert!(status == 200 && text.contains("\nnameservice_feed_position 0\n"), "{token}: {status} {text}");
    }
    let (status, ..) = ask(&keyed.url(), Some(&narrow("nameservice:read", json!(["a:*"])))).await;
    assert_eq!(status, 200, "metrics name no records");
    for token in [None, Some("nonsense")] {
        let (status, _, text) = ask(&open.url(), token).await;
        assert!(status == 200 && text.contains("\nnameservice_feed_position 0\n"), "{token:?}: {status} {text}");
    }
    keyed.stop().await;
    open.stop().await;
}
