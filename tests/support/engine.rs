//! An engine that speaks DynamoDB: the embedded one, or one of those at `NAMESERVICE_TEST_ENDPOINT`.

use std::{
    net::TcpListener,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_sdk_dynamodb::{Client, config::timeout::TimeoutConfig};
use nameservice_store::{RetryPolicy, endpoint_client};
use tokio::runtime::{Builder, Runtime};

use crate::LONG;

/// If this variable names endpoints (DynamoDB Local, say; several with commas between them), the tests run there
/// instead of embedding an engine, each table on the next.
pub const ENDPOINT: &str = "NAMESERVICE_TEST_ENDPOINT";

/// The retry policy of what is no test of time: the engine is slow at times, since all tests share a machine.
pub const RETRIES: RetryPolicy =
    RetryPolicy { deadline: LONG, base: Duration::from_millis(25), cap: Duration::from_secs(1) };

/// Returns a client of an engine at a URL, or of a proxy in front of one. It differs from that of the product in its timeouts only:
/// no stall of the machine ends an attempt.
pub fn client(url: &str) -> Client {
    let timeouts = TimeoutConfig::builder().connect_timeout(LONG).operation_attempt_timeout(LONG).build();
    Client::from_conf(endpoint_client(url).config().to_builder().timeout_config(timeouts).build())
}

/// The runtime of everything that serves the tests: it outlives each of theirs.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        // More than the machine has: the embedded engine blocks them.
        Builder::new_multi_thread().worker_threads(4).thread_name("engine").enable_all().build().unwrap()
    })
}

/// The endpoints that were named from outside.
fn endpoints() -> Vec<String> {
    let urls = std::env::var(ENDPOINT).unwrap_or_default();
    urls.split(',').filter(|url| !url.is_empty()).map(str::to_owned).collect()
}

/// Whether the tests run on engines that were named from outside.
pub fn is_external() -> bool {
    !endpoints().is_empty()
}

/// The next of the endpoints that were named from outside.
fn external() -> Option<String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let urls = endpoints();
    let next = NEXT.fetch_add(1, Ordering::Relaxed) % urls.len().max(1);
    urls.into_iter().nth(next)
}

/// An engine to make tables in.
///
/// The embedded one is new and empty each time, on the shared runtime: with every write it scans all stream records
/// of its database, so tests that shared a database would slow each other down.
pub fn start() -> String {
    external().unwrap_or_else(|| {
        let database = dynoxide::Database::memory().unwrap();
        database.disable_bulk_loading().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime().spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            dynoxide::server::serve_with_shutdown(listener, database, std::future::pending()).await
        });
        url
    })
}
