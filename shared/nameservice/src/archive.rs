use std::sync::Arc;

use nameservice_archive::Archive;
use nameservice_files::BucketOptions;
use nameservice_objects as objects;

use crate::{Cloud, Place, Result, error::cannot_open};

/// How many times a request to a bucket is repeated.
const RETRIES: usize = 3;

/// Opens the archive of a change feed in a bucket or a directory, which is created if `create` is set. With
/// [`Nameservice::with_archive`](crate::Nameservice::with_archive) changes are read beyond the retention of the feed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nameservice::Error> {
/// # let directory = std::env::temp_dir().join(format!("nameservice-archive-{}", std::process::id()));
/// # let place: nameservice::Place = format!("file://{}", directory.display()).parse()?;
/// let ns = nameservice::connect("memory:").await?;
/// ns.create_ledger("mydb").await?;
/// let archive = nameservice::archive(&place, true).await?; // such as s3://BUCKET/PREFIX
/// nameservice::Archiver::new(ns.feed(), archive.clone()).catch_up(None).await?;
///
/// let ns = ns.with_archive(archive);
/// let mut changes = ns.changes().after(0).follow(); // from the archive, then from the feed
/// # assert!(matches!(changes.try_next().await?, Some(nameservice::ChangeEvent::Change(change)) if change.position == 1));
/// # std::fs::remove_dir_all(directory).ok();
/// # Ok(()) }
/// ```
pub async fn archive(place: &Place, create: bool) -> Result<Archive> {
    let shown = place.to_string();
    Ok(match place {
        Place::Directory { path, .. } => {
            let path = path.clone();
            // Blocking: opening accesses the file system.
            let opened = tokio::task::spawn_blocking(move || objects::directory(&path, create)).await;
            let store = opened.map_err(cannot_open(place))?.map_err(cannot_open(place))?;
            Archive::new(store, "", shown)
        }
        Place::Bucket { cloud, bucket, prefix, region, endpoint, timeout } => {
            let at = BucketOptions::default().region(region.clone()).endpoint(endpoint.clone()).timeout(*timeout);
            let store = match cloud {
                Cloud::S3 => {
                    let at = crate::s3::with_chain(at).await.map_err(cannot_open(place))?;
                    objects::s3(bucket, &at, RETRIES)
                }
                Cloud::Gcs => objects::gcs(bucket, &at, RETRIES),
                Cloud::Azure => objects::azure(bucket, &at, RETRIES),
            };
            Archive::new(store.map_err(cannot_open(place))?, prefix, shown)
        }
        other => return Err(cannot_open(other)("an archive is in file:///DIR, s3://BUCKET/PREFIX, gs://… or az://…")),
    })
}

impl crate::Nameservice {
    /// Returns the same nameservice, which reads changes from an archive once the feed no longer holds them.
    #[must_use]
    pub fn with_archive(mut self, archive: Archive) -> Self {
        self.feed = Some(Arc::new(nameservice_archive::LongFeed::new(self.feed(), archive)));
        self
    }
}
