//! One partition of the table: everything under one address.

use std::collections::{HashMap, VecDeque};

use nameservice_model::{Address, ConcernKind, RecordKind, Result};

use crate::{
    Store,
    expressions::Key,
    items::{self, Item, RecordItems},
    schema::*,
};

/// The most rows of a commit log that one transaction deletes, beside its check.
pub(super) const SWEPT_AT_ONCE: usize = 90;

/// The last write of a concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The record.
    pub address: Address,
    /// The concern.
    pub concern: ConcernKind,
    /// Its watermark.
    pub watermark: i64,
    /// The time of the write by the writer's clock, epoch milliseconds.
    pub at_ms: i64,
}

/// A row of Fluree's commit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoggedCommit {
    pub(super) sk: String,
    pub(super) cid: Option<String>,
}

impl LoggedCommit {
    pub(super) fn of(row: &Item) -> Self {
        Self { sk: items::sk(row).to_owned(), cid: items::text(row, ATTR_COMMIT_CID).map(str::to_owned) }
    }

    /// Returns the `t` in its key; `None` if that is not a number.
    pub(super) fn t(&self) -> Option<i64> {
        self.sk.strip_prefix(SK_COMMIT_PREFIX)?.parse().ok()
    }
}

/// The items under one address.
#[derive(Clone, Debug, Default)]
pub(super) struct Partition {
    pub(super) pk: String,
    /// The items that make a record.
    pub(super) items: RecordItems,
    /// The back references, in the order of their sort keys.
    pub(super) backrefs: Vec<Item>,
    /// The last rows of the commit log: as many as are deleted together.
    pub(super) commits: VecDeque<LoggedCommit>,
}

/// The kind of a partition.
pub(super) enum RecordState<'a> {
    /// A record.
    Record(&'a Item, RecordKind),
    /// A meta item of an unknown kind.
    UnknownKind,
    /// No record, with a leftover meta item if there is one.
    NoRecord(Option<&'a Item>),
}

impl Partition {
    pub(super) fn address(&self) -> Address {
        Address::stored(self.pk.as_str())
    }

    pub(super) fn record(&self) -> Option<(&Item, RecordKind)> {
        self.items.meta()
    }

    pub(super) fn record_state(&self) -> RecordState<'_> {
        match (self.record(), self.items.items.get(SK_META)) {
            (Some((meta, kind)), _) => RecordState::Record(meta, kind),
            (None, Some(meta)) if meta.contains_key(ATTR_KIND) => RecordState::UnknownKind,
            (None, meta) => RecordState::NoRecord(meta),
        }
    }

    /// Returns whether a diagnosis of one also holds for the other. The values of concerns may differ: they change all
    /// the time, and affect only the diagnosis of their own item.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let marks = |partition: &Self| {
            let marks = partition.items.items.iter().map(|(sk, item)| (sk.clone(), items::flag(item, ATTR_RETRACTED)));
            marks.collect::<Vec<_>>()
        };
        self.items.items.get(SK_META) == other.items.items.get(SK_META)
            && self.backrefs == other.backrefs
            && marks(self) == marks(other)
            && (self.record().is_some() || self.items.items == other.items.items)
    }

    /// Returns the last writes of its concerns that have data.
    pub(super) fn written(&self) -> impl Iterator<Item = Written> + '_ {
        let concerns = self.record().map_or(&[] as &[ConcernKind], |(_, kind)| concerns_of(kind));
        concerns.iter().filter_map(|concern| {
            let item = self.items.concern(*concern)?;
            Some(Written {
                address: self.address(),
                concern: *concern,
                watermark: items::integer(item, watermark_of(*concern)).filter(|watermark| *watermark > 0)?,
                at_ms: items::integer(item, ATTR_UPDATED_AT_MS)?,
            })
        })
    }

    fn push(&mut self, item: Item) {
        let sk = items::sk(&item);
        if sk.starts_with(SK_COMMIT_PREFIX) {
            if self.commits.len() == SWEPT_AT_ONCE {
                self.commits.pop_front();
            }
            self.commits.push_back(LoggedCommit::of(&item));
        } else if sk.starts_with(SK_BACKREF_PREFIX) {
            self.backrefs.push(item);
        } else if sk >= SK_FIRST_OF_RECORD {
            self.items.items.insert(sk.to_owned(), item);
        }
    }
}

/// Reads a partition: the end of its commit log, its record, and its back references.
///
/// The log is read first: Fluree moves the head before it writes the row, so the head of every row that was read is
/// seen too.
pub(super) async fn read(store: &Store, operation: &'static str, pk: &str) -> Result<Partition> {
    let address = Address::stored(pk);
    let request = store
        .partition_query(&address, "begins_with(#sk, :from)", SK_COMMIT_PREFIX)
        .scan_index_forward(false)
        .limit(i32::try_from(SWEPT_AT_ONCE).unwrap_or(i32::MAX));
    let log = store.query_page(operation, &request, None).await?.items;
    let commits = log.iter().rev().map(LoggedCommit::of).collect();
    let items = store.read_record(operation, &address).await?;
    let backrefs = store.query_partition(operation, &address, "begins_with(#sk, :from)", SK_BACKREF_PREFIX).await?;
    Ok(Partition { pk: pk.to_owned(), items, backrefs, commits })
}

/// Groups the items of a scan by partition, in the order of the scan.
#[derive(Default)]
pub(super) struct Grouping {
    current: Option<Partition>,
}

impl Grouping {
    /// Adds the next item. Returns the previous partition if this item starts another.
    pub(super) fn push(&mut self, item: Item) -> Option<Partition> {
        let begun = self.current.as_ref().is_some_and(|current| current.pk == items::pk(&item));
        let done = if begun { None } else { self.finish() };
        let new = || Partition { pk: items::pk(&item).to_owned(), ..Partition::default() };
        let mut current = self.current.take().unwrap_or_else(new);
        current.push(item);
        self.current = Some(current);
        done
    }

    /// Returns the last partition.
    pub(super) fn finish(&mut self) -> Option<Partition> {
        self.current.take()
    }
}

/// Items of other partitions, by key.
pub(super) struct Related(pub(super) HashMap<Key, Item>);

impl Related {
    pub(super) fn has(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the meta item of a record; `None` if there is none.
    pub(super) fn record(&self, pk: impl ToString) -> Option<&Item> {
        self.0.get(&Key::meta(pk)).filter(|meta| items::kind(meta).is_some())
    }

    /// Returns whether a meta item of any kind, known or not, occupies the address.
    pub(super) fn is_taken(&self, pk: impl ToString) -> bool {
        self.0.get(&Key::meta(pk)).is_some_and(|meta| meta.contains_key(ATTR_KIND))
    }
}
