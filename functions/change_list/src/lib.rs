//! `GET /v1/changes`: what has changed after a position of the feed, at once or as soon as something has.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{HeaderName, HeaderValue, header},
};
use nameservice_http::{
    Problem, Route,
    extract::{Allowed, Query, Read},
    page,
    shapes::{
        Kind,
        changes::{Change, ChangedPart, Changes, Filter},
    },
};
use nameservice_model::{self as model, ChangeFeed, Limit, Run};
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use utoipa::IntoParams;
use utoipa_axum::routes;

nameservice_http::refusals!(READS; InvalidParameter Expired);

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;
/// The longest wait, in seconds: a gateway gives an answer up after 30.
const MAX_WAIT: u64 = 20;
/// How many changes are looked at together where not all are wanted.
const SCAN: usize = 1000;
/// How many times one look asks the feed.
const SCANS: usize = 5;
/// Between two looks that found nothing: a busy feed moves more often than it is worth looking.
const PAUSE: Duration = Duration::from_millis(100);

/// The same URL is asked again and again, and its answer changes by the moment: a cache that keeps answers for a time
/// of its own choosing, as content networks do with those that say nothing, would hold a reader up.
const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// The position up to which everything is known: that of the last answer, or of a snapshot. 0 is before the first.
    #[serde(default)]
    #[param(default = 0, format = "uint64")]
    after: u64,
    /// How many at most.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
    /// How many seconds to wait where nothing that is wanted follows yet.
    #[serde(default)]
    #[param(minimum = 0, maximum = 20, default = 0)]
    wait: u64,
    /// Only changes of this record, or of those that match a glob: `mydb:*`, `tenant/a/*`. May be repeated.
    #[serde(default)]
    #[param(example = json!(["mydb:*"]))]
    address: Vec<String>,
    /// Only changes of this kind of record.
    #[param(inline)]
    kind: Option<Kind>,
    /// Only changes of this part of a record. May be repeated.
    #[serde(default)]
    #[param(inline)]
    concern: Vec<ChangedPart>,
}

/// List changes
///
/// The changes that follow a position, in one order for all readers, without a gap and each once. Whoever goes on from
/// the `position` of the answer misses nothing: filters and what the caller may not see leave changes out, and the
/// position still moves over them. While it moves there may be more, also where `changes` is empty.
///
/// Changes expire, after 7 days unless configured otherwise. A reader that is behind the oldest one gets a 410 with
/// `oldest`, reads `/v1/snapshot`, and goes on from the position of that.
#[utoipa::path(
    get,
    path = "/v1/changes",
    tag = "changes",
    params(Parameters),
    responses((status = OK, description = "What follows the position", body = Changes), Refusals),
    security(("bearer" = [])),
)]
async fn change_list(
    State(feed): State<Arc<dyn ChangeFeed>>,
    caller: Allowed<Read>,
    Query(parameters): Query<Parameters>,
) -> Result<([(HeaderName, HeaderValue); 1], Json<Changes>), Problem> {
    let limit = page::limit(parameters.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    if parameters.wait > MAX_WAIT {
        return Err(Problem::invalid_parameter("wait", format!("must be between 0 and {MAX_WAIT}")));
    }
    let until = Instant::now() + Duration::from_secs(parameters.wait);
    let left = || until.saturating_duration_since(Instant::now());
    let filter = Filter::new(parameters.address, parameters.kind, parameters.concern)?;
    let wants = |change: &model::Change| filter.wants(change) && caller.sees(&change.address);

    let mut found = look(feed.as_ref(), parameters.after, limit, wants).await?;
    while found.is_the_end && found.changes.is_empty() && !left().is_zero() {
        feed.wait(found.position, left()).await?;
        let next = look(feed.as_ref(), found.position, limit, wants).await?;
        if next.changes.is_empty() {
            sleep(PAUSE.min(left())).await;
        }
        found = next;
    }
    Ok(([NO_STORE], Json(Changes { changes: found.changes, position: found.position })))
}

/// What a look at the feed has found.
struct Found {
    changes: Vec<Change>,
    /// The last position that was looked at.
    position: u64,
    /// Nothing follows it yet.
    is_the_end: bool,
}

/// Looks for changes that are wanted, until there are enough, an answer is full, the feed ends, or it was looked long
/// enough.
async fn look(
    feed: &dyn ChangeFeed,
    after: u64,
    limit: Limit,
    wants: impl Fn(&model::Change) -> bool,
) -> Result<Found, Problem> {
    let mut found = Found { changes: Vec::new(), position: after, is_the_end: false };
    let (mut room, mut all_wanted) = (page::Room::default(), true);
    for _ in 0..SCANS {
        // As long as everything is wanted, nothing is read in vain.
        let count = if all_wanted { limit.get() - found.changes.len() } else { SCAN };
        let changes = match feed.changes(found.position, Limit::new(count).unwrap_or_default()).await? {
            Run::Changes(changes) => changes,
            Run::Gone { oldest } if found.position == after => return Err(Problem::expired(after, oldest)),
            // What follows has expired meanwhile: the next request is told so.
            Run::Gone { .. } => return Ok(found),
        };
        found.is_the_end = changes.is_empty();
        for change in &changes {
            if wants(change) {
                let change = Change::from(change);
                if !room.takes(&change)? {
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
        // What is there is given at once, where the feed seems to end; where it only seemed so, the reader goes on.
        if found.is_the_end || changes.len() < count && !found.changes.is_empty() {
            break;
        }
    }
    Ok(found)
}

/// The room's one door.
pub fn route() -> Route {
    Route::new().routes(routes!(change_list))
}
