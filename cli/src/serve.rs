//! The whole service on one machine.

mod args;
pub mod error;
#[cfg(feature = "replica")]
mod replica;
mod sign_in;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Method, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use console_get::SignIn;
use nameservice::Place;
use nameservice_embedded::OpenError;
use nameservice_http::{
    App, Auth, CorsLayer, Problem, Required, Shutdown, StaticToken, Verifier, cors, log_requests, service,
};
use nameservice_model::{Error as StoreError, ShownUrl};
use tokio::{net::TcpListener, task::JoinHandle};

#[cfg(feature = "files")]
use crate::files::Stored;
#[cfg(feature = "migration")]
use crate::older::Older;
use crate::{
    archives::with_archive,
    base_path::{BasePath, below},
    connections,
    consumer::Beside,
    failure::Failure,
    keys,
    nudge::Nudge,
    options::{Missing, TargetArgs},
    output,
    prometheus::{self, Sampled},
    routes,
    target::{DEFAULT_DATA, Opened},
    traces,
    upstream::Upstream,
};

pub use args::ServeArgs;
pub use error::ServeError;

/// The default directory of the change feed of files.
#[cfg(feature = "files")]
const DEFAULT_FEED_DATA: &str = ".nameservice-feed";
/// How long running requests may take to finish once the service is stopping.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long running requests may take if the service can no longer write: waiting would not improve their answers, and its supervisor
/// should start it again soon.
const FAILED_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long running reads may take once the service is stopping: no change will come for one that waits for changes.
const READ_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
const SAMPLE_ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

/// A running service. It stops on request, or with the runtime.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    base: Option<BasePath>,
    shutdown: Shutdown,
    server: JoinHandle<()>,
}

/// Binds an address, whose port may be 0. No request is answered before [`start`].
pub async fn bind(listen: SocketAddr) -> Result<TcpListener, ServeError> {
    connections::listen(listen).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse(listen),
        _ => ServeError::Listen { address: listen, source },
    })
}

/// Starts a service. A consumer of the same table is nudged after every write.
pub fn start(listener: TcpListener, app: App, nudge: Option<Nudge>) -> Result<Service, ServeError> {
    start_with(listener, app, Settings { nudge, ..Settings::default() })
}

/// Starts the service of a replica, over the replica's records.
pub fn start_replica(listener: TcpListener, app: App, upstream: Upstream) -> Result<Service, ServeError> {
    start_with(listener, app, Settings { upstream: Some(upstream), ..Settings::default() })
}

/// The settings of a service.
#[derive(Default)]
struct Settings {
    /// Notified after every write.
    nudge: Option<Nudge>,
    /// Which web pages may use it.
    cors: Option<CorsLayer>,
    /// Their origins.
    origins: Vec<String>,
    /// The limits of connections.
    limits: connections::Limits,
    /// The path that it is served below.
    base_path: Option<BasePath>,
    /// What it is a replica of.
    upstream: Option<Upstream>,
    /// Whether to serve no metrics.
    unmeasured: bool,
    /// Whether to make a span for each request.
    traced: bool,
    /// Whether a consumer of the table's stream continues the traces of writes.
    is_continued: bool,
    /// Where users of the console sign in.
    sign_in: Option<SignIn>,
}

fn start_with(listener: TcpListener, app: App, settings: Settings) -> Result<Service, ServeError> {
    let Settings { nudge, cors, origins, limits, base_path, upstream, unmeasured, traced, is_continued, sign_in } =
        settings;
    let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
    let address = listener.local_addr().map_err(|source| ServeError::Listen { address: unspecified, source })?;
    let shutdown = app.shutdown();
    let front = Front {
        // An open service must not be open to web pages by DNS rebinding: their requests carry another name as their host.
        is_local: app.is_open() && address.ip().is_loopback(),
        // A caller who needs a token has to send it: pages of other sites have none.
        trusted: app.is_open().then(|| origins.into()),
        nudge,
        shutdown: shutdown.clone(),
    };
    // On loopback, for callers who may read; for others there is a separate listener.
    let sampled = || Sampled::new(app.clone(), upstream.clone());
    let metrics = (address.ip().is_loopback() && !unmeasured).then(|| prometheus::guarded(sampled()));
    let routes = routes::router_with(console_get::Settings::new(sign_in, cfg!(feature = "graphql")));
    #[cfg(feature = "graphql")]
    let routes = routes.merge(graphql(&app, upstream.as_ref()));
    let mut router = service(routes, app);
    if let Some(upstream) = &upstream {
        router = upstream.layer(router);
    }
    let router = router.merge(metrics.unwrap_or_default());
    let mut router = router.layer(middleware::from_fn_with_state(front, receive));
    if let Some(cors) = cors {
        router = router.layer(cors);
    }
    router = log_requests(router);
    if traced {
        router = traces::trace_requests(router, is_continued);
    }
    let base = base_path.clone();
    if let Some(base_path) = base_path {
        router = below(base_path, router);
    }
    let server = tokio::spawn(connections::serve(listener, router, limits, shutdown.clone()));
    Ok(Service { address, base, shutdown, server })
}

#[cfg(feature = "graphql")]
fn graphql(app: &App, upstream: Option<&Upstream>) -> axum::Router<App> {
    use axum::extract::FromRef as _;
    use nameservice_graphql::Writes;
    use nameservice_model::{ChangeFeed, NameService};
    use nameservice_projector::records::InProcess;

    let (names, feed) = (Arc::<dyn NameService>::from_ref(app), Arc::<dyn ChangeFeed>::from_ref(app));
    let writes = upstream.map_or(Writes::Here, |upstream| Writes::At(upstream.url().to_owned()));
    nameservice_graphql::router(Arc::new(InProcess::new(names, feed)), writes)
}

/// The state of the layer in front of the service. There is only one, since each layer costs every request several
/// allocations.
#[derive(Clone)]
struct Front {
    /// Whether only requests for a name of this machine are answered.
    is_local: bool,
    /// The origins of pages that may write, if no token is needed for it; `None` if one is.
    trusted: Option<Arc<[String]>>,
    nudge: Option<Nudge>,
    shutdown: Shutdown,
}

async fn receive(State(front): State<Front>, request: Request, next: Next) -> Response {
    if front.is_local
        && let Some(host) = hosts(&request).find(|host| !is_local(host))
    {
        return Problem::misdirected(host).into_response();
    }
    if let Some(trusted) = front.trusted.as_ref().filter(|_| !request.method().is_safe())
        && let Some(origin) = foreign(&request, trusted)
    {
        return Problem::foreign_page(origin).into_response();
    }
    if request.method() == Method::GET {
        return until_the_service_stops(&front.shutdown, next.run(request)).await;
    }
    let is_write = !request.method().is_safe();
    let response = next.run(request).await;
    // Also after a rejection, since an earlier attempt of the same write may have been applied.
    if let Some(nudge) = front.nudge.filter(|_| is_write) {
        nudge.give();
    }
    response
}

/// What a request names as its host: HTTP/2 has it in `:authority`.
fn hosts(request: &Request) -> impl Iterator<Item = &str> {
    let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    header.into_iter().chain(request.uri().authority().map(|authority| authority.as_str()))
}

/// The origin of the page that sends a request, if that page is of another site, and not one of those that may.
fn foreign<'a>(request: &'a Request, trusted: &[String]) -> Option<&'a str> {
    let text = |name| request.headers().get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("another site"));
    let origin = text(header::ORIGIN);
    if origin.is_some_and(|origin| trusted.iter().any(|trusted| trusted == "*" || trusted == origin)) {
        return None;
    }
    // Browsers set this, and pages cannot.
    match text(HeaderName::from_static("sec-fetch-site")) {
        Some("same-origin" | "none") => None,
        Some(_) => origin.or(Some("another site")),
        None => origin.filter(|origin| {
            let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
            !hosts(request).any(|host| host.eq_ignore_ascii_case(authority))
        }),
    }
}

/// Ends a read when the service stops: a reader that waits for changes would keep the service from stopping, and wait for
/// nothing. (Streams end on their own.)
async fn until_the_service_stops(shutdown: &Shutdown, answer: impl Future<Output = Response>) -> Response {
    tokio::select! {
        response = answer => response,
        () = async {
            shutdown.begun().await;
            tokio::time::sleep(READ_SHUTDOWN_TIMEOUT).await;
        } => Problem::from(StoreError::Unavailable { operation: "answer before the service stops", source: None })
            .into_response(),
    }
}

/// Whether a `Host` names this machine: `localhost`, or a loopback address, with a port or without.
fn is_local(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Service {
    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the service, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.address, self.base.as_ref().map_or("", BasePath::as_str))
    }

    /// Stops listening, and waits up to ten seconds for running requests to finish.
    pub async fn stop(self) {
        self.stop_within(SHUTDOWN_TIMEOUT).await;
    }

    async fn stop_within(self, limit: Duration) {
        self.shutdown.begin();
        let mut server = self.server;
        if tokio::time::timeout(limit, &mut server).await.is_err() {
            tracing::warn!("requests were still running after {limit:?}, and were cut off");
            server.abort();
        }
    }
}

/// How long running requests may take to finish, for the reason for which a service stops.
const fn shutdown_timeout(ended: &Result<(), Failure>) -> Duration {
    if ended.is_ok() { SHUTDOWN_TIMEOUT } else { FAILED_SHUTDOWN_TIMEOUT }
}

/// `nameservice serve`
pub(crate) async fn run(args: ServeArgs, target: TargetArgs) -> Result<(), Failure> {
    if target.named_service().is_some() {
        return Err(Failure::Usage("--url is for the other commands: serve listens on --listen".into()));
    }
    let place = match (target.place()?, args.memory) {
        (Some(place @ (Place::Directory { .. } | Place::Bucket { .. })), _) => place,
        (Some(_), true) => {
            return Err(Failure::Usage("give one of --memory, --data, --endpoint-url and --aws".into()));
        }
        (Some(place), false) => place,
        (None, true) => Place::Memory,
        (None, false) => Place::Embedded(Path::new(".").join(DEFAULT_DATA)),
    };
    // Mistakes on the command line are reported before anything is opened.
    let auth = auth(&args).await?;
    let origins = (!args.cors_origin.is_empty()).then(|| cors(&args.cors_origin));
    let cors = origins.transpose().map_err(|error| Failure::Usage(error.to_string()))?;
    let sign_in = args.sign_in.at(args.issuer.as_deref()).map_err(|error| Failure::Usage(error.to_string()))?;
    let stop = signal()?;
    // Nothing is created for a service that cannot listen.
    let listener = bind(args.listen).await?;
    let metrics = match args.metrics {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    #[cfg(feature = "replica")]
    if let Some(url) = &args.upstream {
        return replica::run(&args, url, place, &target, (listener, metrics), (auth, cors, sign_in), stop).await;
    }
    let archive = args.archive.open().await?;
    #[cfg(feature = "migration")]
    let older = match &args.legacy {
        Some(place) => Some(Older::open(place).await?),
        None => None,
    };
    let retention = Some(args.feed_retention);
    let opened = match place {
        #[cfg(feature = "files")]
        place @ (Place::Directory { .. } | Place::Bucket { .. }) => {
            let feed = args.feed_data.clone().unwrap_or_else(|| Path::new(".").join(DEFAULT_FEED_DATA));
            let stored = Stored::open(place, Missing::Create, (!args.memory).then_some(feed), retention).await?;
            // The feed follows the files from now on, whether it is read or not.
            stored.names.compare().await.map_err(|source| Failure::Files(source.into()))?;
            Opened::Files(stored)
        }
        place => {
            let open = |missing| Opened::open(place.clone(), missing, retention);
            match open(Missing::Reject).await {
                // Logged, since data that was not found where it should be looks the same: a file system that is not mounted.
                Err(Failure::Open(OpenError::Missing { directory })) => {
                    let opened = open(Missing::Create).await?;
                    tracing::info!("no nameservice data was found in {}: starting empty", directory.display());
                    opened
                }
                opened => opened?,
            }
        }
    };
    let beside = Beside::start(&args, &opened).await?;
    if let Auth::Verified(verifier) = &auth {
        reload_on_hangup(verifier.clone())?;
    }
    #[cfg(not(feature = "migration"))]
    let app = opened.app(auth);
    #[cfg(feature = "migration")]
    let app = match older {
        None => opened.app(auth),
        Some(older) => {
            output::note(&format!(
                "records of {} are shown too, and taken over when they are first written",
                older.place()
            ));
            let names = Arc::new(older.behind(opened.backend()));
            App::new(names.clone(), names, auth)
        }
    };
    let app = with_archive(app, archive);
    let sampled = Sampled::new(app.clone(), None);
    let metrics = metrics.map(|listener| tokio::spawn(prometheus::serve(listener, sampled)));
    let (base_path, unmeasured, traced) = (args.base_path.clone(), args.no_metrics, args.is_traced());
    let (nudge, is_continued) = (beside.nudge(), beside.continues_traces());
    let (origins, limits) = (args.cors_origin.clone(), connections::Limits::default().with_max(args.max_connections));
    let settings =
        Settings { nudge, cors, origins, limits, base_path, upstream: None, unmeasured, traced, is_continued, sign_in };
    let service = start_with(listener, app, settings)?;
    // A service in the background may no longer have a stdout.
    let _ = output::print(&greeting(&args, &service, &opened));

    let ended = until(stop, opened.ended()).await;
    // In this order, so that every write that was answered is in the feed.
    service.stop_within(shutdown_timeout(&ended)).await;
    if let Some(metrics) = metrics {
        metrics.abort();
    }
    beside.stop().await;
    // Dropping waits for the writer of the log, so it must not run on an async worker thread.
    let _ = tokio::task::spawn_blocking(move || drop(opened)).await;
    ended
}

/// Waits until the service has to stop, or cannot continue: then it fails, so that its supervisor restarts it.
async fn until(stop: impl Future<Output = ()>, ended: impl Future<Output = String>) -> Result<(), Failure> {
    let ended = tokio::select! {
        () = stop => Ok(()),
        reason = ended => Err(ServeError::Ended(reason).into()),
    };
    output::note("stopping");
    ended
}

async fn auth(args: &ServeArgs) -> Result<Auth, ServeError> {
    match &args.jwks {
        Some(place) => {
            let shown = if place.contains("://") { ShownUrl(place).to_string() } else { place.clone() };
            let unusable = |source| ServeError::Keys { place: shown.clone(), source };
            // The command line requires one of each.
            let required = |exactly: &Option<String>| exactly.clone().map_or(Required::Any, Required::Exactly);
            let source = keys::source(place).map_err(unusable)?;
            let verifier = Verifier::from_source(source, required(&args.issuer), required(&args.audience)).await;
            Ok(Auth::Verified(verifier.map_err(|error| unusable(error.into()))?))
        }
        None if args.dev_token.is_some() => {
            Ok(Auth::Token(StaticToken::new(args.dev_token.as_deref().unwrap_or_default())))
        }
        None if args.insecure || args.listen.ip().is_loopback() => Ok(Auth::Open),
        None => Err(ServeError::Exposed(args.listen)),
    }
}

/// Reads the keys of callers' tokens again on SIGHUP.
#[cfg_attr(not(unix), expect(unused_variables, clippy::unnecessary_wraps))]
fn reload_on_hangup(verifier: Verifier) -> Result<(), ServeError> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut hangup = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                verifier.reload().await;
            }
        });
    }
    Ok(())
}

/// Completes when the process has to stop: Ctrl-C, or SIGTERM. A second Ctrl-C ends it immediately.
fn signal() -> Result<impl Future<Output = ()>, ServeError> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signals)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signals)?;
        Ok(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            tokio::spawn(async move {
                interrupt.recv().await;
                output::note("stopped immediately");
                std::process::exit(130);
            });
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// The greeting: where the service listens, and commands to paste.
fn greeting(args: &ServeArgs, service: &Service, opened: &Opened) -> String {
    // The program as it was called, since it need not be on the path.
    let program = std::env::args().next().unwrap_or_else(|| "nameservice".into());
    let default = SocketAddr::from(([127, 0, 0, 1], 8080));
    let is_default = service.address() == default && args.base_path.is_none();
    let url = if is_default { String::new() } else { format!(" --url {}", service.url()) };
    let token = match (&args.dev_token, &args.jwks) {
        (Some(token), _) => format!("  export NAMESERVICE_TOKEN={}\n", quoted(token)),
        (None, Some(_)) => "  export NAMESERVICE_TOKEN=…  # a token of your issuer\n".to_owned(),
        (None, None) => String::new(),
    };
    format!(
        "Listening on {}, {}. Try:\n\n{token}  {program} create mydb{url}\n  \
         {program} push head mydb {SAMPLE_ID} 1 --expect-unborn{url}\n  {program} show mydb{url}\n  \
         {program} watch{url}\n\nThe console is at {}/console.\n\
         The API is described at {}/v1/docs. Ctrl-C stops the service.",
        service.url(),
        opened.describe(),
        service.url(),
        service.url(),
    )
}

/// Quotes a text for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '=' | '+');
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn only_names_of_this_machine_are_local() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[::1]:8080"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["example.com", "localhost.example.com:8080", "192.168.0.1", "127.0.0.1.nip.io:80", "[::2]:1", ""] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_recognized() {
        let trusted = ["https://app.example".to_owned()];
        let is_foreign = |headers: &[(&str, &str)]| {
            let mut request = axum::http::Request::post("/v1/ledgers");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            foreign(&request.body(axum::body::Body::empty()).unwrap(), &trusted).is_some()
        };
        let host = ("host", "localhost:8080");
        for own in [
            &[host][..],
            &[host, ("origin", "http://localhost:8080")],
            &[host, ("origin", "http://proxy.example"), ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
            &[host, ("origin", "https://app.example"), ("sec-fetch-site", "cross-site")],
        ] {
            assert!(!is_foreign(own), "{own:?}");
        }
        for other in [
            &[host, ("origin", "https://evil.example")][..],
            &[host, ("origin", "null")],
            &[host, ("origin", "http://localhost:3000")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "same-site"), ("origin", "http://localhost:8080")],
            &[("origin", "https://evil.example")],
        ] {
            assert!(is_foreign(other), "{other:?}");
        }
        let http2 =
            axum::http::Request::post("http://evil.example/v1/ledgers").body(axum::body::Body::empty()).unwrap();
        assert_eq!(hosts(&http2).collect::<Vec<_>>(), ["evil.example"]);
    }

    fn args(line: &str) -> ServeArgs {
        let cli = Cli::parse_from(["nameservice", "serve"].into_iter().chain(line.split_whitespace()));
        match cli.command {
            Command::Serve(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn other_machines_are_let_in_only_with_keys_a_token_or_on_purpose() {
        for line in ["", "--listen [::1]:0", "--listen 127.0.0.2:1", "--listen 0.0.0.0:1 --insecure"] {
            assert!(matches!(auth(&args(line)).await, Ok(Auth::Open)), "{line}");
        }
        for line in ["--listen 0.0.0.0:1", "--listen [::]:1", "--listen 10.0.0.1:1"] {
            assert!(matches!(auth(&args(line)).await, Err(ServeError::Exposed(_))), "{line}");
        }
        for line in ["--dev-token secret", "--listen 0.0.0.0:1 --dev-token secret"] {
            assert!(matches!(auth(&args(line)).await, Ok(Auth::Token(_))), "{line}");
        }
        let rejected = auth(&args("--jwks /nowhere --any-issuer --any-audience")).await.unwrap_err();
        assert!(matches!(rejected, ServeError::Keys { .. }) && rejected.is_usage());
    }

    #[test]
    fn a_token_is_quoted_for_the_shell() {
        for (text, expected) in [("abc-1.x", "abc-1.x"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")] {
            assert_eq!(quoted(text), expected);
        }
    }
}
