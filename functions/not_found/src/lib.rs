//! Answers everything that no other function does: the `$default` route behind the gateway. The answer is 405 if another
//! method would have found an operation, otherwise 404.
//!
//! A server that mounts all operations in one router does this automatically, and does not need this one.

use std::{collections::BTreeMap, sync::LazyLock};

use axum::{
    http::{HeaderMap, Method, Uri},
    response::{IntoResponse as _, Response},
    routing::any,
};
use nameservice_http::{Problem, Route, redirect};
use serde_json::{Map, Value};

/// The routes of the OpenAPI document: the template and the methods of each.
static ROUTES: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let document: Value = serde_json::from_str(include_str!("../../openapi_get/openapi.json")).unwrap_or_default();
    // Without a document no route is known, and every answer is 404.
    let paths: BTreeMap<String, Map<String, Value>> =
        serde_json::from_value(document["paths"].clone()).unwrap_or_default();
    let methods = |item: Map<String, Value>| {
        let methods = ["get", "put", "post", "delete"].iter().filter(|method| item.contains_key(**method));
        methods.map(|method| method.to_uppercase()).collect::<Vec<_>>().join(",")
    };
    paths.into_iter().map(|(template, item)| (template, methods(item))).collect()
});

async fn not_found(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path();
    redirect(&method, path, &headers).unwrap_or_else(|| problem(&method, path).into_response())
}

fn problem(method: &Method, path: &str) -> Problem {
    match ROUTES.iter().find(|(template, _)| takes(template, path)) {
        Some((_, allow)) if !allow.split(',').any(|allowed| allowed == method.as_str()) => {
            Problem::method_not_allowed(method.as_str(), Some(allow))
        }
        _ => Problem::not_found(path),
    }
}

/// Whether a path matches a template. The only parameter of a template takes the rest of the path.
fn takes(template: &str, path: &str) -> bool {
    // The Fluree routes are mounted twice and described once.
    let path = path.strip_prefix("/v1").filter(|rest| rest.starts_with("/fluree/")).unwrap_or(path);
    match template.split_once('{') {
        Some((start, _)) => path.strip_prefix(start).is_some_and(|rest| !rest.is_empty()),
        None => template == path,
    }
}

/// The routes of this operation.
pub fn route() -> Route {
    Route::new().route("/", any(not_found)).route("/{*path}", any(not_found))
}
