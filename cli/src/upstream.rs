//! A service that is a replica: it answers reads itself, and forwards writes to the upstream.
//!
//! Every request goes through the routes. A write reaches the backend once the route has authenticated the caller and
//! checked scope, addresses and body; the backend of a replica rejects it with [`ForUpstream`], and only then is it
//! forwarded. So a route cannot be forgotten.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header, request::Parts, response},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use http_body_util::BodyExt as _;
use metrics::gauge;
use nameservice_client::{Http, Transport as _, TransportError};
use nameservice_http::{ForUpstream, Problem, freshness::POSITION};
use nameservice_model::{Address, BoxError, Error as StoreError};
use nameservice_sync::{Replica, ReplicaState};
use serde_json::{Value, json};

use crate::health;

/// A little longer than a gateway waits for the upstream.
const TIMEOUT: Duration = Duration::from_secs(35);
/// How long the answer to a write is delayed until the replica shows what was written.
const SETTLE: Duration = Duration::from_secs(10);
/// The headers of a request that go to the upstream.
const FORWARDED: [HeaderName; 7] = [
    header::ACCEPT,
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    HeaderName::from_static("idempotency-key"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    nameservice_http::REQUEST_ID,
];
/// The headers of an answer that are hop-by-hop.
const HOP_BY_HOP: [HeaderName; 4] =
    [header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, HeaderName::from_static("keep-alive")];

/// A replica, with the connection to its upstream.
#[derive(Clone)]
pub struct Upstream {
    replica: Replica,
    http: Arc<Http>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("url", &self.http.url()).finish_non_exhaustive()
    }
}

impl Upstream {
    /// Completes when the replica can no longer write to its log, with the reason.
    pub(crate) fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.replica.names().ended()
    }

    /// Returns a replica with the connection to its upstream. Credentials in its URL are the replica's own: what callers write is
    /// forwarded without them.
    pub fn new(replica: Replica, http: Http) -> Self {
        Self { replica, http: Arc::new(http.without_credentials()) }
    }

    /// Turns a service over the replica into that of a replica: it forwards writes, and reports the age of its reads.
    pub fn layer(&self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self.clone(), answer))
    }

    /// Sets the gauge of its age.
    pub(crate) fn sample(&self) {
        gauge!("nameservice_replica_age_seconds").set(self.age().as_secs_f64());
    }

    /// The URL of the upstream, without credentials.
    pub fn url(&self) -> &str {
        self.http.url()
    }

    /// Returns where something is at this service that the upstream has named with its own base path.
    fn location(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let base: Uri = self.http.url().parse().ok()?;
        let location = headers.get(header::LOCATION)?.to_str().ok()?;
        let here = location.strip_prefix(base.path().trim_end_matches('/'))?;
        HeaderValue::try_from(here).ok().filter(|_| here.starts_with('/'))
    }

    /// The maximum age of reads: since everything received from the upstream was applied, or since the last known change.
    fn age(&self) -> Duration {
        self.replica.age().unwrap_or_else(|| {
            let recorded = self.replica.names().view().recorded_at();
            SystemTime::now().duration_since(recorded).unwrap_or_default()
        })
    }

    /// Returns the state of the replica for the health of its service, and why it is not fresh if it is not.
    pub(crate) fn health(&self) -> (Value, Option<String>) {
        let state = self.replica.state();
        let reason = match &state {
            ReplicaState::Detached(reason) => Some(reason.as_str()),
            ReplicaState::Starting => Some("the first snapshot is being read"),
            _ if self.replica.is_upstream_behind() => Some("the upstream is a replica that is behind its own upstream"),
            _ if !self.replica.is_fresh() => Some("the upstream has been silent for a while"),
            _ => None,
        };
        let replica = json!({
            "upstream": self.http.url(),
            "position": self.replica.names().view().position(),
            "age": self.age().as_secs(),
            "reason": reason,
        });
        (replica, reason.map(str::to_owned))
    }
}

async fn answer(State(upstream): State<Upstream>, request: Request, next: Next) -> Response {
    nameservice_http::identified(request, async |request| replied(&upstream, request, next).await).await
}

async fn replied(upstream: &Upstream, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_safe = request.method().is_safe();
    if is_safe && path == health::PATH {
        return next.run(request).await;
    }
    // Comparisons and GraphQL queries are reads that send a document.
    let is_read = is_safe || matches!(path, "/v1/changes/compare" | "/graphql");
    let is_of_records =
        !matches!(path, "/v1/openapi.json" | "/.well-known/fluree.json") && !path.starts_with("/v1/docs");
    if is_read && is_of_records && !upstream.replica.is_ready() {
        let source = Some("the replica has not read its first snapshot".into());
        return Problem::from(StoreError::Unavailable { operation: "answer as a replica", source }).into_response();
    }
    let age = upstream.age();
    let mut response = match is_safe {
        true => next.run(request).await,
        false => answer_or_forward(upstream, request, next).await,
    };
    if is_read && (response.status().is_success() || response.status().is_redirection()) {
        response.headers_mut().insert(header::AGE, HeaderValue::from(age.as_secs()));
    }
    response
}

/// Answers what the routes answer by themselves, and forwards the writes that they let pass.
async fn answer_or_forward(upstream: &Upstream, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = match nameservice_http::whole_body(body).await {
        Ok(body) => body,
        Err(problem) => return problem.into_response(),
    };
    let mut response = next.run(Request::from_parts(parts.clone(), Body::from(body.clone()))).await;
    match response.extensions_mut().remove() {
        Some(ForUpstream(addresses)) => forward(upstream, &parts, body, &addresses).await,
        None => response,
    }
}

/// Forwards a write to the upstream unchanged, and returns its answer once the replica shows what was written to these
/// records.
async fn forward(upstream: &Upstream, parts: &Parts, body: Bytes, addresses: &[Address]) -> Response {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut sent = http::Request::builder().method(parts.method.clone()).uri(path);
    if let Some(headers) = sent.headers_mut() {
        for name in FORWARDED {
            if let Some(value) = parts.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
    }
    let sent = match sent.body(body) {
        Ok(sent) => sent,
        Err(error) => return Problem::internal(error).into_response(),
    };
    let answered = match upstream.http.send(sent, TIMEOUT).await {
        Ok(answered) => answered,
        Err(error) => return unanswered(error).into_response(),
    };
    let (answer, body) = answered.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return unanswered(TransportError::Lost(error)).into_response(),
    };
    let is_shown = settle(upstream, &answer, addresses).await;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = answer.status;
    for (name, value) in &answer.headers {
        if !HOP_BY_HOP.contains(name) {
            response.headers_mut().append(name, value.clone());
        }
    }
    if let Some(location) = upstream.location(response.headers()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    let headers = response.headers_mut();
    match is_shown {
        None => {}
        Some(true) => {
            let position = upstream.replica.names().view().position();
            headers.entry(POSITION).or_insert(HeaderValue::from(position));
        }
        Some(false) => {
            let age = upstream.age().as_secs();
            tracing::warn!(path, age, "a write was answered before the replica shows it");
            headers.insert(header::AGE, HeaderValue::from(age));
        }
    }
    response
}

/// Returns the problem for a write that the upstream has not answered.
fn unanswered(error: TransportError) -> Problem {
    const OPERATION: &str = "write at the upstream";
    let source: Option<BoxError> = Some(error.to_string().into());
    match error {
        TransportError::Lost(_) => Problem::from(StoreError::OutcomeUnknown { operation: OPERATION, source }),
        TransportError::Invalid(reason) => Problem::invalid_address(reason),
        _ => Problem::upstream_unavailable(StoreError::Unavailable { operation: OPERATION, source }),
    }
}

/// Waits until the replica shows what the upstream's answer shows, so that callers read their own writes here, and what
/// a conflict has named. Returns whether it does; `None` if the answer shows nothing of the records.
async fn settle(upstream: &Upstream, answer: &response::Parts, addresses: &[Address]) -> Option<bool> {
    let status = answer.status;
    let shows = status.is_success()
        || matches!(
            status,
            StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::GONE | StatusCode::UNPROCESSABLE_ENTITY
        );
    let position = answer.headers.get(POSITION).and_then(|value| value.to_str().ok()?.parse().ok());
    match position {
        Some(position) => Some(upstream.replica.reached(position, SETTLE).await),
        // An upstream whose feed lags behind its writes names no position.
        None if shows => Some(upstream.replica.shows(addresses, SETTLE).await),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::put;
    use futures_util::stream;
    use nameservice_embedded::Options;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };
    use tower::ServiceExt as _;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn what_a_caller_writes_is_forwarded_with_the_credentials_of_the_caller_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://replica:secret@{}/base", listener.local_addr().unwrap());
        let nowhere = client::in_process(Router::new()).unwrap();
        let replica = Replica::in_memory(nowhere, Options::default()).unwrap();
        let upstream = Upstream::new(replica, Http::new(&url).unwrap());
        let for_upstream = async || {
            let mut response = Response::new(Body::empty());
            response.extensions_mut().insert(ForUpstream(Vec::new()));
            response
        };
        let router = upstream.layer(Router::new().route("/v1/heads/mydb", put(for_upstream)));
        for token in [None, Some("Bearer of-the-caller")] {
            let mut request = Request::put("/v1/heads/mydb");
            if let Some(token) = token {
                request = request.header(header::AUTHORIZATION, token);
            }
            let answered = tokio::spawn(router.clone().oneshot(request.body(Body::from("{}")).unwrap()));
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut sent = Vec::new();
            while !sent.ends_with(b"{}") {
                stream.read_buf(&mut sent).await.unwrap();
            }
            stream.write_all(b"HTTP/1.1 400 no\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
            assert_eq!(answered.await.unwrap().unwrap().status(), StatusCode::BAD_REQUEST);
            let sent = String::from_utf8(sent).unwrap();
            assert!(sent.starts_with("PUT /base/v1/heads/mydb "), "{sent}");
            let header = sent.lines().find_map(|line| line.strip_prefix("authorization: "));
            assert_eq!(header, token, "{sent}");
        }
    }

    /// A body of which only the beginning arrives. The route beneath is not asked, and nothing is forwarded.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_answered_as_by_every_service() {
        let nowhere = client::in_process(Router::new()).unwrap();
        let replica = Replica::in_memory(nowhere, Options::default()).unwrap();
        let upstream = Upstream::new(replica, Http::new("http://127.0.0.1:1").unwrap());
        let router = upstream.layer(Router::new().route("/v1/heads/mydb", put(async || StatusCode::IM_A_TEAPOT)));
        let put = |body| Request::put("/v1/heads/mydb").body(body).unwrap();
        let begun = stream::once(async { Ok::<_, BoxError>(Bytes::from("{\"new\":")) });
        let stalled = Body::from_stream(stream::StreamExt::chain(begun, stream::pending()));
        let answer = router.clone().oneshot(put(stalled)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert!(problem["type"].as_str().unwrap().ends_with("/request-timeout"), "{problem}");
        let answer = router.oneshot(put(Body::from("{}"))).await.unwrap();
        assert_eq!(answer.status(), StatusCode::IM_A_TEAPOT, "a body that arrives is answered by the route");
    }
}
