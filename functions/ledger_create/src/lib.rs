//! `POST /v1/ledgers`: creates a ledger, with a head and a configuration if they are given.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use nameservice_http::{
    AllowForeign, IdempotencyKey, Problem, Route,
    extract::{Allowed, Body, Write},
    respond,
    shapes::{self, requests::NewLedger},
};
use nameservice_model::{Created, Publisher};
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES TAKES_BODY; InvalidAddress InvalidContentId NotFluree UnknownRecord AlreadyExists);

/// Create a ledger
///
/// The ledger and its four concerns are created together or not at all. A retracted ledger still occupies its address:
/// restore or purge it.
#[utoipa::path(
    post,
    path = "/v1/ledgers",
    tag = "records",
    params(IdempotencyKey, AllowForeign),
    request_body = NewLedger,
    responses(
        (status = CREATED, description = "The ledger", body = shapes::Record,
            headers(("Location", description = "Where the record is"))),
        Rejections,
    ),
    security(("bearer" = [])),
)]
async fn ledger_create(
    State(ledgers): State<Arc<dyn Publisher>>,
    caller: Allowed<Write>,
    Body(body): Body<NewLedger>,
) -> Result<Response, Problem> {
    let new = body.into_model()?;
    let target = caller.target(new.address.clone())?;
    match ledgers.create(target.call(), &new).await? {
        Created::Created(record) => Ok(respond::created(&record)),
        Created::AlreadyExists => Err(Problem::already_exists(target.address())),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(ledger_create))
}
