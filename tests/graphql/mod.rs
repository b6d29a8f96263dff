//! GraphQL: the same records, writes and callers as over `/v1`.

use std::{fs, path::Path, sync::Arc};

use axum::{Router, body::Body, extract::FromRef as _};
use futures_util::{SinkExt as _, StreamExt as _};
use http::{Request, header};
use http_body_util::BodyExt as _;
use nameservice_cli::routes;
use nameservice_embedded::{Embedded, Options};
use nameservice_graphql::Writes;
use nameservice_http::{App, Auth};
use nameservice_projector::records::InProcess as Views;
use nameservice_tests::prelude::*;
use tokio::net::TcpListener;
use tokio_tungstenite::{
    connect_async,
    tungstenite::{self, Message, client::IntoClientRequest as _},
};
use tower::ServiceExt as _;

use crate::routes::authorization::{narrow, scope, verifying};

/// A service over the embedded backend in memory.
struct Graph {
    router: Router,
    names: Embedded,
    token: Option<String>,
}

impl Graph {
    fn with(auth: Auth, writes: Writes) -> Self {
        let names = Embedded::memory(Options::default()).unwrap();
        let backend = Arc::new(names.clone());
        let app = App::new(backend.clone(), backend, auth);
        let views = Views::new(Arc::<dyn NameService>::from_ref(&app), Arc::<dyn ChangeFeed>::from_ref(&app));
        let routes = routes::router().merge(nameservice_graphql::router(Arc::new(views), writes));
        Self { router: nameservice_http::service(routes, app), names, token: None }
    }

    fn open() -> Self {
        Self::with(Auth::Open, Writes::Here)
    }

    /// The same for this caller.
    fn of(&self, token: &str) -> Self {
        Self { router: self.router.clone(), names: self.names.clone(), token: Some(token.to_owned()) }
    }

    async fn send(&self, request: Request<Body>) -> (u16, http::HeaderMap, Vec<u8>) {
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes().to_vec())
    }

    async fn post(&self, headers: &[(&str, &str)], document: &str, variables: Value) -> (u16, Value) {
        let mut request = Request::post("/graphql").header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = json!({ "query": document, "variables": variables }).to_string();
        let (status, _, body) = self.send(request.body(Body::from(body)).unwrap()).await;
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// The data of a document that must succeed.
    async fn ask(&self, document: &str) -> Value {
        let (status, mut answer) = self.post(&[], document, json!({})).await;
        assert!(status == 200 && answer.get("errors").is_none(), "{status} {answer:#}");
        answer["data"].take()
    }

    /// The first error of a document that must fail.
    async fn refused(&self, document: &str) -> Value {
        let (status, mut answer) = self.post(&[], document, json!({})).await;
        assert!(status == 200 && answer["errors"].is_array(), "{status} {answer:#}");
        answer["errors"][0].take()
    }

    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = self.router.clone();
        tokio::spawn(async move { axum::serve(listener, router).await });
        address.to_string()
    }
}

fn addresses(connection: &Value) -> Vec<&str> {
    let edges = connection["edges"].as_array().unwrap();
    edges.iter().map(|edge| edge["node"]["address"].as_str().unwrap()).collect()
}

#[test]
fn the_schema_is_the_one_that_is_checked_in() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/graphql/schema.graphql");
    let written = fs::read_to_string(file).unwrap();
    assert_eq!(
        nameservice_graphql::sdl().trim_end(),
        written.trim_end(),
        "run: cargo run -p nameservice-cli -- graphql-schema > shared/graphql/schema.graphql"
    );
}

#[tokio::test]
async fn a_ledger_is_created_pushed_and_read_and_conflicts_are_members_of_unions() {
    let graph = Graph::open();
    let created = graph.ask("mutation { createLedger(address: \"mydb\") { __typename ... on Written { record { address } } } }").await;
    assert_eq!(created["createLedger"], json!({ "__typename": "Written", "record": { "address": "mydb:main" } }));
    let again = graph.ask("mutation { createLedger(address: \"mydb\") { __typename } }").await;
    assert_eq!(again["createLedger"]["__typename"], "AlreadyExists");
    let push = |expected: &str, n: i64, t: i64| {
        format!(
            "mutation {{ pushHead(push: {{ address: \"mydb\", {expected} new: {{ id: \"{}\", t: {t} }} }}) {{ __typename \
             ... on HeadPushed {{ status value {{ t }} }} ... on HeadConflict {{ actual {{ id t }} }} \
             ... on HeadStale {{ actual {{ t }} }} ... on UnknownRecord {{ address }} }} }}",
            cid(n)
        )
    };
    let first = graph.ask(&push("expected: { t: 0 },", 1, 1)).await;
    assert_eq!(first["pushHead"], json!({ "__typename": "HeadPushed", "status": "UPDATED", "value": { "t": 1 } }));
    let conflict = graph.ask(&push("expected: { t: 0 },", 2, 2)).await;
    assert_eq!(
        conflict["pushHead"],
        json!({ "__typename": "HeadConflict", "actual": { "id": cid(1).as_str(), "t": 1 } })
    );
    let stale = graph.ask(&push("", 5, 1)).await;
    assert_eq!(stale["pushHead"], json!({ "__typename": "HeadStale", "actual": { "t": 1 } }));
    let replayed = graph.ask(&push("", 1, 1)).await;
    assert_eq!(replayed["pushHead"]["status"], "REPLAYED");
    let none = graph.ask(&push("expected: null,", 9, 9)).await;
    assert_eq!(none["pushHead"]["__typename"], "HeadConflict", "null expects no record");
    let document = "mutation { pushConfig(push: { address: \"mydb\", expected: { v: 0 }, new: { payload: { index_threshold: 3 } } }) \
                    { __typename ... on ConfigPushed { value { v payload } } } }";
    let config = graph.ask(document).await;
    assert_eq!(config["pushConfig"]["value"], json!({ "v": 1, "payload": { "index_threshold": 3 } }));
    let document = "mutation { pushStatus(push: { address: \"nobody\", expected: { v: 1 }, new: { payload: { state: \"x\" } } }) \
                    { __typename } }";
    assert_eq!(graph.ask(document).await["pushStatus"]["__typename"], "UnknownRecord");
    let document = format!(
        "mutation {{ pushIndex(push: {{ address: \"mydb\", new: {{ id: \"{}\", t: 1, graphs: [{{ name: \"g\" }}] }} }}) \
         {{ ... on IndexPushed {{ value {{ t rev graphs {{ name id }} }} }} }} }}",
        index_cid(1)
    );
    let graphs = json!([{ "name": "g", "id": null }]);
    assert_eq!(graph.ask(&document).await["pushIndex"]["value"], json!({ "t": 1, "rev": 0, "graphs": graphs }));
    // It is what the service shows elsewhere.
    let record = graph.ask("{ record(address: \"mydb\") { kind retracted head { id t } status { v state payload } config { v } } }").await;
    let expected = json!({
        "kind": "LEDGER", "retracted": false, "head": { "id": cid(1).as_str(), "t": 1 },
        "status": { "v": 1, "state": "ready", "payload": { "state": "ready" } }, "config": { "v": 1 },
    });
    assert_eq!(record["record"], expected);
    let retracted = graph.ask("mutation { retract(address: \"mydb\") { ... on Written { changed record { retracted } } } }").await;
    assert_eq!(retracted["retract"], json!({ "changed": true, "record": { "retracted": true } }));
    assert_eq!(graph.ask(&push("", 7, 7)).await["pushHead"]["__typename"], "RetractedRecord");
    assert_eq!(graph.ask("{ record(address: \"nobody\") { address } }").await["record"], json!(null));
    let history = graph.ask("{ record(address: \"mydb\") { history(first: 2) { edges { cursor node { concern change } } pageInfo { hasNextPage } } } }").await;
    let history = &history["record"]["history"];
    assert_eq!(history["edges"][0]["node"], json!({ "concern": "META", "change": "CREATED" }));
    assert_eq!(history["pageInfo"]["hasNextPage"], true);
}

#[tokio::test]
async fn connections_hold_every_record_once_whatever_the_page() {
    let graph = Graph::open();
    for name in ["a", "b", "c", "d", "e"] {
        graph.ask(&format!("mutation {{ createLedger(address: \"{name}\") {{ __typename }} }}")).await;
    }
    for field in ["records(", "search(q: \"main\", ", "records(filter: { kind: LEDGER, prefix: \"\" }, "] {
        for first in [1, 2, 9] {
            let (mut seen, mut after) = (Vec::new(), String::new());
            loop {
                let page = "{ edges { node { address } } pageInfo { hasNextPage endCursor } }";
                let data = graph.ask(&format!("{{ page: {field}first: {first}{after}) {page} }}")).await;
                seen.extend(addresses(&data["page"]).into_iter().map(str::to_owned));
                if data["page"]["pageInfo"]["hasNextPage"] != true {
                    break;
                }
                after = format!(", after: {}", data["page"]["pageInfo"]["endCursor"]);
            }
            assert_eq!(seen, ["a:main", "b:main", "c:main", "d:main", "e:main"], "{field} {first}");
        }
    }
    let data = graph.ask("{ changes(first: 3) { edges { cursor node { position address } } pageInfo { hasNextPage endCursor } } position }").await;
    assert_eq!(data["changes"]["edges"][0]["node"]["position"], 1);
    let end = data["changes"]["pageInfo"]["endCursor"].as_str().unwrap();
    let rest = graph.ask(&format!("{{ changes(first: 200, after: \"{end}\") {{ edges {{ node {{ position }} }} pageInfo {{ hasNextPage }} }} }}")).await;
    assert_eq!(rest["changes"]["edges"][0]["node"]["position"], end.parse::<i64>().unwrap() + 1);
    assert_eq!(rest["changes"]["edges"].as_array().unwrap().last().unwrap()["node"]["position"], data["position"]);
}

#[tokio::test]
async fn the_read_model_lists_by_holder_and_what_is_due() {
    let graph = Graph::open();
    for name in ["a", "b"] {
        let address = at(name);
        let _ = graph.names.create_ledger(&Call::fresh(), &address, Some(&new_head(2)), None).await.unwrap();
    }
    let _ = graph.names.push_index(&Call::fresh(), &at("b"), &older(index(2))).await.unwrap();
    let _ = graph.names.acquire_lease(&Call::fresh(), &at("b"), &index_lock("one", 60)).await.unwrap();
    let list = async |filter: &str| {
        let data = graph.ask(&format!("{{ records(filter: {{ {filter} }}) {{ edges {{ node {{ address }} }} }} }}")).await;
        addresses(&data["records"]).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(list("indexDue: true").await, ["a:main"]);
    assert_eq!(list("holder: \"one\"").await, ["b:main"]);
    assert!(list("holder: \"one\", prefix: \"a\"").await.is_empty());
    // A list includes what was written before it.
    let _ = graph.names.push_head(&Call::fresh(), &at("b"), &older(new_head(3))).await.unwrap();
    assert_eq!(list("indexDue: true").await, ["a:main", "b:main"]);
    let error = graph.refused("{ records(filter: { indexDue: true, kind: LEDGER }) { edges { node { address } } } }").await;
    assert_eq!(error["extensions"]["code"], "invalid-parameter");
}

#[tokio::test]
async fn callers_see_and_write_what_their_tokens_cover() {
    let graph = Graph::with(verifying(), Writes::Here);
    let admin = graph.of(&scope("nameservice:admin"));
    for name in ["tenant/a/x", "tenant/b/x"] {
        let document = format!(
            "mutation {{ createLedger(address: \"{name}\", config: {{ password: \"p\", n: 1 }}) {{ __typename }} }}"
        );
        assert_eq!(admin.ask(&document).await["createLedger"]["__typename"], "Written");
    }
    let reader = graph.of(&narrow("nameservice:read", json!(["tenant/a/*"])));
    let writer = graph.of(&narrow("nameservice:write", json!(["tenant/a/*"])));
    for field in ["records", "search(q: \"tenant\")", "records(filter: { indexDue: false })"] {
        let data = reader.ask(&format!("{{ list: {field} {{ edges {{ node {{ address }} }} pageInfo {{ hasNextPage }} }} }}")).await;
        assert_eq!(addresses(&data["list"]), ["tenant/a/x:main"], "{field}");
    }
    let data = reader.ask("{ changes { edges { node { address } } } }").await;
    assert!(addresses(&data["changes"]).iter().all(|address| *address == "tenant/a/x:main"));
    assert_eq!(reader.ask("{ record(address: \"tenant/b/x\") { address } }").await["record"], json!(null));
    let config = "{ record(address: \"tenant/a/x\") { config { payload } } }";
    assert_eq!(reader.ask(config).await["record"]["config"]["payload"], json!({ "password": "[redacted]", "n": 1 }));
    assert_eq!(writer.ask(config).await["record"]["config"]["payload"], json!({ "password": "p", "n": 1 }));
    let push = |name: &str| format!("mutation {{ pushHead(push: {{ address: \"{name}\", new: {{ id: \"{}\", t: 1 }} }}) {{ __typename }} }}", cid(1));
    assert_eq!(reader.refused(&push("tenant/a/x")).await["extensions"]["code"], "insufficient-scope");
    assert_eq!(writer.refused(&push("tenant/b/x")).await["extensions"]["code"], "address-not-covered");
    assert_eq!(writer.ask(&push("tenant/a/x")).await["pushHead"]["__typename"], "HeadPushed");
    // A dependency that it may not see is not there.
    let document = "mutation { publishGraphSource(address: \"tenant/a/s\", sourceType: \"t\", config: {}, \
                    dependencies: [\"tenant/a/x\", \"tenant/b/x\"]) { ... on MissingDependencies { missing } } }";
    assert_eq!(writer.ask(document).await["publishGraphSource"]["missing"], json!(["tenant/b/x:main"]));
    let (status, answer) = graph.post(&[], "{ position }", json!({})).await;
    assert!(status == 401 && answer["type"].as_str().unwrap().ends_with("/unauthorized"), "{answer}");
}

#[tokio::test]
async fn an_idempotency_key_names_one_write() {
    let graph = Graph::open();
    graph.ask("mutation { createLedger(address: \"a\") { __typename } }").await;
    let push = |n: i64| format!("pushHead(push: {{ address: \"a\", new: {{ id: \"{}\", t: {n} }} }}) {{ __typename ... on HeadPushed {{ status }} }}", cid(n));
    let key = [("idempotency-key", "k1")];
    let document = format!("mutation {{ {} }}", push(1));
    for status in ["UPDATED", "REPLAYED"] {
        let (_, answer) = graph.post(&key, &document, json!({})).await;
        assert_eq!(answer["data"]["pushHead"]["status"], status, "{answer}");
    }
    let (_, answer) = graph.post(&key, &format!("mutation {{ {} }}", push(2)), json!({})).await;
    assert_eq!(answer["errors"][0]["extensions"]["code"], "idempotency-key-reused", "{answer}");
    let two = format!("mutation {{ one: {} two: {} }}", push(3), push(4));
    let (_, answer) = graph.post(&[("idempotency-key", "k2")], &two, json!({})).await;
    assert!(answer["errors"][0]["message"].as_str().unwrap().contains("names one write"), "{answer}");
    let data = graph.ask(&format!("mutation {{ one: {} two: {} }}", push(5), push(6))).await;
    assert_eq!((&data["one"]["status"], &data["two"]["status"]), (&json!("UPDATED"), &json!("UPDATED")));
}

#[tokio::test]
async fn documents_that_are_too_deep_or_ask_for_too_much_are_rejected() {
    let graph = Graph::open();
    let wide = |first: usize| {
        format!("{{ records(first: {first}) {{ edges {{ node {{ history(first: 200) {{ edges {{ node {{ address }} }} }} }} }} }} }}")
    };
    graph.ask(&wide(2)).await;
    let error = graph.refused(&wide(200)).await;
    assert!(error["message"].as_str().unwrap().contains("complex"), "{error}");
    let kinds = (0..20).fold("name".to_owned(), |inner, _| format!("ofType {{ {inner} }}"));
    let error = graph.refused(&format!("{{ __schema {{ types {{ fields {{ type {{ {kinds} }} }} }} }} }}")).await;
    assert!(error["message"].as_str().unwrap().contains("deep"), "{error}");
}

#[tokio::test]
async fn a_replica_reads_and_says_where_to_write() {
    let graph = Graph::with(Auth::Open, Writes::At("http://upstream.example".to_owned()));
    assert_eq!(graph.ask("{ position }").await["position"], 0);
    let error = graph.refused("mutation { createLedger(address: \"a\") { __typename } }").await;
    assert!(error["message"].as_str().unwrap().contains("http://upstream.example/graphql"), "{error}");
    assert!(graph.names.view().is_empty());
}

#[tokio::test]
async fn graphiql_loads_nothing_from_another_host() {
    let graph = Graph::with(verifying(), Writes::Here);
    let (status, headers, page) = graph.send(Request::get("/graphiql").body(Body::empty()).unwrap()).await;
    let page = String::from_utf8(page).unwrap();
    assert_eq!(status, 200);
    assert!(headers["content-security-policy"].to_str().unwrap().contains("script-src 'self'"));
    assert!(!page.contains("://") && !page.contains("<script>"), "{page}");
    let mut files = 0;
    for part in page.split('"').filter(|part| part.starts_with("graphiql/")) {
        let (status, headers, body) = graph.send(Request::get(format!("/{part}")).body(Body::empty()).unwrap()).await;
        assert!(status == 200 && !body.is_empty(), "{part}");
        // What is vendored is compressed.
        assert_eq!(headers.contains_key(header::CONTENT_ENCODING), body.starts_with(b"\x1f\x8b"), "{part}");
        files += 1;
    }
    assert_eq!(files, 6);
    let (status, ..) = graph.send(Request::get("/graphiql/nothing.js").body(Body::empty()).unwrap()).await;
    assert_eq!(status, 404);
}

type Socket = tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

/// Opens a socket, as a page of `origin` where that is given.
async fn open(host: &str, origin: Option<&str>) -> Result<Socket, tungstenite::Error> {
    let mut request = format!("ws://{host}/graphql").into_client_request()?;
    let headers = request.headers_mut();
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, "graphql-transport-ws".parse().unwrap());
    if let Some(origin) = origin {
        headers.insert(header::ORIGIN, origin.parse().unwrap());
    }
    Ok(connect_async(request).await?.0)
}

async fn say(socket: &mut Socket, message: Value) {
    socket.send(Message::text(message.to_string())).await.unwrap();
}

/// The next message of a type that is data.
async fn hear(socket: &mut Socket) -> Option<Value> {
    loop {
        match socket.next().await? {
            Ok(Message::Text(text)) => return serde_json::from_str(&text).ok(),
            Ok(Message::Close(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

#[tokio::test]
async fn subscriptions_carry_the_changes_that_are_asked_for_and_may_be_seen() {
    let graph = Graph::with(verifying(), Writes::Here);
    let host = graph.serve().await;
    let admin = graph.of(&scope("nameservice:admin"));
    let create = async |name: &str| {
        admin.ask(&format!("mutation {{ createLedger(address: \"{name}\") {{ __typename }} }}")).await;
    };
    create("tenant/a/old").await;
    let token = format!("Bearer {}", narrow("nameservice:read", json!(["tenant/a/*"])));
    let mut socket = open(&host, None).await.unwrap();
    say(&mut socket, json!({ "type": "connection_init", "payload": { "authorization": token } })).await;
    assert_eq!(hear(&mut socket).await.unwrap()["type"], "connection_ack");
    let query = "subscription { changes(concern: [META], after: 0) { address change position } }";
    say(&mut socket, json!({ "id": "1", "type": "subscribe", "payload": { "query": query } })).await;
    let change = |message: Value| message["payload"]["data"]["changes"].clone();
    let old = change(hear(&mut socket).await.unwrap());
    assert_eq!((&old["address"], &old["change"]), (&json!("tenant/a/old:main"), &json!("CREATED")));
    create("tenant/b/other").await;
    create("tenant/a/new").await;
    let new = change(hear(&mut socket).await.unwrap());
    assert_eq!(new["address"], "tenant/a/new:main");
    assert!(new["position"].as_i64() > old["position"].as_i64());
    // What the service rejects is an error of the operation.
    let query = "subscription { changes(after: 999999) { position } }";
    say(&mut socket, json!({ "id": "2", "type": "subscribe", "payload": { "query": query } })).await;
    let rejected = loop {
        let message = hear(&mut socket).await.unwrap();
        if message["id"] == "2" {
            break message;
        }
    };
    assert!(rejected.to_string().contains("beyond the end of the feed"), "{rejected}");
    // Who has no token hears nothing, and a page of another origin opens no socket.
    let mut stranger = open(&host, None).await.unwrap();
    say(&mut stranger, json!({ "type": "connection_init" })).await;
    let answer = hear(&mut stranger).await;
    assert!(answer.as_ref().is_none_or(|message| message["type"] != "connection_ack"), "{answer:?}");
    assert!(open(&host, Some("https://elsewhere.example")).await.is_err());
    assert!(open(&host, Some(&format!("http://{host}"))).await.is_ok());
}
