//! Clients that send the next request when the last one is answered, each on a connection of its own.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::http1::Connection;

/// The requests of one client.
pub(crate) trait Client: Send + 'static {
    /// Writes the next request.
    fn request(&mut self, into: &mut Vec<u8>);

    /// Reads its answer; returns whether the request succeeded.
    fn answer(&mut self, status: u16, body: &[u8]) -> bool;
}

/// The figures of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Successful answers.
    pub(crate) useful: usize,
    /// All answers.
    pub(crate) answers: usize,
    elapsed: Duration,
    /// How long each answer took, sorted, in microseconds.
    micros: Vec<u32>,
}

impl Figures {
    pub(crate) fn rate(&self) -> f64 {
        self.useful as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns a quantile of the latencies, in milliseconds.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let at = (self.micros.len() as f64 * share) as usize;
        self.micros.get(at.min(self.micros.len().saturating_sub(1))).copied().unwrap_or_default() as f64 / 1000.0
    }

    /// Figures of latencies that were measured one by one.
    pub(crate) fn of(mut micros: Vec<u32>, elapsed: Duration) -> Self {
        micros.sort_unstable();
        Self { useful: micros.len(), answers: micros.len(), elapsed, micros }
    }
}

/// Clients that run until they are stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    clients: JoinSet<io::Result<(usize, Vec<u32>)>>,
    begun: Instant,
}

impl Load {
    pub(crate) async fn start<C: Client>(port: u16, clients: impl IntoIterator<Item = C>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut connected = Vec::new();
        for client in clients {
            connected.push((Connection::open(port).await?, client));
        }
        let mut tasks = JoinSet::new();
        for (connection, client) in connected {
            tasks.spawn(run(connection, client, stop.clone()));
        }
        Ok(Self { stop, clients: tasks, begun: Instant::now() })
    }

    pub(crate) async fn stop(mut self) -> io::Result<Figures> {
        self.stop.store(true, Ordering::Relaxed);
        let elapsed = self.begun.elapsed();
        let (mut useful, mut micros) = (0, Vec::new());
        while let Some(client) = self.clients.join_next().await {
            let (wanted, mut took) = client.map_err(io::Error::other)??;
            useful += wanted;
            micros.append(&mut took);
        }
        micros.sort_unstable();
        Ok(Figures { useful, answers: micros.len(), elapsed, micros })
    }
}

/// Runs clients for some time.
pub(crate) async fn measure<C: Client>(
    port: u16,
    clients: impl IntoIterator<Item = C>,
    time: Duration,
) -> io::Result<Figures> {
    let load = Load::start(port, clients).await?;
    tokio::time::sleep(time).await;
    load.stop().await
}

async fn run<C: Client>(
    mut connection: Connection,
    mut client: C,
    stop: Arc<AtomicBool>,
) -> io::Result<(usize, Vec<u32>)> {
    let (mut useful, mut micros, mut text) = (0, Vec::with_capacity(1 << 16), Vec::with_capacity(1024));
    while !stop.load(Ordering::Relaxed) {
        client.request(&mut text);
        let sent = Instant::now();
        let answer = connection.exchange(&text).await?;
        micros.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
        if client.answer(answer.status, answer.body) {
            useful += 1;
        }
    }
    Ok((useful, micros))
}
