//! The writes of the one or two files of a record.

use std::time::Duration;

use bytes::Bytes;
use nameservice_embedded::state::Portable;
use nameservice_model::{Error, Index, RecordKind, Result, StatusPayload};
use tokio::time::{Instant, sleep};

use super::INDEX;
use crate::{
    Files,
    codec::{self, Stored},
    names,
    slot::Slot,
    storage::{Blob, Version, Written, failed},
};

/// The outcome of a removal.
pub(super) enum Removed {
    Done,
    Overtaken,
    /// The answer to the deletion was lost, and what is stored does not show whether it was applied. It is not repeated:
    /// what is stored may be another record.
    Unknown(Error),
}

/// What the second file of a write may replace.
enum Second<'a> {
    /// Whatever is there: the write sets the value.
    Any,
    /// No file, or one with these bytes.
    New(Option<&'a Bytes>),
}

impl Files {
    pub(super) async fn create(&self, slot: &Slot, after: &Portable, deadline: Instant) -> Result<Written> {
        let (storage, address) = (&self.inner.storage, &after.record.address);
        let index_key = names::index_key(address);
        if slot.main.is_none() {
            self.drop_commits(address).await?;
        }
        // An index file that an earlier record has left does not belong to this one.
        let mut blank = None;
        if let (Some(version), None) = (&slot.index, &slot.main) {
            if storage.locks() {
                storage.delete(&index_key).await?;
            } else {
                // A deletion cannot be conditional, and could be one of the index of a record that another has created.
                let mut unborn = after.clone();
                unborn.record.index = Index::unborn();
                unborn.calls[INDEX].clear();
                let bytes = codec::encode_index(None, &unborn);
                match storage.replace(&index_key, bytes.clone(), version).await {
                    Ok(Written::Done) => blank = Some(bytes),
                    // Nothing of this record is written yet.
                    Ok(Written::Overtaken) | Err(Error::OutcomeUnknown { .. }) => return Ok(Written::Overtaken),
                    Err(error) => return Err(error),
                }
            }
        }
        if storage.create(&names::main_key(address), codec::encode_main(None, after)).await? == Written::Overtaken {
            return Ok(Written::Overtaken);
        }
        if after.record.index != Index::unborn() {
            self.put_second(after, codec::encode_index(None, after), &Second::New(blank.as_ref()), deadline)
                .await
                .map_err(begun)?;
        }
        Ok(Written::Done)
    }

    pub(super) async fn replace(
        &self,
        slot: &Slot,
        before: &Stored,
        after: &Portable,
        deadline: Instant,
    ) -> Result<Written> {
        let (storage, address) = (&self.inner.storage, &after.record.address);
        let (main_key, index_key) = (names::main_key(address), names::index_key(address));
        let version = slot.main.clone().unwrap_or_default();
        let index = codec::index_differs(&before.portable, after).then(|| codec::encode_index(Some(before), after));
        if !codec::main_differs(&before.portable, after) {
            let Some(bytes) = index else { return Ok(Written::Done) };
            return match &slot.index {
                Some(version) => storage.replace(&index_key, bytes, version).await,
                None => storage.create(&index_key, bytes).await,
            };
        }
        let mut bytes = codec::encode_main(Some(before), after);
        let Some(index) = index else { return storage.replace(&main_key, bytes, &version).await };
        // A reset writes both files, with the index in each, since the higher `t` of the two counts.
        if after.record.kind == RecordKind::Ledger {
            bytes = codec::with_inline_index(&bytes, &after.record.index);
        }
        if storage.replace(&main_key, bytes, &version).await? == Written::Overtaken {
            return Ok(Written::Overtaken);
        }
        self.put_second(after, index, &Second::Any, deadline).await.map_err(begun)?;
        Ok(Written::Done)
    }

    pub(super) async fn remove(&self, slot: &Slot, before: &Stored, deadline: Instant) -> Result<Removed> {
        let (storage, address) = (&self.inner.storage, before.address());
        let (main_key, index_key) = (names::main_key(address), names::index_key(address));
        if storage.locks() {
            storage.delete(&main_key).await?;
            if slot.index.is_some() {
                storage.delete(&index_key).await.map_err(begun)?;
            }
            storage.delete(&names::commits_key(address)).await.map_err(begun)?;
            return Ok(Removed::Done);
        }
        // A deletion cannot be conditional. This write is: it fails if the record was written since it was read.
        let mut retracted = before.portable.clone();
        retracted.record.status.payload = Some(StatusPayload::state(StatusPayload::RETRACTED));
        let mark = codec::encode_main(Some(before), &retracted);
        let version = slot.main.clone().unwrap_or_default();
        if storage.replace(&main_key, mark.clone(), &version).await? == Written::Overtaken {
            return Ok(Removed::Overtaken);
        }
        // The index first: while the main file is there, nobody creates another record, whose index it could be.
        if let Some(version) = &slot.index {
            let there = self.delete(&index_key, deadline, |there| there.version == *version).await.map_err(begun)?;
            if there.is_some() {
                let source = "the index was written meanwhile";
                return Ok(Removed::Unknown(begun(failed("purge a record", source))));
            }
        }
        match self.delete(&main_key, deadline, |there| there.content.bytes == mark).await {
            Ok(None) => Ok(Removed::Done),
            Ok(Some(there)) if is_of_another_life(&there, before) => Ok(Removed::Done),
            Ok(Some(_)) => {
                let source = "something else is stored since, and it is unknown what it has replaced";
                Ok(Removed::Unknown(begun(failed("purge a record", source))))
            }
            Err(error @ Error::OutcomeUnknown { .. }) => Ok(Removed::Unknown(error)),
            Err(error) => Err(begun(error)),
        }
    }

    /// Deletes a file. If the answer is lost, the request is repeated only while the file is the one that was seen: what is
    /// there otherwise is returned, and stays.
    pub(super) async fn delete(
        &self,
        key: &str,
        deadline: Instant,
        is_seen: impl Fn(&Blob) -> bool + Send + Sync,
    ) -> Result<Option<Blob>> {
        let storage = &self.inner.storage;
        loop {
            let lost = match storage.delete(key).await {
                Ok(()) => return Ok(None),
                Err(error @ Error::OutcomeUnknown { .. }) if !storage.locks() => error,
                Err(error) => return Err(error),
            };
            loop {
                if Instant::now() >= deadline {
                    return Err(lost);
                }
                sleep(Duration::from_millis(20)).await;
                match storage.read(key).await {
                    Ok(None) => return Ok(None),
                    Ok(Some(there)) if is_seen(&there) => break,
                    Ok(there) => return Ok(there),
                    Err(Error::Unavailable { .. }) => {}
                    Err(_) => return Err(lost),
                }
            }
        }
    }

    /// Writes the index file of a write whose main file is written. What others have written there since an attempt whose
    /// answer was lost is never replaced: it may have replaced what this write has stored.
    async fn put_second(&self, after: &Portable, bytes: Bytes, replaces: &Second<'_>, deadline: Instant) -> Result<()> {
        let storage = &self.inner.storage;
        let key = names::index_key(&after.record.address);
        let unknown = |reason: &str| {
            let source = Some(format!("{} {reason}", storage.describe(&key)).into());
            Error::OutcomeUnknown { operation: "write the second file of a record", source }
        };
        // What an attempt would have replaced whose answer was lost.
        let mut lost: Option<Option<Version>> = None;
        loop {
            let written = match storage.read(&key).await {
                Ok(Some(there)) if there.content.bytes == bytes => return Ok(()),
                Ok(there) => {
                    let version = there.as_ref().map(|there| there.version.clone());
                    if lost.as_ref().is_some_and(|lost| *lost != version) {
                        let call = after.calls[INDEX].first();
                        let is_over_ours =
                            |there: &Blob| call.is_some_and(|call| codec::index_remembers(&there.content.bytes, call));
                        return match there.as_ref().is_some_and(is_over_ours) {
                            true => Ok(()),
                            false => Err(unknown("was written meanwhile")),
                        };
                    }
                    if let (Second::New(blank), Some(there)) = (replaces, &there)
                        && *blank != Some(&there.content.bytes)
                    {
                        return Err(unknown("was written meanwhile"));
                    }
                    let written = match &version {
                        Some(version) => storage.replace(&key, bytes.clone(), version).await,
                        None => storage.create(&key, bytes.clone()).await,
                    };
                    if matches!(written, Err(Error::OutcomeUnknown { .. })) {
                        lost = Some(version);
                    }
                    written
                }
                Err(error) => Err(error),
            };
            match written {
                Ok(Written::Done) => return Ok(()),
                Ok(Written::Overtaken) | Err(Error::OutcomeUnknown { .. } | Error::Unavailable { .. })
                    if Instant::now() < deadline => {}
                Ok(Written::Overtaken) => return Err(unknown("could not be written")),
                Err(error) => return Err(error),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Whether a main file is certainly of a record that was created after this one was removed: it says when it was created.
fn is_of_another_life(there: &Blob, before: &Stored) -> bool {
    let created = Stored::decode(&there.content, None).ok().and_then(|there| there.portable.record.created_at);
    created.is_some() && created != before.portable.record.created_at
}

/// Returns the error of a write that has failed after its first file was written: something has changed.
fn begun(error: Error) -> Error {
    match error {
        error @ Error::OutcomeUnknown { .. } => error,
        error => Error::OutcomeUnknown { operation: "write the files of a record", source: Some(error.into()) },
    }
}
