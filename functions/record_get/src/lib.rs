//! `GET /v1/records/{address}`: everything under an address, or some of its concerns.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use nameservice_http::{
    AddressInPath, Problem, Route,
    etag::ETag,
    extract::{Query, Read, Target, list},
    shapes,
};
use nameservice_model::{ConcernKind, NameService};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

nameservice_http::refusals!(READS; InvalidAddress InvalidParameter UnknownRecord);

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// The concerns to show, separated by commas or repeated: `head`, `index`, `status`, `config`. Left out, all of them.
    #[serde(default, deserialize_with = "list")]
    #[param(example = json!(["head", "index"]))]
    concerns: Vec<String>,
}

impl Parameters {
    fn concerns(&self) -> Result<Vec<ConcernKind>, Problem> {
        if self.concerns.is_empty() {
            return Ok(ConcernKind::ALL.to_vec());
        }
        let concern = |name: &String| {
            name.parse::<ConcernKind>()
                .map_err(|_| Problem::invalid_parameter("concerns", format!("there is no concern `{name}`")))
        };
        self.concerns.iter().map(concern).collect()
    }
}

/// Get a record
///
/// Strongly consistent. Retracted records are shown. The `ETag` changes with what is shown: send it back in
/// `If-None-Match` to receive it only if it has changed.
#[utoipa::path(
    get,
    path = "/v1/records/{*address}",
    tag = "records",
    params(AddressInPath, Parameters, ("If-None-Match" = Option<String>, Header, description = "Tags already seen")),
    responses(
        (status = OK, description = "The record", body = shapes::Record,
            headers(("ETag", description = "Names this representation"))),
        (status = NOT_MODIFIED, description = "One of the tags in `If-None-Match` is still right"),
        Refusals,
    ),
    security(("bearer" = [])),
)]
async fn record_get(
    State(names): State<Arc<dyn NameService>>,
    target: Target<Read>,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let concerns = parameters.concerns()?;
    let record = names.lookup(target.address()).await?.ok_or_else(|| target.unknown())?;
    let record = target.shown(record);
    let body = serde_json::to_vec(&shapes::Record::from(&record).only(&concerns)).map_err(Problem::internal)?;
    let tag = ETag::of(&body);
    if tag.is_in(&headers) {
        return Ok((StatusCode::NOT_MODIFIED, [tag.header()]).into_response());
    }
    let json = (header::CONTENT_TYPE, axum::http::HeaderValue::from_static("application/json"));
    Ok(([json, tag.header()], body).into_response())
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(record_get))
}
