//! The whole service on one machine.

mod args;
pub mod error;
mod front;
mod greeting;
#[cfg(feature = "replica")]
mod replica;
mod sign_in;

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use axum::middleware;
use console_get::SignIn;
use nameservice::Place;
use nameservice_embedded::OpenError;
use nameservice_http::{App, Auth, CorsLayer, Required, Shutdown, StaticToken, Verifier, cors, log_requests, service};
use nameservice_model::ShownUrl;
use tokio::{net::TcpListener, task::JoinHandle};

use self::front::{Front, receive};
#[cfg(feature = "files")]
use crate::files::Stored;
#[cfg(feature = "migration")]
use crate::older::Older;
use crate::{
    archives::with_archive,
    backups::Backups,
    base_path::{BasePath, below},
    connections::{self, Listen, Listener, tls::Tls},
    consumer::Beside,
    failure::Failure,
    health::{Attention, Damage},
    keys,
    nudge::Nudge,
    options::{Missing, TargetArgs},
    output,
    prometheus::{self, Sampled},
    routes,
    scrubs::{ScrubAge, Scrubs},
    supervisor::Supervisor,
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

/// A running service. It stops on request, or with the runtime.
#[derive(Debug)]
pub struct Service {
    listen: Listen,
    is_tls: bool,
    base: Option<BasePath>,
    shutdown: Shutdown,
    server: JoinHandle<()>,
}

/// Binds an address, whose port may be 0. No request is answered before [`start`].
pub async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    connections::tcp(address).map_err(|source| not_listening(address.into(), source))
}

fn not_listening(listen: Listen, source: io::Error) -> ServeError {
    match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse(listen),
        _ => ServeError::Listen { listen, source },
    }
}

/// Starts a service. A consumer of the same table is nudged after every write.
pub fn start(listener: TcpListener, app: App, nudge: Option<Nudge>) -> Result<Service, ServeError> {
    start_with(listener.into(), app, Settings { nudge, ..Settings::default() })
}

/// Starts the service of a replica, over the replica's records.
pub fn start_replica(listener: TcpListener, app: App, upstream: Upstream) -> Result<Service, ServeError> {
    start_with(listener.into(), app, Settings { upstream: Some(upstream), ..Settings::default() })
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
    /// The certificate and key to encrypt connections with.
    tls: Option<Arc<Tls>>,
    /// What it is a replica of.
    upstream: Option<Upstream>,
    /// Its backups.
    backups: Option<Backups>,
    /// Its scrubs.
    scrubs: Option<ScrubAge>,
    /// The damage that they have noticed.
    damage: Damage,
    /// Whether to serve no metrics.
    unmeasured: bool,
    /// Whether to make a span for each request.
    traced: bool,
    /// Whether a consumer of the table's stream continues the traces of writes.
    is_continued: bool,
    /// Where users of the console sign in.
    sign_in: Option<SignIn>,
}

impl Settings {
    /// Returns the settings that the command line names.
    fn of(args: &ServeArgs, cors: Option<CorsLayer>, tls: Option<Arc<Tls>>, sign_in: Option<SignIn>) -> Self {
        Self {
            cors,
            origins: args.cors_origin.clone(),
            limits: connections::Limits::default().with_max(args.max_connections),
            base_path: args.base_path.clone(),
            tls,
            unmeasured: args.no_metrics,
            traced: args.is_traced(),
            sign_in,
            ..Self::default()
        }
    }
}

fn start_with(listener: Listener, app: App, settings: Settings) -> Result<Service, ServeError> {
    let Settings {
        nudge,
        cors,
        origins,
        limits,
        base_path,
        tls,
        upstream,
        backups,
        scrubs,
        damage,
        unmeasured,
        traced,
        is_continued,
        sign_in,
    } = settings;
    let listen = listener.listens_at().map_err(ServeError::Listener)?;
    let shutdown = app.shutdown();
    let front = Front {
        // An open service must not be open to web pages by DNS rebinding: their requests carry another name as their host.
        is_local: app.is_open() && listen.is_local(),
        // A caller who needs a token has to send it: pages of other sites have none.
        trusted: app.is_open().then(|| origins.into()),
        nudge,
        attention: Arc::new(Attention { upstream: upstream.clone(), damage, verifier: app.verifier().cloned() }),
        shutdown: shutdown.clone(),
    };
    // On loopback, for callers who may read; for others there is a separate listener.
    let sampled = || Sampled::new(app.clone(), upstream.clone(), backups.clone(), scrubs.clone()).with_tls(tls.clone());
    let metrics = (listen.is_local() && !unmeasured).then(|| prometheus::guarded(sampled()));
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
    let (base, is_tls) = (base_path.clone(), tls.is_some());
    if let Some(base_path) = base_path {
        router = below(base_path, router);
    }
    let below = base.as_ref().map_or("", BasePath::as_str).to_owned();
    let server = tokio::spawn(connections::serve(listener, tls, router, below, limits, shutdown.clone()));
    Ok(Service { listen, is_tls, base, shutdown, server })
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

impl Service {
    /// Returns where it listens.
    pub fn listen(&self) -> &Listen {
        &self.listen
    }

    /// Returns the URL of the service for clients on this machine, without a slash at the end. That of a Unix socket has no base
    /// path.
    pub fn url(&self) -> String {
        let base = self.base.as_ref().filter(|_| !self.listen.is_unix());
        format!("{}{}", self.listen.url(self.is_tls), base.map_or("", BasePath::as_str))
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
    let sign_in = args.sign_in.at(args.issuer.as_deref())?;
    let tls = args.tls.open().map_err(ServeError::Tls)?.map(Arc::new);
    let stop = signal()?;
    if args.socket_mode.is_some() && !args.listen.is_unix() {
        return Err(Failure::Usage("--socket-mode is for --listen unix:PATH".into()));
    }
    // Nothing is created for a service that cannot listen.
    let bound = Listener::bind(&args.listen, args.socket_mode);
    let listener = bound.map_err(|source| not_listening(args.listen.clone(), source))?;
    let metrics = match args.metrics {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    #[cfg(feature = "replica")]
    if let Some(url) = &args.upstream {
        let settings = Settings::of(&args, cors, tls, sign_in);
        return replica::run(&args, url, place, &target, (listener, metrics), (auth, settings), stop).await;
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
            if !args.memory && args.feed_data.is_none() {
                // Started in another directory, the service would have another feed.
                let shown = std::path::absolute(&feed).unwrap_or_else(|_| feed.clone());
                tracing::warn!("the change feed is kept in {}: name it with --feed-data", shown.display());
            }
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
    reload_on_hangup(&auth, tls.as_ref())?;
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
    let app = if args.fluree { app.beside_fluree() } else { app };
    let app = with_archive(app, archive);
    let damage = Damage::default();
    let backups = args.backups.start(&opened, &damage)?;
    let scrubs = match opened.in_directory() {
        Some((names, _)) => args.scrubs.start(names, &damage)?,
        None => None,
    };
    let scrub_age = scrubs.as_ref().map(Scrubs::age);
    let sampled = Sampled::new(app.clone(), None, backups.clone(), scrub_age.clone()).with_tls(tls.clone());
    let metrics = metrics.map(|listener| tokio::spawn(prometheus::serve(listener, sampled)));
    let (nudge, is_continued) = (beside.nudge(), beside.continues_traces());
    let settings = Settings {
        nudge,
        is_continued,
        backups: backups.clone(),
        scrubs: scrub_age,
        damage,
        ..Settings::of(&args, cors, tls, sign_in)
    };
    let service = start_with(listener, app, settings)?;
    // A service in the background may no longer have a stdout.
    let _ = output::print(&greeting::greeting(&args, &service, &opened));
    let supervisor = Supervisor::ready();

    let ended = until(stop, opened.ended()).await;
    supervisor.stopping();
    if let Some(backups) = &backups {
        backups.stop();
    }
    // In this order, so that every write that was answered is in the feed.
    service.stop_within(shutdown_timeout(&ended)).await;
    if let Some(metrics) = metrics {
        metrics.abort();
    }
    beside.stop().await;
    if let Some(backups) = backups {
        backups.ended().await;
    }
    // Ending and dropping wait for other threads, so they must not run on an async worker thread.
    let end = move || {
        scrubs.into_iter().for_each(Scrubs::end);
        drop(opened);
    };
    let _ = tokio::task::spawn_blocking(end).await;
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
        None if args.insecure || args.listen.is_local() || args.tls.client_ca.is_some() => Ok(Auth::Open),
        None => Err(ServeError::Exposed(args.listen.clone())),
    }
}

/// Reads the keys of callers' tokens and the files of TLS again on SIGHUP. A supervisor reloads a service without them, too, which
/// continues; otherwise one without them ends with its terminal.
#[cfg_attr(not(unix), expect(unused_variables, clippy::unnecessary_wraps))]
fn reload_on_hangup(auth: &Auth, tls: Option<&Arc<Tls>>) -> Result<(), ServeError> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let verifier = match auth {
            Auth::Verified(verifier) => Some(verifier.clone()),
            _ if tls.is_some() || Supervisor::is_there() => None,
            _ => return Ok(()),
        };
        let tls = tls.cloned();
        let mut hangup = signal(SignalKind::hangup()).map_err(ServeError::Signals)?;
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                if let Some(tls) = &tls {
                    tls.reload();
                }
                if let Some(verifier) = &verifier {
                    verifier.reload().await;
                }
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn args(line: &str) -> ServeArgs {
        let cli = Cli::parse_from(["nameservice", "serve"].into_iter().chain(line.split_whitespace()));
        match cli.command {
            Command::Serve(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn other_machines_are_let_in_only_with_keys_a_token_or_on_purpose() {
        for line in
            ["", "--listen [::1]:0", "--listen 127.0.0.2:1", "--listen 0.0.0.0:1 --insecure", "--listen unix:/s"]
        {
            assert!(matches!(auth(&args(line)).await, Ok(Auth::Open)), "{line}");
        }
        let certified = args("--listen 0.0.0.0:1 --tls-cert a --tls-key b --client-ca c");
        assert!(matches!(auth(&certified).await, Ok(Auth::Open)));
        for line in ["", " --tls-cert a --tls-key b"].iter().flat_map(|tls| {
            ["--listen 0.0.0.0:1", "--listen [::]:1", "--listen 10.0.0.1:1"].map(|listen| format!("{listen}{tls}"))
        }) {
            assert!(matches!(auth(&args(&line)).await, Err(ServeError::Exposed(_))), "{line}");
        }
        for line in ["--dev-token secret", "--listen 0.0.0.0:1 --dev-token secret"] {
            assert!(matches!(auth(&args(line)).await, Ok(Auth::Token(_))), "{line}");
        }
        let rejected = auth(&args("--jwks /nowhere --any-issuer --any-audience")).await.unwrap_err();
        assert!(matches!(rejected, ServeError::Keys { .. }) && rejected.is_usage());
    }
}
