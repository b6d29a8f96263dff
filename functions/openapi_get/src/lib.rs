//! `GET /v1/openapi.json`: the OpenAPI document, and `GET /v1/docs`: a page that renders it.
//!
//! Handlers do not know each other, so the document is a file beside this one, made by `nameservice openapi` from the
//! routes that `nameservice serve` mounts. A test compares the two.

use axum::{http::header, response::IntoResponse};
use nameservice_http::Route;
use utoipa_axum::routes;

const DOCUMENT: &str = include_str!("../openapi.json");
/// Loads nothing from elsewhere, so that it works where only the service can be reached.
const PAGE: &str = include_str!("../docs.html");

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
/// A page for people, from the OpenAPI document. Needs no token.
#[utoipa::path(
    get,
    path = "/v1/docs",
    tag = "service",
    responses((status = OK, description = "The page", body = String, content_type = "text/html")),
)]
async fn docs_get() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'",
        ),
    ];
    (headers, PAGE)
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(openapi_get)).routes(routes!(docs_get))
}
