//! `GET /v1/health`: whether the process answers, and whether the store does.

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use nameservice_http::{Problem, Route, extract::Query, shapes::Capabilities};
use nameservice_model::{ChangeFeed, NameService};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

nameservice_http::rejections!(; InvalidParameter Unavailable FeedUnavailable);

/// Says that an index beside the backend answers searches.
#[derive(Clone, Copy)]
struct HasIndex;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// Whether to ask the store and its change feed too.
    #[serde(default)]
    #[param(default = false)]
    deep: bool,
}

/// The answer of a running service.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `ok`, or `degraded`: it answers, and needs attention
    #[schema(example = "ok")]
    status: &'static str,
    /// Why it needs attention
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// What the backend can do
    capabilities: Capabilities,
}

/// Check the service
///
/// Needs no token.
#[utoipa::path(
    get,
    path = "/v1/health",
    tag = "service",
    params(Parameters),
    responses((status = OK, description = "It answers", body = Health), Rejections),
)]
async fn health_get(
    State(names): State<Arc<dyn NameService>>,
    State(feed): State<Arc<dyn ChangeFeed>>,
    index: Option<Extension<HasIndex>>,
    Query(parameters): Query<Parameters>,
) -> Result<Json<Health>, Problem> {
    if parameters.deep {
        // Whatever the failure of the store, the service is unavailable.
        names.ping().await.map_err(Problem::unavailable)?;
        Problem::unless_followed(feed.as_ref())?;
    }
    let mut capabilities: Capabilities = names.capabilities().await?.into();
    capabilities.search |= index.is_some();
    // `nameservice serve` knows more, and adds it.
    Ok(Json(Health { status: "ok", reason: None, capabilities }))
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(health_get))
}

/// Returns the route of a service whose searches an index beside the backend answers.
pub fn route_with_index() -> Route {
    route().layer(Extension(HasIndex))
}

/// Returns the route of the function: with the search that its environment names, if it names one.
#[cfg(feature = "lambda")]
pub fn deployed() -> Route {
    if nameservice_opensearch::is_deployed() { route_with_index() } else { route() }
}
