//! Connections of clients: how many there are, and how long each may keep the service waiting.
//!
//! hyper-util serves them, and its timers limit the headers of HTTP/1 and the pings of HTTP/2. What it has no limit for is
//! here: the number of connections, one whose first request never comes, an HTTP/2 connection whose client answers pings and
//! asks for nothing, and a client that reads nothing, of a socket or of one HTTP/2 stream.

mod authorized;
mod deadlined;
mod full;
mod socket;
pub mod tls;

use std::{
    collections::HashMap,
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, HttpBody},
};
use bytes::Bytes;
use hyper::{
    Request, Version,
    body::{Frame, Incoming, SizeHint},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use nameservice_http::Shutdown;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, Semaphore},
    time::{Instant, interval_at, sleep, timeout},
};
use tower::{Service as _, ServiceExt as _};

pub(crate) use self::socket::tcp;
pub use self::socket::{Listen, Listener};
use self::{
    authorized::Authorized,
    deadlined::Deadlined,
    full::{Period, Reserve, rejection},
    tls::{Authority, Tls},
};

/// How long to wait after a connection could not be accepted, since descriptors are used up.
const PAUSE: Duration = Duration::from_secs(1);
/// The bytes of an answer that are given to an HTTP/2 stream in one piece. A shorter answer is given whole, and not watched.
const PART: usize = 16 * 1024;
/// The bytes that wait in an HTTP/2 stream for its client to take them.
const STREAM_BUFFER: usize = 64 * 1024;

/// The bytes of the headers of a request over HTTP/2. Over HTTP/1 they may be many times as long.
const HEADERS: u32 = 16 * 1024;
/// The bytes that a token may have of them.
pub(crate) const MAX_TOKEN: usize = HEADERS as usize * 3 / 4;

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The name of the listener, in the log and in metrics.
    listener: &'static str,
    /// How many are open at most.
    max: u32,
    /// How many more are open at most while all others are in use: each is answered once, by [`Reserve`].
    reserved: u32,
    /// Each limit of such a connection is this at most, so that one that asks for nothing keeps out few others.
    reserved_for: Duration,
    /// How long the headers of a request may take, from the begin of the connection or the end of the previous answer.
    /// Over HTTP/2, how long a connection may have no request.
    headers: Duration,
    /// How long a client may take to agree on keys, over TLS.
    handshake: Duration,
    /// How long a client may take none of what is written to it.
    write: Duration,
    /// How many requests of one connection are answered at the same time, over HTTP/2.
    streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            listener: "service",
            max: 10_000,
            reserved: 32,
            reserved_for: Duration::from_secs(5),
            headers: Duration::from_secs(75),
            handshake: Duration::from_secs(10),
            write: Duration::from_secs(30),
            streams: 32,
        }
    }
}

impl Limits {
    /// Sets how many connections are open at most.
    pub(crate) const fn with_max(mut self, max: u32) -> Self {
        self.max = max;
        self
    }

    /// Sets how long the headers of a request may take.
    #[cfg(test)]
    pub(crate) const fn with_headers(mut self, headers: Duration) -> Self {
        self.headers = headers;
        self
    }

    /// Returns the limits of a listener for scrapes of metrics, which are few.
    pub(crate) fn of_metrics() -> Self {
        Self { listener: "metrics", max: 64, reserved: 0, headers: Duration::from_secs(30), ..Self::default() }
    }

    /// Returns the limits of connections that are reserved.
    fn of_reserve(self) -> Self {
        let short = |limit: Duration| limit.min(self.reserved_for);
        let (headers, handshake, write) = (short(self.headers), short(self.handshake), short(self.write));
        Self { headers, handshake, write, streams: 1, ..self }
    }

    fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.headers);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(self.streams);
        builder.http2().max_send_buf_size(STREAM_BUFFER).max_header_list_size(HEADERS);
        builder.http2().keep_alive_interval(self.headers).keep_alive_timeout(self.write);
        builder
    }
}

/// Serves a router until the shutdown begins, and then waits for the answers that are being sent. With TLS, every
/// connection is encrypted. Health is answered below this base path and without it, also while all connections are in use.
pub(crate) async fn serve(
    listener: Listener,
    tls: Option<Arc<Tls>>,
    router: Router,
    base: String,
    limits: Limits,
    shutdown: Shutdown,
) {
    let (slots, reserved) =
        (Arc::new(Semaphore::new(limits.max as usize)), Arc::new(Semaphore::new(limits.reserved as usize)));
    let (builder, reserve_limits) = (Arc::new(limits.builder()), limits.of_reserve());
    let (reserve_builder, reserve) =
        (Arc::new(reserve_limits.builder()), Arc::new(Reserve::new(limits.listener, &base)));
    let mut period = Period::default();
    // The series begins before its first connection: an increase is seen from there.
    full::count(limits.listener, 0);
    // Converted once: otherwise the router is converted for every connection, which keeps the result.
    let mut routers = router.into_make_service();
    let mut stopping = pin!(shutdown.begun());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = period.quiet() => {
                period.end(limits.listener);
                continue;
            }
            () = &mut stopping => break,
        };
        let socket = match accepted {
            Ok(socket) => socket,
            Err(error) if is_of_the_connection(&error) => continue,
            Err(error) => {
                tracing::error!(%error, "no connection can be accepted; trying again");
                sleep(PAUSE).await;
                continue;
            }
        };
        let (slot, reserve) = match slots.clone().try_acquire_owned() {
            Ok(slot) => (slot, None),
            Err(_) => {
                period.note(limits.listener, limits.max);
                let Ok(slot) = reserved.clone().try_acquire_owned() else {
                    full::count(limits.listener, 1);
                    // As much as fits the socket: a rejected client delays no one. A client of TLS could not read it.
                    if tls.is_none() {
                        let _ = socket.try_write(&rejection());
                    }
                    continue;
                };
                (slot, Some(reserve.clone()))
            }
        };
        let (limits, builder) = match &reserve {
            None => (limits, &builder),
            Some(_) => (reserve_limits, &reserve_builder),
        };
        let router = match routers.call(()).await {
            Ok(router) => router,
            Err(never) => match never {},
        };
        let stream = Deadlined::new(socket, limits.write, slot);
        let connection =
            Connection { router, builder: builder.clone(), limits, shutdown: shutdown.clone(), reserve, client: None };
        match tls.clone() {
            None => tokio::spawn(connection.serve(stream)),
            Some(tls) => tokio::spawn(connection.serve_encrypted(stream, tls)),
        };
    }
    drop(listener);
    // All of them: every connection has ended, WebSockets too.
    let _ = slots.acquire_many(limits.max).await;
    let _ = reserved.acquire_many(limits.reserved).await;
}

/// What a connection is served with.
struct Connection {
    router: Router,
    builder: Arc<Builder<TokioExecutor>>,
    limits: Limits,
    shutdown: Shutdown,
    /// Answers its one request, if all other connections are in use.
    reserve: Option<Arc<Reserve>>,
    /// Who has signed the certificate of its client, if it may need one.
    client: Option<(Arc<Tls>, Authority)>,
}

impl Connection {
    /// Serves a connection once its client has agreed on keys.
    async fn serve_encrypted<S>(mut self, stream: S, tls: Arc<Tls>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (acceptor, authority) = tls.acceptor();
        self.client = authority.map(|authority| (tls, authority));
        let agreed = tokio::select! {
            agreed = timeout(self.limits.handshake, acceptor.accept(stream)) => agreed,
            () = self.shutdown.begun() => return,
        };
        match agreed {
            Ok(Ok(stream)) => {
                let stream = Authorized::new(stream, self.client.clone(), self.limits.write);
                self.serve(stream).await;
            }
            // Scanners and clients without the certificate that they need: their messages are theirs.
            Ok(Err(error)) => tracing::debug!(%error, "a connection was not encrypted"),
            Err(_) => tracing::debug!("a connection was not encrypted in time"),
        }
    }

    async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { router, builder, limits, shutdown, reserve, client } = self;
        let (requests, has_asked) = (Requests::default(), Arc::new(AtomicBool::new(false)));
        let (is_reserved, asked) = (reserve.is_some(), Notify::new());
        let service = service_fn(|request: Request<Incoming>| {
            has_asked.store(true, Ordering::Relaxed);
            asked.notify_one();
            let running = (request.version() == Version::HTTP_2).then(|| requests.begin());
            let (router, reserve, request) = (router.clone(), reserve.clone(), request.map(Body::new));
            async move {
                let response = match reserve {
                    None => router.oneshot(request).await,
                    Some(reserve) => reserve.answer(router, request).await,
                };
                match running {
                    Some(running) => response.map(|response| response.map(|body| running.watch(body))),
                    None => response,
                }
            }
        });
        let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let mut stopping = pin!(shutdown.begun());
        let mut is_stopping = false;
        let (mut withdrawn_at, mut asked_at) = (None, None);
        // The version of HTTP is not known before the first bytes: until then no limit of HTTP/1 or HTTP/2 holds.
        let mut first = pin!(sleep(limits.headers));
        let mut is_first = true;
        let period = limits.write / 4;
        let mut ticks = interval_at(Instant::now() + period, period);
        loop {
            tokio::select! {
                _ = connection.as_mut() => break,
                () = &mut stopping, if !is_stopping => {
                    is_stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                // The place is for the next one.
                () = asked.notified(), if is_reserved && asked_at.is_none() => {
                    is_stopping = true;
                    asked_at = Some(Instant::now());
                    connection.as_mut().graceful_shutdown();
                }
                () = &mut first, if is_first => {
                    is_first = false;
                    if !has_asked.load(Ordering::Relaxed) {
                        break;
                    }
                }
                _ = ticks.tick() => {
                    let idle = requests.idle();
                    // Whoever needs a certificate needs one that would let it in now.
                    if withdrawn_at.is_none() && client.as_ref().is_some_and(|(tls, by)| tls.authority() != Some(*by)) {
                        withdrawn_at = Some(Instant::now());
                        is_stopping = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    if withdrawn_at.is_some_and(|at| at.elapsed() > limits.write) {
                        break;
                    }
                    // Whatever its client does, and however long the answer takes.
                    if asked_at.is_some_and(|at: Instant| at.elapsed() > limits.headers + limits.write) {
                        break;
                    }
                    // A client that does not close after GOAWAY is cut off.
                    if requests.longest_stall() > limits.write || idle > limits.headers + limits.write {
                        break;
                    }
                    if idle > limits.headers && !is_stopping {
                        is_stopping = true;
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    }
}

/// Whether accepting failed since the client has gone.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// The requests of an HTTP/2 connection.
#[derive(Clone, Default)]
struct Requests(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    /// How many are being answered.
    running: usize,
    /// When the last of them ended; `None` before the first.
    idle_since: Option<Instant>,
    next: u64,
    /// The answers that are waiting for their client to take what they have given, and since when.
    ///
    /// The socket alone does not show it: a client can answer pings, and take nothing of a stream.
    waiting: HashMap<u64, Instant>,
}

impl Requests {
    fn begin(&self) -> Running {
        self.counts().running += 1;
        Running(self.clone())
    }

    /// How long no request has been running; zero if one is, or if there was none.
    fn idle(&self) -> Duration {
        let counts = self.counts();
        counts.idle_since.filter(|_| counts.running == 0).map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// How long the answer that waits longest has been waiting.
    fn longest_stall(&self) -> Duration {
        self.counts().waiting.values().min().map_or(Duration::ZERO, Instant::elapsed)
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being answered: until its answer was given to the connection, or the client has ended it.
struct Running(Requests);

impl Running {
    fn watch(self, body: Body) -> Body {
        if HttpBody::size_hint(&body).upper().is_some_and(|bytes| bytes <= PART as u64) {
            return body;
        }
        let mut counts = self.0.counts();
        let id = counts.next;
        counts.next += 1;
        drop(counts);
        Body::new(Watched { body, left: Bytes::new(), id, running: self })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut counts = self.0.counts();
        counts.running -= 1;
        counts.idle_since = Some(Instant::now());
    }
}

/// A body that gives small parts. It waits from giving one until it is asked for the next, which is when the client has
/// room. One that is asked and has nothing does not wait: its client is healthy.
struct Watched {
    body: Body,
    /// What is left of the last chunk.
    left: Bytes,
    id: u64,
    running: Running,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.running.0.counts().waiting.remove(&self.id);
        if self.left.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.left = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let bytes = self.left.len().min(PART);
        let part = self.left.split_to(bytes);
        self.running.0.counts().waiting.insert(self.id, Instant::now());
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    // The end is not announced with the last part: whether the client takes that is seen from the question for the next.

    fn size_hint(&self) -> SizeHint {
        let (left, body) = (self.left.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower().saturating_add(left));
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(left));
        }
        hint
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.running.0.counts().waiting.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
