//! A link to a service that can be cut: byte by byte, so that event streams pass through it too.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// A link, as long as the runtime of the test runs.
pub struct Link {
    url: String,
    cut: watch::Sender<bool>,
    /// How many times it was cut.
    pub cuts: u64,
}

impl Link {
    /// Opens a link to a service at this URL.
    pub async fn to(url: &str) -> Self {
        let to: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (cut, is_cut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut here, _)) = listener.accept().await {
                let mut is_cut = is_cut.clone();
                if *is_cut.borrow_and_update() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut there) = TcpStream::connect(to).await else { return };
                    let _ = here.set_nodelay(true).and_then(|()| there.set_nodelay(true));
                    tokio::select! {
                        _ = copy_bidirectional(&mut here, &mut there) => {}
                        // What is under way is lost.
                        _ = is_cut.wait_for(|cut| *cut) => {}
                    }
                });
            }
        });
        Self { url, cut, cuts: 0 }
    }

    /// Where it begins.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Cuts it.
    pub fn cut(&mut self) {
        self.cuts += 1;
        self.cut.send_replace(true);
    }

    /// Mends it.
    pub fn mend(&self) {
        self.cut.send_replace(false);
    }

    /// Cuts it for a while.
    pub async fn interrupt(&mut self, time: Duration) {
        self.cut();
        tokio::time::sleep(time).await;
        self.mend();
    }
}
