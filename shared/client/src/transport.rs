//! How requests reach the service.

use std::{fmt, net::IpAddr, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use nameservice_model::{BoxError, ShownUrl, chain};
use percent_encoding::percent_decode_str;

use crate::tls::Tls;

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
        /// The service, without credentials.
        url: String,
        /// The cause.
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
#[derive(Clone)]
pub struct Http {
    client: reqwest::Client,
    base: String,
    shown: String,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("url", &self.shown).finish_non_exhaustive()
    }
}

impl Http {
    /// Returns a transport to the service at this URL, which may end in a base path, or at a Unix socket: `unix:PATH`.
    pub fn new(url: &str) -> Result<Self, TransportError> {
        Self::over(url, &Tls::default())
    }

    /// Returns a transport that authenticates itself by this certificate, if there is one: its chain and its private key, in one PEM.
    pub fn authenticated(url: &str, certificate: Option<&[u8]>) -> Result<Self, TransportError> {
        Self::over(url, &Tls { identity: certificate.map(<[u8]>::to_vec), ..Tls::default() })
    }

    /// Returns the same transport over this TLS.
    pub(crate) fn over(url: &str, tls: &Tls) -> Result<Self, TransportError> {
        if tls.identity.is_some() && !url.to_ascii_lowercase().starts_with("https://") {
            let reason = "a client certificate authenticates over https only";
            return Err(TransportError::Invalid(reason.to_owned()));
        }
        let client = client_over(url, tls)?;
        if is_unix(url) {
            return Ok(Self { client, base: "http://localhost".to_owned(), shown: url.to_owned() });
        }
        let base = url.trim_end_matches('/').to_owned();
        let shown = ShownUrl(&base).to_string();
        Ok(Self { client, base, shown })
    }

    /// Returns the transport without the credentials of its URL.
    #[must_use]
    pub fn without_credentials(mut self) -> Self {
        if !is_unix(&self.shown) {
            self.base.clone_from(&self.shown);
        }
        self
    }

    /// Returns the URL of the service, without credentials and without a slash at the end.
    pub fn url(&self) -> &str {
        &self.shown
    }

    /// Returns the URL of a path below the base. URLs resolve dot segments, escaped or not, and take backslashes for
    /// slashes, so that a path could leave the base, or name another route than the one that was checked.
    fn below(&self, path: &http::Uri) -> Result<reqwest::Url, TransportError> {
        let rejected =
            || TransportError::Invalid("the path has segments that a URL resolves: `.`, `..` or `\\`".into());
        let url = reqwest::Url::parse(&format!("{}{path}", self.base)).map_err(|_| rejected())?;
        let base = reqwest::Url::parse(&self.base).map_err(|_| rejected())?;
        let asked = format!("{}{}", base.path().trim_end_matches('/'), path.path());
        let segments =
            |path: &str| -> Vec<Vec<u8>> { path.split('/').map(|text| percent_decode_str(text).collect()).collect() };
        if segments(&asked) == segments(url.path()) && url.origin() == base.origin() {
            Ok(url)
        } else {
            Err(rejected())
        }
    }
}

/// Whether a URL names a Unix socket.
fn is_unix(url: &str) -> bool {
    url.starts_with("unix:")
}

/// Returns a client of HTTP for the host of this URL, or for this Unix socket: with this program's TLS, and without a proxy if the host is this machine.
pub fn http_client(url: &str) -> Result<reqwest::Client, TransportError> {
    client_over(url, &Tls::default())
}

fn client_over(url: &str, tls: &Tls) -> Result<reqwest::Client, TransportError> {
    let unusable =
        |reason: &str| TransportError::Invalid(format!("`{}` cannot be used as a URL: {reason}", ShownUrl(url)));
    const SCHEME: &str = "it must begin with http:// or https://";
    // An error means that the embedding program has installed a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("nameservice/", env!("CARGO_PKG_VERSION")));
    let built = |client: reqwest::ClientBuilder| client.build().map_err(|error| unusable(&chain(&error.without_url())));
    // Without this, the system's certificates are loaded, and their absence is an error, though nothing needs them.
    let plain = |client: reqwest::ClientBuilder| {
        let roots = rustls::RootCertStore::empty();
        client.tls_backend_preconfigured(
            rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth(),
        )
    };
    #[cfg(unix)]
    if let Some(path) = url.strip_prefix("unix:") {
        let path = std::path::Path::new(path);
        return if path.as_os_str().is_empty() {
            Err(unusable("it names no file: unix:PATH"))
        } else {
            built(plain(builder.unix_socket(path)))
        };
    }
    let parsed = reqwest::Url::parse(url).map_err(|error| match url.contains("://") {
        true => unusable(&error.to_string()),
        // The parser reports a relative URL.
        false => unusable(SCHEME),
    })?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(unusable(SCHEME));
    }
    let mut client = builder;
    let local = match parsed.host_str() {
        Some("localhost") => true,
        Some(host) => host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback()),
        None => false,
    };
    if local {
        // A proxy from the environment is not meant for requests to this machine.
        client = client.no_proxy();
    }
    built(if parsed.scheme() == "http" { plain(client) } else { tls.apply(client)? })
}

#[async_trait]
impl Transport for Http {
    async fn send(
        &self,
        request: http::Request<Bytes>,
        timeout: Duration,
    ) -> Result<http::Response<Body>, TransportError> {
        let (parts, body) = request.into_parts();
        let url = self.below(&parts.uri)?;
        let sent = self.client.request(parts.method, url).headers(parts.headers).body(body).timeout(timeout).send();
        let response: http::Response<reqwest::Body> = match sent.await {
            Ok(response) => response.into(),
            Err(error) if error.is_connect() => {
                return Err(TransportError::Unreachable {
                    url: self.shown.clone(),
                    source: error.without_url().into(),
                });
            }
            Err(error) if error.is_builder() => return Err(TransportError::Invalid(chain(&error.without_url()))),
            Err(error) => return Err(TransportError::Lost(error.without_url().into())),
        };
        Ok(response.map(|body| body.map_err(|error| BoxError::from(error.without_url())).boxed_unsync()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_never_leaves_the_base_and_names_the_route_that_it_shows() {
        let http = Http::new("http://user:secret@127.0.0.1:1/base/").unwrap();
        for path in [
            "/v1/records/a/b:c",
            "/v1/records/a%2Eb..c",
            "/v1/records/gr%C3%B6%20x?cursor=../..",
            "/",
            "/v1/x/...",
            "/v1//x",
        ] {
            let url = http.below(&path.parse().unwrap()).unwrap();
            assert_eq!(url.as_str(), format!("http://user:secret@127.0.0.1:1/base{path}"));
        }
        for path in [
            "/..",
            "/.",
            "/v1/records/..",
            "/v1/records/.",
            "/v1/records/../../..",
            "/v1/records/%2e%2E/x",
            "/v1/.%2e/x",
            "/v1/%2e",
            "/v1/records/a\\..\\b",
            "/\\x",
            "/v1/x/../../../base/v1/x",
            "/v1/..?x",
        ] {
            // What is no URI cannot be sent either.
            let Ok(uri) = path.parse() else { continue };
            assert!(matches!(http.below(&uri), Err(TransportError::Invalid(_))), "{path}");
        }
        for base in ["http://127.0.0.1:1", "http://127.0.0.1:1/"] {
            let http = Http::new(base).unwrap();
            assert!(http.below(&"/v1/records/a".parse().unwrap()).is_ok());
            assert!(http.below(&"/v1/records/..".parse().unwrap()).is_err());
        }
    }

    #[test]
    fn a_url_without_a_scheme_says_which_it_needs() {
        for url in ["localhost:8080", "127.0.0.1:8080", "example.com", "/path", "ftp://x"] {
            let message = Http::new(url).unwrap_err().to_string();
            assert!(message.ends_with("it must begin with http:// or https://"), "{message}");
        }
    }

    #[tokio::test]
    async fn credentials_of_a_url_are_in_no_message() {
        let shown = |error: &TransportError| format!("{error:?} {}", chain(error));
        let http = Http::new("http://user:secret@127.0.0.1:1/base").unwrap();
        let request = http::Request::get("/v1/health").body(Bytes::new()).unwrap();
        let unreachable = http.send(request, Duration::from_secs(5)).await.unwrap_err();
        assert!(matches!(unreachable, TransportError::Unreachable { .. }));
        let invalid = ["ftp://user:secret@x", "user:secret@x", "http://user:sec/ret@x", "http://user:secret@"];
        let invalid = invalid.map(|url| Http::new(url).unwrap_err());
        for text in invalid.iter().chain([&unreachable]).map(shown).chain([format!("{http:?}"), http.url().to_owned()])
        {
            assert!(!text.contains("sec") && !text.contains("user"), "{text}");
        }
    }
}
