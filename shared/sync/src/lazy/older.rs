//! The older place: its records by address, and the list of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nameservice_model::{Address, Error, Record, RecordKind, Result, Summary};
use tokio::{sync::Mutex, time::Instant};

use crate::{Found, Source, SyncError};

const READ: &str = "read the older place";
/// How old a list may be, as other programs may still create records there.
const LIST_AGE: Duration = Duration::from_secs(10);
/// How many records are looked up at a time.
const TOGETHER: usize = 16;

/// A record's place in lists: graph sources come before ledgers.
pub(super) type Place = (usize, Address);

/// What a list needs of a record.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) summary: Summary,
    pub(super) source_branch: Option<String>,
}

pub(super) type Entries = BTreeMap<Place, Entry>;

pub(super) struct Older {
    source: Arc<dyn Source>,
    place: String,
    /// Locked while the place is read, so that others wait for the same list.
    listed: Mutex<Option<(Instant, Arc<Entries>)>>,
}

/// Returns the place of a record of this kind and address in lists.
pub(super) fn place_of(kind: RecordKind, address: &Address) -> Place {
    (RecordKind::ALL.iter().position(|of| *of == kind).unwrap_or(0), address.clone())
}

impl Older {
    pub(super) fn new(source: Arc<dyn Source>, place: String) -> Self {
        Self { source, place, listed: Mutex::default() }
    }

    pub(super) fn place(&self) -> &str {
        &self.place
    }

    pub(super) async fn find(&self, address: &Address) -> Result<Option<Record>> {
        let found = self.source.lookup_all(std::slice::from_ref(address)).await.map_err(unreadable)?;
        Ok(found.unwrap_or_default().pop())
    }

    /// Returns the records of these addresses; those that do not exist are left out.
    pub(super) async fn find_all(&self, addresses: Vec<Address>) -> Result<Vec<Record>> {
        let found = stream::iter(addresses).map(|address| async move { self.find(&address).await });
        let found: Vec<_> = found.buffered(TOGETHER).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Returns the list of its records, which may be some seconds old.
    pub(super) async fn list(&self) -> Result<Arc<Entries>> {
        let mut listed = self.listed.lock().await;
        if let Some((read_at, entries)) = listed.as_ref()
            && read_at.elapsed() < LIST_AGE
        {
            return Ok(entries.clone());
        }
        let entries = Arc::new(self.read().await?);
        *listed = Some((Instant::now(), entries.clone()));
        Ok(entries)
    }

    /// Reads the list now.
    pub(super) async fn list_now(&self) -> Result<Arc<Entries>> {
        *self.listed.lock().await = None;
        self.list().await
    }

    async fn read(&self) -> Result<Entries> {
        let mut entries = Entries::new();
        let mut reading = self.source.read().await.map_err(unreadable)?;
        loop {
            let found = reading.next().await.map_err(unreadable)?;
            if found.is_empty() {
                return Ok(entries);
            }
            for found in found {
                match found {
                    Found::Record(record) => {
                        let entry =
                            Entry { summary: Summary::from(&*record), source_branch: record.source_branch.clone() };
                        entries.insert(place_of(record.kind, &record.address), entry);
                    }
                    Found::Unreadable { place, reason } => {
                        tracing::warn!(
                            place,
                            reason,
                            "a record of the older place was left out: run `nameservice doctor`"
                        );
                    }
                }
            }
        }
    }
}

pub(super) fn unreadable(error: SyncError) -> Error {
    match error {
        SyncError::Source(error) => error,
        error => Error::Store { operation: READ, source: error.into() },
    }
}
