//! How requests reach the service.

use std::{fmt, net::IpAddr, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use nameservice_model::{BoxError, chain};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends requests whose URI is a path: over the network, or to a service in the same process.
#[async_trait]
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends a request; returns the answer once its headers are there. The time limit includes the body.
    async fn send(
        &self,
        request: http::Request<Bytes>,
        timeout: Duration,
    ) -> Result<http::Response<Body>, TransportError>;
}

/// The error of a request that was not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// Nothing was sent.
    #[error("cannot reach {url}")]
    Unreachable {
        /// What was tried.
        url: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// It was sent, and no answer came.
    #[error("no answer")]
    Lost(#[source] BoxError),
    /// It cannot be sent.
    #[error("{0}")]
    Invalid(String),
}

/// The transport over HTTP/1.1, with TLS by rustls.
#[derive(Clone, Debug)]
pub struct Http {
    client: reqwest::Client,
    base: String,
}

impl Http {
    /// Returns a transport to the service at this URL, which may end in a base path.
    pub fn new(url: &str) -> Result<Self, TransportError> {
        let client = http_client(url)?;
        Ok(Self { client, base: url.trim_end_matches('/').to_owned() })
    }

    /// Returns the URL of the service, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.base
    }
}

/// Returns a client of HTTP for the host of this URL: with this program's TLS, and without a proxy where the host is this machine.
pub fn http_client(url: &str) -> Result<reqwest::Client, TransportError> {
    let unusable = |reason: &str| TransportError::Invalid(format!("`{url}` cannot be used as a URL: {reason}"));
    let parsed = reqwest::Url::parse(url).map_err(|error| unusable(&error.to_string()))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(unusable("it must begin with http:// or https://"));
    }
    // An error means that the embedding program has installed a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("nameservice/", env!("CARGO_PKG_VERSION")));
    let local = match parsed.host_str() {
        Some("localhost") => true,
        Some(host) => host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
        None => false,
    };
    if local {
        // A proxy from the environment is not meant for requests to this machine.
        client = client.no_proxy();
    }
    if parsed.scheme() == "http" {
        // Without this, the system's certificates are loaded, and their absence is an error, though nothing needs them.
        client = client.tls_backend_preconfigured(
            rustls::ClientConfig::builder()
                .with_root_certificates(rustls::RootCertStore::empty())
                .with_no_client_auth(),
        );
    }
    client.build().map_err(|error| unusable(&chain(&error)))
}

#[async_trait]
impl Transport for Http {
    async fn send(
        &self,
        request: http::Request<Bytes>,
        timeout: Duration,
    ) -> Result<http::Response<Body>, TransportError> {
        let (parts, body) = request.into_parts();
        let url = format!("{}{}", self.base, parts.uri);
        let sent = self.client.request(parts.method, url).headers(parts.headers).body(body).timeout(timeout).send();
        let response: http::Response<reqwest::Body> = match sent.await {
            Ok(response) => response.into(),
            Err(error) if error.is_connect() => {
                return Err(TransportError::Unreachable { url: self.base.clone(), source: error.into() });
            }
            Err(error) if error.is_builder() => return Err(TransportError::Invalid(chain(&error))),
            Err(error) => return Err(TransportError::Lost(error.into())),
        };
        Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
    }
}
