//! The read model of all records: one row each, with the members of its concerns that lists need.
//!
//! It does not contain the payloads of statuses and configs: they are read from the record.

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

/// The names of the indexes.
pub mod index {
    /// By kind.
    pub const BY_KIND: &str = "by-kind";
    /// By state.
    pub const BY_STATE: &str = "by-state";
    /// By type: graph sources only.
    pub const BY_TYPE: &str = "by-type";
    /// By holder: only records with a lease.
    pub const BY_HOLDER: &str = "by-holder";
    /// By what is due: only records whose index is behind.
    pub const BY_DUE: &str = "by-due";
}
