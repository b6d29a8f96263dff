//! All records in one answer: ledgers as they are read, then the graph sources, which are read between them.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse as _, Response},
};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use nameservice_http::{
    Problem,
    extract::{Allowed, Read},
    page,
    shapes::fluree::Record,
};
use nameservice_model::{Address, BoxError, Cursor, Limit, NameService};
use serde::Serialize;

/// How many records a page of the scan has.
const SCAN_PAGE: Limit = match Limit::new(1000) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};

/// A running scan.
struct Scan {
    names: Arc<dyn NameService>,
    caller: Allowed<Read>,
    after: Option<Cursor>,
    text: Vec<u8>,
    has_ledgers: bool,
    /// The graph sources so far, as JSON.
    graph_sources: Vec<u8>,
}

/// Returns the body of the answer in pieces, one per page of records.
pub(crate) fn frames(
    names: Arc<dyn NameService>,
    caller: Allowed<Read>,
) -> impl Stream<Item = Result<Bytes, Problem>> + Send {
    let text = br#"{"ledgers":["#.to_vec();
    let scan = Scan { names, caller, after: None, text, has_ledgers: false, graph_sources: Vec::new() };
    stream::try_unfold(Some(scan), async |scan| {
        let Some(mut scan) = scan else { return Ok(None) };
        let is_the_last = scan.read().await?;
        let frame = Bytes::from(std::mem::take(&mut scan.text));
        Ok(Some((frame, (!is_the_last).then_some(scan))))
    })
}

impl Scan {
    /// Reads a page. True if it was the last one.
    async fn read(&mut self) -> Result<bool, Problem> {
        let visible = |address: &Address| self.caller.sees(address);
        let found = self.names.snapshot(SCAN_PAGE, self.after.as_ref(), &visible).await?;
        for record in found.items {
            match Record::from(&self.caller.shown(record)) {
                Record::Ledger(ledger) => {
                    append(&mut self.text, self.has_ledgers, &ledger)?;
                    self.has_ledgers = true;
                }
                Record::GraphSource(graph_source) => {
                    let has_more = !self.graph_sources.is_empty();
                    append(&mut self.graph_sources, has_more, &graph_source)?;
                }
            }
        }
        self.after = found.cursor;
        if self.after.is_none() {
            self.text.extend_from_slice(br#"],"graph_sources":["#);
            self.text.append(&mut self.graph_sources);
            self.text.extend_from_slice(b"]}");
        }
        Ok(self.after.is_none())
    }
}

fn append(list: &mut Vec<u8>, has_more: bool, value: &impl Serialize) -> Result<(), Problem> {
    if has_more {
        list.push(b',');
    }
    serde_json::to_writer(list, value).map_err(Problem::internal)
}

/// Returns the answer as a stream. If reading fails, the answer is cut off, so what was sent is not valid JSON.
pub(crate) fn streamed(
    first: Bytes,
    rest: impl Stream<Item = Result<Bytes, Problem>> + Send + 'static,
) -> Result<Response, Problem> {
    let rest = rest.map_err(|problem| {
        let problem = problem.document();
        tracing::error!(detail = problem.detail, "a snapshot was cut off");
        BoxError::from(problem.title)
    });
    Ok(json(Body::from_stream(stream::iter([Ok(first)]).chain(rest))))
}

/// Returns the answer in one piece, if it is not too large.
pub(crate) async fn whole(mut frames: impl Stream<Item = Result<Bytes, Problem>> + Unpin) -> Result<Response, Problem> {
    let mut text = Vec::new();
    while let Some(frame) = frames.try_next().await? {
        text.extend_from_slice(&frame);
        if text.len() > page::MAX_PAGE_BYTES {
            return Err(Problem::answer_too_large("read it in pages from /v1/snapshot"));
        }
    }
    Ok(json(Body::from(text)))
}

fn json(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
