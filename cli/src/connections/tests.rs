//! Most connections are in memory, on the clock of the test, so no stall of the machine exceeds a limit.

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::{
    http::StatusCode,
    response::{Redirect, Response},
    routing::get,
};
use futures_util::stream;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    net::{TcpSocket, TcpStream},
};

use super::{socket::SEND_BUFFER, *};

const LONG: Duration = Duration::from_secs(120);

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
    let dripping = bodies.clone();
    let drip = async move || {
        dripping.fetch_add(1, Ordering::SeqCst);
        let body = stream::unfold(Counted(dripping.clone()), async |counted| {
            sleep(Duration::from_millis(1000)).await;
            Some((Ok::<_, Infallible>("."), counted))
        });
        Response::new(Body::from_stream(body))
    };
    let endless = async move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let body = stream::unfold(Counted(counted.clone()), async |counted| {
            Some((Ok::<_, Infallible>(vec![0_u8; 64 * 1024]), counted))
        });
        Response::new(Body::from_stream(body))
    };
    let router = Router::new()
        .route("/", get(async || StatusCode::OK).post(async || StatusCode::OK))
        .route("/v1/health", get(async || "healthy"))
        .route("/healthz", get(async || Redirect::temporary("v1/health")))
        .route("/endless", get(endless))
        .route("/large", get(async || vec![0_u8; 1024 * 1024]))
        .route("/slow-stream", get(drip))
        .route("/socket", get(upgrade))
        .route("/late", get(async || sleep(Duration::from_millis(800)).await))
        .route("/slow", get(async || Response::new(Body::from_stream(stream::unfold(0, slowly)))));
    (router, bodies)
}

async fn start(limits: Limits, tls: Option<Arc<Tls>>) -> (SocketAddr, Arc<AtomicUsize>) {
    let (router, bodies) = router();
    let listener = tcp(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener.into(), tls, router, String::new(), limits, Shutdown::default()));
    (address, bodies)
}

/// Serves a connection in memory. Returns the client's end of it, and the bodies of its answers.
fn pipe(limits: Limits, tls: Option<Arc<Tls>>) -> (DuplexStream, Arc<AtomicUsize>) {
    let (router, bodies) = router();
    let (client, served) = duplex(SEND_BUFFER as usize);
    let slot = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let stream = Deadlined::new(served, limits.write, slot);
    let (builder, shutdown) = (Arc::new(limits.builder()), Shutdown::default());
    let connection = Connection { router, builder, limits, shutdown, reserve: None, client: None };
    match tls {
        None => tokio::spawn(connection.serve(stream)),
        Some(tls) => tokio::spawn(connection.serve_encrypted(stream, tls)),
    };
    (client, bodies)
}

/// Keeps the connection, as a WebSocket does, until the client closes it. Its first byte shows that it has it, the others that it lives.
async fn upgrade(request: Request<Body>) -> Response {
    tokio::spawn(async {
        let mut socket = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
        socket.write_all(b"!").await.unwrap();
        let (mut reads, mut writes) = tokio::io::split(socket);
        let beats = async {
            while writes.write_all(b"!").await.is_ok() {
                sleep(Duration::from_secs(10)).await;
            }
        };
        let mut received = Vec::new();
        tokio::select! {
            _ = reads.read_to_end(&mut received) => {}
            () = beats => {}
        }
    });
    let upgrade = [("connection", "upgrade"), ("upgrade", "test")];
    axum::response::IntoResponse::into_response((StatusCode::SWITCHING_PROTOCOLS, upgrade))
}

/// What was logged.
#[derive(Clone, Default)]
pub(super) struct Logged(Arc<Mutex<Vec<u8>>>);

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Logged {
    pub(super) fn count(&self, text: &str) -> usize {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap().matches(text).count()
    }
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
    let (address, bodies) = start(limits, None).await;
    let mut stalled = TcpStream::connect(address).await.unwrap();
    stalled.write_all(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    // The answer has begun.
    timeout(LONG, stalled.readable()).await.unwrap().unwrap();
    until(|| bodies.load(Ordering::SeqCst) == 0).await;
}

/// Asks over HTTP/2 with a client that reads the connection, and never gives a stream more room.
async fn ask_without_room(client: &mut DuplexStream, path: &str) {
    let mut headers = vec![0x82, 0x86, 0x01, 1, b'a', 0x04, u8::try_from(path.len()).unwrap()];
    headers.extend(path.as_bytes());
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    sent.extend([0, 0, u8::try_from(headers.len()).unwrap(), 1, 0x05, 0, 0, 0, 1]);
    sent.extend(headers);
    client.write_all(&sent).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_http2_stream_whose_client_gives_no_room_ends_the_connection() {
    let limits = Limits { write: Duration::from_millis(200), ..Limits::default() };
    for path in ["/endless", "/large"] {
        let (mut stalled, bodies) = pipe(limits, None);
        ask_without_room(&mut stalled, path).await;
        let mut answer = Vec::new();
        let _ = timeout(LONG, stalled.read_to_end(&mut answer)).await.unwrap();
        assert!(answer.len() > 65_535, "the first window of {path} is used: {}", answer.len());
        until(|| bodies.load(Ordering::SeqCst) == 0).await;
    }
}

/// Reads frames, and answers pings, until the connection or stream 1 ends. Returns their types, in order.
async fn frames(client: &mut DuplexStream, only_stream: bool) -> Vec<u8> {
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

#[tokio::test(start_paused = true)]
async fn an_http2_connection_without_requests_ends_though_its_client_answers_pings() {
    const GOAWAY: u8 = 7;
    for path in ["/", "/slow"] {
        let (mut client, _) = pipe(short(), None);
        ask_without_room(&mut client, path).await;
        let frames = timeout(LONG, frames(&mut client, false)).await.unwrap();
        assert!(frames.contains(&1) && frames.contains(&GOAWAY), "{path}: {frames:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_http2_connection_is_not_idle_while_a_request_is_being_answered() {
    for (path, last) in [("/late", 1), ("/slow", 0)] {
        let (mut client, _) = pipe(short(), None);
        ask_without_room(&mut client, path).await;
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

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_complete_first_request_ends() {
    let limits = Limits { headers: Duration::from_millis(100), ..Limits::default() };
    for begin in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HT"] {
        let (mut silent, _) = pipe(limits, None);
        silent.write_all(begin).await.unwrap();
        let mut answer = Vec::new();
        let _ = timeout(LONG, silent.read_to_end(&mut answer)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn headers_that_do_not_arrive_end_the_connection() {
    let (mut slow, _) = pipe(Limits { headers: Duration::from_millis(100), ..Limits::default() }, None);
    slow.write_all(b"GET / HTTP/1.1\r\nhost:").await.unwrap();
    let mut answer = Vec::new();
    timeout(LONG, slow.read_to_end(&mut answer)).await.unwrap().unwrap();
}

#[tokio::test]
async fn more_connections_than_allowed_are_rejected_but_for_health_and_places_become_free() {
    for (request, begin, end) in [
        (&b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"[..], "HTTP/1.1 200", "\r\n\r\n"),
        // A socket is passed on after its answer.
        (b"GET /socket HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n", "HTTP/1.1 101", "!"),
    ] {
        let limits = Limits { reserved_for: LONG, ..Limits::default() };
        let (address, _) = start(limits.with_max(1), None).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(end.as_bytes()) {
            assert_ne!(first.read_buf(&mut answer).await.unwrap(), 0, "{answer:?}");
        }
        assert!(answer.starts_with(begin.as_bytes()), "{answer:?}");
        for (asked, status) in [
            ("GET /", "503"),
            ("POST /", "503"),
            ("POST /v1/health", "503"),
            ("GET /v1/healthy", "503"),
            ("GET /v1/health?deep=true", "200"),
            ("HEAD /v1/health", "200"),
            ("GET /healthz", "307"),
        ] {
            let mut second = TcpStream::connect(address).await.unwrap();
            let request = format!("{asked} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n");
            second.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            timeout(LONG, second.read_to_string(&mut answer)).await.unwrap().unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{asked}: {answer}");
            let length = if asked.starts_with("HEAD") { "healthy".len() } else { body.len() };
            assert!(head.contains(&format!("content-length: {length}")), "{answer}");
            assert!(head.contains("connection: close"), "{answer}");
            if status == "503" {
                assert!(head.contains("x-request-id: "), "{answer}");
                assert!(head.contains("retry-after: 1"), "{answer}");
                let problem: serde_json::Value = serde_json::from_str(body).unwrap();
                assert!(problem["detail"].as_str().unwrap().contains("nothing was written"), "{body}");
            }
        }
        drop(first);
        let mut part = [0; 12];
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

/// Returns what a service over TLS needs, and what its clients need.
fn keys() -> (Arc<Tls>, Arc<rustls::RootCertStore>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = (directory.path().join("cert"), directory.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let files = tls::TlsArgs { tls_cert: Some(cert), tls_key: Some(key), client_ca: None };
    let tls = Arc::new(files.open().unwrap().unwrap());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    (tls, Arc::new(roots))
}

async fn encrypted<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    roots: &Arc<rustls::RootCertStore>,
    protocol: &[u8],
) -> io::Result<tokio_rustls::client::TlsStream<S>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.unwrap().with_root_certificates(roots.clone()).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect("localhost".try_into().unwrap(), stream).await
}

#[tokio::test(start_paused = true)]
async fn over_tls_a_client_chooses_its_version_of_http_and_one_that_does_not_read_is_cut_off() {
    let limits = Limits { write: Duration::from_millis(200), ..Limits::default() };
    let (tls, roots) = keys();
    let (client, _) = pipe(limits, Some(tls.clone()));
    let http2 = encrypted(client, &roots, b"h2").await.unwrap();
    assert_eq!(http2.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (client, bodies) = pipe(limits, Some(tls));
    let mut stalled = encrypted(client, &roots, b"http/1.1").await.unwrap();
    stalled.write_all(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    until(|| bodies.load(Ordering::SeqCst) == 1).await;
    until(|| bodies.load(Ordering::SeqCst) == 0).await;
}

#[tokio::test]
async fn a_client_that_agrees_on_no_keys_is_cut_off() {
    let limits = Limits { handshake: Duration::from_millis(500), ..Limits::default() };
    let (tls, roots) = keys();
    let (address, _) = start(limits.with_max(1), Some(tls)).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let _ = timeout(LONG, silent.read_to_end(&mut Vec::new())).await.unwrap();
    // Its place is free again. A client that a stall keeps from agreeing in time tries again.
    let again = async {
        let mut next = loop {
            let stream = TcpStream::connect(address).await.unwrap();
            if let Ok(next) = encrypted(stream, &roots, b"http/1.1").await {
                break next;
            }
        };
        next.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut part = [0; 12];
        next.read_exact(&mut part).await.unwrap();
        assert_eq!(&part, b"HTTP/1.1 200");
    };
    timeout(LONG, again).await.unwrap();
}

/// Connects until the service has as many connections as it may have, which ask for nothing.
async fn silent(address: SocketAddr, count: u32) -> Vec<TcpStream> {
    let mut silent = Vec::new();
    for _ in 0..count {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    silent
}

#[tokio::test]
async fn clients_beyond_the_reserve_are_answered_as_well_and_a_silent_one_leaves_it() {
    let limits = Limits { reserved: 2, reserved_for: LONG, ..Limits::default() }.with_max(2);
    let (address, _) = start(limits, None).await;
    let _held = silent(address, 4).await;
    let mut beyond = TcpStream::connect(address).await.unwrap();
    let mut answer = String::new();
    timeout(LONG, beyond.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 503") && head.contains(&format!("content-length: {}", body.len())), "{answer}");
    assert!(serde_json::from_str::<serde_json::Value>(body).is_ok(), "{body}");
    // The reserve has short limits: the first two wait for longer.
    let (address, _) = start(Limits { reserved_for: Duration::from_millis(500), ..limits }, None).await;
    let mut held = silent(address, 4).await;
    for reserved in held.drain(2..) {
        let mut reserved = reserved;
        let _ = timeout(LONG, reserved.read_to_end(&mut Vec::new())).await.unwrap();
    }
    let healthy = async {
        loop {
            let mut next = TcpStream::connect(address).await.unwrap();
            let mut answer = String::new();
            if next.write_all(b"GET /v1/health HTTP/1.1\r\nhost: a\r\n\r\n").await.is_ok()
                && next.read_to_string(&mut answer).await.is_ok()
                && answer.ends_with("healthy")
            {
                break;
            }
        }
    };
    timeout(LONG, healthy).await.unwrap();
    assert_eq!(held.len(), 2);
}

/// Asks once over an encrypted connection, and returns everything that it is answered.
async fn asked(address: SocketAddr, roots: &Arc<rustls::RootCertStore>, request: &str) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut stream = encrypted(stream, roots, b"http/1.1").await.unwrap();
    stream.write_all(format!("{request} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = timeout(LONG, stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn over_tls_a_client_beyond_the_limit_is_rejected_with_nothing_written_and_health_is_answered() {
    let (tls, roots) = keys();
    // Nobody is late on a busy machine.
    let limits = Limits { handshake: LONG, headers: LONG, reserved_for: LONG, ..Limits::default() }.with_max(1);
    let (address, _) = start(limits, Some(tls)).await;
    let _held = encrypted(TcpStream::connect(address).await.unwrap(), &roots, b"http/1.1").await.unwrap();
    let rejected = asked(address, &roots, "POST /").await;
    assert!(rejected.starts_with("HTTP/1.1 503") && rejected.contains("nothing was written"), "{rejected}");
    assert!(rejected.contains("retry-after: 1"), "{rejected}");
    let healthy = asked(address, &roots, "GET /v1/health").await;
    assert!(healthy.starts_with("HTTP/1.1 200") && healthy.ends_with("healthy"), "{healthy}");
}

#[tokio::test(start_paused = true)]
async fn a_reserved_connection_over_http2_answers_one_request() {
    const GOAWAY: u8 = 7;
    for (path, is_health) in [("/", false), ("/v1/health", true)] {
        let (router, _) = router();
        let (mut client, served) = duplex(SEND_BUFFER as usize);
        let slot = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let limits = Limits::default().of_reserve();
        let (builder, shutdown) = (Arc::new(limits.builder()), Shutdown::default());
        let reserve = Some(Arc::new(Reserve::new("test", "")));
        let connection = Connection { router, builder, limits, shutdown, reserve, client: None };
        tokio::spawn(connection.serve(Deadlined::new(served, limits.write, slot)));
        ask_without_room(&mut client, path).await;
        let mut answer = Vec::new();
        // Its client does not close it, and answers no pings.
        let _ = timeout(LONG, client.read_to_end(&mut answer)).await.unwrap();
        let body: &[u8] = if is_health { b"healthy" } else { b"nothing was written" };
        assert!(answer.windows(body.len()).any(|part| part == body), "{path}: {answer:?}");
        assert!(answer.windows(4).any(|head| head == [0, 0, 8, GOAWAY]), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reserved_connection_ends_however_long_its_answer_takes() {
    let router = Router::new().route("/healthz", get(async || sleep(LONG * 10).await));
    let (mut client, served) = duplex(SEND_BUFFER as usize);
    let slot = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let limits = Limits::default().of_reserve();
    let (builder, shutdown) = (Arc::new(limits.builder()), Shutdown::default());
    let reserve = Some(Arc::new(Reserve::new("test", "")));
    let connection = Connection { router, builder, limits, shutdown, reserve, client: None };
    tokio::spawn(connection.serve(Deadlined::new(served, limits.write, slot)));
    client.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(LONG, client.read_to_end(&mut answer)).await.unwrap();
    assert!(answer.is_empty(), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn the_begin_and_the_end_of_a_time_without_places_are_logged_and_not_each_connection() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut period = Period::default();
    for round in 1..=2 {
        for _ in 0..100 {
            period.note("service", 1);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged.count("all connections are in use"), round);
        assert_eq!(logged.count("connections for everyone"), round - 1);
        timeout(LONG, period.quiet()).await.unwrap();
        period.end("service");
        assert_eq!(logged.count("connections for everyone"), round);
        assert_eq!(logged.count("beyond_the_limit=100"), round);
        assert!(timeout(LONG, period.quiet()).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn connections_end_soon_after_their_authority_was_withdrawn() {
    let directory = tempfile::tempdir().unwrap();
    let authority = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        (rcgen::Issuer::new(params, key), pem)
    };
    let (issuer, pem) = authority();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [cert, key, client_ca] = ["cert", "key", "ca"].map(|name| directory.path().join(name));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    fs::write(&client_ca, &pem).unwrap();
    let files = tls::TlsArgs { tls_cert: Some(cert), tls_key: Some(key), client_ca: Some(client_ca.clone()) };
    let tls = Arc::new(files.open().unwrap().unwrap());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client_key = rcgen::KeyPair::generate().unwrap();
    let client = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap();
    let client = client.signed_by(&client_key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let key = rustls::pki_types::PrivateKeyDer::try_from(client_key.serialize_der()).unwrap();
    let config = config.unwrap().with_root_certificates(roots).with_client_auth_cert(vec![client.der().clone()], key);
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config.unwrap()));
    // No other limit ends them before the test does.
    let limits = Limits { headers: 100 * LONG, ..Limits::default() };
    let connect = async || {
        let (stream, bodies) = pipe(limits, Some(tls.clone()));
        (connector.connect("localhost".try_into().unwrap(), stream).await.unwrap(), bodies)
    };
    let ((mut idle, _), (mut endless, bodies), (mut socket, _)) = (connect().await, connect().await, connect().await);
    socket.write_all(b"GET /socket HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n").await.unwrap();
    let mut first = Vec::new();
    while !first.ends_with(b"!") {
        assert_ne!(socket.read_buf(&mut first).await.unwrap(), 0, "{first:?}");
    }
    for (stream, path) in [(&mut idle, "/"), (&mut endless, "/slow-stream")] {
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
        let mut part = [0; 12];
        stream.read_exact(&mut part).await.unwrap();
        assert_eq!(&part, b"HTTP/1.1 200");
    }
    // While the authority stays, so do they; the content counts, and not the file.
    fs::write(&client_ca, &pem).unwrap();
    assert!(timeout(LONG, idle.read_to_end(&mut Vec::new())).await.is_err());
    assert_eq!(bodies.load(Ordering::SeqCst), 1);
    assert!(timeout(LONG, socket.read_to_end(&mut Vec::new())).await.is_err());
    fs::write(&client_ca, authority().1).unwrap();
    let _ = timeout(LONG, socket.read_to_end(&mut Vec::new())).await.unwrap();
    let _ = timeout(LONG, idle.read_to_end(&mut Vec::new())).await.unwrap();
    let _ = timeout(LONG, endless.read_to_end(&mut Vec::new())).await.unwrap();
    until(|| bodies.load(Ordering::SeqCst) == 0).await;
}
