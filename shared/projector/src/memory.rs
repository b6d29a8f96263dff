use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use async_trait::async_trait;
use nameservice_model::{Address, Result};
use tokio::{sync::watch, time::Instant};

use crate::{Checkpoint, Over, Row, RowWrite, Rows};

/// How long the version of a removed row is kept: longer than a rebuild takes.
const REMOVED_FOR: Duration = Duration::from_secs(3600);
/// How many outdated rows are returned at a time.
const OUTDATED: usize = 1_000;

/// Rows in the memory of this process.
#[derive(Debug)]
pub struct MemoryRows<R> {
    table: RwLock<Table<R>>,
    /// The position of the checkpoint, for tasks that wait for it; `None` before the first.
    moved: watch::Sender<Option<u64>>,
}

#[derive(Debug)]
struct Table<R> {
    rows: BTreeMap<Address, Stored<R>>,
    /// By index and value: the records that have it.
    indexes: BTreeMap<(&'static str, String), BTreeSet<Address>>,
    /// The removed rows with the time of removal and version, oldest first.
    removed: VecDeque<(Instant, Address, u64)>,
    checkpoint: Option<Checkpoint>,
}

#[derive(Debug)]
struct Stored<R> {
    version: u64,
    row: Option<Arc<R>>,
}

impl<R> Default for MemoryRows<R> {
    fn default() -> Self {
        let table =
            Table { rows: BTreeMap::new(), indexes: BTreeMap::new(), removed: VecDeque::new(), checkpoint: None };
        Self { table: RwLock::new(table), moved: watch::Sender::new(None) }
    }
}

impl<R: Row> MemoryRows<R> {
    /// Returns empty rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the row of a record.
    pub fn get(&self, address: &Address) -> Option<Arc<R>> {
        self.read().rows.get(address)?.row.clone()
    }

    /// Returns every row with its version, by address.
    pub fn all(&self) -> Vec<(Address, u64, Arc<R>)> {
        let table = self.read();
        let rows = table.rows.iter();
        rows.filter_map(|(address, stored)| Some((address.clone(), stored.version, stored.row.clone()?))).collect()
    }

    /// Returns the rows that an index has under a value, whose addresses begin with `prefix`, follow `after` and are requested:
    /// at most `limit`, by address, and whether there are more.
    pub fn page(
        &self,
        (index, value): (&'static str, &str),
        prefix: &str,
        after: Option<&Address>,
        limit: usize,
        wanted: impl Fn(&Address) -> bool,
    ) -> (Vec<(Address, Arc<R>)>, bool) {
        let table = self.read();
        let Some(addresses) = table.indexes.get(&(index, value.to_owned())) else { return (Vec::new(), false) };
        let first = Address::stored(prefix);
        let from = match after {
            Some(after) if *after >= first => Bound::Excluded(after.clone()),
            _ => Bound::Included(first),
        };
        let addresses = addresses.range((from, Bound::Unbounded));
        let mut rows = addresses
            .take_while(|address| address.as_str().starts_with(prefix))
            .filter(|address| wanted(address))
            .filter_map(|address| Some((address.clone(), table.rows.get(address)?.row.clone()?)));
        let page: Vec<_> = rows.by_ref().take(limit).collect();
        let has_more = page.len() == limit && rows.next().is_some();
        (page, has_more)
    }

    /// Waits until everything up to a position of the feed is in the rows.
    pub async fn reached(&self, position: u64) {
        // Cannot fail, since the sender is kept in `self`.
        let _ = self.moved.subscribe().wait_for(|here| here.is_some_and(|here| here >= position)).await;
    }

    fn read(&self) -> RwLockReadGuard<'_, Table<R>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Table<R>> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Row> Table<R> {
    fn put(&mut self, write: RowWrite<R>, over: Over) {
        let RowWrite { address, version, row } = write;
        let before = self.rows.get(&address);
        let is_newer = before.is_none_or(|before| match over {
            Over::Older => before.version < version,
            Over::SameOrOlder => before.version <= version,
        });
        if !is_newer {
            return;
        }
        if let Some(before) = before.and_then(|before| before.row.clone()) {
            for key in before.keys() {
                if let Some(addresses) = self.indexes.get_mut(&key) {
                    addresses.remove(&address);
                    if addresses.is_empty() {
                        self.indexes.remove(&key);
                    }
                }
            }
        }
        match &row {
            Some(row) => {
                for key in row.keys() {
                    self.indexes.entry(key).or_default().insert(address.clone());
                }
            }
            None => self.removed.push_back((Instant::now(), address.clone(), version)),
        }
        self.rows.insert(address, Stored { version, row: row.map(Arc::new) });
    }

    /// Forgets rows that were removed long ago.
    fn forget(&mut self) {
        while let Some((_, address, version)) = self.removed.front().filter(|(at, ..)| at.elapsed() > REMOVED_FOR) {
            if self.rows.get(address).is_some_and(|stored| stored.row.is_none() && stored.version == *version) {
                self.rows.remove(address);
            }
            self.removed.pop_front();
        }
    }
}

#[async_trait]
impl<R: Row> Rows<R> for MemoryRows<R> {
    async fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        Ok(self.read().checkpoint)
    }

    async fn advance(&self, checkpoint: &Checkpoint) -> Result<()> {
        let mut table = self.change();
        if table.checkpoint.is_none_or(|before| before.position < checkpoint.position) {
            table.checkpoint = Some(*checkpoint);
            self.moved.send_replace(Some(checkpoint.position));
        }
        table.forget();
        Ok(())
    }

    async fn write(&self, writes: Vec<RowWrite<R>>, over: Over) -> Result<()> {
        let mut table = self.change();
        writes.into_iter().for_each(|write| table.put(write, over));
        Ok(())
    }

    async fn older_than(&self, version: u64) -> Result<Vec<Address>> {
        let table = self.read();
        let older = table.rows.iter().filter(|(_, stored)| stored.row.is_some() && stored.version < version);
        Ok(older.map(|(address, _)| address.clone()).take(OUTDATED).collect())
    }

    async fn clear(&self) -> Result<()> {
        let mut table = self.change();
        table.rows.clear();
        table.indexes.clear();
        table.removed.clear();
        table.checkpoint = None;
        self.moved.send_replace(None);
        Ok(())
    }
}
