//! A service that is a replica: it answers reads itself, and forwards writes to the upstream.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use metrics::gauge;
use nameservice_api::Capabilities;
use nameservice_client::{Http, Transport as _, TransportError};
use nameservice_http::{MAX_BODY_BYTES, Problem, freshness::POSITION};
use nameservice_model::{Address, BoxError, ChangeFeed as _, ConcernKind, Error as StoreError, NameService as _};
use nameservice_sync::{Replica, ReplicaState};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

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
    /// Returns a replica with the connection to its upstream.
    pub fn new(replica: Replica, http: Http) -> Self {
        Self { replica, http: Arc::new(http) }
    }

    /// Turns a service over the replica into that of a replica: it forwards writes, and reports the age of its reads.
    pub fn layer(&self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(self.clone(), answer))
    }

    /// Sets the gauge of its age.
    pub(crate) fn sample(&self) {
        gauge!("nameservice_replica_age_seconds").set(self.age().as_secs_f64());
    }

    /// The URL of the upstream.
    pub fn url(&self) -> &str {
        self.http.url()
    }

    /// The maximum age of reads: since anything was last received from the upstream, or since the last known change.
    fn age(&self) -> Duration {
        self.replica.age().unwrap_or_else(|| {
            let recorded = self.replica.names().view().recorded_at();
            SystemTime::now().duration_since(recorded).unwrap_or_default()
        })
    }

    fn health(&self) -> Response {
        let state = self.replica.state();
        let reason = match &state {
            ReplicaState::Detached(reason) => Some(reason.as_str()),
            ReplicaState::Starting => Some("the first snapshot is being read"),
            _ if !self.replica.is_fresh() => Some("the upstream has been silent for a while"),
            _ => None,
        };
        let status = if reason.is_none() { "ok" } else { "degraded" };
        let replica = json!({
            "upstream": self.http.url(),
            "position": self.replica.names().view().position(),
            "age": self.age().as_secs(),
            "reason": reason,
        });
        // Reads are those of the embedded backend. The upstream may still reject what is forwarded.
        let capabilities = Capabilities::from(nameservice_model::Capabilities::ALL);
        axum::Json(json!({ "status": status, "capabilities": capabilities, "replica": replica })).into_response()
    }
}

async fn answer(State(upstream): State<Upstream>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    // Comparisons and GraphQL queries are reads that send a document. Mutations are rejected when they are executed.
    let sends_document = matches!(path, "/v1/changes/compare" | "/graphql");
    let is_read = request.method().is_safe() || request.method() == Method::OPTIONS || sends_document;
    if !is_read {
        return forward(&upstream, request).await;
    }
    if path == "/v1/health" && !request.uri().query().is_some_and(|query| query.contains("deep=true")) {
        return upstream.health();
    }
    if !upstream.replica.is_ready() && path != "/v1/openapi.json" && !path.starts_with("/v1/docs") {
        let source = Some("the replica has not read its first snapshot".into());
        return Problem::from(StoreError::Unavailable { operation: "answer as a replica", source }).into_response();
    }
    let age = upstream.age();
    let mut response = next.run(request).await;
    if response.status().is_success() || response.status().is_redirection() {
        response.headers_mut().insert(header::AGE, HeaderValue::from(age.as_secs()));
    }
    response
}

/// Forwards a write to the upstream unchanged, and returns its answer once the replica shows what was written.
async fn forward(upstream: &Upstream, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return Problem::body_too_large(MAX_BODY_BYTES).into_response();
        }
        Err(_) => return Problem::invalid_body("", "the body could not be read").into_response(),
    };
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let mut sent = http::Request::builder().method(parts.method.clone()).uri(&path);
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
    settle(upstream, &parts.method, parts.uri.path(), &answer.headers, &body, answer.status.is_success()).await;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = answer.status;
    for (name, value) in &answer.headers {
        if !HOP_BY_HOP.contains(name) {
            response.headers_mut().append(name, value.clone());
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
        _ => Problem::from(StoreError::Unavailable { operation: OPERATION, source }),
    }
}

/// Waits until the replica shows what the upstream has answered, so that callers read their own writes here.
async fn settle(upstream: &Upstream, method: &Method, path: &str, headers: &HeaderMap, body: &Bytes, is_success: bool) {
    let position = headers.get(POSITION).and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(position) = position {
        if !upstream.replica.reached(position, SETTLE).await {
            tracing::warn!(position, "a write was answered before the replica shows it");
        }
        return;
    }
    if !is_success {
        return;
    }
    // An upstream whose feed lags behind its writes does not name a position: then the record shows the write.
    let names = upstream.replica.names();
    let until = Instant::now() + SETTLE;
    let wanted = Wanted::of(method, path, serde_json::from_slice(body).ok());
    loop {
        let here = names.view().position();
        if wanted.is_shown(upstream).await {
            return;
        }
        if timeout_at(until, names.wait(here, SETTLE)).await.is_err() {
            tracing::warn!(path, "a write was answered before the replica shows it");
            return;
        }
    }
}

/// The state that a replica shows once it has a write.
enum Wanted {
    /// A record with these watermarks and, if known, these flags.
    Record { address: Address, marks: Vec<(ConcernKind, i64)>, retracted: Option<bool>, protected: Option<bool> },
    /// No record.
    Gone(Address),
    /// The answer does not show it.
    Unknown,
}

impl Wanted {
    fn of(method: &Method, path: &str, answer: Option<Value>) -> Self {
        let mut segments = path.trim_start_matches('/').splitn(3, '/').skip(1);
        let (kind, rest) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
        let rest = percent_decode_str(rest).decode_utf8_lossy();
        if method == Method::DELETE && matches!(kind, "records" | "branches") {
            return Address::parse(&rest).map_or(Self::Unknown, Self::Gone);
        }
        let Some(answer) = answer else { return Self::Unknown };
        let concern = match kind {
            "heads" => Some(ConcernKind::Head),
            "indexes" => Some(ConcernKind::Index),
            "statuses" => Some(ConcernKind::Status),
            "configs" => Some(ConcernKind::Config),
            _ => None,
        };
        let mark = |value: &Value| value.get("t").or_else(|| value.get("v")).and_then(Value::as_i64);
        if let Some(concern) = concern {
            return match (Address::parse(&rest), answer.get("value").and_then(mark)) {
                (Ok(address), Some(v)) => {
                    Self::Record { address, marks: vec![(concern, v)], retracted: None, protected: None }
                }
                _ => Self::Unknown,
            };
        }
        let Some(Ok(address)) = answer.get("address").and_then(Value::as_str).map(Address::parse) else {
            return Self::Unknown;
        };
        let marks = ConcernKind::ALL.into_iter();
        let marks = marks.filter_map(|concern| Some((concern, answer.get(concern.as_str()).and_then(mark)?)));
        let retracted = answer.get("retracted").and_then(Value::as_bool);
        let protected = answer.get("protected").and_then(Value::as_bool);
        Self::Record { address, marks: marks.collect(), retracted, protected }
    }

    async fn is_shown(&self, upstream: &Upstream) -> bool {
        let names = upstream.replica.names();
        match self {
            Self::Unknown => true,
            Self::Gone(address) => matches!(names.lookup(address).await, Ok(None)),
            Self::Record { address, marks, retracted, protected } => match names.lookup(address).await {
                Ok(Some(record)) => {
                    let here = |concern: ConcernKind| match concern {
                        ConcernKind::Head => record.head.as_ref().map_or(0, |head| head.v),
                        ConcernKind::Index => record.index.v,
                        ConcernKind::Status => record.status.v,
                        ConcernKind::Config => record.config.v,
                    };
                    retracted.is_none_or(|retracted| retracted == record.retracted)
                        && protected.is_none_or(|protected| protected == record.protected)
                        && marks.iter().all(|(concern, v)| here(*concern) >= *v)
                }
                _ => false,
            },
        }
    }
}
