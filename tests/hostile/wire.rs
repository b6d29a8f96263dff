//! Below JSON: what a socket can send.

use std::time::Duration;

use nameservice_tests::{LONG, prelude::*};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{ledger, unharmed};

/// How long a test waits for an answer that need not come.
const SILENCE: Duration = Duration::from_millis(400);

/// Sends raw bytes and reads an answer, or until the service sends nothing more for a while.
async fn raw(service: &Service, bytes: &[u8]) -> String {
    raw_within(SILENCE, service, bytes).await
}

/// Sends raw bytes and reads an answer that is whole within this time.
async fn raw_within(at_most: Duration, service: &Service, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(service.url().trim_start_matches("http://")).await.unwrap();
    // The service may close the connection before everything was sent: that is an answer, too.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    // A connection that is kept open has no end.
    let whole = async { while !is_whole(&answer) && stream.read_buf(&mut answer).await.is_ok_and(|read| read > 0) {} };
    let _ = timeout(at_most, whole).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether an answer has all that its `content-length` promises.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

/// Returns the status of the first answer; 0 if the connection was closed without one.
fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

fn put(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "PUT /v1/heads/mydb HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_flood_of_headers_is_cut_off() {
    let service = Service::start().await;
    let before = ledger(&service).await;
    let many: String = (0..5_000).map(|n| format!("x-{n}: y\r\n")).collect();
    let long = format!("x: {}\r\n", "y".repeat(2 << 20));
    let named = format!("{}: y\r\n", "x".repeat(1 << 17));
    let path = format!("GET /v1/records/{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "a".repeat(1 << 20));
    for flood in [many, long, named] {
        let request = format!("GET /v1/records/mydb HTTP/1.1\r\nhost: localhost\r\n{flood}\r\n");
        let answer = raw(&service, request.as_bytes()).await;
        assert!([0, 400, 414, 431].contains(&status(&answer)), "{answer}");
    }
    let answer = raw(&service, path.as_bytes()).await;
    assert!([0, 400, 414, 431].contains(&status(&answer)), "{answer}");
    unharmed(&service, &before).await;
}

#[tokio::test]
async fn what_is_no_http_is_rejected() {
    let service = Service::start().await;
    let before = ledger(&service).await;
    let good = put(format!(r#"{{"new":{{"id":"{}","t":9}}}}"#, cid(9).as_str()).as_bytes());
    let mut short = good.clone();
    short.truncate(short.len() - 4);
    let requests: Vec<Vec<u8>> = vec![
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        vec![0; 4096],
        vec![0xff; 4096],
        b"GET\r\n\r\n".to_vec(),
        b"GET /v1/records/mydb\r\n\r\n".to_vec(),
        b"GET /v1/records/mydb HTTP/9.9\r\n\r\n".to_vec(),
        b"GET /v1/records/my\x00db HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
        b"GET /v1/records/my db HTTP/1.1\r\nhost: localhost\r\n\r\n".to_vec(),
        b"PUT /v1/heads/mydb HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n".to_vec(),
        b"PUT /v1/heads/mydb HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999999999999\r\n\r\n".to_vec(),
        b"PUT /v1/heads/mydb HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd"
            .to_vec(),
        b"PUT /v1/heads/mydb HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        b"PUT /v1/heads/mydb HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 2\r\n\r\n{}"
            .to_vec(),
        // A truncated body must not be treated as complete.
        short,
    ];
    for request in requests {
        let answer = raw(&service, &request).await;
        assert!(status(&answer) < 500 && status(&answer) != 200, "{}: {answer}", String::from_utf8_lossy(&request));
        unharmed(&service, &before).await;
    }
}

#[tokio::test]
async fn a_path_or_a_header_that_is_no_text_is_rejected() {
    let service = Service::start().await;
    let before = ledger(&service).await;
    let request = |line: &[u8], header: &[u8]| {
        [
            b"PUT ",
            line,
            b" HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n",
            header,
            b"\r\n",
            b"content-length: 2\r\n\r\n{}",
        ]
        .concat()
    };
    for (line, header) in [
        (&b"/v1/heads/%FF%FE"[..], &b"x: y"[..]),
        (b"/v1/heads/%00", b"x: y"),
        (b"/v1/heads/%", b"x: y"),
        (b"/v1/heads/%zz", b"x: y"),
        (b"/v1/heads/a%0Ab", b"x: y"),
        (b"/v1/heads/..%2F..%2Fetc", b"x: y"),
        (b"/v1/heads/../../etc/passwd", b"x: y"),
        (b"/v1/heads/a%E2%80%AEb%C2%85", b"x: y"),
        (b"/v1/heads/mydb?x=%FF", b"x: y"),
        (b"/v1/heads/mydb", b"idempotency-key: \xff\xfe"),
        (b"/v1/heads/mydb", b"idempotency-key: "),
        (b"/v1/heads/mydb", b"authorization: Bearer \xff"),
        (b"/v1/heads/mydb", b"authorization: Bearer ey.ey.ey"),
    ] {
        let answer = raw_within(LONG, &service, &request(line, header)).await;
        assert!((400..500).contains(&status(&answer)), "{}: {answer}", String::from_utf8_lossy(line));
    }
    unharmed(&service, &before).await;
}

#[tokio::test]
async fn slow_and_broken_connections_do_not_keep_others_waiting() {
    let service = Service::start().await;
    let before = ledger(&service).await;
    let address = service.url().trim_start_matches("http://").to_owned();
    let mut slow = Vec::new();
    for n in 0..200 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        let begun = ["GET /v1/rec", "PUT /v1/heads/mydb HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{"];
        stream.write_all(begun[n % 2].as_bytes()).await.unwrap();
        slow.push(stream);
    }
    timeout(LONG, unharmed(&service, &before)).await.expect("others are answered meanwhile");
    // They were open all the time: one that is completed only now is answered.
    slow[0].write_all(b"ords/mydb HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    timeout(LONG, slow[0].read_exact(&mut answer)).await.expect("an answer").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    drop(slow);
    unharmed(&service, &before).await;
}
