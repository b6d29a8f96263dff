//! Finds out whether a store compares: whether it accepts a conditional write only if what the write replaces is still stored.
//!
//! Some stores that speak S3 answer conditional writes as if they had no condition. There every writer is told that its write
//! was applied, and all but the last are lost.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::join;
use nameservice_model::{Capability, Error, Result, chain};
use object_store::{Error as StoreError, ObjectStoreExt as _, PutMode, UpdateVersion, path::Path};
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::{Answer, Bucket, Failed, WRITE};
use crate::{
    names,
    storage::{Blob, Storage as _, Version, failed},
};

/// Contents of equal length: an ETag that is made of time and length does not tell them apart.
const CONTENTS: [&str; 5] = ["1", "2", "3", "4", "5"];

/// What a store does wrong.
type Flaw = &'static str;

/// What this process has found out about a store.
#[derive(Debug, Default)]
pub(super) struct Compares {
    /// Set once the store has been seen to compare.
    seen: OnceCell<()>,
    /// How many looks have failed, and the error of the last.
    failures: Mutex<(u64, Option<Error>)>,
}

impl Compares {
    fn failures(&self) -> MutexGuard<'_, (u64, Option<Error>)> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error of a look that has failed since there were this many.
    fn failed_since(&self, before: u64) -> Option<Error> {
        let failures = self.failures();
        failures.1.as_ref().filter(|_| failures.0 > before).map(again)
    }

    fn note(&self, error: &Error) {
        let mut failures = self.failures();
        *failures = (failures.0 + 1, Some(again(error)));
    }
}

/// Returns the error of a look for another writer.
fn again(error: &Error) -> Error {
    match error {
        Error::Unsupported { capability, reason } => {
            Error::Unsupported { capability: *capability, reason: reason.clone() }
        }
        Error::Unavailable { source, .. } => {
            let source = source.as_ref().map(|source| chain(&**source).into());
            Error::Unavailable { operation: WRITE, source }
        }
        Error::Store { source, .. } => failed(WRITE, chain(&**source)),
        error => failed(WRITE, chain(error)),
    }
}

impl Bucket {
    /// Tries the store before the first write. Writers that wait for a look share its result: if each looked again after one that
    /// has failed, they would wait for all those before them.
    pub(super) async fn ensure_it_compares(&self) -> Result<()> {
        if self.compares.seen.initialized() {
            return Ok(());
        }
        let before = self.compares.failures().0;
        let look = || async move {
            if let Some(error) = self.compares.failed_since(before) {
                return Err(error);
            }
            let found = self.check().await;
            if let Err(error) = &found {
                self.compares.note(error);
            }
            found
        };
        self.compares.seen.get_or_try_init(look).await?;
        Ok(())
    }

    /// Tries an object of a name of its own, in at most eight requests, and rejects a store that does not compare.
    async fn check(&self) -> Result<()> {
        // Neither Fluree nor a list takes it for a record, and the doctor takes it for what it is if it is left.
        let key = format!("{}/.compares.{}.tmp", names::ROOT, Uuid::new_v4());
        let path = self.path(&key)?;
        let found = self.flaw(&key, &path).await;
        // A store that does not answer would keep the caller waiting once more.
        if !matches!(found, Err(Error::Unavailable { .. }))
            && let Err(error) = self.writes.delete(&path).await
            && !matches!(error, StoreError::NotFound { .. })
        {
            tracing::warn!(%error, "{} could not be deleted: `nameservice doctor --fix` does that", self.describe(&key));
        }
        match found? {
            None => Ok(()),
            Some(flaw) => Err(Error::Unsupported {
                capability: Capability::ConditionalWrites,
                reason: format!(
                    "the store of {} {flaw}, so that concurrent writers would lose writes: use one with conditional writes \
                     (If-Match and If-None-Match, as S3 has them), or a directory",
                    self.shown
                ),
            }),
        }
    }

    async fn flaw(&self, key: &str, path: &Path) -> Result<Option<Flaw>> {
        const REJECTS_ALL: Flaw = "rejects the creation of an object that does not exist (If-None-Match)";
        const NOT_STORED: Flaw = "does not return what it has accepted";
        let [one, two, three, four, five] = CONTENTS;
        // At the same time, since a store may compare first, and write later.
        let (first, second) =
            join(self.accepts(path, one, PutMode::Create), self.accepts(path, two, PutMode::Create)).await;
        let created = match (first?, second?) {
            (Some(true), Some(true)) => return Ok(Some("accepts two creations of one object (If-None-Match)")),
            (Some(true), Some(false)) => one,
            (Some(false), Some(true)) => two,
            // Each may have been in the way of the other.
            (Some(false), Some(false)) => match self.accepts(path, three, PutMode::Create).await? {
                Some(true) => three,
                _ => return Ok(Some(REJECTS_ALL)),
            },
            _ => return Ok(Some("has no conditional writes (If-None-Match)")),
        };
        let Some(before) = self.version_of(key, created).await? else { return Ok(Some(NOT_STORED)) };
        if before.tag.is_none() {
            return Ok(Some("returns no ETag"));
        }
        let replacement =
            || PutMode::Update(UpdateVersion { e_tag: before.tag.clone(), version: before.generation.clone() });
        match self.accepts(path, four, replacement()).await? {
            Some(true) => {}
            Some(false) => return Ok(Some("rejects a replacement of the state that it has returned (If-Match)")),
            None => return Ok(Some("has no conditional writes (If-Match)")),
        }
        let Some(after) = self.version_of(key, four).await? else { return Ok(Some(NOT_STORED)) };
        if after == before {
            return Ok(Some("returns one ETag for different contents"));
        }
        match self.accepts(path, five, replacement()).await? {
            Some(false) => Ok(None),
            _ => Ok(Some("accepts a replacement of a state that is no longer stored (If-Match)")),
        }
    }

    /// Writes a content, and returns whether the store accepts that; `None` if it has no such writes.
    async fn accepts(&self, path: &Path, content: &'static str, mode: PutMode) -> Result<Option<bool>> {
        let Failed { error, answer } = match self.send(path, Bytes::from_static(content.as_bytes()), mode).await {
            Ok(()) => return Ok(Some(true)),
            Err(failed) => failed,
        };
        match (&error, answer) {
            (
                StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } | StoreError::NotModified { .. },
                _,
            )
            | (_, Some(Answer::Status(409 | 412))) => Ok(Some(false)),
            (StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }, _)
            | (_, Some(Answer::Status(501))) => Ok(None),
            // It was accepted, and the answer lacks what the client expects: an ETag.
            (_, Some(Answer::Status(200..=299))) => Ok(Some(true)),
            // Only the probe may have been written, and nothing for the caller.
            _ => Err(match (Failed { error, answer }).into_error() {
                Error::OutcomeUnknown { source, .. } => Error::Unavailable { operation: WRITE, source },
                error => error,
            }),
        }
    }

    /// Returns the state of the object; `None` if it does not have this content.
    async fn version_of(&self, key: &str, content: &str) -> Result<Option<Version>> {
        let read = self.read(key).await?;
        let read = read.filter(|Blob { content: read, .. }| read.bytes == content.as_bytes());
        Ok(read.map(|read| read.version))
    }
}
