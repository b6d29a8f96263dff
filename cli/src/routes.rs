//! All routes that one machine serves.

use nameservice_http::{App, Route};
use utoipa::openapi::OpenApi;

/// All handlers, one line each.
fn routes() -> Route {
    routes_with(console_get::route())
}

/// All handlers, with this console.
fn routes_with(console: Route) -> Route {
    Route::new()
        .merge(branch_create::route())
        .merge(branch_drop::route())
        .merge(branch_list::route())
        .merge(change_compare::route())
        .merge(change_list::route())
        .merge(change_stream::route())
        .merge(config_push::route())
        .merge(console)
        .merge(fluree::route())
        .merge(graph_source_publish::route())
        .merge(head_push::route())
        .merge(head_reset::route())
        .merge(health_get::route())
        .merge(history_list::route())
        .merge(index_push::route())
        .merge(lease_acquire::route())
        .merge(lease_release::route())
        .merge(ledger_create::route())
        .merge(openapi_get::route())
        .merge(protection_set::route())
        .merge(record_get::route())
        .merge(record_list::route())
        .merge(record_purge::route())
        .merge(record_restore::route())
        .merge(record_retract::route())
        .merge(search_get::route())
        .merge(snapshot_get::route())
        .merge(status_push::route())
        .merge(transaction_commit::route())
}

/// The router of all handlers, to be completed by [`nameservice_http::service()`].
pub fn router() -> axum::Router<App> {
    routes().split_for_parts().0
}

/// The router of all handlers, with the settings of the console.
pub(crate) fn router_with(console: console_get::Settings) -> axum::Router<App> {
    routes_with(console_get::route_with(console)).split_for_parts().0
}

/// The descriptions of all handlers, as one OpenAPI document.
pub fn document() -> OpenApi {
    nameservice_http::openapi(routes().into_openapi())
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    /// Functions that are not mounted: `not_found`, since the router itself does its work, and those that are not called over
    /// HTTP.
    const NOT_MOUNTED: [&str; 6] =
        ["feed_archive", "not_found", "search_sink", "stream_consumer", "topic_publisher", "view_projector"];

    #[test]
    fn every_function_is_mounted() {
        let functions = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../functions")).unwrap();
        let functions: BTreeSet<_> =
            functions.map(|function| function.unwrap().file_name().into_string().unwrap()).collect();
        let source = include_str!("routes.rs");
        for function in functions.iter().filter(|name| !NOT_MOUNTED.contains(&name.as_str())) {
            assert!(source.contains(&format!("({function}::route())")), "{function} is not mounted");
        }
    }

    /// The function that serves the document does not link the other handlers, so it carries a copy.
    #[test]
    fn the_document_that_is_served_is_the_one_that_the_rooms_make() {
        let served: serde_json::Value =
            serde_json::from_str(include_str!("../../functions/openapi_get/openapi.json")).unwrap();
        let made = serde_json::to_value(document()).unwrap();
        assert_eq!(
            served, made,
            "run: cargo run -p nameservice-cli -- generate openapi > functions/openapi_get/openapi.json"
        );
    }
}
