//! Where the keys of a [`Verifier`](crate::Verifier) come from, and when they are read again.

use std::{
    fmt, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use nameservice_model::BoxError;
use tokio::time::Instant;

/// How often the file of a key set is checked for changes.
const CHECK_EVERY: Duration = Duration::from_secs(1);

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

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}
