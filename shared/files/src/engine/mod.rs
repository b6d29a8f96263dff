//! The attempts of a write to records in files.

mod writes;

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures_util::future::{join, try_join_all};
use jiff::Timestamp;
use nameservice_embedded::state::{Command, Now, State};
use nameservice_model::{
    Address, BranchCreated, Capability, Error, Leased, Purged, Record, Result, Written as Outcome,
};
use tokio::time::{Instant, sleep, timeout};

use self::writes::Removed;
use crate::{
    Files,
    codec::Stored,
    counts::NOT_COUNTED,
    names,
    outcomes::{is_applied, judged},
    plan::Plan,
    slot::check_formats,
    storage::{Written, failed},
};

/// How long beyond the timeout of its operation a write may take before its caller gets an error. The write continues.
const GRACE: Duration = Duration::from_secs(5);
/// The place of the index among the remembered calls of a record.
const INDEX: usize = 1;

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
                // An earlier attempt may have been cut off before the lines that contradict it were removed.
                if plan.resets
                    && is_applied(&outcome)
                    && let Some(head) = after.as_ref().and_then(|after| after.record.head.as_ref())
                {
                    self.clear_commits_again(address, head).await;
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
                let reset_to = after.as_ref().filter(|_| plan.resets).and_then(|after| after.record.head.clone());
                if let Some(head) = &reset_to {
                    self.clear_commits(address, head).await?;
                }
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
                if let Some(head) = &reset_to {
                    self.clear_commits_again(address, head).await;
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
