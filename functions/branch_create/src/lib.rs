//! `POST /v1/branches`: creates a branch of a ledger.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use nameservice_http::{
    AllowForeign, IdempotencyKey, Problem, Route,
    extract::{Allowed, Body, Write},
    respond,
    shapes::{self, requests::NewBranch},
};
use nameservice_model::{BranchCreated, Publisher};
use utoipa_axum::routes;

nameservice_http::rejections!(
    READS WRITES TAKES_BODY;
    InvalidAddress InvalidContentId NotFluree UnknownRecord UnknownSource AlreadyExists UnbornSource
);

/// Create a branch
///
/// It starts at the head of its source, or at the commit given. The source, which must be live and have a commit,
/// cannot be retracted while the branch exists.
#[utoipa::path(
    post,
    path = "/v1/branches",
    tag = "branches",
    params(IdempotencyKey, AllowForeign),
    request_body = NewBranch,
    responses(
        (status = CREATED, description = "The branch", body = shapes::Record,
            headers(("Location", description = "Where the record is"))),
        Rejections,
    ),
    security(("bearer" = [])),
)]
async fn branch_create(
    State(ledgers): State<Arc<dyn Publisher>>,
    caller: Allowed<Write>,
    Body(body): Body<NewBranch>,
) -> Result<Response, Problem> {
    let new = body.into_model()?;
    let target = caller.target(new.branch)?;
    if !target.sees(&new.source) {
        return Err(Problem::unknown_source(&new.source));
    }
    match ledgers.create_branch(target.call(), target.address(), &new.source, new.at.as_ref()).await? {
        BranchCreated::Created(record) => Ok(respond::created(&record)),
        BranchCreated::AlreadyExists => Err(Problem::already_exists(target.address())),
        BranchCreated::UnknownSource => Err(Problem::unknown_source(&new.source)),
        BranchCreated::UnbornSource => Err(Problem::unborn_source(&new.source)),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(branch_create))
}
