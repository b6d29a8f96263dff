//! How long a write to the embedded engine takes, early and late in the life of a table with a stream.
//!
//! `cargo test -p nameservice-cli --test embedded_latency -- --ignored --nocapture` prints it.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot be set up has failed")]

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::{
    Client,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, PutRequest, ScalarAttributeType,
        StreamSpecification, StreamViewType, WriteRequest,
    },
};
use nameservice_cli::embedded::Engine;
use nameservice_store::endpoint_client;

const TABLE: &str = "latency";
/// How many writes are measured at each mark.
const SAMPLE: u32 = 200;

async fn create_table(client: &Client) {
    let name = |name: &str| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build().unwrap()
    };
    let key = |name: &str, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    client
        .create_table()
        .table_name(TABLE)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(vec![name("pk"), name("sk")]))
        .set_key_schema(Some(vec![key("pk", KeyType::Hash), key("sk", KeyType::Range)]))
        .stream_specification(
            StreamSpecification::builder()
                .stream_enabled(true)
                .stream_view_type(StreamViewType::NewAndOldImages)
                .build()
                .unwrap(),
        )
        .send()
        .await
        .unwrap();
}

/// Advances one head `count` times, each on the condition that it is older, and returns the median time of one: other
/// work on the machine spoils a mean.
async fn advance(client: &Client, t: &mut u32, count: u32) -> Duration {
    let mut times = Vec::new();
    for _ in 0..count {
        *t += 1;
        let begun = Instant::now();
        client
            .update_item()
            .table_name(TABLE)
            .key("pk", AttributeValue::S("mydb:main".into()))
            .key("sk", AttributeValue::S("head".into()))
            .update_expression("SET commit_t = :t, commit_id = :id")
            .condition_expression("attribute_not_exists(commit_t) OR commit_t < :t")
            .expression_attribute_values(":t", AttributeValue::N(t.to_string()))
            .expression_attribute_values(":id", AttributeValue::S(format!("bafy{t}")))
            .send()
            .await
            .unwrap();
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

/// Writes other items, by the batch, so that the stream has so many more records.
async fn fill(client: &Client, records: u32) {
    let mut left = records;
    while left > 0 {
        let batch = left.min(25);
        left -= batch;
        let puts = (0..batch).map(|i| {
            let put = PutRequest::builder()
                .item("pk", AttributeValue::S(format!("filler-{i}")))
                .item("sk", AttributeValue::S("head".into()))
                .item("commit_t", AttributeValue::N(left.to_string()))
                .build()
                .unwrap();
            WriteRequest::builder().put_request(put).build()
        });
        client.batch_write_item().request_items(TABLE, puts.collect()).send().await.unwrap();
    }
}

/// The sequence number of the last record of the stream.
async fn last_in_stream(client: &Client, engine: &Engine) -> String {
    let streams = aws_sdk_dynamodbstreams::Client::new(&nameservice_dynamo::endpoint_config(&engine.url()));
    let table = client.describe_table().table_name(TABLE).send().await.unwrap().table.unwrap();
    let stream = streams.describe_stream().set_stream_arn(table.latest_stream_arn).send().await.unwrap();
    let stream = stream.stream_description.unwrap();
    stream.shards()[0].sequence_number_range.clone().unwrap().ending_sequence_number.unwrap()
}

async fn measure(title: &str, engine: Engine) {
    let client = endpoint_client(&engine.url());
    create_table(&client).await;
    let (mut t, mut records, mut early) = (0, 0, Duration::ZERO);
    for mark in [1, 10_000, 100_000] {
        fill(&client, mark - records).await;
        let median = advance(&client, &mut t, SAMPLE).await;
        records = mark + SAMPLE;
        println!("{title}: {median:?} a write after {mark} stream records that nobody has read");
        if mark == 1 {
            early = median;
        }
        assert!(median < early * 2 + Duration::from_millis(1), "{title}: {early:?} at first, {median:?} after {mark}");
    }
    let last = last_in_stream(&client, &engine).await;
    engine.trimmer().passed(TABLE, &last);
    // Long enough for the housekeeping to be in the middle of it.
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(4) {
        slowest = slowest.max(advance(&client, &mut t, 20).await);
    }
    println!("{title}: {slowest:?} a write at worst while they are dropped (median of 20)");
    let median = advance(&client, &mut t, SAMPLE).await;
    println!("{title}: {median:?} a write after they were dropped");
    assert!(slowest < early * 4 + Duration::from_millis(4), "{title}: {early:?} at first, {slowest:?} while trimming");
    tokio::task::spawn_blocking(move || engine.stop()).await.unwrap();
}

#[tokio::test]
#[ignore = "takes a minute or two"]
async fn writes_take_as_long_after_a_hundred_thousand_stream_records_as_at_first() {
    measure("in memory", Engine::in_memory().unwrap()).await;
    let directory = tempfile::tempdir().unwrap();
    measure("on disk", Engine::open(directory.path()).unwrap()).await;
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        println!("{}: {} KiB", file.file_name().to_string_lossy(), file.metadata().unwrap().len() / 1024);
    }
}
