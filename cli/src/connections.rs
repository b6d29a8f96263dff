//! Connections of clients: how many there are, and how long each may keep the service waiting.
//!
//! hyper-util serves them, and its timers limit the headers of HTTP/1 and the pings of HTTP/2. What it has no limit for is
//! here: the number of connections, one whose first request never comes, an HTTP/2 connection whose client answers pings and
//! asks for nothing, and a client that reads nothing, of a socket or of one HTTP/2 stream.

mod deadlined;
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
    sync::Semaphore,
    time::{Instant, interval_at, sleep, timeout},
};
use tower::{Service as _, ServiceExt as _};

pub(crate) use self::socket::tcp;
pub use self::socket::{Listen, Listener};
use self::{deadlined::Deadlined, tls::Tls};

/// What a connection that exceeds the limit is answered.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
    content-type: application/problem+json\r\ncontent-length: 186\r\n\r\n\
    {\"type\":\"https://nameservice.dev/problems/unavailable\",\"title\":\"The service is temporarily unavailable\",\
    \"status\":503,\"detail\":\"all connections are in use (--max-connections): try again\"}";
/// How long to wait after a connection could not be accepted, since descriptors are used up.
const PAUSE: Duration = Duration::from_secs(1);
/// The bytes of an answer that are given to an HTTP/2 stream in one piece. A shorter answer is given whole, and not watched.
const PART: usize = 16 * 1024;
/// The bytes that wait in an HTTP/2 stream for its client to take them.
const STREAM_BUFFER: usize = 64 * 1024;

/// The limits of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many are open at most.
    max: u32,
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
            max: 10_000,
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
}

/// Serves a router until the shutdown begins, and then waits for the answers that are being sent. With TLS, every
/// connection is encrypted.
pub(crate) async fn serve(
    listener: Listener,
    tls: Option<Arc<Tls>>,
    router: Router,
    limits: Limits,
    shutdown: Shutdown,
) {
    let slots = Arc::new(Semaphore::new(limits.max as usize));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.headers);
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(limits.streams);
    builder.http2().max_send_buf_size(STREAM_BUFFER);
    builder.http2().keep_alive_interval(limits.headers).keep_alive_timeout(limits.write);
    let builder = Arc::new(builder);
    // Converted once: otherwise the router is converted for every connection, which keeps the result.
    let mut routers = router.into_make_service();
    let mut stopping = pin!(shutdown.begun());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
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
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            // As much as fits the socket: a rejected client delays no one. A client of TLS could not read it.
            if tls.is_none() {
                let _ = socket.try_write(FULL);
            }
            continue;
        };
        let router = match routers.call(()).await {
            Ok(router) => router,
            Err(never) => match never {},
        };
        let stream = Deadlined::new(socket, limits.write, slot);
        let connection = Connection { router, builder: builder.clone(), limits, shutdown: shutdown.clone() };
        match tls.clone() {
            None => tokio::spawn(connection.serve(stream)),
            Some(tls) => tokio::spawn(connection.serve_encrypted(stream, tls)),
        };
    }
    drop(listener);
    // All of them: every connection has ended, WebSockets too.
    let _ = slots.acquire_many(limits.max).await;
}

/// What a connection is served with.
struct Connection {
    router: Router,
    builder: Arc<Builder<TokioExecutor>>,
    limits: Limits,
    shutdown: Shutdown,
}

impl Connection {
    /// Serves a connection once its client has agreed on keys.
    async fn serve_encrypted<S>(self, stream: S, tls: Arc<Tls>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let agreed = tokio::select! {
            agreed = timeout(self.limits.handshake, tls.acceptor().accept(stream)) => agreed,
            () = self.shutdown.begun() => return,
        };
        match agreed {
            Ok(Ok(stream)) => self.serve(stream).await,
            // Scanners and clients without the certificate that they need: their messages are theirs.
            Ok(Err(error)) => tracing::debug!(%error, "a connection was not encrypted"),
            Err(_) => tracing::debug!("a connection was not encrypted in time"),
        }
    }

    async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { router, builder, limits, shutdown } = self;
        let (requests, has_asked) = (Requests::default(), Arc::new(AtomicBool::new(false)));
        let service = service_fn(|request: Request<Incoming>| {
            has_asked.store(true, Ordering::Relaxed);
            let running = (request.version() == Version::HTTP_2).then(|| requests.begin());
            let answered = router.clone().oneshot(request.map(Body::new));
            async move {
                let response = answered.await;
                match running {
                    Some(running) => response.map(|response| response.map(|body| running.watch(body))),
                    None => response,
                }
            }
        });
        let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
        let mut stopping = pin!(shutdown.begun());
        let mut is_stopping = false;
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
                () = &mut first, if is_first => {
                    is_first = false;
                    if !has_asked.load(Ordering::Relaxed) {
                        break;
                    }
                }
                _ = ticks.tick() => {
                    let idle = requests.idle();
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
mod tests {
    use std::{
        convert::Infallible,
        net::SocketAddr,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use axum::{http::StatusCode, response::Response, routing::get};
    use futures_util::stream;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpSocket, TcpStream},
    };

    use super::{socket::SEND_BUFFER, *};

    const LONG: Duration = Duration::from_secs(20);

    /// Counts the bodies that exist.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn router() -> (Router, Arc<AtomicUsize>) {
        let bodies = Arc::new(AtomicUsize::new(0));
        let counted = bodies.clone();
        let endless = async move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let body = stream::unfold(Counted(counted.clone()), async |counted| {
                Some((Ok::<_, Infallible>(vec![0_u8; 64 * 1024]), counted))
            });
            Response::new(Body::from_stream(body))
        };
        let router = Router::new()
            .route("/", get(async || StatusCode::OK))
            .route("/endless", get(endless))
            .route("/large", get(async || vec![0_u8; 1024 * 1024]))
            .route("/socket", get(upgrade))
            .route("/late", get(async || sleep(Duration::from_millis(800)).await))
            .route("/slow", get(async || Response::new(Body::from_stream(stream::unfold(0, slowly)))));
        (router, bodies)
    }

    async fn start(limits: Limits) -> (SocketAddr, Arc<AtomicUsize>) {
        let (router, bodies) = router();
        let listener = tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener.into(), None, router, limits, Shutdown::default()));
        (address, bodies)
    }

    /// Keeps the connection, as a WebSocket does, until the client closes it.
    async fn upgrade(request: Request<Body>) -> Response {
        tokio::spawn(async {
            let mut socket = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
            let _ = socket.read_to_end(&mut Vec::new()).await;
        });
        let upgrade = [("connection", "upgrade"), ("upgrade", "test")];
        axum::response::IntoResponse::into_response((StatusCode::SWITCHING_PROTOCOLS, upgrade))
    }

    /// Gives a byte now and then.
    async fn slowly(given: u32) -> Option<(Result<&'static str, Infallible>, u32)> {
        sleep(Duration::from_millis(100)).await;
        (given < 8).then_some((Ok("."), given + 1))
    }

    async fn until(is_so: impl Fn() -> bool) {
        let waiting = async {
            while !is_so() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LONG, waiting).await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off_though_its_answer_has_no_end() {
        let limits = Limits { write: Duration::from_millis(200), ..Limits::default() };
        let (address, bodies) = start(limits).await;
        let mut stalled = TcpStream::connect(address).await.unwrap();
        stalled.write_all(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        until(|| bodies.load(Ordering::SeqCst) == 1).await;
        until(|| bodies.load(Ordering::SeqCst) == 0).await;
    }

    /// Asks over HTTP/2 with a client that reads the connection, and never gives a stream more room.
    async fn ask_without_room(address: SocketAddr, path: &str) -> TcpStream {
        let mut headers = vec![0x82, 0x86, 0x01, 1, b'a', 0x04, u8::try_from(path.len()).unwrap()];
        headers.extend(path.as_bytes());
        let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
        sent.extend([0, 0, u8::try_from(headers.len()).unwrap(), 1, 0x05, 0, 0, 0, 1]);
        sent.extend(headers);
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(&sent).await.unwrap();
        client
    }

    #[tokio::test]
    async fn an_http2_stream_whose_client_gives_no_room_ends_the_connection() {
        let limits = Limits { write: Duration::from_millis(200), ..Limits::default() };
        let (address, bodies) = start(limits).await;
        for path in ["/endless", "/large"] {
            let mut stalled = ask_without_room(address, path).await;
            let mut answer = Vec::new();
            let _ = timeout(LONG, stalled.read_to_end(&mut answer)).await.unwrap();
            assert!(answer.len() > 65_535, "the first window of {path} is used: {}", answer.len());
        }
        until(|| bodies.load(Ordering::SeqCst) == 0).await;
    }

    /// Reads frames, and answers pings, until the connection or stream 1 ends. Returns their types, in order.
    async fn frames(client: &mut TcpStream, only_stream: bool) -> Vec<u8> {
        const DATA: u8 = 0;
        const HEADERS: u8 = 1;
        const PING: u8 = 6;
        let mut types = Vec::new();
        loop {
            let mut head = [0; 9];
            if client.read_exact(&mut head).await.is_err() {
                return types;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let (kind, ends) = (head[3], head[4] & 1 == 1);
            types.push(kind);
            let mut payload = vec![0; length as usize];
            client.read_exact(&mut payload).await.unwrap();
            if kind == PING && !ends {
                head[4] = 1;
                let _ = client.write_all(&[&head[..], &payload].concat()).await;
            }
            if only_stream && ends && [DATA, HEADERS].contains(&kind) {
                return types;
            }
        }
    }

    fn short() -> Limits {
        Limits { headers: Duration::from_millis(100), write: Duration::from_millis(200), ..Limits::default() }
    }

    #[tokio::test]
    async fn an_http2_connection_without_requests_ends_though_its_client_answers_pings() {
        const GOAWAY: u8 = 7;
        let (address, _) = start(short()).await;
        for path in ["/", "/slow"] {
            let mut client = ask_without_room(address, path).await;
            let frames = timeout(LONG, frames(&mut client, false)).await.unwrap();
            assert!(frames.contains(&1) && frames.contains(&GOAWAY), "{path}: {frames:?}");
        }
    }

    #[tokio::test]
    async fn an_http2_connection_is_not_idle_while_a_request_is_being_answered() {
        let (address, _) = start(short()).await;
        for (path, last) in [("/late", 1), ("/slow", 0)] {
            let mut client = ask_without_room(address, path).await;
            let frames = timeout(LONG, frames(&mut client, true)).await.unwrap();
            assert_eq!(frames.last(), Some(&last), "the answer of {path} is whole: {frames:?}");
        }
    }

    #[tokio::test]
    async fn the_system_keeps_little_of_what_a_slow_client_has_not_read() {
        let listener = tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        let buffer = TcpSocket::from_std_stream(accepted.into_std().unwrap()).send_buffer_size().unwrap();
        // Linux counts its own overhead, too: twice the size.
        assert!((1..=2 * SEND_BUFFER).contains(&buffer), "{buffer}");
    }

    #[tokio::test]
    async fn a_connection_without_a_complete_first_request_ends() {
        let (address, _) = start(Limits { headers: Duration::from_millis(100), ..Limits::default() }).await;
        for begin in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HT"] {
            let mut silent = TcpStream::connect(address).await.unwrap();
            silent.write_all(begin).await.unwrap();
            let mut answer = Vec::new();
            let _ = timeout(LONG, silent.read_to_end(&mut answer)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn headers_that_do_not_arrive_end_the_connection() {
        let (address, _) = start(Limits { headers: Duration::from_millis(100), ..Limits::default() }).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
        let mut answer = Vec::new();
        timeout(LONG, slow.read_to_end(&mut answer)).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn more_connections_than_allowed_are_answered_and_closed_and_places_become_free() {
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], "200"),
            (b"GET /socket HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n", "101"),
        ] {
            let (address, _) = start(Limits::default().with_max(1)).await;
            let mut first = TcpStream::connect(address).await.unwrap();
            first.write_all(request).await.unwrap();
            let mut part = [0; 12];
            first.read_exact(&mut part).await.unwrap();
            assert_eq!(str::from_utf8(&part).unwrap(), format!("HTTP/1.1 {status}"));
            // A socket is passed on after its answer.
            sleep(Duration::from_millis(100)).await;
            let mut second = TcpStream::connect(address).await.unwrap();
            let mut answer = String::new();
            timeout(LONG, second.read_to_string(&mut answer)).await.unwrap().unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(
                head.starts_with("HTTP/1.1 503") && head.contains(&format!("content-length: {}", body.len())),
                "{answer}"
            );
            assert!(serde_json::from_str::<serde_json::Value>(body).is_ok(), "{body}");
            drop(first);
            let again = async {
                loop {
                    let mut next = TcpStream::connect(address).await.unwrap();
                    if next.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.is_ok()
                        && next.read_exact(&mut part).await.is_ok()
                        && &part == b"HTTP/1.1 200"
                    {
                        break;
                    }
                }
            };
            timeout(LONG, again).await.unwrap();
        }
    }

    /// Serves an endless answer over TLS. Returns its address, its bodies, and what a client needs.
    async fn start_encrypted(limits: Limits) -> (SocketAddr, Arc<AtomicUsize>, Arc<rustls::RootCertStore>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (cert, key) = (directory.path().join("cert"), directory.path().join("key"));
        std::fs::write(&cert, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let files = tls::TlsArgs { tls_cert: Some(cert), tls_key: Some(key), client_ca: None };
        let tls = Arc::new(files.open().unwrap().unwrap());
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let (router, bodies) = router();
        let listener = tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener.into(), Some(tls), router, limits, Shutdown::default()));
        (address, bodies, Arc::new(roots))
    }

    async fn connect(
        address: SocketAddr,
        roots: &Arc<rustls::RootCertStore>,
        protocol: &[u8],
    ) -> tokio_rustls::client::TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut config = config.unwrap().with_root_certificates(roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let stream = TcpStream::connect(address).await.unwrap();
        connector.connect("localhost".try_into().unwrap(), stream).await.unwrap()
    }

    #[tokio::test]
    async fn over_tls_a_client_chooses_its_version_of_http_and_one_that_does_not_read_is_cut_off() {
        let limits = Limits { write: Duration::from_millis(200), ..Limits::default() };
        let (address, bodies, roots) = start_encrypted(limits).await;
        let http2 = connect(address, &roots, b"h2").await;
        assert_eq!(http2.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut stalled = connect(address, &roots, b"http/1.1").await;
        stalled.write_all(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        until(|| bodies.load(Ordering::SeqCst) == 1).await;
        until(|| bodies.load(Ordering::SeqCst) == 0).await;
    }

    #[tokio::test]
    async fn a_client_that_agrees_on_no_keys_is_cut_off() {
        let limits = Limits { handshake: Duration::from_millis(100), ..Limits::default() };
        let (address, _, roots) = start_encrypted(limits.with_max(1)).await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        let _ = timeout(LONG, silent.read_to_end(&mut Vec::new())).await.unwrap();
        // Its place is free again.
        let again = async {
            let mut next = connect(address, &roots, b"http/1.1").await;
            next.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
            let mut part = [0; 12];
            next.read_exact(&mut part).await.unwrap();
            assert_eq!(&part, b"HTTP/1.1 200");
        };
        timeout(LONG, again).await.unwrap();
    }
}
