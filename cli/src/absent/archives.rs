//! A build without archives reads only what the feed still holds.

use nameservice_http::App;

use crate::{failure::Failure, options::ArchiveArgs};

/// There is none.
pub(crate) enum Archive {}

impl ArchiveArgs {
    #[expect(clippy::unused_async, reason = "as with archives")]
    pub(crate) async fn open(&self) -> Result<Option<Archive>, Failure> {
        Ok(None)
    }
}

pub(crate) fn with_archive(app: App, archive: Option<Archive>) -> App {
    match archive {
        Some(archive) => match archive {},
        None => app,
    }
}
