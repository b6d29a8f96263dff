//! `POST /v1/restorations/{address}`: undoes a retraction.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{Target, Write},
    shapes,
};
use nameservice_model::{Publisher, Restored};
use utoipa_axum::routes;

nameservice_http::refusals!(READS WRITES; InvalidAddress UnknownRecord);

/// Restore a record
///
/// It is live again, in the state `ready`. Restoring a live record changes nothing.
#[utoipa::path(
    post,
    path = "/v1/restorations/{*address}",
    tag = "lifecycle",
    params(AddressInPath, IdempotencyKey),
    responses((status = OK, description = "The record, live", body = shapes::Record), Refusals),
    security(("bearer" = [])),
)]
async fn record_restore(
    State(records): State<Arc<dyn Publisher>>,
    target: Target<Write>,
) -> Result<Json<shapes::Record>, Problem> {
    match records.restore(target.call(), target.address()).await? {
        Restored::Restored(record) | Restored::NotRetracted(record) => Ok(Json(record.as_ref().into())),
        Restored::Unknown => Err(target.unknown()),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(record_restore))
}
