//! `GET /v1/events` and `GET /fluree/events`: the change feed as server-sent events, without an end.
//!
//! A stream reports in `id:` up to where its reader has seen everything, even while there is nothing for it: then in an event
//! `position`, since some libraries forget the id of a block without data. A reader that reconnects with that id as
//! `Last-Event-ID` misses nothing and sees nothing twice. So a stream may end at any time, and does: when its reader does not
//! read, when its token or its time expires, when the service stops.

mod projection;
mod reader;
mod session;
mod sse;

use std::{sync::Arc, time::Duration};

use axum::{Extension, Router, extract::State, response::Response};
use nameservice_http::{
    Problem, Route,
    extract::{Events, FormQuery, Query, Read, list},
    filter::Filter,
    shapes::{
        Kind,
        changes::{Change, ChangedPart},
        fluree::Event,
    },
};
use nameservice_model::{ChangeFeed, NameService, Run};
use serde::{Deserialize, Deserializer, de::Error as _};
use utoipa::IntoParams;
use utoipa_axum::routes;

use crate::{
    projection::{Projection, Scope},
    reader::PAGE,
    session::Session,
};

nameservice_http::rejections!(READS; InvalidParameter InvalidAddress Expired PositionAhead FeedUnavailable);
nameservice_http::rejections!(
    RecordRejections: READS;
    InvalidParameter InvalidAddress Expired PositionAhead FeedUnavailable PayloadTooLarge
);

/// The timing of streams, and the size of their buffers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The interval after which a silent stream sends a sign of life.
    pub heartbeat: Duration,
    /// How long a stream waits for a reader that does not read.
    pub write_timeout: Duration,
    /// How long a stream lasts, unless its token or Lambda ends it before.
    pub lifetime: Duration,
    /// How long the store may fail before a stream gives up.
    pub retry_for: Duration,
    /// The maximum that waits for the reader, in bytes; a single event may be larger.
    pub buffer: u32,
    /// How many records a stream of all of them can send before its lifetime ends.
    pub records: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(15),
            write_timeout: Duration::from_secs(30),
            // Within the longest time that Lambda gives a function, 15 minutes.
            lifetime: Duration::from_secs(14 * 60),
            retry_for: Duration::from_secs(30),
            buffer: 256 * 1024,
            // A scan of DynamoDB yields some 4,100 a second, of records with a head alone.
            records: 3_000_000,
        }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Only changes of these addresses; may be repeated, and contain `*` and `?`. `mydb` means `mydb:main`, `mydb:*` all its
    /// branches.
    #[serde(default)]
    address: Vec<String>,
    /// Only changes of addresses that begin with this: `tenant/a/`.
    #[param(max_length = 1000, example = "tenant/a/")]
    prefix: Option<String>,
    /// Only changes of records of this kind.
    #[param(inline)]
    kind: Option<Kind>,
    /// Only changes of graph sources of this type.
    #[param(example = "f:Bm25Index")]
    source_type: Option<String>,
    /// Only changes of these parts of a record, separated by commas or repeated.
    #[serde(default, deserialize_with = "list")]
    #[param(inline)]
    concern: Vec<ChangedPart>,
    /// Begin after this position of the feed. Without it, and without `Last-Event-ID`, a stream begins with the changes
    /// from now on.
    #[param(format = "uint64")]
    after: Option<u64>,
}

/// The header with which a reader resumes.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[allow(dead_code, reason = "describes a parameter, is never made")]
struct LastEventId {
    /// The last `id` that the reader has seen: the stream continues after it, whatever the query says.
    #[param(rename = "Last-Event-ID", example = "41")]
    last_event_id: Option<u64>,
}

/// Follow the change feed
///
/// Server-sent events. Each `change` carries one change, with the change's position as its `id`. A `position`
/// (`{"position": n}`, with the same `id`) shows that the stream is alive, and that its reader has seen everything up to
/// there: it comes first, after 15 seconds of silence, and last. Ignore events of other names. The stream ends after 14
/// minutes at the latest (on Lambda after 90 seconds), or with its token; if it cannot continue, it ends with an `expired`
/// (`{"oldest": n}`: begin again with a snapshot) or an `error` (a problem). Reconnect with `Last-Event-ID`.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "changes",
    params(Parameters, LastEventId),
    responses(
        (status = OK, description = "A stream of events; the data of a `change`", content_type = "text/event-stream",
            body = Change),
        Rejections,
    ),
    security(("bearer" = [])),
)]
async fn change_stream(session: Session<Read>, Query(parameters): Query<Parameters>) -> Result<Response, Problem> {
    let parts = parameters.concern.into_iter().map(Into::into).collect();
    let filter = Filter::new(&parameters.address, parameters.kind, parts)?
        .with_prefix(parameters.prefix)?
        .of_type(parameters.source_type);
    let after = session.last_event_id()?.or(parameters.after);
    let (after, first) = begin(session.feed.as_ref(), after).await?;
    let projection = Projection::of_changes(&session.caller, filter);
    Ok(session.start(projection, after, first))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FlureeParameters {
    /// All records.
    #[serde(default, deserialize_with = "flag")]
    #[param(value_type = bool)]
    all: bool,
    /// The ledger of this address; may be repeated.
    #[serde(default)]
    ledger: Vec<String>,
    /// The graph source of this address; may be repeated.
    #[serde(default, rename = "graph-source")]
    graph_source: Vec<String>,
}

/// Reads a flag in the forms that Fluree's servers accept. A name without a value means true.
fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.to_ascii_lowercase().as_str() {
        "" | "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(D::Error::custom("must be true or false")),
    }
}

/// Follow records, in Fluree's format
///
/// Server-sent events: an `ns-record` for the current state of each record, then one for each record that changes, and an
/// `ns-retracted` for each that is retracted or purged. With the `Last-Event-ID` of an earlier stream, only the records
/// that have changed since are sent. A stream of more records than it can send before it ends is rejected with 413: let peers
/// read from a replica (`nameservice serve --upstream`).
#[utoipa::path(
    get,
    path = "/events",
    tag = "fluree",
    params(FlureeParameters, LastEventId),
    responses(
        (status = OK, description = "A stream of events", content_type = "text/event-stream", body = Event),
        RecordRejections,
    ),
    security(("bearer" = [])),
)]
async fn fluree_event_stream(
    State(names): State<Arc<dyn NameService>>,
    session: Session<Events>,
    FormQuery(parameters): FormQuery<FlureeParameters>,
) -> Result<Response, Problem> {
    let scope = Scope::new(parameters.all, &parameters.ledger, &parameters.graph_source)?;
    // Fluree's own servers use ids of another form, and ignore those that readers send back. A reader that comes from one
    // of them is sent everything, as it would be there.
    let resumed = session.last_event_id().unwrap_or_default();
    // Taken before the records are read, so that changes made meanwhile are sent again, and nothing is missed.
    let (after, first) = begin(session.feed.as_ref(), resumed).await?;
    if parameters.all && resumed.is_none() {
        session.check_fits(names.as_ref()).await?;
    }
    let projection = Projection::of_records(names, session.caller.clone(), scope, resumed.is_some());
    // Fluree's own peers send no id: each new stream begins with all records.
    Ok(session.start_whole(projection, after, first))
}

/// Returns where a stream begins, and what was read there: before the answer begins, it can still be a rejection.
async fn begin(feed: &dyn ChangeFeed, after: Option<u64>) -> Result<(u64, Option<Run>), Problem> {
    Problem::unless_followed(feed)?;
    let Some(after) = after else { return Ok((feed.position().await?, None)) };
    match feed.changes(after, PAGE).await? {
        Run::Gone { oldest } => Err(Problem::gone(feed, after, oldest).await),
        run => Ok((after, Some(run))),
    }
}

/// The routes of this operation.
pub fn route() -> Route {
    route_within(Limits::default())
}

/// Returns the route with other limits.
pub fn route_within(limits: Limits) -> Route {
    let fluree = Route::new().routes(routes!(fluree_event_stream));
    // The OpenAPI document describes it once, under the shorter path.
    let again = Router::new().nest("/v1/fluree", fluree.clone().into());
    let routes = Route::new().routes(routes!(change_stream)).nest("/fluree", fluree).merge(again.into());
    routes.layer(Extension(limits))
}
