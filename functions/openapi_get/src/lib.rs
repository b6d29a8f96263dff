//! `GET /v1/openapi.json`: the OpenAPI document, `GET /v1/docs`: a page that renders it and sends requests, and
//! `GET /.well-known/fluree.json`: where Fluree's command-line tool finds the routes that it speaks.
//!
//! This crate does not depend on the other handlers, so the document is a file in it, made by `nameservice generate openapi` from
//! the routes that `nameservice serve` mounts. A test compares the two. The page is Swagger UI, vendored under
//! `assets/vendor`: it has no build step, and loads nothing from another host.

use std::sync::Arc;

use axum::{
    Extension, Json,
    extract::{Path, State, rejection::PathRejection},
    http::{HeaderMap, Uri, header},
    response::{IntoResponse, Response},
};
use nameservice_http::{Auth, MountedAt, Problem, Route, assets};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

const DOCUMENT: &str = include_str!("../openapi.json");
const PAGE: &str = include_str!("../assets/index.html");

/// The files under `assets/` that are served, by name.
const FILES: &[assets::File] = nameservice_http::assets! {
    "docs.js" "vendor/README.md" "vendor/swagger-ui-bundle.js" "vendor/swagger-ui-bundle.js.LICENSE.txt"
    "vendor/swagger-ui.LICENSE" "vendor/swagger-ui.NOTICE" "vendor/swagger-ui.css"
};

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct File {
    /// The path of the file, as the page names it.
    #[param(example = "docs.js")]
    file: String,
}

/// Get the OpenAPI document
///
/// Needs no token.
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    tag = "service",
    responses((status = OK, description = "The OpenAPI 3.1 document", body = Object, content_type = "application/json")),
)]
async fn openapi_get() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}

/// Read the documentation
///
/// A page for people, from the OpenAPI document, that also sends requests. Needs no token; its requests to the API do.
#[utoipa::path(
    get,
    path = "/v1/docs",
    tag = "service",
    responses(
        (status = OK, description = "The page", body = String, content_type = "text/html"),
        (status = NOT_MODIFIED, description = "One of the tags in `If-None-Match` is still current"),
    ),
)]
async fn docs_get(headers: HeaderMap) -> Response {
    assets::page(&headers, PAGE)
}

/// Get a file of the documentation
///
/// A script, a style sheet, a licence. Needs no token.
#[utoipa::path(
    get,
    path = "/v1/docs/{*file}",
    tag = "service",
    params(File),
    responses(
        (status = OK, description = "The file", body = String, content_type = "text/javascript"),
        (status = NOT_MODIFIED, description = "One of the tags in `If-None-Match` is still current"),
        (status = NOT_FOUND, description = "The page has no such file", body = nameservice_http::problem::ProblemDocument,
            content_type = "application/problem+json"),
    ),
)]
async fn docs_file_get(
    file: Result<Path<File>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // A path that is not UTF-8 names no file either.
    let name = file.ok().map(|Path(File { file })| file);
    assets::file(&headers, &uri, FILES, name.as_deref())
}

/// What Fluree's command-line tool asks a server for when it becomes a remote.
#[derive(Serialize, ToSchema)]
#[schema(as = FlureeDiscovery)]
struct Discovery {
    /// The version of this document.
    #[schema(example = 1)]
    version: u32,
    /// The path below which Fluree's routes are.
    #[schema(example = "/v1/fluree")]
    api_base_url: String,
    /// How to get a token; left out if none is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth: Option<DiscoveredAuth>,
}

/// How to get a token.
#[derive(Serialize, ToSchema)]
#[schema(as = FlureeDiscoveryAuth)]
struct DiscoveredAuth {
    /// `token`: the user has one, and passes it to `fluree auth login --token`.
    #[serde(rename = "type")]
    #[schema(example = "token")]
    kind: &'static str,
}

/// Find Fluree's routes
///
/// `fluree remote add` asks for this. Needs no token.
#[utoipa::path(
    get,
    path = "/.well-known/fluree.json",
    tag = "fluree",
    responses((status = OK, description = "Where the routes are, and whether they need a token", body = Discovery)),
)]
async fn fluree_discovery_get(State(auth): State<Arc<Auth>>, mounted: Option<Extension<MountedAt>>) -> Json<Discovery> {
    let base = mounted.map(|Extension(MountedAt(base))| base).unwrap_or_default();
    let auth = (!matches!(*auth, Auth::Open)).then_some(DiscoveredAuth { kind: "token" });
    Json(Discovery { version: 1, api_base_url: format!("{base}/v1/fluree"), auth })
}

/// Returns the routes of this operation.
pub fn route() -> Route {
    Route::new()
        .routes(routes!(openapi_get))
        .routes(routes!(docs_get))
        .routes(routes!(docs_file_get))
        .routes(routes!(fluree_discovery_get))
}
