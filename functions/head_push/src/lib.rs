//! `PUT /v1/heads/{address}`: move the head of a ledger.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    AddressInPath, AllowForeign, IdempotencyKey, Problem, Route,
    extract::{Body, Target, Write},
    respond,
    shapes::{Head, PushAnswer, requests::HeadPush},
};
use nameservice_model::RefPublisher;
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES TAKES_BODY; InvalidAddress InvalidContentId NotFluree UnknownRecord Conflict WrongKind LeaseLost Retracted);

/// Move the head of a ledger
///
/// Without `expected`, a `t` that is not greater than the stored one is `stale`. With it, any other stored value is a
/// conflict, as is a new `t` that is not greater than the expected one. `expected: null` creates the ledger. If the
/// outcome is `stale` or a conflict, nothing was written, and the response has the stored value.
#[utoipa::path(
    put,
    path = "/v1/heads/{*address}",
    tag = "pushes",
    params(AddressInPath, IdempotencyKey, AllowForeign),
    request_body = HeadPush,
    responses((status = OK, description = "The outcome, and the stored value", body = PushAnswer<Head>), Rejections),
    security(("bearer" = [])),
)]
async fn head_push(
    State(records): State<Arc<dyn RefPublisher>>,
    target: Target<Write>,
    Body(body): Body<HeadPush>,
) -> Result<Json<PushAnswer<Head>>, Problem> {
    let push = body.into_push()?;
    let outcome = records.push_head(target.call(), target.address(), &push).await?;
    respond::pushed(&target, outcome)
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(head_push))
}
