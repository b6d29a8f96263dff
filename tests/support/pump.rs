//! The stream of a table, read as the engine serves it, and pumped through the real consumer into the feed.

use std::{collections::HashMap, time::Instant};

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodbstreams::{
    Client,
    config::{BehaviorVersion, Builder, Credentials, Region},
    operation::get_records::GetRecordsError,
    types::{AttributeValue as StreamValue, Record, ShardIteratorType},
};
use jiff::Timestamp;
use nameservice_feed::Feed;
use nameservice_store::StreamRecord;
use stream_consumer::{Consumer, Delivery};

use crate::{LONG, table::Table};

/// The largest batch of a mapping by default.
const BATCH: usize = 100;

/// Every record of the table's stream so far, in order: what a mapping that begins at the trim horizon would deliver.
///
/// The table must have a stream ([`Table::with_stream`] has). Each call reads it all again, with the same event ids.
pub async fn deliveries(table: &Table) -> Vec<Delivery> {
    let streams = streams(table);
    let described = table.client.describe_table().table_name(&table.name).send().await.unwrap();
    let arn = described.table.unwrap().latest_stream_arn.expect("a table with a stream");
    let stream = streams.describe_stream().stream_arn(&arn).send().await.unwrap();
    let shards = stream.stream_description.unwrap().shards.unwrap_or_default();
    // A shard's name holds the time when it was opened: parents come before their children.
    let mut shards: Vec<String> = shards.into_iter().map(|shard| shard.shard_id.unwrap()).collect();
    shards.sort();
    let mut deliveries = Vec::new();
    for shard in shards {
        let begun = Instant::now();
        deliveries.extend(loop {
            if let Some(read) = read(&streams, &arn, &shard).await {
                break read;
            }
            assert!(begun.elapsed() < LONG, "{shard} has always been trimmed");
        });
    }
    deliveries
}

/// Appends everything in the table's stream to its feed: after this the feed shows every write so far.
///
/// May be called repeatedly: what an earlier call has appended is found, and not appended again.
pub async fn pump(table: &Table) {
    pump_into(table, &table.feed).await;
}

/// The same into a feed of other settings.
pub async fn pump_into(table: &Table, feed: &Feed) {
    let consumer = Consumer::new(table.store.clone(), feed.clone());
    for batch in deliveries(table).await.chunks(BATCH) {
        let consumed = consumer.consume(batch).await;
        assert_eq!((consumed.failed, consumed.dead_letters), (None, 0));
    }
}

/// Reads a shard to its end. `None`: its beginning was trimmed. DynamoDB Local says so of a new shard, too, if its first record is
/// written after the iterator was taken.
async fn read(streams: &Client, arn: &str, shard: &str) -> Option<Vec<Delivery>> {
    let first = streams
        .get_shard_iterator()
        .stream_arn(arn)
        .shard_id(shard)
        .shard_iterator_type(ShardIteratorType::TrimHorizon);
    let mut iterator = first.send().await.unwrap().shard_iterator;
    let mut deliveries = Vec::new();
    while let Some(from) = iterator {
        let page = match streams.get_records().shard_iterator(from).send().await {
            Err(error) if error.as_service_error().is_some_and(GetRecordsError::is_trimmed_data_access_exception) => {
                return None;
            }
            page => page.unwrap(),
        };
        let records = page.records.unwrap_or_default();
        // An open shard always has a next page; in these engines an empty one is the end of what was written.
        iterator = page.next_shard_iterator.filter(|_| !records.is_empty());
        deliveries.extend(records.into_iter().map(delivery));
    }
    Some(deliveries)
}

fn streams(table: &Table) -> Client {
    let config = Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(&table.endpoint)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(Credentials::new("local", "local", None, None, "pump"))
        .timeout_config(table.client.config().timeout_config().cloned().expect("that of a test's client"));
    // The connections of the table's own client serve here too.
    Client::from_conf(match table.client.config().http_client() {
        Some(http) => config.http_client(http).build(),
        None => config.build(),
    })
}

fn delivery(record: Record) -> Delivery {
    let change = record.dynamodb.unwrap();
    let written_at = change.approximate_creation_date_time.unwrap();
    Delivery::from_stream(StreamRecord {
        event_id: record.event_id.unwrap(),
        sequence_number: change.sequence_number.unwrap(),
        written_at: Timestamp::from_second(written_at.secs()).unwrap(),
        keys: item(change.keys),
        old: item(change.old_image),
        new: item(change.new_image),
    })
}

/// The same item in the types of the DynamoDB client; empty if there is none.
fn item(image: Option<HashMap<String, StreamValue>>) -> HashMap<String, AttributeValue> {
    serde_dynamo::Item::from(image.unwrap_or_default()).into()
}
