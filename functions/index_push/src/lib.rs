//! `PUT /v1/indexes/{address}`: move the index of a record.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    AddressInPath, AllowForeign, IdempotencyKey, Problem, Route,
    auth::Scope,
    extract::{Body, Target, Write},
    respond,
    shapes::{Index, PushAnswer, requests::IndexPush},
};
use nameservice_model::RefPublisher;
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES TAKES_BODY; InvalidAddress InvalidContentId NotFluree UnknownRecord Conflict WrongKind LeaseLost Retracted);

/// Move the index of a record
///
/// Works like a push of the head, except that with `expected` the new `t` may equal the expected one: the same data, indexed
/// again, which adds 1 to `rev`. Each named graph has its own index; those that a push does not name stay as they are.
#[utoipa::path(
    put,
    path = "/v1/indexes/{*address}",
    tag = "pushes",
    params(AddressInPath, IdempotencyKey, AllowForeign),
    request_body = IndexPush,
    responses((status = OK, description = "The outcome, and the stored value", body = PushAnswer<Index>), Rejections),
    security(("bearer" = [])),
)]
async fn index_push(
    State(records): State<Arc<dyn RefPublisher>>,
    target: Target<Write>,
    Body(body): Body<IndexPush>,
) -> Result<Json<PushAnswer<Index>>, Problem> {
    let push = body.into_push()?;
    if push.allows_equal() {
        target.require(Scope::Admin)?;
    }
    let outcome = records.push_index(target.call(), target.address(), &push).await?;
    respond::pushed(&target, outcome)
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(index_push))
}
