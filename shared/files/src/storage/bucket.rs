//! A bucket of S3, GCS or Azure, or of a compatible store.
//!
//! There are no locks: each write names the state that it replaces, by ETag or generation.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nameservice_model::{Error, Result};
use nameservice_objects::{self as objects, BucketError, BucketOptions};
use object_store::{
    Error as StoreError, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, UpdateVersion, path::Path,
};

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
    prefix: String,
    shown: String,
}

impl Bucket {
    /// Returns the files under a prefix of any object store that compares ETags.
    pub fn over(store: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        let prefix = prefix.trim_matches('/').to_owned();
        Self { reads: store.clone(), writes: store, shown: prefix.clone(), prefix }
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
        Ok(Self { reads: build(READ_RETRIES)?, writes: build(0)?, prefix, shown })
    }

    fn path(&self, key: &str) -> Result<Path> {
        let whole = if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) };
        Path::parse(whole).map_err(|error| failed("find an object", error))
    }

    async fn put(&self, key: &str, bytes: Bytes, mode: PutMode) -> Result<Written> {
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.writes.put_opts(&self.path(key)?, bytes.into(), options).await {
            Ok(_) => Ok(Written::Done),
            // A 409 of S3 only says that another write was in flight.
            Err(
                StoreError::AlreadyExists { .. }
                | StoreError::Precondition { .. }
                | StoreError::NotModified { .. }
                | StoreError::NotFound { .. },
            ) => Ok(Written::Overtaken),
            Err(error) => Err(not_written(error)),
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
