//! A service below a path, behind a reverse proxy that keeps the prefix of requests.

use std::str::FromStr;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, Uri, header, uri::PathAndQuery},
    response::{IntoResponse as _, Response},
};
use nameservice_http::{MountedAt, Problem};
use tower::ServiceExt as _;

/// A path such as `/nameservice`: it begins with a slash, and does not end with one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasePath(String);

impl BasePath {
    /// Returns the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BasePath {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = if text == "/" { "" } else { text.strip_suffix('/').unwrap_or(text) };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '~');
        let is_path = text.starts_with('/') && !path.ends_with('/') && !path.contains("//");
        match is_path && path.chars().all(is_plain) {
            true => Ok(Self(path.to_owned())),
            false => Err(format!("`{text}` is not a path such as /nameservice")),
        }
    }
}

/// The paths of health. Probes of supervisors and proxies ask the service itself, and know no base path.
pub(crate) const HEALTH: [&str; 2] = ["/v1/health", "/healthz"];

/// Serves a router below a path, and outside of it nothing but health.
pub(crate) fn below(base: BasePath, router: Router) -> Router {
    Router::new().fallback(strip).with_state((base, router))
}

async fn strip(State((base, router)): State<(BasePath, Router)>, mut request: Request) -> Response {
    let uri = request.uri();
    // First, since a base path may be the beginning of these.
    if HEALTH.contains(&uri.path()) {
        let Ok(response) = router.oneshot(request).await;
        return response;
    }
    let below = match uri.path().strip_prefix(base.as_str()) {
        // Relative links need the trailing slash.
        Some("") => {
            let to = format!("{}/", base.as_str());
            return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response();
        }
        Some(rest) if rest.starts_with('/') => match uri.query() {
            Some(query) => PathAndQuery::try_from(format!("{rest}?{query}")),
            None => PathAndQuery::try_from(rest),
        },
        _ => return Problem::not_found(uri.path()).into_response(),
    };
    match below {
        Ok(path) => *request.uri_mut() = Uri::from(path),
        Err(_) => return Problem::not_found(uri.path()).into_response(),
    }
    request.extensions_mut().insert(MountedAt(base.as_str().into()));
    let mut response = match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let location = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
    if let Some(to) = location.filter(|to| to.starts_with('/'))
        && let Ok(to) = HeaderValue::try_from(format!("{}{to}", base.as_str()))
    {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, routing::get};

    use super::*;

    #[tokio::test]
    async fn only_what_is_below_the_path_is_answered_and_health() {
        let inner = Router::new()
            .route("/v1/records/{*address}", get(async |uri: Uri| uri.to_string()))
            .route("/v1/health", get(async |uri: Uri| uri.to_string()))
            .route("/healthz", get(async || (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "v1/health")])))
            .route("/moved", get(async || (StatusCode::CREATED, [(header::LOCATION, "/v1/records/a")])))
            .route("/near", get(async || (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "v1/docs")])));
        let router = below("/ns/".parse().unwrap(), inner);
        for (path, status, location) in [
            ("/ns/v1/records/a/b?x=1", 200, None),
            ("/ns", 307, Some("/ns/")),
            ("/ns/moved", 201, Some("/ns/v1/records/a")),
            ("/ns/near", 307, Some("v1/docs")),
            ("/nsx/v1/records/a", 404, None),
            ("/v1/records/a", 404, None),
            ("/", 404, None),
            ("/v1/health?deep=true", 200, None),
            ("/ns/v1/health", 200, None),
            ("/healthz", 307, Some("v1/health")),
            ("/v1/healthy", 404, None),
        ] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status().as_u16(), status, "{path}");
            assert_eq!(response.headers().get(header::LOCATION).map(|to| to.to_str().unwrap()), location, "{path}");
        }
    }

    #[tokio::test]
    async fn health_is_answered_although_the_base_path_is_its_beginning() {
        let router = below("/v1".parse().unwrap(), Router::new().route("/v1/health", get(async || "ok")));
        for path in ["/v1/health", "/v1/v1/health"] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            assert_eq!(router.clone().oneshot(request).await.unwrap().status(), StatusCode::OK, "{path}");
        }
    }

    #[test]
    fn a_base_path_is_a_path() {
        for (text, path) in [("/ns", "/ns"), ("/a/b/", "/a/b"), ("/", "")] {
            assert_eq!(text.parse::<BasePath>().map(|base| base.0), Ok(path.to_owned()));
        }
        for text in ["", "ns", "//", "/a//b", "/a?b", "/ü", "http://x/y"] {
            assert!(text.parse::<BasePath>().is_err(), "{text}");
        }
    }
}
