//! Buckets of S3, by what they answer to writes: a store that does not compare is rejected before anything is written.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Barrier, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use nameservice_objects::{Answer, Attempt};
use object_store::{
    CredentialProvider, PutMode, PutOptions, StaticCredentialProvider,
    aws::{AwsCredential, AwsCredentialProvider},
    path::Path,
};

use super::*;
use crate::BucketOptions;

/// How a store answers writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// As S3 does.
    Sound,
    /// It rejects both of two creations at the same time, as S3 may.
    Busy,
    IgnoresIfNoneMatch,
    IgnoresIfMatch,
    /// It checks a creation before it lets another in between.
    ChecksFirst,
    /// It answers 200 to a replacement, and keeps what is there.
    KeepsTheOld,
    /// Every content has the same ETag.
    OneETag,
    NoETag,
    /// It answers 412 to every condition.
    RejectsAll,
    /// It answers 501 to every condition.
    NotImplemented,
    /// It answers 503 to every write.
    Overloaded,
}

/// An S3 in this process, over HTTP.
struct Store {
    kind: Kind,
    url: String,
    /// Contents and ETags by path.
    objects: Mutex<HashMap<String, (Vec<u8>, usize)>>,
    /// Method and path of each request.
    requests: Mutex<Vec<String>>,
    /// What the next writes of records are answered instead of being applied.
    rejections: Mutex<Vec<u16>>,
    /// Whether credentials expire once a record is read, and whether they have.
    expires: AtomicBool,
    is_expired: Arc<AtomicBool>,
    both: Barrier,
}

/// A request, as far as it matters.
#[derive(Default)]
struct Request {
    method: String,
    path: String,
    if_match: Option<String>,
    if_none_match: bool,
    body: Vec<u8>,
}

impl Request {
    /// Reads the next request of a connection; `None` at its end.
    fn read(reader: &mut impl BufRead) -> Option<Self> {
        let (mut request, mut length, mut line) = (Self::default(), 0, String::new());
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let mut first = line.split(' ').map(str::to_owned);
        (request.method, request.path) = (first.next()?, first.next()?);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().ok()?,
                "if-match" => request.if_match = Some(value.trim().to_owned()),
                "if-none-match" => request.if_none_match = true,
                _ => {}
            }
        }
        request.body = vec![0; length];
        reader.read_exact(&mut request.body).ok()?;
        Some(request)
    }

    fn is_probe(&self) -> bool {
        self.path.contains("/.compares.")
    }
}

impl Store {
    fn start(kind: Kind) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let store = Arc::new(Self {
            kind,
            url: format!("http://{}", listener.local_addr().unwrap()),
            objects: Mutex::default(),
            requests: Mutex::default(),
            rejections: Mutex::default(),
            expires: AtomicBool::default(),
            is_expired: Arc::default(),
            both: Barrier::new(2),
        });
        let serving = store.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let store = serving.clone();
                thread::spawn(move || store.serve(stream));
            }
        });
        store
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(request) = Request::read(&mut reader) {
            let (status, etag, body) = self.answer(&request);
            let etag = etag.map(|etag| format!("etag: {etag}\r\n")).unwrap_or_default();
            let length = body.len();
            let head = format!("HTTP/1.1 {status} Status\r\n{etag}content-length: {length}\r\n\r\n");
            if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: &Request) -> (u16, Option<String>, Vec<u8>) {
        let Request { method, path, .. } = request;
        self.requests.lock().unwrap().push(format!("{method} {path}"));
        match method.as_str() {
            "GET" => {
                if path.ends_with(".index.json") && self.expires.load(SeqCst) {
                    self.is_expired.store(true, SeqCst);
                }
                match self.objects.lock().unwrap().get(path) {
                    Some((content, etag)) => (200, self.etag(*etag), content.clone()),
                    None => (404, None, b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
                }
            }
            "PUT" => self.put(request),
            // S3's deletion of several objects, here of one.
            _ => {
                let body = String::from_utf8(request.body.clone()).unwrap();
                let (_, rest) = body.split_once("<Key>").unwrap();
                let (key, _) = rest.split_once("</Key>").unwrap();
                // Paths are escaped.
                let name = key.rsplit('/').next().unwrap();
                self.objects.lock().unwrap().retain(|path, _| !path.ends_with(name));
                let deleted = format!("<DeleteResult><Deleted><Key>{key}</Key></Deleted></DeleteResult>");
                (200, None, deleted.into_bytes())
            }
        }
    }

    fn put(&self, request: &Request) -> (u16, Option<String>, Vec<u8>) {
        const REJECTED: (u16, Option<String>, Vec<u8>) = (412, None, Vec::new());
        if !request.is_probe()
            && let Some(status) = self.rejections.lock().unwrap().pop()
        {
            return (status, None, b"<Error><Code>Rejected</Code></Error>".to_vec());
        }
        match self.kind {
            Kind::RejectsAll => return REJECTED,
            Kind::NotImplemented => return (501, None, Vec::new()),
            Kind::Overloaded => return (503, None, Vec::new()),
            // The first of all requests for the object were two creations.
            Kind::Busy if request.is_probe() && self.sent(&format!("PUT {}", request.path)) <= 2 => {
                return (409, None, Vec::new());
            }
            _ => {}
        }
        let checks = |objects: &HashMap<String, (Vec<u8>, usize)>| {
            let stored = objects.get(&request.path).map(|(_, etag)| self.etag(*etag));
            let is_new = !request.if_none_match || stored.is_none() || self.kind == Kind::IgnoresIfNoneMatch;
            let is_current = self.kind == Kind::IgnoresIfMatch
                || request.if_match.as_ref().is_none_or(|etag| stored.flatten().as_ref() == Some(etag));
            is_new && is_current
        };
        if self.kind == Kind::ChecksFirst && request.if_none_match {
            let is_accepted = checks(&self.objects.lock().unwrap());
            self.both.wait();
            if !is_accepted {
                return REJECTED;
            }
        }
        let mut objects = self.objects.lock().unwrap();
        if self.kind != Kind::ChecksFirst && !checks(&objects) {
            return REJECTED;
        }
        let etag = objects.get(&request.path).map_or(1, |(_, etag)| etag + 1);
        if self.kind != Kind::KeepsTheOld || request.if_none_match {
            objects.insert(request.path.clone(), (request.body.clone(), etag));
        }
        (200, self.etag(etag), Vec::new())
    }

    fn etag(&self, n: usize) -> Option<String> {
        match self.kind {
            Kind::NoETag => None,
            Kind::OneETag => Some("\"same\"".to_owned()),
            _ => Some(format!("\"{n}\"")),
        }
    }

    /// How many requests of this kind it has had.
    fn sent(&self, of: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|request| request.contains(of)).count()
    }

    /// The methods of the requests since the last look.
    fn methods(&self) -> String {
        let requests = std::mem::take(&mut *self.requests.lock().unwrap());
        requests.iter().filter_map(|request| request.split(' ').next()).collect::<Vec<_>>().join(" ")
    }

    fn paths(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    fn options(&self, credentials: AwsCredentialProvider) -> BucketOptions {
        let options = BucketOptions::default().endpoint(Some(self.url.clone())).region(Some("us-east-1".to_owned()));
        options.timeout(LONG).credentials(Some(credentials))
    }

    fn files(&self) -> Files {
        let at = self.options(Arc::new(StaticCredentialProvider::new(credential())));
        Files::bucket(Bucket::s3("bucket", "some/prefix", &at).unwrap(), options())
    }
}

fn credential() -> AwsCredential {
    AwsCredential { key_id: "test".to_owned(), secret_key: "test".to_owned(), token: None }
}

/// Credentials that can no longer be had once they have expired.
#[derive(Debug)]
struct Expiring(Arc<AtomicBool>);

#[async_trait]
impl CredentialProvider for Expiring {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        match self.0.load(SeqCst) {
            false => Ok(Arc::new(credential())),
            true => Err(object_store::Error::Generic { store: "test", source: "there is no token".into() }),
        }
    }
}

#[tokio::test]
async fn a_store_that_does_not_compare_is_rejected_before_anything_is_written() {
    for (kind, flaw) in [
        (Kind::IgnoresIfNoneMatch, "accepts two creations of one object"),
        (Kind::ChecksFirst, "accepts two creations of one object"),
        (Kind::IgnoresIfMatch, "no longer stored"),
        (Kind::KeepsTheOld, "does not return what it has accepted"),
        (Kind::OneETag, "one ETag for different contents"),
        (Kind::NoETag, "returns no ETag"),
        (Kind::RejectsAll, "rejects the creation of an object that does not exist"),
        (Kind::NotImplemented, "has no conditional writes"),
    ] {
        let store = Store::start(kind);
        let (files, db) = (store.files(), at("mydb"));
        // Twice, since a store may have been repaired meanwhile.
        for _ in 0..2 {
            let made = files.create_ledger(&Call::fresh(), &db, None, None).await;
            let Err(Error::Unsupported { capability: Capability::ConditionalWrites, reason }) = &made else {
                panic!("{kind:?}: {made:?}");
            };
            assert!(reason.contains(flaw) && reason.contains("s3://bucket/some/prefix"), "{kind:?}: {reason}");
        }
        assert_eq!(store.paths(), Vec::<String>::new(), "{kind:?}: nothing is left");
        assert_eq!(files.lookup(&db).await.unwrap(), None, "it can still be read");
    }
}

#[tokio::test]
async fn a_store_is_tried_once_before_the_first_write_and_never_by_a_read() {
    let store = Store::start(Kind::Sound);
    let files = store.files();
    assert_eq!(files.lookup(&at("a")).await.unwrap(), None);
    assert_eq!(store.methods(), "GET GET");
    // The two files of the record; two creations, two reads, two replacements and a deletion; the write.
    born(&files, "a", 1).await;
    assert_eq!(store.methods(), "GET GET PUT PUT GET PUT GET PUT POST PUT");
    born(&files, "b", 1).await;
    assert_eq!(store.methods(), "GET GET PUT");
    assert!(store.paths().iter().all(|path| path.ends_with("/main.json")), "{:?}", store.paths());

    // Of another process, all writers wait for one look.
    let files = store.files();
    let made = (0..8).map(|n| {
        let files = files.clone();
        async move { files.create_ledger(&Call::fresh(), &at(&format!("db{n}")), None, None).await }
    });
    for made in join_all(made).await {
        assert!(matches!(made, Ok(Created::Created(_))), "{made:?}");
    }
    assert_eq!(store.sent("/.compares."), 6);

    // Two processes at the same time try objects of their own.
    let files = [store.files(), store.files()];
    let made = [(&files[0], 1), (&files[1], 2)].map(|(files, n)| async move { push(files, &at("a"), n, 2).await });
    let made = join_all(made).await;
    assert_eq!(made.iter().filter(|made| made.is_updated()).count(), 1, "{made:?}");
    assert_eq!(store.paths().len(), 10);
}

#[tokio::test]
async fn writers_that_wait_for_a_look_that_fails_share_its_result() {
    for kind in [Kind::IgnoresIfNoneMatch, Kind::Overloaded] {
        let store = Store::start(kind);
        let files = store.files();
        let write = |n: usize| {
            let storage = files.inner.storage.clone();
            async move { storage.create(&format!("ns@v2/db{n}/main.json"), Bytes::from_static(b"{}")).await }
        };
        // The next writer looks again: the store may be well by then.
        for looks in 1..=2 {
            for rejected in join_all((0..8).map(&write)).await {
                let is_known = match kind {
                    Kind::Overloaded => matches!(rejected, Err(Error::Unavailable { .. })),
                    _ => matches!(rejected, Err(Error::Unsupported { .. })),
                };
                assert!(is_known, "{kind:?}: {rejected:?}");
            }
            assert_eq!(store.sent("PUT"), 2 * looks, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_store_that_rejects_both_of_two_creations_at_the_same_time_is_asked_once_more() {
    let store = Store::start(Kind::Busy);
    let files = store.files();
    born(&files, "a", 1).await;
    assert_eq!(store.methods(), "GET GET PUT PUT PUT GET PUT GET PUT POST PUT");
}

#[tokio::test]
async fn what_a_store_has_rejected_or_was_never_sent_is_no_unknown_outcome() {
    let store = Store::start(Kind::Sound);
    let files = store.files();
    let db = born(&files, "mydb", 1).await;
    let advance =
        async |files: &Files, t: i64| files.push_head(&Call::fresh(), &db, &HeadPush::monotonic(head(1, t))).await;
    for status in [301, 400, 403, 405, 413, 501] {
        store.rejections.lock().unwrap().push(status);
        let rejected = advance(&files, 2).await;
        assert!(matches!(rejected, Err(Error::Store { .. })), "{status}: {rejected:?}");
    }
    // Without credentials, nothing is sent.
    let expiring = store.options(Arc::new(Expiring(store.is_expired.clone())));
    let expiring = Files::bucket(Bucket::s3("bucket", "some/prefix", &expiring).unwrap(), options());
    assert!(advance(&expiring, 2).await.unwrap().is_updated());
    store.methods();
    store.expires.store(true, SeqCst);
    let unsent = advance(&expiring, 3).await;
    assert!(matches!(unsent, Err(Error::Unavailable { .. })), "{unsent:?}");
    assert_eq!(store.methods(), "GET GET");
    assert_eq!(files.head(&db).await.unwrap().unwrap().v, 2, "nothing was written");
    // What may have been applied is decided by what is stored, and too many requests are repeated.
    for (status, t) in [(500, 3), (503, 4), (408, 5), (429, 6)] {
        store.rejections.lock().unwrap().push(status);
        assert!(push(&files, &db, 1, t).await.is_updated(), "{status}");
    }
}

#[tokio::test]
async fn without_a_connection_a_write_was_not_sent() {
    let credentials: AwsCredentialProvider = Arc::new(StaticCredentialProvider::new(credential()));
    // Nothing listens at this port.
    let at = BucketOptions::default().endpoint(Some("http://127.0.0.1:1".to_owned())).credentials(Some(credentials));
    let store = nameservice_objects::s3("bucket", &at, 0).unwrap();
    let attempt = Attempt::default();
    let options = PutOptions { mode: PutMode::Create, extensions: attempt.extensions(), ..PutOptions::default() };
    let put = store.put_opts(&Path::from("a"), "1".into(), options).await;
    assert!(put.is_err(), "{put:?}");
    assert_eq!(attempt.answer(), Answer::NotSent);
}
