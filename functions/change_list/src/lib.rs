//! `GET /v1/changes`: the changes after a position of the feed, immediately or as soon as there are any.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{HeaderName, HeaderValue, header},
};
use nameservice_http::{
    Problem, Route, Shutdown,
    extract::{Allowed, Query, Read, list},
    filter::{Filter, Interest},
    hub::{Hub, Joined, Subscription},
    page,
    shapes::{
        Kind,
        changes::{Change, ChangedPart, Changes},
    },
};
use nameservice_model::{ChangeFeed, Limit, Run};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use utoipa::IntoParams;
use utoipa_axum::routes;

nameservice_http::rejections!(READS; InvalidParameter Expired PositionAhead FeedUnavailable);

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;
/// The longest wait, in seconds: a gateway gives an answer up after 30.
const MAX_WAIT: u64 = 20;
/// How many changes are read together if not all are requested.
const SCAN: usize = 1000;
/// How many times one look reads the feed.
const SCANS: usize = 5;

/// The same URL is requested again and again, and its answer changes all the time. A cache that chooses its own lifetime
/// for answers without one, as content delivery networks do, would delay readers.
const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// The position to continue after: that of the last answer, or of a snapshot. 0 is before the first change.
    #[serde(default)]
    #[param(default = 0, format = "uint64")]
    after: u64,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
    /// How many seconds to wait if there are no matching changes yet.
    #[serde(default)]
    #[param(minimum = 0, maximum = 20, default = 0)]
    wait: u64,
    /// Only changes of this record, or of those that match a glob: `mydb:*`, `tenant/a/*`. May be repeated.
    #[serde(default)]
    #[param(example = json!(["mydb:*"]))]
    address: Vec<String>,
    /// Only changes of addresses that begin with this: `tenant/a/`.
    #[param(max_length = 1000, example = "tenant/a/")]
    prefix: Option<String>,
    /// Only changes of this kind of record.
    #[param(inline)]
    kind: Option<Kind>,
    /// Only changes of graph sources of this type.
    #[param(example = "f:Bm25Index")]
    source_type: Option<String>,
    /// Only changes of these parts of a record, separated by commas or repeated.
    #[serde(default, deserialize_with = "list")]
    #[param(inline)]
    concern: Vec<ChangedPart>,
}

/// List changes
///
/// The changes that follow a position, in one order for all readers, without a gap and each once. A reader that continues
/// from the `position` of the answer misses nothing: the position also moves past changes that are filtered out, or that
/// the caller may not see. While it moves there may be more, even if `changes` is empty.
///
/// Changes expire after 7 days, unless configured otherwise or kept in an archive. A reader that is behind the oldest
/// one gets a 410 with `oldest`, reads `/v1/snapshot`, and continues from its position.
#[utoipa::path(
    get,
    path = "/v1/changes",
    tag = "changes",
    params(Parameters),
    responses((status = OK, description = "What follows the position", body = Changes), Rejections),
    security(("bearer" = [])),
)]
async fn change_list(
    State(feed): State<Arc<dyn ChangeFeed>>,
    State(hub): State<Hub>,
    State(shutdown): State<Shutdown>,
    caller: Allowed<Read>,
    Query(parameters): Query<Parameters>,
) -> Result<([(HeaderName, HeaderValue); 1], Json<Changes>), Problem> {
    let limit = page::limit(parameters.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    if parameters.wait > MAX_WAIT {
        return Err(Problem::invalid_parameter("wait", format!("must be between 0 and {MAX_WAIT}")));
    }
    let until = Instant::now() + caller.at_most(Duration::from_secs(parameters.wait));
    let parts = parameters.concern.into_iter().map(Into::into).collect();
    let filter = Filter::new(&parameters.address, parameters.kind, parts)?
        .with_prefix(parameters.prefix)?
        .of_type(parameters.source_type);
    let interest = caller.interest(filter, "changes".to_owned());
    Problem::unless_followed(feed.as_ref())?;

    let mut found = look(feed.as_ref(), parameters.after, limit, &interest).await?;
    while found.is_the_end && found.changes.is_empty() && Instant::now() < until {
        if let Joined::Yes(subscription) = hub.subscribe(&interest, found.position, Duration::ZERO) {
            let waited = tokio::select! {
                waited = wait(subscription, limit, until) => waited?,
                // Answers with what was found: nothing.
                () = shutdown.begun() => break,
            };
            match waited {
                Some(waited) => found = waited,
                None => found = look(feed.as_ref(), found.position, limit, &interest).await?,
            }
        } else {
            found = look(feed.as_ref(), found.position, limit, &interest).await?;
        }
    }
    Ok(([NO_STORE], Json(Changes { changes: found.changes, position: found.position })))
}

/// Waits for a change that is requested. Returns `None` if the feed has to be read again.
async fn wait(mut subscription: Subscription, limit: Limit, until: Instant) -> Result<Option<Found>, Problem> {
    let batch = match timeout_at(until, subscription.next()).await {
        Ok(Ok(batch)) => batch,
        Ok(Err(_)) => return Ok(None),
        Err(_) => {
            return Ok(Some(Found { changes: Vec::new(), position: subscription.position(), is_the_end: true }));
        }
    };
    let mut found = Found { changes: Vec::new(), position: 0, is_the_end: false };
    let mut budget = page::Budget::default();
    for entry in batch.entries.iter().take(limit.get()) {
        let change = Change::from(&entry.change);
        if !budget.admits(&change)? {
            return Ok(Some(found));
        }
        found.changes.push(change);
        found.position = entry.change.position;
    }
    if found.changes.len() == batch.entries.len() {
        found.position = subscription.position();
    }
    Ok(Some(found))
}

/// The result of a look at the feed.
struct Found {
    changes: Vec<Change>,
    /// The last position that was read.
    position: u64,
    /// Whether nothing follows it yet.
    is_the_end: bool,
}

/// Looks for changes that are requested, until there are enough, the answer is full, the feed ends, or it was read
/// [`SCANS`] times.
async fn look(feed: &dyn ChangeFeed, after: u64, limit: Limit, interest: &Arc<Interest>) -> Result<Found, Problem> {
    let mut found = Found { changes: Vec::new(), position: after, is_the_end: false };
    let (mut budget, mut all_wanted) = (page::Budget::default(), true);
    for _ in 0..SCANS {
        // As long as every change is requested, no more are read than fit the answer.
        let count = if all_wanted { limit.get() - found.changes.len() } else { SCAN };
        let changes = match feed.changes(found.position, Limit::new(count).unwrap_or_default()).await? {
            Run::Changes(changes) => changes,
            Run::Gone { oldest } if found.position == after => {
                return Err(Problem::gone(feed, after, oldest).await);
            }
            // What follows has expired meanwhile: the next request gets the error.
            Run::Gone { .. } => return Ok(found),
        };
        let read = changes.len();
        found.is_the_end = changes.is_empty();
        for (change, is_taken) in interest.marked(changes, |change| change).await? {
            if is_taken {
                let change = Change::from(&change);
                if !budget.admits(&change)? {
                    return Ok(found);
                }
                found.changes.push(change);
            } else {
                all_wanted = false;
            }
            found.position = change.position;
            if found.changes.len() == limit.get() {
                return Ok(found);
            }
        }
        // If the feed seems to end, what was found is returned immediately. If there is more after all, the reader continues.
        if found.is_the_end || read < count && !found.changes.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// The routes of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(change_list))
}
