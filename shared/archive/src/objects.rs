//! What an archive needs of the place that its objects are in.

use async_trait::async_trait;
use nameservice_model::{BoxError, Error, Result};

pub(crate) const READ: &str = "read the archive";
pub(crate) const WRITE: &str = "write the archive";

/// A bucket or a directory, as an archive uses it: objects are added, and never changed or deleted.
///
/// With the feature `object-store` every store of the crate `object_store` is one.
#[async_trait]
pub trait Objects: Send + Sync {
    /// Returns the keys of the objects in a folder such as `my/archive/changes`, in any order. With `after`, only the keys that
    /// follow it in byte order.
    async fn list(&self, folder: &str, after: Option<&str>) -> Result<Vec<String>>;

    /// Returns an object; `None` if there is none with this key.
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>>;

    /// Writes an object unless there is one with this key. Returns whether it was written: of several concurrent writers, only one
    /// gets `true`. A write whose answer was lost may return `false` when it is repeated.
    async fn create(&self, key: &str, body: Vec<u8>) -> Result<bool>;
}

pub(crate) fn failed(operation: &'static str, source: impl Into<BoxError>) -> Error {
    Error::Store { operation, source: source.into() }
}

#[cfg(any(test, feature = "object-store"))]
mod of_object_store {
    use std::sync::Arc;

    use async_trait::async_trait;
    use futures_util::TryStreamExt as _;
    use nameservice_model::{Error, Result};
    use nameservice_objects::object_store::{
        Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutOptions, path::Path,
    };

    use super::{Objects, READ, WRITE, failed};

    #[async_trait]
    impl Objects for Arc<dyn ObjectStore> {
        async fn list(&self, folder: &str, after: Option<&str>) -> Result<Vec<String>> {
            let (store, folder) = (self.as_ref(), path(READ, folder)?);
            let listed = match after {
                None => store.list(Some(&folder)),
                Some(key) => store.list_with_offset(Some(&folder), &path(READ, key)?),
            };
            let keys = listed.map_ok(|object| object.location.to_string());
            keys.try_collect().await.map_err(|error| unavailable(READ, error))
        }

        async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
            let found = match ObjectStoreExt::get(self.as_ref(), &path(READ, key)?).await {
                Ok(found) => found,
                Err(StoreError::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(unavailable(READ, error)),
            };
            Ok(Some(found.bytes().await.map_err(|error| unavailable(READ, error))?.into()))
        }

        async fn create(&self, key: &str, body: Vec<u8>) -> Result<bool> {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match self.put_opts(&path(WRITE, key)?, body.into(), options).await {
                Ok(_) => Ok(true),
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(false),
                Err(error) => Err(unavailable(WRITE, error)),
            }
        }
    }

    fn path(operation: &'static str, key: &str) -> Result<Path> {
        Path::parse(key).map_err(|error| failed(operation, error))
    }

    /// Converts an error of a store. A request that it rejects would be rejected again; other errors may be transient.
    fn unavailable(operation: &'static str, error: StoreError) -> Error {
        match error {
            StoreError::PermissionDenied { .. }
            | StoreError::Unauthenticated { .. }
            | StoreError::NotImplemented { .. }
            | StoreError::NotSupported { .. }
            | StoreError::InvalidPath { .. }
            | StoreError::NotFound { .. } => failed(operation, error),
            error => Error::Unavailable { operation, source: Some(error.into()) },
        }
    }
}
