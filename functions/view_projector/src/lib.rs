//! The projector of the read model of records: the feed → rows in a table.
//!
//! An invocation is only a doorbell. Its event (messages of the topic, through a queue) is ignored: the projector reads the feed
//! from the checkpoint of the rows to the end, so that rows follow the feed's order and miss nothing, even if messages came late,
//! twice or not at all. A failed invocation leaves its messages in the queue, which invokes it again; two concurrent ones do the
//! same work.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use lambda_runtime::{LambdaEvent, service_fn};
use nameservice_dynamo::variable;
use nameservice_feed::Feed;
use nameservice_model::{Result, chain};
use nameservice_projector::{
    Progress, Projector, TableRows,
    records::{RECORDS, Records, table_of},
};
use nameservice_store::{Store, lambda_client};
use nameservice_views::View;
use serde_json::Value;
use tokio::time::Instant;

/// Names the table of the rows.
const VIEW_TABLE: &str = "NAMESERVICE_VIEW_TABLE";
/// The part of an invocation that is reserved for its answer.
const BEFORE_THE_END: Duration = Duration::from_secs(10);

/// Returns the projector of a store's records into a view, which follows the feed.
pub fn projector(store: Store, feed: Feed, view: View) -> Projector<Records> {
    Projector::new(Records, Arc::new(store), Arc::new(feed), Arc::new(TableRows::new(view)))
}

/// Answers invocations until the runtime ends: the `main` of the function, over the store and the feed that its environment
/// names.
pub async fn run(store: Store, feed: Feed) -> Result<(), lambda_runtime::Error> {
    let table = variable(VIEW_TABLE).unwrap_or_else(|| table_of(store.table()));
    let view = View::new(lambda_client(), table, &RECORDS);
    let projector = projector(store, feed, view);
    lambda_runtime::run(service_fn(async |event: LambdaEvent<Value>| {
        let deadline = UNIX_EPOCH + Duration::from_millis(event.context.deadline);
        let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
        let until = Instant::now() + left.saturating_sub(BEFORE_THE_END);
        let done = project(&projector, until).await.map(drop);
        nameservice_lambda::write_metrics();
        done.map_err(|error| lambda_runtime::Error::from(chain(&error)))
    }))
    .await
}

/// Processes what follows the checkpoint, until the end of the feed or this time. If anything is left then, that is an error, so
/// that the function is invoked again.
pub async fn project(projector: &Projector<Records>, until: Instant) -> Result<Progress> {
    let progress = projector.catch_up(Some(until)).await?;
    let Progress { position, changes, rows, rebuilt, is_complete } = progress;
    tracing::info!(position, changes, rows, rebuilt, is_complete, "projected");
    match is_complete {
        true => Ok(progress),
        false => Err(nameservice_model::Error::Unavailable {
            operation: "project the rest of the feed in this invocation",
            source: None,
        }),
    }
}
