//! The states that pages of snapshots are read from: a snapshot stays at the position where its first page was.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::state::State;

/// How many are kept.
const KEPT: usize = 8;
/// How long a state is kept that no page is read from. It shares with later ones what has not changed since; the rest is
/// memory.
const UNUSED: Duration = Duration::from_secs(60);

/// States by their positions, and when they were last used.
#[derive(Debug, Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<u64, (Instant, Arc<State>)>>);

impl Snapshots {
    /// Keeps the state of a snapshot that has more pages. The oldest of too many is dropped.
    pub(crate) fn keep(&self, state: Arc<State>) {
        let mut kept = self.kept();
        kept.insert(state.position(), (Instant::now(), state));
        while kept.len() > KEPT {
            kept.pop_first();
        }
    }

    /// The state of a snapshot that began at a position: the first that is kept from there on. `None` where it was
    /// dropped: then the next page is as new as it can be, and what was missed follows in the feed.
    pub(crate) fn at(&self, position: u64) -> Option<Arc<State>> {
        let mut kept = self.kept();
        let (_, (used, state)) = kept.range_mut(position..).next()?;
        *used = Instant::now();
        Some(state.clone())
    }

    /// Drops all: what follows is not a later state of the same nameservice.
    pub(crate) fn clear(&self) {
        self.kept().clear();
    }

    /// Drops what nobody has used for a while.
    pub(crate) fn drop_unused(&self) {
        let mut kept = self.kept();
        if !kept.is_empty() {
            let now = Instant::now();
            kept.retain(|_, (used, _)| now.saturating_duration_since(*used) < UNUSED);
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (Instant, Arc<State>)>> {
        // A map of states is whole whatever its holder did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
