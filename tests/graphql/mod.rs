//! GraphQL: the same records, writes and callers as over `/v1`.

mod callers;
mod hostile;
mod on_aws;
mod page;
mod records;
mod sockets;

use std::{fs, path::Path, sync::Arc};

use axum::{Router, body::Body, extract::FromRef as _};
use http::{Request, header};
use http_body_util::BodyExt as _;
use nameservice_cli::routes;
use nameservice_embedded::{Embedded, Options};
use nameservice_graphql::Writes;
use nameservice_http::{App, Auth};
use nameservice_projector::records::InProcess as Views;
use nameservice_tests::prelude::*;
use tower::ServiceExt as _;

/// A service over the embedded backend in memory.
struct Graph {
    app: App,
    router: Router,
    names: Embedded,
    token: Option<String>,
}

impl Graph {
    fn with(auth: Auth, writes: Writes) -> Self {
        let names = Embedded::memory(Options::default()).unwrap();
        let backend = Arc::new(names.clone());
        let app = App::new(backend.clone(), backend, auth);
        let views = Views::new(Arc::<dyn NameService>::from_ref(&app), Arc::<dyn ChangeFeed>::from_ref(&app));
        let routes = routes::router().merge(nameservice_graphql::router(Arc::new(views), writes));
        Self { app: app.clone(), router: nameservice_http::service(routes, app), names, token: None }
    }

    fn open() -> Self {
        Self::with(Auth::Open, Writes::Here)
    }

    /// The same for this caller.
    fn of(&self, token: &str) -> Self {
        let Self { app, router, names, .. } = self;
        Self { app: app.clone(), router: router.clone(), names: names.clone(), token: Some(token.to_owned()) }
    }

    async fn send(&self, request: Request<Body>) -> (u16, http::HeaderMap, Vec<u8>) {
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    async fn post(&self, headers: &[(&str, &str)], document: &str, variables: Value) -> (u16, Value) {
        let mut request = Request::post("/graphql").header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = json!({ "query": document, "variables": variables }).to_string();
        let (status, _, body) = self.send(request.body(Body::from(body)).unwrap()).await;
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// The data of a document that must succeed.
    async fn ask(&self, document: &str) -> Value {
        let (status, mut answer) = self.post(&[], document, json!({})).await;
        assert!(status == 200 && answer.get("errors").is_none(), "{status} {answer:#}");
        answer["data"].take()
    }

    /// The first error of a document that must fail.
    async fn rejected(&self, document: &str) -> Value {
        let (status, mut answer) = self.post(&[], document, json!({})).await;
        assert!(status == 200 && answer["errors"].is_array(), "{status} {answer:#}");
        answer["errors"][0].take()
    }
}

fn addresses(connection: &Value) -> Vec<&str> {
    let edges = connection["edges"].as_array().unwrap();
    edges.iter().map(|edge| edge["node"]["address"].as_str().unwrap()).collect()
}

#[test]
fn the_schema_is_the_one_that_is_checked_in() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/graphql/schema.graphql");
    let written = fs::read_to_string(file).unwrap();
    assert_eq!(nameservice_graphql::sdl().trim_end(), written.trim_end(), "run: .ci/generate graphql");
}
