//! Prints what the change feed of the DynamoDB backend can do over an engine in this process: how fast changes are
//! appended, what that costs in requests, and how long a change takes from its push to a reader of `/v1/events`.
//!
//! ```text
//! cargo feed-bench                      # the dev profile, in which the engine is optimised and the service is not
//! cargo feed-bench --profile server     # as it is run
//! ```

#![allow(clippy::print_stdout, reason = "it is a report")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a measurement that cannot be set up has failed")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use http::Method;
use nameservice_cli::{
    client::{self, Client, Request},
    consumer::{self, Pace, Running},
    options::Missing,
    serve::{self, Service},
    table::Table,
    target::Opened,
};
use nameservice_http::{App, Auth};
use nameservice_model::{Address, Call, HeadPush, NewHead, Publisher as _, RefPublisher as _};
use nameservice_tests::{cids::cid, engine, pump, table, words::Outcome as _};
use serde_json::{Value, json};
use stream_consumer::Consumer;
use tokio::sync::mpsc;

/// How many changes are appended in batches of each size.
const APPENDED: i64 = 900;
/// How many pushes are measured.
const PUSHES: i64 = 400;
/// The pause between two pushes while the machine is otherwise idle.
const PAUSE: Duration = Duration::from_millis(10);
/// How many writers run concurrently in the measurement under load.
const WRITERS: usize = 4;

#[tokio::main]
async fn main() {
    let profile = if cfg!(debug_assertions) { "dev" } else { "optimised" };
    println!("profile {profile}; the engine keeps its data in memory\n");
    appending().await;
    telling().await;
}

/// Stream records → feed.
async fn appending() {
    println!(
        "{:<34} {:>10} {:>22} {:>12}",
        "appending, batches of", "changes/s", "requests per change", "ms per batch"
    );
    for size in [1, 10, 90] {
        let opened = open().await;
        let table = table::Table {
            client: opened.source.tables.clone(),
            endpoint: opened.endpoint().map(str::to_owned).unwrap_or_else(|| panic!("it is outside AWS")),
            name: opened.source.table.clone(),
            store: opened.store.clone(),
            feed: opened.feed.clone(),
        };
        let mydb = create(&opened, "mydb").await;
        pump::pump(&table).await;
        let before = pump::deliveries(&table).await.len();
        for t in 1..=APPENDED {
            push_head(&opened, &mydb, t).await;
        }
        let deliveries = pump::deliveries(&table).await.split_off(before);
        assert_eq!(deliveries.len() as i64, APPENDED);
        let consumer = Consumer::new(table.store.clone(), table.feed.clone());
        // The first half is timed. Requests are counted in the second, since the proxy that counts them costs time.
        let (timed, counted) = deliveries.split_at(deliveries.len() / 2);
        let begun = Instant::now();
        for batch in timed.chunks(size) {
            assert_eq!(consumer.consume(batch).await.failed, None);
        }
        let took = begun.elapsed();
        let proxied = table.proxied().await;
        let consumer = Consumer::new(proxied.store.clone(), proxied.feed.clone());
        // A consumer's first append also reads the feed's position.
        consumer.consume(&counted[..1]).await;
        proxied.proxy.take_requests();
        for batch in counted[1..].chunks(size) {
            assert_eq!(consumer.consume(batch).await.failed, None);
        }
        let requests = proxied.proxy.take_requests().len();
        let (changes, batches) = (timed.len() as f64, timed.len().div_ceil(size) as f64);
        println!(
            "{size:<34} {:>10.0} {:>22.2} {:>12.1}",
            changes / took.as_secs_f64(),
            requests as f64 / (counted.len() - 1) as f64,
            took.as_secs_f64() * 1000.0 / batches,
        );
    }
    println!("  plus one GetRecords per batch; a reader of up to 1,000 changes makes two requests\n");
}

/// Push → reader.
async fn telling() {
    let served = Served::start().await;
    let client = served.client();
    create(&served.table, "mydb").await;
    for writer in 0..WRITERS {
        create(&served.table, &format!("other{writer}")).await;
    }
    let mut arrivals = follow(&client, "mydb").await;
    println!("{:<34} {:>10} {:>10} {:>10}", "from a push to /v1/events, ms", "p50", "p99", "max");
    let t = AtomicI64::new(0);
    let quiet = measure(&client, &t, &mut arrivals, PAUSE).await;
    row("  from sending it", quiet.sent);
    row("  from its answer", quiet.answered);

    let stop = Arc::new(AtomicBool::new(false));
    let writers = (0..WRITERS).map(|writer| {
        let (client, stop) = (served.client(), stop.clone());
        tokio::spawn(async move {
            let mut t = 0;
            while !stop.load(Ordering::Relaxed) {
                t += 1;
                push(&client, &format!("other{writer}"), t).await;
            }
            t
        })
    });
    let writers: Vec<_> = writers.collect();
    let begun = Instant::now();
    let busy = measure(&client, &t, &mut arrivals, PAUSE).await;
    stop.store(true, Ordering::Relaxed);
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    let rate = (written + PUSHES) as f64 / begun.elapsed().as_secs_f64();
    println!("  beside {WRITERS} other writers, {rate:.0} pushes/s in all");
    row("  from sending it", busy.sent);
    row("  from its answer", busy.answered);
    println!();
    served.stop().await;
}

struct Latencies {
    sent: Vec<Duration>,
    answered: Vec<Duration>,
}

/// Pushes one after the other, and waits for each at the other end.
async fn measure(
    client: &Client,
    t: &AtomicI64,
    arrivals: &mut mpsc::UnboundedReceiver<(i64, Instant)>,
    pause: Duration,
) -> Latencies {
    let mut latencies = Latencies { sent: Vec::new(), answered: Vec::new() };
    for _ in 0..PUSHES {
        let t = t.fetch_add(1, Ordering::Relaxed) + 1;
        let sent = Instant::now();
        push(client, "mydb", t).await;
        let answered = Instant::now();
        let (reported, arrived) = arrivals.recv().await.unwrap();
        assert_eq!(reported, t);
        latencies.sent.push(arrived - sent);
        // The change may overtake the answer.
        latencies.answered.push(arrived.saturating_duration_since(answered));
        tokio::time::sleep(pause).await;
    }
    latencies
}

/// Reads the stream of events, and sends the time of each head.
async fn follow(client: &Client, address: &str) -> mpsc::UnboundedReceiver<(i64, Instant)> {
    let request = Request::get("events").query("address", Some(address)).query("concern", Some("head"));
    let mut events = client.events(&request).await.unwrap_or_else(|failure| panic!("{failure}"));
    let (sender, arrivals) = mpsc::unbounded_channel();
    // The first block says where it begins.
    events.next().await.unwrap().unwrap();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let arrived = Instant::now();
            let event = event.unwrap();
            let (Some("change"), Some(data)) = (event.event.as_deref(), &event.data) else { continue };
            let change: Value = serde_json::from_str(data).unwrap();
            if sender.send((change["watermark"].as_i64().unwrap(), arrived)).is_err() {
                return;
            }
        }
    });
    arrivals
}

async fn push(client: &Client, address: &str, t: i64) {
    let address = Address::parse(address).unwrap();
    let request = Request::write(Method::PUT, "heads", None).at(&address);
    let body = json!({"new": {"id": cid(t).as_str(), "t": t}});
    let answer: Value = client.send(&request.body(&body)).await.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(answer["status"], "updated");
}

async fn push_head(table: &Table, address: &Address, t: i64) {
    let push = HeadPush::monotonic(NewHead::new(cid(t), t).unwrap());
    assert!(table.store.push_head(&Call::fresh(), address, &push).await.unwrap().is_updated());
}

async fn create(table: &Table, name: &str) -> Address {
    let address = Address::parse(name).unwrap();
    table.store.create_ledger(&Call::fresh(), &address, None, None).await.unwrap().applied();
    address
}

fn row(title: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0;
    println!("{title:<34} {:>10.1} {:>10.1} {:>10.1}", at(0.5), at(0.99), at(1.0));
}

/// What `nameservice serve` runs over DynamoDB, in this process.
struct Served {
    table: Box<Table>,
    consuming: Running,
    service: Service,
}

impl Served {
    async fn start() -> Self {
        let table = open().await;
        let (store, feed) = (table.store.clone(), table.feed.clone());
        let consuming = consumer::start(table.source.clone(), store.clone(), feed.clone(), Pace::NEAR);
        let listener = serve::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let app = App::new(Arc::new(store), Arc::new(feed), Auth::Open);
        let service = serve::start(listener, app, Some(consuming.nudge())).unwrap();
        Self { table, consuming, service }
    }

    fn client(&self) -> Client {
        client::remote(&self.service.url(), &client::Credentials::default())
            .unwrap_or_else(|failure| panic!("{failure}"))
    }

    async fn stop(self) {
        self.service.stop().await;
        self.consuming.stop().await;
    }
}

async fn open() -> Box<Table> {
    let place = format!("dynamodb://fluree-nameservice?endpoint={}", engine::start());
    let place = place.parse().unwrap_or_else(|error| panic!("{error}"));
    let opened = Opened::open(place, Missing::Create, None).await;
    let Opened::Table(table) = opened.unwrap_or_else(|failure| panic!("{failure}")) else { panic!("it is a table") };
    table.ensure().await.unwrap_or_else(|failure| panic!("{failure}"));
    table
}
