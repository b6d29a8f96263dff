//! GraphiQL, a page that writes and runs documents. It holds no data; what it sends needs the caller's token.

use axum::{
    extract::Path,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use nameservice_http::{Problem, etag::ETag};

/// GraphiQL writes styles into its elements; scripts come from here alone.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
                      font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file: its name, its type, its bytes, and whether they are compressed.
type File = (&'static str, &'static str, &'static [u8], bool);

const PAGE: File = ("", HTML, include_bytes!("../graphiql/index.html"), false);
const FILES: [File; 6] = [
    ("page.css", CSS, include_bytes!("../graphiql/page.css"), false),
    ("page.js", SCRIPT, include_bytes!("../graphiql/page.js"), false),
    ("graphiql.css", CSS, include_bytes!("../graphiql/vendor/graphiql.css.gz"), true),
    ("graphiql.js", SCRIPT, include_bytes!("../graphiql/vendor/graphiql.js.gz"), true),
    ("react.js", SCRIPT, include_bytes!("../graphiql/vendor/react.js.gz"), true),
    ("react-dom.js", SCRIPT, include_bytes!("../graphiql/vendor/react-dom.js.gz"), true),
];

pub(crate) async fn page(headers: HeaderMap) -> Response {
    answer(&headers, &PAGE)
}

pub(crate) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    let found = FILES.iter().find(|(file, ..)| *file == name);
    found.map(|file| answer(&headers, file)).ok_or_else(|| Problem::not_found(&format!("/graphiql/{name}")))
}

fn answer(headers: &HeaderMap, (_, content_type, bytes, is_compressed): &File) -> Response {
    let tag = ETag::of(bytes);
    let mut response = match tag.is_in(headers) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => (*bytes).into_response(),
    };
    let all = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, *content_type),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        all.insert(name, header::HeaderValue::from_static(value));
    }
    if *is_compressed {
        all.insert(header::CONTENT_ENCODING, header::HeaderValue::from_static("gzip"));
    }
    let (name, value) = tag.header();
    all.insert(name, value);
    response
}
