//! The consumer in front of a whole SNS and SQS: runs where `NAMESERVICE_TEST_MINISTACK` names a ministack.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use aws_sdk_sns::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::QueueAttributeName;
use nameservice_tests::prelude::*;
use stream_consumer::{Consumer, QueueOfDeadLetters, SnsTopic};

use super::{records, whole};

const MINISTACK: &str = "NAMESERVICE_TEST_MINISTACK";

fn endpoint() -> Option<String> {
    std::env::var(MINISTACK).ok().filter(|url| !url.is_empty())
}

fn credentials() -> Credentials {
    Credentials::new("test", "test", None, None, "tests")
}

/// A client of the SNS at this URL, over connections as the product's are.
pub(super) fn sns(url: &str) -> aws_sdk_sns::Client {
    let mut config = aws_sdk_sns::config::Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(url)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(credentials());
    config.set_http_client(nameservice_store::endpoint_client(url).config().http_client());
    aws_sdk_sns::Client::from_conf(config.build())
}

fn sqs(url: &str) -> aws_sdk_sqs::Client {
    let mut config = aws_sdk_sqs::config::Builder::new()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(url)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(credentials());
    config.set_http_client(nameservice_store::endpoint_client(url).config().http_client());
    aws_sdk_sqs::Client::from_conf(config.build())
}

/// Everything in a queue, until it has been empty for a while.
async fn drain(sqs: &aws_sdk_sqs::Client, queue: &str) -> Vec<Value> {
    let (mut bodies, mut empty) = (Vec::new(), 0);
    while empty < 4 {
        let received = sqs.receive_message().queue_url(queue).max_number_of_messages(10).send().await.unwrap();
        let messages = received.messages.unwrap_or_default();
        if messages.is_empty() {
            empty += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for message in messages {
            bodies.push(serde_json::from_str(message.body().unwrap()).unwrap());
            sqs.delete_message()
                .queue_url(queue)
                .receipt_handle(message.receipt_handle().unwrap())
                .send()
                .await
                .unwrap();
        }
    }
    bodies
}

#[tokio::test]
async fn subscribers_get_exactly_what_their_filter_policies_name() {
    let Some(url) = endpoint() else { return };
    let (sns, sqs) = (sns(&url), sqs(&url));
    let table = Table::fresh().await;
    let topic = sns.create_topic().name(&table.name).send().await.unwrap().topic_arn.unwrap();
    let policies = [
        ("all", None),
        ("address", Some(json!({ "address": ["a:main"] }))),
        ("branch", Some(json!({ "name": ["a"], "branch": [{ "anything-but": ["main"] }] }))),
        ("kind", Some(json!({ "kind": ["graph_source"] }))),
        ("heads", Some(json!({ "concern": ["head"], "name": [{ "prefix": "a" }] }))),
        ("type", Some(json!({ "source_type": ["f:Bm25Index"], "concern": ["config"] }))),
    ];
    let mut queues = Vec::new();
    for (name, policy) in &policies {
        let queue = sqs.create_queue().queue_name(format!("{}-{name}", table.name)).send().await.unwrap();
        let queue = queue.queue_url.unwrap();
        let attributes =
            sqs.get_queue_attributes().queue_url(&queue).attribute_names(QueueAttributeName::QueueArn).send().await;
        let arn = attributes.unwrap().attributes.unwrap()[&QueueAttributeName::QueueArn].clone();
        let mut subscribe =
            sns.subscribe().topic_arn(&topic).protocol("sqs").endpoint(arn).attributes("RawMessageDelivery", "true");
        if let Some(policy) = policy {
            subscribe = subscribe.attributes("FilterPolicy", policy.to_string());
        }
        subscribe.send().await.unwrap();
        queues.push(queue);
    }

    let store = &table.store;
    store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    store.create_ledger(&Call::fresh(), &at("b:main"), Some(&new_head(1)), None).await.unwrap().applied();
    store.create_branch(&Call::fresh(), &at("a:dev"), &at("a:main"), None).await.unwrap().applied();
    store
        .publish_graph_source(&Call::fresh(), &bm25("s:main", json!({ "k1": 1 }), &["a:main"]))
        .await
        .unwrap()
        .applied();
    for t in 2..=15 {
        store.push_head(&Call::fresh(), &at("a:main"), &older(head(t))).await.unwrap().applied();
    }
    let consumer = Consumer::new(store.clone(), table.feed.clone()).with_topic(Arc::new(SnsTopic::new(
        sns.clone(),
        &topic,
        &table.name,
    )));
    let answer = consumer.handle(json!({ "Records": records(&table).await })).await;
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");

    let changes = whole(&table.feed).await;
    let wanted: [fn(&Change) -> bool; 6] = [
        |_| true,
        |change| change.address.as_str() == "a:main",
        |change| change.address.as_str() == "a:dev",
        |change| change.identity.kind == RecordKind::GraphSource,
        |change| change.part.as_str() == "head" && change.address.name() == "a",
        |change| change.part.as_str() == "config" && change.address.as_str() == "s:main",
    ];
    for (((name, _), queue), wanted) in policies.iter().zip(&queues).zip(wanted) {
        let mut expected: Vec<Value> = changes
            .iter()
            .filter(|change| wanted(change))
            .map(|change| {
                let source = format!("/nameservice/{}", table.name);
                serde_json::to_value(stream_consumer::cloud_event(&source, change).unwrap()).unwrap()
            })
            .collect();
        let mut received = drain(&sqs, queue).await;
        received.sort_by_key(Value::to_string);
        expected.sort_by_key(Value::to_string);
        assert!(!expected.is_empty());
        assert_eq!(received, expected, "{name}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_a_message_of_the_dead_letter_queue() {
    let Some(url) = endpoint() else { return };
    let sqs = sqs(&url);
    let table = Table::fresh().await;
    let queue = sqs.create_queue().queue_name(format!("{}-dead", table.name)).send().await.unwrap().queue_url.unwrap();
    let letters = Arc::new(QueueOfDeadLetters::new(sqs.clone(), &queue));
    table.store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    let mut batch = records(&table).await;
    let good = batch.len();
    let mut bad = batch[0].clone();
    bad["dynamodb"]["NewImage"]["kind"] = json!({ "N": "1" });
    bad["dynamodb"]["NewImage"]["text"] = json!({ "S": "ü\u{1}\u{fffe}\u{ffff}" });
    bad["dynamodb"]["Keys"]["sk"] = json!({ "S": "meta" });
    let mut large = bad.clone();
    large["eventID"] = "large".into();
    large["dynamodb"]["OldImage"] = json!({ "text": { "S": "x".repeat(400_000) } });
    batch.extend([bad.clone(), large, json!("no record")]);
    let consumer = Consumer::new(table.store.clone(), table.feed.clone()).with_dead_letters(letters);
    let answer = consumer.handle(json!({ "Records": batch })).await;
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
    let received = drain(&sqs, &queue).await;
    assert_eq!(received.len(), 3);
    let of = |id: &Value| received.iter().find(|letter| letter["record"]["eventID"] == *id).unwrap();
    assert_eq!(of(&bad["eventID"])["record"], bad, "whole");
    assert_eq!(of(&json!("large"))["record"]["dynamodb"]["images_omitted"], true);
    let reasons: BTreeSet<&str> = received.iter().map(|letter| letter["reason"].as_str().unwrap()).collect();
    assert!(reasons.contains("`kind` is not of type S"), "{reasons:?}");
    assert_eq!(good, 5);
    assert_eq!(whole(&table.feed).await.len(), 3);
}
