//! The layer in front of the service: which requests it answers, and what happens around them.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use nameservice_http::{Problem, Shutdown};
use nameservice_model::Error as StoreError;

use crate::{
    health::{self, Attention},
    nudge::Nudge,
};

/// How long running reads may take once the service is stopping: no change will come for one that waits for changes.
const READ_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of the layer in front of the service. There is only one, since each layer costs every request several
/// allocations.
#[derive(Clone)]
pub(super) struct Front {
    /// Whether only requests for a name of this machine are answered.
    pub(super) is_local: bool,
    /// The origins of pages that may write, if no token is needed for it; `None` if one is.
    pub(super) trusted: Option<Arc<[String]>>,
    pub(super) nudge: Option<Nudge>,
    /// What the health of the service adds.
    pub(super) attention: Arc<Attention>,
    pub(super) shutdown: Shutdown,
}

/// Rejects requests for other hosts and of other pages, ends reads with the service, adds to its health, and reports writes.
pub(super) async fn receive(State(front): State<Front>, request: Request, next: Next) -> Response {
    if front.is_local
        && let Some(host) = hosts(&request).find(|host| !is_local(host))
    {
        return Problem::misdirected(host).into_response();
    }
    if let Some(trusted) = front.trusted.as_ref().filter(|_| !request.method().is_safe())
        && let Some(origin) = foreign(&request, trusted)
    {
        return Problem::foreign_page(origin).into_response();
    }
    if request.method() == Method::GET {
        let is_health = request.uri().path() == health::PATH;
        let answered = until_the_service_stops(&front.shutdown, next.run(request)).await;
        return if is_health { front.attention.add_to(answered).await } else { answered };
    }
    let is_write = !request.method().is_safe();
    let response = next.run(request).await;
    // Also after a rejection, since an earlier attempt of the same write may have been applied.
    if let Some(nudge) = front.nudge.filter(|_| is_write) {
        nudge.give();
    }
    response
}

/// What a request names as its host: HTTP/2 has it in `:authority`.
fn hosts(request: &Request) -> impl Iterator<Item = &str> {
    let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    header.into_iter().chain(request.uri().authority().map(|authority| authority.as_str()))
}

/// The origin of the page that sends a request, if that page is of another site, and not one of those that may.
fn foreign<'a>(request: &'a Request, trusted: &[String]) -> Option<&'a str> {
    let text = |name| request.headers().get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("another site"));
    let origin = text(header::ORIGIN);
    if origin.is_some_and(|origin| trusted.iter().any(|trusted| trusted == "*" || trusted == origin)) {
        return None;
    }
    // Browsers set this, and pages cannot.
    match text(HeaderName::from_static("sec-fetch-site")) {
        Some("same-origin" | "none") => None,
        Some(_) => origin.or(Some("another site")),
        None => origin.filter(|origin| {
            let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
            !hosts(request).any(|host| host.eq_ignore_ascii_case(authority))
        }),
    }
}

/// Ends a read when the service stops: a reader that waits for changes would keep the service from stopping, and wait for
/// nothing. (Streams end on their own.)
async fn until_the_service_stops(shutdown: &Shutdown, answer: impl Future<Output = Response>) -> Response {
    tokio::select! {
        response = answer => response,
        () = async {
            shutdown.begun().await;
            tokio::time::sleep(READ_SHUTDOWN_TIMEOUT).await;
        } => Problem::from(StoreError::Unavailable { operation: "answer before the service stops", source: None })
            .into_response(),
    }
}

/// Whether a `Host` names this machine: `localhost`, or a loopback address, with a port or without.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[::1]:8080"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["example.com", "localhost.example.com:8080", "192.168.0.1", "127.0.0.1.nip.io:80", "[::2]:1", ""] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_recognized() {
        let trusted = ["https://app.example".to_owned()];
        let is_foreign = |headers: &[(&str, &str)]| {
            let mut request = axum::http::Request::post("/v1/ledgers");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            foreign(&request.body(axum::body::Body::empty()).unwrap(), &trusted).is_some()
        };
        let host = ("host", "localhost:8080");
        for own in [
            &[host][..],
            &[host, ("origin", "http://localhost:8080")],
            &[host, ("origin", "http://proxy.example"), ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
            &[host, ("origin", "https://app.example"), ("sec-fetch-site", "cross-site")],
        ] {
            assert!(!is_foreign(own), "{own:?}");
        }
        for other in [
            &[host, ("origin", "https://evil.example")][..],
            &[host, ("origin", "null")],
            &[host, ("origin", "http://localhost:3000")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "same-site"), ("origin", "http://localhost:8080")],
            &[("origin", "https://evil.example")],
        ] {
            assert!(is_foreign(other), "{other:?}");
        }
        let http2 =
            axum::http::Request::post("http://evil.example/v1/ledgers").body(axum::body::Body::empty()).unwrap();
        assert_eq!(hosts(&http2).collect::<Vec<_>>(), ["evil.example"]);
    }
}
