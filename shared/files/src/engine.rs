//! Reads and writes of records in files.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use bytes::Bytes;
use futures_util::future::{join, try_join_all};
use jiff::Timestamp;
use nameservice_embedded::state::{Command, Now, Portable, State};
use nameservice_model::{
    Address, BranchCreated, Capability, Error, Index, Leased, Purged, Record, RecordKind, Result, StatusPayload,
    Written as Outcome,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    Files,
    codec::{self, Stored},
    counts::NOT_COUNTED,
    names,
    outcomes::{is_applied, judged},
    plan::Plan,
    storage::{Blob, Version, Written, failed},
};

/// How long beyond the timeout of its operation a write may take before its caller gets an error. The write continues.
const GRACE: Duration = Duration::from_secs(5);
const READ: &str = "read a record";
/// The place of the index among the remembered calls of a record.
const INDEX: usize = 1;

/// What is stored for an address.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The record, if its files are those of this address.
    pub(crate) stored: Option<Stored>,
    /// The other record that the file belongs to, if it is not of this address.
    other: Option<Address>,
    pub(crate) main: Option<Version>,
    index: Option<Version>,
}

impl Slot {
    /// Whether neither a record is stored nor a file that a write of this address would remove.
    const fn is_empty(&self) -> bool {
        self.stored.is_none() && self.index.is_none()
    }
}

/// The outcome of a removal.
enum Removed {
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

/// The record that an attempt was decided on, by the time of its creation; `None` if there was none.
type Life = Option<Option<Timestamp>>;

enum Attempt {
    Done(Outcome),
    /// The stored record rejects the command with an error, before anything is written.
    Failed(Error),
    /// Another writer was faster.
    Overtaken,
}

impl Files {
    /// Reads a record; `None` if there is none.
    pub(crate) async fn load(&self, address: &Address) -> Result<Option<Stored>> {
        Ok(self.slot(address).await?.stored)
    }

    pub(crate) async fn slot(&self, address: &Address) -> Result<Slot> {
        let mut slot = self.read_slot(address).await?;
        if let Some(stored) = &mut slot.stored {
            self.count_dependents(&mut stored.portable.record).await;
        }
        Ok(slot)
    }

    /// Sets how many graph sources depend on a record, if the feed is followed: no file holds that number.
    pub(crate) async fn count_dependents(&self, record: &mut Record) {
        if let Some(dependents) = self.inner.feed.dependents(&record.address).await {
            record.dependents = dependents;
        }
    }

    async fn read_slot(&self, address: &Address) -> Result<Slot> {
        if !names::is_readable(address) {
            return Ok(Slot::default());
        }
        let storage = &self.inner.storage;
        let (main_key, index_key) = (names::main_key(address), names::index_key(address));
        let (main, index) = join(storage.read(&main_key), storage.read(&index_key)).await;
        let slot = self.decoded(address, main?, index?)?;
        // Two reads are not a snapshot: an index beyond the head belongs to a head that was pushed in between.
        let is_ahead = |stored: &Stored| {
            let record = &stored.portable.record;
            record.head.as_ref().is_some_and(|head| head.v < record.index.v)
        };
        if !slot.stored.as_ref().is_some_and(is_ahead) {
            return Ok(slot);
        }
        let index = storage.read(&index_key).await?;
        let main = storage.read(&main_key).await?;
        self.decoded(address, main, index)
    }

    fn decoded(&self, address: &Address, main: Option<Blob>, index: Option<Blob>) -> Result<Slot> {
        let versions =
            (main.as_ref().map(|main| main.version.clone()), index.as_ref().map(|index| index.version.clone()));
        let mut slot = Slot { main: versions.0, index: versions.1, ..Slot::default() };
        if let Some(main) = main {
            let stored =
                Stored::decode(&main.content, index.as_ref().map(|index| &index.content)).map_err(|error| {
                    let path = self.inner.storage.describe(&names::main_key(address));
                    failed(READ, format!("`{address}` in {path}: {error}"))
                })?;
            // Two addresses can have the same path: the address in the file decides.
            match stored.address() == address {
                true => slot.stored = Some(stored),
                false => slot.other = Some(stored.address().clone()),
            }
        }
        Ok(slot)
    }

    /// Applies a write and returns its outcome. The write is completed even if the caller no longer waits for it.
    pub(crate) async fn apply(&self, plan: Plan, command: Command) -> Result<Outcome> {
        let (files, operation) = (self.clone(), plan.operation);
        let done = tokio::spawn(async move { files.repeat(&plan, &command).await });
        let unknown = |source| Error::OutcomeUnknown { operation, source: Some(source) };
        match timeout(self.inner.timeout.saturating_add(GRACE), done).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(error)) => Err(unknown(error.into())),
            Err(error) => Err(unknown(error.into())),
        }
    }

    async fn repeat(&self, plan: &Plan, command: &Command) -> Result<Outcome> {
        let deadline = Instant::now() + self.inner.timeout;
        let backoff = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(5))
            .with_max_delay(Duration::from_millis(400))
            .with_jitter()
            .without_max_times();
        let mut delays = backoff.build();
        let mut lost: Option<Error> = None;
        let mut life: Life = None;
        loop {
            let before = lost.is_some().then_some(life);
            match self.attempt(plan, command, deadline, before, &mut life).await {
                Ok(Attempt::Done(outcome)) => return judged(plan, outcome, lost),
                // Another attempt would find the same.
                Ok(Attempt::Failed(error)) => return Err(lost.unwrap_or(error)),
                Ok(Attempt::Overtaken) => {}
                // The next attempt sees in the stored record whether this one was applied.
                Err(error @ Error::OutcomeUnknown { .. }) if !self.inner.storage.locks() => lost = Some(error),
                Err(Error::Unavailable { .. }) if lost.is_some() && Instant::now() < deadline => {}
                Err(error) => return Err(lost.unwrap_or(error)),
            }
            if Instant::now() >= deadline {
                let source = Some("other writers were faster each time".into());
                return Err(lost.unwrap_or(Error::Unavailable { operation: plan.operation, source }));
            }
            sleep(delays.next().unwrap_or_default()).await;
        }
    }

    /// Makes one attempt. `before` is the record that an earlier attempt was decided on, if its answer was lost.
    async fn attempt(
        &self,
        plan: &Plan,
        command: &Command,
        deadline: Instant,
        before: Option<Life>,
        life: &mut Life,
    ) -> Result<Attempt> {
        let storage = &self.inner.storage;
        let address = &plan.address;
        let parent = match plan.ends {
            true => self.load(address).await?.and_then(|stored| parent_of(&stored.portable.record)),
            false => plan.parent.clone(),
        };
        let guard = if storage.locks() && !self.is_pointless(plan).await? {
            let mut keys = vec![names::main_key(address), names::index_key(address)];
            keys.extend(parent.iter().map(names::main_key));
            Some(storage.lock(&keys, deadline.saturating_duration_since(Instant::now())).await?)
        } else {
            None
        };
        let others = parent.iter().chain(&plan.targets).filter(|other| *other != address);
        let (slot, others) = join(
            self.slot(address),
            try_join_all(others.map(|other| async move { Ok::<_, Error>((other, self.slot(other).await?)) })),
        )
        .await;
        let (mut slot, others) = (slot?, others?);
        // Another program has created it since: it is only written under the lock.
        if storage.locks() && guard.is_none() && !slot.is_empty() {
            return Ok(Attempt::Overtaken);
        }
        // It was created again since, from another source.
        if plan.ends
            && let Some(stored) = &slot.stored
            && parent_of(&stored.portable.record) != parent
        {
            return Ok(Attempt::Overtaken);
        }
        *life = slot.stored.as_ref().map(|stored| stored.portable.record.created_at);
        // The lost attempt may have written the record that was purged since. What is there now is another one.
        if let Some(Some(before)) = before
            && life.map_or(!plan.ends, |now| now != before)
        {
            let source = Some("the record was purged since".into());
            return Ok(Attempt::Failed(Error::OutcomeUnknown { operation: plan.operation, source }));
        }
        if slot.stored.is_none() && plan.creates {
            self.check_name(address, slot.other.as_ref())?;
        }
        if plan.removes
            && let Some(stored) = &mut slot.stored
        {
            let referrers = self.referrers(address).await?;
            stored.portable.record.dependents = i64::try_from(referrers.sources.len()).unwrap_or(i64::MAX);
            stored.portable.record.branches = i64::try_from(referrers.branches.len()).unwrap_or(i64::MAX);
        }
        let now = Now::from(self.now());
        if let (Some(holder), Some(stored)) = (&plan.holder, &slot.stored)
            && let Some(lease) = stored.foreign_lease(holder, now)
            && !stored.portable.record.retracted
        {
            return Ok(Attempt::Done(Outcome::Leased(Leased::Busy(lease))));
        }
        let mut state = State::new();
        for stored in slot.stored.iter().chain(others.iter().filter_map(|(_, slot)| slot.stored.as_ref())) {
            state.insert(&stored.portable);
        }
        let outcome = match state.apply(command, now).outcome {
            Ok(Some(outcome)) => outcome,
            Ok(None) => return Ok(Attempt::Failed(failed(plan.operation, "the command is not a write"))),
            Err(error) => return Ok(Attempt::Failed(error)),
        };
        let outcome = match (&slot.stored, state.portable(address)) {
            (None, None) => {
                // An index file that an interrupted purge has left is deleted now.
                if let Some(version) = &slot.index
                    && slot.main.is_none()
                    && matches!(outcome, Outcome::Purged(Purged::Unknown))
                {
                    self.delete(&names::index_key(address), deadline, |there| there.version == *version).await?;
                    Outcome::Purged(Purged::Purged)
                } else {
                    outcome
                }
            }
            (before, after) if before.as_ref().map(|before| &before.portable) == after.as_ref() => {
                if plan.both
                    && is_applied(&outcome)
                    && let Some(stored) = before
                    && lacks_index(stored, command)
                {
                    let source = "the head was written, and the index was not: repeat the request under another key";
                    let error = Error::OutcomeUnknown { operation: plan.operation, source: Some(source.into()) };
                    return Ok(Attempt::Failed(error));
                }
                // A branch that an earlier attempt has created may not have been counted.
                if let (Outcome::BranchCreated(BranchCreated::Created(_)), Some(parent)) = (&outcome, &parent)
                    && let Err(error) = self.recount_locked(parent).await
                {
                    let error = nameservice_model::chain(&error);
                    tracing::warn!(%parent, error, "{NOT_COUNTED}");
                }
                outcome
            }
            (before, after) => {
                let formers = before.iter().chain(others.iter().filter_map(|(_, slot)| slot.stored.as_ref()));
                check_formats(
                    formers.filter(|stored| stored.address() == address || parent.as_ref() == Some(stored.address())),
                )?;
                let written = match (before, &after) {
                    (None, Some(after)) => self.create(&slot, after, deadline).await?,
                    (Some(before), Some(after)) => self.replace(&slot, before, after, deadline).await?,
                    (Some(before), None) => match self.remove(&slot, before, deadline).await? {
                        Removed::Done => Written::Done,
                        Removed::Overtaken => Written::Overtaken,
                        Removed::Unknown(error) => return Ok(Attempt::Failed(error)),
                    },
                    (None, None) => Written::Done,
                };
                if written == Written::Overtaken {
                    return Ok(Attempt::Overtaken);
                }
                self.inner.feed.look_again(self, address).await;
                outcome
            }
        };
        if let Some(parent) = &parent
            && let Some((_, before)) = others.iter().find(|(other, _)| *other == parent)
            && let (Some(before), Some(after)) = (&before.stored, state.portable(parent))
            && after.record.branches != before.portable.record.branches
        {
            let by = after.record.branches - before.portable.record.branches;
            self.count_branch(parent, by, deadline).await;
        }
        Ok(Attempt::Done(outcome))
    }

    /// Whether there is nothing to write, so that no lock file is created.
    async fn is_pointless(&self, plan: &Plan) -> Result<bool> {
        let may_create = plan.creates && names::objection(&plan.address).is_none();
        Ok(!may_create && self.slot(&plan.address).await?.is_empty())
    }

    /// Rejects a name that cannot be a file.
    fn check_name(&self, address: &Address, other: Option<&Address>) -> Result<()> {
        let reason = match (names::objection(address), other) {
            (Some(reason), _) => reason,
            (None, Some(other)) => {
                let path = self.inner.storage.describe(&names::main_key(address));
                format!("its file {path} holds the record `{other}`")
            }
            (None, None) => return Ok(()),
        };
        let reason = format!("`{address}` cannot be a record here: {reason}");
        Err(Error::Unsupported { capability: Capability::AnyAddress, reason })
    }

    async fn create(&self, slot: &Slot, after: &Portable, deadline: Instant) -> Result<Written> {
        let (storage, address) = (&self.inner.storage, &after.record.address);
        let index_key = names::index_key(address);
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

    async fn replace(&self, slot: &Slot, before: &Stored, after: &Portable, deadline: Instant) -> Result<Written> {
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

    async fn remove(&self, slot: &Slot, before: &Stored, deadline: Instant) -> Result<Removed> {
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
    async fn delete(
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

/// Returns the record that counts this one among its branches.
fn parent_of(record: &Record) -> Option<Address> {
    let source = record.source_branch.as_deref()?;
    let parent = Address::stored(format!("{}:{source}", record.address.name()));
    Some(parent).filter(|parent| *parent != record.address)
}

/// Whether nothing shows that a write of both files, which the main file remembers, has written the index file: it was
/// interrupted between them, or others have written the index so often, or in a way, that the file has forgotten it.
/// Times of files do not decide: they are coarse, and an index that is newer may be one that was pushed after the interruption.
fn lacks_index(stored: &Stored, command: &Command) -> bool {
    let (calls, call) = (&stored.portable.calls, command.call());
    calls.iter().any(|calls| calls.contains(&call)) && !calls[INDEX].contains(&call)
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

/// Rejects writes to files in the format of an earlier version.
pub(crate) fn check_formats<'a>(mut written: impl Iterator<Item = &'a Stored>) -> Result<()> {
    match written.find_map(|stored| Some((stored.address(), stored.former?))) {
        None => Ok(()),
        Some((address, former)) => Err(Error::Unsupported {
            capability: Capability::FormerFormats,
            reason: format!(
                "`{address}` is stored in {}, which is read and never rewritten: migrate it first",
                former.describe()
            ),
        }),
    }
}
