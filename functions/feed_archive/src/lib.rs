//! The archive of the change feed: the feed → objects of JSON Lines in a bucket.
//!
//! The function is invoked on a schedule, and reads the feed from the last object of the archive to the end. The topic does not
//! invoke it: an archive only has to be ahead of the feed's retention, which is days, and an object for each burst of changes
//! would mean many small ones. The event is ignored. The next invocation makes up for one that failed or never came, and two at
//! the same time write each object once.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use lambda_runtime::{LambdaEvent, service_fn};
use metrics::{counter, gauge};
use nameservice_archive::{Archived, Archiver};
use nameservice_feed::Feed;
use nameservice_lambda::ARCHIVE_BUCKET;
use nameservice_model::{Error, Result, chain};
use nameservice_store::Store;
use serde_json::Value;
use tokio::time::Instant;

/// The part of an invocation that is reserved for its answer.
const BEFORE_THE_END: Duration = Duration::from_secs(10);

/// Answers invocations until the runtime ends: the `main` of the function, over the feed and the bucket that its environment
/// names.
pub async fn run(_: Store, feed: Feed) -> Result<(), lambda_runtime::Error> {
    let opened = nameservice_lambda::archive().ok_or_else(|| format!("{ARCHIVE_BUCKET} is not set"))?;
    let archiver = Archiver::new(Arc::new(feed), opened);
    lambda_runtime::run(service_fn(async |event: LambdaEvent<Value>| {
        let deadline = UNIX_EPOCH + Duration::from_millis(event.context.deadline);
        let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
        let until = Instant::now() + left.saturating_sub(BEFORE_THE_END);
        // A gap is recorded once, by the invocation that finds it: its failure raises the alarm.
        let done = archive(&archiver, until).await.and_then(Archived::without_gap).map(drop);
        nameservice_lambda::write_metrics();
        done.map_err(|error| lambda_runtime::Error::from(chain(&error)))
    }))
    .await
}

/// Archives what follows the last object, until the end of the feed or this time. If anything is left then, that is an error: the
/// alarm on the function's errors shows it, and the next invocation continues.
pub async fn archive(archiver: &Archiver, until: Instant) -> Result<Archived> {
    let archived = archiver.catch_up(Some(until)).await?;
    let Archived { position, changes, objects, lost, is_complete, .. } = archived;
    tracing::info!(position, changes, objects, lost, is_complete, "archived");
    gauge!("nameservice_archive_position").set(position as f64);
    if lost > 0 {
        counter!("nameservice_archive_lost_changes_total").increment(lost);
    }
    match is_complete {
        true => Ok(archived),
        false => Err(Error::Unavailable { operation: "archive the rest of the feed in this invocation", source: None }),
    }
}
