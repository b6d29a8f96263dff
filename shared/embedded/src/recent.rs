//! The last changes, in memory: nearly all readers of the feed are at its end.

use std::{
    collections::VecDeque,
    sync::{PoisonError, RwLock},
};

use crate::log::{Entry, HistoryRange};

/// The memory that an entry takes besides its body.
const ENTRY_BYTES: usize = 128;

/// The last changes that are durable, without a gap.
#[derive(Debug)]
pub(crate) struct Recent {
    entries: RwLock<Entries>,
    /// The most bytes that are kept.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Entries {
    queue: VecDeque<Entry>,
    bytes: usize,
}

impl Recent {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { entries: RwLock::default(), bytes }
    }

    /// Forgets all changes: what follows has other positions.
    pub(crate) fn clear(&self) {
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = Entries::default();
    }

    /// Adds what follows the last change. If there is no log, expired changes are removed too.
    pub(crate) fn append(&self, added: Vec<Entry>, expired_before: Option<i64>) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        for entry in added {
            entries.bytes += weight(&entry);
            entries.queue.push_back(entry);
        }
        let is_over = |entries: &Entries| {
            entries.bytes > self.bytes
                || expired_before.is_some_and(|time| entries.queue.front().is_some_and(|entry| entry.at < time))
        };
        while entries.queue.len() > 1 && is_over(&entries) {
            if let Some(entry) = entries.queue.pop_front() {
                entries.bytes -= weight(&entry);
            }
        }
    }

    /// Returns at most `limit` changes after a position; `None` if what follows the position is not in memory.
    pub(crate) fn after(&self, after: u64, limit: usize) -> Option<Vec<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let first = entries.queue.front()?.position;
        let skipped = usize::try_from((after + 1).checked_sub(first)?).ok()?;
        Some(entries.queue.iter().skip(skipped).take(limit).cloned().collect())
    }

    /// Returns the oldest position that was recorded at a time or later.
    pub(crate) fn oldest(&self, at: i64) -> Option<u64> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let place = entries.queue.partition_point(|entry| entry.at < at);
        entries.queue.get(place).map(|entry| entry.position)
    }

    /// Returns at most `limit` changes of one address in a range.
    pub(crate) fn of(&self, address: &str, range: HistoryRange, limit: usize) -> Vec<Entry> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let wanted = |entry: &&Entry| {
            entry.position > range.after && entry.position <= range.until && *entry.address == *address
        };
        match range.newest_first {
            true => entries.queue.iter().rev().filter(wanted).take(limit).cloned().collect(),
            false => entries.queue.iter().filter(wanted).take(limit).cloned().collect(),
        }
    }
}

fn weight(entry: &Entry) -> usize {
    ENTRY_BYTES + entry.body.len()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn entry(position: u64) -> Entry {
        Entry { position, at: position as i64 * 10, address: Arc::from("a:main"), body: Arc::from([0; 72]) }
    }

    fn positions(entries: Vec<Entry>) -> Vec<u64> {
        entries.into_iter().map(|entry| entry.position).collect()
    }

    #[test]
    fn the_newest_are_kept_and_served_from_any_position_among_them() {
        let recent = Recent::new(5 * 200);
        assert!(recent.after(0, 10).is_none());
        recent.append((1..=8).map(entry).collect(), None);
        assert!(recent.after(2, 10).is_none(), "what follows 2 is gone");
        assert_eq!(recent.after(3, 2).map(positions), Some(vec![4, 5]));
        assert_eq!(recent.after(8, 2).map(positions), Some(vec![]));
        assert_eq!((recent.oldest(55), recent.oldest(81)), (Some(6), None));
        recent.append(vec![entry(9)], Some(85));
        assert_eq!(recent.after(8, 9).map(positions), Some(vec![9]));
        assert!(recent.after(7, 9).is_none());
    }
}
