//! The heads between two looks at a record, from Fluree's commit log.

use std::sync::atomic::Ordering;

use nameservice_embedded::state::Portable;
use nameservice_model::{Address, ContentId, Head, Index};
use tokio::task::spawn_blocking;

use super::Following;
use crate::{
    Files,
    commit_log::{self, Line},
    names,
};

/// How much of the end of a commit log is read, in bytes: about 3,000 commits.
const LOG_TAIL: u64 = 256 * 1024;

impl Following {
    /// Returns the record at each head that Fluree has published since the record was last seen, up to the current one, as far as
    /// the commit log has them.
    pub(super) async fn steps(&self, files: &Files, address: &Address, now: &Portable) -> Vec<Portable> {
        let Some(directory) = files.inner.feed.watched.clone() else { return Vec::new() };
        let Some(head) = now.record.head.clone().filter(|_| !now.record.retracted) else { return Vec::new() };
        let before = self.log.view().state().portable(address);
        let before = before.filter(|before| before.record.created_at == now.record.created_at);
        // What is there at the beginning has no history.
        if before.is_none() && !self.is_begun.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let older = before.as_ref().and_then(|before| before.record.head.as_ref()).map_or(0, |head| head.v);
        if head.v <= older.saturating_add(1) {
            return Vec::new();
        }
        let key = names::commits_key(address);
        let tail = match spawn_blocking(move || directory.tail_now(&key, LOG_TAIL)).await {
            Ok(Ok(tail)) => tail,
            // Then the change of the current head covers all of them.
            Ok(Err(error)) => {
                tracing::debug!(%address, %error, "Fluree's commit log could not be read");
                return Vec::new();
            }
            Err(_) => return Vec::new(),
        };
        let base = before.unwrap_or_else(|| {
            let mut base = now.clone();
            base.record.index = Index::unborn();
            base.calls = Default::default();
            base
        });
        let published = commit_log::between(&commit_log::lines(&tail), older, &head);
        let at = |line: Line| {
            let mut step = base.clone();
            step.record.head = Some(Head::new(line.t, ContentId::stored(line.cid)));
            step.record.updated_at = now.record.updated_at;
            step.calls[0].clear();
            step
        };
        published.into_iter().map(at).collect()
    }
}
