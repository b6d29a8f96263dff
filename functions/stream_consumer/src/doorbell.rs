//! The doorbell: a channel of AppSync Events for each record, for readers that wait. It is a hint. A ring that is lost is counted, and
//! never delivered again: readers look at the feed after each connection, and a later ring makes up for it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use futures_util::{StreamExt as _, stream};
use http::{Method, header};
use nameservice_api::{
    changes::Change as Shape,
    doorbell::{Ring, channel},
};
use nameservice_dynamo::{lambda_config, variable};
use nameservice_model::{BoxError, Change};
use nameservice_signer::Signer;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::{DOORBELL, NAMESPACE};

/// The service that publications are signed for.
const SERVICE: &str = "appsync";
/// How long the rings of a batch may take, together: the next batch waits for them.
const TIME: Duration = Duration::from_secs(1);
/// How long nothing rings after a batch whose time was over.
const SILENCE: Duration = Duration::from_secs(30);
/// How many rings are on their way at the same time.
const TOGETHER: usize = 32;
/// The longest event, in bytes: AppSync counts one operation for each 5 KB.
const MAX_EVENT_BYTES: usize = 4 * 1024;
/// How much of an error's text is kept.
const MAX_REASON_CHARS: usize = 300;

/// Rings for readers of AppSync Events. Cheap to clone.
#[derive(Clone)]
pub struct Doorbell {
    http: reqwest::Client,
    url: http::Uri,
    namespace: String,
    signer: Option<Signer>,
    silent_until: Arc<Mutex<Option<Instant>>>,
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").field("url", &self.url).field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Why a ring was not published, or is not known to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotRung {
    /// The URL cannot be used.
    #[error("`{0}` is no URL to publish at: name https://HOST/event")]
    Invalid(String),
    /// There are no credentials to sign with, or what is sent cannot be.
    #[error("the event cannot be signed")]
    Unsigned(#[source] BoxError),
    /// No answer came.
    #[error("AppSync Events did not answer")]
    NoAnswer(#[source] BoxError),
    /// It has not taken the event.
    #[error("AppSync Events answered {status}: {reason}")]
    Answered {
        /// The status.
        status: u16,
        /// What it says.
        reason: String,
    },
}

/// What came of the rings of a batch.
#[derive(Debug, Default)]
pub struct Rung {
    /// How many records changed in the batch.
    pub records: usize,
    /// How many of them had no ring.
    pub lost: usize,
    /// Why the first of these had none; absent where its time was over.
    pub error: Option<NotRung>,
}

#[derive(Deserialize)]
struct Published {
    #[serde(default)]
    failed: Vec<Value>,
}

impl Doorbell {
    /// Returns the doorbell of a namespace that events are published to at a URL (`https://HOST/event`).
    pub fn new(url: &str, namespace: impl Into<String>, signer: Option<Signer>) -> Result<Self, NotRung> {
        // An error says that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .connect_timeout(TIME)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| NotRung::NoAnswer(error.into()))?;
        Self::over(http, url, namespace, signer)
    }

    /// Does the same over another HTTP client.
    pub fn over(
        http: reqwest::Client,
        url: &str,
        namespace: impl Into<String>,
        signer: Option<Signer>,
    ) -> Result<Self, NotRung> {
        let invalid = || NotRung::Invalid(url.to_owned());
        let uri: http::Uri = url.parse().map_err(|_| invalid())?;
        if uri.host().is_none() || !matches!(uri.scheme_str(), Some("https" | "http")) {
            return Err(invalid());
        }
        Ok(Self { http, url: uri, namespace: namespace.into(), signer, silent_until: Arc::default() })
    }

    /// Returns the doorbell that the environment of the function names; `None` where it names none.
    pub(crate) fn deployed() -> Result<Option<Self>, NotRung> {
        let (Some(url), Some(namespace)) = (variable(DOORBELL), variable(NAMESPACE)) else { return Ok(None) };
        Self::new(&url, namespace, Signer::from_config(&lambda_config(), SERVICE)).map(Some)
    }

    /// Rings once for each record that changed, with its newest change. Takes a second at most; where that was not enough,
    /// nothing rings for half a minute.
    pub async fn ring(&self, changes: &[Change]) -> Rung {
        let mut newest: BTreeMap<&str, &Change> = BTreeMap::new();
        for change in changes {
            let known = newest.entry(change.address.as_str()).or_insert(change);
            if known.position < change.position {
                *known = change;
            }
        }
        let records = newest.len();
        let mut rung = Rung { records, lost: records, error: None };
        let begun = Instant::now();
        if self.silent_until().is_some_and(|until| begun < until) {
            return rung;
        }
        let bodies: Vec<Vec<u8>> = newest.into_values().map(|change| self.body(change)).collect();
        let rings = bodies.into_iter().map(|body| self.clone().publish(body));
        let mut rings = stream::iter(rings.collect::<Vec<_>>()).buffer_unordered(TOGETHER);
        loop {
            match timeout_at(begun + TIME, rings.next()).await {
                Ok(Some(Ok(()))) => rung.lost -= 1,
                Ok(Some(Err(error))) => {
                    rung.error.get_or_insert(error);
                }
                Ok(None) => return rung,
                Err(_) => {
                    *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + SILENCE);
                    return rung;
                }
            }
        }
    }

    fn silent_until(&self) -> Option<Instant> {
        *self.silent_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn body(&self, change: &Change) -> Vec<u8> {
        let body = json!({ "channel": channel(&self.namespace, &change.address), "events": [event(change)] });
        body.to_string().into_bytes()
    }

    async fn publish(self, body: Vec<u8>) -> Result<(), NotRung> {
        let mut request = http::Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
        if let Some(signer) = &self.signer {
            signer.sign(&mut request, SystemTime::now()).await.map_err(NotRung::Unsigned)?;
        }
        let (parts, body) = request.into_parts();
        let sent = self.http.request(parts.method, self.url.to_string()).headers(parts.headers).body(body).send();
        let no_answer = |error: reqwest::Error| NotRung::NoAnswer(error.without_url().into());
        let answer = sent.await.map_err(no_answer)?;
        let status = answer.status();
        let bytes = answer.bytes().await.map_err(no_answer)?;
        // A status alone does not say that the event was taken.
        let taken = status.is_success()
            && serde_json::from_slice::<Published>(&bytes).is_ok_and(|published| published.failed.is_empty());
        if taken {
            return Ok(());
        }
        let reason = String::from_utf8_lossy(&bytes).chars().take(MAX_REASON_CHARS).collect();
        Err(NotRung::Answered { status: status.as_u16(), reason })
    }
}

/// Returns the text of an event, without the change where that is long.
fn event(change: &Change) -> String {
    let whole = json!(Ring { position: change.position, change: Some(Shape::from(change)) }).to_string();
    if whole.len() <= MAX_EVENT_BYTES {
        return whole;
    }
    json!(Ring { position: change.position, change: None }).to_string()
}
