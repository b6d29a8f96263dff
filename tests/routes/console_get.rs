use std::sync::Arc;

use ::console_get::{InvalidSignIn, Settings, SignIn};
use axum::body::Body;
use http_body_util::BodyExt as _;
use nameservice_embedded::{Embedded, Options};
use nameservice_http::{App, Auth, service};
use tower::ServiceExt as _;

use super::{assets::assets, *};

#[tokio::test]
async fn every_file_of_the_console_is_served_under_its_type_and_a_strict_policy() {
    let service = Service::start().await;
    let all = assets("console_get");
    assert!(all.len() > 15, "{all:?}");
    assets::are_served(&service, &all, "/console").await;
    for path in ["/console/nowhere.js", "/console/../Cargo.toml", "/console/%FF", "/console/vendor/"] {
        service.get(path).await.problem(404, "not-found");
    }
}

#[tokio::test]
async fn the_page_names_its_files_relative_to_itself_and_holds_no_script() {
    let service = Service::start().await;
    assets::is_relative_and_without_script(&service, "/console").await;
}

#[tokio::test]
async fn a_browser_that_has_a_file_is_not_sent_it_again() {
    let service = Service::start().await;
    for path in ["/console", "/console/app.js"] {
        let first = service.get(path).await;
        let tag = first.header("etag").unwrap().to_owned();
        assert_eq!(first.header("cache-control"), Some("no-cache"), "{path}");
        let again = service.send(Method::GET, path, &[("if-none-match", &tag)], None).await;
        assert_eq!(again.expect(304), Value::Null, "{path}");
    }
}

#[tokio::test]
async fn browsers_are_led_to_the_console_and_programs_to_the_documentation() {
    let service = Service::start().await;
    for (accept, to) in [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "console"),
        ("TEXT/HTML;q=0.9", "console"),
        ("*/*", "v1/docs"),
        ("application/json", "v1/docs"),
    ] {
        let answer = service.send(Method::GET, "/", &[("accept", accept)], None).await;
        assert_eq!((answer.status.as_u16(), answer.header("location")), (307, Some(to)), "{accept}");
        assert_eq!(answer.header("vary"), Some("accept"), "{accept}");
    }
}

#[tokio::test]
async fn the_settings_of_a_console_without_sign_in_name_none() {
    let service = Service::start().await;
    assert_eq!(service.get("/console/settings.json").await.expect(200), json!({"graphiql": false}));
    let policy = service.get("/console").await.header("content-security-policy").unwrap().to_owned();
    assert!(policy.contains("connect-src 'self';"), "{policy}");
}

#[tokio::test]
async fn a_console_may_send_requests_to_the_provider_at_which_its_users_sign_in_and_to_nobody_else() {
    let sign_in = SignIn::new("https://login.example.com/tenant", "console").unwrap();
    let sign_in = sign_in.with_scope("openid names").with_resource("urn:names");
    let sign_in = sign_in.with_token_origin("https://token.example.com:8443").unwrap();
    let router = axum::Router::from(::console_get::route_with(Settings::new(Some(sign_in), false)));
    let names = Arc::new(Embedded::memory(Options::default()).unwrap());
    let router = service(router, App::new(names.clone(), names, Auth::Open));
    let get = async |path: &str| {
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        router.clone().oneshot(request).await.unwrap()
    };
    let page = get("/console").await;
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(
        policy.contains("connect-src 'self' https://login.example.com https://token.example.com:8443;"),
        "{policy}"
    );
    let script = get("/console/app.js").await;
    assert!(script.headers()["content-security-policy"].to_str().unwrap().contains("connect-src 'self';"));
    let settings = get("/console/settings.json").await.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(
        serde_json::from_slice::<Value>(&settings).unwrap(),
        json!({"graphiql": false, "sign_in": {
            "issuer": "https://login.example.com/tenant", "client_id": "console", "scope": "openid names",
            "resource": "urn:names", "token_origin": "https://token.example.com:8443",
        }}),
    );

    // Nothing in them can say more than an origin in a policy.
    for url in
        ["", "login.example.com", "ftp://login.example.com", "https://a;script-src *", "https://a b", "https://u@a"]
    {
        assert!(matches!(SignIn::new(url, "console"), Err(InvalidSignIn::Url(_))), "{url}");
        let sign_in = SignIn::new("https://login.example.com", "console").unwrap();
        assert!(matches!(sign_in.with_token_origin(url), Err(InvalidSignIn::Origin(_))), "{url}");
    }
    let path = SignIn::new("https://a", "c").unwrap().with_token_origin("https://a/token");
    assert!(matches!(path, Err(InvalidSignIn::Origin(_))));
    let text = r#"{"issuer": "https://a", "client_id": "c"}"#;
    assert!(SignIn::from_json(text).is_ok());
    for text in [
        "",
        "{}",
        r#"{"issuer": "a", "client_id": "c"}"#,
        r#"{"issuer": "https://a", "client_id": "c", "secret": "s"}"#,
    ] {
        assert!(SignIn::from_json(text).is_err(), "{text}");
    }
}
