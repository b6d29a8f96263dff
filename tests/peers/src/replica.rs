//! A replica of a service on the same machine: how soon it answers, how fast it follows, how far behind it is.

use std::{
    io,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{process::Command, time::MissedTickBehavior};

use crate::{
    Bench, MANY, RECORDS, Subject,
    clients::{Peer, Push},
    heading,
    http1::{Connection, request},
    load::{Client as _, measure},
    name, names,
    process::{Server, free_port},
    pushers, readers, readers_of, row,
};

/// How many records the upstream has.
const MANY_RECORDS: usize = 100_000;
/// Pushes a second while the lag is measured.
const PACE: u64 = 500;
const DEADLINE: Duration = Duration::from_secs(300);

impl Bench<'_> {
    /// Starts a replica, and waits until it has reached this position. Returns how long that took.
    async fn replica_at(&self, upstream: &Server, directory: &str, position: u64) -> io::Result<(Server, Duration)> {
        let (port, begun) = (free_port()?, Instant::now());
        let mut command = Command::new(&self.program);
        command.arg("serve").args(["--listen", &format!("127.0.0.1:{port}")]).env("RUST_LOG", "error");
        command.args(["--upstream", &format!("http://127.0.0.1:{}", upstream.port)]);
        command.arg("--data").arg(self.scratch.join(directory));
        let server = Server::start(command, port).await?;
        while replica_position(port).await? < position {
            if begun.elapsed() > DEADLINE {
                return Err(io::Error::other("the replica does not catch up"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok((server, begun.elapsed()))
    }

    pub(crate) async fn replica(&self) -> io::Result<()> {
        let count = self.arguments.records.min(MANY_RECORDS);
        heading(&format!("a replica of {count} records"), &["", ""]);
        let upstream = self.start(Subject::Embedded, "upstream", None).await?;
        self.create(&upstream, Peer::Nameservice, &names(count)).await?;
        let end = position(upstream.port).await?;
        let (replica, took) = self.replica_at(&upstream, "replica", end).await?;
        row(&["first start, with a snapshot".into(), seconds(took)]);
        row(&["RSS".into(), format!("{:.0} MiB", replica.rss())]);
        replica.kill().await?;
        let (replica, started) = self.replica_at(&upstream, "replica", end).await?;
        row(&["start from its own disk after kill -9".into(), seconds(started)]);
        replica.kill().await?;

        let written = measure(upstream.port, pushers(Peer::Nameservice, 128), self.time()).await?;
        let behind = position(upstream.port).await? - end;
        let (replica, took) = self.replica_at(&upstream, "replica", end + behind).await?;
        let applying = took.saturating_sub(started).max(Duration::from_millis(1));
        row(&["changes that it was behind".into(), format!("{behind} ({:.0} pushes/s)", written.rate())]);
        row(&["applied, its start taken off".into(), format!("{:.0}/s", behind as f64 / applying.as_secs_f64())]);

        let pacing = tokio::spawn(paced(upstream.port, PACE));
        let ports = readers::Ports { read: replica.port, write: upstream.port };
        let lag = readers::latencies(ports, &name(RECORDS - 1), self.time()).await?;
        if pacing.is_finished() {
            pacing.await.map_err(io::Error::other)??;
        } else {
            pacing.abort();
        }
        row(&[
            format!("from a push upstream to a reader of the replica, beside {PACE} pushes/s"),
            format!("p50 {:.2} ms, p99 {:.2} ms", lag.percentile(0.5), lag.percentile(0.99)),
        ]);
        let reads = measure(replica.port, readers_of(Peer::Nameservice, MANY), self.time()).await?;
        row(&[format!("reads at {MANY} connections"), format!("{:.0}/s", reads.rate())]);
        println!();
        replica.kill().await?;
        upstream.kill().await
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.2} s", took.as_secs_f64())
}

async fn get(port: u16, method: &str, path: &str, body: &str) -> io::Result<Value> {
    let (mut connection, mut text) = (Connection::open(port).await?, Vec::new());
    request(method, path, body, &mut text);
    let answer = connection.exchange(&text).await?;
    Ok(serde_json::from_slice(answer.body).unwrap_or(Value::Null))
}

async fn position(port: u16) -> io::Result<u64> {
    let answer = get(port, "POST", "/v1/changes/compare", r#"{"subscriptions":{}}"#).await?;
    answer["position"].as_u64().ok_or_else(|| io::Error::other(format!("no position: {answer}")))
}

/// The position of a replica; 0 until it has read a snapshot.
async fn replica_position(port: u16) -> io::Result<u64> {
    Ok(get(port, "GET", "/v1/health", "").await?["replica"]["position"].as_u64().unwrap_or(0))
}

/// Pushes this many times a second, to one record after the other.
async fn paced(port: u16, pace: u64) -> io::Result<()> {
    let (mut connection, mut text) = (Connection::open(port).await?, Vec::new());
    let mut clients: Vec<Push> = (0..MANY).map(|n| Push::new(Peer::Nameservice, name(n))).collect();
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / pace));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for n in (0..MANY).cycle() {
        ticks.tick().await;
        clients[n].request(&mut text);
        let answer = connection.exchange(&text).await?;
        clients[n].answer(answer.status, answer.body);
    }
    Ok(())
}
