//! The whole service on one machine.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{
    extract::{Request, State},
    http::{Method, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
    serve::ListenerExt as _,
};
use nameservice_http::{
    App, Auth, CorsLayer, InvalidKeys, Problem, Required, Shutdown, Verifier, cors, log_requests, service,
};
use nameservice_model::Error as StoreError;
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{
    args::{ServeArgs, TargetArgs},
    consumer::{self, Nudge, Pace, Running},
    failure::Failure,
    output, routes,
    target::{Missing, Opened, Place, Table},
};

/// Where the data is unless the command line says otherwise.
pub(crate) const DEFAULT_DATA: &str = ".nameservice";
/// How long running requests may take to finish once the service is told to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long reads may: one that waits for changes would wait for nothing.
const READ_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
const SAMPLE_ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

/// Why the service did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Somebody listens there already.
    #[error("{0} is in use: choose another address with --listen, or stop what listens there")]
    InUse(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Other machines could reach a service that asks nobody who they are.
    #[error(
        "{0} can be reached from other machines: give the keys of callers' tokens with --jwks FILE, or let everybody \
         do everything with --insecure"
    )]
    Exposed(SocketAddr),
    /// The key set is not there or cannot be used.
    #[error("cannot use the keys in {}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: InvalidKeys,
    },
    /// The system does not let this process handle signals.
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
}

impl ServeError {
    /// Whether another command line would help, and nothing else.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, Self::Exposed(_) | Self::Keys { .. })
    }
}

/// A service that runs. It stops when told to, or with the runtime.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    shutdown: Shutdown,
    server: JoinHandle<io::Result<()>>,
}

/// Takes an address to listen on, whose port may be 0. Nobody is answered before [`start`].
pub async fn bind(listen: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(listen).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse(listen),
        _ => ServeError::Listen { address: listen, source },
    })
}

/// Starts a service. A consumer of the same table is nudged after every write.
pub fn start(listener: TcpListener, app: App, nudge: Option<Nudge>) -> Result<Service, ServeError> {
    start_for(listener, app, nudge, None)
}

/// Starts a service for web pages of other origins, too.
fn start_for(
    listener: TcpListener,
    app: App,
    nudge: Option<Nudge>,
    cors: Option<CorsLayer>,
) -> Result<Service, ServeError> {
    let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
    let address = listener.local_addr().map_err(|source| ServeError::Listen { address: unspecified, source })?;
    // Answers are small: waiting to fill packets would only delay them.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    let shutdown = app.shutdown();
    let front = Front {
        // Open to everybody on this machine, not to a web page whose name was made to point here: its requests carry that
        // name as their host.
        is_local: app.is_open() && address.ip().is_loopback(),
        nudge,
        shutdown: shutdown.clone(),
    };
    let mut router = service(routes::router(), app).layer(middleware::from_fn_with_state(front, receive));
    if let Some(cors) = cors {
        router = router.layer(cors);
    }
    router = log_requests(router);
    let told_to_stop = shutdown.clone();
    let server = tokio::spawn(async move {
        // Made once: a router as such is made anew for every connection, and kept by it.
        let router = router.into_make_service();
        axum::serve(listener, router).with_graceful_shutdown(async move { told_to_stop.begun().await }).await
    });
    Ok(Service { address, shutdown, server })
}

/// What stands before the service on one machine. It is one layer: each costs every request several allocations.
#[derive(Clone)]
struct Front {
    /// Only requests for a name of this machine are answered.
    is_local: bool,
    nudge: Option<Nudge>,
    shutdown: Shutdown,
}

async fn receive(State(front): State<Front>, request: Request, next: Next) -> Response {
    if front.is_local
        && let Some(host) = request.headers().get(header::HOST).and_then(|host| host.to_str().ok())
        && !is_local(host)
    {
        return Problem::misdirected(host).into_response();
    }
    if request.method() == Method::GET {
        return until_the_service_stops(&front.shutdown, next.run(request)).await;
    }
    let is_write = !request.method().is_safe();
    let response = next.run(request).await;
    // Also after a refusal, which may be the answer to an attempt that was applied.
    if let Some(nudge) = front.nudge.filter(|_| is_write) {
        nudge.give();
    }
    response
}

/// A reader that waits for changes would keep the service from stopping, and wait for nothing. (Streams end by
/// themselves.)
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
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it is, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops listening, and waits up to ten seconds for running requests to finish.
    pub async fn stop(self) {
        self.shutdown.begin();
        let mut server = self.server;
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, &mut server).await.is_err() {
            tracing::warn!("requests were still running after {SHUTDOWN_TIMEOUT:?}, and were cut off");
            server.abort();
        }
    }
}

/// `nameservice serve`
pub(crate) async fn run(args: ServeArgs, target: TargetArgs) -> Result<(), Failure> {
    if target.url.is_some() {
        return Err(Failure::Usage("--url is for the other commands: serve listens on --listen".into()));
    }
    let place = match (target.place()?, args.memory) {
        (Some(_), true) => {
            return Err(Failure::Usage("give one of --memory, --data, --endpoint-url and --aws".into()));
        }
        (Some(place), false) => place,
        (None, true) => Place::Memory,
        (None, false) => Place::Data(Path::new(".").join(DEFAULT_DATA)),
    };
    // Everything that the command line can get wrong comes before anything is opened.
    let auth = auth(&args)?;
    let origins = (!args.cors_origin.is_empty()).then(|| cors(&args.cors_origin));
    let cors = origins.transpose().map_err(|error| Failure::Usage(error.to_string()))?;
    let stop = signal()?;
    // Nothing is created for a service that cannot listen.
    let listener = bind(args.listen).await?;
    let opened = Opened::open(place, target.table.as_deref(), Missing::Create, Some(args.feed_retention)).await?;
    let consuming = match &opened {
        Opened::Embedded(_) => None,
        Opened::Table(table) => {
            let report = if *table.place() == Place::Aws { table.check().await? } else { table.ensure().await? };
            for lack in &report.lacks {
                output::note(&format!("the table lacks: {lack}"));
            }
            consuming(&args, table)
        }
    };
    let service = start_for(listener, opened.app(auth), consuming.as_ref().map(Running::nudge), cors)?;
    // Whoever started the service in the background may have closed its stdout.
    let _ = output::print(&greeting(&service, &opened));

    stop.await;
    output::note("stopping");
    // In this order: what was answered is in the feed.
    service.stop().await;
    if let Some(consuming) = consuming {
        consuming.stop().await;
    }
    // Waits for the writer of the log, which must not be done on a thread that serves.
    let _ = tokio::task::spawn_blocking(move || drop(opened)).await;
    Ok(())
}

/// Starts the consumer of the table's stream, where this process shall be it. The embedded backend needs none.
fn consuming(args: &ServeArgs, table: &Table) -> Option<Running> {
    let pace = match table.place() {
        _ if args.no_consumer => return None,
        Place::Aws if args.consumer => Pace::AWS,
        Place::Aws => return None,
        _ => Pace::NEAR,
    };
    Some(consumer::start(table.source.clone(), table.store.clone(), table.feed.clone(), pace))
}

fn auth(args: &ServeArgs) -> Result<Auth, ServeError> {
    match &args.jwks {
        Some(path) => {
            // The command line requires one of each.
            let required = |exactly: &Option<String>| exactly.clone().map_or(Required::Any, Required::Exactly);
            let verifier = Verifier::from_file(path, required(&args.issuer), required(&args.audience));
            Ok(Auth::Verified(verifier.map_err(|source| ServeError::Keys { path: path.clone(), source })?))
        }
        None if args.insecure || args.listen.ip().is_loopback() => Ok(Auth::Open),
        None => Err(ServeError::Exposed(args.listen)),
    }
}

/// Completes when the process is told to stop: Ctrl-C, or SIGTERM. A second Ctrl-C ends it at once.
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
                output::note("stopped at once");
                std::process::exit(130);
            });
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// Where it listens, and commands to paste.
fn greeting(service: &Service, opened: &Opened) -> String {
    // As the program was called: it need not be on the path.
    let program = std::env::args().next().unwrap_or_else(|| "nameservice".into());
    let default = SocketAddr::from(([127, 0, 0, 1], 8080));
    let url = if service.address() == default { String::new() } else { format!(" --url {}", service.url()) };
    format!(
        "Listening on {}, {}. Try:\n\n  {program} create mydb{url}\n  {program} push head mydb {SAMPLE_ID} 1{url}\n  \
         {program} show mydb{url}\n  {program} watch{url}\n\nThe API is described at {}/v1/docs. Ctrl-C stops the service.",
        service.url(),
        opened.describe(),
        service.url(),
    )
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

    fn args(line: &str) -> ServeArgs {
        let cli = Cli::parse_from(["nameservice", "serve"].into_iter().chain(line.split_whitespace()));
        match cli.command {
            Command::Serve(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn other_machines_are_let_in_only_with_keys_or_on_purpose() {
        for line in ["", "--listen [::1]:0", "--listen 127.0.0.2:1", "--listen 0.0.0.0:1 --insecure"] {
            assert!(matches!(auth(&args(line)), Ok(Auth::Open)), "{line}");
        }
        for line in ["--listen 0.0.0.0:1", "--listen [::]:1", "--listen 10.0.0.1:1"] {
            assert!(matches!(auth(&args(line)), Err(ServeError::Exposed(_))), "{line}");
        }
        let refused = auth(&args("--jwks /nowhere --any-issuer --any-audience")).unwrap_err();
        assert!(matches!(refused, ServeError::Keys { .. }) && refused.is_usage());
    }
}
