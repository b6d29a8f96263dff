//! `GET /console`: the console, a page for people, and `GET /console/{file}`: the files that it consists of.
//!
//! It has no build step: `assets/` is what the browser loads. The page reads and writes through the public API with the
//! user's token, names everything relative to itself (a gateway may have a stage before the path), and loads nothing
//! from another host.

use axum::{
    extract::{Path, rejection::PathRejection},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use nameservice_http::{Problem, Route, etag::ETag};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

/// What the page may load and do: its own files, and requests to its own origin. No inline script, no inline style.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! files {
    ($($name:literal)*) => {
        /// The files under `assets/` that are served, by name.
        const FILES: &[(&str, &str)] = &[$(($name, include_str!(concat!("../assets/", $name)))),*];
    };
}

files! {
    "actions.js" "api.js" "app.js" "changes.js" "difference.js" "forms.js" "history.js" "icon.svg" "lib.js" "live.js"
    "parts.js" "record.js" "records.js" "store.js" "style.css" "virtual.js" "vendor/README.md" "vendor/htm.LICENSE"
    "vendor/htm.js" "vendor/hooks.js" "vendor/preact.LICENSE" "vendor/preact.js"
}

const PAGE: &str = include_str!("../assets/index.html");

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct File {
    /// The path of the file, as the page names it.
    #[param(example = "app.js")]
    file: String,
}

/// Open the console
///
/// A page for people: records, changes, and forms that write. Needs no token; its requests to the API do.
#[utoipa::path(
    get,
    path = "/console",
    tag = "service",
    responses(
        (status = OK, description = "The page", body = String, content_type = "text/html"),
        (status = NOT_MODIFIED, description = "One of the tags in `If-None-Match` is still right"),
    ),
)]
async fn console_get(headers: HeaderMap) -> Response {
    answer(&headers, "text/html; charset=utf-8", PAGE)
}

/// Get a file of the console
///
/// A module, a style sheet, an icon. Needs no token.
#[utoipa::path(
    get,
    path = "/console/{*file}",
    tag = "service",
    params(File),
    responses(
        (status = OK, description = "The file", body = String, content_type = "text/javascript"),
        (status = NOT_MODIFIED, description = "One of the tags in `If-None-Match` is still right"),
        (status = NOT_FOUND, description = "The console has no such file", body = nameservice_http::problem::ProblemDocument,
            content_type = "application/problem+json"),
    ),
)]
async fn console_file_get(
    file: Result<Path<File>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // A path that is not UTF-8 names no file either.
    let found = file.ok().and_then(|Path(File { file })| FILES.iter().find(|(name, _)| *name == file));
    let (name, text) = found.ok_or_else(|| Problem::not_found(uri.path()))?;
    Ok(answer(&headers, content_type(name), text))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// A file under its tag: a browser asks each time, and is sent only what a newer version has changed.
fn answer(headers: &HeaderMap, content_type: &'static str, text: &'static str) -> Response {
    let tag = ETag::of(text.as_bytes());
    let fixed = |name: HeaderName, value: &'static str| (name, HeaderValue::from_static(value));
    let all = [
        fixed(header::CONTENT_TYPE, content_type),
        fixed(header::CACHE_CONTROL, "no-cache"),
        fixed(header::CONTENT_SECURITY_POLICY, POLICY),
        fixed(header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        fixed(header::REFERRER_POLICY, "no-referrer"),
        tag.header(),
    ];
    match tag.is_in(headers) {
        true => (StatusCode::NOT_MODIFIED, all).into_response(),
        false => (all, text).into_response(),
    }
}

/// The routes of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(console_get)).routes(routes!(console_file_get))
}
