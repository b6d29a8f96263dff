//! Files that a browser loads: pages, scripts, style sheets, compiled into the function that serves them.

use std::borrow::Cow;

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};

use crate::{Problem, etag::ETag};

/// What a page may load and do: its own files, and requests to its own origin. No inline script, no inline style.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What may follow `connect-src 'self'` in the policy.
const CONNECTS: &str = "connect-src 'self'";

/// A file: its name, as a page names it, and its text.
pub type File = (&'static str, &'static str);

/// Declares the files of a function by name, from the folder `assets` beside its `src`.
#[macro_export]
macro_rules! assets {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../assets/", $name)))),*]
    };
}

/// Answers with a page.
pub fn page(headers: &HeaderMap, text: &'static str) -> Response {
    answer(headers, "text/html; charset=utf-8", text, Cow::Borrowed(POLICY))
}

/// Answers with a page that may also send requests to these origins, which are separated by spaces.
pub fn page_with_origins(headers: &HeaderMap, text: &'static str, origins: &str) -> Response {
    let policy = POLICY.replacen(CONNECTS, &format!("{CONNECTS} {origins}"), 1);
    answer(headers, "text/html; charset=utf-8", text, Cow::Owned(policy))
}

/// Answers with a JSON document that belongs to a page.
pub fn json(headers: &HeaderMap, text: String) -> Response {
    answer(headers, "application/json", text, Cow::Borrowed(POLICY))
}

/// Answers with the file of this name; for `None`, that there is no such file.
pub fn file(headers: &HeaderMap, uri: &Uri, files: &[File], name: Option<&str>) -> Result<Response, Problem> {
    let found = files.iter().find(|(known, _)| Some(*known) == name);
    let (name, text) = found.ok_or_else(|| Problem::not_found(uri.path()))?;
    Ok(answer(headers, content_type(name), *text, Cow::Borrowed(POLICY)))
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// Answers with a file and its `ETag`: a browser revalidates each time, and is sent the file only if it has changed.
fn answer(
    headers: &HeaderMap,
    content_type: &'static str,
    text: impl Into<Cow<'static, str>>,
    policy: Cow<'static, str>,
) -> Response {
    let text = text.into();
    // A page is another one under another policy: a browser would keep the former one with what it has stored.
    let tag = match &policy {
        Cow::Borrowed(_) => ETag::of(text.as_bytes()),
        Cow::Owned(policy) => ETag::of(format!("{policy}\n{text}").as_bytes()),
    };
    let fixed = |name: HeaderName, value: &'static str| (name, HeaderValue::from_static(value));
    // Without a policy that can be sent, nothing but the strict one.
    let policy = HeaderValue::try_from(policy.as_ref()).unwrap_or(HeaderValue::from_static(POLICY));
    let all = [
        fixed(header::CONTENT_TYPE, content_type),
        fixed(header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, policy),
        fixed(header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        fixed(header::REFERRER_POLICY, "no-referrer"),
        tag.header(),
    ];
    match (tag.is_in(headers), text) {
        (true, _) => (StatusCode::NOT_MODIFIED, all).into_response(),
        (false, Cow::Borrowed(text)) => (all, text).into_response(),
        (false, Cow::Owned(text)) => (all, text).into_response(),
    }
}
