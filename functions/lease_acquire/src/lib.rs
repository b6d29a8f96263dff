//! `PUT /v1/leases/{address}`: takes a lease of a record, or extends one.

use std::{sync::Arc, time::Duration};

use axum::{Json, extract::State};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route, Shutdown,
    extract::{Body, Query, Target, Write},
    shapes::leases::{Held, Lease, Wanted},
};
use nameservice_model::{LeasePublisher, Leased};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;
use utoipa_axum::routes;

nameservice_http::rejections!(
    READS WRITES TAKES_BODY;
    InvalidAddress InvalidParameter UnknownRecord LeaseHeld LeaseLost Retracted
);

/// The longest wait, in seconds: a gateway gives an answer up after 30.
const MAX_WAIT: u64 = 20;
/// How long a waiting caller pauses between two attempts. Each is one request to the store.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// How many seconds to wait for a lease that another holder has.
    #[serde(default)]
    #[param(minimum = 0, maximum = 20, default = 0)]
    wait: u64,
}

/// Take or extend a lease
///
/// A record has at most one live lease. Without `token`, the lease is taken if it is free, expired, or already held under
/// the same holder name; the answer's `token` is greater than all previous ones, and the state becomes that of the lease.
/// With `token`, the lease is extended, as long as that token is the current one.
///
/// With `wait`, the service retries until the lease is free or the time has passed. If several callers wait, any of them
/// may be next.
#[utoipa::path(
    put,
    path = "/v1/leases/{*address}",
    tag = "leases",
    params(AddressInPath, Parameters, IdempotencyKey),
    request_body = Wanted,
    responses((status = OK, description = "The lease is held", body = Held), Rejections),
    security(("bearer" = [])),
)]
async fn lease_acquire(
    State(leases): State<Arc<dyn LeasePublisher>>,
    State(shutdown): State<Shutdown>,
    target: Target<Write>,
    Query(parameters): Query<Parameters>,
    Body(wanted): Body<Wanted>,
) -> Result<Json<Held>, Problem> {
    if parameters.wait > MAX_WAIT {
        return Err(Problem::invalid_parameter("wait", format!("must be between 0 and {MAX_WAIT}")));
    }
    let wait = Duration::from_secs(parameters.wait);
    let left = target.at_most(wait);
    // A token that ends during the wait takes no lease.
    let ends_with_token = left < wait;
    let until = Instant::now() + left;
    let (request, token) = wanted.into_request()?;
    let leased = loop {
        let leased = match token {
            None => leases.acquire_lease(target.call(), target.address(), &request).await?,
            Some(token) => leases.refresh_lease(target.call(), target.address(), &request, token).await?,
        };
        let now = Instant::now();
        if !matches!(leased, Leased::Busy(_)) || now >= until {
            break leased;
        }
        if ends_with_token && now + PAUSE >= until {
            sleep_until(until).await;
            break leased;
        }
        tokio::select! {
            () = sleep_until(until.min(now + PAUSE)) => {}
            () = shutdown.begun() => break leased,
        }
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
