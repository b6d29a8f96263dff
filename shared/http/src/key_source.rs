//! Where the keys of a [`Verifier`](crate::Verifier) come from, and when they are read again.

use std::{
    fmt, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use axum::http::StatusCode;
use nameservice_model::{BoxError, ShownUrl};
use tokio::time::Instant;

/// How often the file of a key set is checked for changes.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// How long a key set of a URL is used before it is fetched again: issuers publish a new key well before they sign with it, and
/// withdraw one when it may no longer be used.
const MAX_AGE: Duration = Duration::from_secs(300);

/// A key set without keys: what a source returns once its key set was deleted.
pub const NO_KEYS: &str = r#"{"keys": []}"#;

/// A place that holds a JSON Web Key Set.
#[async_trait]
pub trait KeySource: fmt::Debug + Send + Sync {
    /// Returns the key set as JSON.
    async fn read(&self) -> Result<String, BoxError>;

    /// Returns whether the key set has to be read again, because it has changed or may have. Cheap: it is called for every
    /// token.
    fn is_due(&self) -> bool;
}

/// A file that holds a key set. It is read again when it changes.
pub struct KeyFile {
    path: PathBuf,
    last: Mutex<LastRead>,
}

#[derive(Debug)]
struct LastRead {
    modified: Option<SystemTime>,
    /// Whether it was ever read.
    has_been: bool,
    checked_at: Instant,
}

impl KeyFile {
    /// Names the file. Nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let last = LastRead { modified: None, has_been: false, checked_at: Instant::now() };
        Self { path: path.into(), last: Mutex::new(last) }
    }

    fn last(&self) -> MutexGuard<'_, LastRead> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

#[async_trait]
impl KeySource for KeyFile {
    async fn read(&self) -> Result<String, BoxError> {
        // Read before the content, so that a change in between is noticed the next time.
        let modified = modified(&self.path);
        let json = match fs::read_to_string(&self.path) {
            // A file that was there, and was deleted, has no keys any more.
            Err(error) if error.kind() == ErrorKind::NotFound && self.last().has_been => NO_KEYS.to_owned(),
            read => read?,
        };
        let mut last = self.last();
        (last.modified, last.has_been) = (modified, true);
        Ok(json)
    }

    fn is_due(&self) -> bool {
        let mut last = self.last();
        if last.checked_at.elapsed() < CHECK_EVERY {
            return false;
        }
        last.checked_at = Instant::now();
        let modified = modified(&self.path);
        modified != last.modified
    }
}

/// Fetches what is at a URL.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// Returns the status and the body of the answer.
    async fn fetch(&self) -> Result<(StatusCode, String), BoxError>;
}

/// A URL that answers with a key set. It is fetched again every five minutes.
pub struct KeyUrl<F> {
    url: String,
    fetch: F,
    fetched_at: Mutex<Option<Instant>>,
    /// Whether it was ever there.
    has_been: AtomicBool,
}

impl<F> KeyUrl<F> {
    /// Names the URL, and what fetches it. Nothing is fetched yet.
    pub fn new(url: impl Into<String>, fetch: F) -> Self {
        Self { url: url.into(), fetch, fetched_at: Mutex::default(), has_been: AtomicBool::new(false) }
    }

    fn fetched_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.fetched_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F> fmt::Debug for KeyUrl<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ShownUrl(&self.url))
    }
}

#[async_trait]
impl<F: Fetch> KeySource for KeyUrl<F> {
    async fn read(&self) -> Result<String, BoxError> {
        // Before the answer, so that an issuer that is down is not asked more often than one that answers.
        *self.fetched_at() = Some(Instant::now());
        let (status, json) = self.fetch.fetch().await?;
        // A key set that was there, and was deleted, has no keys any more. A failure keeps the keys that are known.
        if matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE) && self.has_been.load(Ordering::Relaxed) {
            return Ok(NO_KEYS.to_owned());
        }
        if !status.is_success() {
            return Err(format!("the answer is {status}").into());
        }
        self.has_been.store(true, Ordering::Relaxed);
        Ok(json)
    }

    fn is_due(&self) -> bool {
        let mut fetched_at = self.fetched_at();
        let due = fetched_at.is_none_or(|at| at.elapsed() >= MAX_AGE);
        if due {
            // One caller fetches; the others use the keys that they have.
            *fetched_at = Some(Instant::now());
        }
        due
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Answers(StatusCode);

    #[async_trait]
    impl Fetch for Answers {
        async fn fetch(&self) -> Result<(StatusCode, String), BoxError> {
            Ok((self.0, "{}".to_owned()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_url_is_due_at_first_and_every_five_minutes_for_one_caller() {
        let keys = KeyUrl::new("https://issuer.example.com/jwks.json", Answers(StatusCode::OK));
        assert!(keys.is_due() && !keys.is_due());
        tokio::time::advance(MAX_AGE).await;
        keys.read().await.unwrap();
        assert!(!keys.is_due());
        tokio::time::advance(MAX_AGE).await;
        assert!(keys.is_due() && !keys.is_due());
    }

    #[tokio::test]
    async fn a_key_set_that_is_deleted_has_no_keys_and_one_that_never_was_is_an_error() {
        let mut keys = KeyUrl::new("https://issuer.example.com/jwks.json", Answers(StatusCode::GONE));
        assert!(keys.read().await.unwrap_err().to_string().contains("410"));
        keys.fetch = Answers(StatusCode::OK);
        assert_eq!(keys.read().await.unwrap(), "{}");
        keys.fetch = Answers(StatusCode::NOT_FOUND);
        assert_eq!(keys.read().await.unwrap(), NO_KEYS);
        keys.fetch = Answers(StatusCode::BAD_GATEWAY);
        assert!(keys.read().await.is_err());
    }
}
