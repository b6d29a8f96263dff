//! `nameservice serve` as a process of its own, to be killed and started again.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::process::{Child, Command};

/// The deadline of the process to listen.
const DEADLINE: Duration = Duration::from_secs(20);

/// A running service, on a port that it keeps across restarts.
pub(crate) struct Process {
    child: Child,
    listen: SocketAddr,
    place: Vec<String>,
    options: Vec<String>,
    /// How many times it was killed.
    pub(crate) kills: u64,
}

impl Process {
    /// Starts one with these arguments: `--data DIR` or `--endpoint-url URL`.
    pub(crate) async fn start(place: &[&str]) -> Self {
        Self::start_with(place, &[]).await
    }

    /// Starts one with these arguments, and with options of `serve`.
    pub(crate) async fn start_with(place: &[&str], options: &[&str]) -> Self {
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let (place, options) = (owned(place), owned(options));
        let child = spawn(listen, &place, &options).await;
        Self { child, listen, place, options, kills: 0 }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// The process id, until it is killed.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Kills it with SIGKILL and restarts it.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.child.kill().await.unwrap();
        self.kills += 1;
        self.child = spawn(self.listen, &self.place, &self.options).await;
    }
}

async fn spawn(listen: SocketAddr, place: &[String], options: &[String]) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_nameservice_under_test"))
        .args(place)
        .args(["serve", "--listen", &listen.to_string()])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // Its log of requests that fail under faults would hide the figures.
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while TcpStream::connect(listen).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "the service did not start: {place:?}");
        assert!(begun.elapsed() < DEADLINE, "the service does not listen: {place:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    child
}
