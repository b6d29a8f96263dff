//! The places that can be copied from: a backend, or a stream of records.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use nameservice_model::{Address, Backend, ChangeFeed, Cursor, Error, Limit, Record};

use crate::{
    Result, SyncError,
    legacy::keeps_addresses,
    older_record::{VIRTUAL_GRAPH, mapped},
    report::Records,
};

/// How many records are read in one request.
const PAGE: Limit = match Limit::new(500) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};

/// What was found at a place in the order of its records.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// A record.
    Record(Box<Record>),
    /// Something that cannot be stored elsewhere as a record.
    Unreadable {
        /// Its address, or its location.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Found {
    /// Returns the records among what was found, and reports the rest.
    pub(crate) fn records(found: Vec<Self>, unreadable: &mut Records) -> Vec<Record> {
        let record = |found| match found {
            Self::Record(record) => Some(*record),
            Self::Unreadable { place, reason } => {
                unreadable.add_reason(&place, reason);
                None
            }
        };
        found.into_iter().filter_map(record).collect()
    }
}

/// A place to read records from.
#[async_trait]
pub trait Source: Send + Sync {
    /// Begins to read all records. A stream can be read once.
    async fn read(&self) -> Result<Box<dyn Reading + '_>>;

    /// Returns records by their addresses; `None` if the place can only be read in order.
    async fn lookup_all(&self, addresses: &[Address]) -> Result<Option<Vec<Record>>>;

    /// Returns whether records can be looked up by their addresses.
    fn finds(&self) -> bool;

    /// Returns whether it can be read more than once.
    fn can_be_read_again(&self) -> bool;

    /// Returns which of the records that were read keep addresses that have no content id.
    fn kept_addresses(&self) -> Records {
        Records::default()
    }

    /// Returns the change feed of the place, if it has one.
    fn feed(&self) -> Option<&dyn ChangeFeed> {
        None
    }
}

/// A pass through the records of a place.
#[async_trait]
pub trait Reading: Send {
    /// Returns the next records; an empty list at the end.
    async fn next(&mut self) -> Result<Vec<Found>>;

    /// Returns the position of the place's feed before the first record was read, if it has a feed.
    fn position(&self) -> Option<u64>;
}

/// A backend to copy from.
#[derive(Clone)]
pub struct BackendSource {
    backend: Arc<dyn Backend>,
    prefix: Option<String>,
    has_feed: bool,
    /// Records under keys that are not addresses, which snapshots leave out.
    others: Vec<Address>,
    unreadable: Vec<Found>,
    kept: Arc<Mutex<Records>>,
}

impl std::fmt::Debug for BackendSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackendSource").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl BackendSource {
    /// Returns a backend as a source.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, prefix: None, has_feed: true, others: Vec::new(), unreadable: Vec::new(), kept: Arc::default() }
    }

    /// Takes only records whose addresses begin with this.
    #[must_use]
    pub fn with_prefix(mut self, prefix: Option<String>) -> Self {
        self.prefix = prefix;
        self
    }

    /// Also takes these rows, whose keys are not addresses: `vg:NAME:BRANCH`, virtual graphs of an older table.
    #[must_use]
    pub fn with_others(mut self, others: Vec<Address>) -> Self {
        self.others = others;
        self
    }

    /// Reports what the backend leaves out of its snapshots because it cannot be read: where it is, and why.
    #[must_use]
    pub fn with_unreadable(mut self, unreadable: Vec<(String, String)>) -> Self {
        self.unreadable = unreadable.into_iter().map(|(place, reason)| Found::Unreadable { place, reason }).collect();
        self
    }

    /// Does not use the change feed of the backend. The feed of a file storage is created by its first use.
    #[must_use]
    pub fn without_feed(mut self) -> Self {
        self.has_feed = false;
        self
    }

    /// Returns whether a record has an address that is requested.
    fn is_wanted(&self, address: &Address) -> bool {
        self.prefix.as_ref().is_none_or(|prefix| address.as_str().starts_with(prefix))
    }

    fn found(&self, record: Record) -> Found {
        let found = mapped(record);
        if let Found::Record(record) = &found
            && keeps_addresses(record)
        {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).add_address(&record.address);
        }
        found
    }
}

#[async_trait]
impl Source for BackendSource {
    async fn read(&self) -> Result<Box<dyn Reading + '_>> {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Records::default();
        // Read before the first record, so that changes during the read follow it in the feed.
        let position = match self.has_feed {
            true => match self.backend.position().await {
                Ok(position) => Some(position),
                Err(error @ Error::Unsupported { .. }) => {
                    tracing::debug!(%error, "the source has no change feed");
                    None
                }
                Err(error) => return Err(SyncError::Source(error)),
            },
            false => None,
        };
        Ok(Box::new(Pages { source: self, cursor: None, is_over: false, are_others_read: false, position }))
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Option<Vec<Record>>> {
        let mut records = self.backend.lookup_all(addresses).await.map_err(SyncError::Source)?;
        let is_there = |address: &Address| records.iter().any(|record| record.address == *address);
        let key = |address: &Address| Address::stored(format!("{VIRTUAL_GRAPH}{address}"));
        let others: Vec<Address> = match self.others.is_empty() {
            true => Vec::new(),
            false => addresses.iter().filter(|address| !is_there(address)).map(key).collect(),
        };
        let others: Vec<Address> = others.into_iter().filter(|key| self.others.contains(key)).collect();
        if !others.is_empty() {
            records.extend(self.backend.lookup_all(&others).await.map_err(SyncError::Source)?);
        }
        let records = records.into_iter().filter_map(|record| match mapped(record) {
            Found::Record(record) => Some(*record),
            Found::Unreadable { .. } => None,
        });
        Ok(Some(records.collect()))
    }

    fn finds(&self) -> bool {
        true
    }

    fn can_be_read_again(&self) -> bool {
        true
    }

    fn kept_addresses(&self) -> Records {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn feed(&self) -> Option<&dyn ChangeFeed> {
        self.has_feed.then_some(&*self.backend as &dyn ChangeFeed)
    }
}

struct Pages<'a> {
    source: &'a BackendSource,
    cursor: Option<Cursor>,
    is_over: bool,
    are_others_read: bool,
    position: Option<u64>,
}

#[async_trait]
impl Reading for Pages<'_> {
    async fn next(&mut self) -> Result<Vec<Found>> {
        let source = self.source;
        let visible = |address: &Address| source.is_wanted(address);
        while !self.is_over {
            let page = source.backend.snapshot(PAGE, self.cursor.as_ref(), &visible).await;
            let page = page.map_err(SyncError::Source)?;
            self.is_over = page.cursor.is_none();
            self.cursor = page.cursor;
            if !page.items.is_empty() {
                return Ok(page.items.into_iter().map(|record| source.found(record)).collect());
            }
        }
        if std::mem::replace(&mut self.are_others_read, true) {
            return Ok(Vec::new());
        }
        let mut found = source.unreadable.clone();
        if !source.others.is_empty() {
            let records = source.backend.lookup_all(&source.others).await.map_err(SyncError::Source)?;
            found.extend(records.into_iter().map(|record| source.found(record)));
        }
        found.retain(|found| match found {
            Found::Record(record) => source.is_wanted(&record.address),
            Found::Unreadable { .. } => true,
        });
        Ok(found)
    }

    fn position(&self) -> Option<u64> {
        self.position
    }
}
