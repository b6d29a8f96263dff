//! `PUT /v1/protections/{address}`: protects a record, or removes its protection.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{Admin, Body, Target},
    shapes::{self, requests::NewProtection},
};
use nameservice_model::{AdminPublisher, Protection};
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES TAKES_BODY; InvalidAddress UnknownRecord);

/// Protect a record
///
/// Requires `nameservice:admin`. A protected record cannot be retracted, purged or reset until it is unprotected; pushes,
/// leases, branches and restorations are not affected. Live and retracted records can be protected. Repeating the request
/// changes nothing.
#[utoipa::path(
    put,
    path = "/v1/protections/{*address}",
    tag = "lifecycle",
    params(AddressInPath, IdempotencyKey),
    request_body = NewProtection,
    responses(
        (status = OK, description = "Whether it is protected now", body = shapes::Protection,
            headers(("nameservice-unchanged", description = "Present if it was so already"))),
        Rejections,
    ),
    security(("bearer" = [])),
)]
async fn protection_set(
    State(records): State<Arc<dyn AdminPublisher>>,
    target: Target<Admin>,
    Body(NewProtection { protected }): Body<NewProtection>,
) -> Result<Response, Problem> {
    let address = target.address();
    let answer = Json(shapes::Protection { address: address.to_string(), protected });
    match records.protect(target.call(), address, protected).await? {
        Protection::Set => Ok(answer.into_response()),
        Protection::Already => Ok(([(shapes::UNCHANGED, "true")], answer).into_response()),
        Protection::Unknown => Err(target.unknown()),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(protection_set))
}
