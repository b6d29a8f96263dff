//! The text of server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use std::{convert::Infallible, fmt::Write as _, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use futures_util::{Stream, StreamExt as _};
use serde_json::json;

/// Asks proxies (nginx, and others that support its header) not to buffer the stream.
const NO_BUFFERING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
const EVENT_STREAM: (HeaderName, HeaderValue) = (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));

/// Some blocks of a stream.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// Adds an event. Its data is one line.
    pub(crate) fn event(&mut self, name: &str, id: Option<u64>, data: &str) {
        self.line("event", name);
        self.line("data", data);
        self.end(id);
    }

    /// Adds a comment, and an event with the position that the stream has reached: some libraries forget the id of a block
    /// without data.
    pub(crate) fn position(&mut self, comment: &str, position: u64) {
        self.line("", comment);
        self.event("position", Some(position), &json!({ "position": position }).to_string());
    }

    /// Adds a comment, and the position that the stream has reached as its id alone.
    pub(crate) fn comment(&mut self, comment: &str, id: Option<u64>) {
        self.line("", comment);
        self.end(id);
    }

    /// Adds to the block that follows how long a reader should wait before it reconnects.
    pub(crate) fn retry(&mut self, after: Duration) {
        self.line("retry", &after.as_millis().to_string());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn line(&mut self, name: &str, value: &str) {
        for part in [name, ": ", value, "\n"] {
            self.0.push_str(part);
        }
    }

    fn end(&mut self, id: Option<u64>) {
        if let Some(id) = id {
            // Writing to a string cannot fail.
            let _ = writeln!(self.0, "id: {id}");
        }
        self.0.push('\n');
    }
}

impl From<Text> for Bytes {
    fn from(text: Text) -> Self {
        text.0.into()
    }
}

/// Returns the answer that consists of these blocks. Each is polled once the previous one was sent.
pub(crate) fn response(frames: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let body = Body::from_stream(frames.map(Ok::<_, Infallible>));
    ([EVENT_STREAM, NO_STORE, NO_BUFFERING], body).into_response()
}
