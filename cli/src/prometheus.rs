//! `GET /metrics`: the metrics of the service, as text for Prometheus. docs/metrics.md has the table.

use std::{
    sync::{Arc, LazyLock, Once},
    thread,
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
    routing::get,
};
use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use nameservice_http::{
    App, Shutdown,
    extract::{Allowed, Read},
};
use tokio::net::TcpListener;

use crate::{
    backups::Backups,
    connections::{self, Limits, tls::Tls},
    scrubs::ScrubAge,
    upstream::Upstream,
};

/// From a read out of memory to a long poll.
const SECONDS: [f64; 14] = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 20.0];
const UNITS: [f64; 9] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
const GROUPS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 512.0, 2048.0];
/// How often durations, which are kept one by one until then, are put into their buckets; also done when they are read.
const UPKEEP: Duration = Duration::from_secs(5);
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The recorder of this process; `None` if the process has another one.
static RECORDER: LazyLock<Option<PrometheusHandle>> = LazyLock::new(|| match install() {
    Ok(handle) => {
        describe();
        Some(handle)
    }
    Err(error) => {
        tracing::warn!(%error, "nothing is measured");
        None
    }
});

fn install() -> Result<PrometheusHandle, metrics_exporter_prometheus::BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Full("nameservice_log_commit_commands".into()), &GROUPS)?
        .set_buckets_for_metric(Matcher::Full("nameservice_feed_batch_changes".into()), &GROUPS)?
        .set_buckets_for_metric(Matcher::Full("nameservice_store_capacity_units".into()), &UNITS)?
        .install_recorder()
}

/// Begins to record what is measured: what was measured before is lost.
pub(crate) fn begin() {
    static BEGUN: Once = Once::new();
    if let Some(recorder) = RECORDER.as_ref() {
        // Nobody may ever ask for the metrics, and what is not put into buckets stays in memory.
        BEGUN.call_once(|| keep_up(recorder));
    }
}

fn describe() {
    describe_counter!("nameservice_requests_total", "Requests answered, by operation and outcome");
    describe_histogram!(
        "nameservice_request_duration_seconds",
        Unit::Seconds,
        "From a request to its answer, by operation; a stream's answer is its beginning"
    );
    describe_gauge!("nameservice_requests_in_flight", "Requests that are being answered");
    describe_counter!(
        "nameservice_connections_rejected_total",
        "Connections that were rejected, since all others were in use"
    );
    describe_gauge!("nameservice_feed_position", "The position of the last change in the feed");
    describe_gauge!("nameservice_feed_readers", "Streams and long polls that wait for changes");
    describe_counter!("nameservice_store_requests_total", "Attempts sent to DynamoDB, by operation and outcome");
    describe_histogram!(
        "nameservice_store_request_duration_seconds",
        Unit::Seconds,
        "From an attempt to its answer, by operation"
    );
    describe_counter!("nameservice_store_retries_total", "Attempts that were repeated, by operation and reason");
    describe_histogram!(
        "nameservice_store_capacity_units",
        "Capacity units that DynamoDB's answers name, by operation"
    );
    describe_counter!("nameservice_leases_total", "Leases held, busy, lost and released, by outcome");
    describe_histogram!(
        "nameservice_feed_lag_seconds",
        Unit::Seconds,
        "From the oldest change of a batch of the stream to its place in the feed"
    );
    describe_histogram!("nameservice_feed_batch_changes", "Changes of a batch of the stream");
    describe_counter!("nameservice_feed_dead_letters_total", "Stream records that became dead letters");
    describe_counter!("nameservice_feed_failures_total", "Batches of the stream that failed, and are tried again");
    describe_counter!("nameservice_feed_rings_lost_total", "Rings of the doorbell that were not published");
    describe_counter!(
        "nameservice_feed_notifications_lost_total",
        "Changes that were not published to subscriptions of GraphQL on AWS"
    );
    describe_gauge!(
        "nameservice_certificate_remaining_seconds",
        Unit::Seconds,
        "How long the certificate in use remains valid; negative after its end"
    );
    describe_gauge!(
        "nameservice_keys_age_seconds",
        Unit::Seconds,
        "Since the key set in use was read from the URL of --jwks"
    );
    describe_gauge!("nameservice_replica_age_seconds", Unit::Seconds, "How old what a replica answers is at most");
    describe_gauge!(
        "nameservice_backup_age_seconds",
        Unit::Seconds,
        "Since the last backup that was made and checked, or since the start if there is none of this data"
    );
    describe_counter!(
        "nameservice_backup_failures_total",
        "Backups that were not made, failed their check, or were not removed, by step"
    );
    describe_gauge!("nameservice_backup_leftovers", "Old backups that were not removed after the last one");
    describe_gauge!(
        "nameservice_scrub_age_seconds",
        Unit::Seconds,
        "Since all of the data was last compared with memory, or since the start"
    );
    describe_gauge!("nameservice_scrub_findings", "What was damaged when the data was last compared with memory");
    describe_gauge!("nameservice_scrub_work_seconds", Unit::Seconds, "How long the last comparison worked");
    describe_histogram!(
        "nameservice_log_commit_duration_seconds",
        Unit::Seconds,
        "Writing a group of commands to the embedded log, with its sync"
    );
    describe_histogram!("nameservice_log_commit_commands", "Commands in a group of the embedded log");
    describe_counter!(
        "nameservice_log_commit_failures_total",
        "Writes and deep checks of health that were rejected, since the embedded log could not be written"
    );
    describe_counter!(
        "nameservice_log_maintenance_failures_total",
        "Attempts to move or remove old changes of the embedded log that failed"
    );
    describe_gauge!("nameservice_projection_position", "The position of the feed that a read model has reached");
    describe_gauge!("nameservice_projection_lag_changes", "Changes of the feed that a read model does not have yet");
    describe_gauge!(
        "nameservice_projection_lag_seconds",
        Unit::Seconds,
        "The age of the last change in a read model that others follow"
    );
    describe_counter!("nameservice_projection_changes_total", "Changes that a read model has taken");
    describe_counter!(
        "nameservice_projection_failures_total",
        "Runs of changes that a read model could not apply, and tries again"
    );
}

/// The sources of the gauges.
#[derive(Clone)]
pub(crate) struct Sampled {
    app: App,
    upstream: Option<Upstream>,
    backups: Option<Backups>,
    scrubs: Option<ScrubAge>,
    tls: Option<Arc<Tls>>,
}

impl Sampled {
    /// Returns the gauges of a service and, if it has them, of its upstream, its backups and its scrubs.
    pub(crate) fn new(
        app: App,
        upstream: Option<Upstream>,
        backups: Option<Backups>,
        scrubs: Option<ScrubAge>,
    ) -> Self {
        Self { app, upstream, backups, scrubs, tls: None }
    }

    /// Adds that of its certificate, if it has one.
    pub(crate) fn with_tls(self, tls: Option<Arc<Tls>>) -> Self {
        Self { tls, ..self }
    }
}

/// Returns the route of the metrics, and begins to measure.
pub(crate) fn router(sampled: Sampled) -> Router {
    begin();
    Router::new().route("/metrics", get(text)).with_state(sampled)
}

/// Puts durations into their buckets for as long as the process runs. This is on a thread of its own, since with any timer in the
/// runtime of the service, its threads would set a timer of the kernel whenever they wait for a request.
fn keep_up(recorder: &'static PrometheusHandle) {
    let run = || {
        loop {
            thread::sleep(UPKEEP);
            recorder.run_upkeep();
        }
    };
    if let Err(error) = thread::Builder::new().name("metrics-upkeep".to_owned()).spawn(run) {
        tracing::warn!(%error, "durations are put into their buckets only when they are read");
    }
}

/// Returns the routes of [`router`] for callers who may read: for the listener of the service, which a proxy may make public.
pub(crate) fn guarded(sampled: Sampled) -> Router {
    let guard = async |_: Allowed<Read>, request: Request, next: Next| next.run(request).await;
    router(sampled.clone()).layer(from_fn_with_state(sampled.app, guard))
}

/// Serves the metrics alone, at a listener of their own, whose connections have limits of their own. It begins to measure
/// immediately.
pub(crate) fn serve(listener: TcpListener, sampled: Sampled) -> impl Future<Output = ()> + Send + 'static {
    serve_within(Limits::of_metrics(), listener, sampled)
}

fn serve_within(limits: Limits, listener: TcpListener, sampled: Sampled) -> impl Future<Output = ()> + Send + 'static {
    // Nothing is reserved: there is no health here.
    connections::serve(listener.into(), None, router(sampled), String::new(), limits, Shutdown::default())
}

async fn text(State(Sampled { app, upstream, backups, scrubs, tls }): State<Sampled>) -> Response {
    let Some(recorder) = RECORDER.as_ref() else { return StatusCode::NOT_FOUND.into_response() };
    app.sample().await;
    if let Some(upstream) = upstream {
        upstream.sample();
    }
    if let Some(backups) = backups {
        backups.sample();
    }
    if let Some(scrubs) = scrubs {
        scrubs.sample();
    }
    if let Some(tls) = tls {
        tls.sample();
    }
    recorder.run_upkeep();
    ([(header::CONTENT_TYPE, TEXT)], recorder.render()).into_response()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::SocketAddr, sync::Arc};

    use nameservice_embedded::{Embedded, Options};
    use nameservice_http::Auth;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
        time::timeout,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(120);

    /// Asks once, and returns the answer; nothing if the connection was closed.
    async fn asked(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        let mut answer = Vec::new();
        if stream.write_all(request.as_bytes()).await.is_ok() {
            // A rejected connection may be reset.
            let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.unwrap();
        }
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn unfinished_requests_for_metrics_end_and_take_nothing_from_the_service() {
        let names = Arc::new(Embedded::memory(Options::default()).unwrap());
        let app = App::new(names.clone(), names, Auth::Open);
        let listen = || crate::connections::tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let (listener, main) = (listen(), listen());
        let (metrics, address) = (listener.local_addr().unwrap(), main.local_addr().unwrap());
        let sampled = Sampled::new(app.clone(), None, None, None);
        let limits = Limits::of_metrics().with_max(4).with_headers(Duration::from_millis(500));
        tokio::spawn(serve_within(limits, listener, sampled));
        let service = crate::serve::start(main, app, None).unwrap();

        let mut unfinished = Vec::new();
        for _ in 0..12 {
            let mut stream = TcpStream::connect(metrics).await.unwrap();
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost:").await;
            unfinished.push(stream);
        }
        assert!(asked(address, "/v1/health").await.starts_with("HTTP/1.1 200"));
        for mut stream in unfinished {
            let _ = timeout(LONG, stream.read_to_end(&mut Vec::new())).await.unwrap();
        }
        let scraped = async { while !asked(metrics, "/metrics").await.starts_with("HTTP/1.1 200") {} };
        timeout(LONG, scraped).await.unwrap();
        let text = asked(address, "/metrics").await;
        for series in [
            r#"nameservice_connections_rejected_total{listener="metrics"} "#,
            r#"nameservice_connections_rejected_total{listener="service"} "#,
        ] {
            assert!(text.contains(series), "{text}");
        }
        service.stop().await;
    }

    /// Returns the words of a text that name metrics.
    fn names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("nameservice_") && *word != "nameservice_http").collect()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_measured_is_put_into_buckets_although_nobody_asks_for_it() {
        const NAME: &str = "prometheus::tests::what_is_measured_is_put_into_buckets_although_nobody_asks_for_it";
        const ALONE: &str = "NAMESERVICE_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            // Other tests of this process begin to measure, too.
            let mut itself = std::process::Command::new(std::env::current_exe().unwrap());
            let done = itself.args(["--exact", NAME]).env(ALONE, "1").output().unwrap();
            let said = String::from_utf8_lossy(&done.stdout);
            assert!(done.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        super::begin();
        let is_there = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let mut names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
            names.any(|name| name.trim() == "metrics-upkeep")
        };
        // A thread names itself once it runs.
        let until = std::time::Instant::now() + LONG;
        while !is_there() {
            assert!(std::time::Instant::now() < until);
            thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn what_is_described_is_documented_and_measured_and_the_dashboard_asks_for_nothing_else() {
        let here = include_str!("prometheus.rs").split("#[cfg(test)]").next().unwrap();
        let described = names(here);
        assert!(described.len() >= 10, "{described:?}");
        let page = include_str!("../../docs/metrics.md");
        // The metrics of functions have a table of their own, which shared/lambda/src/emf.rs checks.
        let (page, _) = page.split_once("## On AWS").unwrap();
        let table: String = page.lines().filter(|line| line.starts_with("| `nameservice_")).collect();
        assert_eq!(names(&table), described);
        let measured = [
            include_str!("../../shared/http/src/meters.rs"),
            include_str!("../../shared/http/src/app.rs"),
            include_str!("../../shared/dynamo/src/sending.rs"),
            include_str!("../../shared/embedded/src/log/mod.rs"),
            include_str!("../../shared/embedded/src/writer.rs"),
            include_str!("../../shared/projector/src/projector.rs"),
            include_str!("../../functions/stream_consumer/src/lib.rs"),
            include_str!("../../shared/http/src/fresh_keys.rs"),
            include_str!("connections/full.rs"),
            include_str!("connections/tls.rs"),
            include_str!("upstream.rs"),
            include_str!("backups.rs"),
            include_str!("scrubs.rs"),
        ];
        let measured: BTreeSet<_> = measured.iter().flat_map(|source| names(source)).collect();
        for name in &described {
            assert!(measured.contains(name), "nothing measures {name}");
        }
        let dashboard = include_str!("../../docs/grafana.json");
        let series =
            |name: &str| ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).map(str::to_owned);
        for asked in names(dashboard).into_iter().chain(names(page)) {
            let name = series(asked).unwrap_or_else(|| asked.to_owned());
            assert!(described.contains(name.as_str()), "{asked} is no metric");
        }
    }
}
