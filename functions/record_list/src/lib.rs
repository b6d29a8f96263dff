//! `GET /v1/records`: pages of records, by kind, name, type or state.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    Problem, Route,
    extract::{Allowed, Query, Read},
    freshness::{Deadline, Freshness},
    page,
    shapes::{Kind, Listed, Page},
};
use nameservice_model::{self as model, ChangeFeed, ListQuery, NameService};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

nameservice_http::rejections!(READS; InvalidParameter InvalidCursor NotYet);

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

#[derive(Clone, Copy, Default, PartialEq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum View {
    #[default]
    Summary,
    Full,
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Only this kind.
    #[param(inline)]
    kind: Option<Kind>,
    /// Only the branches of this name.
    name: Option<String>,
    /// Only addresses that begin with this: `tenant/a/`.
    #[param(max_length = 1000, example = "tenant/a/")]
    prefix: Option<String>,
    /// Only graph sources of this type.
    source_type: Option<String>,
    /// Only records in this state.
    state: Option<String>,
    /// Only retracted, or only live records.
    retracted: Option<bool>,
    /// `full` shows whole records.
    #[serde(default)]
    #[param(inline)]
    view: View,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
    /// The `cursor` of the previous page, to continue after it.
    cursor: Option<String>,
    /// The answer must include the change at this position of the feed.
    min_position: Option<u64>,
    /// How many seconds to wait until the answer is that fresh.
    #[param(minimum = 0, maximum = 20, default = 0)]
    wait: Option<u64>,
}

impl Parameters {
    fn into_query(self) -> Result<ListQuery, Problem> {
        Ok(ListQuery {
            kind: self.kind,
            name: self.name,
            prefix: page::prefix(self.prefix)?,
            source_type: self.source_type,
            state: self.state,
            retracted: self.retracted,
            full: self.view == View::Full,
            limit: page::limit(self.limit, DEFAULT_LIMIT, MAX_LIMIT)?,
            cursor: page::list_cursor(self.cursor.as_deref())?,
        })
    }
}

/// List records
///
/// Reads the indexes of the table: a record that was created a moment ago may be missing. Each whole record of
/// `view=full` is as it was when the page was read.
#[utoipa::path(
    get,
    path = "/v1/records",
    tag = "records",
    params(Parameters),
    responses((status = OK, description = "A page of records", body = Page<Listed>), Rejections),
    security(("bearer" = [])),
)]
async fn record_list(
    State(names): State<Arc<dyn NameService>>,
    State(feed): State<Arc<dyn ChangeFeed>>,
    caller: Allowed<Read>,
    deadline: Deadline,
    Query(parameters): Query<Parameters>,
) -> Result<Json<Page<Listed>>, Problem> {
    let freshness = Freshness::of_position(parameters.min_position, parameters.wait, deadline)?;
    let query = parameters.into_query()?;
    let visible = |address: &_| caller.sees(address);
    let found = freshness.read(feed.as_ref(), || names.list(&query, &visible), |_| None).await?;
    let shown = |listed| match listed {
        model::Listed::Full(record) => model::Listed::Full(Box::new(caller.shown(*record))),
        summary => summary,
    };
    let items = found.items.into_iter().map(shown).collect();
    let (records, cursor) = page::fit(items, found.cursor, model::Listed::cursor, |listed| listed.into())?;
    Ok(Json(Page { records, cursor }))
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(record_list))
}
