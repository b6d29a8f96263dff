//! The service of a replica: who may write through it, and what its callers then read there.

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    response::IntoResponse as _,
    routing::{get, post},
};
use http::{Method, header};
use http_body_util::Full;
use nameservice_cli::{routes, serve, upstream::Upstream};
use nameservice_client::{ChangeEvent, ChangeFilter, Client, Http};
use nameservice_embedded::Options;
use nameservice_files::Files;
use nameservice_http::{App, Auth};
use nameservice_sync::{Replica, ReplicaState};
use nameservice_tests::{
    in_process::InProcess,
    link::Link,
    prelude::*,
    pump::pump,
    service::{client, request},
};
use tokio::sync::mpsc;
use tower::ServiceExt as _;

use crate::routes::authorization::{self, invalid, narrow, scope, verifying};

/// The deadline for what happens without a request.
const DEADLINE: Duration = nameservice_tests::LONG;

/// The service of a replica.
struct Mirror {
    replica: Replica,
    service: serve::Service,
}

impl Mirror {
    /// A replica of the service at this URL, for the callers that `auth` lets in.
    async fn of(url: &str, auth: Auth) -> Self {
        Self::over(Client::new(url).unwrap(), url, auth).await
    }

    /// One that reads with this client.
    async fn over(client: Client, url: &str, auth: Auth) -> Self {
        let replica = Replica::in_memory(client, Options::default()).unwrap();
        replica.ready().await;
        let names = Arc::new(replica.names().clone());
        let upstream = Upstream::new(replica.clone(), Http::new(url).unwrap());
        let listener = serve::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let service = serve::start_replica(listener, App::new(names.clone(), names, auth), upstream).unwrap();
        Self { replica, service }
    }
}

async fn ask(url: &str, method: Method, path: &str, token: Option<&str>, body: Option<Value>) -> Answer {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
    let request = request(method, &format!("{url}{path}"), &headers, body);
    Answer::read(client().request(request.map(Full::new)).await.unwrap()).await
}

fn commit(n: i64) -> Value {
    json!({ "id": cid(n).as_str(), "t": n })
}

fn root(n: i64, t: i64) -> Value {
    json!({ "id": index_cid(n).as_str(), "t": t })
}

/// A write: its method, path and body.
type Write = (Method, String, Option<Value>);

/// Every write about an address, and the most that a caller without the right scope may have.
fn writes(address: &str) -> Vec<(&'static str, Write)> {
    let of = |scope, method, path: &str, body| (scope, (method, path.replace("{}", address), body));
    let operations = authorization::operations(address).into_iter();
    let operations = operations.filter(|(_, method, ..)| *method != Method::GET);
    let push = |new| json!({ "expected": null, "new": new });
    let transaction = json!({ "operations": [{ "op": "push_head", "address": address, "new": commit(1) }] });
    operations
        .map(|(scope, method, path, body)| (scope, (method, path, body)))
        .chain(["/fluree", "/v1/fluree"].into_iter().flat_map(|wire| {
            let path = format!("{wire}/nameservice/refs/{address}");
            [
                ("write", (Method::POST, format!("{path}/init"), None)),
                ("write", (Method::POST, format!("{path}/commit"), Some(push(commit(1))))),
                ("write", (Method::POST, format!("{path}/index"), Some(push(root(1, 1))))),
            ]
        }))
        .chain([
            of("write", Method::PUT, "/v1/leases/{}", Some(json!({ "name": "index_lock", "holder": "i" }))),
            of("write", Method::DELETE, "/v1/leases/{}?name=index_lock&holder=i&token=1", None),
            of("write", Method::POST, "/v1/transactions", Some(transaction)),
        ])
        .collect()
}

/// The methods and paths of all routes that are no reads, from the one list of routes.
fn write_routes() -> BTreeSet<(String, String)> {
    let document = json!(routes::document());
    let mut found = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            if ["put", "post", "delete", "patch"].contains(&method.as_str()) && path != "/v1/changes/compare" {
                found.insert((method.to_uppercase(), path.split("{address}").next().unwrap().to_owned()));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_forwards_only_what_its_caller_may_write() {
    let admin = scope("nameservice:admin");
    let [expired, foreign] = invalid();
    let narrowed = narrow("nameservice:admin", json!(["mine:*"]));
    let cases = [
        ("no token", None, 401, "unauthorized"),
        ("garbage", Some("nonsense"), 401, "unauthorized"),
        ("expired", Some(&*expired), 401, "unauthorized"),
        ("another key", Some(&*foreign), 401, "unauthorized"),
        ("no scope", Some(&*scope("openid")), 403, "insufficient-scope"),
        ("read scope", Some(&*scope("nameservice:read")), 403, "insufficient-scope"),
        ("another address", Some(&*narrowed), 403, "address-not-covered"),
    ];
    let service = InProcess::new();
    let table = Service::with_stream().await;
    let guarded = InProcess::with(|backend| App::new(backend.clone(), backend, verifying()));
    let mirrors = [Mirror::of(&service.serve().await, verifying()).await, Mirror::of(table.url(), verifying()).await];
    let services = [guarded.serve().await, mirrors[0].service.url(), mirrors[1].service.url()];
    let all = writes("other:dev");
    let covered = |(method, prefix): &(String, String)| {
        all.iter().any(|(_, (tried, path, _))| tried.as_str() == method && path.starts_with(prefix.as_str()))
    };
    let left: Vec<_> = write_routes().into_iter().filter(|route| !covered(route)).collect();
    assert!(left.is_empty(), "no write tries {left:?}");
    table.table.proxy.take_requests();
    for url in &services {
        for (needed, (method, path, body)) in &all {
            for (case, token, status, kind) in cases {
                let answer = ask(url, method.clone(), path, token, body.clone()).await;
                let shown = format!("{case}: {method} {path} at {url}");
                assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{shown}: {answer:?}");
                assert_eq!(answer.status.as_u16(), status, "{shown}: {answer:?}");
                let problem = answer.body["type"].as_str().unwrap();
                assert!(problem.ends_with(kind), "{shown}: {problem}");
            }
            if *needed == "admin" {
                let answer = ask(url, method.clone(), path, Some(&scope("nameservice:write")), body.clone()).await;
                answer.problem(403, "insufficient-scope");
            }
        }
        // Mutations over GraphQL are rejected by every replica, and for a caller without the scope by every service.
        let mutation = json!({ "query": "mutation { createLedger(address: \"other\") { __typename } }" });
        for (_, token, status, _) in cases {
            let answer = ask(url, Method::POST, "/graphql", token, Some(mutation.clone())).await;
            let has_failed = answer.status.as_u16() == status || !answer.body["errors"].is_null();
            assert!(has_failed || answer.status.as_u16() == 404, "{answer:?}");
        }
    }
    assert_eq!(service.backend.position().await.unwrap(), 0, "nothing was written");
    assert!(table.table.all_rows().await.is_empty(), "nothing was written");
    assert!(table.table.proxy.take_requests().iter().all(|request| request.operation != "UpdateItem"));
    // With the scope, each is forwarded: the answer is the upstream's.
    for (_, (method, path, body)) in &all {
        let answer = ask(&services[1], method.clone(), path, Some(&admin), body.clone()).await;
        assert!(!matches!(answer.status.as_u16(), 401 | 403 | 500..), "{method} {path}: {answer:?}");
    }
    assert!(service.backend.position().await.unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_that_resolve_to_others_and_credentials_stay_inside() {
    let service = InProcess::new();
    let url = service.serve().await;
    let url = url.replace("http://", "http://somebody:s3cret@");
    let mirror = Mirror::of(&url, Auth::Open).await;
    let at = mirror.service.url();
    for path in ["/v1/records/a/..", "/v1/records/%2e%2e/x", "/v1/heads/../../x", "/v1/records/.."] {
        let answer = ask(&at, Method::DELETE, path, None, None).await;
        assert!(matches!(answer.status.as_u16(), 400 | 404 | 405), "{path}: {answer:?}");
    }
    let mutation = json!({ "query": "mutation { createLedger(address: \"a\") { __typename } }" });
    for (method, path, body) in [
        (Method::GET, "/v1/health", None),
        (Method::POST, "/graphql", Some(mutation)),
        (Method::POST, "/v1/ledgers", Some(json!({ "address": "a" }))),
    ] {
        let answer = ask(&at, method, path, None, body).await;
        assert!(!format!("{answer:?}").contains("s3cret") && !format!("{answer:?}").contains("somebody"), "{answer:?}");
    }
    assert!(!format!("{mirror:?} {:?}", mirror.replica).contains("s3cret"));
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let position = self.replica.names().view().position();
        let mut shown = f.debug_struct("Mirror");
        shown.field("state", &self.replica.state()).field("position", &position).field("age", &self.replica.age());
        shown.field("replica", &self.replica).field("service", &self.service).finish()
    }
}

/// A mutation over GraphQL obeys the scopes and addresses of its caller before the answer names the upstream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutations_over_graphql_at_a_replica_obey_the_scopes_of_their_callers() {
    let service = InProcess::with(|backend| App::new(backend.clone(), backend, verifying()));
    let admin = scope("nameservice:admin");
    let upstream = service.serve().await;
    // A replica reads with a token of its own.
    let follower = Client::builder(&upstream).token(admin.clone()).build().unwrap();
    let mirror = Mirror::over(follower, &upstream, verifying()).await;
    let url = mirror.service.url();
    ask(&upstream, Method::POST, "/v1/ledgers", Some(&admin), Some(json!({ "address": "theirs" }))).await.expect(201);
    let position = service.backend.position().await.unwrap();
    let narrowed = narrow("nameservice:write", json!(["mine:*"]));
    let written = |fields: &str| json!({ "query": format!("mutation {{ {fields} {{ __typename }} }}") });
    for fields in ["createLedger(address: \"theirs:dev\")", "retract(address: \"theirs\")"] {
        for (token, code) in [
            (scope("nameservice:read"), "insufficient-scope"),
            (narrowed.clone(), "address-not-covered"),
            (scope("nameservice:write"), "replica"),
            (admin.clone(), "replica"),
        ] {
            let answer = ask(&url, Method::POST, "/graphql", Some(&token), Some(written(fields))).await;
            assert_eq!(answer.body["errors"][0]["extensions"]["code"], code, "{fields}: {answer:?}");
            assert!(answer.body["data"].is_null(), "{answer:?}");
        }
        for token in [None].into_iter().chain(invalid().iter().map(|token| Some(token.as_str()))) {
            ask(&url, Method::POST, "/graphql", token, Some(written(fields))).await.problem(401, "unauthorized");
        }
    }
    assert_eq!(service.backend.position().await.unwrap(), position, "nothing was written");
}

/// The last of a chain of replicas, with a reader of its events, whose origin is replaced by one that has fewer changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chain_of_replicas_begins_again_with_its_origin() {
    let (first, second) = (InProcess::new(), InProcess::new());
    let create = async |service: &InProcess, name: &str| {
        let _ = service.backend.create_ledger(&Call::fresh(), &at(name), None, None).await.unwrap();
    };
    for n in 0..5 {
        create(&first, &format!("old{n}")).await;
    }
    create(&second, "fresh").await;
    // Which of the two the origin is.
    let origin = Arc::new(Mutex::new(Router::new()));
    let becomes = async |service: &InProcess| {
        let current = origin.clone();
        service
            .serve_through(move |router| {
                *current.lock().unwrap() = router.clone();
                router
            })
            .await;
    };
    becomes(&first).await;
    let current = origin.clone();
    let front = Router::new().fallback(async move |request: axum::extract::Request| {
        let router = current.lock().unwrap().clone();
        router.oneshot(request).await
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, front).await });
    let mut link = Link::to(&url).await;
    let middle = Mirror::of(link.url(), Auth::Open).await;
    let last = Mirror::of(&middle.service.url(), Auth::Open).await;
    let reader = Client::new(&last.service.url()).unwrap();
    let before = first.backend.position().await.unwrap();
    assert!(last.replica.reached(before, DEADLINE).await);
    let mut events = reader.follow(ChangeFilter::default(), Some(before));
    create(&first, "open").await;
    let event = tokio::time::timeout(DEADLINE, events.next()).await.unwrap().unwrap();
    assert!(matches!(&event, ChangeEvent::Change(change) if change.address == at("open")), "{event:?}");
    // The stream is open. The origin comes back as another one.
    link.cut();
    becomes(&second).await;
    link.mend();
    let mut has_missed = false;
    loop {
        let event = tokio::time::timeout(DEADLINE, events.next()).await;
        let Ok(event) = event else { panic!("missed: {has_missed}, at {:?}, {middle:?}, {last:?}", events.position()) };
        match event.unwrap() {
            // The rest of the last creation, which the stream may still bring.
            ChangeEvent::Change(change) if !has_missed => assert_eq!(change.address, at("open")),
            ChangeEvent::Change(change) => {
                // A reader that has seen the error about missed changes is shown changes of the new feed alone.
                assert!(change.address == at("fresh") || change.address == at("later"), "{change:?}");
                if change.address == at("later") {
                    break;
                }
            }
            _ => {
                if !std::mem::replace(&mut has_missed, true) {
                    create(&second, "later").await;
                }
            }
        }
    }
    let end = second.backend.position().await.unwrap();
    assert!(end < before);
    for mirror in [&middle, &last] {
        assert!(mirror.replica.reached(end, DEADLINE).await);
        assert_eq!(mirror.replica.names().view().position(), end);
        let shown = ask(&mirror.service.url(), Method::GET, "/v1/records", None, None).await.expect(200);
        let addresses: Vec<_> = shown["records"].as_array().unwrap().iter().map(|record| &record["address"]).collect();
        assert_eq!(addresses, ["fresh:main", "later:main"]);
    }
}

/// Every kind of write, in an order in which each is applied, with the status of its answer.
fn life() -> Vec<(u16, Write)> {
    let of = |status, method, path: &str, body| (status, (method, path.to_owned(), body));
    let (put, post, delete) = (Method::PUT, Method::POST, Method::DELETE);
    let lease = |token: Value| json!({ "name": "index_lock", "holder": "i", "token": token });
    let transaction = json!({ "operations": [
        { "op": "push_head", "address": "mydb", "new": commit(3) },
        { "op": "push_status", "address": "mydb:dev", "expected": { "v": 1 }, "new": { "payload": { "state": "x" } } },
    ] });
    let push = |new: Value| json!({ "expected": { "id": null, "t": 0 }, "new": new });
    let config =
        json!({ "expected": { "v": 0 }, "new": { "payload": { "password": "p", "long": "x".repeat(20_000) } } });
    vec![
        of(201, post.clone(), "/v1/ledgers", Some(json!({ "address": "mydb" }))),
        of(200, put.clone(), "/v1/heads/mydb", Some(json!({ "new": commit(1) }))),
        of(201, post.clone(), "/v1/branches", Some(json!({ "name": "mydb", "branch": "dev", "source": "main" }))),
        of(200, put.clone(), "/v1/indexes/mydb", Some(json!({ "new": root(1, 1) }))),
        of(200, put.clone(), "/v1/indexes/mydb", Some(json!({ "new": root(2, 1), "allow_equal": true }))),
        of(
            200,
            put.clone(),
            "/v1/statuses/mydb",
            Some(json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "y" } } })),
        ),
        of(200, put.clone(), "/v1/configs/mydb", Some(config)),
        of(
            201,
            put.clone(),
            "/v1/graph-sources/gs",
            Some(json!({ "source_type": "t", "config": {}, "dependencies": ["mydb:dev"] })),
        ),
        of(
            200,
            put.clone(),
            "/v1/graph-sources/gs",
            Some(json!({ "source_type": "t", "config": { "k": 1 }, "dependencies": [] })),
        ),
        of(200, put.clone(), "/v1/leases/mydb", Some(json!({ "name": "index_lock", "holder": "i" }))),
        of(200, put.clone(), "/v1/leases/mydb", Some(lease(json!(1)))),
        of(204, delete.clone(), "/v1/leases/mydb?name=index_lock&holder=i&token=1", None),
        of(200, post.clone(), "/v1/transactions", Some(transaction)),
        of(200, post.clone(), "/fluree/nameservice/refs/fl:main/init", None),
        of(200, post.clone(), "/v1/fluree/nameservice/refs/fl:main/commit", Some(push(commit(1)))),
        of(200, post.clone(), "/fluree/nameservice/refs/fl:main/index", Some(push(root(1, 1)))),
        of(200, put.clone(), "/v1/protections/mydb", Some(json!({ "protected": true }))),
        of(200, put.clone(), "/v1/protections/mydb", Some(json!({ "protected": false }))),
        of(200, post.clone(), "/v1/retractions/fl", None),
        of(200, post.clone(), "/v1/restorations/fl", None),
        of(200, post.clone(), "/v1/resets/mydb", Some(json!({ "head": commit(1), "index": root(1, 1) }))),
        of(200, put.clone(), "/v1/heads/mydb", Some(json!({ "new": commit(2) }))),
        of(200, delete.clone(), "/v1/branches/mydb:dev", None),
        of(204, delete.clone(), "/v1/records/gs", None),
        of(404, delete, "/v1/records/gs", None),
        of(201, post, "/v1/ledgers", Some(json!({ "address": "gs", "head": commit(1) }))),
        of(409, put, "/v1/heads/mydb", Some(json!({ "expected": commit(9), "new": commit(10) }))),
    ]
}

/// A record as a service shows it, without what its own clock and counts say.
async fn shown(url: &str, address: &str) -> Value {
    let mut record = ask(url, Method::GET, &format!("/v1/records/{address}"), None, None).await.body;
    for name in ["created_at", "updated_at", "branches", "dependents"] {
        record.as_object_mut().unwrap().remove(name);
    }
    record
}

/// Lives through every kind of write at a replica of this service. Each must be read there as soon as it is answered.
async fn lives(upstream: &str, has_all: bool) {
    let mirror = Mirror::of(upstream, Auth::Open).await;
    let url = mirror.service.url();
    let (mut prompt, mut late) = (0, 0);
    for (status, (method, path, body)) in life() {
        if status == 409 {
            // Another client's write, which the replica need not have received.
            let other = Some(json!({ "new": commit(8) }));
            ask(upstream, Method::PUT, "/v1/heads/mydb", None, other).await.expect(200);
        }
        let answer = ask(&url, method.clone(), &path, None, body).await;
        if !has_all && answer.status.as_u16() == 501 {
            continue;
        }
        assert_eq!(answer.status.as_u16(), status, "{method} {path}: {answer:?}");
        // The answer has an age if the replica did not show the write in time.
        let is_late = answer.header("age").is_some();
        let begun = Instant::now();
        for address in ["mydb:main", "mydb:dev", "gs:main", "fl:main"] {
            loop {
                let (here, there) = (shown(&url, address).await, shown(upstream, address).await);
                if here == there {
                    break;
                }
                assert!(
                    is_late && begun.elapsed() < LONG,
                    "{address} after {method} {path}: {here} {there} {answer:?}"
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        if is_late {
            late += 1;
        } else {
            prompt += 1;
            assert!(answer.header("nameservice-position").is_some(), "{method} {path}: {answer:?}");
        }
    }
    assert!(prompt > 0, "none of {late} writes was awaited");
    assert_eq!(mirror.replica.state(), ReplicaState::Following);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_at_a_replica_is_read_there_over_the_embedded_backend() {
    let service = InProcess::new();
    lives(&service.serve().await, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_at_a_replica_is_read_there_over_dynamodb() {
    let service = Service::with_stream().await;
    // A consumer that lags behind the writes.
    let consumer = async {
        loop {
            tokio::time::sleep(Duration::from_millis(40)).await;
            pump(&service.table).await;
        }
    };
    tokio::select! {
        () = lives(service.url(), true) => {}
        () = consumer => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_at_a_replica_is_read_there_over_files() {
    let directory = tempfile::tempdir().unwrap();
    let options = nameservice_files::Options::default().with_interval(Duration::from_millis(50)).with_timeout(DEADLINE);
    let files = Files::directory(directory.path(), false, options).unwrap();
    let app = App::new(Arc::new(files.clone()), Arc::new(files), Auth::Open);
    let service = serve::start(serve::bind(([127, 0, 0, 1], 0).into()).await.unwrap(), app, None).unwrap();
    lives(&service.url(), false).await;
}

/// A service whose feed is written by the test.
struct Scripted {
    position: AtomicU64,
    /// The streams that were opened.
    streams: Mutex<Vec<mpsc::UnboundedSender<String>>>,
}

impl Scripted {
    async fn serve() -> (Arc<Self>, String) {
        let this = Arc::new(Self { position: 5.into(), streams: Mutex::default() });
        let position = {
            let this = this.clone();
            async move || Json(json!({ "changed": {}, "unknown": [], "position": this.position.load(SeqCst) }))
        };
        let events = {
            let this = this.clone();
            async move || {
                let (sender, receiver) = mpsc::unbounded_channel::<String>();
                sender.send(": open\nid: 5\n\n".to_owned()).unwrap();
                this.streams.lock().unwrap().push(sender);
                let frames = futures_util::stream::unfold(receiver, async |mut receiver| {
                    let text = receiver.recv().await?;
                    Some((Ok::<_, Infallible>(Bytes::from(text)), receiver))
                });
                ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(frames)).into_response()
            }
        };
        let router = Router::new()
            .route("/v1/changes/compare", post(position))
            .route("/v1/snapshot", get(async || Json(json!({ "records": [], "cursor": null, "position": 5 }))))
            .route("/v1/events", get(events));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (this, url)
    }

    /// Waits until the n-th stream was opened, and returns it.
    async fn stream(&self, n: usize) -> mpsc::UnboundedSender<String> {
        let begun = Instant::now();
        loop {
            if let Some(stream) = self.streams.lock().unwrap().get(n) {
                return stream.clone();
            }
            assert!(begun.elapsed() < DEADLINE, "no stream {n}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn end(&self, n: usize) {
        self.streams.lock().unwrap()[n] = mpsc::unbounded_channel().0;
    }
}

fn change(position: u64) -> String {
    let change = json!({
        "position": position, "address": "mydb:main", "kind": "ledger", "name": "mydb", "branch": "main",
        "concern": "meta", "change": "updated", "watermark": 0, "occurred_at": "2026-01-01T00:00:00Z",
        "recorded_at": "2026-01-01T00:00:00Z", "payload": { "retracted": false },
    });
    format!("id: {position}\nevent: change\ndata: {change}\n\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_as_old_as_what_it_has_applied_and_not_as_the_last_contact() {
    let (service, url) = Scripted::serve().await;
    let replica = Replica::in_memory(Client::new(&url).unwrap(), Options::default()).unwrap();
    replica.ready().await;
    drop(service.stream(0).await);
    assert!(replica.is_fresh());
    // Others have written while no stream was open. The next one brings signs of life before the changes.
    service.position.store(8, SeqCst);
    service.end(0);
    let stream = service.stream(1).await;
    // From here on nothing of the first stream, which was up to date, can arrive any more.
    let behind_since = Instant::now();
    (0..3).for_each(|_| stream.send(": heartbeat\nid: 5\n\n".to_owned()).unwrap());
    (6..=7).for_each(|position| stream.send(change(position)).unwrap());
    assert!(replica.reached(7, DEADLINE).await);
    let behind = behind_since.elapsed();
    assert!(replica.age().unwrap() >= behind, "signs of life and some of the changes do not make it current");
    stream.send(change(8)).unwrap();
    assert!(replica.reached(8, DEADLINE).await);
    let begun = Instant::now();
    while replica.age().unwrap() >= behind_since.elapsed() {
        assert!(begun.elapsed() < DEADLINE);
        tokio::task::yield_now().await;
    }
    // A change that cannot be applied: the replica is degraded, and stays so however often the upstream is reached.
    service.position.store(9, SeqCst);
    stream.send(change(9).replace("2026-01-01", "no date")).unwrap();
    drop(service.stream(2).await);
    service.end(2);
    drop(service.stream(3).await);
    assert!(matches!(replica.state(), ReplicaState::Detached(_)), "{:?}", replica.state());
    assert!(!replica.is_fresh());
}
