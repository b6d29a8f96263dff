//! `nameservice serve` as a process of its own, to be killed and started again.

use std::{
    fs::{self, OpenOptions},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{self, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use nameservice_tests::LONG;
use tokio::process::{Child, Command};

/// How the process is started, each time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// `--data DIR` or `--endpoint-url URL`.
    pub(crate) place: Vec<String>,
    /// Options of `serve`.
    pub(crate) options: Vec<String>,
    /// Variables of its environment.
    pub(crate) variables: Vec<(String, String)>,
    /// The file that its log is appended to. Without one it has none: requests that fail under faults would drown the figures.
    pub(crate) log: Option<PathBuf>,
}

impl Setup {
    pub(crate) fn new(place: &[&str], options: &[&str]) -> Self {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        Self { place: owned(place), options: owned(options), ..Self::default() }
    }
}

/// A running service, at an address that it keeps across restarts.
pub(crate) struct Process {
    child: Child,
    listen: SocketAddr,
    setup: Setup,
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
        Self::start_as(Setup::new(place, options)).await
    }

    /// Starts one with this setup.
    pub(crate) async fn start_as(setup: Setup) -> Self {
        let listen = own_address();
        let child = spawn(listen, &setup).await;
        Self { child, listen, setup, kills: 0 }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.listen)
    }

    /// The process id, until it is killed.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Its anonymous resident memory, in MiB.
    pub(crate) fn memory(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }

    /// Kills it with SIGKILL and restarts it.
    pub(crate) async fn kill_and_restart(&mut self) {
        self.child.kill().await.unwrap();
        self.kills += 1;
        self.child = spawn(self.listen, &self.setup).await;
    }
}

/// An address that stays free while its process is started or is down. Systems give ports from 32,768 on to whoever asks for any;
/// on Linux each test process has loopback addresses of its own, too.
fn own_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let [.., high, low] = process::id().to_be_bytes();
    let host = if cfg!(target_os = "linux") { [127, 1 + high % 254, low, 1] } else { [127, 0, 0, 1] };
    let free = |_| {
        let n = process::id().wrapping_mul(101).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let address = SocketAddr::from((host, 10_000 + u16::try_from(n).unwrap()));
        TcpListener::bind(address).is_ok().then_some(address)
    };
    (0..20_000).find_map(free).unwrap()
}

async fn spawn(listen: SocketAddr, setup: &Setup) -> Child {
    let Setup { place, options, variables, log } = setup;
    let log = match log {
        Some(path) => OpenOptions::new().create(true).append(true).open(path).unwrap().into(),
        None => Stdio::null(),
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_nameservice_under_test"))
        .args(place)
        .args(["serve", "--listen", &listen.to_string()])
        .args(options)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while TcpStream::connect(listen).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "the service did not start: {setup:?}");
        assert!(begun.elapsed() < LONG, "the service does not listen: {setup:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    child
}
