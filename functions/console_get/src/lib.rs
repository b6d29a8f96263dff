//! `GET /console`: the console, a page for people; and `GET /console/{file}`: its files.
//!
//! It has no build step: the browser loads `assets/` as it is. The page reads and writes through the public API with the
//! user's token, uses relative URLs only (a gateway may have a stage before the path), and loads nothing from another
//! host, except for the sign-in of callers at the issuer of their tokens, if its [`Settings`] name one.

mod settings;

use axum::{
    Extension,
    extract::{Path, rejection::PathRejection},
    http::{HeaderMap, Uri},
    response::Response,
};
use nameservice_http::{Problem, Route, assets};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

pub use settings::{InvalidSignIn, Settings, SignIn};

/// The variable of the function's environment that holds a [`SignIn`] as JSON.
#[cfg(feature = "lambda")]
const SIGN_IN: &str = "NAMESERVICE_CONSOLE_SIGN_IN";
/// The name of the file that holds the [`Settings`].
const SETTINGS: &str = "settings.json";

/// The files under `assets/` that are served, by name.
const FILES: &[assets::File] = nameservice_http::assets! {
    "actions.js" "api.js" "app.js" "attention.js" "changes.js" "difference.js" "forms.js" "history.js" "icon.svg" "json.js"
    "lib.js" "live.js" "menu.js" "oidc.js" "order.js" "overview.js" "parts.js" "place.js" "record.js" "records.js" "relations.js"
    "sentence.js" "session.js" "signin.js" "store.js" "style.css" "tree.js" "virtual.js" "vendor/README.md" "vendor/htm.LICENSE"
    "vendor/htm.js" "vendor/hooks.js" "vendor/preact.LICENSE" "vendor/preact.js"
};

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
        (status = NOT_MODIFIED, description = "One of the tags in `If-None-Match` is still current"),
    ),
)]
async fn console_get(settings: Option<Extension<Settings>>, headers: HeaderMap) -> Response {
    match settings.as_ref().and_then(|settings| settings.origins()) {
        Some(origins) => assets::page_with_origins(&headers, PAGE, origins),
        None => assets::page(&headers, PAGE),
    }
}

/// Get a file of the console
///
/// A module, a style sheet, an icon; `settings.json` says where users sign in. Needs no token.
#[utoipa::path(
    get,
    path = "/console/{*file}",
    tag = "service",
    params(File),
    responses(
        (status = OK, description = "The file", body = String, content_type = "text/javascript"),
        (status = NOT_MODIFIED, description = "One of the tags in `If-None-Match` is still current"),
        (status = NOT_FOUND, description = "The console has no such file", body = nameservice_http::problem::ProblemDocument,
            content_type = "application/problem+json"),
    ),
)]
async fn console_file_get(
    settings: Option<Extension<Settings>>,
    file: Result<Path<File>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // A path that is not UTF-8 names no file either.
    let name = file.ok().map(|Path(File { file })| file);
    if name.as_deref() == Some(SETTINGS) {
        return Ok(assets::json(&headers, settings.map_or_else(Settings::default, |it| it.0).document()));
    }
    assets::file(&headers, &uri, FILES, name.as_deref())
}

/// Returns the routes of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(console_get)).routes(routes!(console_file_get))
}

/// Returns the routes with the settings of this service.
pub fn route_with(settings: Settings) -> Route {
    route().layer(Extension(settings))
}

/// Returns the routes of the function: with the sign-in that its environment names, if it names one.
///
/// # Errors
///
/// The variable holds something else.
#[cfg(feature = "lambda")]
pub fn deployed() -> Result<Route, InvalidSignIn> {
    let text = std::env::var(SIGN_IN).unwrap_or_default();
    match text.is_empty() {
        true => Ok(route()),
        false => Ok(route_with(Settings::new(Some(SignIn::from_json(&text)?), false))),
    }
}
