//! An object store that fails: requests are lost, replies are lost, and those who send them are killed.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use nameservice_objects::object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory, path::Path,
};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Faulty {
    pub(super) inner: Arc<InMemory>,
    rng: Mutex<StdRng>,
    behaves: AtomicBool,
    faults: AtomicU64,
    kill: Notify,
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl Faulty {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            inner: Arc::new(InMemory::new()),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
            behaves: AtomicBool::new(false),
            faults: AtomicU64::new(0),
            kill: Notify::new(),
        }
    }

    /// Runs this without faults.
    pub(super) async fn behave<F: Future>(&self, of: impl FnOnce() -> F) -> F::Output {
        self.behaves.store(true, SeqCst);
        let done = of().await;
        self.behaves.store(false, SeqCst);
        done
    }

    /// Runs this until it ends, or is killed at one of its requests.
    pub(super) async fn killed<F: Future>(&self, of: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            () = self.kill.notified() => None,
            done = of => Some(done),
        }
    }

    pub(super) fn faults(&self) -> u64 {
        self.faults.load(SeqCst)
    }

    /// What happens to a request: it is lost, its reply is lost, its sender is killed, or nothing.
    async fn fault(&self) -> Option<bool> {
        // Yields to other tasks, as a request over a network would.
        tokio::task::yield_now().await;
        if self.behaves.load(SeqCst) {
            return None;
        }
        let drawn = self.rng.lock().unwrap().random_range(0..12);
        if drawn < 3 {
            self.faults.fetch_add(1, SeqCst);
        }
        match drawn {
            0 => Some(true),
            1 => Some(false),
            2 => {
                self.kill.notify_one();
                None
            }
            _ => None,
        }
    }
}

fn lost() -> Error {
    Error::Generic { store: "Faulty", source: "the connection was closed".into() }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let fault = self.fault().await;
        if fault == Some(true) {
            return Err(lost());
        }
        let done = self.inner.put_opts(location, payload, options).await;
        tokio::task::yield_now().await;
        if fault == Some(false) { Err(lost()) } else { done }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        match self.fault().await {
            Some(_) => Err(lost()),
            None => self.inner.get_opts(location, options).await,
        }
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
