//! A nameservice whose records are still at an older place: a table of an earlier layout, files of an earlier format.
//!
//! A record that the backend does not have is looked up at the older place and shown as a copy would write it. Before
//! its first write it is taken over: written to the backend, with the operations that [`copy`](crate::copy()) uses. The
//! older place is never written.
//!
//! Several services may do this over one backend. If two take over the same record, one creates it. Until all of it is
//! written, its config carries the mark [`PENDING`], so that any service can finish what another left incomplete. From
//! then on only the backend's record counts: later writes at the older place are ignored.

mod backend;
mod left;
mod lists;
mod older;
mod takeover;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use nameservice_model::{Address, Backend, Capability, ChangeFeed, Error, Record};

pub use left::{Left, left};

use self::older::Older;
pub use crate::pending::PENDING;
use crate::{
    Source,
    compare::fingerprint,
    pending::{is_unfinished, without_mark},
};

/// A backend, and an older place whose records it takes over when they are first written.
#[derive(Clone)]
pub struct LazyBackend {
    names: Arc<dyn Backend>,
    feed: Arc<dyn ChangeFeed>,
    older: Arc<Older>,
    /// Records for which the older place is no longer read, 16 bytes each.
    settled: Arc<Mutex<HashSet<[u8; 16]>>>,
}

impl std::fmt::Debug for LazyBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LazyBackend").field("older", &self.older.place()).finish_non_exhaustive()
    }
}

impl LazyBackend {
    /// Returns a backend with the records of an older place. `place` names it in messages; `feed` is the backend's.
    pub fn new(names: Arc<dyn Backend>, feed: Arc<dyn ChangeFeed>, older: Arc<dyn Source>, place: String) -> Self {
        Self { names, feed, older: Arc::new(Older::new(older, place)), settled: Arc::default() }
    }

    fn is_settled(&self, address: &Address) -> bool {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).contains(&fingerprint(address))
    }

    fn settle(&self, address: &Address) {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner).insert(fingerprint(address));
    }

    /// Returns the error for an operation that would let a record of the older place reappear, or could not be stored.
    fn rejected(&self, reason: impl std::fmt::Display) -> Error {
        Error::Unsupported {
            capability: Capability::FormerFormats,
            reason: format!("{reason} ({})", self.older.place()),
        }
    }

    /// Returns a record: that of the backend, or else that of the older place.
    async fn found(&self, address: &Address) -> nameservice_model::Result<Option<Record>> {
        let found = self.names.lookup(address).await?;
        self.shown(address, found).await
    }

    /// Returns what is shown for an address, given the record that the backend has.
    async fn shown(&self, address: &Address, found: Option<Record>) -> nameservice_model::Result<Option<Record>> {
        if self.is_settled(address) {
            return Ok(found);
        }
        match found {
            Some(record) if !is_unfinished(&record) => {
                self.settle(address);
                Ok(Some(record))
            }
            Some(record) if record.retracted => Ok(Some(without_mark(record))),
            // Only services that take it over have written it so far.
            Some(record) => Ok(Some(self.older.find(address).await?.unwrap_or_else(|| without_mark(record)))),
            None => self.older.find(address).await,
        }
    }
}
