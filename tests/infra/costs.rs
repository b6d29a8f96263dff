//! What operations cost: capacity units as the engine counts them, in money by the prices of infra/README.md.

use std::{fmt::Write as _, fs, path::PathBuf, sync::Arc};

use http::Method;
use http_body_util::BodyExt as _;
use nameservice_tests::{
    engine,
    prelude::*,
    proxy::{Request, WRITES},
    pump, service,
};
use rand::{RngExt, SeedableRng, distr::Alphanumeric, rngs::StdRng};
use stream_consumer::Consumer;
use tokio::time::timeout;
use topic_publisher::TopicPublisher;

use super::permissions::Everything;

/// Dollars per million, as in infra/README.md.
const WRITE_UNIT: f64 = 0.625;
const READ_UNIT: f64 = 0.125;
const GATEWAY: f64 = 1.00;
/// A call, and 10 ms of 256 MB on arm64.
const FUNCTION: f64 = 0.20 + 0.010 * 0.25 * 13.3334;
const TOPIC: f64 = 0.50;

#[derive(Clone, Copy, Default)]
struct Units {
    requests: f64,
    reads: f64,
    writes: f64,
}

impl Units {
    fn of(requests: &[Request]) -> Self {
        let mut units = Self { requests: requests.len() as f64, ..Self::default() };
        for request in requests {
            match WRITES.contains(&request.operation.as_str()) {
                // A failed condition consumes a write unit, which its response does not report.
                true if request.status == Some(400) => units.writes += 1.0,
                true => units.writes += request.units,
                false => units.reads += request.units,
            }
        }
        units
    }

    /// Returns the part of each of so many changes.
    fn among(self, changes: f64) -> Self {
        Self { requests: self.requests / changes, reads: self.reads / changes, writes: self.writes / changes }
    }

    fn dollars(self, beside: f64) -> f64 {
        self.reads * READ_UNIT + self.writes * WRITE_UNIT + beside
    }
}

fn row(table: &mut String, name: &str, units: Units, beside: f64) {
    let Units { requests, reads, writes } = units;
    let number = |n: f64| format!("{}", (n * 100.0).round() / 100.0);
    writeln!(
        table,
        "| {name} | {} | {} | {} | {:.2} |",
        number(requests),
        number(reads),
        number(writes),
        units.dollars(beside)
    )
    .unwrap();
}

fn commit(n: i64) -> Value {
    json!({ "id": cid(n).as_str(), "t": n })
}

#[tokio::test]
async fn the_costs_in_the_readme_are_those_that_were_counted() {
    if engine::is_external() {
        // The embedded engine counts as AWS does; DynamoDB Local takes four units for any transaction.
        return;
    }
    let service = Service::with_stream().await;
    let proxy = &service.table.proxy;
    proxy.measure();
    let mut table = String::new();
    let unborn = json!({ "id": null, "t": 0 });
    let status = json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "indexing" } } });
    let config = json!({ "expected": { "v": 0 }, "new": { "payload": { "a": 1 } } });
    let graph_source = json!({ "source_type": "f:Bm25Index", "config": { "k1": 1.2 }, "dependencies": ["mydb"] });
    let lease = json!({ "name": "index_lock", "holder": "i" });
    let transaction = json!({ "operations": [
        { "op": "push_head", "address": "mydb", "expected": commit(2), "new": commit(3) },
        { "op": "push_head", "address": "other", "new": commit(1) },
    ] });
    service.post("/v1/ledgers", json!({ "address": "other" })).await.expect(201);
    for (name, method, path, body) in [
        ("create a ledger", Method::POST, "/v1/ledgers", Some(json!({ "address": "mydb", "head": commit(1) }))),
        ("push a head", Method::PUT, "/v1/heads/mydb", Some(json!({ "expected": commit(1), "new": commit(2) }))),
        ("… rejected: conflict", Method::PUT, "/v1/heads/mydb", Some(json!({ "expected": unborn, "new": commit(2) }))),
        ("push an index", Method::PUT, "/v1/indexes/mydb", Some(json!({ "new": commit(1) }))),
        ("push a status that changes the state", Method::PUT, "/v1/statuses/mydb", Some(status)),
        ("push a config", Method::PUT, "/v1/configs/mydb", Some(config)),
        ("take a lease", Method::PUT, "/v1/leases/mydb", Some(lease)),
        ("push two heads in a transaction", Method::POST, "/v1/transactions", Some(transaction)),
        (
            "create a branch",
            Method::POST,
            "/v1/branches",
            Some(json!({ "name": "mydb", "branch": "dev", "source": "main" })),
        ),
        ("create a graph source over a ledger", Method::PUT, "/v1/graph-sources/search", Some(graph_source)),
        ("read a record", Method::GET, "/v1/records/mydb", None),
        ("look for changes, and find none", Method::GET, "/v1/changes", None),
        ("purge a graph source", Method::DELETE, "/v1/records/search", None),
    ] {
        proxy.take_requests();
        let answer = service.send(method, path, &[], body).await;
        assert!(answer.status.is_success() || name.contains("conflict"), "{name}: {answer:#?}");
        row(&mut table, name, Units::of(&proxy.take_requests()), GATEWAY + FUNCTION);
    }
    // Two functions take each change to the feed, and from the feed to the topic: one by one, or in a batch.
    let publisher = TopicPublisher::new(service.table.feed.clone(), Arc::new(Everything), Arc::new(Everything));
    service.table.feed.begin_sink("topic", 0).await.unwrap();
    let publish = async |table: &mut String, name: &str, changes: f64| {
        proxy.take_requests();
        assert_eq!(publisher.catch_up(Some(1), None).await.unwrap().published as f64, changes);
        let each = Units::of(&proxy.take_requests()).among(changes);
        row(table, &format!("publish {name}"), each, FUNCTION / changes + TOPIC);
    };
    let consumer = Consumer::new(service.table.store.clone(), service.table.feed.clone());
    let deliveries = pump::deliveries(&service.table).await;
    proxy.take_requests();
    let changes = consumer.consume(&deliveries).await.changes as f64;
    let each = Units::of(&proxy.take_requests()).among(changes);
    row(&mut table, &format!("a change among {changes}"), each, FUNCTION / changes);
    publish(&mut table, &format!("a change among {changes}"), changes).await;
    service.put("/v1/heads/mydb", json!({ "new": commit(9) })).await.expect(200);
    let deliveries = pump::deliveries(&service.table).await;
    proxy.take_requests();
    assert_eq!(consumer.consume(&deliveries[deliveries.len() - 1..]).await.changes, 1);
    row(&mut table, "a single change", Units::of(&proxy.take_requests()), FUNCTION);
    publish(&mut table, "a single change", 1.0).await;

    for among in [20, 98] {
        for t in 0..among {
            let t = 100 * among + t;
            service.put("/v1/heads/mydb", json!({ "new": commit(t) })).await.expect(200);
        }
        let deliveries = pump::deliveries(&service.table).await;
        proxy.take_requests();
        let heads = &deliveries[deliveries.len() - usize::try_from(among).unwrap()..];
        assert_eq!(consumer.consume(heads).await.changes, heads.len());
        let changes = among as f64;
        row(
            &mut table,
            &format!("a head among {among}"),
            Units::of(&proxy.take_requests()).among(changes),
            FUNCTION / changes,
        );
        publish(&mut table, &format!("a head among {among}"), changes).await;
    }

    // Statuses of random letters and digits.
    let mut random = StdRng::seed_from_u64(1);
    service.post("/v1/ledgers", json!({ "address": "large" })).await.expect(201);
    // A while ago: then the consumer reads its kind once a batch.
    service.table.set("large:main", "meta", "created_at", rows::n(1_000)).await;
    let mut v = 0;
    for (bytes, among) in [(1_100, 20), (4_000, 20), (16_000, 20), (16_000, 1)] {
        for _ in 0..among {
            v += 1;
            let text: String = (0..bytes - 30).map(|_| char::from(random.sample(Alphanumeric))).collect();
            let status = json!({ "expected": { "v": v }, "new": { "payload": { "state": "s", "text": text } } });
            service.put("/v1/statuses/large", status).await.expect(200);
        }
        let deliveries = pump::deliveries(&service.table).await;
        proxy.take_requests();
        assert_eq!(consumer.consume(&deliveries[deliveries.len() - among..]).await.changes, among);
        let (changes, bytes) = (among as f64, bytes as f64 / 1_000.0);
        let name = match among {
            1 => format!("a single status of {bytes} KB"),
            _ => format!("a status of {bytes} KB among {among}"),
        };
        row(&mut table, &name, Units::of(&proxy.take_requests()).among(changes), FUNCTION / changes);
        publish(&mut table, &name, changes).await;
    }
    service.delete("/v1/records/large").await.expect(204);

    // What a peer of Fluree is sent each time its stream begins: a hundred records.
    for n in 0..98 {
        service.post("/v1/ledgers", json!({ "address": format!("peer{n}"), "head": commit(1) })).await.expect(201);
    }
    proxy.take_requests();
    let stream = http::Request::get(format!("{}/fluree/events?all=true", service.url()));
    let stream = stream.body(http_body_util::Full::default()).unwrap();
    let mut body = service::client().request(stream).await.unwrap().into_body();
    let mut text = String::new();
    while !text.contains("end of records") {
        let frame = timeout(LONG, body.frame()).await.expect("the end of the records").unwrap().unwrap();
        text.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap());
    }
    let records = text.matches("event: ns-record").count() as f64;
    assert!((100.0..110.0).contains(&records), "{records}");
    // Without those that look for changes, which continue.
    let of_records = |request: &Request| ["BatchGetItem", "Scan"].contains(&request.operation.as_str());
    let requests: Vec<Request> = proxy.take_requests().into_iter().filter(of_records).collect();
    let each = Units::of(&requests).among(records);
    row(&mut table, "a record at the beginning of a Fluree peer's stream", each, FUNCTION / records);

    println!("| a million of | requests | read units | write units | dollars |\n|---|---|---|---|---|\n{table}");
    let readme = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../infra/README.md")).unwrap();
    for line in table.lines() {
        assert!(readme.contains(line), "infra/README.md lacks this line, or has other numbers:\n{table}");
    }
}
