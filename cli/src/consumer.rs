//! Reads the table's stream and hands it to the consumer of changes: what an event source mapping does for the
//! function, done inside `serve`.
//!
//! Every shard is read from its beginning, or from its checkpoint, and parents before their children. A checkpoint is
//! saved after the changes are in the feed, so a process that is killed at any moment only repeats a little, and finds
//! what it repeats in the feed. For the same reason a second consumer of one table does no harm.

mod beside;
mod pace;
mod reader;
mod shards;

use std::time::Duration;

use aws_sdk_dynamodbstreams::Client;
use nameservice_feed::Feed;
use nameservice_model::{ChangeFeed, chain};
use nameservice_store::Store;
use stream_consumer::Consumer;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};

use self::reader::Reader;
pub use self::{beside::Beside, pace::Pace};
pub use crate::nudge::Nudge;

/// How long to wait before a table without a stream is checked again.
const NO_STREAM_PAUSE: Duration = Duration::from_secs(30);

/// Where stream records come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// Describes the table, and so names its stream.
    pub tables: aws_sdk_dynamodb::Client,
    /// Reads the stream.
    pub streams: Client,
    /// The table.
    pub table: String,
}

/// A running consumer. It stops on request, or with the runtime.
#[derive(Debug)]
pub struct Running {
    nudge: Nudge,
    stop: watch::Sender<bool>,
    drain: Duration,
    task: JoinHandle<()>,
}

impl Running {
    /// Returns the handle that notifies the consumer of writes.
    pub fn nudge(&self) -> Nudge {
        self.nudge.clone()
    }

    /// Reads what is in the stream now, for as long as the pace allows, saves the checkpoints, and stops.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        let (mut task, drain) = (self.task, self.drain);
        if timeout(drain, &mut task).await.is_err() {
            tracing::warn!("the stream was not read to its end in {drain:?}: the next start continues there");
            task.abort();
            // The task has ended when this returns.
            let _ = task.await;
        }
    }
}

/// Starts to read a table's stream into its feed.
pub fn start(source: Source, store: Store, feed: Feed, pace: Pace) -> Running {
    let nudge = Nudge::default();
    let (stop, stopping) = watch::channel(false);
    let consumer = Consumer::new(store, feed.clone());
    let reader = Reader { source, consumer, feed, pace, nudge: nudge.clone(), stopping };
    Running { nudge, stop, drain: pace.drain, task: tokio::spawn(reader.run()) }
}

/// Returns the message for a table without a stream.
fn no_stream(table: &str) -> String {
    format!(
        "the table {table} has no stream, so its changes cannot be followed. Enable one with new and old images: \
         aws dynamodb update-table --table-name {table} --stream-specification \
         StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
    )
}

/// Records in the feed whether the table lacks a stream, for a process that leaves the stream to another consumer. Returns
/// whether it does. If the table cannot be described, the answer is no.
pub async fn name_missing_stream(source: &Source, feed: &Feed) -> bool {
    let described = match source.tables.describe_table().table_name(&source.table).send().await {
        Ok(described) => described.table,
        Err(error) => {
            tracing::warn!(error = chain(&error), "it is unknown whether the table has a stream");
            return feed.outage().is_some();
        }
    };
    let stream = described.and_then(|table| table.stream_specification);
    let missing = !stream.is_some_and(|stream| stream.stream_enabled);
    feed.set_outage(missing.then(|| no_stream(&source.table)));
    missing
}

/// Waits until a table that lacks a stream has one, and then records that in the feed.
pub async fn wait_for_stream(source: Source, feed: Feed) {
    while name_missing_stream(&source, &feed).await {
        sleep(NO_STREAM_PAUSE).await;
    }
}
