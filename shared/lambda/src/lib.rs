//! How a route becomes a Lambda function: configuration from the environment, logging, connections, and the runtime's
//! loop.
//!
//! A function's `main.rs` is one call: `serve_lambda` behind API Gateway, or `serve_feed` for a route that reads the feed,
//! `serve_function_url` and `serve_streaming_url` at a function URL, `serve_without_store` for a route that reads no table, and
//! [`serve_events`] for a function that takes something other than HTTP requests.

#[cfg(feature = "archive")]
mod archive;
#[cfg(feature = "archive")]
mod bucket;
mod emf;
mod environment;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "http")]
mod keys;
mod queues;
#[cfg(feature = "http")]
mod reads;

use std::time::Instant;

use nameservice_feed::Feed;
use nameservice_model::{NameService, chain};
use nameservice_store::Store;

#[cfg(feature = "archive")]
pub use archive::{ARCHIVE_BUCKET, archive};
#[cfg(feature = "archive")]
pub use bucket::Bucket;
pub use environment::InvalidVariable;
#[cfg(feature = "http")]
pub use http::{behind_gateway, serve_function_url, serve_lambda, serve_without_store};
#[cfg(all(feature = "archive", feature = "http"))]
pub use http::{serve_feed, serve_streaming_url};
pub use queues::{MAX_MESSAGE_BYTES, queue_json};

/// Runs a function that is called with something other than HTTP requests, over the store and the feed that its
/// environment names. The function runs the runtime's loop itself.
pub fn serve_events<F, E>(function: impl FnOnce(Store, Feed) -> F) -> Result<(), E>
where
    F: Future<Output = Result<(), E>>,
    E: From<std::io::Error> + From<InvalidVariable>,
{
    log();
    runtime()?.block_on(async {
        let (store, feed) = environment::connections()?;
        // Metrics are gathered from here on.
        let _ = emf::of_environment();
        tokio::spawn(connect(store.clone()));
        function(store, feed).await
    })
}

/// Writes what was measured since the last call to the log, if the environment asks for metrics. A function that
/// [`serve_events`] runs calls this at the end of each event.
pub fn write_metrics() {
    if let Some(emf) = emf::of_environment() {
        emf.write();
    }
}

/// One thread: Lambda sends one request at a time.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Logs as JSON lines, which CloudWatch reads.
fn log() {
    tracing_subscriber::fmt()
        .json()
        .with_max_level(environment::log_level())
        .with_current_span(false)
        .with_ansi(false)
        .init();
}

/// Opens the connection that the first request will use. That request reports a failure.
async fn connect(store: Store) {
    let start = Instant::now();
    match store.ping().await {
        Ok(()) => tracing::debug!(micros = start.elapsed().as_micros() as u64, "connected"),
        Err(error) => tracing::warn!(error = chain(&error), "the store did not answer during init"),
    }
}
