//! Subscriptions of GraphQL on AWS: what the consumer publishes, what it does about answers that are none, and that the feed continues
//! without them. A server that reads requests by the schema of AppSync, and answers as AppSync does, stands in for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{Arc, LazyLock, Mutex, atomic::Ordering},
    time::Duration,
};

use async_graphql::{
    Positioned,
    parser::{
        parse_query, parse_schema,
        types::{DocumentOperations, OperationType, Selection, TypeKind, TypeSystemDefinition},
    },
};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use axum::{Router, extract::State, routing::post};
use http::{HeaderMap, StatusCode};
use nameservice_signer::Signer;
use nameservice_tests::prelude::*;
use stream_consumer::{Consumer, HintError, Subscriptions};
use tokio::net::TcpListener;

use super::{
    doorbell::{Never, change},
    raw, records, whole, with_the_clock_stopped,
};

/// The schema of AppSync: the types of the members of each object, and the values of each enum.
static SCHEMA: LazyLock<BTreeMap<String, BTreeMap<String, String>>> = LazyLock::new(|| {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/modules/graphql/changes.graphql");
    let definitions = parse_schema(fs::read_to_string(file).unwrap()).unwrap().definitions.into_iter();
    let types = definitions.filter_map(|definition| {
        let TypeSystemDefinition::Type(definition) = definition else { return None };
        let members = match definition.node.kind {
            TypeKind::Object(object) => object
                .fields
                .into_iter()
                .map(|field| (field.node.name.node.to_string(), field.node.ty.node.to_string()))
                .collect(),
            TypeKind::InputObject(object) => object
                .fields
                .into_iter()
                .map(|field| (field.node.name.node.to_string(), field.node.ty.node.to_string()))
                .collect(),
            TypeKind::Enum(values) => {
                values.values.into_iter().map(|value| (value.node.value.node.to_string(), String::new())).collect()
            }
            _ => BTreeMap::new(),
        };
        Some((definition.node.name.node.to_string(), members))
    });
    types.collect()
});

/// Reads a request as AppSync does; returns the change that it publishes. Subscribers get what the request selects: everything.
fn published(request: &Value) -> Value {
    let document = parse_query(request["query"].as_str().unwrap()).unwrap();
    assert!(document.fragments.is_empty());
    let operation = match document.operations {
        DocumentOperations::Single(operation) => operation.node,
        DocumentOperations::Multiple(mut operations) => {
            assert_eq!(operations.len(), 1);
            operations.drain().next().unwrap().1.node
        }
    };
    assert_eq!(operation.ty, OperationType::Mutation);
    let [variable] = &operation.variable_definitions[..] else { panic!("{operation:?}") };
    assert_eq!(variable.node.var_type.node.to_string(), "ChangeInput!");
    let [Positioned { node: Selection::Field(mutation), .. }] = &operation.selection_set.node.items[..] else {
        panic!("AppSync passes on what one mutation returns: {operation:?}")
    };
    assert!(mutation.node.alias.is_none(), "AppSync passes on nothing that has an alias");
    assert_eq!(mutation.node.name.node, "publishChange");
    let [(argument, value)] = &mutation.node.arguments[..] else { panic!("{mutation:?}") };
    let name = &variable.node.name.node;
    assert_eq!((argument.node.as_str(), value.node.to_string()), ("change", format!("${name}")));
    let selected = mutation.node.selection_set.node.items.iter().map(|item| {
        let Selection::Field(field) = &item.node else { panic!("{item:?}") };
        assert!(field.node.alias.is_none());
        field.node.name.node.to_string()
    });
    assert_eq!(selected.collect::<BTreeSet<_>>(), SCHEMA["Change"].keys().cloned().collect());
    let change = &request["variables"][name.as_str()];
    let given = change.as_object().unwrap();
    for name in given.keys() {
        assert!(SCHEMA["ChangeInput"].contains_key(name), "ChangeInput has no `{name}`");
    }
    for (name, kind) in &SCHEMA["ChangeInput"] {
        let value = &change[name];
        if value.is_null() {
            assert!(!kind.ends_with('!'), "{name}: {kind}");
            continue;
        }
        let fits = match kind.trim_end_matches('!') {
            "Float" => value.is_number(),
            "String" => value.is_string(),
            "Boolean" => value.is_boolean(),
            "AWSJSON" => serde_json::from_str::<Value>(value.as_str().unwrap()).is_ok(),
            kind => SCHEMA[kind].contains_key(value.as_str().unwrap()),
        };
        assert!(fits, "{name}: {kind} is not {value}");
    }
    change.clone()
}

/// The changes that the server has taken, and what it answers instead for an address.
#[derive(Clone, Default)]
struct Server {
    taken: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    answers: Arc<Mutex<BTreeMap<String, (u16, Value)>>>,
    /// Addresses with a change that is not answered yet.
    open: Arc<Mutex<BTreeSet<String>>>,
}

impl Server {
    async fn start() -> (Self, String) {
        let server = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/graphql", listener.local_addr().unwrap());
        let router = Router::new().route("/graphql", post(take)).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (server, url)
    }

    fn answer(&self, address: &str, status: u16, body: Value) {
        self.answers.lock().unwrap().insert(address.to_owned(), (status, body));
    }

    /// The changes, in the order in which they came.
    fn changes(&self) -> Vec<Value> {
        self.taken.lock().unwrap().iter().map(|(_, change)| change.clone()).collect()
    }
}

async fn take(State(server): State<Server>, headers: HeaderMap, body: String) -> (StatusCode, String) {
    assert_eq!(headers["content-type"], "application/json");
    let change = published(&serde_json::from_str(&body).unwrap());
    let address = change["address"].as_str().unwrap().to_owned();
    if let Some((status, answer)) = server.answers.lock().unwrap().get(&address) {
        return (StatusCode::from_u16(*status).unwrap(), answer.to_string());
    }
    assert!(server.open.lock().unwrap().insert(address.clone()), "{address}: a change overtakes the one before");
    // Others come now, if they do not wait for this one.
    tokio::task::yield_now().await;
    server.taken.lock().unwrap().push((headers, change.clone()));
    server.open.lock().unwrap().remove(&address);
    (StatusCode::OK, json!({ "data": { "publishChange": change } }).to_string())
}

fn positions(changes: &[Value]) -> Vec<u64> {
    changes.iter().map(|change| change["position"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_change_is_published_whole_and_signed() {
    let (server, url) = Server::start().await;
    let credentials = Credentials::new("AKIDEXAMPLE", "secret", Some("session".to_owned()), None, "test");
    let signer = Signer::new(SharedCredentialsProvider::new(credentials), "eu-central-1", "appsync");
    let subscriptions = Subscriptions::new(&url, Some(signer)).unwrap();
    let mut source = change(8, "tenant/search:main", json!({ "a": "\"ü\"" }));
    source.identity = Identity { kind: RecordKind::GraphSource, source_type: Some("f:Bm25Index".to_owned()) };
    source.part = ChangedPart::Concern(ConcernKind::Config);
    source.kind = ChangeKind::Created;
    source.previous = Some(3);
    let mut gone = change(9, "mydb:main", json!(null));
    (gone.part, gone.kind) = (ChangedPart::Meta, ChangeKind::Purged);
    gone.payload = ChangePayload::Omitted;
    let hints = with_the_clock_stopped("an answer of AppSync", subscriptions.publish(&[source, gone])).await;
    assert_eq!((hints.of, hints.lost), (2, 0), "{:?}", hints.error);
    let mut changes = server.changes();
    changes.sort_by_key(|change| change["position"].as_u64());
    let times = json!({ "occurredAt": "2026-01-01T00:00:00.000Z", "recordedAt": "2026-01-01T00:00:01.000Z" });
    let whole = |mut change: Value| {
        change.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        change
    };
    assert_eq!(
        changes,
        [
            whole(json!({
                "position": 8, "address": "tenant/search:main", "kind": "GRAPH_SOURCE", "sourceType": "f:Bm25Index",
                "concern": "CONFIG", "change": "CREATED", "watermark": 8, "previous": 3, "payload": r#"{"a":"\"ü\""}"#,
                "payloadOmitted": false,
            })),
            whole(json!({
                "position": 9, "address": "mydb:main", "kind": "LEDGER", "sourceType": null, "concern": "META",
                "change": "PURGED", "watermark": 9, "previous": null, "payload": null, "payloadOmitted": true,
            })),
        ]
    );
    for (headers, _) in &*server.taken.lock().unwrap() {
        let authorization = headers["authorization"].to_str().unwrap();
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"), "{authorization}");
        assert!(authorization.contains("/eu-central-1/appsync/aws4_request"), "{authorization}");
        assert_eq!(headers["x-amz-security-token"], "session");
    }
}

#[tokio::test]
async fn the_changes_of_a_record_are_published_in_the_order_of_their_positions() {
    let (server, url) = Server::start().await;
    let subscriptions = Subscriptions::new(&url, None).unwrap();
    // Changes that were appended before come with their former positions, and a change that was delivered twice comes twice.
    let names = ["a:main", "b:main", "c:main"].into_iter().cycle();
    let mut changes: Vec<Change> = (1..=60).rev().zip(names).map(|(n, name)| change(n, name, json!(n))).collect();
    changes.push(changes[7].clone());
    // A row of a name that is no address, which nobody sees over GraphQL.
    let stray = Change { address: Address::stored("a//b@c"), ..change(61, "a:main", json!(null)) };
    changes.push(stray);
    let hints = with_the_clock_stopped("an answer of AppSync", subscriptions.publish(&changes)).await;
    assert_eq!((hints.of, hints.lost), (60, 0), "{:?}", hints.error);
    let taken = server.changes();
    for address in ["a:main", "b:main", "c:main"] {
        let of: Vec<Value> = taken.iter().filter(|change| change["address"] == address).cloned().collect();
        assert_eq!(of.len(), 20);
        assert!(positions(&of).is_sorted(), "{address}: {:?}", positions(&of));
    }
    // Of one record, they are in the order of the feed.
    let changes = [change(71, "d", json!(1)), change(70, "d", json!(0))];
    let hints = with_the_clock_stopped("an answer of AppSync", subscriptions.publish(&changes)).await;
    assert_eq!(hints.lost, 0);
    assert_eq!(positions(&server.changes()[60..]), [70, 71]);
    assert_eq!(subscriptions.publish(&[]).await.of, 0);
}

#[tokio::test]
async fn what_appsync_does_not_take_is_counted() {
    let (server, url) = Server::start().await;
    let denied = json!({ "errors": [{ "errorType": "UnauthorizedException", "message": "Permission denied" }] });
    let rejected = json!({ "data": { "publishChange": null }, "errors": [{ "path": ["publishChange"], "errorType": "Unauthorized" }] });
    server.answer("denied:main", 401, denied);
    server.answer("rejected:main", 200, rejected);
    server.answer("nothing:main", 200, json!({ "data": { "publishChange": null } }));
    server.answer("strange:main", 200, json!("no answer of AppSync"));
    let subscriptions = Subscriptions::new(&url, None).unwrap();
    let changes: Vec<Change> = (1..)
        .zip(["denied", "rejected", "nothing", "strange", "fine"])
        .flat_map(|(n, name)| [change(2 * n, name, json!(null)), change(2 * n + 1, name, json!(null))])
        .collect();
    let hints = with_the_clock_stopped("an answer of AppSync", subscriptions.publish(&changes)).await;
    assert_eq!((hints.of, hints.lost), (10, 8));
    assert!(matches!(hints.error, Some(HintError::Answered { status: 401 | 200, .. })), "{:?}", hints.error);
    assert_eq!(positions(&server.changes()), [10, 11], "a failure does not end what follows it");
    for url in ["ftp://x/graphql", "/graphql", "https://"] {
        assert!(matches!(Subscriptions::new(url, None), Err(HintError::Invalid(_))), "{url}");
    }
}

/// Nothing here does I/O, so the paused clock advances as far as it has to.
#[tokio::test(start_paused = true)]
async fn an_api_that_hangs_is_left_alone_for_half_a_minute() {
    let never = Never::default();
    let signer = Signer::new(SharedCredentialsProvider::new(never.clone()), "eu-central-1", "appsync");
    let subscriptions = Subscriptions::new("http://127.0.0.1:9/graphql", Some(signer)).unwrap();
    let changes: Vec<Change> = (1..).zip(["a", "b", "a", "b"]).map(|(n, name)| change(n, name, json!(null))).collect();
    let begun = tokio::time::Instant::now();
    let hints = subscriptions.publish(&changes).await;
    assert!((hints.of, hints.lost) == (4, 4) && matches!(hints.error, Some(HintError::OutOfTime)), "{hints:?}");
    assert_eq!(begun.elapsed(), Duration::from_secs(1), "of the test's clock");
    assert_eq!(never.0.load(Ordering::Relaxed), 2, "one of each record");

    let hints = subscriptions.clone().publish(&changes).await;
    assert!(hints.lost == 4 && matches!(hints.error, Some(HintError::Silent)), "{hints:?}");
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    assert_eq!(never.0.load(Ordering::Relaxed), 2, "it has tried");

    tokio::time::advance(Duration::from_secs(31)).await;
    assert_eq!(subscriptions.publish(&changes).await.lost, 4);
    assert_eq!(never.0.load(Ordering::Relaxed), 4, "it has not tried again");
}

#[tokio::test]
async fn the_feed_continues_without_its_subscribers() {
    let (server, url) = Server::start().await;
    let table = Table::with_stream().await;
    for name in ["a", "b"] {
        table.store.create_ledger(&Call::fresh(), &at(name), Some(&new_head(1)), None).await.unwrap().applied();
    }
    server.answer("a:main", 500, json!({}));
    let consumer = Consumer::new(table.store.clone(), table.feed.clone())
        .with_subscriptions(Subscriptions::new(&url, None).unwrap());
    let batch = json!({ "Records": records(&table).await });
    let answer = with_the_clock_stopped("the end of a batch", consumer.handle(raw(&batch))).await;
    assert!(answer.batch_item_failures.is_empty(), "{answer:?}");

    let changes = whole(&table.feed).await;
    assert!(changes.iter().any(|change| change.address == at("a")));
    let of_b: Vec<u64> =
        changes.iter().filter(|change| change.address == at("b")).map(|change| change.position).collect();
    assert!(of_b.len() > 1);
    assert_eq!(positions(&server.changes()), of_b, "each change that the feed holds");
}
