//! A link to a service that can be cut and slowed: byte by byte, so that event streams pass through it too.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// How much is carried in one piece.
const CHUNK: usize = 16 * 1024;

/// A link, as long as the runtime of the test runs.
pub struct Link {
    url: String,
    /// Whether it is cut, and how many times it was: what was under way ends also if it is mended immediately.
    cut: watch::Sender<(bool, u64)>,
    /// How much longer each chunk takes, in microseconds.
    delay: Arc<AtomicU64>,
    /// How many times it was cut.
    pub cuts: u64,
}

impl Link {
    /// Opens a link to a service at this URL.
    pub async fn to(url: &str) -> Self {
        let to: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (cut, is_cut) = watch::channel((false, 0));
        let delay = Arc::new(AtomicU64::new(0));
        let delays = delay.clone();
        tokio::spawn(async move {
            while let Ok((here, _)) = listener.accept().await {
                let (mut is_cut, delay) = (is_cut.clone(), delays.clone());
                let (is_cut_now, cuts) = *is_cut.borrow_and_update();
                if is_cut_now {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(there) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = join(here, there, &delay) => {}
                        // What is under way is lost.
                        _ = is_cut.wait_for(|(_, now)| *now != cuts) => {}
                    }
                });
            }
        });
        Self { url, cut, delay, cuts: 0 }
    }

    /// The URL of its near end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Cuts it.
    pub fn cut(&mut self) {
        self.cuts += 1;
        self.cut.send_replace((true, self.cuts));
    }

    /// Mends it.
    pub fn mend(&self) {
        self.cut.send_modify(|(is_cut, _)| *is_cut = false);
    }

    /// Cuts it for a while.
    pub async fn interrupt(&mut self, time: Duration) {
        self.cut();
        tokio::time::sleep(time).await;
        self.mend();
    }

    /// Makes every chunk take this much longer from now on.
    pub fn slow(&self, by: Duration) {
        self.delay.store(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

async fn join(mut here: TcpStream, mut there: TcpStream, delay: &AtomicU64) -> io::Result<()> {
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    let ((from_here, to_here), (from_there, to_there)) = (here.split(), there.split());
    tokio::try_join!(carry(from_here, to_there, delay), carry(from_there, to_here, delay))?;
    Ok(())
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, delay: &AtomicU64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = from.read(&mut chunk).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        let by = delay.load(Ordering::Relaxed);
        if by > 0 {
            tokio::time::sleep(Duration::from_micros(by)).await;
        }
        to.write_all(&chunk[..length]).await?;
    }
}
