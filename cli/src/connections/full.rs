//! What happens while all connections are in use.
//!
//! A client has to learn that nothing was written, which over TLS takes a connection; and whoever watches the service must not
//! take it for one that has failed. Hence a few connections are reserved, each for one request: health is answered, and
//! everything else is rejected. They have short limits, and if they are in use, too, clients without TLS are still answered.

use std::{convert::Infallible, future::pending, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Method, StatusCode, Version, header},
    response::{IntoResponse as _, Response},
};
use hyper::Request;
use metrics::counter;
use nameservice_http::identified;
use tokio::time::{Instant, sleep_until};
use tower::ServiceExt as _;

use crate::base_path::HEALTH;

/// The document of a rejection.
const PROBLEM: &str = "{\"type\":\"https://nameservice.dev/problems/unavailable\",\
    \"title\":\"The service is temporarily unavailable\",\"status\":503,\
    \"detail\":\"all connections are in use, and nothing was written: try again\"}";
const TYPE: &str = "application/problem+json";
/// When a client may try again, in seconds.
const RETRY_AFTER: &str = "1";
/// For how long no connection is rejected at the end of a period: at the limit, places become free all the time.
const QUIET: Duration = Duration::from_secs(10);

/// Returns what a client is answered before it has asked, over HTTP/1.
pub(super) fn rejection() -> Vec<u8> {
    let length = PROBLEM.len();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: {RETRY_AFTER}\r\nconnection: close\r\n\
         content-type: {TYPE}\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), PROBLEM.as_bytes()].concat()
}

/// Counts connections of a listener that were rejected.
pub(super) fn count(listener: &'static str, connections: u64) {
    counter!("nameservice_connections_rejected_total", "listener" => listener).increment(connections);
}

/// Answers the requests of reserved connections.
pub(super) struct Reserve {
    listener: &'static str,
    /// The path of health, and that of those who know no other; below the base path, and without it.
    health: [String; 4],
}

impl Reserve {
    /// Returns the reserve of a service below a base path, which may be empty.
    pub(super) fn new(listener: &'static str, base: &str) -> Self {
        let [health, healthz] = HEALTH;
        Self {
            listener,
            health: [format!("{base}{health}"), format!("{base}{healthz}"), health.into(), healthz.into()],
        }
    }

    /// Answers a request: health by the service, everything else with a rejection.
    pub(super) async fn answer(&self, router: Router, request: Request<Body>) -> Result<Response, Infallible> {
        let is_http1 = request.version() < Version::HTTP_2;
        let asks = matches!(*request.method(), Method::GET | Method::HEAD);
        let mut response = match asks && self.health.iter().any(|path| path == request.uri().path()) {
            true => router.oneshot(request).await?,
            false => {
                count(self.listener, 1);
                identified(request, async |_| {
                    let headers = [(header::CONTENT_TYPE, TYPE), (header::RETRY_AFTER, RETRY_AFTER)];
                    (StatusCode::SERVICE_UNAVAILABLE, headers, PROBLEM).into_response()
                })
                .await
            }
        };
        if is_http1 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(response)
    }
}

/// A time in which all connections are in use, now and then: its begin and its end are logged, and not each connection.
#[derive(Default)]
pub(super) struct Period {
    last: Option<Instant>,
    beyond: u64,
}

impl Period {
    /// Notes a connection beyond the limit.
    pub(super) fn note(&mut self, listener: &'static str, max: u32) {
        if self.last.is_none() {
            tracing::warn!(listener, max, "all connections are in use: requests on further ones are rejected");
        }
        self.last = Some(Instant::now());
        self.beyond += 1;
    }

    /// Completes once the period is over; never, if there is none.
    pub(super) async fn quiet(&self) {
        match self.last {
            Some(last) => sleep_until(last + QUIET).await,
            None => pending().await,
        }
    }

    pub(super) fn end(&mut self, listener: &'static str) {
        tracing::info!(listener, beyond_the_limit = self.beyond, "there are connections for everyone again");
        *self = Self::default();
    }
}
