//! Writes a record of the older place to the backend, once.

use futures_util::future::BoxFuture;
use nameservice_model::{
    Address, ChangedPart, ConcernKind, Config, Error, Index, Object, Record, RecordKind, Result, Status, StatusPayload,
    chain,
};
use serde_json::Value;

use super::LazyBackend;
use crate::{
    bring::{self, Brought},
    judge::{Difference, Verdict, judge},
    order::needed,
    pending::{PENDING, is_pending, is_unfinished, without_mark},
};

/// How often a record is read again while others take it over.
const ATTEMPTS: usize = 16;
/// The longest chain of dependencies between records.
const MAX_DEPTH: usize = 64;

/// Returns what is written first: identity, head, and a config with the mark.
fn marked(record: &Record, place: &str) -> Record {
    let mut config = match &record.config.payload {
        Some(Value::Object(config)) => config.clone(),
        _ => Object::new(),
    };
    config.insert(PENDING.to_owned(), Value::String(place.to_owned()));
    // The actual config is written last, with the next `v`. For a retracted record, this config stays.
    let v = if record.retracted { record.config.v } else { record.config.v - 1 };
    Record {
        retracted: false,
        protected: false,
        index: Index::unborn(),
        status: Status::new(1, StatusPayload::state(StatusPayload::READY)),
        config: Config::new(v.max(1), Value::Object(config)),
        ..record.clone()
    }
}

impl LazyBackend {
    /// Takes over a record: returns once the backend has everything of it. Does nothing for a record that neither place
    /// has.
    pub(super) async fn claim(&self, address: &Address) -> Result<()> {
        self.claimed(address.clone(), 0).await
    }

    /// The recursive part of [`Self::claim`], as a record may need others. The future is boxed because of that.
    fn claimed(&self, address: Address, depth: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.is_settled(&address) {
                return Ok(());
            }
            for _ in 0..ATTEMPTS {
                let current = self.names.lookup(&address).await?;
                let older = match &current {
                    Some(record) if !is_unfinished(record) => {
                        self.settle(&address);
                        return Ok(());
                    }
                    // Everything else of it is there; the mark is removed when it is restored.
                    Some(record) if record.retracted => return Ok(()),
                    _ => self.older.find(&address).await?,
                };
                let brought = match (current, older) {
                    (None, None) => return Ok(()),
                    (Some(current), None) if !is_pending(&current) => {
                        self.settle(&address);
                        return Ok(());
                    }
                    (None, Some(older)) => {
                        self.claim_needed(&older, depth).await?;
                        bring::create(
                            &bring::Target::new(&*self.names).taking_foreign(true),
                            &marked(&older, self.older.place()),
                        )
                        .await
                    }
                    (Some(current), Some(older)) => self.finish(current, &older).await,
                    // The older place no longer has it: what was written so far is all there is.
                    (Some(current), None) => self.finish(current.clone(), &unmarked(current)).await,
                };
                match brought {
                    // The next iteration sees what is left to do.
                    Ok(Brought::Done | Brought::Again) => {}
                    Ok(Brought::Needs(missing)) => {
                        let missing: Vec<_> = missing.iter().map(Address::as_str).collect();
                        let missing = missing.join(", ");
                        return Err(self.rejected(format!(
                            "{address} cannot be taken over: it needs {missing}, which is missing or retracted"
                        )));
                    }
                    Ok(Brought::Rejected(reason) | Brought::Unprotected(reason)) => {
                        return Err(self.rejected(format!("{address} cannot be taken over: {reason}")));
                    }
                    // The stored record shows whether it was applied.
                    Err(Error::OutcomeUnknown { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let source = Some(format!("{address} is being taken over by others").into());
            Err(Error::Unavailable { operation: "take a record over", source })
        })
    }

    /// Writes what a record still lacks, and then removes the mark.
    async fn finish(&self, current: Record, older: &Record) -> Result<Brought> {
        // A retracted record takes no config: its mark stays until it is restored.
        let is_retracted = older.retracted;
        let mut goal = older.clone();
        if goal.config.payload.is_none() || goal.config.v <= current.config.v {
            // An empty config is the closest to none that can replace the mark.
            let payload = goal.config.payload.take().unwrap_or_else(|| Value::Object(Object::new()));
            goal.config = Config::new(current.config.v.saturating_add(1), payload);
        }
        let mut differences = judge(&goal, &current);
        if is_retracted {
            differences.retain(|difference| difference.part != ChangedPart::Concern(ConcernKind::Config));
        }
        let takes = |difference: &Difference| difference.verdict == Verdict::Older;
        bring::update(&bring::Target::new(&*self.names).taking_foreign(true), &goal, current, &differences, takes).await
    }

    /// Takes over the source of a branch and the dependencies of a graph source.
    async fn claim_needed(&self, record: &Record, depth: usize) -> Result<()> {
        if depth >= MAX_DEPTH {
            return Ok(());
        }
        for needed in needed(record) {
            self.claimed(needed, depth + 1).await?;
        }
        Ok(())
    }

    /// Takes over the records that refer to a record, so that the backend counts them. One that cannot be taken over
    /// cannot refer to it at the backend.
    pub(super) async fn claim_dependents(&self, address: &Address) -> Result<()> {
        for dependent in self.dependents_there(address).await? {
            match self.claim(&dependent).await {
                Err(error @ Error::Unsupported { .. }) => {
                    tracing::warn!(error = chain(&error), "a record that depends on another is not taken over");
                }
                claimed => claimed?,
            }
        }
        Ok(())
    }

    /// Returns the records of the older place that refer to a record.
    pub(super) async fn dependents_there(&self, address: &Address) -> Result<Vec<Address>> {
        let entries = self.older.list_now().await?;
        let refers = entries.values().filter(|entry| {
            let other = &entry.summary.address;
            let is_branch = entry.summary.kind == RecordKind::Ledger
                && other.name() == address.name()
                && entry.source_branch.as_deref() == Some(address.branch());
            let depends = |text: &String| Address::parse(text).is_ok_and(|target| target == *address);
            other != address && (is_branch || entry.summary.dependencies.iter().any(depends))
        });
        Ok(refers.map(|entry| entry.summary.address.clone()).collect())
    }

    /// Removes the mark of a record that is live again.
    pub(super) async fn restored(&self, address: &Address) -> Result<()> {
        for _ in 0..ATTEMPTS {
            match self.names.lookup(address).await? {
                Some(current) if is_pending(&current) && !current.retracted => {
                    match self.finish(current.clone(), &unmarked(current)).await {
                        Ok(_) | Err(Error::OutcomeUnknown { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }
}

/// Returns the record as it should be once nothing is left to take over.
fn unmarked(current: Record) -> Record {
    let mut record = without_mark(current);
    record.config.v = record.config.v.saturating_add(1);
    record
}
