//! The doorbell of AppSync Events: what it publishes, what it does about answers that are none, and that the feed continues
//! without it. A listener that takes events as AppSync does stands in for it; `ministack` has subscribers, too.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_credential_types::{
    Credentials,
    provider::{ProvideCredentials, SharedCredentialsProvider, future},
};
use axum::{Router, extract::State, routing::post};
use http::{HeaderMap, StatusCode};
use nameservice_signer::Signer;
use nameservice_tests::prelude::*;
use stream_consumer::{Consumer, Doorbell, HintError};
use tokio::net::{TcpListener, TcpSocket};

use super::{raw, records, whole, with_the_clock_stopped};

/// A change of the head of a record.
pub(super) fn change(position: u64, address: &str, payload: Value) -> Change {
    Change {
        position,
        address: at(address),
        identity: Identity { kind: RecordKind::Ledger, source_type: None },
        part: ChangedPart::Concern(ConcernKind::Head),
        kind: ChangeKind::Updated,
        watermark: i64::try_from(position).unwrap(),
        previous: None,
        payload: ChangePayload::Value(payload),
        occurred_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        recorded_at: "2026-01-01T00:00:01Z".parse().unwrap(),
    }
}

/// The events that the listener has taken, and what it answers instead for a channel.
#[derive(Clone, Default)]
struct Events {
    taken: Arc<Mutex<Vec<(HeaderMap, String, Value)>>>,
    answers: Arc<Mutex<BTreeMap<String, (u16, Value)>>>,
}

impl Events {
    async fn start() -> (Self, String) {
        let events = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/event", listener.local_addr().unwrap());
        let router = Router::new().route("/event", post(publish)).with_state(events.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (events, url)
    }

    fn answer(&self, channel: &str, status: u16, body: Value) {
        self.answers.lock().unwrap().insert(channel.to_owned(), (status, body));
    }

    /// The events by channel.
    fn rings(&self) -> BTreeMap<String, Value> {
        let taken = self.taken.lock().unwrap();
        let rings: BTreeMap<_, _> = taken.iter().map(|(_, channel, event)| (channel.clone(), event.clone())).collect();
        assert_eq!(rings.len(), taken.len(), "a channel has two events");
        rings
    }
}

async fn publish(State(events): State<Events>, headers: HeaderMap, body: String) -> (StatusCode, String) {
    assert_eq!(headers["content-type"], "application/json");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body.as_object().unwrap().len(), 2);
    let channel = body["channel"].as_str().unwrap().to_owned();
    // AppSync takes one to five texts, each of which is JSON.
    let texts = body["events"].as_array().unwrap();
    assert_eq!(texts.len(), 1);
    let event: Value = serde_json::from_str(texts[0].as_str().unwrap()).unwrap();
    if let Some((status, answer)) = events.answers.lock().unwrap().get(&channel) {
        return (StatusCode::from_u16(*status).unwrap(), answer.to_string());
    }
    events.taken.lock().unwrap().push((headers, channel, event));
    (StatusCode::OK, json!({ "failed": [], "successful": [{ "identifier": "1", "index": 0 }] }).to_string())
}

#[tokio::test]
async fn a_record_rings_once_a_batch_with_its_newest_change_and_a_signature() {
    let (events, url) = Events::start().await;
    let credentials = Credentials::new("AKIDEXAMPLE", "secret", Some("session".to_owned()), None, "test");
    let signer = Signer::new(SharedCredentialsProvider::new(credentials), "eu-central-1", "appsync");
    let doorbell = Doorbell::new(&url, "names", Some(signer)).unwrap();
    let payload = json!({ "id": "bafy", "t": 3 });
    // Changes that were appended before come with their former positions.
    let changes = [
        change(7, "tenant/a:main", json!(null)),
        change(9, "tenant/a:main", payload.clone()),
        change(8, "mydb:dev", json!(null)),
        change(4, "tenant/a:main", json!(null)),
    ];
    let rung = with_the_clock_stopped("an answer of AppSync", doorbell.ring(&changes)).await;
    assert_eq!((rung.of, rung.lost), (2, 0));
    assert!(rung.error.is_none());
    let rings = events.rings();
    assert_eq!(rings.keys().collect::<Vec<_>>(), ["/names/mydb/dev", "/names/tenant/a/main"]);
    let ring = &rings["/names/tenant/a/main"];
    assert_eq!((&ring["position"], &ring["change"]["position"]), (&json!(9), &json!(9)));
    assert_eq!((&ring["change"]["address"], &ring["change"]["payload"]), (&json!("tenant/a:main"), &payload));
    for (headers, ..) in &*events.taken.lock().unwrap() {
        let authorization = headers["authorization"].to_str().unwrap();
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{authorization}");
        assert!(authorization.contains("/eu-central-1/appsync/aws4_request"), "{authorization}");
        assert_eq!(headers["x-amz-security-token"], "session");
    }
}

#[tokio::test]
async fn a_change_that_is_long_is_left_to_the_reader() {
    let (events, url) = Events::start().await;
    let doorbell = Doorbell::new(&url, "names", None).unwrap();
    let changes = [change(1, "short", json!("x".repeat(3_000))), change(2, "long", json!("x".repeat(5_000)))];
    assert_eq!(with_the_clock_stopped("an answer of AppSync", doorbell.ring(&changes)).await.lost, 0);
    let rings = events.rings();
    assert_eq!(rings["/names/long/main"], json!({ "position": 2 }));
    assert_eq!(rings["/names/short/main"]["change"]["position"], 1);
}

#[tokio::test]
async fn what_is_not_taken_is_counted() {
    let (events, url) = Events::start().await;
    events.answer("/names/denied/main", 401, json!({ "errors": [{ "errorType": "UnauthorizedException" }] }));
    events.answer("/names/failed/main", 200, json!({ "failed": [{ "index": 0, "code": 400 }], "successful": [] }));
    events.answer("/names/strange/main", 200, json!("no answer of AppSync"));
    let doorbell = Doorbell::new(&url, "names", None).unwrap();
    let changes = ["denied", "failed", "strange", "fine"].map(|name| change(1, name, json!(null)));
    let rung = with_the_clock_stopped("an answer of AppSync", doorbell.ring(&changes)).await;
    assert_eq!((rung.of, rung.lost), (4, 3));
    assert!(matches!(rung.error, Some(HintError::Answered { status: 401 | 200, .. })), "{:?}", rung.error);
    assert_eq!(events.rings().len(), 1);
    // Nobody listens there.
    let nowhere = TcpSocket::new_v4().unwrap();
    nowhere.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("http://{}/event", nowhere.local_addr().unwrap());
    let doorbell = Doorbell::new(&url, "names", None).unwrap();
    let rung = with_the_clock_stopped("the failure to connect", doorbell.ring(&changes)).await;
    assert_eq!(rung.lost, 4);
    assert!(matches!(rung.error, Some(HintError::NoAnswer(_))), "{:?}", rung.error);
    for url in ["ftp://x/event", "/event", "https://"] {
        assert!(matches!(Doorbell::new(url, "names", None), Err(HintError::Invalid(_))), "{url}");
    }
}

/// Credentials that never come, and how often they were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Never(pub(super) Arc<AtomicUsize>);

impl ProvideCredentials for Never {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        self.0.fetch_add(1, Ordering::Relaxed);
        future::ProvideCredentials::new(pending())
    }
}

/// Nothing here does I/O, so the paused clock advances as far as it has to.
#[tokio::test(start_paused = true)]
async fn a_bell_that_hangs_is_left_alone_for_half_a_minute() {
    let never = Never::default();
    let signer = Signer::new(SharedCredentialsProvider::new(never.clone()), "eu-central-1", "appsync");
    let doorbell = Doorbell::new("http://127.0.0.1:9/event", "names", Some(signer)).unwrap();
    let changes = ["a", "b"].map(|name| change(1, name, json!(null)));
    let begun = tokio::time::Instant::now();
    let rung = doorbell.ring(&changes).await;
    assert_eq!((rung.of, rung.lost), (2, 2));
    assert!(matches!(rung.error, Some(HintError::OutOfTime)), "{:?}", rung.error);
    assert_eq!(begun.elapsed(), Duration::from_secs(1), "of the test's clock");
    assert_eq!(never.0.load(Ordering::Relaxed), 2);

    // A clone is left alone as well.
    let rung = doorbell.clone().ring(&changes).await;
    assert_eq!((rung.lost, begun.elapsed()), (2, Duration::from_secs(1)));
    assert!(matches!(rung.error, Some(HintError::Silent)), "not reported as silent: {:?}", rung.error);
    assert_eq!(never.0.load(Ordering::Relaxed), 2, "it tried too early");

    tokio::time::advance(Duration::from_secs(31)).await;
    let rung = doorbell.ring(&changes).await;
    assert!(rung.lost == 2 && matches!(rung.error, Some(HintError::OutOfTime)), "{rung:?}");
    assert_eq!(never.0.load(Ordering::Relaxed), 4, "it did not try again");
}

#[tokio::test]
async fn the_feed_continues_without_its_doorbell() {
    let (events, url) = Events::start().await;
    let table = Table::with_stream().await;
    for name in ["a", "b"] {
        table.store.create_ledger(&Call::fresh(), &at(name), Some(&new_head(1)), None).await.unwrap().applied();
    }
    events.answer("/names/a/main", 500, json!({}));
    let consumer = Consumer::new(table.store.clone(), table.feed.clone())
        .with_doorbell(Doorbell::new(&url, "names", None).unwrap());
    let batch = json!({ "Records": records(&table).await });
    let answer = with_the_clock_stopped("the end of a batch", consumer.handle(raw(&batch))).await;
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");

    let changes = whole(&table.feed).await;
    let newest = |name: &str| changes.iter().rev().find(|change| change.address == at(name)).unwrap();
    assert!(newest("a").position > 0);
    let rings = events.rings();
    assert_eq!(rings.keys().collect::<Vec<_>>(), ["/names/b/main"]);
    assert_eq!(rings["/names/b/main"]["position"], newest("b").position, "it rings for what the feed holds");
}
