//! `PUT /v1/configs/{address}`: change the configuration of a ledger.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{Body, Target, Write},
    respond,
    shapes::{Config, PushAnswer, requests::ConfigPush},
};
use nameservice_model::ConfigPublisher;
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES TAKES_BODY; InvalidAddress InvalidContentId UnknownRecord Conflict WrongKind LeaseLost Retracted);

/// Change the configuration of a ledger
///
/// `expected` names the stored `v`. The configuration of a graph source is changed by publishing it.
#[utoipa::path(
    put,
    path = "/v1/configs/{*address}",
    tag = "pushes",
    params(AddressInPath, IdempotencyKey),
    request_body = ConfigPush,
    responses((status = OK, description = "The outcome, and the stored value", body = PushAnswer<Config>), Rejections),
    security(("bearer" = [])),
)]
async fn config_push(
    State(records): State<Arc<dyn ConfigPublisher>>,
    target: Target<Write>,
    Body(body): Body<ConfigPush>,
) -> Result<Json<PushAnswer<Config>>, Problem> {
    let push = body.into_push()?;
    let outcome = records.push_config(target.call(), target.address(), &push).await?;
    respond::pushed(&target, outcome)
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(config_push))
}
