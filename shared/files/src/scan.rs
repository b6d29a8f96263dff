//! Lists. Every file is read, since the format has no index.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use nameservice_model::{
    Address, Cursor, Error, Limit, ListQuery, Listed, Page, Record, RecordKind, Result, Status, Summary, Visible,
};

use crate::{
    Files,
    codec::Stored,
    names,
    storage::{Blob, Entry},
};

/// How many records are read at a time, and so are in memory, however many there are.
const CHUNK: usize = 512;
/// A page ends at about this many bytes, so that answers stay below 4 MiB.
const PAGE_BYTES: usize = 3 * 1024 * 1024;

/// What refers to a record.
#[derive(Debug, Default)]
pub(crate) struct Referrers {
    pub(crate) sources: Vec<Address>,
    pub(crate) branches: Vec<Address>,
    /// A file of a record of its name that cannot be read: it may be of another branch.
    pub(crate) unread: Option<String>,
}

/// A main file of a listing, and its index file's entry.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) main: Entry,
    pub(crate) index: Option<Entry>,
}

/// The content of a file, or why it cannot be read.
pub(crate) type Found = Result<Stored, String>;

/// Returns the main files of a listing, with their index files.
pub(crate) fn paired(entries: Vec<Entry>) -> Vec<Pair> {
    let (mains, others): (Vec<_>, Vec<_>) =
        entries.into_iter().filter(|entry| !entry.is_empty).partition(|entry| names::is_main(&entry.key));
    let mut indexes: BTreeMap<String, Entry> = others
        .into_iter()
        .filter(|entry| names::is_index(&entry.key))
        .map(|entry| (entry.key.clone(), entry))
        .collect();
    let pair = |main: Entry| Pair { index: indexes.remove(&names::index_of_main(&main.key)), main };
    mains.into_iter().map(pair).collect()
}

impl Files {
    /// Lists the main files under a directory, with their index files.
    pub(crate) async fn pairs(&self, under: &str) -> Result<Vec<Pair>> {
        Ok(paired(self.inner.storage.list(under).await?))
    }

    /// Reads these records in chunks, and skips those that are gone by now.
    pub(crate) async fn read_pairs(&self, pairs: &[Pair], mut each: impl FnMut(&Pair, Found) + Send) -> Result<()> {
        let storage = &self.inner.storage;
        for chunk in pairs.chunks(CHUNK) {
            let mut left = Vec::with_capacity(chunk.len());
            for pair in chunk {
                match self.inner.cache.get(pair) {
                    Some(stored) => each(pair, self.in_place(pair, stored)),
                    None => left.push(pair),
                }
            }
            let keys = left
                .iter()
                .flat_map(|pair| std::iter::once(&pair.main).chain(&pair.index).map(|entry| entry.key.clone()));
            let mut read = storage.read_all(keys.collect()).await.into_iter();
            for pair in left {
                let main = read.next().transpose();
                let index = match &pair.index {
                    Some(_) => read.next().transpose(),
                    None => Ok(None),
                };
                let (main, index) = match (main, index) {
                    (Ok(main), Ok(index)) => (main.flatten(), index.flatten()),
                    // A file that cannot be read hides no others.
                    (Err(error @ Error::Store { .. }), _) | (_, Err(error @ Error::Store { .. })) => {
                        each(pair, Err(nameservice_model::chain(&error)));
                        continue;
                    }
                    (Err(error), _) | (_, Err(error)) => return Err(error),
                };
                let Some(main) = main else { continue };
                let content = |blob: &Blob| blob.content.clone();
                let decoded = Stored::decode(&main.content, index.as_ref().map(content).as_ref());
                if let Ok(stored) = &decoded {
                    self.inner.cache.put(pair, stored, !storage.locks());
                }
                each(pair, decoded.map_err(|error| error.to_string()).and_then(|stored| self.in_place(pair, stored)));
            }
        }
        Ok(())
    }

    /// Accepts a record only if its file is at the path of its address.
    fn in_place(&self, pair: &Pair, stored: Stored) -> Found {
        match names::main_key(stored.address()) == pair.main.key {
            true => Ok(stored),
            false => Err(format!(
                "it holds `{}`, whose file is {}",
                stored.address(),
                self.inner.storage.describe(&names::main_key(stored.address()))
            )),
        }
    }

    /// Reads every record under a directory. Files that cannot be read are logged and hide no others.
    pub(crate) async fn scan(&self, under: &str, each: impl FnMut(Stored) + Send) -> Result<()> {
        self.scan_all(under, each, |_| {}).await
    }

    /// Passes the key of each file that cannot be read to `unread`.
    async fn scan_all(
        &self,
        under: &str,
        mut each: impl FnMut(Stored) + Send,
        mut unread: impl FnMut(&str) + Send,
    ) -> Result<()> {
        let pairs = self.pairs(under).await?;
        let mut seen = HashSet::new();
        let each = |pair: &Pair, found: Found| match found {
            Ok(stored) if seen.insert(stored.address().clone()) => each(stored),
            // `a/b:c` and `a:b/c` have the same path. The address in the file decides, so no address is passed on twice.
            Ok(_) => {}
            Err(reason) => {
                unread(&pair.main.key);
                let path = self.inner.storage.describe(&pair.main.key);
                tracing::warn!(path, reason, "a file was left out: run `nameservice doctor`");
            }
        };
        self.read_pairs(&pairs, each).await
    }

    /// What refers to a record: graph sources that depend on it, and branches made from it, each in order.
    pub(crate) async fn referrers(&self, address: &Address) -> Result<Referrers> {
        let Referrers { mut sources, mut branches, mut unread } = Referrers::default();
        let each = |stored: Stored| {
            let record = &stored.portable.record;
            if record.dependencies.iter().any(|target| is_of(target, address)) {
                sources.push(record.address.clone());
            }
            let is_branch = record.address.name() == address.name() && record.address != *address;
            if is_branch && record.source_branch.as_deref() == Some(address.branch()) {
                branches.push(record.address.clone());
            }
        };
        let prefix = names::branches_prefix(address);
        let is_unread = |key: &str| {
            if key.starts_with(&prefix) {
                unread = Some(key.to_owned());
            }
        };
        self.scan_all(names::ROOT, each, is_unread).await?;
        sources.sort();
        branches.sort();
        Ok(Referrers { sources, branches, unread })
    }

    pub(crate) async fn listed(&self, query: &ListQuery, visible: Visible<'_>) -> Result<Page<Listed>> {
        let under = match &query.name {
            Some(name) => {
                let any = Address::stored(format!("{name}:main"));
                match names::is_readable(&any) {
                    true => format!("{}/{name}", names::ROOT),
                    false => return Ok(Page { items: Vec::new(), cursor: None }),
                }
            }
            None => names::ROOT.to_owned(),
        };
        let wants = |record: &Record| {
            query.kind.is_none_or(|kind| kind == record.kind)
                && query.name.as_ref().is_none_or(|name| name == record.address.name())
                && query.prefix.as_ref().is_none_or(|prefix| record.address.as_str().starts_with(prefix.as_str()))
                && query.source_type.is_none_or_same(record.source_type.as_ref())
                && query.state.as_deref().is_none_or(|state| state == state_of(&record.status))
                && query.retracted.is_none_or(|retracted| retracted == record.retracted)
                && is_shown(&record.address, visible)
        };
        let mut selection = Selection::new(query.limit, query.cursor.as_ref());
        self.scan(&under, |stored| {
            let record = stored.record();
            if wants(&record) {
                let weight = weight(&record);
                let item = match query.full {
                    true => Listed::Full(Box::new(record.clone())),
                    false => Listed::Summary(Summary::from(&record)),
                };
                selection.offer(record.kind, &record.address, weight, item);
            }
        })
        .await?;
        let mut page = selection.into_page(Listed::cursor);
        for listed in &mut page.items {
            if let Listed::Full(record) = listed {
                self.count_dependents(record).await;
            }
        }
        Ok(page)
    }

    pub(crate) async fn snapshot_page(
        &self,
        limit: Limit,
        after: Option<&Cursor>,
        visible: Visible<'_>,
    ) -> Result<Page<Record>> {
        // Taken before anything is read.
        let position = match after.and_then(Cursor::position) {
            Some(position) => position,
            None => self.inner.feed.position().await,
        };
        let mut selection = Selection::new(limit, after);
        self.scan(names::ROOT, |stored| {
            let record = stored.record();
            if is_shown(&record.address, visible) {
                let (kind, address, weight) = (record.kind, record.address.clone(), weight(&record));
                selection.offer(kind, &address, weight, record);
            }
        })
        .await?;
        let mut page = selection.into_page(|record| Cursor::in_snapshot(record, position));
        for record in &mut page.items {
            self.count_dependents(record).await;
        }
        Ok(page)
    }
}

/// Selects the first entries after a cursor from entries in no order, keeping no more than fit a page.
struct Selection<T> {
    after: Option<(usize, Arc<str>)>,
    limit: usize,
    kept: BTreeMap<(usize, Arc<str>), (usize, T)>,
    bytes: usize,
    is_cut: bool,
}

impl<T> Selection<T> {
    fn new(limit: Limit, cursor: Option<&Cursor>) -> Self {
        let after = cursor.map(|cursor| (rank(cursor.kind()), Arc::from(cursor.after())));
        Self { after, limit: limit.get(), kept: BTreeMap::new(), bytes: 0, is_cut: false }
    }

    fn offer(&mut self, kind: RecordKind, address: &Address, weight: usize, item: T) {
        let place: (usize, Arc<str>) = (rank(kind), Arc::from(address.as_str()));
        if self.after.as_ref().is_some_and(|after| place <= *after) {
            return;
        }
        self.bytes += weight;
        if let Some((before, _)) = self.kept.insert(place, (weight, item)) {
            self.bytes -= before;
        }
        while self.kept.len() > self.limit || self.is_full_without_last() {
            if let Some((_, (weight, _))) = self.kept.pop_last() {
                self.bytes -= weight;
                self.is_cut = true;
            }
        }
    }

    fn is_full_without_last(&self) -> bool {
        let last = self.kept.last_key_value().map_or(0, |(_, (weight, _))| *weight);
        self.kept.len() > 1 && self.bytes - last >= PAGE_BYTES
    }

    fn into_page(self, cursor: impl Fn(&T) -> Cursor) -> Page<T> {
        let items: Vec<T> = self.kept.into_values().map(|(_, item)| item).collect();
        let cursor = items.last().filter(|_| self.is_cut).map(cursor);
        Page { items, cursor }
    }
}

trait IsNoneOrSame {
    fn is_none_or_same(&self, other: Option<&String>) -> bool;
}

impl IsNoneOrSame for Option<String> {
    fn is_none_or_same(&self, other: Option<&String>) -> bool {
        self.is_none() || self.as_ref() == other
    }
}

fn rank(kind: RecordKind) -> usize {
    RecordKind::ALL.iter().position(|of| *of == kind).unwrap_or(0)
}

pub(crate) fn state_of(status: &Status) -> &str {
    status.payload.as_ref().map_or("", |payload| &payload.state)
}

/// Whether a dependency, as it is stored, means this record: `mydb` is `mydb:main`.
pub(crate) fn is_of(stored: &str, address: &Address) -> bool {
    stored == address.as_str() || Address::parse(stored).is_ok_and(|target| target == *address)
}

/// Names outside the grammar are only readable through the library.
fn is_shown(address: &Address, visible: Visible<'_>) -> bool {
    address.is_well_formed() && visible(address)
}

/// The approximate size of a record in bytes of JSON.
fn weight(record: &Record) -> usize {
    /// Names of members, punctuation, times, ids.
    const FIXED: usize = 700;
    let config = record.config.payload.as_ref().map_or(0, |payload| payload.to_string().len());
    let meta = record.status.payload.as_ref().filter(|payload| !payload.meta.is_empty());
    let meta = meta.and_then(|payload| serde_json::to_string(&payload.meta).ok()).map_or(0, |text| text.len());
    let dependencies: usize = record.dependencies.iter().map(|target| target.len() + 3).sum();
    FIXED + 2 * record.address.as_str().len() + config + meta + dependencies
}
