//! Publishes hints to AppSync, which passes them on to its subscribers. A hint that is lost is counted and never published again,
//! since readers read the feed. So publishing neither delays the feed nor makes it fail.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use futures_util::{StreamExt as _, stream};
use http::{Method, header};
use nameservice_dynamo::lambda_config;
use nameservice_model::BoxError;
use nameservice_signer::Signer;
use tokio::time::{Instant, timeout_at};

/// The service that requests are signed for.
const SERVICE: &str = "appsync";
/// How long the hints of a batch may take in total: the next batch waits for them.
const TIME: Duration = Duration::from_secs(1);
/// How long nothing is published after a batch that ran out of time.
const SILENCE: Duration = Duration::from_secs(30);
/// How many hints are in flight at the same time.
const TOGETHER: usize = 32;
/// How much of an error's text is kept.
const MAX_REASON_CHARS: usize = 300;

/// The reason why a hint was not published, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HintError {
    /// The URL cannot be used.
    #[error("`{0}` is not a URL to publish at: name one such as https://HOST/event or https://HOST/graphql")]
    Invalid(String),
    /// There are no credentials to sign with, or the request cannot be signed.
    #[error("the request to AppSync cannot be signed")]
    Unsigned(#[source] BoxError),
    /// No answer came.
    #[error("AppSync did not answer")]
    NoAnswer(#[source] BoxError),
    /// It has rejected the hint.
    #[error("AppSync answered {status}: {reason}")]
    Answered {
        /// The status.
        status: u16,
        /// What it says.
        reason: String,
    },
    /// The batch ran out of time.
    #[error("AppSync took longer than {} s for a batch: nothing is published for {} s", TIME.as_secs(), SILENCE.as_secs())]
    OutOfTime,
    /// A batch before this one ran out of time.
    #[error("nothing is published yet, since AppSync took too long for a batch less than {} s ago", SILENCE.as_secs())]
    Silent,
}

/// The result of publishing the hints of a batch.
#[derive(Debug, Default)]
pub struct Hints {
    /// How many there were.
    pub of: usize,
    /// How many of them were not published, or may not have been.
    pub lost: usize,
    /// The reason why the first of those was not published; present if any was lost.
    pub error: Option<HintError>,
}

/// An endpoint of AppSync. Clones share its state, so all of them are silent after a batch that ran out of time.
#[derive(Clone)]
pub(crate) struct Endpoint {
    http: reqwest::Client,
    url: http::Uri,
    signer: Option<Signer>,
    silent_until: Arc<Mutex<Option<Instant>>>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Returns the signer of a function with the credentials of its role.
pub(crate) fn signer() -> Option<Signer> {
    Signer::from_config(&lambda_config(), SERVICE)
}

/// Returns an HTTP client for publications.
pub(crate) fn client() -> Result<reqwest::Client, HintError> {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .connect_timeout(TIME)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| HintError::NoAnswer(error.into()))
}

impl Endpoint {
    pub(crate) fn new(http: reqwest::Client, url: &str, signer: Option<Signer>) -> Result<Self, HintError> {
        let invalid = || HintError::Invalid(url.to_owned());
        let uri: http::Uri = url.parse().map_err(|_| invalid())?;
        if uri.host().is_none() || !matches!(uri.scheme_str(), Some("https" | "http")) {
            return Err(invalid());
        }
        Ok(Self { http, url: uri, signer, silent_until: Arc::default() })
    }

    /// Posts the bodies of each sequence in order, and the sequences concurrently, begun in order. Takes at most a second; if that was
    /// not enough, nothing is posted for half a minute. `is_taken` checks the body of a successful answer.
    pub(crate) async fn post(&self, sequences: Vec<Vec<Vec<u8>>>, is_taken: fn(&[u8]) -> bool) -> Hints {
        let of = sequences.iter().map(Vec::len).sum();
        let mut hints = Hints { of, lost: of, error: None };
        let begun = Instant::now();
        if of == 0 {
            return hints;
        }
        if self.silent_until().is_some_and(|until| begun < until) {
            hints.error = Some(HintError::Silent);
            return hints;
        }
        let in_order = |bodies: Vec<Vec<u8>>| {
            let endpoint = self.clone();
            stream::iter(bodies).then(move |body| endpoint.clone().post_one(body, is_taken)).boxed()
        };
        let sequences: Vec<_> = sequences.into_iter().map(in_order).collect();
        let mut outcomes = stream::iter(sequences).flatten_unordered(TOGETHER);
        loop {
            match timeout_at(begun + TIME, outcomes.next()).await {
                Ok(Some(Ok(()))) => hints.lost -= 1,
                Ok(Some(Err(error))) => {
                    hints.error.get_or_insert(error);
                }
                Ok(None) => return hints,
                Err(_) => {
                    *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + SILENCE);
                    hints.error.get_or_insert(HintError::OutOfTime);
                    return hints;
                }
            }
        }
    }

    fn silent_until(&self) -> Option<Instant> {
        *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn post_one(self, body: Vec<u8>, is_taken: fn(&[u8]) -> bool) -> Result<(), HintError> {
        let mut request = http::Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        if let Some(signer) = &self.signer {
            signer.sign(&mut request, SystemTime::now()).await.map_err(HintError::Unsigned)?;
        }
        let (parts, body) = request.into_parts();
        let sent = self.http.request(parts.method, self.url.to_string()).headers(parts.headers).body(body).send();
        let no_answer = |error: reqwest::Error| HintError::NoAnswer(error.without_url().into());
        let answer = sent.await.map_err(no_answer)?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(no_answer)?;
        if status.is_success() && is_taken(&bytes) {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&bytes).chars().take(MAX_REASON_CHARS).collect();
        Err(HintError::Answered { status: status.as_u16(), reason })
    }
}
