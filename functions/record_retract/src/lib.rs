//! `POST /v1/retractions/{address}`: soft-deletes a record.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{OptionalBody, Target, Write},
    respond,
    shapes::{self, requests::Retraction},
};
use nameservice_model::{Publisher, Retracted};
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES TAKES_BODY; InvalidAddress UnknownRecord HasDependents Protected);

/// Retract a record
///
/// It stays readable, and rejects every push until it is restored. Rejected while branches or graph sources depend on
/// it, and while it is protected. Retracting a retracted record changes nothing.
#[utoipa::path(
    post,
    path = "/v1/retractions/{*address}",
    tag = "lifecycle",
    params(AddressInPath, IdempotencyKey),
    request_body = Option<Retraction>,
    responses(
        (status = OK, description = "The record, retracted", body = shapes::Record,
            headers(("nameservice-unchanged", description = "Present if it was retracted already"))),
        Rejections,
    ),
    security(("bearer" = [])),
)]
async fn record_retract(
    State(records): State<Arc<dyn Publisher>>,
    target: Target<Write>,
    OptionalBody(body): OptionalBody<Retraction>,
) -> Result<Response, Problem> {
    let reason = body.into_reason()?;
    match records.retract(target.call(), target.address(), reason.as_deref()).await? {
        Retracted::Retracted(record) => Ok(Json(shapes::Record::from(record.as_ref())).into_response()),
        Retracted::Already(record) => Ok(respond::unchanged(&record)),
        Retracted::Protected => Err(Problem::protected(target.address())),
        Retracted::HasDependents => Err(respond::has_dependents(&target, &*records).await),
        Retracted::Unknown => Err(target.unknown()),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(record_retract))
}
