//! `DELETE /v1/records/{address}`: deletes a record permanently.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{Admin, Target},
    respond,
};
use nameservice_model::{AdminPublisher, Purged};
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES; InvalidAddress UnknownRecord HasDependents Protected);

/// Purge a record
///
/// Requires `nameservice:admin`. The record is deleted, and no longer counted by the records that it refers to. Rejected while
/// branches or graph sources depend on it, and while it is protected. A purge that was interrupted is finished by the next.
#[utoipa::path(
    delete,
    path = "/v1/records/{*address}",
    tag = "lifecycle",
    params(AddressInPath, IdempotencyKey),
    responses((status = NO_CONTENT, description = "It is gone"), Rejections),
    security(("bearer" = [])),
)]
async fn record_purge(
    State(records): State<Arc<dyn AdminPublisher>>,
    target: Target<Admin>,
) -> Result<StatusCode, Problem> {
    match records.purge(target.call(), target.address()).await? {
        Purged::Purged => Ok(StatusCode::NO_CONTENT),
        Purged::Protected => Err(Problem::protected(target.address())),
        Purged::HasDependents => Err(respond::has_dependents(&target, &*records).await),
        Purged::Unknown => Err(target.unknown()),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(record_purge))
}
