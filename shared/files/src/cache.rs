//! Records of the last listings, so that a list reads only what has changed since.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use crate::{codec::Stored, scan::Pair, storage::epoch_ms};

/// How many records are kept.
const CAPACITY: usize = 20_000;
/// A younger file may change without a new modification time, since file systems have coarse clocks.
const SETTLED_MS: i64 = 2_000;

/// Records that were read from files, with the stamps of the files.
#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<HashMap<String, Known>>);

#[derive(Debug)]
struct Known {
    main: String,
    index: Option<String>,
    stored: Arc<Stored>,
}

impl Cache {
    /// Returns what was read from these files, if they have not changed since.
    pub(crate) fn get(&self, pair: &Pair) -> Option<Stored> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(&pair.main.key)?;
        let index = pair.index.as_ref().map(|index| &index.stamp);
        let is_same = known.main == pair.main.stamp && known.index.as_ref() == index;
        is_same.then(|| Stored::clone(&known.stored))
    }

    /// Keeps what was read from files. Stamps that are `exact` differ whenever the files do; others only once the files are settled.
    pub(crate) fn put(&self, pair: &Pair, stored: &Stored, exact: bool) {
        let modified = pair.index.as_ref().map_or(i64::MIN, |index| index.modified).max(pair.main.modified);
        let is_settled = exact || epoch_ms(SystemTime::now()).saturating_sub(modified) > SETTLED_MS;
        if pair.main.stamp.is_empty() || !is_settled {
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CAPACITY && !known.contains_key(&pair.main.key) {
            known.clear();
        }
        let (main, index) = (pair.main.stamp.clone(), pair.index.as_ref().map(|index| index.stamp.clone()));
        known.insert(pair.main.key.clone(), Known { main, index, stored: Arc::new(stored.clone()) });
    }
}
