//! The archive of the feed that the environment names.

use std::sync::Arc;

use nameservice_archive::{Archive, LongFeed};
use nameservice_dynamo::variable;
use nameservice_feed::Feed;
use nameservice_model::ChangeFeed;

use crate::Bucket;

/// Names the bucket of the archive.
pub const ARCHIVE_BUCKET: &str = "NAMESERVICE_ARCHIVE_BUCKET";
/// What the keys of its objects begin with.
const ARCHIVE_PREFIX: &str = "NAMESERVICE_ARCHIVE_PREFIX";

/// Returns the archive that the environment names; `None` if it names none. No request is made.
pub fn archive() -> Option<Archive> {
    let bucket = variable(ARCHIVE_BUCKET)?;
    let prefix = variable(ARCHIVE_PREFIX).unwrap_or_default();
    Some(Archive::new(Bucket::of_environment(&bucket), &prefix, format!("s3://{bucket}/{prefix}")))
}

/// Returns the feed with the archive that the environment names, if it names one.
#[cfg(feature = "http")]
pub(crate) fn with_archive(feed: Feed) -> Arc<dyn ChangeFeed> {
    let feed = Arc::new(feed);
    match archive() {
        Some(archive) => Arc::new(LongFeed::new(feed, archive)),
        None => feed,
    }
}
