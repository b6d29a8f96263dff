//! The same service over each backend, as `nameservice serve` mounts it, and the requests that it is sent.

use std::{fmt, time::Duration};

use http::{Method, header};
use http_body_util::{BodyExt as _, Full};
use nameservice_cli::serve::{self, Service as Served};
use nameservice_http::{App, Auth};
use nameservice_tests::{
    backends::{Fixture, Place},
    prelude::*,
    service::{Http, client},
};

/// One request. In its path, `{cursor}`, `{position}` and, in a header, `{etag}` stand for what the same service returned last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Option<String>,
}

impl Request {
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: None }
    }

    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    /// The same with a JSON text as its body.
    pub(super) fn with_body(mut self, body: impl ToString) -> Self {
        self.body = Some(body.to_string());
        self
    }

    pub(super) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_str())
    }

    /// Its method and its path without address and query.
    pub(super) fn route(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        let mut segments = path.split('/').skip(1);
        let kept = if path.starts_with("/fluree/nameservice") || path.starts_with("/fluree/storage") { 3 } else { 2 };
        let kept: Vec<_> = segments.by_ref().take(kept).collect();
        format!("{} /{}{}", self.method, kept.join("/"), if segments.next().is_some() { "/…" } else { "" })
    }

    pub(super) fn is_write(&self) -> bool {
        !self.method.is_safe() && self.path != "/v1/changes/compare"
    }

    /// Whether its answer depends on how far the feed is.
    fn reads_the_feed(&self) -> bool {
        ["/v1/changes", "/v1/history", "/v1/events"].iter().any(|path| self.path.starts_with(path))
            || self.path.contains("min_position")
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        for (name, value) in &self.headers {
            write!(f, " [{name}: {value}]")?;
        }
        match &self.body {
            Some(body) if body.len() > 2_000 => {
                write!(f, " {}… ({} bytes)", body.chars().take(300).collect::<String>(), body.len())
            }
            Some(body) => write!(f, " {body}"),
            None => Ok(()),
        }
    }
}

/// One step of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Send(Request),
    /// All clocks advance by this many seconds.
    Later(u64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(request) => request.fmt(f),
            Self::Later(seconds) => write!(f, "{seconds} s later"),
        }
    }
}

/// A service over one backend.
pub(super) struct Side {
    pub(super) place: Place,
    fixture: Fixture,
    served: Served,
    url: String,
    client: Http,
    cursor: String,
    etag: String,
    position: String,
}

impl Side {
    async fn start(place: Place) -> Self {
        let fixture = Fixture::start(place).await;
        let listener = serve::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let app = App::new(fixture.shared(), fixture.feed.clone(), Auth::Open);
        let served = serve::start(listener, app, None).unwrap();
        let [cursor, etag, position] = ["none", "\"none\"", "0"].map(str::to_owned);
        Self { place, fixture, url: served.url(), served, client: client(), cursor, etag, position }
    }

    /// Sends a request; the body of an event stream is not read.
    pub(super) async fn send(&mut self, request: &Request) -> Answer {
        if request.reads_the_feed() {
            self.fixture.settle().await;
        }
        let path = request.path.replace("{cursor}", &self.cursor).replace("{position}", &self.position);
        let mut built = http::Request::builder().method(&request.method).uri(format!("{}{path}", self.url));
        if request.body.is_some() && request.header("content-type").is_none() {
            built = built.header(header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in &request.headers {
            built = built.header(*name, value.replace("{etag}", &self.etag));
        }
        let body = Full::new(request.body.clone().unwrap_or_default().into());
        let built = built.body(body).unwrap_or_else(|error| panic!("{error}: {request}"));
        let (parts, body) = self.client.request(built).await.unwrap().into_parts();
        let is_stream = parts.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream");
        let bytes = if is_stream { hyper::body::Bytes::new() } else { body.collect().await.unwrap().to_bytes() };
        let body = match bytes.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into()),
        };
        let answer = Answer { status: parts.status, headers: parts.headers, body };
        if let Some(cursor) = answer.body["cursor"].as_str() {
            cursor.clone_into(&mut self.cursor);
        }
        if let Some(etag) = answer.header("etag") {
            etag.clone_into(&mut self.etag);
        }
        if let Some(position) = answer.body["position"].as_u64() {
            self.position = position.to_string();
        }
        answer
    }

    pub(super) fn later(&self, seconds: u64) {
        self.fixture.clock.advance(Duration::from_secs(seconds));
    }

    /// Stops it. With `examined`, panics unless what is stored has the backend's own layout.
    pub(super) async fn stop(self, examined: bool) {
        drop(self.client);
        self.served.stop().await;
        if examined {
            self.fixture.examine().await;
        }
    }
}

/// A new service over each of these backends, all of whose clocks show the same time.
pub(super) async fn sides(places: &[Place]) -> Vec<Side> {
    let mut sides = Vec::new();
    for place in places {
        sides.push(Side::start(*place).await);
    }
    let latest = sides.iter().map(|side| side.fixture.clock.now()).max().unwrap();
    for Side { fixture: Fixture { clock, .. }, .. } in &sides {
        clock.advance(latest.duration_since(clock.now()).unwrap());
    }
    sides
}
