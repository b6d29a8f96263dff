//! Functions stay within the memory that they are deployed with, whatever the payloads of changes: what each holds at most is counted byte
//! by byte, on the thread that runs it. The engine has threads of its own.

use std::{fs, path::PathBuf, sync::Arc};

use allocation_counter::measure;
use axum::{Router, body::Body};
use http::Request;
use http_body_util::BodyExt as _;
use nameservice_archive::{Archive, Archiver};
use nameservice_cli::routes;
use nameservice_feed::{Entry, MAX_TRANSACTION};
use nameservice_http::{App, Auth};
use nameservice_objects::object_store::{ObjectStore, memory::InMemory};
use nameservice_projector::records::{RECORDS, table_of};
use nameservice_store::Difference;
use nameservice_tests::{mapping::event_record, prelude::*, pump};
use nameservice_views::View;
use stream_consumer::Consumer;
use tokio::{
    runtime::{Builder, Runtime},
    time::Instant,
};
use topic_publisher::TopicPublisher;
use tower::ServiceExt as _;

use crate::infra::permissions::Everything;

/// The part of a function's memory that is counted. The rest is for its program, other threads, and what the allocator cannot use.
const PART: f64 = 0.6;

/// Returns the memory that a function is deployed with, in bytes.
fn deployed(function: &str) -> f64 {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../infra/modules/nameservice/functions.tf");
    let module = fs::read_to_string(path).unwrap();
    let memory = |text: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with("memory "))?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let of_function = module.split(&format!("\n    {function} = {{")).nth(1).expect("the function");
    let of_function = memory(of_function.split("\n    }\n").next().unwrap());
    let default = memory(module.split("\n  defaults = {").nth(1).unwrap()).expect("a default");
    of_function.unwrap_or(default) * 1024.0 * 1024.0
}

/// A runtime with one thread, which is the one that is counted.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs a function, and asserts that it holds no more than its part.
fn within<T>(runtime: &Runtime, function: &str, what: &str, work: impl Future<Output = T>) -> T {
    let mut done = None;
    let counted = measure(|| done = Some(runtime.block_on(work)));
    let part = counted.bytes_max as f64 / deployed(function);
    println!("{function} {what}: {:.0} MB, {part:.2} of its memory", counted.bytes_max as f64 / 1e6);
    assert!(part <= PART, "{function} holds {part:.2} of its memory for {what}");
    done.unwrap()
}

/// Shapes of payloads: they take from as much memory as their JSON to a hundred times that.
const SHAPES: [&str; 5] = ["text", "numbers", "lists", "objects", "members"];

/// Returns a payload of a shape whose JSON has about this many bytes.
fn payload(shape: &str, bytes: usize) -> Value {
    let many = |value: Value| json!(vec![value.clone(); bytes / (value.to_string().len() + 1)]);
    let values = match shape {
        "text" => json!("x".repeat(bytes)),
        "numbers" => many(json!(0)),
        "lists" => many(json!([0])),
        "objects" => many(json!({ "a": 0 })),
        _ => (0..bytes / 8).map(|n| (format!("{n:04x}"), json!(0))).collect::<serde_json::Map<_, _>>().into(),
    };
    json!({ "state": "s", "a": values })
}

/// The estimate by which everything else is bounded.
#[test]
fn the_memory_of_a_payload_is_estimated_at_what_it_takes_or_up_to_three_times_that() {
    let empty = [json!({}), json!([]), json!("")].map(|value| json!(vec![value; 4096]));
    let texts = SHAPES.map(|what| payload(what, 16_000)).into_iter().chain(empty).map(|value| value.to_string());
    for text in texts {
        let mut parsed = None;
        let taken = measure(|| parsed = Some(serde_json::from_str(&text).unwrap())).bytes_current as f64;
        let estimated = ChangePayload::Value(parsed.unwrap()).memory() as f64 / taken;
        assert!((0.9..3.0).contains(&estimated), "{estimated}: {}", &text[..40]);
    }
}

/// Pushes a status over the API. Returns the code of the answer.
async fn push(router: &Router, v: i64, payload: &Value) -> u16 {
    let push = json!({ "expected": { "v": v }, "new": { "payload": payload } });
    let request = Request::put("/v1/statuses/a").header("content-type", "application/json");
    let answer = router.clone().oneshot(request.body(Body::from(push.to_string())).unwrap()).await.unwrap();
    answer.status().as_u16()
}

/// The stream of a table as the body of an event, which Lambda limits to 6 MB.
async fn event(table: &Table) -> Vec<u8> {
    let records: Vec<Value> = pump::deliveries(table).await.iter().map(event_record).collect();
    json!({ "Records": records }).to_string().into_bytes()
}

/// Consumes an event as Lambda's runtime delivers it.
fn consumed(runtime: &Runtime, consumer: &Consumer, what: &str, event: &[u8]) -> Option<String> {
    let work = async {
        let body = event.to_vec();
        consumer.handle(serde_json::from_slice(&body).unwrap()).await
    };
    let mut failures = within(runtime, "stream_consumer", what, work).batch_item_failures;
    failures.pop().map(|failure| failure.item_identifier.unwrap())
}

/// The largest status that the API accepts, as it is pushed twice: its stream record has both.
#[test]
fn the_largest_status_comes_into_the_feed() {
    let runtime = runtime();
    for what in SHAPES {
        let table = runtime.block_on(Table::with_stream());
        let router = router(&table);
        let event = runtime.block_on(async {
            table.store.create_ledger(&Call::fresh(), &at("a:main"), None, None).await.unwrap().applied();
            // How large an item is depends on the shape.
            let mut bytes = 260_000;
            while push(&router, 1, &payload(what, bytes)).await == 413 {
                bytes -= 10_000;
            }
            assert!(bytes > 100_000 && push(&router, 2, &payload(what, bytes)).await == 200, "{what}");
            event(&table).await
        });
        let consumer = Consumer::new(table.store.clone(), table.feed.clone());
        assert_eq!(consumed(&runtime, &consumer, what, &event), None);
        assert_eq!(runtime.block_on(table.feed.position()).unwrap(), 4);
    }
}

#[test]
fn the_largest_batch_of_the_worst_payloads_is_appended_in_parts_in_order_each_once() {
    const PUSHES: i64 = 50;
    let runtime = runtime();
    let table = runtime.block_on(Proxied::with_stream());
    let (what, payload) = ("objects", payload("objects", 16_000));
    let batch = runtime.block_on(async {
        let router = router(&table);
        table.store.create_ledger(&Call::fresh(), &at("a:main"), None, None).await.unwrap().applied();
        for v in 1..=PUSHES {
            assert_eq!(push(&router, v, &payload).await, 200);
        }
        event(&table).await
    });
    assert!((4_000_000..6_000_000).contains(&batch.len()), "{} bytes", batch.len());
    let transactions = || table.proxy.take_operations().iter().filter(|name| *name == "TransactWriteItems").count();
    let consumer = Consumer::new(table.store.clone(), table.feed.clone());
    // A part in the middle fails.
    transactions();
    table.proxy.on("TransactWriteItems", Fault::answer(400, "AccessDeniedException").times(1).skipping(3));
    let failed = consumed(&runtime, &consumer, what, &batch).expect("a failure");
    assert_eq!(transactions(), 4);
    // It is delivered again from there.
    let mut event: Value = serde_json::from_slice(&batch).unwrap();
    let records = event["Records"].as_array_mut().unwrap();
    let done = records.iter().position(|record| record["dynamodb"]["SequenceNumber"] == *failed).unwrap();
    records.drain(..done);
    assert!(done > 5, "{done}");
    assert_eq!(consumed(&runtime, &consumer, what, event.to_string().as_bytes()), None);
    assert!(transactions() > 3, "in parts");
    let limit = Limit::new(1_000).unwrap();
    let mut changes = Vec::new();
    while let Run::Changes(more) = runtime.block_on(table.feed.changes(changes.len() as u64, limit)).unwrap()
        && !more.is_empty()
    {
        changes.extend(more.into_iter().map(|change| (change.part, change.watermark)));
    }
    let statuses: Vec<i64> =
        changes.iter().filter(|(part, _)| *part == ConcernKind::Status.into()).map(|(_, v)| *v).collect();
    assert_eq!(statuses, (1..=PUSHES + 1).collect::<Vec<_>>());
}

fn router(table: &Table) -> Router {
    let app = App::new(Arc::new(table.store.clone()), Arc::new(table.feed.clone()), Auth::Open);
    nameservice_http::service(routes::router(), app)
}

/// Appends this many statuses of the largest size that changes carry.
async fn append(table: &Table, count: usize, value: &Value) {
    let entry = |n: usize| Entry {
        event_id: format!("{n:020}"),
        sequence_number: n.to_string(),
        difference: Difference {
            address: at("a:main"),
            part: ChangedPart::Concern(ConcernKind::Status),
            kind: ChangeKind::Updated,
            watermark: i64::try_from(n).unwrap(),
            previous: None,
            payload: ChangePayload::of(value.clone()),
            occurred_at: jiff::Timestamp::now(),
        },
        identity: Identity { kind: RecordKind::Ledger, source_type: None },
    };
    for first in (0..count).step_by(MAX_TRANSACTION) {
        let entries: Vec<Entry> = (first..count.min(first + MAX_TRANSACTION)).map(entry).collect();
        assert!(table.feed.append(&entries).await.error.is_none());
    }
}

/// Reads pages of changes until one is empty, each within the memory of its function. Returns the positions of the changes.
fn pages(
    runtime: &Runtime,
    function: &str,
    what: &str,
    router: &Router,
    path: impl Fn(u64) -> String,
    first: u64,
) -> Vec<u64> {
    let (mut positions, mut at) = (Vec::new(), first);
    loop {
        let body = within(runtime, function, what, async {
            let answer = router.clone().oneshot(Request::get(path(at)).body(Body::empty()).unwrap()).await.unwrap();
            assert!(answer.status().is_success(), "{}: {}", path(at), answer.status());
            answer.into_body().collect().await.unwrap().to_bytes()
        });
        let page: Value = serde_json::from_slice(&body).unwrap();
        let changes = page["changes"].as_array().unwrap().iter().map(|change| change["position"].as_u64().unwrap());
        positions.extend(changes);
        match page["position"].as_u64() {
            Some(position) if position != at => at = position,
            _ => return positions,
        }
    }
}

#[test]
fn statuses_of_16_kb_are_read_by_every_function() {
    let runtime = runtime();
    for (what, count) in [("text", 1_000), ("objects", 200)] {
        let value = payload(what, 16_000);
        let table = runtime.block_on(Table::with_stream());
        let rows = View::new(table.client.clone(), table_of(&table.name), &RECORDS);
        runtime.block_on(rows.ensure_table()).unwrap();
        let projector = view_projector::projector(table.store.clone(), table.feed.clone(), rows);
        let until = Instant::now() + LONG;
        // Its rows begin before the changes, which it reads therefore.
        runtime.block_on(view_projector::project(&projector, until)).unwrap();
        runtime.block_on(append(&table, count, &value));
        let router = router(&table);
        let all: Vec<u64> = (1..=count as u64).collect();
        let list = |filter: &str| {
            let path = |after: u64| format!("/v1/changes?limit=1000&after={after}{filter}");
            pages(&runtime, "change_list", what, &router, path, 0)
        };
        assert_eq!(list(""), all);
        assert_eq!(list("&kind=graph_source"), [0u64; 0]);
        let history =
            |path: &dyn Fn(u64) -> String, first: u64| pages(&runtime, "history_list", what, &router, path, first);
        assert_eq!(history(&|after| format!("/v1/history/a?limit=1000&after={after}"), 0), all);
        let newest = history(&|before| format!("/v1/history/a?limit=1000&order=newest&before={before}"), u64::MAX >> 1);
        assert_eq!(newest, all.iter().rev().copied().collect::<Vec<_>>());
        let publisher = TopicPublisher::new(table.feed.clone(), Arc::new(Everything), Arc::new(Everything));
        let done = within(&runtime, "topic_publisher", what, publisher.catch_up(Some(1), None)).unwrap();
        assert_eq!(done.published, count);
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let archive = Archive::new(objects, "archive", "the archive");
        let archiver = Archiver::new(Arc::new(table.feed.clone()), archive.clone());
        let archived = within(&runtime, "feed_archive", what, feed_archive::archive(&archiver, until)).unwrap();
        assert_eq!(archived.changes, count as u64);
        let run = within(&runtime, "change_list", what, archive.changes(0, Limit::MAX)).unwrap();
        assert!(matches!(run, Run::Changes(changes) if !changes.is_empty()));
        let query = HistoryQuery { limit: Limit::MAX, ..HistoryQuery::default() };
        let history = within(&runtime, "history_list", what, archive.history(&at("a:main"), &query)).unwrap();
        assert!(!history.changes.is_empty());
        let projected = within(&runtime, "view_projector", what, view_projector::project(&projector, until)).unwrap();
        assert_eq!((projected.changes, projected.rebuilt), (count as u64, false));
    }
}
