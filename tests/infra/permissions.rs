//! Least privilege: each role allows exactly the actions that its function was seen to use.
//!
//! The requests that a function sends to DynamoDB are recorded at the wire while every path through it is taken. A path that is
//! missing here and needs more fails in any test over HTTP: the service of `tests/support` rejects what a role does not allow.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use axum::body::Body;
use http::Method;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use nameservice_archive::{Archive, Archiver, LongFeed, Objects};
use nameservice_cli::routes;
use nameservice_http::{App, Auth};
use nameservice_model::{NameService as _, Result};
use nameservice_objects::object_store::{ObjectStore, memory::InMemory};
use nameservice_projector::{
    Over, RowWrite, Rows as _, TableRows,
    records::{RECORDS, RecordRow, table_of},
};
use nameservice_tests::{
    LONG,
    infra::{self, Actions, FUNCTIONS},
    prelude::*,
    pump,
};
use nameservice_views::View;
use stream_consumer::Consumer;
use tokio::time::timeout;
use topic_publisher::{DeadLetters, Letter, Published, Topic, TopicPublisher};
use tower::ServiceExt as _;

use super::functions::source;

/// A service, and the actions that its functions were seen to use.
struct Recorder {
    service: Service,
    seen: BTreeMap<&'static str, Actions>,
}

impl Recorder {
    async fn start() -> Self {
        Self { service: Service::with_stream().await, seen: BTreeMap::new() }
    }

    /// Calls the function that the gateway would call.
    async fn ask(&mut self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let function = infra::function_of(method.as_str(), path).unwrap_or_else(|| panic!("no route takes {path}"));
        let passed = self.service.table.proxy.actions_passed();
        let answer = self.service.send(method, path, &[], body).await;
        self.note(function, passed);
        answer
    }

    fn note(&mut self, function: &'static str, passed: usize) {
        for action in self.service.table.proxy.actions_after(passed) {
            let (resource, action) = infra::named(&self.service.table.name, &action);
            self.seen.entry(function).or_default().entry(resource).or_default().insert(action);
        }
    }

    async fn get(&mut self, path: &str) -> Value {
        self.ask(Method::GET, path, None).await.expect(200)
    }

    async fn put(&mut self, path: &str, body: Value) -> Answer {
        self.ask(Method::PUT, path, Some(body)).await
    }

    async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.ask(Method::POST, path, Some(body)).await
    }

    async fn delete(&mut self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, None).await
    }
}

fn commit(n: i64) -> Value {
    json!({ "id": cid(n).as_str(), "t": n })
}

fn root(n: i64) -> Value {
    json!({ "id": index_cid(n).as_str(), "t": n })
}

fn unborn() -> Value {
    json!({ "id": null, "t": 0 })
}

/// The request that every function with a store sends during init.
async fn start_up(recorder: &mut Recorder) {
    for name in FUNCTIONS.keys() {
        if !source(name, "main.rs").contains("serve_without_store") {
            let passed = recorder.service.table.proxy.actions_passed();
            recorder.service.table.store.ping().await.unwrap();
            recorder.note(name, passed);
        }
    }
}

/// Creations where an earlier life has left rows: Fluree's commit log is swept.
async fn creations_over_leftovers(r: &mut Recorder) {
    for name in ["left1", "left2", "left3", "mydb:left4", "left5", "left6"] {
        let pk = at(name);
        r.service.table.put(&[rows::commit_log(pk.as_str(), &cid(1), 1)]).await;
        if name == "left6" {
            r.service.table.put(&rows::orphans(pk.as_str(), cid(1), 1)).await;
        }
    }
    r.post("/v1/ledgers", json!({ "address": "left1" })).await.expect(201);
    r.put("/v1/heads/left2", json!({ "expected": null, "new": commit(1) })).await.expect(200);
    r.put("/v1/indexes/left3", json!({ "expected": null, "new": root(1) })).await.expect(200);
    r.post("/v1/branches", json!({ "name": "mydb", "branch": "left4", "source": "main" })).await.expect(201);
    r.post("/fluree/nameservice/refs/left5:main/init", json!(null)).await.expect(200);
    let source = json!({ "source_type": "f:Bm25Index", "config": {}, "dependencies": [] });
    r.put("/v1/graph-sources/left6", source).await.expect(201);
    r.delete("/v1/branches/mydb:left4").await.expect(200);
}

async fn creations(r: &mut Recorder) {
    r.post("/v1/ledgers", json!({ "address": "mydb", "head": commit(1) })).await.expect(201);
    r.post("/v1/ledgers", json!({ "address": "mydb" })).await.problem(409, "already-exists");
    r.post("/v1/branches", json!({ "name": "mydb", "branch": "dev", "source": "main" })).await.expect(201);
    let publication = |dependencies: Value, k: i64| json!({ "source_type": "f:Bm25Index", "config": { "k": k }, "dependencies": dependencies });
    r.put("/v1/graph-sources/search", publication(json!(["mydb", "mydb:dev"]), 1)).await.expect(201);
    // One reference kept, one dropped, and later one added.
    r.put("/v1/graph-sources/search", publication(json!(["mydb"]), 2)).await.expect(200);
    r.put("/v1/graph-sources/search", publication(json!(["mydb", "mydb:dev"]), 3)).await.expect(200);
    // A leftover row at the target: is it counted there?
    r.service.table.put(&[rows::row("mydb:main", "backref#found:main", [("dependent", rows::s("found:main"))])]).await;
    r.put("/v1/graph-sources/found", publication(json!(["mydb"]), 1)).await.expect(201);
    r.delete("/v1/records/found").await.expect(204);
    r.put("/v1/graph-sources/search", publication(json!(["nobody"]), 4)).await.problem(422, "missing-dependencies");
    r.put("/v1/graph-sources/mydb", publication(json!([]), 1)).await.problem(409, "wrong-kind");
}

/// Repeated, it is a payload that has a row of its own.
const LARGE: &str = "large";

/// Pushes that find their item, find none, find an incomplete row, or come under a lease.
async fn pushes(r: &mut Recorder) {
    let lease = json!({ "name": "index_lock", "holder": "i" });
    let held = r.put("/v1/leases/mydb", lease.clone()).await.expect(200);
    let claim = json!({ "name": "index_lock", "holder": "i", "token": held["token"] });
    let pushes = |n: i64| {
        let payload = json!({ "state": "syncing", "large": LARGE.repeat(400) });
        [
            ("heads", json!({ "new": commit(n) })),
            ("indexes", json!({ "new": root(n) })),
            ("statuses", json!({ "expected": { "v": n }, "new": { "payload": payload } })),
            ("configs", json!({ "expected": { "v": n - 2 }, "new": { "payload": {} } })),
        ]
    };
    for (concern, mut body) in pushes(2) {
        r.put(&format!("/v1/{concern}/mydb"), body.clone()).await.expect(200);
        r.put(&format!("/v1/{concern}/nobody"), body.clone()).await.problem(404, "unknown-record");
        body["lease"] = claim.clone();
        r.put(&format!("/v1/{concern}/mydb"), body).await;
        r.service.table.put(&rows::meta_only(&format!("old-{concern}:main"))).await;
    }
    for (concern, mut body) in pushes(2) {
        if concern == "statuses" {
            body["expected"] = json!({ "v": 1 });
        }
        r.put(&format!("/v1/{concern}/old-{concern}"), body).await.expect(200);
    }
    r.put("/v1/heads/first", json!({ "expected": null, "new": commit(1) })).await.expect(200);
    r.put("/v1/indexes/first-index", json!({ "expected": null, "new": root(1) })).await;
    let equal = json!({ "new": { "id": index_cid(100).as_str(), "t": 2 }, "allow_equal": true });
    r.put("/v1/indexes/mydb", equal).await.expect(200);
    let named =
        json!({ "new": { "id": index_cid(3).as_str(), "t": 3, "graphs": { "g": root(3) } }, "allow_equal": true });
    r.put("/v1/indexes/mydb", named).await.expect(200);

    let refresh = json!({ "name": "index_lock", "holder": "i", "token": held["token"] });
    r.put("/v1/leases/mydb", refresh.clone()).await;
    r.put("/v1/leases/nobody", lease.clone()).await.problem(404, "unknown-record");
    r.put("/v1/leases/nobody", refresh).await.problem(404, "unknown-record");
    r.service.table.put(&rows::meta_only("old-lease:main")).await;
    r.put("/v1/leases/old-lease", lease).await.expect(200);
    let query = format!("?name=index_lock&holder=i&token={}", held["token"]);
    r.delete(&format!("/v1/leases/mydb{query}")).await;
    r.delete(&format!("/v1/leases/nobody{query}")).await.problem(404, "unknown-record");
}

async fn transactions(r: &mut Recorder) {
    let push = |address: &str, n: i64| json!({ "op": "push_head", "address": address, "new": commit(n) });
    let check = json!({ "op": "check", "address": "mydb", "concern": "head", "expected": commit(2) });
    r.post("/v1/transactions", json!({ "operations": [push("first", 5), check] })).await.expect(200);
    r.post("/v1/transactions", json!({ "operations": [push("first", 4), push("mydb", 9)] })).await;
    r.post("/v1/transactions", json!({ "operations": [push("nobody", 9)] })).await.problem(409, "transaction-refused");
    r.service.table.put(&rows::meta_only("old:main")).await;
    r.post("/v1/transactions", json!({ "operations": [push("old", 9)] })).await.expect(200);
    let named = json!({ "id": index_cid(9).as_str(), "t": 9, "graphs": { "g": root(9) } });
    let equal = json!({ "op": "push_index", "address": "first", "new": named, "allow_equal": true });
    r.post("/v1/transactions", json!({ "operations": [equal] })).await.expect(200);
}

async fn reads(r: &mut Recorder) {
    for path in [
        "/v1/records/mydb",
        "/v1/records/mydb?concerns=head",
        "/v1/records/mydb?min_position=0&min_t=1",
        "/v1/records",
        "/v1/records?view=full",
        "/v1/records?min_position=0",
        "/v1/records?kind=ledger",
        "/v1/records?name=mydb",
        "/v1/records?source_type=f:Bm25Index",
        "/v1/records?source_type=f:Bm25Index&view=full&state=ready",
        "/v1/records?state=syncing",
        "/v1/records?state=syncing&view=full",
        "/v1/branches/mydb",
        "/v1/snapshot",
        "/v1/health",
        "/v1/health?deep=true",
        "/v1/openapi.json",
        "/v1/docs",
        "/v1/docs/docs.js",
        "/console",
        "/console/app.js",
        "/fluree/storage/ns/mydb",
        "/v1/fluree/nameservice/snapshot",
    ] {
        r.get(path).await;
    }
    r.ask(Method::GET, "/v1/records/nobody", None).await.problem(404, "unknown-record");
    r.ask(Method::GET, "/v1/branches/nobody", None).await;
}

/// Requests of Fluree's servers.
async fn refs(r: &mut Recorder) {
    let at = |end: &str| format!("/fluree/nameservice/refs/{end}");
    r.post(&at("theirs:main/init"), json!(null)).await.expect(200);
    r.post(&at("other:main/commit"), json!({ "expected": null, "new": commit(1) })).await.expect(200);
    r.post(&at("other:main/index"), json!({ "expected": unborn(), "new": root(1) })).await.expect(200);
    r.post(&at("nobody:main/commit"), json!({ "expected": commit(1), "new": commit(2) })).await.expect(409);
    r.service.table.put(&rows::meta_only("older:main")).await;
    r.post(&at("older:main/commit"), json!({ "expected": unborn(), "new": commit(2) })).await.expect(200);
}

async fn ends(r: &mut Recorder) {
    r.service.table.put(&[rows::commit_log("first:main", &cid(1), 1)]).await;
    r.post("/v1/resets/first", json!({ "head": unborn(), "index": unborn() })).await.expect(200);
    r.post("/v1/resets/nobody", json!({ "head": unborn(), "index": unborn() })).await.problem(404, "unknown-record");
    for protected in [true, false] {
        r.put("/v1/protections/first", json!({ "protected": protected })).await.expect(200);
    }
    r.post("/v1/retractions/mydb", json!({})).await.problem(409, "has-dependents");
    r.post("/v1/retractions/first", json!({ "reason": "over" })).await.expect(200);
    r.post("/v1/restorations/first", json!({})).await.expect(200);
    r.service.table.put(&rows::meta_only("ragged:main")).await;
    r.post("/v1/retractions/ragged", json!({})).await.expect(200);
    r.post("/v1/restorations/ragged", json!({})).await.expect(200);
    r.delete("/v1/records/mydb").await.problem(409, "has-dependents");
    r.delete("/v1/branches/mydb:dev").await.problem(409, "has-dependents");
    r.delete("/v1/records/search").await.expect(204);
    r.post("/v1/branches", json!({ "name": "mydb", "branch": "more", "source": "main" })).await.expect(201);
    let log = |name: &str| (1..=30).map(|t| rows::commit_log(name, &cid(t), t)).collect::<Vec<_>>();
    for name in ["mydb:dev", "first:main"] {
        r.service.table.put(&log(name)).await;
    }
    r.delete("/v1/branches/mydb:dev").await.expect(200);
    r.delete("/v1/records/mydb:more").await.expect(204);
    r.delete("/v1/records/first").await.expect(204);
    r.service.table.put(&rows::orphans("ghost:main", cid(1), 1)).await;
    r.delete("/v1/records/ghost").await.expect(204);
    r.delete("/v1/records/nobody").await.problem(404, "unknown-record");
}

/// Takes everything so far from the stream to the feed: first each record in a batch of its own, so that the batch does not show
/// its kind, and then all of them again.
async fn consumption(r: &mut Recorder) {
    let table = &r.service.table;
    // An item of no record, which the feed has never shown either.
    table.put(&[rows::row("stray:main", "status", [("status", rows::s("ready"))])]).await;
    let deliveries = pump::deliveries(table).await;
    let passed = table.proxy.actions_passed();
    for batch in deliveries.chunks(1).chain(deliveries.chunks(100)) {
        let consumer = Consumer::new(table.store.clone(), table.feed.clone());
        assert_eq!(consumer.consume(batch).await.failed, None);
    }
    r.note("stream_consumer", passed);
}

/// Readers of the feed: from the start, at its end, and beyond it.
async fn readers(r: &mut Recorder) {
    let end = r.get("/v1/changes?limit=1000").await["position"].as_u64().unwrap();
    assert!(end > 0);
    for path in [
        "/v1/changes".to_owned(),
        "/v1/changes?concern=head&kind=ledger&address=mydb".to_owned(),
        format!("/v1/changes?after={end}"),
        format!("/v1/changes?after={end}&wait=1"),
        "/v1/history/mydb".to_owned(),
        "/v1/history/mydb?concern=head&after=1".to_owned(),
        // Purged: only its history is left.
        "/v1/history/first".to_owned(),
    ] {
        r.get(&path).await;
    }
    r.ask(Method::GET, "/v1/history/nobody", None).await.problem(404, "unknown-record");
    let known = json!({ "mydb:main": { "commit_t": 1 }, "ragged:main": { "kind": "ledger" }, "nobody:main": {} });
    r.post("/v1/changes/compare", json!({ "subscriptions": known })).await.expect(200);
}

/// Readers of event streams, each up to the last change that is for it.
async fn streams(r: &mut Recorder) {
    let end = r.get("/v1/changes?limit=1000").await["position"].as_u64().unwrap();
    let page = r.get("/v1/changes?limit=1000&address=mydb&concern=head").await;
    let of_head = page["changes"].as_array().unwrap().last().unwrap()["position"].as_u64().unwrap();
    for (path, last) in [
        ("/v1/events?after=0", end),
        ("/v1/events?after=0&address=mydb&concern=head", of_head),
        // The records come before the first position.
        ("/fluree/events?all=true", end),
        ("/v1/fluree/events?ledger=mydb&ledger=nobody&graph-source=ragged", end),
    ] {
        let passed = r.service.table.proxy.actions_passed();
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let url = format!("{}{path}", r.service.url()).parse().unwrap();
        let mut stream = client.get(url).await.unwrap();
        assert_eq!(stream.status(), 200, "{path}");
        let (mut text, until) = (String::new(), format!("\nid: {last}\n"));
        while !text.contains(&until) {
            let frame = timeout(LONG, stream.body_mut().frame()).await.expect(path).expect("an open stream").unwrap();
            text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
        }
        r.note("change_stream", passed);
    }
}

/// What a mapping needs to read a stream on a function's behalf
/// (<https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-eventsourcemapping.html>).
const STREAM: [&str; 4] =
    ["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator", "dynamodb:ListStreams"];

/// Actions on other resources than tables: what the mappings of streams need, `SendMessage`, the publication of an event, a mutation, and
/// `PublishBatch`.
const BESIDE_TABLES: [(&str, &str, &[&str]); 8] = [
    ("stream_consumer", "stream", &STREAM),
    ("stream_consumer", "dead_letters", &["sqs:SendMessage"]),
    ("stream_consumer", "topic", &["sns:Publish"]), // for one release, see the module
    ("stream_consumer", "event_channels", &["appsync:EventPublish"]),
    ("stream_consumer", "graphql_api", &["appsync:GraphQL"]),
    ("topic_publisher", "feed_stream", &STREAM),
    ("topic_publisher", "topic", &["sns:Publish"]),
    ("topic_publisher", "dead_letters", &["sqs:SendMessage"]),
];

/// A topic that takes everything.
pub(crate) struct Everything;

#[async_trait]
impl Topic for Everything {
    async fn publish(&self, changes: &[Change], _: Option<tokio::time::Instant>) -> Published {
        Published { done: changes.len(), ..Published::default() }
    }
}

#[async_trait]
impl DeadLetters for Everything {
    async fn store(&self, letter: Letter<'_>) -> std::result::Result<(), BoxError> {
        panic!("{letter:?}")
    }
}

/// Publishes the feed from its start, and once more at its end.
async fn publication(r: &mut Recorder) {
    let table = &r.service.table;
    let passed = table.proxy.actions_passed();
    let publisher = TopicPublisher::new(table.feed.clone(), Arc::new(Everything), Arc::new(Everything));
    for _ in 0..2 {
        publisher.catch_up(Some(1), None).await.unwrap();
    }
    r.note("topic_publisher", passed);
}

/// What the mapping needs to receive messages on the projector's behalf
/// (<https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html>).
const DOORBELL: [&str; 3] = ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"];

/// Rows from changes and from a snapshot, a row of a record that does not exist, and a rebuild.
async fn projections(r: &mut Recorder) {
    let table = &r.service.table;
    let name = table_of(&table.name);
    View::new(table.client.clone(), &name, &RECORDS).ensure_table().await.unwrap();
    let through_proxy = View::new(nameservice_tests::engine::client(table.proxy.url()), &name, &RECORDS)
        .with_retry_policy(nameservice_tests::engine::RETRIES);
    let projector = view_projector::projector(table.store.clone(), table.feed.clone(), through_proxy.clone());
    let passed = table.proxy.actions_passed();
    projector.catch_up(None).await.unwrap();
    let stray = RowWrite { address: at("stray"), version: 0, row: None };
    let rows: TableRows<RecordRow> = TableRows::new(through_proxy);
    let row = rows.all().await.unwrap().remove(0).2;
    rows.write(vec![RowWrite { row: Some(row), ..stray }], Over::Older).await.unwrap();
    r.note("view_projector", passed);
    let _ = r.service.table.direct().create_ledger(&Call::fresh(), &at("projected"), None, None).await.unwrap();
    let large = json!({ "expected": { "v": 0 }, "new": { "payload": { "large": LARGE.repeat(400) } } });
    r.put("/v1/configs/projected", large).await.expect(200);
    // The writes and the consumer's work belong to other functions.
    pump::pump(&r.service.table).await;
    let passed = r.service.table.proxy.actions_passed();
    projector.catch_up(None).await.unwrap();
    projector.rebuild().await.unwrap();
    rows.clear().await.unwrap();
    projector.catch_up(None).await.unwrap();
    r.note("view_projector", passed);
}

/// What a search needs, which reads no table, and what the sink needs beside the table.
const SEARCHES: [(&str, &str, &[&str]); 4] = [
    ("search_get", "search", &["es:ESHttpPost"]),
    ("search_sink", "search", &["es:ESHttpPost"]),
    ("search_sink", "search_queue", &DOORBELL),
    ("search_sink", "search_dead_letters", &["sqs:SendMessage"]),
];

/// Reads the documents of a batch: of records that exist, and of one that does not.
async fn documents(r: &mut Recorder) {
    let passed = r.service.table.proxy.actions_passed();
    r.service.table.store.lookup_all(&[at("mydb"), at("projected"), at("nobody")]).await.unwrap();
    r.note("search_sink", passed);
}

/// The bucket of the archive, and what was done in it: its names and its objects are read, and objects are put that do not exist.
struct Watched(Arc<dyn ObjectStore>, Arc<Mutex<Actions>>);

impl Watched {
    fn see(&self, resource: &str, action: &str) {
        self.1.lock().unwrap().entry(resource.to_owned()).or_default().insert(action.to_owned());
    }
}

#[async_trait]
impl Objects for Watched {
    async fn list(&self, folder: &str, after: Option<&str>) -> Result<Vec<String>> {
        self.see("archive", "s3:ListBucket");
        Objects::list(&self.0, folder, after).await
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        self.see("archive_objects", "s3:GetObject");
        Objects::get(&self.0, key).await
    }

    async fn create(&self, key: &str, body: Vec<u8>) -> Result<bool> {
        self.see("archive_objects", "s3:PutObject");
        Objects::create(&self.0, key, body).await
    }
}

/// Changes are archived, and found to be archived. Then they expire, and are read from there.
async fn archives(r: &mut Recorder) {
    let bucket: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let seen = Arc::default();
    // An instance that has read nothing yet.
    let opened = || Archive::new(Watched(bucket.clone(), Arc::clone(&seen)), "", "memory");
    let passed = r.service.table.proxy.actions_passed();
    let feed = Arc::new(r.service.table.feed.clone());
    for _ in 0..2 {
        let archived = Archiver::new(feed.clone(), opened()).catch_up(None).await.unwrap();
        assert!(archived.position > 0);
    }
    r.note("feed_archive", passed);
    r.seen.entry("feed_archive").or_default().extend(std::mem::take(&mut *seen.lock().unwrap()));

    feed.begin_epoch().await.unwrap();
    for (function, path) in
        [("change_list", "/v1/changes"), ("change_stream", "/v1/events?after=0"), ("history_list", "/v1/history/mydb")]
    {
        let long = LongFeed::new(feed.clone(), opened());
        let app = App::new(Arc::new(r.service.table.store.clone()), Arc::new(long), Auth::Open);
        let passed = r.service.table.proxy.actions_passed();
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        let answer = nameservice_http::service(routes::router(), app).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let first = answer.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(!first.is_empty(), "{path}");
        r.note(function, passed);
        r.seen.entry(function).or_default().extend(std::mem::take(&mut *seen.lock().unwrap()));
    }
}

#[tokio::test]
async fn a_role_allows_what_its_function_does_and_nothing_else() {
    let mut recorder = Recorder::start().await;
    start_up(&mut recorder).await;
    creations(&mut recorder).await;
    creations_over_leftovers(&mut recorder).await;
    pushes(&mut recorder).await;
    transactions(&mut recorder).await;
    reads(&mut recorder).await;
    refs(&mut recorder).await;
    ends(&mut recorder).await;
    consumption(&mut recorder).await;
    publication(&mut recorder).await;
    readers(&mut recorder).await;
    streams(&mut recorder).await;
    projections(&mut recorder).await;
    archives(&mut recorder).await;
    documents(&mut recorder).await;
    for (function, resource, actions) in SEARCHES.into_iter().chain(BESIDE_TABLES) {
        let seen = recorder.seen.entry(function).or_default();
        seen.insert(resource.to_owned(), actions.iter().map(ToString::to_string).collect());
    }
    let projector = recorder.seen.get_mut("view_projector").unwrap();
    projector.insert("doorbell".to_owned(), DOORBELL.iter().map(ToString::to_string).collect());
    let mut differences = Vec::new();
    for (name, function) in &*FUNCTIONS {
        let seen = recorder.seen.remove(name.as_str()).unwrap_or_default();
        let resources: BTreeSet<_> = seen.keys().chain(function.actions.keys()).cloned().collect();
        for resource in resources {
            let of = |actions: &Actions| actions.get(&resource).cloned().unwrap_or_default();
            let (seen, allowed) = (of(&seen), of(&function.actions));
            for action in seen.difference(&allowed) {
                differences.push(format!("{name} needs {action} on {resource}, and may not"));
            }
            for action in allowed.difference(&seen) {
                differences.push(format!("{name} may {action} on {resource}, and has no use for it"));
            }
        }
    }
    assert!(recorder.seen.is_empty(), "not in local.functions: {:?}", recorder.seen.keys());
    assert!(differences.is_empty(), "infra/modules/nameservice/functions.tf:\n{}", differences.join("\n"));
}

/// The policies of `infra/modules/read-model` are for any projection: its writer does what the projector of records does.
#[tokio::test]
async fn the_policies_of_a_read_model_allow_what_its_writer_and_its_readers_do() {
    let actions = |name: &str| infra::strings(infra::local_of(&infra::READ_MODEL, name));
    assert_eq!(actions("writer_actions"), FUNCTIONS["view_projector"].actions["views"]);

    let table = &Service::with_stream().await.table;
    let name = table_of(&table.name);
    View::new(table.client.clone(), &name, &RECORDS).ensure_table().await.unwrap();
    let rows: TableRows<RecordRow> = TableRows::new(
        View::new(nameservice_tests::engine::client(table.proxy.url()), &name, &RECORDS)
            .with_retry_policy(nameservice_tests::engine::RETRIES),
    );
    let passed = table.proxy.actions_passed();
    rows.get(&at("mydb")).await.unwrap();
    for index in RECORDS.indexes {
        rows.page((index.name, "ledger"), "", None, 10).await.unwrap();
    }
    let seen = table.proxy.actions_after(passed);
    let of = |indexed: bool| -> BTreeSet<String> {
        let kept = seen.iter().filter(|action| action.index.is_some() == indexed);
        kept.map(|action| action.name.clone()).collect()
    };
    assert_eq!((of(false), of(true)), (actions("reader_actions"), actions("index_reader_actions")));
}

/// There are no other policies than those that the module's own tests compare with the list.
#[test]
fn roles_get_their_permissions_from_nowhere_else() {
    let resources = infra::MODULE.iter().filter(|block| block.ident.as_str() == "resource");
    let iam = resources.map(|block| block.labels[0].as_str()).filter(|kind| kind.starts_with("aws_iam_"));
    assert_eq!(iam.collect::<Vec<_>>(), ["aws_iam_role", "aws_iam_role_policy"]);
    let role = infra::resource("aws_iam_role", "this");
    let arguments: BTreeSet<_> = role.attributes().map(|attribute| attribute.key.as_str()).collect();
    assert_eq!(arguments, BTreeSet::from(["assume_role_policy", "for_each", "name", "permissions_boundary", "tags"]));
    assert_eq!(role.blocks().map(|block| block.ident.as_str()).collect::<Vec<_>>(), ["lifecycle"]);
}
