//! What is copied from: a backend, or a stream of records.

use std::sync::Arc;

use async_trait::async_trait;
use nameservice_model::{Address, Backend, ChangeFeed, Cursor, Limit, Record};

use crate::{Result, SyncError, report::Records};

/// How many records are read at once.
const PAGE: Limit = match Limit::new(500) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};

/// What was found at a place in the order of its records.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// A record.
    Record(Box<Record>),
    /// Something that is no record that can be stored elsewhere.
    Unreadable {
        /// Its address, or where it stands.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// A place to read records from.
#[async_trait]
pub trait Source: Send + Sync {
    /// Begins to read all records. A stream can be read once.
    async fn read(&self) -> Result<Box<dyn Reading + '_>>;

    /// Returns records by their addresses; `None` where the place can be read in order only.
    async fn lookup_all(&self, addresses: &[Address]) -> Result<Option<Vec<Record>>>;

    /// Whether records can be looked up by their addresses.
    fn finds(&self) -> bool;

    /// Whether it can be read more than once.
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
    /// Returns what follows; nothing at the end.
    async fn next(&mut self) -> Result<Vec<Found>>;

    /// Returns the position of the place's feed before the first record was read, where it has one.
    fn position(&self) -> Option<u64>;
}

/// A backend to copy from.
#[derive(Clone)]
pub struct BackendSource {
    backend: Arc<dyn Backend>,
    prefix: Option<String>,
}

impl std::fmt::Debug for BackendSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BackendSource").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl BackendSource {
    /// Returns a backend as a source.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend, prefix: None }
    }

    /// Takes only records whose addresses begin with this.
    #[must_use]
    pub fn with_prefix(mut self, prefix: Option<String>) -> Self {
        self.prefix = prefix;
        self
    }
}

#[async_trait]
impl Source for BackendSource {
    async fn read(&self) -> Result<Box<dyn Reading + '_>> {
        // Taken before the first read: what changes during it is in the feed after this.
        let position = match self.backend.position().await {
            Ok(position) => Some(position),
            Err(error) => {
                tracing::debug!(%error, "the source has no change feed");
                None
            }
        };
        Ok(Box::new(Pages { source: self, cursor: None, is_over: false, position }))
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Option<Vec<Record>>> {
        self.backend.lookup_all(addresses).await.map(Some).map_err(SyncError::Source)
    }

    fn finds(&self) -> bool {
        true
    }

    fn can_be_read_again(&self) -> bool {
        true
    }

    fn feed(&self) -> Option<&dyn ChangeFeed> {
        Some(&*self.backend)
    }
}

struct Pages<'a> {
    source: &'a BackendSource,
    cursor: Option<Cursor>,
    is_over: bool,
    position: Option<u64>,
}

#[async_trait]
impl Reading for Pages<'_> {
    async fn next(&mut self) -> Result<Vec<Found>> {
        let visible =
            |address: &Address| self.source.prefix.as_ref().is_none_or(|prefix| address.as_str().starts_with(prefix));
        while !self.is_over {
            let page = self.source.backend.snapshot(PAGE, self.cursor.as_ref(), &visible).await;
            let page = page.map_err(SyncError::Source)?;
            self.is_over = page.cursor.is_none();
            self.cursor = page.cursor;
            if !page.items.is_empty() {
                return Ok(page.items.into_iter().map(found).collect());
            }
        }
        Ok(Vec::new())
    }

    fn position(&self) -> Option<u64> {
        self.position
    }
}

/// Rows of other programs may have names that are no addresses, which no place but theirs takes.
fn found(record: Record) -> Found {
    match record.address.is_well_formed() {
        true => Found::Record(Box::new(record)),
        false => Found::Unreadable {
            place: record.address.as_str().to_owned(),
            reason: match Address::parse(record.address.as_str()) {
                Err(error) => error.to_string(),
                Ok(address) => format!("its address is written otherwise: {address}"),
            },
        },
    }
}
