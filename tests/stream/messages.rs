//! Published messages: CloudEvents with attributes, in batches within SNS's limits, and what rejected entries mean. A listener
//! for SNS's own requests replaces the topic; `ministack` has a complete one.

use std::sync::{Arc, Mutex};

use axum::{Router, extract::State, routing::post};
use cloudevents::{AttributesReader, Data, Event};
use jiff::Timestamp;
use nameservice_tests::{prelude::*, table::Table};
use stream_consumer::{SnsTopic, Topic, cloud_event};
use tokio::net::TcpListener;

fn change(position: u64, payload: ChangePayload) -> Change {
    Change {
        position,
        address: at("search/en:v2"),
        identity: Identity { kind: RecordKind::GraphSource, source_type: Some("f:Bm25Index".into()) },
        part: ChangedPart::Concern(ConcernKind::Config),
        kind: ChangeKind::Updated,
        watermark: 7,
        previous: Some(6),
        payload,
        occurred_at: Timestamp::from_millisecond(1_767_225_600_123).unwrap(),
        recorded_at: Timestamp::from_millisecond(1_767_225_601_000).unwrap(),
    }
}

#[test]
fn a_body_is_a_valid_cloud_event() {
    let reported = change(42, ChangePayload::Value(json!({ "k1": 1.2 })));
    let text = serde_json::to_string(&cloud_event("/nameservice/my-table", &reported).unwrap()).unwrap();
    let body: Value = serde_json::from_str(&text).unwrap();
    // What the specification requires, and the types of all attributes.
    assert_eq!(body["specversion"], "1.0");
    assert_eq!(body["id"], "feed#0:42");
    assert_eq!(body["source"], "/nameservice/my-table");
    assert_eq!(body["type"], "nameservice.config.updated");
    assert_eq!(body["subject"], "search/en:v2");
    assert_eq!(body["datacontenttype"], "application/json");
    let time: Timestamp = body["time"].as_str().unwrap().parse().unwrap();
    assert_eq!(time, reported.occurred_at);
    assert!(body["source"].as_str().unwrap().parse::<http::Uri>().is_ok(), "a URI reference");
    for name in body.as_object().unwrap().keys() {
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) && name.len() <= 20, "{name}");
    }
    let expected = json!({
        "position": 42, "address": "search/en:v2", "kind": "graph_source", "name": "search/en", "branch": "v2",
        "source_type": "f:Bm25Index", "concern": "config", "change": "updated", "watermark": 7, "previous": 6,
        "payload": { "k1": 1.2 }, "occurred_at": "2026-01-01T00:00:00.123Z", "recorded_at": "2026-01-01T00:00:01.000Z"
    });
    assert_eq!(body["data"], expected);
    // The same, as another library reads it.
    let event: Event = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (event.id(), event.ty(), event.subject()),
        ("feed#0:42", "nameservice.config.updated", Some("search/en:v2"))
    );
    assert_eq!(event.data(), Some(&Data::Json(expected)));
}

#[test]
fn a_payload_that_was_left_out_is_marked() {
    let body =
        serde_json::to_value(cloud_event("/nameservice/t", &change(1, ChangePayload::Omitted)).unwrap()).unwrap();
    assert_eq!((&body["data"]["payload_omitted"], body["data"].get("payload")), (&json!(true), None));
}

#[derive(Clone, Debug)]
struct Message {
    body: String,
    attributes: Vec<(String, String)>,
}

/// The requests that the listener has received, and the messages that it rejects.
#[derive(Clone, Default)]
struct Sns {
    batches: Arc<Mutex<Vec<Vec<Message>>>>,
    /// Texts in bodies of messages that are rejected once.
    rejected: Arc<Mutex<Vec<String>>>,
    /// Whole requests that are rejected.
    away: Arc<Mutex<bool>>,
}

async fn publish_batch(State(sns): State<Sns>, body: String) -> (http::StatusCode, String) {
    if *sns.away.lock().unwrap() {
        return (
            http::StatusCode::FORBIDDEN,
            "<ErrorResponse><Error><Code>AuthorizationError</Code></Error></ErrorResponse>".into(),
        );
    }
    let form: Vec<(String, String)> = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let get = |name: String| form.iter().find(|(found, _)| *found == name).map(|(_, value)| value.clone());
    assert_eq!(get("Action".into()).unwrap(), "PublishBatch");
    let (mut batch, mut failed, mut successful) = (Vec::new(), String::new(), String::new());
    for n in 1.. {
        let entry = format!("PublishBatchRequestEntries.member.{n}");
        let Some(id) = get(format!("{entry}.Id")) else { break };
        let attribute = |m: usize, what: &str| get(format!("{entry}.MessageAttributes.entry.{m}.{what}"));
        let mut attributes: Vec<_> =
            (1..).map_while(|m| Some((attribute(m, "Name")?, attribute(m, "Value.StringValue")?))).collect();
        attributes.sort();
        let body = get(format!("{entry}.Message")).unwrap();
        let mut rejected = sns.rejected.lock().unwrap();
        match rejected.iter().position(|text| body.contains(text.as_str())) {
            Some(found) => {
                rejected.remove(found);
                failed.push_str(&format!(
                    "<member><Id>{id}</Id><Code>InternalError</Code><SenderFault>false</SenderFault></member>"
                ));
            }
            None => successful.push_str(&format!("<member><Id>{id}</Id><MessageId>m</MessageId></member>")),
        }
        batch.push(Message { body, attributes });
    }
    sns.batches.lock().unwrap().push(batch);
    let answer = format!(
        "<PublishBatchResponse><PublishBatchResult><Failed>{failed}</Failed><Successful>{successful}</Successful>\
         </PublishBatchResult><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></PublishBatchResponse>"
    );
    (http::StatusCode::OK, answer)
}

async fn topic() -> (Sns, SnsTopic) {
    let sns = Sns::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/", post(publish_batch)).with_state(sns.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = super::ministack::sns(&url);
    (sns, SnsTopic::new(client, "arn:aws:sns:us-east-1:000000000000:changes", "my-table"))
}

fn sizes(sns: &Sns) -> Vec<usize> {
    sns.batches.lock().unwrap().iter().map(Vec::len).collect()
}

#[tokio::test]
async fn batches_hold_ten_messages_and_what_fits_256_kib() {
    let (sns, topic) = topic().await;
    let small: Vec<Change> = (1..=23).map(|n| change(n, ChangePayload::None)).collect();
    topic.publish(&small).await.unwrap();
    assert_eq!(sizes(&sns), [10, 10, 3]);

    sns.batches.lock().unwrap().clear();
    // Ten payloads of 16 KiB fit; escaped in JSON twice, they are larger.
    let large = |text: &str| {
        (1..=20).map(|n| change(n, ChangePayload::Value(json!(text.repeat(15_000 / text.len()))))).collect::<Vec<_>>()
    };
    topic.publish(&large("x")).await.unwrap();
    assert_eq!(sizes(&sns), [10, 10]);
    sns.batches.lock().unwrap().clear();
    topic.publish(&large("\u{1}")).await.unwrap();
    let batches = sns.batches.lock().unwrap().clone();
    assert!(batches.len() > 2);
    for batch in &batches {
        let of = |message: &Message| {
            message.body.len()
                + message.attributes.iter().map(|(name, value)| name.len() + value.len() + 6).sum::<usize>()
        };
        assert!(batch.iter().map(of).sum::<usize>() <= 256 * 1024);
    }
    let positions: Vec<Value> = batches
        .concat()
        .iter()
        .map(|message| serde_json::from_str::<Value>(&message.body).unwrap()["data"]["position"].clone())
        .collect();
    assert_eq!(positions, (1..=20).map(Value::from).collect::<Vec<_>>(), "in order");
}

#[tokio::test]
async fn attributes_say_what_subscribers_filter_by() {
    let (sns, topic) = topic().await;
    let ledger =
        Change { identity: Identity { kind: RecordKind::Ledger, source_type: None }, ..change(2, ChangePayload::None) };
    topic.publish(&[change(1, ChangePayload::None), ledger]).await.unwrap();
    let batch = sns.batches.lock().unwrap()[0].clone();
    let pairs = |message: &Message| {
        message.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let common = ["address=search/en:v2", "branch=v2", "concern=config"];
    assert_eq!(
        pairs(&batch[0]),
        [&common[..], &["kind=graph_source", "name=search/en", "source_type=f:Bm25Index"]].concat()
    );
    assert_eq!(pairs(&batch[1]), [&common[..], &["kind=ledger", "name=search/en"]].concat());
}

#[tokio::test]
async fn a_rejection_names_the_first_that_was_not_published() {
    let changes: Vec<Change> = (1..=23).map(|n| change(n, ChangePayload::None)).collect();
    for (rejected, published) in [(vec![15, 13], 12), (vec![1], 0), (vec![23], 22), (vec![10], 9)] {
        let (sns, topic) = topic().await;
        *sns.rejected.lock().unwrap() = rejected.iter().map(|n| format!("\"feed#0:{n}\"")).collect();
        let failed = topic.publish(&changes).await.unwrap_err();
        assert_eq!(failed.published, published);
        assert!(failed.source.to_string().contains("InternalError"), "{}", failed.source);
        topic.publish(&changes).await.unwrap();
    }
    let (sns, topic) = topic().await;
    *sns.away.lock().unwrap() = true;
    assert_eq!(topic.publish(&changes).await.unwrap_err().published, 0);
}

#[tokio::test]
async fn a_batch_that_the_topic_takes_in_part_is_answered_with_the_record_of_the_first_that_is_left() {
    let table = Table::with_stream().await;
    table.store.create_ledger(&Call::fresh(), &at("a:main"), Some(&new_head(1)), None).await.unwrap().applied();
    for t in 2..=30 {
        table.store.push_head(&Call::fresh(), &at("a:main"), &older(head(t))).await.unwrap().applied();
    }
    let (sns, topic) = topic().await;
    *sns.rejected.lock().unwrap() = vec!["\"feed#0:17\"".to_owned()];
    let consumer = stream_consumer::Consumer::new(table.store.clone(), table.feed.clone()).with_topic(Arc::new(topic));
    let records = super::records(&table).await;
    let answer = consumer.handle(json!({ "Records": records })).await;
    let named = answer.batch_item_failures[0].item_identifier.clone().unwrap();
    let failed =
        records.iter().position(|record| nameservice_tests::mapping::sequence_number(record) == named).unwrap();
    let changes = super::whole(&table.feed).await;
    assert_eq!(records[failed]["dynamodb"]["NewImage"]["commit_t"]["N"], changes[16].watermark.to_string());
    let rest = consumer.handle(json!({ "Records": records[failed..] })).await;
    assert!(rest.batch_item_failures.is_empty());
    // Each continues the trace of the call whose id its row has; a meta item has none.
    let contexts = |records: &[Value]| -> Vec<Option<String>> {
        let id = |record: &Value| record["dynamodb"]["NewImage"]["request_id"]["S"].as_str().map(str::to_owned);
        records.iter().map(|record| RequestId::stored(id(record)?).traceparent()).collect()
    };
    let sent = sns.batches.lock().unwrap().concat();
    let attribute = |message: &Message| {
        message.attributes.iter().find(|(name, _)| name == "traceparent").map(|(_, value)| value.clone())
    };
    let expected: std::collections::BTreeSet<_> = contexts(&records).into_iter().flatten().collect();
    assert_eq!(sent.iter().filter_map(attribute).collect::<std::collections::BTreeSet<_>>(), expected);
    assert!(expected.len() >= 30 && sent.iter().any(|message| attribute(message).is_none()));
    let published: std::collections::BTreeSet<String> =
        sns.batches.lock().unwrap().concat().into_iter().map(|message| message.body).collect();
    assert_eq!(published.len(), changes.len(), "each with the same body each time");
}
