//! Readers of the event stream.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    clients::{Peer, Push},
    http1::{Connection, request},
    load::{Client as _, Figures},
};

/// What a reader follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Nothing,
    One,
    All,
    /// 100 patterns that no prefix distinguishes, one of which matches.
    Patterns,
}

/// Open streams that are read until they are stopped.
pub(crate) struct Readers {
    events: Arc<AtomicU64>,
    tasks: JoinSet<io::Result<()>>,
}

impl Readers {
    pub(crate) async fn start(port: u16, count: usize, filter: Filter) -> io::Result<Self> {
        let (events, mut tasks) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        for n in 0..count {
            let path = match filter {
                Filter::Nothing => format!("/v1/events?address=nobody-{n}:main"),
                Filter::One => format!("/v1/events?address={}", crate::name(n % 32)),
                Filter::All => "/v1/events".to_owned(),
                Filter::Patterns => {
                    let patterns: String = (0..99).map(|i| format!("address=*{n}x{i}y*&")).collect();
                    format!("/v1/events?{patterns}address=*-{}:*", n % 32)
                }
            };
            let mut connection = subscribe(port, &path).await?;
            let events = events.clone();
            tasks.spawn(async move {
                loop {
                    connection
                        .read_lines(|line| {
                            if line.starts_with(b"event: change") {
                                events.fetch_add(1, Ordering::Relaxed);
                            }
                        })
                        .await?;
                }
            });
        }
        Ok(Self { events, tasks })
    }

    /// Stops the streams and returns the number of events received.
    pub(crate) async fn stop(mut self) -> u64 {
        self.tasks.shutdown().await;
        self.events.load(Ordering::Relaxed)
    }
}

async fn subscribe(port: u16, path: &str) -> io::Result<Connection> {
    let (mut connection, mut text) = (Connection::open(port).await?, Vec::new());
    request("GET", path, "", &mut text);
    match connection.open_stream(&text).await? {
        200 => Ok(connection),
        status => Err(io::Error::other(format!("{path} answered {status}"))),
    }
}

/// Where events are read, and where pushes are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) read: u16,
    pub(crate) write: u16,
}

impl From<u16> for Ports {
    fn from(port: u16) -> Self {
        Self { read: port, write: port }
    }
}

/// Measures the time from sending a push to its event, one push after the other.
pub(crate) async fn latencies(ports: impl Into<Ports>, name: &str, time: Duration) -> io::Result<Figures> {
    let ports = ports.into();
    let mut reader = subscribe(ports.read, &format!("/v1/events?address={name}&concern=head")).await?;
    let (sender, mut arrivals) = mpsc::unbounded_channel();
    let reading = tokio::spawn(async move {
        loop {
            let sender = &sender;
            let read = reader.read_lines(|line| {
                if line.starts_with(b"event: change") {
                    let _ = sender.send(Instant::now());
                }
            });
            read.await?;
        }
        #[allow(unreachable_code, reason = "gives the task its type")]
        Ok::<(), io::Error>(())
    });
    // A change that came before is not waited for.
    tokio::time::sleep(Duration::from_millis(200)).await;
    while arrivals.try_recv().is_ok() {}
    let (mut writer, mut client, mut text) =
        (Connection::open(ports.write).await?, Push::new(Peer::Nameservice, name), Vec::new());
    let (begun, mut micros) = (Instant::now(), Vec::new());
    while begun.elapsed() < time {
        client.request(&mut text);
        let sent = Instant::now();
        let answer = writer.exchange(&text).await?;
        if client.answer(answer.status, answer.body) {
            let Some(arrived) = arrivals.recv().await else { break };
            micros.push(u32::try_from((arrived - sent).as_micros()).unwrap_or(u32::MAX));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    reading.abort();
    Ok(Figures::of(micros, begun.elapsed()))
}
