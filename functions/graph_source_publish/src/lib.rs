//! `PUT /v1/graph-sources/{address}`: creates a graph source, or replaces its configuration and dependencies.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use nameservice_http::{
    AddressInPath, IdempotencyKey, Problem, Route,
    extract::{Body, Target, Write},
    respond,
    shapes::{self, requests::GraphSource},
};
use nameservice_model::{Address, GraphSourcePublisher, NameService, Published};
use utoipa_axum::routes;

nameservice_http::rejections!(
    READS WRITES TAKES_BODY;
    InvalidAddress UnknownRecord Conflict WrongKind Retracted MissingDependencies
);

/// Publish a graph source
///
/// Each dependency must be a live record, and none of them can be retracted while the graph source exists. An existing
/// graph source keeps its index, its status and its type; its configuration is replaced, and so are its dependencies
/// if they are given.
#[utoipa::path(
    put,
    path = "/v1/graph-sources/{*address}",
    tag = "records",
    params(AddressInPath, IdempotencyKey),
    request_body = GraphSource,
    responses(
        (status = OK, description = "The graph source, changed", body = shapes::Record),
        (status = CREATED, description = "The graph source, created", body = shapes::Record,
            headers(("Location", description = "Where the record is"))),
        Rejections,
    ),
    security(("bearer" = [])),
)]
async fn graph_source_publish(
    State(graph_sources): State<Arc<dyn GraphSourcePublisher>>,
    State(names): State<Arc<dyn NameService>>,
    target: Target<Write>,
    Body(body): Body<GraphSource>,
) -> Result<Response, Problem> {
    let address = target.address();
    let publication = body.into_publication(address)?;
    let dependencies = publication.dependencies().unwrap_or_default();
    if !dependencies.iter().all(|dependency| target.sees(dependency)) {
        return Err(Problem::missing_dependencies(&missing(&target, &*names, dependencies).await?));
    }
    match graph_sources.publish_graph_source(target.call(), &publication).await? {
        Published::Created(record) => Ok(respond::created(&record)),
        Published::Updated(record) => Ok(Json(shapes::Record::from(record.as_ref())).into_response()),
        Published::Conflict { actual } => Err(respond::conflict(actual.map(shapes::Config::from))),
        Published::MissingDependencies(missing) => Err(Problem::missing_dependencies(&missing)),
        Published::WrongKind { kind, source_type } => Err(Problem::wrong_kind(address, kind, source_type.as_deref())),
        Published::Retracted => Err(Problem::retracted(address)),
        _ => Err(Problem::unknown_outcome()),
    }
}

/// Returns the dependencies that do not exist as far as the caller may know: one that it may not see is listed like one
/// that does not exist.
async fn missing(
    target: &Target<Write>,
    names: &dyn NameService,
    dependencies: &[Address],
) -> Result<Vec<Address>, Problem> {
    let mut missing = Vec::new();
    for dependency in dependencies {
        let live = target.sees(dependency) && names.lookup(dependency).await?.is_some_and(|record| !record.retracted);
        if !live {
            missing.push(dependency.clone());
        }
    }
    Ok(missing)
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(graph_source_publish))
}
