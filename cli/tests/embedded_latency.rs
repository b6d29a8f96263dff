//! How long a write to the embedded engine takes, early and late in the life of a table with a stream.
//!
//! `cargo test -p nameservice-cli --test embedded_latency -- --ignored --nocapture` prints it.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot be set up has failed")]

use std::time::{Duration, Instant};

use aws_sdk_dynamodb::{
    Client,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
        StreamSpecification, StreamViewType,
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

async fn measure(title: &str, engine: Engine) {
    let client = endpoint_client(&engine.url());
    create_table(&client).await;
    let mut t = 0;
    let mut early = Duration::ZERO;
    for mark in [1, 5_000, 20_000] {
        if mark > t {
            let ahead = mark - t;
            advance(&client, &mut t, ahead).await;
        }
        let median = advance(&client, &mut t, SAMPLE).await;
        println!("{title}: {median:?} a write after {mark} writes");
        if mark == 1 {
            early = median;
        }
        assert!(median < early * 2 + Duration::from_millis(1), "{title}: {early:?} at first, {median:?} after {mark}");
    }
}

#[tokio::test]
#[ignore = "takes a minute or two"]
async fn writes_take_as_long_after_twenty_thousand_as_at_first() {
    measure("in memory", Engine::in_memory().unwrap()).await;
    let directory = tempfile::tempdir().unwrap();
    measure("on disk", Engine::open(directory.path()).unwrap()).await;
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        println!("{}: {} KiB", file.file_name().to_string_lossy(), file.metadata().unwrap().len() / 1024);
    }
}
