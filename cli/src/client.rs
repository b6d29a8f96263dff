//! Asks the service, over the network or in this process: the same requests either way.

use std::{pin::Pin, time::Duration};

use axum::{Router, body::Body};
use futures_util::Stream;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use http_body_util::BodyExt as _;
use nameservice_http::problem::ProblemDocument;
use nameservice_model::Address;
use reqwest::RequestBuilder;
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::{args::KeyArgs, failure::Failure};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A little longer than the 30 seconds that API Gateway waits for a function.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(35);
/// Longer than any stream of events lasts.
const STREAM_TIMEOUT: Duration = Duration::from_secs(3600);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Server-sent events as they come; also blocks without data, of which the id tells how far the stream has come.
pub type Events = Pin<Box<dyn Stream<Item = Result<Sse, sse_stream::Error>> + Send>>;

/// One request.
#[derive(Debug)]
pub struct Request {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    body: Option<Value>,
    /// Every write has one, so that it can be repeated by hand where its answer was lost.
    idempotency_key: Option<String>,
    last_event_id: Option<u64>,
}

impl Request {
    /// A read of a path under `/v1/`.
    pub fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path: format!("/v1/{path}"),
            query: Vec::new(),
            body: None,
            idempotency_key: None,
            last_event_id: None,
        }
    }

    /// A write to a path under `/v1/`.
    pub fn write(method: Method, path: &str, key: &KeyArgs) -> Self {
        let key = key.idempotency_key.clone().unwrap_or_else(|| Uuid::new_v4().simple().to_string());
        Self { method, idempotency_key: Some(key), ..Self::get(path) }
    }

    /// Puts an address at the end of the path.
    pub fn at(self, address: &Address) -> Self {
        self.rest(address.as_str())
    }

    /// Puts a text at the end of the path.
    pub fn rest(mut self, text: &str) -> Self {
        self.path.push('/');
        escape(text, b"/:", &mut self.path);
        self
    }

    /// Adds a query parameter, if there is a value.
    pub fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// Adds a query parameter as often as there are values.
    pub fn queries<T: ToString>(mut self, name: &'static str, values: impl IntoIterator<Item = T>) -> Self {
        self.query.extend(values.into_iter().map(|value| (name, value.to_string())));
        self
    }

    /// Goes on after the event of this id.
    pub fn resume(mut self, last_event_id: Option<u64>) -> Self {
        self.last_event_id = last_event_id;
        self
    }

    /// Sends this along.
    pub fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    fn uri(&self) -> String {
        let mut uri = self.path.clone();
        for (i, (name, value)) in self.query.iter().enumerate() {
            uri.push(if i == 0 { '?' } else { '&' });
            uri.push_str(name);
            uri.push('=');
            escape(value, b"", &mut uri);
        }
        uri
    }
}

/// Percent-encodes everything but the unreserved characters of RFC 3986 and those kept.
fn escape(text: &str, kept: &[u8], into: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            into.push(byte.into());
        } else {
            into.push('%');
            into.push(HEX[usize::from(byte >> 4)].into());
            into.push(HEX[usize::from(byte & 15)].into());
        }
    }
}

/// Where requests go.
#[derive(Debug)]
pub struct Client {
    transport: Transport,
    token: Option<String>,
}

#[derive(Debug)]
enum Transport {
    Remote { http: reqwest::Client, base: String },
    InProcess { router: Router },
}

struct Answer {
    status: StatusCode,
    body: Vec<u8>,
}

impl Client {
    /// Of the service at this URL.
    pub fn remote(url: &str, token: Option<String>) -> Result<Self, Failure> {
        let base = url.trim_end_matches('/').to_owned();
        let unusable = |reason: &str| Failure::Usage(format!("`{url}` cannot be used as a URL: {reason}"));
        let parsed = reqwest::Url::parse(&base).map_err(|error| unusable(&error.to_string()))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(unusable("it begins with http:// or https://"));
        }
        // The one TLS library of this program. Refused only where it is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("nameservice/", env!("CARGO_PKG_VERSION")));
        let local = match parsed.host_str() {
            Some("localhost") => true,
            Some(host) => host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback()),
            None => false,
        };
        if local {
            // A proxy of the environment is not meant for this machine.
            http = http.no_proxy();
        }
        if parsed.scheme() == "http" {
            // Without this the certificates of the system are loaded, and missed, though nothing asks for them.
            http = http.tls_backend_preconfigured(
                rustls::ClientConfig::builder()
                    .with_root_certificates(rustls::RootCertStore::empty())
                    .with_no_client_auth(),
            );
        }
        let http = http.build().map_err(|error| unusable(&nameservice_model::chain(&error)))?;
        Ok(Self { transport: Transport::Remote { http, base }, token })
    }

    /// Of a service in this process.
    pub fn in_process(router: Router) -> Self {
        Self { transport: Transport::InProcess { router }, token: None }
    }

    /// Sends a request; null where the answer has no body.
    pub async fn send(&self, request: Request) -> Result<Value, Failure> {
        let key = request.idempotency_key.clone();
        let answer = match &self.transport {
            Transport::Remote { http, base } => self.send_remote(http, base, request).await?,
            Transport::InProcess { router } => send_in_process(router, request).await?,
        };
        read(&answer, key)
    }

    /// Opens a stream of events, which ends whenever the service wants it to.
    pub async fn events(&self, request: Request) -> Result<Events, Failure> {
        let (status, body) = match &self.transport {
            Transport::Remote { http, base } => {
                let response = self.request(http, base, &request)?.timeout(STREAM_TIMEOUT).send().await;
                let response: http::Response<reqwest::Body> = response.map_err(lost(base, &request))?.into();
                let (parts, body) = response.into_parts();
                (parts.status, Body::new(body))
            }
            Transport::InProcess { router } => {
                let (parts, body) = respond_in_process(router, &request).await?.into_parts();
                (parts.status, body)
            }
        };
        if status.is_success() {
            return Ok(Box::pin(SseStream::new(body)));
        }
        let body = body.collect().await.map_err(|error| Failure::NoAnswer(error.into()))?.to_bytes().to_vec();
        match read(&Answer { status, body }, None) {
            Err(failure) => Err(failure),
            Ok(_) => Err(Failure::Answered { status: status.as_u16(), message: String::new() }),
        }
    }

    fn headers(&self, request: &Request) -> Result<HeaderMap, Failure> {
        let mut headers = HeaderMap::new();
        let value = |what: &str, text: &str| {
            text.parse().map_err(|_| Failure::Usage(format!("the {what} holds characters that cannot be sent")))
        };
        if let Some(key) = &request.idempotency_key {
            headers.insert(IDEMPOTENCY_KEY, value("idempotency key", key)?);
        }
        if let Some(id) = request.last_event_id {
            headers.insert(LAST_EVENT_ID, id.into());
        }
        if let Some(token) = &self.token {
            headers.insert(header::AUTHORIZATION, value("token", &format!("Bearer {token}"))?);
        }
        Ok(headers)
    }

    fn request(&self, http: &reqwest::Client, base: &str, request: &Request) -> Result<RequestBuilder, Failure> {
        let headers = self.headers(request)?;
        let builder = http.request(request.method.clone(), format!("{base}{}", request.uri())).headers(headers);
        Ok(match &request.body {
            Some(body) => builder.json(body),
            None => builder,
        })
    }

    async fn send_remote(&self, http: &reqwest::Client, base: &str, request: Request) -> Result<Answer, Failure> {
        let response = self.request(http, base, &request)?.send().await.map_err(lost(base, &request))?;
        let status = response.status();
        let body = response.bytes().await.map_err(lost(base, &request))?.to_vec();
        Ok(Answer { status, body })
    }
}

/// What it means that no answer came to a request.
fn lost(base: &str, request: &Request) -> impl Fn(reqwest::Error) -> Failure {
    move |error| match &request.idempotency_key {
        _ if error.is_connect() => Failure::Unreachable { url: base.to_owned(), source: error.into() },
        Some(key) => Failure::OutcomeUnknown { idempotency_key: key.clone(), source: error.into() },
        None => Failure::NoAnswer(error.into()),
    }
}

async fn send_in_process(router: &Router, request: Request) -> Result<Answer, Failure> {
    let (parts, body) = respond_in_process(router, &request).await?.into_parts();
    let body = body.collect().await.map_err(|error| Failure::BadAnswer(error.into()))?.to_bytes().to_vec();
    Ok(Answer { status: parts.status, body })
}

async fn respond_in_process(router: &Router, request: &Request) -> Result<http::Response<Body>, Failure> {
    let mut builder = http::Request::builder().method(request.method.clone()).uri(request.uri());
    if let Some(key) = &request.idempotency_key {
        builder = builder.header(IDEMPOTENCY_KEY, key);
    }
    if let Some(id) = request.last_event_id {
        builder = builder.header(LAST_EVENT_ID, id);
    }
    let body = match &request.body {
        Some(body) => {
            builder = builder.header(header::CONTENT_TYPE, "application/json");
            Body::from(body.to_string())
        }
        None => Body::empty(),
    };
    let http_request = builder.body(body).map_err(|error| Failure::Usage(format!("it cannot be sent: {error}")))?;
    let Ok(response) = router.clone().oneshot(http_request).await;
    Ok(response)
}

fn read(answer: &Answer, key: Option<String>) -> Result<Value, Failure> {
    let Answer { status, body } = answer;
    if status.is_success() {
        return if body.is_empty() {
            Ok(Value::Null)
        } else {
            serde_json::from_slice(body).map_err(|error| Failure::BadAnswer(error.into()))
        };
    }
    if let Ok(problem) = serde_json::from_slice::<ProblemDocument>(body) {
        return Err(Failure::Refused(Box::new(problem)));
    }
    // Something in front of the service: API Gateway says `{"message": …}`, others send a page.
    let message =
        serde_json::from_slice::<Value>(body).ok().and_then(|body| Some(body.get("message")?.as_str()?.into()));
    let failure = Failure::Answered { status: status.as_u16(), message: message.unwrap_or_default() };
    match key {
        // The service may have done its part behind it.
        Some(idempotency_key) if status.is_server_error() => {
            Err(Failure::OutcomeUnknown { idempotency_key, source: failure.into() })
        }
        _ => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::{get, put};

    use super::*;

    #[test]
    fn addresses_keep_their_slashes_and_colons_and_nothing_else() {
        let address = Address::parse("tenant/größe db:feature/x+y").unwrap();
        let request = Request::get("records").at(&address).query("concerns", Some("head,index")).query("x", None::<u8>);
        assert_eq!(request.uri(), "/v1/records/tenant/gr%C3%B6%C3%9Fe%20db:feature/x%2By?concerns=head%2Cindex");
    }

    #[tokio::test]
    async fn answers_of_something_in_front_are_told_from_those_of_the_service() {
        let gateway = || async { (StatusCode::SERVICE_UNAVAILABLE, r#"{"message":"Service Unavailable"}"#) };
        let router = Router::new().route("/v1/a", put(gateway).get(gateway)).route("/v1/b", get(|| async { "page" }));
        let client = Client::in_process(router);
        let write = Request::write(Method::PUT, "a", &KeyArgs { idempotency_key: Some("k".into()) });
        let failure = client.send(write).await.unwrap_err();
        assert!(matches!(&failure, Failure::OutcomeUnknown { idempotency_key, .. } if idempotency_key == "k"));
        let failure = client.send(Request::get("a")).await.unwrap_err();
        assert_eq!(failure.to_string(), "the service answered 503: Service Unavailable");
        assert!(matches!(client.send(Request::get("b")).await, Err(Failure::BadAnswer(_))));
    }

    #[tokio::test]
    async fn what_cannot_be_reached_is_named() {
        let client = Client::remote("http://127.0.0.1:1/", None).unwrap();
        let failure = client.send(Request::get("health")).await.unwrap_err();
        assert!(failure.to_string().starts_with("http://127.0.0.1:1 cannot be reached"), "{failure}");
        for url in ["ftp://a", "a b", "localhost:8080"] {
            assert!(matches!(Client::remote(url, None), Err(Failure::Usage(_))), "{url}");
        }
        assert!(Client::remote("https://example.com", None).is_ok());
    }
}
