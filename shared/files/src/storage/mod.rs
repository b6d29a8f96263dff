//! Where the files are: a directory, or a bucket.

mod bucket;
mod directory;

use std::{
    any::Any,
    fmt,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use bytes::Bytes;
use nameservice_model::{Error, Result};

pub use bucket::Bucket;
pub use directory::DirectoryError;
pub(crate) use directory::{Directory, Identity};
pub use nameservice_objects::{BucketError, BucketOptions};

use crate::codec::Content;

/// A file as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Blob {
    pub(crate) content: Content,
    /// Identifies this state of the file.
    pub(crate) version: Version,
}

/// A state of a file: in a bucket its ETag and, if it has them, its version or generation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) tag: Option<String>,
    pub(crate) generation: Option<String>,
}

/// A file that a listing shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    /// Epoch milliseconds.
    pub(crate) modified: i64,
    /// Differs whenever the file does.
    pub(crate) stamp: String,
    /// Whether it is empty. In a directory, Fluree treats an empty file as absent.
    pub(crate) is_empty: bool,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The file holds what was written.
    Done,
    /// The stored file is not the one that was read: decide again.
    Overtaken,
}

/// Keeps other writers out while it is held.
pub(crate) struct Guard(#[allow(dead_code, reason = "held until it is dropped")] Box<dyn Any + Send>);

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// The files of a nameservice.
#[async_trait]
pub(crate) trait Storage: fmt::Debug + Send + Sync {
    /// Whether [`lock`](Self::lock) keeps other writers out. Otherwise each write names the state that it replaces.
    fn locks(&self) -> bool;

    /// Locks these files against other writers, waiting for at most the given time.
    async fn lock(&self, keys: &[String], at_most: Duration) -> Result<Guard>;

    /// Reads a file; `None` if there is none.
    async fn read(&self, key: &str) -> Result<Option<Blob>>;

    /// Reads these files, several at a time.
    async fn read_all(&self, keys: Vec<String>) -> Vec<Result<Option<Blob>>>;

    /// Writes a file that does not exist.
    async fn create(&self, key: &str, bytes: Bytes) -> Result<Written>;

    /// Writes a file in place of the one that was read.
    async fn replace(&self, key: &str, bytes: Bytes, read: &Version) -> Result<Written>;

    /// Deletes a file, if it is there.
    async fn delete(&self, key: &str) -> Result<()>;

    /// Lists the files whose paths begin with this directory, in no order.
    async fn list(&self, under: &str) -> Result<Vec<Entry>>;

    /// Describes the location of a key, for messages.
    fn describe(&self, key: &str) -> String;
}

/// The error of a store that cannot do what is asked of it.
pub(crate) fn failed(operation: &'static str, source: impl Into<nameservice_model::BoxError>) -> Error {
    Error::Store { operation, source: source.into() }
}

/// Milliseconds since the epoch.
pub(crate) fn epoch_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
