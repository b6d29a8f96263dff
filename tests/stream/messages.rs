//! Published messages: CloudEvents with attributes, in batches within SNS's limits, and what rejected entries mean. A listener
//! for SNS's own requests replaces the topic, with the rules for messages that AWS documents and emulators do not have; `ministack` has a
//! complete one.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::State, routing::post};
use cloudevents::{AttributesReader, Data, Event};
use jiff::Timestamp;
use nameservice_tests::prelude::*;
use tokio::{
    net::TcpListener,
    sync::Barrier,
    time::{Instant, timeout},
};
use topic_publisher::{Rejected, SnsTopic, Topic, cloud_event};

pub(super) fn change(position: u64, payload: ChangePayload) -> Change {
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
    /// The code with which whole requests are rejected.
    away: Arc<Mutex<Option<&'static str>>>,
    /// A text in the body of a message for which its whole request is rejected as invalid.
    poison: Arc<Mutex<Option<String>>>,
    /// Requests are answered once this many have come.
    together: Arc<Mutex<Option<Arc<Barrier>>>>,
    /// The addresses of the requests that are under way.
    under_way: Arc<Mutex<BTreeSet<String>>>,
}

/// Whether SNS accepts the value of an attribute: it is not empty, and has no character above U+FFFF
/// (<https://docs.aws.amazon.com/sns/latest/dg/sns-message-attributes.html>).
fn is_accepted(value: &str) -> bool {
    !value.is_empty() && value.chars().all(|c| c <= '\u{ffff}')
}

async fn publish_batch(State(sns): State<Sns>, body: String) -> (http::StatusCode, String) {
    let rejection = |code: &str| {
        let answer = format!("<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code></Error></ErrorResponse>");
        (http::StatusCode::BAD_REQUEST, answer)
    };
    if let Some(code) = *sns.away.lock().unwrap() {
        return rejection(code);
    }
    if sns.poison.lock().unwrap().as_ref().is_some_and(|text| body.contains(text)) {
        return rejection("InvalidParameter");
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
        if attributes.iter().any(|(_, value)| !is_accepted(value)) {
            failed.push_str(&format!(
                "<member><Id>{id}</Id><Code>InvalidParameter</Code><SenderFault>true</SenderFault></member>"
            ));
            continue;
        }
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
    let size = |message: &Message| {
        message.body.len() + message.attributes.iter().map(|(name, value)| name.len() + value.len() + 6).sum::<usize>()
    };
    if batch.iter().map(size).sum::<usize>() > 256 * 1024 {
        return rejection("BatchRequestTooLong");
    }
    let address = |message: &Message| message.attributes.iter().find(|(name, _)| name == "address").unwrap().1.clone();
    let addresses: BTreeSet<String> = batch.iter().map(address).collect();
    for address in &addresses {
        assert!(sns.under_way.lock().unwrap().insert(address.clone()), "two requests with {address} at the same time");
    }
    sns.batches.lock().unwrap().push(batch);
    let together = sns.together.lock().unwrap().clone();
    match together {
        Some(together) => {
            together.wait().await;
        }
        // Whatever else is sent now arrives before the answer.
        None => {
            for _ in 0..500 {
                tokio::task::yield_now().await;
            }
        }
    }
    sns.under_way.lock().unwrap().retain(|address| !addresses.contains(address));
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
    assert_eq!(topic.publish(&small, None).await.done, 23);
    assert_eq!(sizes(&sns), [10, 10, 3]);

    sns.batches.lock().unwrap().clear();
    // Ten payloads of 16 KiB fit; escaped in JSON twice, they are larger.
    let large = |text: &str| {
        (1..=20).map(|n| change(n, ChangePayload::Value(json!(text.repeat(15_000 / text.len()))))).collect::<Vec<_>>()
    };
    assert_eq!(topic.publish(&large("x"), None).await.done, 20);
    assert_eq!(sizes(&sns), [10, 10]);
    sns.batches.lock().unwrap().clear();
    let published = topic.publish(&large("\u{1}"), None).await;
    assert_eq!((published.done, published.rejected.len()), (20, 0));
    let batches = sns.batches.lock().unwrap().clone();
    assert!(batches.len() > 2);
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
    assert_eq!(topic.publish(&[change(1, ChangePayload::None), ledger], None).await.done, 2);
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
async fn attributes_have_what_sns_accepts_whatever_the_names() {
    let names = [
        ("plain", "plain"),
        ("100%", "100%"),
        ("größe", "größe"),
        ("\u{fffd}", "\u{fffd}"),
        ("\u{20bb7}野家", "%F0%A0%AE%B7野家"),
        ("a\"b", "a%22b"),
        ("a\\b", "a%5Cb"),
        ("a%\tb", "a%25%09b"),
        ("\u{85}", "%C2%85"),
        ("\u{ffff}", "%EF%BF%BF"),
    ];
    for (name, expected) in names {
        let (sns, topic) = topic().await;
        let named = Change {
            address: Address::stored(format!("{name}:main")),
            identity: Identity { kind: RecordKind::GraphSource, source_type: Some(name.to_owned()) },
            ..change(1, ChangePayload::None)
        };
        let published = topic.publish(&[named], None).await;
        assert!(
            published.done == 1 && published.rejected.is_empty() && published.error.is_none(),
            "{name:?}: {published:?}"
        );
        let message = sns.batches.lock().unwrap()[0][0].clone();
        let of = |name: &str| message.attributes.iter().find(|(found, _)| found == name).unwrap().1.clone();
        assert_eq!(
            (of("name"), of("source_type"), of("address")),
            (expected.into(), expected.into(), format!("{expected}:main"))
        );
        let body: Value = serde_json::from_str(&message.body).unwrap();
        assert_eq!(body["data"]["name"], name, "the body has it as it is");
    }
}

#[tokio::test]
async fn a_failure_names_the_first_that_was_not_published() {
    let changes: Vec<Change> = (1..=23).map(|n| change(n, ChangePayload::None)).collect();
    for (rejected, done) in [(vec![15, 13], 12), (vec![1], 0), (vec![23], 22), (vec![10], 9)] {
        let (sns, topic) = topic().await;
        *sns.rejected.lock().unwrap() = rejected.iter().map(|n| format!("\"feed#0:{n}\"")).collect();
        let published = topic.publish(&changes, None).await;
        assert_eq!((published.done, published.rejected.len()), (done, 0));
        let error = published.error.unwrap().to_string();
        assert!(error.contains("InternalError"), "{error}");
        let again = topic.publish(&changes, None).await;
        assert!(again.done == 23 && again.error.is_none());
    }
}

#[tokio::test]
async fn only_what_a_message_is_rejects_it_permanently() {
    let changes: Vec<Change> = (1..=5).map(|n| change(n, ChangePayload::None)).collect();
    // These can be repaired.
    for code in [
        "AuthorizationError",
        "KMSAccessDenied",
        "KMSDisabled",
        "NotFound",
        "Throttled",
        "InternalError",
        "InvalidSecurity",
    ] {
        let (sns, topic) = topic().await;
        *sns.away.lock().unwrap() = Some(code);
        let published = topic.publish(&changes, None).await;
        assert!(
            published.done == 0 && published.rejected.is_empty() && published.error.is_some(),
            "{code}: {published:?}"
        );
        *sns.away.lock().unwrap() = None;
        assert_eq!(topic.publish(&changes, None).await.done, 5);
    }
    for code in ["InvalidParameter", "InvalidParameterValue", "ParameterValueInvalid"] {
        let (sns, topic) = topic().await;
        *sns.away.lock().unwrap() = Some(code);
        let published = topic.publish(&changes, None).await;
        let places: Vec<usize> = published.rejected.iter().map(|rejected| rejected.place).collect();
        assert!(published.done == 5 && places == [0, 1, 2, 3, 4] && published.error.is_none(), "{code}: {published:?}");
    }
    // One that is too large alone, in a request of its own.
    let (sns, topic) = topic().await;
    let mut changes = changes;
    changes[2].payload = ChangePayload::Value(json!("x".repeat(300 * 1024)));
    let published = topic.publish(&changes, None).await;
    assert!(matches!(&published.rejected[..], [Rejected { place: 2, .. }]) && published.done == 5, "{published:?}");
    let bodies: Vec<String> = sns.batches.lock().unwrap().concat().into_iter().map(|message| message.body).collect();
    for n in [1, 2, 4, 5] {
        assert_eq!(bodies.iter().filter(|body| body.contains(&format!("\"feed#0:{n}\""))).count(), 1, "{n}");
    }
}

#[tokio::test]
async fn a_request_that_is_rejected_as_a_whole_is_split_until_one_message_is_left() {
    let changes: Vec<Change> = (1..=20).map(|n| change(n, ChangePayload::None)).collect();
    for poisoned in [1, 7, 10, 11, 20] {
        let (sns, topic) = topic().await;
        *sns.poison.lock().unwrap() = Some(format!("feed%230%3A{poisoned}%22"));
        let published = topic.publish(&changes, None).await;
        assert!(matches!(&published.rejected[..], [Rejected { place, .. }] if *place == poisoned - 1), "{published:?}");
        assert!(published.done == 20 && published.error.is_none(), "{published:?}");
        let bodies: Vec<String> =
            sns.batches.lock().unwrap().concat().into_iter().map(|message| message.body).collect();
        let positions: Vec<u64> = bodies
            .iter()
            .map(|body| serde_json::from_str::<Value>(body).unwrap()["data"]["position"].as_u64().unwrap())
            .collect();
        let expected: Vec<u64> = (1..=20).filter(|n| *n != poisoned as u64).collect();
        assert_eq!(positions, expected, "each of the others once, in order");
    }
}

/// A hundred changes, each of the record with this number.
fn of_records(record: impl Fn(u64) -> u64) -> Vec<Change> {
    (0..100)
        .map(|n| Change { address: at(&format!("db{}:main", record(n))), ..change(n + 1, ChangePayload::None) })
        .collect()
}

#[tokio::test]
async fn ten_requests_are_under_way_at_the_same_time_and_those_of_one_record_in_turn() {
    let (sns, topic) = topic().await;
    *sns.together.lock().unwrap() = Some(Arc::new(Barrier::new(10)));
    let published = timeout(LONG, topic.publish(&of_records(|n| n / 10), None)).await.expect("ten requests together");
    assert!(published.done == 100 && published.error.is_none(), "{published:?}");
    *sns.together.lock().unwrap() = None;
    // The listener accepts no two requests with the same record.
    let records: [fn(u64) -> u64; 3] = [|n| n * 7 % 23, |n| n / 15, |_| 1];
    for record in records {
        sns.batches.lock().unwrap().clear();
        let published = topic.publish(&of_records(record), None).await;
        assert!(published.done == 100 && published.error.is_none(), "{published:?}");
        assert_eq!(sizes(&sns), [10; 10]);
    }
}

#[tokio::test]
async fn what_one_of_the_requests_at_the_same_time_does_not_publish_comes_again() {
    let changes = of_records(|n| n / 10);
    let (sns, topic) = topic().await;
    *sns.rejected.lock().unwrap() = vec!["\"feed#0:45\"".to_owned(), "\"feed#0:32\"".to_owned()];
    let published = topic.publish(&changes, None).await;
    assert!(published.done == 31 && published.error.is_some(), "{published:?}");
    // One that is rejected as a whole is split, and the others of its wave are not sent again.
    sns.batches.lock().unwrap().clear();
    *sns.poison.lock().unwrap() = Some("feed%230%3A44%22".to_owned());
    let published = topic.publish(&changes, None).await;
    assert!(matches!(&published.rejected[..], [Rejected { place: 43, .. }]), "{published:?}");
    assert!(published.done == 100 && published.error.is_none(), "{published:?}");
    assert_eq!(sizes(&sns).iter().sum::<usize>(), 99);
}

/// The others of its wave had been tried already: what waits behind them was not, though it comes first.
#[tokio::test]
async fn a_request_that_is_to_be_split_is_not_done_if_a_later_one_fails() {
    let changes = of_records(|n| n / 10);
    let (sns, topic) = topic().await;
    *sns.poison.lock().unwrap() = Some("feed%230%3A4%22".to_owned());
    *sns.rejected.lock().unwrap() = vec!["\"feed#0:25\"".to_owned()];
    let published = topic.publish(&changes, None).await;
    assert!(published.done == 0 && published.error.is_some() && published.rejected.is_empty(), "{published:?}");
    let again = topic.publish(&changes, None).await;
    assert!(again.done == 100 && again.error.is_none(), "{again:?}");
    assert!(matches!(&again.rejected[..], [Rejected { place: 3, .. }]), "{again:?}");
}

#[tokio::test]
async fn no_request_is_sent_after_the_deadline() {
    let (sns, topic) = topic().await;
    let published = topic.publish(&of_records(|n| n), Some(Instant::now())).await;
    assert!(published.done == 0 && published.error.is_none() && sizes(&sns).is_empty(), "{published:?}");
}

/// A queue that subscribes gets the body as its message, and SQS rejects these two characters.
#[tokio::test]
async fn a_body_has_no_character_that_a_queue_rejects() {
    let (sns, topic) = topic().await;
    let text = "\u{fffe}\u{ffff}";
    topic.publish(&[change(1, ChangePayload::Value(json!(text)))], None).await;
    let body = sns.batches.lock().unwrap()[0][0].body.clone();
    assert!(!body.contains(['\u{fffe}', '\u{ffff}']), "{body}");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["data"]["payload"], text);
}
