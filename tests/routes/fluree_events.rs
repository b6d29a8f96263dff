use std::time::Duration;

use ::change_stream::Limits;
use jiff::Timestamp;
use nameservice_tests::pump::pump;

use super::{
    change_stream::{Block, Stream, moved, within},
    *,
};

const ALL: &str = "/fluree/events?all=true";

/// The data of an event, without its time, which must be now.
#[track_caller]
fn data_of(block: &Block) -> Value {
    let name = block.event.clone().unwrap();
    let mut data = block.of(&name);
    assert_eq!(data["action"], json!(name));
    let emitted_at = data.as_object_mut().unwrap().remove("emitted_at").unwrap();
    let emitted_at: Timestamp = emitted_at.as_str().unwrap().parse().unwrap();
    assert!(Timestamp::now().duration_since(emitted_at).abs().as_secs() < 3_600, "{emitted_at}");
    data
}

fn name(block: &Block) -> (String, String) {
    let data = data_of(block);
    (data["action"].as_str().unwrap().to_owned(), data["resource_id"].as_str().unwrap().to_owned())
}

fn names(blocks: &[Block]) -> Vec<(String, String)> {
    blocks.iter().map(name).collect()
}

fn record(id: &str) -> (String, String) {
    ("ns-record".into(), id.into())
}

fn retracted(id: &str) -> (String, String) {
    ("ns-retracted".into(), id.into())
}

/// Reads up to the block after which changes follow, and returns its id, too.
async fn opening(stream: &mut Stream) -> (Vec<Block>, u64) {
    let mut records = Vec::new();
    loop {
        let block = stream.next().await.expect("an opening");
        match (block.id, &block.data) {
            (Some(id), None) => return (records, id),
            (None, Some(_)) => records.push(block),
            (None, None) => {}
            (Some(_), Some(_)) => panic!("no reader could resume from {block:?}"),
        }
    }
}

#[tokio::test]
async fn the_records_come_first_and_then_what_becomes_of_them() {
    let service = Service::with_stream().await;
    born(&service, "mydb", 1).await;
    source(&service, "search", &["mydb"]).await;
    born(&service, "gone", 1).await;
    retract(&service, "gone").await;
    pump(&service.table).await;
    let position = service.table.feed.position().await.unwrap();

    for path in [ALL, "/v1/fluree/events?all=true", "/fluree/events?all", "/fluree/events?all=1&ledger=nobody&later=x"]
    {
        let mut stream = Stream::open(&service, path, &[]).await;
        let (records, id) = opening(&mut stream).await;
        assert_eq!(id, position);
        let mut shown = names(&records);
        shown.sort();
        // Retracted records are not there.
        assert_eq!(shown, [record("mydb:main"), record("search:main")], "{path}");
    }
    let mut stream = Stream::open(&service, ALL, &[]).await;
    opening(&mut stream).await;
    let mut next = async |n: usize| {
        pump(&service.table).await;
        names(&stream.events(n).await)
    };
    service.put("/v1/heads/mydb", json!({ "new": commit(2) })).await.expect(200);
    assert_eq!(next(1).await, [record("mydb:main")]);
    ledger(&service, "new").await;
    assert_eq!(next(1).await, [record("new:main")]);
    retract(&service, "search").await;
    assert_eq!(next(1).await, [retracted("search:main")]);
    service.post("/v1/restorations/search", json!({})).await.expect(200);
    assert_eq!(next(1).await, [record("search:main")]);
    service.delete("/v1/records/search").await.expect(204);
    assert_eq!(next(1).await, [retracted("search:main")]);
    // Changes of what Fluree does not know of a record are not sent.
    let status = json!({ "expected": { "v": 1 }, "new": { "payload": { "state": "indexing" } } });
    service.put("/v1/statuses/mydb", status).await.expect(200);
    service.put("/v1/heads/new", json!({ "new": commit(3) })).await.expect(200);
    assert_eq!(next(1).await, [record("new:main")]);
}

#[tokio::test]
async fn records_are_reported_as_fluree_knows_them_without_secrets() {
    let service = Service::with_stream().await;
    born(&service, "mydb", 2).await;
    service.put("/v1/indexes/mydb", json!({ "new": root(1) })).await.expect(200);
    let config = json!({ "k1": 1.2, "auth": { "type": "basic", "password": "geheim" }, "url": "pg://u:geheim@db/x" });
    let body = json!({ "source_type": "f:Bm25Index", "config": config, "dependencies": ["mydb"] });
    service.put("/v1/graph-sources/search", body).await.expect(201);
    service.put("/v1/indexes/search", json!({ "new": root(4) })).await.expect(200);
    pump(&service.table).await;

    let ledger = json!({
        "action": "ns-record", "kind": "ledger", "resource_id": "mydb:main",
        "record": service.get("/fluree/storage/ns/mydb:main").await.expect(200),
    });
    let shown_config = r#"{"auth":{"password":"[redacted]","type":"basic"},"k1":1.2,"url":"pg://u:[redacted]@db/x"}"#;
    let graph_source = json!({
        "action": "ns-record", "kind": "graph-source", "resource_id": "search:main",
        "record": {
            "graph_source_id": "search:main", "name": "search", "branch": "main", "source_type": "f:Bm25Index",
            "config": shown_config, "dependencies": ["mydb:main"], "index_id": index_cid(4).as_str(), "index_t": 4,
            "retracted": false,
        },
    });
    let mut reported = Vec::new();
    let mut stream = Stream::open(&service, ALL, &[]).await;
    reported.extend(opening(&mut stream).await.0);
    let mut stream = Stream::resume(&service, ALL, 0).await;
    reported.extend(stream.events(2).await);
    assert_eq!(reported.len(), 4);
    for block in &reported {
        assert!(!block.data.as_deref().unwrap().contains("geheim"));
        let expected = if block.of("ns-record")["kind"] == "ledger" { &ledger } else { &graph_source };
        assert_eq!(&data_of(block), expected);
    }
}

#[tokio::test]
async fn only_what_was_named_is_reported_and_only_as_what_it_was_named() {
    let service = Service::with_stream().await;
    for name in ["mydb", "other", "tenant/db"] {
        born(&service, name, 1).await;
    }
    source(&service, "search", &[]).await;
    source(&service, "vectors", &[]).await;
    pump(&service.table).await;
    let path = "/fluree/events?ledger=mydb&ledger=tenant%2Fdb%3Amain&ledger=vectors&ledger=later&ledger=\
                &graph-source=search:main&graph-source=other";
    let mut stream = Stream::open(&service, path, &[]).await;
    let mut shown = names(&opening(&mut stream).await.0);
    shown.sort();
    assert_eq!(shown, [record("mydb:main"), record("search:main"), record("tenant/db:main")]);
    for address in ["other", "vectors", "mydb"] {
        service.put(&format!("/v1/indexes/{address}"), json!({ "new": root(1) })).await.expect(200);
    }
    ledger(&service, "later").await;
    pump(&service.table).await;
    assert_eq!(names(&stream.events(2).await), [record("mydb:main"), record("later:main")]);
}

#[tokio::test]
async fn a_stream_of_nothing_is_rejected() {
    let service = Service::start().await;
    for (query, field) in [
        ("", "all"),
        ("all=false", "all"),
        ("ledger=", "all"),
        ("all=maybe", "all"),
        ("ledger=a:b:c", "ledger"),
        ("ledger=mydb&graph-source=a%40b", "graph-source"),
    ] {
        for prefix in ["/fluree", "/v1/fluree"] {
            rejects(service.get(&format!("{prefix}/events?{query}")).await, "invalid-parameter", field);
        }
    }
}

#[tokio::test]
async fn a_reader_who_resumes_receives_only_what_has_changed() {
    let service = Service::with_stream().await;
    for name in ["a", "b", "c", "d"] {
        born(&service, name, 1).await;
    }
    pump(&service.table).await;
    let mut stream = Stream::open(&service, ALL, &[]).await;
    let (records, mut last) = opening(&mut stream).await;
    assert_eq!(records.len(), 4);
    drop(stream);
    // Each of these changes before and after others: sent once, and never lost, wherever the reader is cut.
    for name in ["a", "b", "a", "c", "b"] {
        let t = shown(&service, name).await["head"]["t"].as_i64().unwrap() + 1;
        service.put(&format!("/v1/heads/{name}"), json!({ "new": commit(t) })).await.expect(200);
    }
    service.delete("/v1/records/d").await.expect(204);
    pump(&service.table).await;
    let mut seen = Vec::new();
    for _ in 0..4 {
        let mut stream = Stream::resume(&service, ALL, last).await;
        let block = stream.event().await;
        last = block.id.unwrap();
        seen.push(name(&block));
    }
    assert_eq!(seen, [record("a:main"), record("c:main"), record("b:main"), retracted("d:main")]);
    ledger(&service, "e").await;
    pump(&service.table).await;
    assert_eq!(name(&Stream::resume(&service, ALL, last).await.event().await), record("e:main"));
}

#[tokio::test]
async fn many_changes_of_a_record_are_reported_once_and_read_once() {
    let service = Service::start().await;
    born(&service, "mydb", 1).await;
    let entries: Vec<_> = (1..=49).map(|n| moved("mydb", n, json!({}))).collect();
    assert!(service.table.feed.append(&entries).await.error.is_none());
    service.table.proxy.take_requests();
    let mut stream = Stream::resume(&service, ALL, 0).await;
    assert_eq!(stream.event().await.id, Some(49));
    let of_records = |request: &nameservice_tests::proxy::Request| {
        request.body.to_string().contains(&format!("\"{}\"", service.table.name))
    };
    let reads = service.table.proxy.take_requests().iter().filter(|request| of_records(request)).count();
    assert_eq!(reads, 1);
}

#[tokio::test]
async fn a_record_that_took_the_place_of_one_of_another_kind_is_reported_beside_its_end() {
    let service = Service::with_stream().await;
    born(&service, "x", 1).await;
    service.delete("/v1/records/x").await.expect(204);
    source(&service, "x", &[]).await;
    pump(&service.table).await;
    let mut stream = Stream::resume(&service, ALL, 0).await;
    let kinds: Vec<_> =
        stream.events(2).await.iter().map(|block| (block.event.clone(), data_of(block)["kind"].clone())).collect();
    let expected = [("ns-retracted", "ledger"), ("ns-record", "graph-source")];
    assert_eq!(kinds, expected.map(|(event, kind)| (Some(event.to_owned()), json!(kind))));
}

#[tokio::test]
async fn an_id_of_another_server_begins_anew_and_one_that_has_expired_is_gone() {
    let service = Service::with_stream().await;
    born(&service, "mydb", 1).await;
    pump(&service.table).await;
    let mut stream = Stream::open(&service, ALL, &[("last-event-id", "ledger:mydb:main:1:0")]).await;
    assert_eq!(names(&opening(&mut stream).await.0), [record("mydb:main")]);
    let oldest = service.table.feed.begin_epoch().await.unwrap();
    let answer = service.send(Method::GET, ALL, &[("last-event-id", "1")], None).await;
    assert_eq!(answer.problem(410, "expired")["oldest"], json!(oldest));
    // The open one gets the event, and ends.
    assert_eq!(stream.rest().await.last().unwrap().of("expired"), json!({ "oldest": oldest }));
}

#[tokio::test]
async fn a_reader_who_is_cut_in_the_opening_has_no_id_to_come_back_with() {
    // A stream that ends before it asks for the records is repeated with more time.
    for seconds in [0.1, 1.0, 10.0] {
        let service = within(Limits { lifetime: Duration::from_secs_f64(seconds), ..Limits::default() }).await;
        service.table.store.create_ledger(&Call::fresh(), &at("mydb"), None, None).await.unwrap().applied();
        service.table.proxy.on("Scan", Fault::delay(nameservice_tests::LONG).always());
        let blocks = Stream::open(&service, ALL, &[]).await.rest().await;
        assert!(!blocks.is_empty() && blocks.iter().all(|block| block.id.is_none()), "{blocks:?}");
        let has_asked = service.table.proxy.count("Scan") > 0;
        service.table.proxy.disarm();
        if has_asked {
            return;
        }
    }
    panic!("no stream asks for the records");
}

#[tokio::test]
async fn a_failure_of_the_store_in_the_opening_is_waited_out() {
    let service = within(Limits::default()).await;
    service.table.store.create_ledger(&Call::fresh(), &at("mydb"), None, None).await.unwrap().applied();
    for (path, operation) in [(ALL, "Scan"), ("/fluree/events?ledger=mydb", "Query")] {
        service.table.proxy.on(operation, Fault::answer(400, "AccessDeniedException"));
        let mut stream = Stream::open(&service, path, &[]).await;
        assert_eq!(names(&opening(&mut stream).await.0), [record("mydb:main")], "{path}");
        service.table.proxy.disarm();
    }
}

#[tokio::test]
async fn a_token_receives_its_own_records() {
    use super::authorization::{guarded, narrow, token};
    let service = guarded().await;
    let store = &service.table.store;
    for name in ["mine/a", "theirs"] {
        store.create_ledger(&Call::fresh(), &at(name), Some(&new_head(1)), None).await.unwrap().applied();
    }
    let globs = narrow("nameservice:read", json!(["mine/*"]));
    let of_fluree = token(json!({ "fluree.storage.ledgers": ["mine/a"] }));
    let of_events = token(json!({ "fluree.events.ledgers": ["mine/a"] }));
    let bearer = format!("Bearer {of_events}");
    for path in ["/v1/events", "/v1/records/mine/a", "/fluree/storage/ns/mine/a", "/fluree/nameservice/snapshot"] {
        let answer = service.send(Method::GET, path, &[("authorization", &bearer)], None).await;
        answer.problem(403, "insufficient-scope");
    }
    for token in [globs, of_fluree, of_events] {
        let bearer = format!("Bearer {token}");
        for path in [ALL, "/fluree/events?ledger=mine/a&ledger=theirs"] {
            let mut stream = Stream::open(&service, path, &[("authorization", &bearer)]).await;
            assert_eq!(names(&opening(&mut stream).await.0), [record("mine/a:main")]);
        }
    }
    let bearer = format!("Bearer {}", token(json!({ "fluree.storage.ledgers": ["mine/a"] })));
    let mut stream = Stream::open(&service, ALL, &[("authorization", &bearer)]).await;
    opening(&mut stream).await;
    for name in ["theirs", "mine/a"] {
        store.push_head(&Call::fresh(), &at(name), &older(head(2))).await.unwrap().applied();
    }
    pump(&service.table).await;
    assert_eq!(name(&stream.event().await), record("mine/a:main"));
}

#[tokio::test]
async fn a_stream_of_more_records_than_it_can_send_is_rejected_with_advice() {
    let service = within(Limits { records: 2, ..Limits::default() }).await;
    let create = async |name: &str| {
        service.table.store.create_ledger(&Call::fresh(), &at(name), None, None).await.unwrap().applied();
    };
    create("a").await;
    create("b").await;
    let mut stream = Stream::open(&service, ALL, &[]).await;
    assert_eq!(opening(&mut stream).await.0.len(), 2);
    create("c").await;
    for path in [ALL, "/v1/fluree/events?all&ledger=a"] {
        let problem = service.get(path).await.problem(413, "payload-too-large");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("nameservice serve --upstream"), "{detail}");
    }
    assert_eq!(Limits::default().records, 3_000_000);
    assert!(include_str!("../../docs/fluree.md").contains("rejected with 413 beyond 3,000,000"));
    assert!(include_str!("../../docs/specification.md").contains("if there are more than 3,000,000 records"));
    // Its reader is sent what has changed, or what it names.
    Stream::open(&service, ALL, &[("last-event-id", "0")]).await;
    let mut stream = Stream::open(&service, "/fluree/events?ledger=a&ledger=b&ledger=c", &[]).await;
    assert_eq!(opening(&mut stream).await.0.len(), 3);
    // A count that cannot be had is no reason.
    service.table.proxy.on_each(&["DescribeTable"], Fault::answer(400, "AccessDeniedException").times(1));
    let mut stream = Stream::open(&service, ALL, &[]).await;
    assert_eq!(opening(&mut stream).await.0.len(), 3);
    assert!(service.table.proxy.is_spent());
}

#[tokio::test]
async fn a_stream_whose_time_is_over_before_all_records_were_sent_ends_with_the_advice() {
    let service = within(Limits { lifetime: Duration::ZERO, ..Limits::default() }).await;
    let last = Stream::open(&service, ALL, &[]).await.rest().await.pop().unwrap();
    let problem = last.of("error");
    assert_eq!((&problem["status"], last.id), (&json!(413), None), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("nameservice serve --upstream"), "{problem}");
    // The reader that was sent them resumes.
    let last = Stream::open(&service, ALL, &[("last-event-id", "0")]).await.rest().await.pop().unwrap();
    assert_eq!((last.id, last.data), (Some(0), None));
}

#[tokio::test]
async fn ledgers_and_graph_sources_are_granted_apart() {
    use super::authorization::{guarded, token};
    let service = guarded().await;
    let store = &service.table.store;
    for name in ["mydb", "other"] {
        store.create_ledger(&Call::fresh(), &at(name), Some(&new_head(1)), None).await.unwrap().applied();
    }
    let publish = async |name: &str, k1: i64| {
        let config = object(json!({ "k1": k1 }));
        let publication = GraphSourcePublication::new(at(name), "f:Bm25Index", config).unwrap();
        let _ = store.publish_graph_source(&Call::fresh(), &publication).await.unwrap();
    };
    for name in ["search", "vectors"] {
        publish(name, 1).await;
    }
    pump(&service.table).await;
    let ledgers = json!({ "fluree.events.ledgers": ["mydb", "search"] });
    let sources = json!({ "fluree.events.graph_sources": ["search", "mydb"] });
    let both = json!({ "fluree.events.ledgers": ["mydb"], "fluree.events.graph_sources": ["vectors"] });
    let mut streams = Vec::new();
    for (claims, expected) in [
        (ledgers, vec![record("mydb:main")]),
        (sources, vec![record("search:main")]),
        (both, vec![record("mydb:main"), record("vectors:main")]),
    ] {
        let bearer = format!("Bearer {}", token(claims));
        for path in [ALL, "/fluree/events?ledger=mydb&ledger=other&graph-source=search&graph-source=vectors"] {
            let mut stream = Stream::open(&service, path, &[("authorization", &bearer)]).await;
            let mut shown = names(&opening(&mut stream).await.0);
            shown.sort();
            assert_eq!(shown, expected, "{path}");
            streams.push((stream, expected.clone()));
        }
    }
    for name in ["other", "mydb"] {
        store.push_head(&Call::fresh(), &at(name), &older(head(2))).await.unwrap().applied();
    }
    for name in ["search", "vectors"] {
        publish(name, 2).await;
    }
    pump(&service.table).await;
    for (mut stream, expected) in streams {
        assert_eq!(names(&stream.events(expected.len()).await), expected);
    }
}

#[tokio::test]
async fn an_open_service_needs_no_token() {
    let service = Service::start().await;
    let mut stream = Stream::open(&service, ALL, &[]).await;
    assert_eq!(opening(&mut stream).await, (vec![], 0));
}
