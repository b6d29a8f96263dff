//! The service over the network or in this process: the same requests either way.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use axum::Router;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use nameservice_client::{Body, ClientBuilder, Retries, Transport, TransportError};
pub use nameservice_client::{Client, Events, Request, RequestError};
use nameservice_model::Error as StoreError;
use tower::ServiceExt as _;

use crate::{failure::Failure, options::KeyArgs};

/// The time limit of a request in this process, which cannot be lost: a command takes as long as it takes.
const IN_PROCESS: Duration = Duration::from_secs(24 * 3600);

/// A service in this process.
#[derive(Debug)]
struct InProcess {
    router: Router,
}

#[async_trait]
impl Transport for InProcess {
    async fn send(&self, request: http::Request<Bytes>, _: Duration) -> Result<http::Response<Body>, TransportError> {
        let Ok(response) = self.router.clone().oneshot(request.map(axum::body::Body::from)).await;
        Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
    }
}

/// How a command authenticates itself at services.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The bearer token.
    pub token: Option<String>,
    /// The certificate, with its private key, in PEM.
    pub certificate: Option<Vec<u8>>,
}

/// Shows no secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Credentials");
        shown.field("has_token", &self.token.is_some()).field("has_certificate", &self.certificate.is_some());
        shown.finish()
    }
}

impl Credentials {
    /// Returns the same with another token.
    #[must_use]
    pub fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    /// Returns the certificate for a connection to this URL. Only those over https have any.
    pub fn certificate_for(&self, url: &str) -> Option<&[u8]> {
        let is_https = url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
        self.certificate.as_deref().filter(|_| is_https)
    }

    /// Returns the builder of a client of the service at this URL.
    pub fn client(&self, url: &str) -> ClientBuilder {
        let mut client = Client::builder(url);
        if let Some(token) = &self.token {
            client = client.token(token.clone());
        }
        if let Some(pem) = self.certificate_for(url) {
            client = client.client_certificate(pem);
        }
        client
    }
}

/// Returns a client of the service at this URL. A command sends each request once: its caller decides whether to
/// repeat it.
pub fn remote(url: &str, credentials: &Credentials) -> Result<Client, Failure> {
    Ok(credentials.client(url).retries(Retries::NONE).build()?)
}

/// Returns a client of a service in this process.
pub fn in_process(router: Router) -> Result<Client, Failure> {
    Ok(Client::over(InProcess { router }).retries(Retries::NONE).timeout(IN_PROCESS).build()?)
}

/// Returns a write to a path under `/v1/`, under the key of the command line or one of its own.
pub fn write(method: Method, path: &str, key: &KeyArgs) -> Request {
    Request::write(method, path, key.idempotency_key.as_deref())
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Invalid(reason) => Self::Usage(reason),
            RequestError::Problem(problem) => Self::Rejected(problem),
            RequestError::Answered { status, message } => Self::Answered { status, message },
            RequestError::Unreachable { url, source } => Self::Unreachable { url, source },
            RequestError::NoAnswer(source) => Self::NoAnswer(source),
            RequestError::OutcomeUnknown { idempotency_key, source } => {
                Self::OutcomeUnknown { idempotency_key, source }
            }
            RequestError::BadAnswer(source) => Self::BadAnswer(source),
            other => Self::BadAnswer(other.into()),
        }
    }
}

impl Failure {
    /// Returns the failure of a request that the client has made by itself, as of one that a command has made.
    pub(crate) fn of_client(error: StoreError) -> Self {
        match error {
            StoreError::Store { operation, source } => match source.downcast::<RequestError>() {
                Ok(error) => (*error).into(),
                Err(source) => Self::Library(StoreError::Store { operation, source }.into()),
            },
            error => Self::Library(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::{get, put};
    use http::StatusCode;
    use serde_json::Value;

    use super::*;

    async fn send(client: &Client, request: Request) -> Result<Value, Failure> {
        Ok(client.send(&request).await?)
    }

    #[tokio::test]
    async fn answers_of_something_in_front_are_distinguished_from_those_of_the_service() {
        let gateway = || async { (StatusCode::SERVICE_UNAVAILABLE, r#"{"message":"Service Unavailable"}"#) };
        let router = Router::new().route("/v1/a", put(gateway).get(gateway)).route("/v1/b", get(|| async { "page" }));
        let client = in_process(router).unwrap();
        let put = write(Method::PUT, "a", &KeyArgs { idempotency_key: Some("k".into()) });
        let failure = send(&client, put).await.unwrap_err();
        assert!(matches!(&failure, Failure::OutcomeUnknown { idempotency_key, .. } if idempotency_key == "k"));
        let failure = send(&client, Request::get("a")).await.unwrap_err();
        assert_eq!(failure.to_string(), "the service answered 503: Service Unavailable");
        assert!(matches!(send(&client, Request::get("b")).await, Err(Failure::BadAnswer(_))));
    }

    #[tokio::test]
    async fn what_cannot_be_reached_is_named() {
        let client = remote("http://127.0.0.1:1/", &Credentials::default()).unwrap();
        let failure = send(&client, Request::get("health")).await.unwrap_err();
        assert!(failure.to_string().starts_with("cannot reach http://127.0.0.1:1;"), "{failure}");
        for url in ["ftp://a", "a b", "localhost:8080"] {
            assert!(matches!(remote(url, &Credentials::default()), Err(Failure::Usage(_))), "{url}");
        }
        assert!(remote("https://example.com", &Credentials::default()).is_ok());
    }
}
