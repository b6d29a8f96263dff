//! The keys of callers' tokens: in a file, or at a URL.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use http::StatusCode;
use http_body_util::BodyExt as _;
use nameservice_client::{Http, Transport};
use nameservice_http::{KeyFile, KeySource, NO_KEYS};
use nameservice_model::{BoxError, ShownUrl};
use reqwest::Url;
use tokio::time::Instant;

/// How long a key set may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a key set is used before it is fetched again: issuers publish a new key well before they sign with it, and
/// withdraw one when it may no longer be used.
const MAX_AGE: Duration = Duration::from_secs(300);
/// A key set has a few keys, of less than a kilobyte each.
const MAX_BYTES: usize = 1024 * 1024;

/// Returns the source that `--jwks` names.
pub(crate) fn source(place: &str) -> Result<Arc<dyn KeySource>, BoxError> {
    match Url::parse(place) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(Arc::new(KeyUrl::new(&url)?)),
        _ => Ok(Arc::new(KeyFile::new(place))),
    }
}

/// A URL that answers with a key set. It is fetched again every five minutes.
struct KeyUrl {
    url: Url,
    transport: Http,
    path: String,
    fetched_at: Mutex<Instant>,
    /// Whether it was ever there.
    has_been: AtomicBool,
}

impl KeyUrl {
    fn new(url: &Url) -> Result<Self, BoxError> {
        let path = url.query().map_or_else(|| url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let transport = Http::new(&url.origin().ascii_serialization())?;
        Ok(Self {
            url: url.clone(),
            transport,
            path,
            fetched_at: Mutex::new(Instant::now()),
            has_been: AtomicBool::new(false),
        })
    }

    fn touch(&self) {
        *self.fetched_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl fmt::Debug for KeyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ShownUrl(self.url.as_str()))
    }
}

#[async_trait]
impl KeySource for KeyUrl {
    async fn read(&self) -> Result<String, BoxError> {
        // Before the answer, so that an issuer that is down is not asked more often than one that answers.
        self.touch();
        let request =
            http::Request::get(&self.path).header(http::header::ACCEPT, "application/json").body(Default::default())?;
        let answer = self.transport.send(request, TIMEOUT).await?;
        // A key set that was there, and was deleted, has no keys any more. A failure keeps the keys that are known.
        if matches!(answer.status(), StatusCode::NOT_FOUND | StatusCode::GONE) && self.has_been.load(Ordering::Relaxed)
        {
            return Ok(NO_KEYS.to_owned());
        }
        if !answer.status().is_success() {
            return Err(format!("the answer is {}", answer.status()).into());
        }
        let (mut body, mut json) = (answer.into_body(), Vec::new());
        while let Some(frame) = body.frame().await {
            json.extend_from_slice(frame?.data_ref().map_or(&[], |data| data.as_ref()));
            if json.len() > MAX_BYTES {
                return Err("the answer is larger than a key set".into());
            }
        }
        let json = String::from_utf8(json)?;
        self.has_been.store(true, Ordering::Relaxed);
        Ok(json)
    }

    fn is_due(&self) -> bool {
        let due = self.fetched_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= MAX_AGE;
        if due {
            // One caller fetches; the others use the keys that they have.
            self.touch();
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::get};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_url_is_fetched_and_a_rejection_is_an_error() {
        let router = Router::new()
            .route("/keys", get(async |uri: axum::http::Uri| uri.to_string()))
            .route("/gone", get(async || StatusCode::GONE));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        let read = async |path: &str| source(&format!("http://{address}{path}")).unwrap().read().await;
        assert_eq!(read("/keys?tenant=a").await.unwrap(), "/keys?tenant=a");
        assert!(read("/gone").await.unwrap_err().to_string().contains("410"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_url_is_due_every_five_minutes_for_one_caller() {
        let keys = source("https://issuer.example.com/jwks.json").unwrap();
        assert!(!keys.is_due());
        tokio::time::advance(MAX_AGE).await;
        assert!(keys.is_due() && !keys.is_due());
    }
}
