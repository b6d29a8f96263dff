//! Subscriptions, over sockets of a real client.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::Duration,
};

use axum::serve::Listener;
use futures_util::{SinkExt as _, StreamExt as _};
use nameservice_cli::serve;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest as _},
};

use super::*;
use crate::routes::authorization::{narrow, scope, token, verifying};

const CHANGES: &str = "subscription { changes { address position } }";

/// A listener that accepts one transport, which is open already, and no other.
struct Once(Option<DuplexStream>);

impl Listener for Once {
    type Io = DuplexStream;
    type Addr = ();

    async fn accept(&mut self) -> (DuplexStream, ()) {
        match self.0.take() {
            Some(stream) => (stream, ()),
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}

trait Transport: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Transport for T {}

struct Socket(WebSocketStream<Box<dyn Transport>>);

/// How a socket is opened.
#[derive(Default)]
struct Opening<'a> {
    origin: Option<&'a str>,
    protocol: Option<&'a str>,
    token: Option<&'a str>,
}

impl Opening<'_> {
    async fn over(self, stream: impl Transport + 'static, host: &str) -> Result<Socket, tungstenite::Error> {
        let mut request = format!("ws://{host}/graphql").into_client_request()?;
        let protocol = self.protocol.unwrap_or("graphql-transport-ws");
        let bearer = self.token.map(|token| format!("Bearer {token}"));
        let headers = request.headers_mut();
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
        for (name, value) in [(header::ORIGIN, self.origin), (header::AUTHORIZATION, bearer.as_deref())] {
            if let Some(value) = value {
                headers.insert(name, value.parse().unwrap());
            }
        }
        let stream: Box<dyn Transport> = Box::new(stream);
        Ok(Socket(client_async(request, stream).await?.0))
    }
}

impl Graph {
    /// Opens a socket in memory, so that no clock but the test's runs.
    async fn socket(&self, opening: Opening<'_>) -> Result<Socket, tungstenite::Error> {
        let (here, there) = duplex(64 * 1024);
        let router = self.router.clone();
        tokio::spawn(async move { axum::serve(Once(Some(there)), router).await });
        opening.over(here, "localhost").await
    }

    /// Opens a socket for the caller of this token.
    async fn begun(&self, token: &str) -> Socket {
        let mut socket = self.socket(Opening { token: Some(token), ..Opening::default() }).await.unwrap();
        socket.say(json!({ "type": "connection_init" })).await;
        assert_eq!(socket.hear().await["type"], "connection_ack");
        socket
    }
}

impl Socket {
    async fn say(&mut self, message: Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    async fn begin(&mut self, id: &str, query: &str) {
        self.say(json!({ "id": id, "type": "subscribe", "payload": { "query": query } })).await;
    }

    /// The next message of the protocol, or how the socket was closed.
    async fn heard(&mut self) -> Result<Value, Option<u16>> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => return Err(frame.map(|frame| u16::from(frame.code))),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    async fn hear(&mut self) -> Value {
        self.heard().await.unwrap()
    }

    /// The code with which the socket is closed.
    async fn end(&mut self) -> Option<u16> {
        loop {
            if let Err(code) = self.heard().await {
                return code;
            }
        }
    }
}

fn change(message: &Value) -> &Value {
    &message["payload"]["data"]["changes"]
}

async fn create(graph: &Graph, name: &str) {
    graph.ask(&format!("mutation {{ createLedger(address: \"{name}\") {{ __typename }} }}")).await;
}

#[tokio::test]
async fn subscriptions_carry_the_changes_that_are_asked_for_and_may_be_seen() {
    let graph = Graph::with(verifying(), Writes::Here);
    let listener = serve::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let service = serve::start(listener, graph.app.clone(), None).unwrap();
    let admin = graph.of(&scope("nameservice:admin"));
    create(&admin, "tenant/a/old").await;
    let bearer = format!("Bearer {}", narrow("nameservice:read", json!(["tenant/a/*"])));
    let stream = tokio::net::TcpStream::connect(&host).await.unwrap();
    let mut socket = Opening::default().over(stream, &host).await.unwrap();
    socket.say(json!({ "type": "connection_init", "payload": { "authorization": bearer } })).await;
    assert_eq!(socket.hear().await["type"], "connection_ack");
    socket.begin("1", "subscription { changes(concern: [META], after: 0) { address change position } }").await;
    let old = change(&socket.hear().await).clone();
    assert_eq!((&old["address"], &old["change"]), (&json!("tenant/a/old:main"), &json!("CREATED")));
    create(&admin, "tenant/b/other").await;
    create(&admin, "tenant/a/new").await;
    let new = change(&socket.hear().await).clone();
    assert_eq!(new["address"], "tenant/a/new:main");
    assert!(new["position"].as_i64() > old["position"].as_i64());
    // A rejection is an error of its operation, and others continue.
    socket.begin("2", "subscription { changes(after: 999999) { position } }").await;
    let rejected = socket.hear().await;
    assert!(rejected["id"] == "2" && rejected.to_string().contains("beyond the end of the feed"), "{rejected}");
    assert_eq!(socket.hear().await, json!({ "type": "complete", "id": "2" }));
    // Nothing more is sent to an operation that has ended.
    socket.say(json!({ "id": "1", "type": "complete" })).await;
    socket.say(json!({ "type": "ping" })).await;
    while socket.hear().await["type"] != "pong" {}
    create(&admin, "tenant/a/newer").await;
    socket.begin("3", "{ record(address: \"tenant/a/newer\") { address } }").await;
    let answer = socket.hear().await;
    assert_eq!(
        (&answer["id"], &answer["payload"]["data"]["record"]["address"]),
        (&json!("3"), &json!("tenant/a/newer:main"))
    );
    service.stop().await;
    assert_eq!(socket.end().await, Some(1001), "the service says that it stops");
}

#[tokio::test]
async fn changes_are_selected_by_address_prefix_kind_type_and_concern() {
    let graph = Graph::open();
    let mut socket = graph.begun("").await;
    let all = [
        "address: [\"a\", \"x/*\"]",
        "prefix: \"x/\"",
        "kind: LEDGER, concern: [META]",
        "sourceType: \"t\", concern: [META]",
        "concern: [HEAD]",
    ];
    for (id, selection) in all.iter().enumerate() {
        let query = format!("subscription {{ changes(after: 0, {selection}) {{ address concern }} }}");
        socket.begin(&id.to_string(), &query).await;
    }
    let _ = graph.names.create_ledger(&Call::fresh(), &at("a"), Some(&new_head(1)), None).await.unwrap();
    create(&graph, "b").await;
    let publish = "mutation { publishGraphSource(address: \"x/s\", sourceType: \"t\", config: {}) { __typename } }";
    assert_eq!(graph.ask(publish).await["publishGraphSource"]["__typename"], "Written");
    create(&graph, "end").await;
    // Each subscription is read up to the last change that it is sent.
    let mut seen: BTreeMap<String, BTreeSet<String>> = Default::default();
    let expected = [
        ("0", vec!["a:main", "x/s:main"]),
        ("1", vec!["x/s:main"]),
        ("2", vec!["a:main", "b:main", "end:main"]),
        ("3", vec!["x/s:main"]),
        ("4", vec!["a:main"]),
    ];
    let is_complete = |seen: &BTreeMap<String, BTreeSet<String>>| {
        expected.iter().all(|(id, addresses)| seen.get(*id).is_some_and(|seen| seen.iter().eq(addresses.iter())))
    };
    while !is_complete(&seen) {
        let message = socket.hear().await;
        let id = message["id"].as_str().unwrap().to_owned();
        let address = change(&message)["address"].as_str().unwrap().to_owned();
        let (_, wanted) = expected.iter().find(|(known, _)| *known == id).unwrap();
        assert!(wanted.contains(&address.as_str()), "{message}");
        seen.entry(id).or_default().insert(address);
    }
}

#[tokio::test]
async fn sockets_are_for_those_with_a_token_and_pages_of_the_service() {
    let graph = Graph::with(verifying(), Writes::Here);
    for token in [None, Some("nonsense")] {
        let mut stranger = graph.socket(Opening { token, ..Opening::default() }).await.unwrap();
        stranger.say(json!({ "type": "connection_init" })).await;
        assert_eq!(stranger.heard().await, Err(Some(4403)));
    }
    let mut hasty =
        graph.socket(Opening { token: Some(&scope("nameservice:read")), ..Opening::default() }).await.unwrap();
    hasty.begin("1", CHANGES).await;
    assert_eq!(hasty.heard().await, Err(Some(4401)), "nothing is answered before connection_init");
    for (opening, status) in [
        (Opening { origin: Some("https://elsewhere.example"), ..Opening::default() }, Some(403)),
        (Opening { origin: Some("null"), ..Opening::default() }, Some(403)),
        (Opening { protocol: Some("graphql-ws"), ..Opening::default() }, Some(405)),
        (Opening { origin: Some("http://localhost"), ..Opening::default() }, None),
    ] {
        let opened = graph.socket(opening).await;
        let found = opened.err().map(|error| match error {
            tungstenite::Error::Http(answer) => answer.status().as_u16(),
            other => panic!("{other}"),
        });
        assert_eq!(found, status);
    }
    let (status, headers, body) = graph.send(Request::get("/graphql").body(Body::empty()).unwrap()).await;
    assert_eq!((status, headers[header::ALLOW].to_str().unwrap()), (405, "POST"));
    assert!(String::from_utf8(body).unwrap().contains("send documents with POST"));
}

#[tokio::test(start_paused = true)]
async fn a_socket_ends_with_its_token_and_without_an_init() {
    let graph = Graph::with(verifying(), Writes::Here);
    let end = jsonwebtoken::get_current_timestamp() + 3700;
    let short = token(json!({ "scope": "nameservice:read", "exp": end }));
    let began = tokio::time::Instant::now();
    let mut silent = graph.socket(Opening::default()).await.unwrap();
    assert_eq!(silent.end().await, Some(4408));
    assert!(began.elapsed() < Duration::from_secs(60), "of the test's clock");
    let mut reader = graph.begun(&short).await;
    reader.begin("1", CHANGES).await;
    assert_eq!(reader.end().await, Some(4403));
    assert!(began.elapsed() > Duration::from_secs(3600), "it lasts as long as the token");
}

#[tokio::test]
async fn a_socket_runs_a_bounded_number_of_operations_each_under_its_own_id() {
    let graph = Graph::open();
    let mut socket = graph.begun("").await;
    for n in 0..300 {
        // Operations that have ended do not count.
        socket.begin(&n.to_string(), "{ position }").await;
        assert_eq!(socket.hear().await["payload"]["data"]["position"], 0);
        assert_eq!(socket.hear().await["type"], "complete");
    }
    for n in 0..101 {
        socket.begin(&n.to_string(), CHANGES).await;
    }
    assert_eq!(socket.end().await, Some(4429));
    let mut socket = graph.begun("").await;
    socket.begin("1", CHANGES).await;
    socket.begin("1", CHANGES).await;
    assert_eq!(socket.end().await, Some(4409));
    let mut socket = graph.begun("").await;
    socket.0.send(Message::text("{\"type\": \"nonsense\"}")).await.unwrap();
    assert_eq!(socket.end().await, Some(4400));
    // A message has a bounded size, too.
    let mut socket = graph.begun("").await;
    let _ = socket.0.send(Message::text("x".repeat(300 * 1024))).await;
    assert!(matches!(socket.end().await, None | Some(1009)));
}

#[tokio::test]
async fn a_socket_follows_a_bounded_number_of_addresses_over_all_subscriptions() {
    let graph = Graph::open();
    let mut socket = graph.begun("").await;
    let follow = |from: usize, count: usize| {
        let addresses: Vec<_> = (from..from + count).map(|n| format!("n{n}-*")).collect();
        format!("subscription {{ changes(after: 0, concern: [META], address: {}) {{ address }} }}", json!(addresses))
    };
    for name in ["n0-a", "n60-a", "n200-a"] {
        graph.ask(&format!("mutation {{ createLedger(address: \"{name}\") {{ __typename }} }}")).await;
    }
    // What a subscription sends shows that it runs.
    let runs = async |socket: &mut Socket, id: &str, address: &str| {
        let seen = socket.hear().await;
        assert_eq!((&seen["id"], &change(&seen)["address"]), (&json!(id), &json!(address)), "{seen}");
    };
    socket.begin("1", &follow(0, 60)).await;
    runs(&mut socket, "1", "n0-a:main").await;
    socket.begin("2", &follow(60, 40)).await;
    runs(&mut socket, "2", "n60-a:main").await;
    for count in [1, 101] {
        socket.begin("3", &follow(200, count)).await;
        let rejected = socket.hear().await;
        assert_eq!(rejected["id"], "3", "{rejected}");
        let text = rejected.to_string();
        assert!(text.contains("invalid-parameter") && text.contains("at most 100 addresses"), "{text}");
        assert_eq!(socket.hear().await, json!({ "type": "complete", "id": "3" }));
    }
    // What one that has ended followed is free, and the others continue.
    socket.say(json!({ "id": "2", "type": "complete" })).await;
    assert_eq!(socket.hear().await, json!({ "type": "complete", "id": "2" }));
    socket.begin("3", &follow(200, 40)).await;
    runs(&mut socket, "3", "n200-a:main").await;
    graph.ask("mutation { createLedger(address: \"n1-a\") { __typename } }").await;
    runs(&mut socket, "1", "n1-a:main").await;
    // The limit is one of each socket.
    let mut other = graph.begun("").await;
    other.begin("1", &follow(1, 100)).await;
    runs(&mut other, "1", "n60-a:main").await;
}

/// Makes changes of 15 KB each, without the routes: a socket that is not read meanwhile is closed after 30 s.
async fn large_changes(graph: &Graph, v: std::ops::RangeInclusive<i64>) {
    let text = "x".repeat(15_000);
    for v in v {
        let push = cas(Status::stored(v, None), status_with(v + 1, "ready", json!({ "text": text })));
        graph.names.push_status(&Call::fresh(), &at("a"), &push).await.unwrap().applied();
    }
}

const STATUSES: &str = "subscription { changes(after: 0, concern: [STATUS]) { watermark payload } }";

#[tokio::test(start_paused = true)]
async fn a_socket_that_does_not_read_or_is_silent_ends() {
    let graph = Graph::open();
    graph.ask("mutation { createLedger(address: \"a\") { __typename } }").await;
    large_changes(&graph, 1..=40).await;
    // Whoever reads receives everything, and stays.
    let mut reader = graph.begun("").await;
    reader.begin("1", STATUSES).await;
    for v in 1..=41 {
        assert_eq!(change(&reader.hear().await)["watermark"], v);
    }
    assert!(tokio::time::timeout(Duration::from_secs(600), reader.heard()).await.is_err(), "it answers pings");
    // A message is not taken for 30 s.
    let mut slow = graph.begun("").await;
    slow.begin("1", STATUSES).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    let mut taken = 0;
    while let Ok(message) = slow.heard().await {
        taken += 1;
        assert_eq!(change(&message)["watermark"], taken, "nothing is left out");
    }
    assert!((1..41).contains(&taken), "{taken}");
    // Nothing is heard of a client for 60 s.
    let mut silent = graph.begun("").await;
    silent.begin("1", CHANGES).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(silent.end().await, None);
}

#[tokio::test]
async fn a_subscription_that_falls_behind_misses_nothing() {
    let graph = Graph::open();
    graph.ask("mutation { createLedger(address: \"a\") { __typename } }").await;
    let mut socket = graph.begun("").await;
    socket.begin("1", STATUSES).await;
    assert_eq!(change(&socket.hear().await)["watermark"], 1);
    // More than waits for a reader; and one more, once it reads again.
    large_changes(&graph, 1..=350).await;
    for v in 2..=200 {
        assert_eq!(change(&socket.hear().await)["watermark"], v);
    }
    large_changes(&graph, 351..=351).await;
    for v in 201..=352 {
        assert_eq!(change(&socket.hear().await)["watermark"], v);
    }
}
