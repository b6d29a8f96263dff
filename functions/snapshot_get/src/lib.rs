//! `GET /v1/snapshot`: all records, consistently read, in pages.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    Problem, Route,
    extract::{Allowed, Query, Read},
    freshness::{Deadline, Freshness},
    page,
    shapes::Record,
};
use nameservice_model::{Address, ChangeFeed, Cursor, InvalidCursor, NameService};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

nameservice_http::rejections!(READS; InvalidParameter InvalidCursor NotYet);

const DEFAULT_LIMIT: usize = 1000;
const MAX_LIMIT: usize = 1000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    limit: Option<u64>,
    /// Only addresses that begin with this: `tenant/a/`. Send it with every page.
    #[param(max_length = 1000, example = "tenant/a/")]
    prefix: Option<String>,
    /// The `cursor` of the previous page, to continue after it.
    cursor: Option<String>,
    /// The answer must include the change at this position of the feed.
    min_position: Option<u64>,
    /// How many seconds to wait until the answer is that fresh.
    #[param(minimum = 0, maximum = 20, default = 0)]
    wait: Option<u64>,
}

/// A page of a snapshot.
#[derive(Serialize, ToSchema)]
struct SnapshotPage {
    /// The position of the change feed before the first page was read: follow the feed from here.
    position: u64,
    /// The records of this page.
    records: Vec<Record>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// Get a snapshot
///
/// Every record that exists throughout the scan is on exactly one page, as it was when that page was read.
#[utoipa::path(
    get,
    path = "/v1/snapshot",
    tag = "records",
    params(Parameters),
    responses((status = OK, description = "A page of the snapshot", body = SnapshotPage), Rejections),
    security(("bearer" = [])),
)]
async fn snapshot_get(
    State(names): State<Arc<dyn NameService>>,
    State(feed): State<Arc<dyn ChangeFeed>>,
    caller: Allowed<Read>,
    deadline: Deadline,
    Query(parameters): Query<Parameters>,
) -> Result<Json<SnapshotPage>, Problem> {
    let limit = page::limit(parameters.limit, DEFAULT_LIMIT, MAX_LIMIT)?;
    let prefix = page::prefix(parameters.prefix)?;
    let freshness = Freshness::of_position(parameters.min_position, parameters.wait, deadline)?;
    freshness.read(feed.as_ref(), || async { Ok(()) }, |()| None).await?;
    let mut after = page::cursor(parameters.cursor.as_deref())?;
    // A cursor of a list does not say when a snapshot began.
    if after.as_ref().is_some_and(|cursor| cursor.position().is_none()) {
        return Err(Problem::invalid_cursor(&InvalidCursor));
    }
    // Taken before the first read and kept in the cursor: changes during the scan are in the feed after it.
    let position = match after.as_ref().and_then(Cursor::position) {
        Some(position) => position,
        None => feed.position().await?,
    };
    let visible = |address: &Address| {
        prefix.as_ref().is_none_or(|prefix| address.as_str().starts_with(prefix)) && caller.sees(address)
    };
    let mut found = names.snapshot(limit, after.as_ref(), &visible).await?;
    // A page without visible records is skipped, since a cursor of this route names a record that was shown.
    while found.items.is_empty() && found.cursor.is_some() {
        after = found.cursor;
        found = names.snapshot(limit, after.as_ref(), &visible).await?;
    }
    let is_older = found.cursor.as_ref().is_some_and(Cursor::is_older);
    let cursor_at = |record: &nameservice_model::Record| Cursor::in_snapshot(record, position).older(is_older);
    let next = found.items.last().filter(|_| found.cursor.is_some()).map(cursor_at);
    let items = found.items.into_iter().map(|record| caller.shown(record)).collect();
    let (records, cursor) = page::fit(items, next, cursor_at, |record| record.into())?;
    Ok(Json(SnapshotPage { position, records, cursor }))
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(snapshot_get))
}
