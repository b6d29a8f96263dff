//! `DELETE /v1/branches/{address}`: deletes a branch permanently.

use std::sync::Arc;

use axum::{Json, extract::State};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{Admin, Target},
    respond,
};
use nameservice_model::{AdminPublisher, Dropped};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

nameservice_http::rejections!(READS WRITES; InvalidAddress UnknownRecord HasDependents NotABranch Protected);

/// The result of dropping a branch.
#[derive(Serialize, ToSchema)]
struct BranchDropped {
    /// How many branches its source has left.
    parent_branches: i64,
}

/// Drop a branch
///
/// Requires `nameservice:admin`. The branch is deleted, and its source has one branch less. Rejected while branches
/// or graph sources depend on it, and while it is protected.
#[utoipa::path(
    delete,
    path = "/v1/branches/{*address}",
    tag = "branches",
    params(AddressInPath, IdempotencyKey),
    responses((status = OK, description = "It is gone", body = BranchDropped), Rejections),
    security(("bearer" = [])),
)]
async fn branch_drop(
    State(records): State<Arc<dyn AdminPublisher>>,
    target: Target<Admin>,
) -> Result<Json<BranchDropped>, Problem> {
    match records.drop_branch(target.call(), target.address()).await? {
        Dropped::Dropped { parent_branches } => Ok(Json(BranchDropped { parent_branches })),
        Dropped::Protected => Err(Problem::protected(target.address())),
        Dropped::HasDependents => Err(respond::has_dependents(&target, &*records).await),
        Dropped::NotABranch => Err(Problem::not_a_branch(target.address())),
        Dropped::Unknown => Err(target.unknown()),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(branch_drop))
}
