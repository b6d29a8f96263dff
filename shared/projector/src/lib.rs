//! Read models that follow the change feed.
//!
//! A [`Projection`] defines the row of a record. A [`Projector`] keeps those rows up to date with the feed: it reads changes
//! through the traits of the model, so it runs over every backend, reads each changed record once, and writes its row
//! with the position of the change as the row's version. [`Rows`] is where they are kept: in memory ([`MemoryRows`]), in a
//! table of DynamoDB (`TableRows`, feature `table`), or wherever a user of this crate wants them.
//!
//! - **Idempotent.** A row is written over older versions only. Repeated, late and concurrent deliveries leave the same
//!   rows.
//! - **Resumable.** The [`Checkpoint`] is kept with the rows and written after them: interrupted work is done again.
//! - **Rebuilt beside live changes.** [`Projector::rebuild`] reads a snapshot and writes each row under the snapshot's
//!   position, so rows of later changes stay. Removed rows leave a tombstone with their version, so that no late write
//!   brings them back.
//!
//! A row depends on its record alone, and not on the change, so that a rebuild makes the same rows. A row shows the record as
//! of the row's version or later; once the feed is read to its end, each row shows the current record.
//!
//! [`records`] is the read model of all records: by kind, state, type, holder of a lease, prefix, and due index.

mod memory;
mod projector;
pub mod records;
mod rows;
#[cfg(feature = "table")]
mod table;
#[cfg(test)]
mod tests;

use nameservice_model::Record;
use serde::{Serialize, de::DeserializeOwned};

pub use memory::MemoryRows;
pub use projector::{Lag, Progress, Projector};
pub use rows::{Checkpoint, Over, RowWrite, Rows};
#[cfg(feature = "table")]
pub use table::{CHECKPOINT, TableRows, VERSION};

/// Defines the row of a record in a read model.
pub trait Projection: Send + Sync + 'static {
    /// The row.
    type Row: Row;

    /// Returns the name of the read model, for metrics and logs.
    fn name(&self) -> &str;

    /// Returns the row of a record; `None` if it has none. Must be deterministic: the same record always has the same row.
    fn row(&self, record: &Record) -> Option<Self::Row>;
}

/// A row of a read model: whatever can be stored.
pub trait Row: Serialize + DeserializeOwned + Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// Returns the indexes and values under which the row is found.
    fn keys(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
