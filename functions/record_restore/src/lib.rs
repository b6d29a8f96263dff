//! `POST /v1/restorations/{address}`: undoes a retraction.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{Target, Write},
    respond, shapes,
};
use nameservice_model::{Publisher, Restored};
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES; InvalidAddress UnknownRecord);

/// Restore a record
///
/// It is live again, in the state `ready`. Restoring a live record changes nothing.
#[utoipa::path(
    post,
    path = "/v1/restorations/{*address}",
    tag = "lifecycle",
    params(AddressInPath, IdempotencyKey),
    responses(
        (status = OK, description = "The record, live", body = shapes::Record,
            headers(("nameservice-unchanged", description = "Present if it was live already"))),
        Rejections,
    ),
    security(("bearer" = [])),
)]
async fn record_restore(State(records): State<Arc<dyn Publisher>>, target: Target<Write>) -> Result<Response, Problem> {
    match records.restore(target.call(), target.address()).await? {
        Restored::Restored(record) => Ok(Json(shapes::Record::from(record.as_ref())).into_response()),
        Restored::NotRetracted(record) => Ok(respond::unchanged(&record)),
        Restored::Unknown => Err(target.unknown()),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(record_restore))
}
