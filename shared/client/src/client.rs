use std::{
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use backon::{ExponentialBuilder, Retryable as _};
use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use http_body_util::BodyExt as _;
use nameservice_api::{ProblemDocument, UNCHANGED};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sse_stream::{Sse, SseStream};

use crate::{Body, Http, Request, RequestError, Transport, TransportError};

/// A little longer than the 30 seconds that API Gateway waits for a function.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(35);
/// Longer than any stream of events lasts.
const STREAM_TIMEOUT: Duration = Duration::from_secs(3600);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Server-sent events as they arrive, including blocks without data, whose id is the position that the stream has reached.
pub type Events = Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>;

/// The retry policy: exponential backoff with jitter, until a deadline.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// The shortest delay.
    pub min_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
    /// How long after the first attempt another may begin; zero for one attempt only.
    pub deadline: Duration,
}

impl Retries {
    /// One attempt.
    pub const NONE: Self = Self { min_delay: Duration::ZERO, max_delay: Duration::ZERO, deadline: Duration::ZERO };

    fn backoff(self) -> ExponentialBuilder {
        let backoff = ExponentialBuilder::default()
            .with_jitter()
            .with_min_delay(self.min_delay)
            .with_max_delay(self.max_delay)
            .with_total_delay(Some(self.deadline));
        if self.deadline.is_zero() { backoff.with_max_times(0) } else { backoff.without_max_times() }
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            min_delay: Duration::from_millis(50),
            max_delay: Duration::from_secs(2),
            deadline: Duration::from_secs(20),
        }
    }
}

/// A client of one service. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    transport: Box<dyn Transport>,
    token: Option<HeaderValue>,
    timeout: Duration,
    retries: Retries,
}

/// Builds a [`Client`].
pub struct ClientBuilder {
    transport: Result<Box<dyn Transport>, TransportError>,
    token: Option<String>,
    timeout: Duration,
    retries: Retries,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("transport", &self.0.transport).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Sends this bearer token with every request.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the time limit of one attempt, 35 seconds by default.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn retries(mut self, retries: Retries) -> Self {
        self.retries = retries;
        self
    }

    /// Returns the client. Nothing is sent yet.
    pub fn build(self) -> Result<Client, RequestError> {
        let Self { transport, token, timeout, retries } = self;
        let token = token.map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| RequestError::Invalid("the token contains characters that cannot be sent".into()))?;
            value.set_sensitive(true);
            Ok(value)
        });
        let transport = transport.map_err(|error| RequestError::Invalid(error.to_string()))?;
        Ok(Client(Arc::new(Inner { transport, token: token.transpose()?, timeout, retries })))
    }
}

/// The last answer to a request that may have been sent several times.
pub(crate) struct Repeated<T> {
    pub(crate) answer: Result<T, RequestError>,
    /// The status of the answer, unless it is an error.
    pub(crate) status: Option<StatusCode>,
    /// Whether the answer says that nothing was changed.
    pub(crate) unchanged: bool,
    /// Whether an attempt before the last may have been applied.
    pub(crate) maybe_applied: bool,
}

impl Client {
    /// Returns a client of the service at this URL, with the default options.
    pub fn new(url: &str) -> Result<Self, RequestError> {
        Self::builder(url).build()
    }

    /// Begins to build a client of the service at this URL, which may end in a base path.
    pub fn builder(url: &str) -> ClientBuilder {
        Self::build_over(Http::new(url).map(|http| Box::new(http) as Box<dyn Transport>))
    }

    /// Begins to build a client over another transport, such as a service in the same process.
    pub fn over(transport: impl Transport + 'static) -> ClientBuilder {
        Self::build_over(Ok(Box::new(transport)))
    }

    fn build_over(transport: Result<Box<dyn Transport>, TransportError>) -> ClientBuilder {
        ClientBuilder { transport, token: None, timeout: REQUEST_TIMEOUT, retries: Retries::default() }
    }

    /// Sends a request, repeating it under the retry policy, and returns the answer. An answer without a body is read as
    /// `null`.
    pub async fn send<T: DeserializeOwned>(&self, request: &Request) -> Result<T, RequestError> {
        self.repeat(request).await.answer
    }

    /// Sends a request until it is answered, or the deadline has passed.
    pub(crate) async fn repeat<T: DeserializeOwned>(&self, request: &Request) -> Repeated<T> {
        let unknown = AtomicBool::new(false);
        let attempt = || async { self.once(request).await };
        let answer = attempt
            .retry(self.0.retries.backoff())
            .when(RequestError::is_transient)
            .notify(|error: &RequestError, delay| {
                unknown.fetch_or(error.may_be_applied(), Ordering::Relaxed);
                tracing::debug!(%error, ?delay, "repeating a request");
            })
            .await;
        let maybe_applied = unknown.into_inner();
        let (status, unchanged, answer) = match answer {
            Ok((status, unchanged, answer)) => (Some(status), unchanged, Ok(answer)),
            Err(error) => (None, false, Err(error)),
        };
        let answer = match (answer, &request.idempotency_key) {
            // An earlier attempt may have been applied, whatever became of the last.
            (Err(error), Some(key)) if maybe_applied && error.is_transient() && !error.may_be_applied() => {
                Err(RequestError::OutcomeUnknown { idempotency_key: key.clone(), source: error.into() })
            }
            (answer, _) => answer,
        };
        Repeated { answer, status, unchanged, maybe_applied }
    }

    async fn once<T: DeserializeOwned>(&self, request: &Request) -> Result<(StatusCode, bool, T), RequestError> {
        let response = self.respond(request, self.0.timeout).await?;
        let status = response.status();
        let unchanged = response.headers().contains_key(UNCHANGED);
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| lost(request, TransportError::Lost(error)))?.to_bytes();
        if !status.is_success() {
            return Err(rejection(status, &body, request));
        }
        let body: &[u8] = if body.is_empty() { b"null" } else { &body };
        match serde_json::from_slice(body) {
            Ok(answer) => Ok((status, unchanged, answer)),
            Err(error) => Err(RequestError::BadAnswer(error.into())),
        }
    }

    /// Opens a stream of events, which the service may end at any time.
    pub async fn events(&self, request: &Request) -> Result<Events, RequestError> {
        let response = self.respond(request, STREAM_TIMEOUT).await?;
        let status = response.status();
        if status.is_success() {
            let content_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
            if !content_type.is_some_and(|value| value.starts_with("text/event-stream")) {
                return Err(RequestError::BadAnswer("it is not a stream of events".into()));
            }
            return Ok(Box::pin(SseStream::new(response.into_body().map_err(io::Error::other))));
        }
        let body = response.into_body().collect().await.map_err(RequestError::NoAnswer)?.to_bytes();
        Err(rejection(status, &body, request))
    }

    async fn respond(&self, request: &Request, timeout: Duration) -> Result<http::Response<Body>, RequestError> {
        let mut builder = http::Request::builder().method(request.method.clone()).uri(request.uri());
        if let Some(headers) = builder.headers_mut() {
            self.add_headers(request, headers)?;
        }
        let body = match &request.body {
            Some(Ok(body)) => Bytes::copy_from_slice(body),
            Some(Err(reason)) => return Err(RequestError::Invalid(reason.clone())),
            None => Bytes::new(),
        };
        let sent = builder.body(body).map_err(|error| RequestError::Invalid(error.to_string()))?;
        self.0.transport.send(sent, timeout).await.map_err(|error| lost(request, error))
    }

    fn add_headers(&self, request: &Request, headers: &mut HeaderMap) -> Result<(), RequestError> {
        if let Some(key) = &request.idempotency_key {
            let value = HeaderValue::try_from(key).map_err(|_| {
                RequestError::Invalid("the idempotency key contains characters that cannot be sent".into())
            })?;
            headers.insert(IDEMPOTENCY_KEY, value);
        }
        if let Some(id) = request.last_event_id {
            headers.insert(LAST_EVENT_ID, id.into());
        }
        if let Some(token) = &self.0.token {
            headers.insert(header::AUTHORIZATION, token.clone());
        }
        if request.body.is_some() {
            headers.insert(header::CONTENT_TYPE, JSON);
        }
        Ok(())
    }
}

/// Returns the error for a request that was not answered.
fn lost(request: &Request, error: TransportError) -> RequestError {
    match (error, &request.idempotency_key) {
        (TransportError::Unreachable { url, source }, _) => RequestError::Unreachable { url, source },
        (TransportError::Invalid(reason), _) => RequestError::Invalid(reason),
        (TransportError::Lost(source), Some(key)) => {
            RequestError::OutcomeUnknown { idempotency_key: key.clone(), source }
        }
        (TransportError::Lost(source), None) => RequestError::NoAnswer(source),
    }
}

fn rejection(status: StatusCode, body: &[u8], request: &Request) -> RequestError {
    if let Ok(problem) = serde_json::from_slice::<ProblemDocument>(body) {
        return RequestError::Problem(Box::new(problem));
    }
    // Something in front of the service answered: API Gateway with `{"message": …}`, others with a page.
    let message =
        serde_json::from_slice::<Value>(body).ok().and_then(|body| Some(body.get("message")?.as_str()?.to_owned()));
    let answered = RequestError::Answered { status: status.as_u16(), message: message.unwrap_or_default() };
    match &request.idempotency_key {
        // The service behind it may have done its part.
        Some(key) if status.is_server_error() => {
            RequestError::OutcomeUnknown { idempotency_key: key.clone(), source: answered.into() }
        }
        _ => answered,
    }
}
