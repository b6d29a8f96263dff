//! The search of the nameservice in an OpenSearch index: its mapping, the document of a record, bulk writes under external
//! versions, and the query that answers `GET /v1/search`.
//!
//! **The version of a document is a position of the feed.** A document is only written over older versions
//! (`version_type: external`), so repeated, late and concurrent deliveries leave the same documents.
//!
//! **A document depends on its record, not on the change.** A writer reads the record and writes it under the position of
//! a change that the read includes. The document of a record that is gone is deleted under such a position. The index
//! remembers deleted versions for [`REMEMBERED`], and a writer discards a read long before that ([`MAX_READ_AGE`]), so no
//! late write brings a deleted document back.

mod client;
mod deployed;
mod document;
mod query;
mod rebuild;

use std::time::Duration;

pub use client::{Action, Applied, Created, OpenSearch, RequestError};
pub use deployed::{SEARCH_URL, deployed, is_deployed};
pub use document::{Document, mapping};
pub use nameservice_signer::Signer;
pub use rebuild::{Rebuilt, rebuild};

/// The service that requests to a domain of Amazon OpenSearch Service are signed for.
pub const SERVICE: &str = "es";
/// The default name of the index.
pub const DEFAULT_INDEX: &str = "nameservice";
/// How long the index remembers the versions of deleted documents.
pub const REMEMBERED: Duration = Duration::from_secs(3_600);
/// How old a read of a record may be when its document is sent.
pub const MAX_READ_AGE: Duration = Duration::from_secs(60);
