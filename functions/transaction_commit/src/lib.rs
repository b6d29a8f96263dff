//! `POST /v1/transactions`: several pushes and checks, all or none.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    AllowForeign, IdempotencyKey, Problem, Route,
    auth::Scope,
    extract::{Allowed, Body, Write},
    shapes::transactions::{Transaction, TransactionAnswer},
};
use nameservice_model::{
    Committed, ConcernState, Operation, OperationKind, OperationOutcome, TransactionPublisher, redact,
};
use utoipa_axum::routes;

nameservice_http::rejections!(
    READS WRITES TAKES_BODY;
    InvalidAddress InvalidContentId NotFluree UnknownRecord TransactionRejected
);

/// Commit a transaction
///
/// Up to 48 pushes and checks over any records, no two about the same concern of the same record. Either all are
/// applied, or none is, and `results` shows the outcome of each.
#[utoipa::path(
    post,
    path = "/v1/transactions",
    tag = "transactions",
    params(IdempotencyKey, AllowForeign),
    request_body = Transaction,
    responses((status = OK, description = "All were applied", body = TransactionAnswer), Rejections),
    security(("bearer" = [])),
)]
async fn transaction_commit(
    State(store): State<Arc<dyn TransactionPublisher>>,
    caller: Allowed<Write>,
    Body(transaction): Body<Transaction>,
) -> Result<Json<TransactionAnswer>, Problem> {
    let transaction = transaction.into_model()?;
    for operation in transaction.operations() {
        caller.check(caller.at_least(needed(operation)), &operation.address)?;
    }
    let mut outcome = store.commit(caller.call(), &transaction).await?;
    if let Committed::Rejected(outcomes) = &mut outcome {
        // A check requires a lesser scope than a push, so a config that it shows is redacted for callers who may not see secrets.
        for (operation, outcome) in transaction.operations().iter().zip(outcomes) {
            if let OperationOutcome::Conflict { actual: Some(ConcernState::Config(config)) } = outcome
                && let Some(payload) = config.payload.as_mut().filter(|_| !caller.sees_secrets(&operation.address))
            {
                redact(payload);
            }
        }
    }
    TransactionAnswer::from_outcome(outcome).map(Json).map_err(|results| Problem::transaction_rejected(&results))
}

/// Returns the scope that an operation requires: that of its own route.
fn needed(operation: &Operation) -> Scope {
    match &operation.action {
        OperationKind::PushIndex(push) if push.allows_equal() => Scope::Admin,
        // A check of a config that not every caller sees whole would find its secrets by guessing.
        OperationKind::Check(ConcernState::Config(config)) if config.payload.is_some() => Scope::Write,
        OperationKind::Check(_) => Scope::Read,
        _ => Scope::Write,
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(transaction_commit))
}
