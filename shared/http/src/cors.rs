//! CORS: which web pages of other origins may use the service.

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, Uri, header};
use tower_http::cors::AllowOrigin;
pub use tower_http::cors::CorsLayer;

use crate::{REQUEST_ID, freshness::POSITION};

/// How long a browser keeps the answer to a preflight.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The error for a text that is not an origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an origin: write `https://app.example.com`, without a path, or `*` for all")]
pub struct InvalidOrigin(String);

/// Returns a layer that lets pages of these origins use the service, and answers their preflights. `*` is every origin.
/// Tokens come in a header, never in a cookie, so requests with the browser's credentials are not allowed.
pub fn cors(origins: &[String]) -> Result<CorsLayer, InvalidOrigin> {
    let allowed = match origins.iter().any(|origin| origin == "*") {
        true => AllowOrigin::any(),
        false => AllowOrigin::list(origins.iter().map(|text| origin(text)).collect::<Result<Vec<_>, _>>()?),
    };
    let named = HeaderName::from_static;
    Ok(CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::GET, Method::HEAD, Method::PUT, Method::POST, Method::DELETE])
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            header::IF_NONE_MATCH,
            named("idempotency-key"),
            named("last-event-id"),
            REQUEST_ID,
        ])
        .expose_headers([header::AGE, header::ETAG, header::LOCATION, header::RETRY_AFTER, POSITION, REQUEST_ID])
        .max_age(MAX_AGE))
}

/// An origin as browsers send it: a scheme, a host, perhaps a port.
fn origin(text: &str) -> Result<HeaderValue, InvalidOrigin> {
    let invalid = || InvalidOrigin(text.to_owned());
    let uri: Uri = text.parse().map_err(|_| invalid())?;
    let is_origin = uri.scheme().is_some() && uri.authority().is_some() && matches!(uri.path(), "" | "/");
    if !is_origin || text.ends_with('/') || uri.query().is_some() {
        return Err(invalid());
    }
    HeaderValue::try_from(text).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use axum::{Router, body::Body, extract::Request, response::Response, routing::get};
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(origins: &[&str], method: &str, origin: &str) -> Response {
        let origins: Vec<_> = origins.iter().map(|origin| (*origin).to_owned()).collect();
        let router = Router::new().route("/", get(async || "here")).layer(cors(&origins).unwrap());
        let request = Request::builder().method(method).uri("/").header("origin", origin);
        let request = request.header("access-control-request-method", "PUT");
        let request = request.header("access-control-request-headers", "authorization,idempotency-key");
        router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    fn allowed(response: &Response) -> Option<&str> {
        response.headers().get("access-control-allow-origin").map(|origin| origin.to_str().unwrap())
    }

    #[tokio::test]
    async fn a_preflight_is_answered_for_the_origins_that_are_let_in_and_for_no_others() {
        let (app, other) = ("https://app.example.com", "https://example.com");
        for method in ["OPTIONS", "GET"] {
            assert_eq!(allowed(&ask(&[app], method, app).await), Some(app), "{method}");
            assert_eq!(allowed(&ask(&[app], method, other).await), None, "{method}");
            assert_eq!(allowed(&ask(&["*"], method, other).await), Some("*"), "{method}");
        }
        let preflight = ask(&[app], "OPTIONS", app).await;
        assert!(preflight.status().is_success());
        let header = |name: &str| preflight.headers()[name].to_str().unwrap().to_ascii_lowercase();
        assert!(header("access-control-allow-methods").contains("put"));
        assert!(header("access-control-allow-headers").contains("idempotency-key"));
    }

    #[test]
    fn what_no_browser_sends_is_no_origin() {
        for text in ["", "example.com", "https://", "https://example.com/", "https://example.com/app", "https://a?b"] {
            assert!(cors(&[text.to_owned()]).is_err(), "{text}");
        }
        for text in ["https://example.com", "http://localhost:3000", "*"] {
            assert!(cors(&[text.to_owned()]).is_ok(), "{text}");
        }
    }
}
