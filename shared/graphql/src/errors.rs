//! Errors of fields, with the members of problem documents as their extensions.

use async_graphql::{Error, ErrorExtensions as _};
use nameservice_http::Problem;
use serde_json::Value;

/// An error with a code.
pub(crate) fn error(code: &str, reason: &str) -> Error {
    Error::new(reason).extend_with(|_, extensions| extensions.set("code", code))
}

/// A problem as an error: the detail, and the members of the problem document as extensions.
pub(crate) fn problem(problem: impl Into<Problem>) -> Error {
    let problem: Problem = problem.into();
    let document = problem.document();
    let code = document.type_uri.rsplit('/').next().unwrap_or_default().to_owned();
    Error::new(document.detail).extend_with(|_, extensions| {
        extensions.set("code", code);
        extensions.set("status", document.status);
        for (name, value) in document.members {
            if let Ok(value) = async_graphql::Value::from_json(Value::clone(&value)) {
                extensions.set(name, value);
            }
        }
    })
}
