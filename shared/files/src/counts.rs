//! The number of branches of a record, which is in another file than the branches.

use std::time::Duration;

use nameservice_model::{Address, Error, Result};
use tokio::time::{Instant, sleep};

use crate::{
    Files, codec, names,
    slot::{Slot, check_formats},
    storage::Written,
};

/// The warning about a count that is not that of the records.
pub(crate) const NOT_COUNTED: &str = "the branches of a record were not counted: run `nameservice doctor --fix`";
/// How many times a count is made again if another writer was faster.
const RECOUNTS: usize = 5;

impl Files {
    /// Sets the number of branches of a record to the number of records that were created from it.
    pub(crate) async fn recount(&self, address: &Address) -> Result<()> {
        let storage = &self.inner.storage;
        let key = names::main_key(address);
        let _guard = storage.lock(std::slice::from_ref(&key), self.inner.timeout).await?;
        self.recount_locked(address).await
    }

    /// Counts again, for a caller that holds the lock of the record.
    pub(crate) async fn recount_locked(&self, address: &Address) -> Result<()> {
        for _ in 0..RECOUNTS {
            let slot = self.slot(address).await?;
            let Some(stored) = &slot.stored else { return Ok(()) };
            check_formats(std::iter::once(stored))?;
            let mut after = stored.portable.clone();
            let branches = self.branches_of(address).await?;
            after.record.branches = branches;
            if after.record.branches == stored.portable.record.branches {
                return Ok(());
            }
            let bytes = codec::encode_main(Some(stored), &after);
            let key = names::main_key(address);
            if self.inner.storage.replace(&key, bytes, &slot.main.unwrap_or_default()).await? == Written::Done {
                return Ok(());
            }
            sleep(Duration::from_millis(20)).await;
        }
        let source = Some("another writer was faster".into());
        Err(Error::Unavailable { operation: "count branches", source })
    }

    /// Counts the branches of a record. Fails if a file that cannot be read may be of one: the stored number may be right.
    async fn branches_of(&self, address: &Address) -> Result<i64> {
        let found = self.referrers(address).await?;
        match found.unread {
            None => Ok(i64::try_from(found.branches.len()).unwrap_or(i64::MAX)),
            Some(key) => {
                let source = format!("{} cannot be read, and may be of a branch", self.inner.storage.describe(&key));
                Err(Error::Unavailable { operation: "count branches", source: Some(source.into()) })
            }
        }
    }

    /// Adds to the number of branches of a record. The number is in another file than the branch: if that cannot be
    /// written, the doctor finds and corrects it.
    pub(crate) async fn count_branch(&self, parent: &Address, by: i64, deadline: Instant) {
        let mut recount = false;
        let counted: Result<()> = loop {
            let written = match self.slot(parent).await {
                Ok(Slot { stored: Some(stored), main, .. }) => {
                    let mut after = stored.portable.clone();
                    after.record.branches = after.record.branches.saturating_add(by).max(0);
                    if recount {
                        // The first attempt may have been applied, so the branches are counted.
                        match self.branches_of(parent).await {
                            Ok(branches) => after.record.branches = branches,
                            Err(error) => break Err(error),
                        }
                    }
                    let bytes = codec::encode_main(Some(&stored), &after);
                    self.inner.storage.replace(&names::main_key(parent), bytes, &main.unwrap_or_default()).await
                }
                Ok(_) => break Ok(()),
                Err(error) => Err(error),
            };
            match written {
                Ok(Written::Done) => break Ok(()),
                Ok(Written::Overtaken) if Instant::now() < deadline => {}
                Err(Error::OutcomeUnknown { .. } | Error::Unavailable { .. }) if Instant::now() < deadline => {
                    recount = true;
                }
                Ok(Written::Overtaken) => {
                    break Err(Error::Unavailable { operation: "count a branch", source: None });
                }
                Err(error) => break Err(error),
            }
            sleep(Duration::from_millis(20)).await;
        };
        if let Err(error) = counted {
            let error = nameservice_model::chain(&error);
            tracing::warn!(%parent, by, error, "{NOT_COUNTED}");
        }
        self.inner.feed.look_again(self, parent).await;
    }
}
