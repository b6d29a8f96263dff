//! The consumer in front of a whole SNS and SQS: runs where `NAMESERVICE_TEST_MINISTACK` names a ministack.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use aws_sdk_sns::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::{config::SharedCredentialsProvider, types::QueueAttributeName};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use futures_util::{SinkExt as _, StreamExt as _};
use nameservice_api::doorbell::{Ring, channel};
use nameservice_signer::Signer;
use nameservice_tests::prelude::*;
use stream_consumer::{Consumer, Doorbell, QueueOfDeadLetters};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};
use topic_publisher::{DeadLetters as _, Letter, SnsTopic, TopicPublisher};

use super::{raw, records, whole, with_the_clock_stopped};

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

/// Everything in a queue, until it has had this many messages and has then been empty for a while.
async fn drain(sqs: &aws_sdk_sqs::Client, queue: &str, count: usize) -> Vec<Value> {
    let (mut bodies, mut empty, until) = (Vec::new(), 0, Instant::now() + LONG);
    while empty < 4 || bodies.len() < count && Instant::now() < until {
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
    let table = Table::with_stream().await;
    let topic = sns.create_topic().name(&table.name).send().await.unwrap().topic_arn.unwrap();
    let policies = [
        ("all", None),
        ("address", Some(json!({ "address": ["a:main"] }))),
        ("branch", Some(json!({ "name": ["a"], "branch": [{ "anything-but": ["main"] }] }))),
        ("kind", Some(json!({ "kind": ["graph_source"] }))),
        ("heads", Some(json!({ "concern": ["head"], "name": [{ "prefix": "a" }] }))),
        ("type", Some(json!({ "source_type": ["f:Bm25Index"], "concern": ["config"] }))),
        ("body", Some(json!({ "data": { "concern": ["config", "meta", "status"] } }))),
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
            if *name == "body" {
                subscribe = subscribe.attributes("FilterPolicyScope", "MessageBody");
            }
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
    let consumer = Consumer::new(store.clone(), table.feed.clone());
    let answer = consumer.handle(raw(&json!({ "Records": records(&table).await }))).await;
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");

    let dead = sqs.create_queue().queue_name(format!("{}-dead", table.name)).send().await.unwrap().queue_url.unwrap();
    let letters = topic_publisher::QueueOfDeadLetters::new(sqs.clone(), &dead);
    let topic = SnsTopic::new(sns.clone(), &topic, &table.name);
    let publisher = TopicPublisher::new(table.feed.clone(), Arc::new(topic), Arc::new(letters));
    publisher.catch_up(Some(1), None).await.unwrap();

    let changes = whole(&table.feed).await;
    let wanted: [fn(&Change) -> bool; 7] = [
        |_| true,
        |change| change.address.as_str() == "a:main",
        |change| change.address.as_str() == "a:dev",
        |change| change.identity.kind == RecordKind::GraphSource,
        |change| change.part.as_str() == "head" && change.address.name() == "a",
        |change| change.part.as_str() == "config" && change.address.as_str() == "s:main",
        |change| ["config", "meta", "status"].contains(&change.part.as_str()),
    ];
    for (((name, _), queue), wanted) in policies.iter().zip(&queues).zip(wanted) {
        let mut expected: Vec<Value> = changes
            .iter()
            .filter(|change| wanted(change))
            .map(|change| {
                let source = format!("/nameservice/{}", table.name);
                serde_json::to_value(topic_publisher::cloud_event(&source, change).unwrap()).unwrap()
            })
            .collect();
        let mut received = drain(&sqs, queue, expected.len()).await;
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
    let table = Table::with_stream().await;
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
    let mut escaped = bad.clone();
    escaped["eventID"] = "escaped".into();
    escaped["dynamodb"]["OldImage"] = json!({ "text": { "S": "\u{ffff}".repeat(80_000) } });
    batch.extend([bad.clone(), large, escaped, json!("no record")]);
    let consumer = Consumer::new(table.store.clone(), table.feed.clone()).with_dead_letters(letters);
    let answer = consumer.handle(raw(&json!({ "Records": batch }))).await;
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
    let received = drain(&sqs, &queue, 4).await;
    assert_eq!(received.len(), 4);
    let of = |id: &Value| received.iter().find(|letter| letter["record"]["eventID"] == *id).unwrap();
    assert_eq!(of(&bad["eventID"])["record"], bad, "whole");
    for id in ["large", "escaped"] {
        assert_eq!(of(&json!(id))["record"]["dynamodb"]["images_omitted"], true, "{id}");
    }
    let reasons: BTreeSet<&str> = received.iter().map(|letter| letter["reason"].as_str().unwrap()).collect();
    assert!(reasons.contains("`kind` is not of type S"), "{reasons:?}");
    assert_eq!(good, 5);
    assert_eq!(whole(&table.feed).await.len(), 3);
}

#[tokio::test]
async fn what_can_never_be_published_is_a_message_of_the_dead_letter_queue_whatever_its_size() {
    let Some(url) = endpoint() else { return };
    let sqs = sqs(&url);
    let name = format!("rejected-{}", uuid::Uuid::new_v4());
    let queue = sqs.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap();
    let letters = topic_publisher::QueueOfDeadLetters::new(sqs.clone(), &queue);
    let small = super::messages::change(1, ChangePayload::Value(json!("\u{1}\u{fffe}\u{ffff}")));
    let large = super::messages::change(2, ChangePayload::Value(json!("\u{1}".repeat(100_000))));
    let identity = Identity { kind: RecordKind::GraphSource, source_type: Some("x".repeat(300_000)) };
    let largest = Change { identity, ..super::messages::change(3, ChangePayload::None) };
    // Longer once they are escaped.
    let identity = Identity { kind: RecordKind::GraphSource, source_type: Some("\u{ffff}".repeat(80_000)) };
    let escaped = Change { identity, ..super::messages::change(4, ChangePayload::None) };
    for change in [&small, &large, &largest, &escaped] {
        letters.store(Letter::Rejected { change, reason: &"r".repeat(300_000) }).await.unwrap();
    }
    letters.store(Letter::Lost { reached: 3, oldest: 7 }).await.unwrap();
    let received = drain(&sqs, &queue, 5).await;
    let of = |position: u64| received.iter().find(|letter| letter["change"]["position"] == position).unwrap();
    assert_eq!(of(1)["change"]["payload"], "\u{1}\u{fffe}\u{ffff}");
    assert_eq!(of(2)["change"]["payload_omitted"], true);
    assert_eq!((&of(3)["change_omitted"], &of(4)["change_omitted"]), (&json!(true), &json!(true)));
    let lost = received.iter().find(|letter| letter["reached"] == 3).unwrap();
    assert!(lost["oldest"] == 7 && lost["reason"].as_str().unwrap().contains("continues at 7"), "{lost}");
}

fn appsync() -> Signer {
    Signer::new(SharedCredentialsProvider::new(credentials()), "us-east-1", "appsync")
}

/// Makes an Event API with a namespace for signed callers; returns its hosts for publishers and for subscribers.
async fn event_api(url: &str, namespace: &str) -> (String, String) {
    // An error says that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::new();
    let ask = async |path: &str, body: Value| -> Value {
        let url = format!("{url}{path}");
        let mut request = http::Request::post(&url).body(body.to_string().into_bytes()).unwrap();
        appsync().sign(&mut request, std::time::SystemTime::now()).await.unwrap();
        let (parts, body) = request.into_parts();
        let answer = http.post(url).headers(parts.headers).body(body).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    };
    let signed = json!([{ "authType": "AWS_IAM" }]);
    let config = json!({
        "authProviders": signed, "connectionAuthModes": signed,
        "defaultPublishAuthModes": signed, "defaultSubscribeAuthModes": signed,
    });
    let api = ask("/v2/apis", json!({ "name": "names", "eventConfig": config })).await;
    let id = api["api"]["apiId"].as_str().unwrap().to_owned();
    ask(&format!("/v2/apis/{id}/channelNamespaces"), json!({ "name": namespace })).await;
    let host = |kind: &str| api["api"]["dns"][kind].as_str().unwrap().to_owned();
    (host("HTTP"), host("REALTIME"))
}

struct Subscriber(WebSocketStream<TcpStream>);

impl Subscriber {
    /// Subscribes to a channel, as AppSync's clients do.
    async fn to(address: &str, host: &str, channel: &str) -> Self {
        let authorization = json!({ "host": host, "authorization": "AWS4-HMAC-SHA256 of the subscriber" });
        let header = BASE64_URL_SAFE_NO_PAD.encode(authorization.to_string());
        let mut request = format!("ws://{host}/event/realtime").into_client_request().unwrap();
        let protocols = format!("aws-appsync-event-ws, header-{header}");
        request.headers_mut().insert("sec-websocket-protocol", protocols.parse().unwrap());
        let stream = TcpStream::connect(address).await.unwrap();
        let mut subscriber = Self(client_async(request, stream).await.unwrap().0);
        subscriber.say(json!({ "type": "connection_init" })).await;
        assert_eq!(subscriber.hear().await["type"], "connection_ack");
        let subscribe = json!({ "type": "subscribe", "id": "1", "channel": channel, "authorization": authorization });
        subscriber.say(subscribe).await;
        assert_eq!(subscriber.hear().await, json!({ "type": "subscribe_success", "id": "1" }));
        subscriber
    }

    async fn say(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    /// The next message but `ka`, which keeps the connection.
    async fn hear(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.0.next().await.unwrap().unwrap() {
                let message: Value = serde_json::from_str(&text).unwrap();
                if message["type"] != "ka" {
                    return message;
                }
            }
        }
    }

    async fn ring(&mut self) -> Ring {
        let message = self.hear().await;
        assert_eq!(message["type"], "data", "{message}");
        serde_json::from_str(message["event"].as_str().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn a_reader_that_a_doorbell_wakes_finds_everything_in_the_feed() {
    let Some(url) = endpoint() else { return };
    let address = url.strip_prefix("http://").unwrap();
    let (publish, subscribe) = event_api(&url, "names").await;
    // The emulator finds an API by its host.
    let (host, _) = publish.split_once(':').unwrap();
    let http = reqwest::Client::builder().resolve(host, address.parse().unwrap()).build().unwrap();
    let doorbell = Doorbell::over(http, &format!("http://{publish}/event"), "names", Some(appsync())).unwrap();
    let service = Service::with_stream().await;
    let table = &service.table;
    let consumer = Consumer::new(table.store.clone(), table.feed.clone()).with_doorbell(doorbell);
    let (mine, others) = (at("tenant/a.b:main"), at("tenant/a-b:main"));
    let mut subscriber = Subscriber::to(address, &subscribe, &channel("names", &mine)).await;
    let mut position = 0;
    let rings = async {
        for t in 1..=3 {
            for address in [&others, &mine] {
                let call = Call::fresh();
                if t == 1 {
                    table.store.create_ledger(&call, address, Some(&new_head(1)), None).await.unwrap().applied();
                } else {
                    table.store.push_head(&call, address, &older(head(t))).await.unwrap().applied();
                }
            }
            // The whole stream: what was delivered before rings again, with the position that it has.
            let answer = consumer.handle(raw(&json!({ "Records": records(table).await }))).await;
            assert!(answer.batch_item_failures.is_empty(), "{answer:?}");
            let ring = subscriber.ring().await;
            assert!(ring.position > position);
            assert_eq!(ring.change.as_ref().map(|change| change.address.as_str()), Some(mine.as_str()));
            let path = format!("/v1/changes?after={position}&address={mine}");
            let page = service.send(http::Method::GET, &path, &[], None).await.expect(200);
            let found = page["changes"].as_array().unwrap();
            assert_eq!(found.last().unwrap(), &json!(ring.change), "the ring names the newest of what is there");
            assert!(found.iter().any(|change| change["concern"] == "head" && change["watermark"] == t));
            position = page["position"].as_u64().unwrap();
        }
    };
    with_the_clock_stopped("a ring of the doorbell", rings).await;
}
