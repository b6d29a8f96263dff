//! HTTP for object stores, over the client that the rest of the workspace uses: HTTP/1.1, TLS by rustls with ring.

use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use object_store::{
    ClientOptions, Error, Result,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};

use crate::Attempt;

/// How long one request may take by default.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Makes the clients of object stores.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug)]
struct Service(reqwest::Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient> {
        // An error means that a provider is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let timeout = self.timeout.unwrap_or(TIMEOUT);
        let client = reqwest::Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout)
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let client = client.map_err(|error| Error::Generic { store: "HTTP", source: error.into() })?;
        Ok(HttpClient::new(Service(client)))
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url = reqwest::Url::parse(&parts.uri.to_string())
            .map_err(|error| HttpError::new(HttpErrorKind::Request, error))?;
        // Bodies are small. They are collected first, since `is_empty` is not reliable for one of several pieces.
        let body = body.collect().await?.to_bytes();
        let mut sent = self.0.request(parts.method, url).headers(parts.headers);
        if !body.is_empty() {
            sent = sent.body(body);
        }
        let attempt = parts.extensions.get::<Attempt>();
        if let Some(attempt) = attempt {
            attempt.note_sent();
        }
        let answered = sent.send().await;
        match (attempt, &answered) {
            (Some(attempt), Ok(answer)) => attempt.note_answer(answer.status()),
            (Some(attempt), Err(error)) if error.is_connect() => attempt.note_not_sent(),
            _ => {}
        }
        let mut answer = answered.map_err(failed)?;
        let mut response = http::Response::builder().status(answer.status());
        if let Some(headers) = response.headers_mut() {
            std::mem::swap(headers, answer.headers_mut());
        }
        let bytes = answer.bytes().await.map_err(failed)?;
        response.body(HttpResponseBody::from(bytes)).map_err(|error| HttpError::new(HttpErrorKind::Decode, error))
    }
}

fn failed(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if error.is_request() || error.is_body() {
        HttpErrorKind::Request
    } else {
        HttpErrorKind::Interrupted
    };
    HttpError::new(kind, error)
}
