//! Paths of requests.

use axum::{
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};

/// Where somebody who does not know the routes is led: to the documentation, or, under the name that other services give
/// it, to the check of health. Relative to the path, since a gateway may have a stage before it.
const ENTRANCES: [(&str, &str); 5] =
    [("/", "v1/docs"), ("/v1", "v1/docs"), ("/v1/", "docs"), ("/healthz", "v1/health"), ("/console/", "../console")];
/// Where a browser is led from `/`.
const CONSOLE: &str = "console";

/// Returns the answer at a path that is no operation's, and leads to one.
pub fn entrance(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
    let (_, to) = ENTRANCES.iter().find(|(from, _)| *from == path)?;
    let to = if path == "/" && accepts_html(headers) { CONSOLE } else { *to };
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let headers = [(header::LOCATION, to), (header::VARY, "accept")];
    is_read.then(|| (StatusCode::TEMPORARY_REDIRECT, headers).into_response())
}

/// Whether a browser asks for a page. Programs that take anything (`*/*`) are none.
fn accepts_html(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = values.flat_map(|value| value.split(',')).filter_map(|range| range.split(';').next());
    types.any(|name| name.trim().eq_ignore_ascii_case("text/html"))
}

/// Escapes a path. The gateway hands it over decoded, a function URL as it was sent: an escape that is there stays
/// (no address holds a `%`, so nothing is lost), a lone `%` is escaped.
pub fn escape_path(path: &str) -> String {
    let bytes = path.as_bytes();
    let is_escape = |i: usize| bytes.get(i + 1..i + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    let mut text = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        text.push('/');
    }
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b':' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte));
            }
            b'%' if is_escape(i) => text.push('%'),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
