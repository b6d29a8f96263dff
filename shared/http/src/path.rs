//! Paths of requests.

use axum::{
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is escaped in a path: all but what RFC 3986 leaves unreserved, and what addresses hold.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b':').remove(b'-').remove(b'.').remove(b'_').remove(b'~');
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
    let mut text = if path.starts_with('/') { String::new() } else { "/".to_owned() };
    for (n, part) in path.split('%').enumerate() {
        let is_escape = part.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
        text.push_str(match n {
            0 => "",
            _ if is_escape => "%",
            _ => "%25",
        });
        text.extend(utf8_percent_encode(part, ESCAPED));
    }
    text
}
