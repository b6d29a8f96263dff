//! What every test uses: an engine, a fault proxy in front of it, a table of its own, rows as Fluree writes
//! them, and a running service in a line.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot be set up has failed")]

pub mod backends;
pub mod cids;
pub mod engine;
pub mod in_process;
pub mod infra;
pub mod layout;
pub mod link;
pub mod mapping;
pub mod preload;
pub mod proxy;
pub mod pump;
pub mod rows;
pub mod seeds;
pub mod service;
pub mod table;
pub mod units;
pub mod words;

use std::time::Duration;

pub use nameservice_test_macros::every_backend;

/// The one deadline of what a test waits for.
pub const LONG: Duration = Duration::from_secs(120);

/// What most tests need.
pub mod prelude {
    pub use nameservice_model::*;
    pub use nameservice_store::Store;
    pub use serde_json::{Value, json};

    pub use crate::{
        LONG,
        backends::AsRecords,
        cids::{cid, index_cid},
        proxy::{Fault, Proxy},
        rows::{self, Fluree, Row},
        service::{Answer, Service},
        table::{Proxied, Table},
        words::*,
    };
}
