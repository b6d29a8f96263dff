//! `GET /v1/history/{address}`: the changes of one record that the feed still holds.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    AddressInPath, Problem, Route,
    extract::{Query, Read, Target},
    page,
    shapes::changes::{Change, ChangedPart, History, HistoryOrder},
};
use nameservice_model::{ChangeFeed, HistoryQuery, Limit, NameService};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

nameservice_http::rejections!(READS; InvalidAddress InvalidParameter UnknownRecord FeedUnavailable);

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Only changes of this part of the record.
    #[param(inline)]
    concern: Option<ChangedPart>,
    /// Only changes after this position.
    #[serde(default)]
    #[param(default = 0, format = "uint64")]
    after: u64,
    /// Only changes before this position.
    #[param(format = "uint64")]
    before: Option<u64>,
    /// Which change comes first.
    #[serde(default)]
    #[param(inline)]
    order: HistoryOrder,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
}

/// List the history of a record
///
/// Goes back as far as the feed does, which is 7 days unless configured otherwise, or as far as its archive. The changes
/// of a purged record are included.
#[utoipa::path(
    get,
    path = "/v1/history/{*address}",
    tag = "changes",
    params(AddressInPath, Parameters),
    responses((status = OK, description = "A page of its changes", body = History), Rejections),
    security(("bearer" = [])),
)]
async fn history_list(
    State(feed): State<Arc<dyn ChangeFeed>>,
    State(names): State<Arc<dyn NameService>>,
    target: Target<Read>,
    Query(parameters): Query<Parameters>,
) -> Result<Json<History>, Problem> {
    let query = HistoryQuery {
        after: parameters.after,
        before: parameters.before,
        newest_first: parameters.order == HistoryOrder::Newest,
        part: parameters.concern.map(Into::into),
        limit: page::limit(parameters.limit, DEFAULT_LIMIT, MAX_LIMIT)?,
    };
    Problem::unless_followed(feed.as_ref())?;
    let found = feed.history(target.address(), &query).await?;
    if found.changes.is_empty()
        && found.more_after.is_none()
        && names.lookup(target.address()).await?.is_none()
        && !has_history(feed.as_ref(), &target).await?
    {
        return Err(target.unknown());
    }
    let (mut changes, mut position) = (Vec::with_capacity(found.changes.len()), found.more_after);
    let mut budget = page::Budget::default();
    for change in &found.changes {
        let shown = Change::from(change);
        if !budget.admits(&shown)? {
            position = changes.last().map(|last: &Change| last.position);
            break;
        }
        changes.push(shown);
    }
    Ok(Json(History { changes, position }))
}

/// Returns whether the feed holds changes of a record that no longer exists.
async fn has_history(feed: &dyn ChangeFeed, target: &Target<Read>) -> Result<bool, Problem> {
    let any = HistoryQuery { limit: Limit::ONE, ..HistoryQuery::default() };
    Ok(!feed.history(target.address(), &any).await?.changes.is_empty())
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(history_list))
}
