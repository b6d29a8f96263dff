//! An engine that speaks DynamoDB, in this process.

use std::net::TcpListener;

use aws_sdk_dynamodb::{Client, config::timeout::TimeoutConfig};
use nameservice_store::endpoint_client;
use tokio::runtime::Runtime;

use super::LONG;

/// Runs until it is dropped, and keeps everything in memory.
pub(crate) struct Engine {
    url: String,
    runtime: Option<Runtime>,
}

impl Engine {
    pub(crate) fn start() -> Self {
        let database = dynoxide::Database::memory().unwrap();
        database.disable_bulk_loading().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            dynoxide::server::serve_with_shutdown(listener, database, std::future::pending()).await
        });
        Self { url, runtime: Some(runtime) }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns a client of it, which differs from that of the product in its timeouts only.
    pub(crate) fn client(&self) -> Client {
        Client::from_conf(endpoint_client(&self.url).config().to_builder().timeout_config(timeouts()).build())
    }
}

/// Returns timeouts of which no stall of the machine ends an attempt.
pub(crate) fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(LONG).operation_attempt_timeout(LONG).build()
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A runtime must not wait for its threads on a thread of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
