//! Records as text: JSON Lines.
//!
//! ```text
//! {"nameservice_dump":1,"position":17,"created_at":"2026-11-21T20:00:00Z"}    the head
//! {"address":"mydb:main","kind":"ledger", …}                                  a record a line, as the service shows it
//! {"end":{"records":1,"sha256":"…"}}                                          the hash of all lines before it
//! ```
//!
//! A record comes after everything that it was branched from or depends on, so a dump can be read in one pass. A dump
//! that was cut off lacks its last line, and one that was edited has another hash.

mod partial;
mod read;
mod write;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use read::DumpSource;
pub use write::{Exported, export};

/// The version of the format.
const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
struct Head {
    nameservice_dump: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Last {
    end: End,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct End {
    records: u64,
    sha256: String,
}

/// Where a dump is: a file, or a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpPlace {
    /// A file.
    File(PathBuf),
    /// Standard input or output.
    Stream,
}

impl std::fmt::Display for DumpPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Stream => f.write_str("the stream"),
        }
    }
}
