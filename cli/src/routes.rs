//! The table of contents of the service: every route that one machine serves.

use nameservice_http::{App, Route};
use utoipa::openapi::OpenApi;

/// All rooms, one line each.
fn routes() -> Route {
    Route::new()
        .merge(branch_create::route())
        .merge(branch_drop::route())
        .merge(branch_list::route())
        .merge(config_push::route())
        .merge(fluree::route())
        .merge(graph_source_publish::route())
        .merge(head_push::route())
        .merge(head_reset::route())
        .merge(health_get::route())
        .merge(index_push::route())
        .merge(lease_acquire::route())
        .merge(lease_release::route())
        .merge(ledger_create::route())
        .merge(openapi_get::route())
        .merge(record_get::route())
        .merge(record_list::route())
        .merge(record_purge::route())
        .merge(record_restore::route())
        .merge(record_retract::route())
        .merge(snapshot_get::route())
        .merge(status_push::route())
        .merge(transaction_commit::route())
}

/// The router of all rooms, to be finished by [`nameservice_http::service()`].
pub fn router() -> axum::Router<App> {
    routes().split_for_parts().0
}

/// What all rooms say of themselves, as one OpenAPI document.
pub fn document() -> OpenApi {
    nameservice_http::openapi(routes().into_openapi())
}
