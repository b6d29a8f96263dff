//! `PUT /v1/leases/{address}`: takes a lease of a record, or extends one.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{Body, Target, Write},
    shapes::leases::{Held, Lease, Wanted},
};
use nameservice_model::{LeasePublisher, Leased};
use utoipa_axum::routes;

nameservice_http::refusals!(
    READS WRITES TAKES_BODY;
    InvalidAddress UnknownRecord LeaseHeld LeaseLost Retracted
);

/// Take or extend a lease
///
/// A record has one live lease at most. Without `token` it is taken, if it is free, expired, or held under the same
/// holder name already; the answer's `token` is greater than all before it, and the state becomes that of the lease.
/// With `token` it is extended, as long as that token is the current one.
#[utoipa::path(
    put,
    path = "/v1/leases/{*address}",
    tag = "leases",
    params(AddressInPath, IdempotencyKey),
    request_body = Wanted,
    responses((status = OK, description = "The lease is held", body = Held), Refusals),
    security(("bearer" = [])),
)]
async fn lease_acquire(
    State(leases): State<Arc<dyn LeasePublisher>>,
    target: Target<Write>,
    Body(wanted): Body<Wanted>,
) -> Result<Json<Held>, Problem> {
    let (request, token) = wanted.into_request()?;
    let leased = match token {
        None => leases.acquire_lease(target.call(), target.address(), &request).await?,
        Some(token) => leases.refresh_lease(target.call(), target.address(), &request, token).await?,
    };
    match leased {
        Leased::Held(held) => Ok(Json(held.into())),
        Leased::Busy(lease) => Err(Problem::lease_held(target.address(), &lease.into())),
        Leased::Lost { lease } => Err(Problem::lease_lost(target.address(), lease.map(Lease::from).as_ref())),
        Leased::Unknown => Err(target.unknown()),
        Leased::Retracted => Err(Problem::retracted(target.address())),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(lease_acquire))
}
