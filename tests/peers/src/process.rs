//! The measured servers, each a process of its own.

use std::{
    fs, io,
    net::TcpListener,
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

/// Ticks of a second in `/proc/<pid>/stat`, on every Linux there is.
const TICKS: f64 = 100.0;
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A server that runs until it is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

/// Returns a free port.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

impl Server {
    pub(crate) async fn start(mut command: Command, port: u16) -> io::Result<Self> {
        let begun = Instant::now();
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn()?;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("{:?} ended with {status}", command.as_std())));
            }
            if begun.elapsed() > START_TIMEOUT {
                return Err(io::Error::other(format!("{:?} does not listen", command.as_std())));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(Self { child, port })
    }

    /// Kills it with SIGKILL.
    pub(crate) async fn kill(mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Seconds of processor time that it has used.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = self.proc("stat");
        // The command's name, in parentheses, may hold spaces.
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
        (ticks(11) + ticks(12)) / TICKS
    }

    /// Its resident memory in MiB.
    pub(crate) fn rss(&self) -> f64 {
        let status = self.proc("status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).unwrap_or_default() / 1024.0
    }

    fn proc(&self, file: &str) -> String {
        let id = self.child.id().unwrap_or_default();
        fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default()
    }
}
