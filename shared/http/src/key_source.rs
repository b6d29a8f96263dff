//! Where the keys of a [`Verifier`](crate::Verifier) come from, and when they are read again.

use std::{
    fmt,
    fs::File,
    io::{self, ErrorKind, Read as _},
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
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

/// A key set has a few keys, of less than a kilobyte each.
const MAX_BYTES: u64 = 1024 * 1024;

/// A key set without keys: what a source returns once its key set was deleted.
pub const NO_KEYS: &str = r#"{"keys": []}"#;

/// A place that holds a JSON Web Key Set.
#[async_trait]
pub trait KeySource: fmt::Debug + Send + Sync {
    /// Returns the key set as JSON.
    async fn read(&self) -> Result<String, BoxError>;

    /// Returns how long after a read began its keys are used; `None` if they are until the source has changed. If they
    /// cannot be read then, they stay in use, and are read again until that succeeds.
    fn max_age(&self) -> Option<Duration>;

    /// Returns whether the source is known to hold something else than was last read. Cheap: it is called for every token.
    fn has_changed(&self) -> bool;

    /// Returns whether a service starts while the source cannot be read: it is another service, which may come later.
    fn may_be_away(&self) -> bool;
}

/// A file that holds a key set. It is read again when its content is another one: not when its times are, which are the same
/// for all files of some volumes.
pub struct KeyFile {
    path: PathBuf,
    last: Mutex<LastRead>,
}

#[derive(Debug)]
struct LastRead {
    /// `None` if it was never read.
    content: Option<String>,
    checked_at: Instant,
}

impl KeyFile {
    /// Names the file. Nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let last = LastRead { content: None, checked_at: Instant::now() };
        Self { path: path.into(), last: Mutex::new(last) }
    }

    fn content(&self) -> io::Result<String> {
        let (mut json, most) = (String::new(), MAX_BYTES + 1);
        let read = File::open(&self.path).and_then(|file| file.take(most).read_to_string(&mut json));
        match read {
            // A file that was there, and was deleted, has no keys any more.
            Err(error) if error.kind() == ErrorKind::NotFound && self.last().content.is_some() => {
                Ok(NO_KEYS.to_owned())
            }
            Err(error) => Err(error),
            Ok(bytes) if bytes as u64 == most => {
                Err(io::Error::new(ErrorKind::FileTooLarge, "the file is larger than a key set"))
            }
            // An emptied file has no keys. An empty answer of a URL is not a key set.
            Ok(_) if json.trim().is_empty() => Ok(NO_KEYS.to_owned()),
            Ok(_) => Ok(json),
        }
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
        let json = self.content()?;
        self.last().content = Some(json.clone());
        Ok(json)
    }

    fn max_age(&self) -> Option<Duration> {
        None
    }

    fn has_changed(&self) -> bool {
        let mut last = self.last();
        if last.checked_at.elapsed() < CHECK_EVERY {
            return false;
        }
        last.checked_at = Instant::now();
        drop(last);
        // One that cannot be read is tried again, until it can be.
        let content = self.content().ok();
        content.is_none() || content != self.last().content
    }

    /// A file that is not there is one that the command line names wrongly.
    fn may_be_away(&self) -> bool {
        false
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
    /// Whether it was ever there.
    has_been: AtomicBool,
}

impl<F> KeyUrl<F> {
    /// Names the URL, and what fetches it. Nothing is fetched yet.
    pub fn new(url: impl Into<String>, fetch: F) -> Self {
        Self { url: url.into(), fetch, has_been: AtomicBool::new(false) }
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

    fn max_age(&self) -> Option<Duration> {
        Some(MAX_AGE)
    }

    fn has_changed(&self) -> bool {
        false
    }

    fn may_be_away(&self) -> bool {
        true
    }
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
