use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use ::change_stream::{Limits, route_within};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use jiff::Timestamp;
use nameservice_embedded::{Embedded, Options};
use nameservice_feed::Entry;
use nameservice_http::{App, Auth, EndsBy, shapes::changes as shapes};
use nameservice_store::Difference;
use nameservice_tests::pump::pump;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tower::ServiceExt as _;

use super::*;

/// How long a test waits for what must come.
const SOON: Duration = nameservice_tests::LONG;

/// Some lines of a stream, up to a blank one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Block {
    pub(super) id: Option<u64>,
    pub(super) event: Option<String>,
    pub(super) data: Option<String>,
    pub(super) comment: Option<String>,
    pub(super) retry: Option<u64>,
}

impl Block {
    fn parse(text: &str) -> Self {
        let mut block = Self::default();
        for line in text.lines() {
            let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{line:?}"));
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            match name {
                "id" => block.id = Some(value.parse().unwrap()),
                "event" => block.event = Some(value),
                "data" => assert_eq!(block.data.replace(value), None, "one line of data"),
                "" => block.comment = Some(value),
                "retry" => block.retry = Some(value.parse().unwrap()),
                _ => panic!("{line:?}"),
            }
        }
        block
    }

    /// The data, which must be JSON, of an event of this name.
    #[track_caller]
    pub(super) fn of(&self, event: &str) -> Value {
        assert_eq!(self.event.as_deref(), Some(event), "{self:?}");
        serde_json::from_str(self.data.as_deref().unwrap()).unwrap()
    }

    /// Whether it is an event that says more than which position the stream has reached.
    fn is_event(&self) -> bool {
        self.data.is_some() && self.event.as_deref() != Some("position")
    }

    /// The position that the stream has reached, which is the id, too.
    #[track_caller]
    fn position(&self) -> Option<u64> {
        assert_eq!(self.of("position"), json!({ "position": self.id }));
        self.id
    }
}

/// A stream as a client reads it.
pub(super) struct Stream {
    pub(super) headers: http::HeaderMap,
    body: Incoming,
    text: String,
    blocks: VecDeque<Block>,
}

impl Stream {
    pub(super) async fn open(service: &Service, path: &str, headers: &[(&str, &str)]) -> Self {
        Self::opened(service, path, headers).await.unwrap_or_else(|status| panic!("{path}: {status}"))
    }

    /// The same, if it is not rejected.
    async fn opened(service: &Service, path: &str, headers: &[(&str, &str)]) -> Result<Self, http::StatusCode> {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut request = Request::builder().uri(format!("{}{path}", service.url()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = client.request(request.body(Full::default()).unwrap()).await.unwrap();
        if response.status() != 200 {
            return Err(response.status());
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let (parts, body) = response.into_parts();
        Ok(Self { headers: parts.headers, body, text: String::new(), blocks: VecDeque::new() })
    }

    /// Opens a stream that resumes after this id.
    pub(super) async fn resume(service: &Service, path: &str, id: u64) -> Self {
        Self::open(service, path, &[("last-event-id", &id.to_string())]).await
    }

    /// What comes next; `None` at a clean end.
    pub(super) async fn next(&mut self) -> Option<Block> {
        while self.blocks.is_empty() {
            let frame = timeout(SOON, self.body.frame()).await.expect("something comes, or the end")?;
            self.text.push_str(std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap());
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                self.blocks.push_back(Block::parse(block));
                self.text = rest.to_owned();
            }
        }
        self.blocks.pop_front()
    }

    /// The next event that is not about the position alone.
    pub(super) async fn event(&mut self) -> Block {
        loop {
            let block = self.next().await.expect("an event before the end");
            if block.is_event() {
                return block;
            }
        }
    }

    pub(super) async fn events(&mut self, count: usize) -> Vec<Block> {
        let mut events = Vec::new();
        while events.len() < count {
            events.push(self.event().await);
        }
        events
    }

    /// Everything up to the end, which must come.
    pub(super) async fn rest(mut self) -> Vec<Block> {
        let mut blocks = Vec::new();
        while let Some(block) = self.next().await {
            blocks.push(block);
        }
        assert_eq!(self.text, "", "it ends between two blocks");
        blocks
    }
}

/// The positions in blocks of changes.
fn positions(blocks: &[Block]) -> Vec<u64> {
    blocks
        .iter()
        .map(|block| {
            let position = block.of("change")["position"].as_u64();
            assert_eq!(block.id, position);
            position.unwrap()
        })
        .collect()
}

/// A service of the streams alone, with other limits.
pub(super) async fn within(limits: Limits) -> Service {
    let rooms = route_within(limits).split_for_parts().0;
    Service::of(rooms, Table::with_stream().await, Auth::Open).await
}

fn quick_heartbeat() -> Limits {
    Limits { heartbeat: Duration::from_millis(20), ..Limits::default() }
}

/// The n-th change of a head.
pub(super) fn moved(address: &str, n: i64, payload: Value) -> Entry {
    Entry {
        event_id: format!("{address}-{n}"),
        sequence_number: n.to_string(),
        difference: Difference {
            address: at(address),
            part: ChangedPart::Concern(ConcernKind::Head),
            kind: ChangeKind::Updated,
            watermark: n,
            previous: Some(n - 1),
            payload: ChangePayload::Value(payload),
            occurred_at: Timestamp::now(),
        },
        identity: Identity { kind: RecordKind::Ledger, source_type: None },
    }
}

/// Appends the changes of a head with these numbers to the feed.
async fn append(service: &Service, address: &str, numbers: std::ops::RangeInclusive<i64>) {
    let entries: Vec<_> = numbers.map(|n| moved(address, n, commit(n))).collect();
    let appended = service.table.feed.append(&entries).await;
    assert!(appended.error.is_none(), "{:?}", appended.error);
}

#[tokio::test]
async fn changes_come_in_their_order_under_their_positions() {
    let service = Service::with_stream().await;
    born(&service, "mydb", 1).await;
    service.put("/v1/heads/mydb", json!({ "new": commit(2) })).await.expect(200);
    source(&service, "search", &["mydb"]).await;
    service.delete("/v1/records/search").await.expect(204);
    pump(&service.table).await;
    let Run::Changes(changes) = service.table.feed.changes(0, at_most(1000)).await.unwrap() else { panic!("gone") };
    assert!(changes.len() > 8, "{changes:#?}");

    let mut stream = Stream::open(&service, "/v1/events?after=0", &[]).await;
    for (name, value) in [("cache-control", "no-store"), ("x-accel-buffering", "no")] {
        assert_eq!(stream.headers[name], value);
    }
    assert!(stream.headers.contains_key("x-request-id"));
    let first = stream.next().await.unwrap();
    assert_eq!((first.position(), first.retry), (Some(0), Some(1000)));
    for change in &changes {
        let block = stream.next().await.unwrap();
        assert_eq!(block.of("change"), json!(shapes::Change::from(change)));
        assert_eq!(block.id, Some(change.position));
    }
}

#[tokio::test]
async fn without_a_position_a_stream_begins_now() {
    let service = Service::with_stream().await;
    ledger(&service, "before").await;
    pump(&service.table).await;
    let position = service.table.feed.position().await.unwrap();
    let mut stream = Stream::open(&service, "/v1/events", &[]).await;
    assert_eq!(stream.next().await.unwrap().id, Some(position));
    ledger(&service, "after").await;
    pump(&service.table).await;
    let event = stream.event().await;
    assert_eq!((event.id, &event.of("change")["address"]), (Some(position + 1), &json!("after:main")));
}

#[tokio::test]
async fn a_reader_who_resumes_misses_nothing_and_sees_nothing_twice() {
    let service = Service::start().await;
    let (mut seen, mut last) = (Vec::new(), 0);
    for round in 0..6 {
        append(&service, "mydb", round * 20 + 1..=round * 20 + 20).await;
        let mut stream = Stream::resume(&service, "/v1/events", last).await;
        // The client leaves in the middle of the stored changes, and once before it has received any.
        let events = stream.events(round as usize * 5).await;
        seen.extend(positions(&events));
        last = seen.last().copied().unwrap_or(last);
    }
    let mut stream = Stream::resume(&service, "/v1/events", last).await;
    let left = 120 - seen.len();
    seen.extend(positions(&stream.events(left).await));
    assert_eq!(seen, (1..=120).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_was_seen_last_wins_over_the_query() {
    let service = Service::start().await;
    append(&service, "mydb", 1..=5).await;
    for (query, id, first) in [("?after=1", Some(3), 4), ("?after=3", Some(0), 1), ("?after=1", None, 2)] {
        let path = format!("/v1/events{query}");
        let mut stream = match id {
            Some(id) => Stream::resume(&service, &path, id).await,
            // Nothing was seen.
            None => Stream::open(&service, &path, &[("last-event-id", "")]).await,
        };
        assert_eq!(stream.next().await.unwrap().id, Some(first - 1));
        assert_eq!(stream.next().await.unwrap().id, Some(first));
    }
}

#[tokio::test]
async fn a_filtered_stream_reports_what_is_wanted_and_its_position() {
    let service = within(quick_heartbeat()).await;
    let store = &service.table.store;
    for name in ["mydb", "mydb:dev", "other"] {
        store.create_ledger(&Call::fresh(), &at(name), Some(&new_head(1)), None).await.unwrap().applied();
    }
    store.publish_graph_source(&Call::fresh(), &bm25("search", json!({ "k": 1 }), &[])).await.unwrap().applied();
    pump(&service.table).await;
    let Run::Changes(all) = service.table.feed.changes(0, at_most(1000)).await.unwrap() else { panic!("gone") };
    let count = all.len() as u64;

    for query in [
        "",
        "address=mydb",
        "address=mydb:*",
        "address=mydb&address=search",
        "kind=graph_source",
        "concern=head",
        "concern=head&concern=config",
        "kind=ledger&concern=meta&address=*:dev",
        "prefix=my",
        "prefix=mydb:m&address=mydb:*",
        "source_type=f:Bm25Index",
        "address=nobody",
    ] {
        let parameter = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).collect::<Vec<_>>()
        };
        let (addresses, kinds, concerns) = (parameter("address"), parameter("kind"), parameter("concern"));
        let glob = |glob: &String, address: &str| match glob.as_str() {
            "mydb:*" => address.starts_with("mydb:"),
            "*:dev" => address.ends_with(":dev"),
            plain => address == format!("{plain}:main"),
        };
        let (prefixes, types) = (parameter("prefix"), parameter("source_type"));
        let wanted = all.iter().filter(|change| {
            prefixes.iter().all(|prefix| change.address.as_str().starts_with(prefix))
                && types.iter().all(|name| change.identity.source_type.as_ref() == Some(name))
                && (addresses.is_empty() || addresses.iter().any(|a| glob(a, change.address.as_str())))
                && (kinds.is_empty() || kinds.iter().any(|kind| kind == change.identity.kind.as_str()))
                && (concerns.is_empty() || concerns.iter().any(|part| part == change.part.as_str()))
        });
        let wanted: Vec<_> = wanted.map(|change| change.position).collect();
        let mut stream = Stream::open(&service, &format!("/v1/events?after=0&{query}"), &[]).await;
        let mut reported = Vec::new();
        // What is not wanted moves the position too.
        loop {
            let block = stream.next().await.unwrap();
            if block.is_event() {
                reported.extend(positions(std::slice::from_ref(&block)));
            }
            if block.id == Some(count) && (!block.is_event() || wanted.last() == Some(&count)) {
                break;
            }
        }
        assert_eq!(reported, wanted, "{query}");
        assert_eq!(wanted.is_empty(), query == "address=nobody", "{query}");
    }
}

#[tokio::test]
async fn what_cannot_be_followed_is_rejected_before_the_stream_begins() {
    let service = Service::start().await;
    for id in ["x", "-1", "+1", "1.5", "18446744073709551616", "ledger:mydb:main:1:0"] {
        let answer = service.send(Method::GET, "/v1/events", &[("last-event-id", id)], None).await;
        rejects(answer, "invalid-parameter", "Last-Event-ID");
    }
    let twice = [("last-event-id", "0"), ("last-event-id", "0")];
    rejects(service.send(Method::GET, "/v1/events", &twice, None).await, "invalid-parameter", "Last-Event-ID");
    for (query, field) in [
        ("after=x", "after"),
        ("after=-1", "after"),
        ("kind=table", "kind"),
        ("concern=lease", "concern"),
        ("address=a:b:c", "address"),
        ("limit=1", "limit"),
    ] {
        let problem = service.get(&format!("/v1/events?{query}")).await.problem(400, "invalid-parameter");
        assert!(problem["field"].as_str().unwrap().starts_with(field), "{problem:#}");
    }
    service.post("/v1/events", json!({})).await.problem(405, "method-not-allowed");
    let head = service.send(Method::HEAD, "/v1/events", &[], None).await;
    assert_eq!((head.status.as_u16(), head.header("content-type")), (200, Some("text/event-stream")));
}

#[tokio::test]
async fn a_hundred_patterns_are_followed_and_one_more_is_rejected() {
    let service = Service::start().await;
    let several = |names: &[&str], count: usize| {
        let pattern =
            |n: usize| format!("{}=a{n}{}", names[n % names.len()], if n.is_multiple_of(3) { "*" } else { "" });
        (0..count).map(pattern).collect::<Vec<_>>().join("&")
    };
    for (path, names) in [
        ("/v1/changes", &["address"] as &[_]),
        ("/v1/events", &["address"]),
        ("/fluree/events", &["ledger"]),
        ("/fluree/events", &["ledger", "graph-source"]),
        ("/v1/fluree/events", &["graph-source"]),
    ] {
        let ask = async |count: usize| {
            let exact =
                if path.contains("fluree") { several(names, count).replace('*', "") } else { several(names, count) };
            service.send(Method::HEAD, &format!("{path}?{exact}"), &[], None).await
        };
        assert_eq!(ask(100).await.status, 200, "{path}");
        assert_eq!(ask(101).await.status, 400, "{path}");
        let exact = several(names, 101).replace('*', "");
        let answer = service.get(&format!("{path}?{exact}")).await;
        let problem = answer.problem(400, "invalid-parameter");
        assert!(problem["detail"].as_str().unwrap().contains("at most 100 times"), "{problem:#}");
    }
}

#[tokio::test]
async fn a_position_that_the_feed_no_longer_or_never_held_is_gone() {
    let service = Service::start().await;
    append(&service, "mydb", 1..=3).await;
    let oldest = service.table.feed.begin_epoch().await.unwrap();
    for headers in [&[("last-event-id", "1")] as &[(&str, &str)], &[]] {
        let answer = service.send(Method::GET, "/v1/events?after=1", headers, None).await;
        assert_eq!(answer.problem(410, "expired")["oldest"], json!(oldest));
    }
    for never in ["99", "18446744073709551615"] {
        let answer = service.send(Method::GET, "/v1/events", &[("last-event-id", never)], None).await;
        assert_eq!(answer.problem(410, "position-ahead")["position"], json!(oldest - 1));
    }
}

#[tokio::test]
async fn a_stream_that_is_overtaken_by_expiry_says_so_and_ends() {
    let service = Service::start().await;
    append(&service, "mydb", 1..=3).await;
    let mut stream = Stream::open(&service, "/v1/events?after=0", &[]).await;
    assert_eq!(positions(&stream.events(3).await), [1, 2, 3]);
    let oldest = service.table.feed.begin_epoch().await.unwrap();
    append(&service, "mydb", 4..=4).await;
    let rest = stream.rest().await;
    assert_eq!(rest.last().unwrap().of("expired"), json!({ "oldest": oldest }));
    assert!(rest.iter().all(|block| block.event.as_deref() != Some("change")), "{rest:?}");
}

#[tokio::test]
async fn a_silent_stream_shows_that_it_lives() {
    let service = within(quick_heartbeat()).await;
    append(&service, "mydb", 1..=2).await;
    let mut stream = Stream::open(&service, "/v1/events", &[]).await;
    for _ in 0..3 {
        let block = stream.next().await.unwrap();
        assert_eq!(block.position(), Some(2));
        assert!(block.comment.is_some());
    }
}

#[tokio::test]
async fn a_stream_ends_cleanly_when_its_time_is_over() {
    // A stream that ends before it has looked at the changes is repeated with more time.
    for seconds in [0.1, 1.0, 10.0] {
        let service = within(Limits { lifetime: Duration::from_secs_f64(seconds), ..Limits::default() }).await;
        append(&service, "mydb", 1..=2).await;
        let mut blocks = Stream::open(&service, "/v1/events?after=0&address=nobody", &[]).await.rest().await;
        assert_eq!(blocks[0].id, Some(0));
        let last = blocks.pop().unwrap();
        // The last block moves the reader past changes that were not for it.
        if last.position() == Some(2) {
            return;
        }
    }
    panic!("no stream moves its reader");
}

/// Some libraries forget the id of a block without data.
#[tokio::test]
async fn every_id_is_in_an_event_with_data() {
    // A stream that ends before it has sent each kind of block is repeated with more time.
    for seconds in [0.5, 4.0, 32.0] {
        let service = within(Limits { lifetime: Duration::from_secs_f64(seconds), ..quick_heartbeat() }).await;
        append(&service, "mydb", 1..=2).await;
        let blocks = Stream::open(&service, "/v1/events?after=0", &[]).await.rest().await;
        for block in blocks.iter().filter(|block| block.id.is_some()) {
            let event = block.event.as_deref().unwrap_or("none");
            assert_eq!(block.of(event)["position"].as_u64(), block.id, "{block:?}");
        }
        let said = |comment: &str| blocks.iter().any(|block| block.comment.as_deref() == Some(comment));
        if ["stream begins", "still here", "reconnect"].into_iter().all(said) && blocks.iter().any(Block::is_event) {
            return;
        }
    }
    panic!("no stream sends each kind of block");
}

#[tokio::test]
async fn a_reader_that_keeps_only_ids_of_events_with_data_misses_nothing() {
    let service = within(quick_heartbeat()).await;
    append(&service, "mydb", 1..=1).await;
    let (mut kept, mut seen) = (None, Vec::new());
    for (n, cut_after) in (2..).zip([Some("stream begins"), Some("still here"), None]) {
        let mut stream = match kept {
            Some(id) => Stream::resume(&service, "/v1/events?concern=head", id).await,
            None => Stream::open(&service, "/v1/events?concern=head", &[]).await,
        };
        loop {
            let block = stream.next().await.expect("the stream goes on");
            if block.data.is_some() {
                kept = block.id.or(kept);
            }
            assert!(kept.is_some(), "it would begin again with what comes then: {block:?}");
            if block.is_event() {
                seen.extend(positions(std::slice::from_ref(&block)));
            }
            let is_cut = match cut_after {
                Some(comment) => block.comment.as_deref() == Some(comment),
                None => block.is_event(),
            };
            if is_cut {
                break;
            }
        }
        drop(stream);
        append(&service, "mydb", n..=n).await;
    }
    let mut stream = Stream::resume(&service, "/v1/events?concern=head", kept.unwrap()).await;
    while seen.last() != Some(&4) {
        seen.extend(positions(&stream.events(1).await));
    }
    assert_eq!(seen, [2, 3, 4]);
}

#[tokio::test]
async fn a_failure_of_the_store_is_waited_out() {
    let service = within(Limits { heartbeat: Duration::from_millis(200), ..Limits::default() }).await;
    append(&service, "mydb", 1..=2).await;
    let mut stream = Stream::open(&service, "/v1/events?after=0", &[]).await;
    assert_eq!(positions(&stream.events(2).await), [1, 2]);
    // An error that the service's AWS client does not retry.
    let fault = Fault::answer(400, "AccessDeniedException").times(2);
    service.table.proxy.on_each(&["GetItem", "Query"], fault);
    let entries = [moved("mydb", 3, commit(3))];
    // Past the proxy.
    let feed = nameservice_feed::Feed::new(service.table.client.clone(), service.table.feed.table());
    assert!(feed.append(&entries).await.error.is_none());
    assert_eq!(positions(&stream.events(1).await), [3]);
    assert!(service.table.proxy.is_spent());
}

#[tokio::test]
async fn a_store_that_stays_away_ends_the_stream_with_a_problem_that_reveals_nothing_of_it() {
    let service = within(Limits { retry_for: Duration::from_millis(300), ..quick_heartbeat() }).await;
    append(&service, "mydb", 1..=2).await;
    let mut stream = Stream::open(&service, "/v1/events?after=0", &[]).await;
    assert_eq!(positions(&stream.events(2).await), [1, 2]);
    service.table.proxy.on_each(&["GetItem", "Query"], Fault::answer(400, "AccessDeniedException").always());
    let rest = stream.rest().await;
    let last = rest.last().unwrap();
    let problem = last.of("error");
    assert_eq!((&problem["status"], last.id), (&json!(500), None), "{problem}");
    assert!(problem["type"].as_str().unwrap().ends_with("/internal"), "{problem}");
    let reported = last.data.as_deref().unwrap();
    assert!(!reported.contains("AccessDenied") && !reported.contains(&service.table.name), "{reported}");
}

#[tokio::test]
async fn a_reader_who_does_not_read_is_cut_and_misses_nothing() {
    const CHANGES: i64 = 200;
    let limits = Limits { write_timeout: Duration::from_millis(200), buffer: 64 * 1024, ..Limits::default() };
    let table = Table::fresh().await;
    let text = "x".repeat(15_000);
    for chunk in (1..=CHANGES).collect::<Vec<_>>().chunks(49) {
        let entries: Vec<_> = chunk.iter().map(|n| moved("mydb", *n, json!({ "text": text }))).collect();
        assert!(table.feed.append(&entries).await.error.is_none());
    }
    // Kernels buffer megabytes for a reader, unless they are configured not to.
    let listener = TcpSocket::new_v4().unwrap();
    listener.set_send_buffer_size(4096).unwrap();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(16).unwrap();
    let address = listener.local_addr().unwrap();
    let app = App::new(Arc::new(table.store.clone()), Arc::new(table.feed.clone()), Auth::Open);
    let rooms = route_within(limits).split_for_parts().0;
    let router = nameservice_http::service(rooms, app);
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let connect = async |after: u64| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut socket = socket.connect(address).await.unwrap();
        // An answer to HTTP/1.0 ends with its connection, and has no chunks.
        let request = format!("GET /v1/events HTTP/1.0\r\nhost: localhost\r\nlast-event-id: {after}\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        socket
    };
    let ids = |text: &str| {
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let whole = body.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
        let blocks: Vec<_> = whole.split("\n\n").map(Block::parse).filter(Block::is_event).collect();
        positions(&blocks)
    };

    // The last change, or the end of a stream that was cut.
    let last = format!("\nid: {CHANGES}\n");
    let read = async |mut socket: TcpStream| {
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(20_000)..]).contains(&last)
            || !bytes.ends_with(b"\n\n")
        {
            if timeout(SOON, socket.read_buf(&mut bytes)).await.expect("more comes, or the end").unwrap() == 0 {
                break;
            }
        }
        ids(std::str::from_utf8(&bytes).unwrap())
    };

    // A busy machine may not have blocked the writer for long enough before this reads: then it waits for longer.
    let mut seen = Vec::new();
    for seconds in [1, 4, 16] {
        let slow = connect(0).await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        seen = read(slow).await;
        if seen.len() < CHANGES as usize {
            break;
        }
    }
    assert!(!seen.is_empty() && seen.len() < CHANGES as usize, "{} of {CHANGES}", seen.len());

    // Another reader resumes where that one was cut, and comes back if a busy machine makes it slow as well.
    let resume = async {
        while seen.last() != Some(&(CHANGES as u64)) {
            let quick = connect(*seen.last().unwrap()).await;
            seen.extend(read(quick).await);
        }
    };
    timeout(SOON, resume).await.expect("some reader comes to the end");
    assert_eq!(seen, (1..=CHANGES as u64).collect::<Vec<_>>());
    serving.abort();
}

#[tokio::test]
async fn a_token_shows_its_own_addresses_and_no_longer_than_it_lasts() {
    use super::authorization::{guarded, narrow, token};
    let service = guarded().await;
    for name in ["mine/a", "theirs", "mine/b"] {
        append(&service, name, 1..=2).await;
    }
    let bearer = format!("Bearer {}", narrow("nameservice:read", json!(["mine/*"])));
    let mut stream = Stream::open(&service, "/v1/events?after=0", &[("authorization", &bearer)]).await;
    assert_eq!(positions(&stream.events(4).await), [1, 2, 5, 6]);
    for path in ["/v1/events", "/fluree/events?all=true", "/v1/fluree/events?all=true"] {
        service.get(path).await.problem(401, "unauthorized");
    }

    // A busy machine may not have opened the stream, or not have sent the last change, before the token ended: then another lasts longer.
    let mut last = None;
    for seconds in [5, 20, 80] {
        let exp = jsonwebtoken::get_current_timestamp() + seconds;
        let brief = format!("Bearer {}", token(json!({ "scope": "nameservice:read", "exp": exp })));
        let Ok(stream) = Stream::opened(&service, "/v1/events", &[("authorization", &brief)]).await else { continue };
        last = stream.rest().await.pop().and_then(|block| block.id);
        if last == Some(6) {
            break;
        }
    }
    assert_eq!(last, Some(6));
}

#[tokio::test]
async fn streams_end_when_the_service_stops() {
    let table = Table::fresh().await;
    let listener = nameservice_cli::serve::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let app = App::new(Arc::new(table.store.clone()), Arc::new(table.feed.clone()), Auth::Open);
    let service = nameservice_cli::serve::start(listener, app, None).unwrap();
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut bodies = Vec::new();
    for path in ["/v1/events", "/fluree/events?all=true"] {
        let request = Request::builder().uri(format!("{}{path}", service.url())).body(Full::default()).unwrap();
        let mut body = client.request(request).await.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        bodies.push(body);
    }
    let stopping = tokio::spawn(service.stop());
    for body in bodies {
        // One that does not end by itself is cut off later, which is an error.
        timeout(SOON, body.collect()).await.expect("the stream ends").expect("and cleanly");
    }
    stopping.await.unwrap();
}

#[tokio::test]
async fn any_number_of_readers_reads_the_feed_once() {
    let service = Service::start().await;
    append(&service, "mydb", 1..=3).await;
    let mut streams = Vec::new();
    for n in 0..20 {
        let path = if n % 2 == 0 { "/v1/events" } else { "/v1/events?address=mydb&concern=head" };
        let mut stream = Stream::open(&service, path, &[]).await;
        assert_eq!(stream.next().await.unwrap().id, Some(3));
        streams.push(stream);
    }
    service.table.proxy.take_requests();
    append(&service, "mydb", 4..=4).await;
    for stream in &mut streams {
        assert_eq!(positions(&stream.events(1).await), [4]);
    }
    // One for the first to begin, which may come late, and one for what was appended.
    let reads = service.table.proxy.take_requests().iter().filter(|request| request.operation == "Query").count();
    assert!((1..=2).contains(&reads), "{reads}");
}

#[tokio::test(start_paused = true)]
async fn on_lambda_a_stream_ends_after_90_seconds_unless_its_reader_would_begin_again() {
    let backend = Arc::new(Embedded::memory(Options::default()).unwrap());
    let app = App::new(backend.clone(), backend, Auth::Open);
    let router = nameservice_http::service(::change_stream::route().into(), app);
    for (path, invocation, lasts) in [
        ("/v1/events", None, 840..=840),
        ("/v1/events", Some(900), 90..=90),
        ("/fluree/events?all=true", Some(900), 840..=840),
        // The end of an invocation is a time of the machine, which does not stand still.
        ("/fluree/events?all=true", Some(600), 470..=590),
    ] {
        let mut request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        if let Some(seconds) = invocation {
            request.extensions_mut().insert(EndsBy(SystemTime::now() + Duration::from_secs(seconds)));
        }
        let begun = tokio::time::Instant::now();
        router.clone().oneshot(request).await.unwrap().into_body().collect().await.unwrap();
        let lasted = begun.elapsed().as_secs();
        assert!(lasts.contains(&lasted), "{path} in {invocation:?} s lasts {lasted} s");
    }
}
