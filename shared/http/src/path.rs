//! Paths of requests.

use axum::{
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that are escaped in a path: all but the unreserved ones of RFC 3986 and those of addresses.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b':').remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Redirects for those who do not know the routes: to the documentation, or from the usual name of a health check to this
/// service's. Relative to the path, since a gateway may have a stage before it.
const REDIRECTS: [(&str, &str); 5] =
    [("/", "v1/docs"), ("/v1", "v1/docs"), ("/v1/", "docs"), ("/healthz", "v1/health"), ("/console/", "../console")];
/// Where a browser is redirected from `/`.
const CONSOLE: &str = "console";

/// Returns the redirect at a path that leads to an operation, if it is one.
pub fn redirect(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
    let (_, to) = REDIRECTS.iter().find(|(from, _)| *from == path)?;
    let to = if path == "/" && accepts_html(headers) { CONSOLE } else { *to };
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let headers = [(header::LOCATION, to), (header::VARY, "accept")];
    is_read.then(|| (StatusCode::TEMPORARY_REDIRECT, headers).into_response())
}

/// Whether a browser asks for a page. A program that accepts anything (`*/*`) is not a browser.
fn accepts_html(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = values.flat_map(|value| value.split(',')).filter_map(|range| range.split(';').next());
    types.any(|name| name.trim().eq_ignore_ascii_case("text/html"))
}

/// Escapes a path. The gateway passes it on decoded, a function URL as it was sent: an existing escape is kept (no
/// address contains a `%`, so nothing is lost), and a lone `%` is escaped.
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
