//! `GET /v1/branches/{name}`: the branches of a ledger's name.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    Problem, Route,
    extract::{Allowed, Query, Read, Rest},
    page,
    shapes::Record,
};
use nameservice_model::{self as model, Address, ListQuery, Listed, NameService, RecordKind};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

nameservice_http::rejections!(READS; InvalidAddress InvalidParameter InvalidCursor UnknownRecord);

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u64>,
    /// The `cursor` of the previous page, to continue after it.
    cursor: Option<String>,
}

/// A page of branches.
#[derive(Serialize, ToSchema)]
struct Branches {
    /// The branches of this page.
    branches: Vec<Record>,
    /// Send it as `cursor` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// List the branches of a name
///
/// Reads an index: a branch that was created a moment ago may be missing.
#[utoipa::path(
    get,
    path = "/v1/branches/{*address}",
    tag = "branches",
    params(
        ("address" = String, Path, description = "The name that the branches share, without a branch", example = "mydb"),
        Parameters,
    ),
    responses((status = OK, description = "A page of branches", body = Branches), Rejections),
    security(("bearer" = [])),
)]
async fn branch_list(
    State(names): State<Arc<dyn NameService>>,
    caller: Allowed<Read>,
    Rest(name): Rest,
    Query(parameters): Query<Parameters>,
) -> Result<Json<Branches>, Problem> {
    // A name is valid if it makes a valid address.
    Address::from_parts(&name, "main").map_err(Problem::invalid_address)?;
    let query = ListQuery {
        kind: Some(RecordKind::Ledger),
        name: Some(name.clone()),
        full: true,
        limit: page::limit(parameters.limit, DEFAULT_LIMIT, MAX_LIMIT)?,
        cursor: page::list_cursor(parameters.cursor.as_deref())?,
        ..ListQuery::default()
    };
    let found = names.list(&query, &|address| caller.sees(address)).await?;
    if found.items.is_empty() && found.cursor.is_none() && query.cursor.is_none() {
        return Err(Problem::unknown_name(&name));
    }
    let whole = |listed| match listed {
        Listed::Full(record) => Some(caller.shown(*record)),
        Listed::Summary(_) => None,
    };
    let records: Vec<_> = found.items.into_iter().filter_map(whole).collect();
    let of = |record: &model::Record| Listed::Full(Box::new(record.clone())).cursor();
    let (branches, cursor) = page::fit(records, found.cursor, of, |record| record.into())?;
    Ok(Json(Branches { branches, cursor }))
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(branch_list))
}
