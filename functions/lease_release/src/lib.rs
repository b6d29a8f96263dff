//! `DELETE /v1/leases/{address}`: gives a lease back.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{Query, Target, Write},
    shapes::leases::{Lease, Return},
};
use nameservice_model::{LeasePublisher, Released};
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES; InvalidAddress InvalidParameter UnknownRecord LeaseLost Retracted);

/// Release a lease
///
/// The state becomes `ready`. Rejected unless the token is the current one.
#[utoipa::path(
    delete,
    path = "/v1/leases/{*address}",
    tag = "leases",
    params(AddressInPath, Return, IdempotencyKey),
    responses((status = NO_CONTENT, description = "The lease is free"), Rejections),
    security(("bearer" = [])),
)]
async fn lease_release(
    State(leases): State<Arc<dyn LeasePublisher>>,
    target: Target<Write>,
    Query(given): Query<Return>,
) -> Result<StatusCode, Problem> {
    match leases.release_lease(target.call(), target.address(), &given.into_claim()?).await? {
        Released::Released => Ok(StatusCode::NO_CONTENT),
        Released::Lost { lease } => Err(Problem::lease_lost(target.address(), lease.map(Lease::from).as_ref())),
        Released::Unknown => Err(target.unknown()),
        Released::Retracted => Err(Problem::retracted(target.address())),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(lease_release))
}
