//! Archives of the change feed that the command line names.

use std::sync::Arc;

use nameservice_archive::{Archive, LongFeed};
use nameservice_http::App;

use crate::{
    failure::Failure,
    options::{ArchiveArgs, Missing},
};

/// Opens an archive, to read it or to write it.
pub(crate) async fn open_archive(place: &nameservice::Place, missing: Missing) -> Result<Archive, Failure> {
    match place {
        nameservice::Place::Directory { .. } | nameservice::Place::Bucket { .. } => {
            Ok(nameservice::archive(place, missing == Missing::Create).await?)
        }
        _ => Err(Failure::Usage(format!(
            "an archive is in a directory or a bucket (file:///DIR, s3://BUCKET/PREFIX, gs://…, az://…), not `{place}`"
        ))),
    }
}

impl ArchiveArgs {
    /// Opens the archive that the command line names, if it names one.
    pub(crate) async fn open(&self) -> Result<Option<Archive>, Failure> {
        match &self.archive {
            Some(place) => Ok(Some(open_archive(place, Missing::Reject).await?)),
            None => Ok(None),
        }
    }
}

/// Returns a service that reads what its feed no longer holds from an archive, if there is one.
pub(crate) fn with_archive(app: App, archive: Option<Archive>) -> App {
    match archive {
        Some(archive) => app.with_feed(|feed| Arc::new(LongFeed::new(feed, archive))),
        None => app,
    }
}
