//! The read model of all records: one row each, with what lists ask for of its concerns.
//!
//! Payloads of a status or config are not in it: they are read from the record.

mod in_process;
mod pages;
mod row;
#[cfg(feature = "table")]
mod table;

pub use in_process::InProcess;
pub use pages::{By, RecordPage, RecordPages, RecordQuery};
pub use row::{DEFAULT_INDEX_THRESHOLD, Due, RecordRow, Records};
#[cfg(feature = "table")]
pub use table::{RECORDS, table_of};

/// Names of the indexes, and of the attributes that are their keys.
pub mod index {
    /// By kind.
    pub const BY_KIND: &str = "by-kind";
    /// By state.
    pub const BY_STATE: &str = "by-state";
    /// By type: graph sources alone.
    pub const BY_TYPE: &str = "by-type";
    /// By holder: records with a lease alone.
    pub const BY_HOLDER: &str = "by-holder";
    /// What is due: records whose index is behind alone.
    pub const BY_DUE: &str = "by-due";
}
