//! `PUT /v1/statuses/{address}`: change the status of a record.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{Body, Target, Write},
    respond,
    shapes::{PushAnswer, Status, requests::StatusPush},
};
use nameservice_model::StatusPublisher;
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES TAKES_BODY; InvalidAddress UnknownRecord Conflict WrongKind LeaseLost Retracted);

/// Change the status of a record
///
/// `expected` names the stored `v`, and optionally the state or payload. The new payload replaces the old one, except for
/// a lease, which has operations of its own.
#[utoipa::path(
    put,
    path = "/v1/statuses/{*address}",
    tag = "pushes",
    params(AddressInPath, IdempotencyKey),
    request_body = StatusPush,
    responses((status = OK, description = "The outcome, and the stored value", body = PushAnswer<Status>), Rejections),
    security(("bearer" = [])),
)]
async fn status_push(
    State(records): State<Arc<dyn StatusPublisher>>,
    target: Target<Write>,
    Body(body): Body<StatusPush>,
) -> Result<Json<PushAnswer<Status>>, Problem> {
    let push = body.into_push()?;
    let outcome = records.push_status(target.call(), target.address(), &push).await?;
    respond::pushed(&target, outcome)
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(status_push))
}
