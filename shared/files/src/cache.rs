//! Records of the last listings, so that a list reads only what has changed since.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use crate::{codec::Stored, scan::Pair, storage::epoch_ms};

/// How many records are kept.
const CAPACITY: usize = 20_000;
/// A younger file may change without a new modification time, since file systems have coarse clocks.
const SETTLED_MS: i64 = 2_000;

/// Whether files are so old at a time (epoch milliseconds) that their next change changes their stamps.
pub(crate) fn is_settled(pair: &Pair, now: i64) -> bool {
    let modified = pair.index.as_ref().map_or(i64::MIN, |index| index.modified).max(pair.main.modified);
    now.saturating_sub(modified) > SETTLED_MS
}

/// Records that were read from files, with the stamps of the files.
///
/// A full cache replaces a random record: a list reads all records in the same order, so that of more records than it
/// holds, the least recently read one would always be the next.
#[derive(Debug)]
pub(crate) struct Cache {
    capacity: usize,
    random: RandomState,
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    known: HashMap<String, Known>,
    /// Every key, each once.
    keys: Vec<String>,
}

#[derive(Debug)]
struct Known {
    main: String,
    index: Option<String>,
    stored: Arc<Stored>,
}

impl Default for Cache {
    fn default() -> Self {
        Self::of(CAPACITY)
    }
}

impl Cache {
    fn of(capacity: usize) -> Self {
        Self { capacity, random: RandomState::new(), records: Mutex::default() }
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what was read from these files, if they have not changed since.
    pub(crate) fn get(&self, pair: &Pair) -> Option<Stored> {
        let records = self.records();
        let known = records.known.get(&pair.main.key)?;
        let index = pair.index.as_ref().map(|index| &index.stamp);
        let is_same = known.main == pair.main.stamp && known.index.as_ref() == index;
        is_same.then(|| Stored::clone(&known.stored))
    }

    /// Keeps what was read from files. Stamps that are `exact` differ whenever the files do; others only once the files are settled.
    pub(crate) fn put(&self, pair: &Pair, stored: &Stored, exact: bool) {
        let is_settled = exact || is_settled(pair, epoch_ms(SystemTime::now()));
        if pair.main.stamp.is_empty() || !is_settled {
            return;
        }
        let (key, index) = (&pair.main.key, pair.index.as_ref().map(|index| index.stamp.clone()));
        let known = Known { main: pair.main.stamp.clone(), index, stored: Arc::new(stored.clone()) };
        let mut records = self.records();
        let Records { known: all, keys } = &mut *records;
        if all.insert(key.clone(), known).is_some() {
            return;
        }
        if keys.len() < self.capacity {
            keys.push(key.clone());
            return;
        }
        let place = self.random.hash_one(key) % (keys.len().max(1) as u64);
        if let Some(replaced) = usize::try_from(place).ok().and_then(|place| keys.get_mut(place)) {
            all.remove(&std::mem::replace(replaced, key.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{codec::Content, storage::Entry};

    #[test]
    fn a_full_cache_loses_a_record_for_each_new_one_and_not_all() {
        const CAPACITY: usize = 100;
        let bytes = include_bytes!("../../../tests/fixtures/fluree/ns@v2/unborn/main.json");
        let content = Content { bytes: bytes.as_slice().into(), modified: 0 };
        let stored = Stored::decode(&content, None).unwrap();
        let pair = |n: usize| Pair {
            main: Entry { key: format!("ns@v2/{n}/main.json"), modified: 0, stamp: "s".into(), is_empty: false },
            index: None,
        };
        let cache = Cache::of(CAPACITY);
        // Two lists of a quarter more records than it holds.
        for n in (0..CAPACITY * 5 / 4).chain(0..CAPACITY * 5 / 4) {
            cache.put(&pair(n), &stored, true);
            assert!(cache.get(&pair(n)).is_some(), "{n}");
            let records = cache.records();
            assert_eq!(records.known.len(), records.keys.len());
            assert!(records.known.len() <= CAPACITY);
        }
        let kept = (0..CAPACITY * 5 / 4).filter(|n| cache.get(&pair(*n)).is_some()).count();
        assert_eq!(kept, CAPACITY);
        // The same record again replaces itself.
        let before = cache.records().keys.clone();
        let any = before[0].clone();
        let again = Pair { main: Entry { key: any, modified: 0, stamp: "t".into(), is_empty: false }, index: None };
        cache.put(&again, &stored, true);
        assert_eq!(cache.records().keys, before);
    }
}
