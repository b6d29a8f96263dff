//! `GET /v1/openapi.json`: the OpenAPI document, and `GET /v1/docs`: a page that renders it and sends requests.
//!
//! This crate does not depend on the other handlers, so the document is a file in it, made by `nameservice openapi` from
//! the routes that `nameservice serve` mounts. A test compares the two. The page is Swagger UI, vendored under
//! `assets/vendor`: it has no build step, and loads nothing from another host.

use axum::{
    extract::{Path, rejection::PathRejection},
    http::{HeaderMap, Uri, header},
    response::{IntoResponse, Response},
};
use nameservice_http::{Problem, Route, assets};
use serde::Deserialize;
use utoipa::IntoParams;
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

/// Returns the routes of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(openapi_get)).routes(routes!(docs_get)).routes(routes!(docs_file_get))
}
