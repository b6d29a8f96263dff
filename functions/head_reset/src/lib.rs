//! `POST /v1/resets/{address}`: resets the head and index of a ledger to given values, also backwards.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    AddressInPath, AllowForeign, IdempotencyKey, Problem, Route,
    extract::{Admin, Body, Target},
    shapes::{self, requests::Snapshot},
};
use nameservice_model::{AdminPublisher, Error, Reset};
use utoipa_axum::routes;

nameservice_http::rejections!(
    READS WRITES TAKES_BODY;
    InvalidAddress InvalidContentId NotFluree UnknownRecord WrongKind Retracted Protected
);

/// Reset a ledger
///
/// Requires `nameservice:admin`. Sets head and index, whatever is stored; the named graphs of
/// the index are forgotten. Rejected while the record is protected.
#[utoipa::path(
    post,
    path = "/v1/resets/{*address}",
    tag = "lifecycle",
    params(AddressInPath, IdempotencyKey, AllowForeign),
    request_body = Snapshot,
    responses((status = OK, description = "The record as it is now", body = shapes::Record), Rejections),
    security(("bearer" = [])),
)]
async fn head_reset(
    State(records): State<Arc<dyn AdminPublisher>>,
    target: Target<Admin>,
    Body(body): Body<Snapshot>,
) -> Result<Json<shapes::Record>, Problem> {
    let address = target.address();
    match records.reset_head(target.call(), address, &body.into_model()?).await? {
        Reset::Reset { .. } => {
            // The reset was applied: a record that cannot be read, or was purged since, does not undo that. A repetition under
            // the same key shows it.
            let unknown = |source| Error::OutcomeUnknown { operation: "show the record that was reset", source };
            match records.lookup(address).await {
                Ok(Some(record)) => Ok(Json((&record).into())),
                Ok(None) => Err(unknown(None).into()),
                Err(error) => Err(unknown(Some(error.into())).into()),
            }
        }
        Reset::Unknown => Err(target.unknown()),
        Reset::Retracted => Err(Problem::retracted(address)),
        Reset::Protected => Err(Problem::protected(address)),
        Reset::WrongKind(kind) => Err(Problem::wrong_kind(address, kind, None)),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(head_reset))
}
