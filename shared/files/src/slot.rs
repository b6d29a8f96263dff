//! What the files of an address hold.

use futures_util::future::join;
use nameservice_model::{Address, Capability, Error, Record, Result};

use crate::{
    Files,
    codec::Stored,
    names,
    storage::{Blob, Version, failed},
};

const READ: &str = "read a record";

/// What is stored for an address.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The record, if its files are those of this address.
    pub(crate) stored: Option<Stored>,
    /// The other record that the file belongs to, if it is not of this address.
    pub(crate) other: Option<Address>,
    pub(crate) main: Option<Version>,
    pub(crate) index: Option<Version>,
}

impl Slot {
    /// Whether neither a record is stored nor a file that a write of this address would remove.
    pub(crate) const fn is_empty(&self) -> bool {
        self.stored.is_none() && self.index.is_none()
    }
}

impl Files {
    /// Reads a record; `None` if there is none.
    pub(crate) async fn load(&self, address: &Address) -> Result<Option<Stored>> {
        Ok(self.slot(address).await?.stored)
    }

    pub(crate) async fn slot(&self, address: &Address) -> Result<Slot> {
        let mut slot = self.read_slot(address).await?;
        if let Some(stored) = &mut slot.stored {
            self.count_dependents(&mut stored.portable.record).await;
        }
        Ok(slot)
    }

    /// Sets how many graph sources depend on a record, if the feed is followed: no file holds that number.
    pub(crate) async fn count_dependents(&self, record: &mut Record) {
        if let Some(dependents) = self.inner.feed.dependents(&record.address).await {
            record.dependents = dependents;
        }
    }

    async fn read_slot(&self, address: &Address) -> Result<Slot> {
        if !names::is_readable(address) {
            return Ok(Slot::default());
        }
        let storage = &self.inner.storage;
        let (main_key, index_key) = (names::main_key(address), names::index_key(address));
        let (main, index) = join(storage.read(&main_key), storage.read(&index_key)).await;
        let slot = self.decoded(address, main?, index?)?;
        // Two reads are not a snapshot: an index beyond the head belongs to a head that was pushed in between.
        let is_ahead = |stored: &Stored| {
            let record = &stored.portable.record;
            record.head.as_ref().is_some_and(|head| head.v < record.index.v)
        };
        if !slot.stored.as_ref().is_some_and(is_ahead) {
            return Ok(slot);
        }
        let index = storage.read(&index_key).await?;
        let main = storage.read(&main_key).await?;
        self.decoded(address, main, index)
    }

    fn decoded(&self, address: &Address, main: Option<Blob>, index: Option<Blob>) -> Result<Slot> {
        let versions =
            (main.as_ref().map(|main| main.version.clone()), index.as_ref().map(|index| index.version.clone()));
        let mut slot = Slot { main: versions.0, index: versions.1, ..Slot::default() };
        if let Some(main) = main {
            let stored =
                Stored::decode(&main.content, index.as_ref().map(|index| &index.content)).map_err(|error| {
                    let path = self.inner.storage.describe(&names::main_key(address));
                    failed(READ, format!("`{address}` in {path}: {error}"))
                })?;
            // Two addresses can have the same path: the address in the file decides.
            match stored.address() == address {
                true => slot.stored = Some(stored),
                false => slot.other = Some(stored.address().clone()),
            }
        }
        Ok(slot)
    }
}

/// Rejects writes to files in the format of an earlier version.
pub(crate) fn check_formats<'a>(mut written: impl Iterator<Item = &'a Stored>) -> Result<()> {
    match written.find_map(|stored| Some((stored.address(), stored.former?))) {
        None => Ok(()),
        Some((address, former)) => Err(Error::Unsupported {
            capability: Capability::FormerFormats,
            reason: format!(
                "`{address}` is stored in {}, which is read and never rewritten: migrate it first",
                former.describe()
            ),
        }),
    }
}
