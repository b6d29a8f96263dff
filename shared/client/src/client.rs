use std::{fmt, io, pin::Pin, sync::Arc, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, response::Parts};
use http_body_util::BodyExt as _;
use nameservice_api::{ProblemDocument, UNCHANGED};
use nameservice_model::ShownUrl;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use tokio::time::{Instant, sleep, timeout};

use crate::{Body, Http, Request, RequestError, Transport, TransportError, tls::Tls};

/// A little longer than the 30 seconds that API Gateway waits for a function.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(35);
/// What a transport gets beyond the time limit of an attempt, to report by itself whether anything was sent.
const GRACE: Duration = Duration::from_millis(250);
/// Longer than any stream of events lasts.
const STREAM_TIMEOUT: Duration = Duration::from_secs(3600);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Server-sent events as they arrive. The id of each, if it has one, is the position that the stream has reached.
pub type Events = Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>;

/// The retry policy: exponential backoff with jitter, until a deadline.
#[derive(Clone, Copy, Debug)]
pub struct Retries {
    /// The shortest delay.
    pub min_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
    /// How long a call may take, with all its attempts: connections, answers and delays. What the service is asked to
    /// wait is added. Zero for one attempt only, which has the time limit of an attempt.
    pub deadline: Duration,
}

impl Retries {
    /// One attempt.
    pub const NONE: Self = Self { min_delay: Duration::ZERO, max_delay: Duration::ZERO, deadline: Duration::ZERO };

    fn delays(self) -> impl Iterator<Item = Duration> {
        let backoff = ExponentialBuilder::default().with_jitter().without_max_times();
        backoff.with_min_delay(self.min_delay).with_max_delay(self.max_delay).build()
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
    to: To,
    tls: Tls,
    token: Option<String>,
    timeout: Duration,
    retries: Retries,
}

/// Where requests go.
enum To {
    Url(String),
    Transport(Box<dyn Transport>),
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("transport", &self.0.transport).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ClientBuilder");
        match &self.to {
            To::Url(url) => shown.field("url", &ShownUrl(url).to_string()),
            To::Transport(transport) => shown.field("transport", transport),
        };
        shown.finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Sends this bearer token with every request.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the time limit of one attempt, 35 seconds by default. Calls that are repeated and ask for no wait also limit an
    /// attempt to half of their deadline, so that a connection that has died is replaced in time.
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

    /// Trusts only these certificates, in PEM, instead of the system's. Connections to `http://` have none.
    #[must_use]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.roots = Some(pem.into());
        self
    }

    /// Authenticates the client by a certificate: its chain and its private key, in one PEM.
    #[must_use]
    pub fn client_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.identity = Some(pem.into());
        self
    }

    /// Returns the client. Nothing is sent yet.
    pub fn build(self) -> Result<Client, RequestError> {
        let Self { to, tls, token, timeout, retries } = self;
        let token = token.map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| RequestError::Invalid("the token contains characters that cannot be sent".into()))?;
            value.set_sensitive(true);
            Ok(value)
        });
        let transport: Box<dyn Transport> = match to {
            To::Url(url) => Box::new(Http::over(&url, &tls).map_err(|error| RequestError::Invalid(error.to_string()))?),
            To::Transport(transport) => transport,
        };
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
    /// How old what was read may be, if the answer says it.
    pub(crate) age: Option<Duration>,
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
        Self::build_to(To::Url(url.to_owned()))
    }

    /// Begins to build a client over another transport, such as a service in the same process.
    pub fn over(transport: impl Transport + 'static) -> ClientBuilder {
        Self::build_to(To::Transport(Box::new(transport)))
    }

    fn build_to(to: To) -> ClientBuilder {
        ClientBuilder { to, tls: Tls::default(), token: None, timeout: REQUEST_TIMEOUT, retries: Retries::default() }
    }

    /// Sends a request, repeating it under the retry policy, and returns the answer. An answer without a body is read as
    /// `null`.
    pub async fn send<T: DeserializeOwned>(&self, request: &Request) -> Result<T, RequestError> {
        self.repeat(request).await.answer
    }

    /// Sends a request until it is answered, or the deadline has passed.
    pub(crate) async fn repeat<T: DeserializeOwned>(&self, request: &Request) -> Repeated<T> {
        let Retries { deadline, .. } = self.0.retries;
        let is_repeated = !deadline.is_zero();
        let limit = if is_repeated { deadline } else { self.0.timeout };
        let until = Instant::now() + limit + request.wait;
        let longest = match is_repeated && request.wait.is_zero() {
            true => self.0.timeout.min(deadline / 2),
            false => self.0.timeout.max(request.wait),
        };
        let mut delays = self.0.retries.delays();
        let mut maybe_applied = false;
        let answer = loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = self.attempt(request, left.min(longest)).await;
            let error = match answer {
                Err(error) if is_repeated && error.is_transient() => error,
                answer => break answer,
            };
            let delay = delays.next().unwrap_or_default();
            if Instant::now() + delay >= until {
                break Err(error);
            }
            maybe_applied |= error.may_be_applied();
            tracing::debug!(%error, ?delay, "repeating a request");
            sleep(delay).await;
        };
        let (status, headers, answer) = match answer {
            Ok((head, answer)) => (Some(head.status), head.headers, Ok(answer)),
            Err(error) => (None, HeaderMap::new(), Err(error)),
        };
        let unchanged = headers.contains_key(UNCHANGED);
        let age = headers.get(header::AGE).and_then(|age| age.to_str().ok()?.parse().ok()).map(Duration::from_secs);
        let answer = match (answer, &request.idempotency_key) {
            // An earlier attempt may have been applied, and the service has not looked for its key since.
            (Err(error), Some(key)) if maybe_applied && !error.is_decision() && !error.may_be_applied() => {
                Err(RequestError::OutcomeUnknown { idempotency_key: key.clone(), source: error.into() })
            }
            (answer, _) => answer,
        };
        Repeated { answer, status, unchanged, age, maybe_applied }
    }

    /// Sends a request once, and reads its answer within this time.
    async fn attempt<T: DeserializeOwned>(
        &self,
        request: &Request,
        limit: Duration,
    ) -> Result<(Parts, T), RequestError> {
        let answer = timeout(limit + GRACE, self.once(request, limit)).await;
        answer.unwrap_or_else(|_| Err(lost(request, silent(limit))))
    }

    async fn once<T: DeserializeOwned>(&self, request: &Request, limit: Duration) -> Result<(Parts, T), RequestError> {
        let response = self.respond(request, limit).await?;
        let (head, body) = response.into_parts();
        let status = head.status;
        let body = body.collect().await;
        let body = body.map_err(|error| lost(request, TransportError::Lost(error)))?.to_bytes();
        if !status.is_success() {
            return Err(rejection(status, &body, request));
        }
        let body: &[u8] = if body.is_empty() { b"null" } else { &body };
        match serde_json::from_slice(body) {
            Ok(answer) => Ok((head, answer)),
            Err(error) => Err(RequestError::BadAnswer(error.into())),
        }
    }

    /// Opens a stream of events, which the service may end at any time. Its headers must arrive within the time limit of
    /// an attempt.
    pub async fn events(&self, request: &Request) -> Result<Events, RequestError> {
        let limit = self.0.timeout;
        let opened = timeout(limit, self.open_events(request)).await;
        opened.unwrap_or_else(|_| Err(lost(request, silent(limit))))
    }

    async fn open_events(&self, request: &Request) -> Result<Events, RequestError> {
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

/// Returns the error for an answer that did not come in time.
fn silent(limit: Duration) -> TransportError {
    TransportError::Lost(format!("nothing was received for {limit:?}").into())
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
