//! The states from which pages of snapshots are read: a snapshot stays at the position of its first page.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::state::State;

/// How many states are kept.
const KEPT: usize = 8;
/// How long a state is kept without a read of a page. It shares with later states what has not changed since; the rest
/// costs memory.
const UNUSED: Duration = Duration::from_secs(60);

/// States by their positions, and when they were last used.
#[derive(Debug, Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<u64, (Instant, Arc<State>)>>);

impl Snapshots {
    /// Keeps the state of a snapshot that has more pages. If there are too many states, the oldest is dropped.
    pub(crate) fn keep(&self, state: Arc<State>) {
        let mut kept = self.kept();
        kept.insert(state.position(), (Instant::now(), state));
        while kept.len() > KEPT {
            kept.pop_first();
        }
    }

    /// Returns the state of a snapshot that began at a position: the first one kept from there on. `None` if it was
    /// dropped: then the next page is read from the current state, and readers catch up from the feed.
    pub(crate) fn at(&self, position: u64) -> Option<Arc<State>> {
        let mut kept = self.kept();
        let (_, (used, state)) = kept.range_mut(position..).next()?;
        *used = Instant::now();
        Some(state.clone())
    }

    /// Drops all states, because what follows is not a later state of the same nameservice.
    pub(crate) fn clear(&self) {
        self.kept().clear();
    }

    /// Drops states that were not used for a while.
    pub(crate) fn drop_unused(&self) {
        let mut kept = self.kept();
        if !kept.is_empty() {
            let now = Instant::now();
            kept.retain(|_, (used, _)| now.saturating_duration_since(*used) < UNUSED);
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (Instant, Arc<State>)>> {
        // A map of states is consistent even if a thread panicked while it held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
