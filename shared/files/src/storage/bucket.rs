//! A bucket of S3, GCS or Azure, or of a compatible store.
//!
//! There are no locks: each write names the state that it replaces, by ETag or generation. A store that ignores that loses
//! writes, so it is tried before the first one (`compares`).

mod compares;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nameservice_model::{Error, Result};
use nameservice_objects::{self as objects, Answer, Attempt, BucketError, BucketOptions};
use object_store::{
    Error as StoreError, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion, path::Path,
};

use self::compares::Compares;
use super::{Blob, Entry, Guard, Storage, Version, Written, failed};
use crate::codec::Content;

/// How many files are read at a time.
const TOGETHER: usize = 32;
/// How many times an unanswered read is repeated. Writes are repeated by their callers, who decide again.
const READ_RETRIES: usize = 3;
const READ: &str = "read an object";
const WRITE: &str = "write an object";
const LIST: &str = "list a bucket";

/// The files of a bucket under a prefix.
#[derive(Clone, Debug)]
pub struct Bucket {
    reads: Arc<dyn ObjectStore>,
    writes: Arc<dyn ObjectStore>,
    /// Whether the writes report what became of them to an [`Attempt`].
    reports: bool,
    prefix: String,
    shown: String,
    compares: Arc<Compares>,
}

/// A write that has failed.
struct Failed {
    error: StoreError,
    /// What came back, if the store reports that.
    answer: Option<Answer>,
}

impl Bucket {
    /// Returns the files under a prefix of any object store that compares ETags.
    pub fn over(store: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        let prefix = prefix.trim_matches('/').to_owned();
        let (reads, shown) = (store.clone(), prefix.clone());
        Self { reads, writes: store, reports: false, prefix, shown, compares: Arc::default() }
    }

    /// Returns the files under a prefix of a bucket of S3.
    pub fn s3(bucket: &str, prefix: &str, options: &BucketOptions) -> Result<Self, BucketError> {
        Self::built("s3", bucket, prefix, |retries| objects::s3(bucket, options, retries))
    }

    /// Returns the files under a prefix of a bucket of Google Cloud Storage.
    pub fn gcs(bucket: &str, prefix: &str, options: &BucketOptions) -> Result<Self, BucketError> {
        Self::built("gs", bucket, prefix, |retries| objects::gcs(bucket, options, retries))
    }

    /// Returns the files under a prefix of a container of Azure's Blob Storage.
    pub fn azure(container: &str, prefix: &str, options: &BucketOptions) -> Result<Self, BucketError> {
        Self::built("az", container, prefix, |retries| objects::azure(container, options, retries))
    }

    fn built(
        scheme: &str,
        bucket: &str,
        prefix: &str,
        build: impl Fn(usize) -> Result<Arc<dyn ObjectStore>, BucketError>,
    ) -> Result<Self, BucketError> {
        let prefix = prefix.trim_matches('/').to_owned();
        let shown = format!("{scheme}://{bucket}/{prefix}");
        let (reads, writes) = (build(READ_RETRIES)?, build(0)?);
        Ok(Self { reads, writes, reports: true, prefix, shown, compares: Arc::default() })
    }

    fn path(&self, key: &str) -> Result<Path> {
        let whole = if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) };
        Path::parse(whole).map_err(|error| failed("find an object", error))
    }

    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<Written> {
        self.ensure_it_compares().await?;
        match self.send(&self.path(key)?, bytes, mode).await {
            Ok(()) => Ok(Written::Done),
            Err(failed) if failed.is_overtaken() => Ok(Written::Overtaken),
            Err(failed) => Err(failed.into_error()),
        }
    }

    async fn send(&self, path: &Path, bytes: Bytes, mode: PutMode) -> Result<(), Failed> {
        let attempt = Attempt::default();
        let options = PutOptions { mode, extensions: attempt.extensions(), ..PutOptions::default() };
        let sent = self.writes.put_opts(path, bytes.into(), options).await;
        sent.map(drop).map_err(|error| Failed { error, answer: self.reports.then(|| attempt.answer()) })
    }
}

impl Failed {
    /// Whether another write was faster, or is under way, so that the file has to be read again.
    fn is_overtaken(&self) -> bool {
        // A 409 of S3 only says that another write was in flight, a 429 that there were too many of them. The status is known
        // even if the document that follows it was lost.
        matches!(
            self.error,
            StoreError::AlreadyExists { .. }
                | StoreError::Precondition { .. }
                | StoreError::NotModified { .. }
                | StoreError::NotFound { .. }
        ) || matches!(self.answer, Some(Answer::Status(404 | 409 | 412 | 429)))
    }

    /// The error of a write. Unless the store has rejected it, or it was not sent, it may have been applied.
    fn into_error(self) -> Error {
        match self.answer {
            Some(Answer::NotSent | Answer::Status(429)) if !is_rejected(&self.error) => {
                Error::Unavailable { operation: WRITE, source: Some(self.error.into()) }
            }
            Some(answer) if answer.is_definite() => failed(WRITE, self.error),
            _ => not_written(self.error),
        }
    }
}

#[async_trait]
impl Storage for Bucket {
    fn locks(&self) -> bool {
        false
    }

    async fn lock(&self, _: &[String], _: Duration) -> Result<Guard> {
        Ok(Guard(Box::new(())))
    }

    async fn read(&self, key: &str) -> Result<Option<Blob>> {
        let found = match self.reads.get(&self.path(key)?).await {
            Ok(found) => found,
            Err(StoreError::NotFound { source, .. }) if !is_of_the_bucket(&*source) => return Ok(None),
            Err(error) => return Err(not_read(READ, error)),
        };
        let version = Version { tag: found.meta.e_tag.clone(), generation: found.meta.version.clone() };
        let modified = found.meta.last_modified.timestamp_millis();
        let bytes = found.bytes().await.map_err(|error| not_read(READ, error))?;
        Ok(Some(Blob { content: Content { bytes, modified }, version }))
    }

    async fn read_all(&self, keys: Vec<String>) -> Vec<Result<Option<Blob>>> {
        stream::iter(keys).map(|key| async move { self.read(&key).await }).buffered(TOGETHER).collect().await
    }

    async fn create(&self, key: &str, bytes: Bytes) -> Result<Written> {
        self.put(key, bytes, PutMode::Create).await
    }

    async fn replace(&self, key: &str, bytes: Bytes, read: &Version) -> Result<Written> {
        let version = UpdateVersion { e_tag: read.tag.clone(), version: read.generation.clone() };
        self.put(key, bytes, PutMode::Update(version)).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        match self.writes.delete(&self.path(key)?).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(not_written(error)),
        }
    }

    async fn list(&self, under: &str) -> Result<Vec<Entry>> {
        let path = self.path(under.trim_end_matches('/'))?;
        let cut = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
        let entry = |about: object_store::ObjectMeta| Entry {
            key: about.location.as_ref().get(cut..).unwrap_or_default().to_owned(),
            modified: about.last_modified.timestamp_millis(),
            stamp: about.e_tag.or(about.version).unwrap_or_default(),
            is_empty: false,
        };
        self.reads.list(Some(&path)).map_ok(entry).try_collect().await.map_err(|error| not_read(LIST, error))
    }

    fn describe(&self, key: &str) -> String {
        format!("{}/{key}", self.shown)
    }
}

/// Whether a store rejects a request because it can never be applied, or may not be made.
fn is_rejected(error: &StoreError) -> bool {
    is_impossible(error) || matches!(error, StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. })
}

fn is_impossible(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } | StoreError::InvalidPath { .. }
    )
}

/// Whether the bucket itself was not found. Names of objects are escaped in the document, so they do not match.
fn is_of_the_bucket(error: &(dyn std::error::Error + 'static)) -> bool {
    let reason = nameservice_model::chain(error);
    ["NoSuchBucket", "ContainerNotFound"].iter().any(|code| reason.contains(&format!("<Code>{code}</Code>")))
}

/// The error of a read. A bucket that is gone, or that may not be read any more, says nothing about its objects.
fn not_read(operation: &'static str, error: StoreError) -> Error {
    match is_impossible(&error) {
        true => failed(operation, error),
        false => Error::Unavailable { operation, source: Some(error.into()) },
    }
}

/// The error of a write. Unless the store has rejected it, it may have been applied.
fn not_written(error: StoreError) -> Error {
    match is_rejected(&error) {
        true => failed(WRITE, error),
        false => Error::OutcomeUnknown { operation: WRITE, source: Some(error.into()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_overtaken_also_if_only_the_status_of_its_rejection_arrived() {
        let failed = |answer| {
            let error = StoreError::Generic { store: "S3", source: "the connection was closed".into() };
            Failed { error, answer }
        };
        for status in [404, 409, 412, 429] {
            assert!(failed(Some(Answer::Status(status))).is_overtaken(), "{status}");
        }
        for answer in [None, Some(Answer::NotSent), Some(Answer::Lost), Some(Answer::Status(400))] {
            assert!(!failed(answer).is_overtaken(), "{answer:?}");
        }
    }
}
