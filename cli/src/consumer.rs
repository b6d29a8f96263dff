//! Reads the table's stream and hands it to the consumer of changes: what an event source mapping does for the
//! function, done inside `serve`.
//!
//! Every shard is read from its beginning, or from where the last process came to, and parents before their children.
//! How far it was read is saved after the changes are in the feed, so a process that is killed at any moment repeats a
//! little, and what is repeated is found in the feed. For the same reason a second consumer of one table does no harm.

mod pace;
mod reader;
mod shards;

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodbstreams::Client;
use nameservice_feed::Feed;
use nameservice_model::{ChangeFeed, chain};
use nameservice_store::Store;
use stream_consumer::Consumer;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

pub use self::pace::Pace;
use self::reader::Reader;

/// How long to wait before a table without a stream is checked again.
const NO_STREAM_PAUSE: Duration = Duration::from_secs(30);
/// How long the rest of the stream may take once the consumer is stopping.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Where stream records come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// Knows which stream the table has.
    pub tables: aws_sdk_dynamodb::Client,
    /// Reads it.
    pub streams: Client,
    /// The table.
    pub table: String,
}

/// Notifies the consumer of a write, so that it need not wait for the next poll.
#[derive(Clone, Debug, Default)]
pub struct Nudge(Arc<Notify>);

impl Nudge {
    /// Ends the consumer's pause, or spares it the next one.
    pub fn give(&self) {
        self.0.notify_one();
    }
}

/// A running consumer. It stops on request, or with the runtime.
#[derive(Debug)]
pub struct Running {
    nudge: Nudge,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// Returns what notifies it of writes.
    pub fn nudge(&self) -> Nudge {
        self.nudge.clone()
    }

    /// Reads what is in the stream now, for five seconds at most, saves how far it came, and stops.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        let mut task = self.task;
        if timeout(DRAIN_TIMEOUT, &mut task).await.is_err() {
            tracing::warn!("the stream was not read to its end in {DRAIN_TIMEOUT:?}: the next start continues there");
            task.abort();
            // Nothing of it runs any more when this returns.
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
    Running { nudge, stop, task: tokio::spawn(reader.run()) }
}

/// Returns the sentence about a table whose changes nobody can follow.
fn no_stream(table: &str) -> String {
    format!(
        "the table {table} has no stream, so its changes cannot be followed. Enable one with new and old images: \
         aws dynamodb update-table --table-name {table} --stream-specification \
         StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
    )
}

/// Says in the feed whether the table lacks a stream, for a process that leaves it to another consumer. Returns whether it
/// does. A table that cannot be described is not said to lack one.
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

/// Waits until a table that lacks a stream has one, and then says so in the feed.
pub async fn wait_for_stream(source: Source, feed: Feed) {
    while name_missing_stream(&source, &feed).await {
        sleep(NO_STREAM_PAUSE).await;
    }
}
