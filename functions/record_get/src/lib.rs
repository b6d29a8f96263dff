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
    freshness::{Deadline, Freshness},
    shapes,
};
use nameservice_model::{ChangeFeed, ConcernKind, NameService};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

nameservice_http::rejections!(READS; InvalidAddress InvalidParameter UnknownRecord NotYet);

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// The concerns to show, separated by commas or repeated: `head`, `index`, `status`, `config`. By default, all of them.
    #[serde(default, deserialize_with = "list")]
    #[param(example = json!(["head", "index"]))]
    concerns: Vec<String>,
    /// The answer must include the change at this position of the feed.
    min_position: Option<u64>,
    /// The head (or the `index`, with `concern`) must have this `t` or a greater one.
    min_t: Option<i64>,
    /// The `status` or the `config`, as `concern` says, must have this `v` or a greater one.
    min_v: Option<i64>,
    /// The concern that `min_t` or `min_v` applies to: `head`, `index`, `status` or `config`.
    #[param(inline)]
    concern: Option<Concern>,
    /// How many seconds to wait until the answer is that fresh.
    #[param(minimum = 0, maximum = 20, default = 0)]
    wait: Option<u64>,
}

/// The concerns of a record.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Concern {
    Head,
    Index,
    Status,
    Config,
}

impl From<Concern> for ConcernKind {
    fn from(concern: Concern) -> Self {
        match concern {
            Concern::Head => Self::Head,
            Concern::Index => Self::Index,
            Concern::Status => Self::Status,
            Concern::Config => Self::Config,
        }
    }
}

impl Parameters {
    fn freshness(&self, deadline: Deadline) -> Result<Freshness, Problem> {
        Freshness::of_position(self.min_position, self.wait, deadline)?.with_watermark(
            self.min_t,
            self.min_v,
            self.concern.map(Into::into),
        )
    }

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
/// Strongly consistent. Retracted records are included. The `ETag` changes with the content: send it back in
/// `If-None-Match` to receive the record only if it has changed.
///
/// `min_position`, or `min_t` or `min_v` of a concern, asks for an answer that is at least that fresh, and waits for it
/// for up to `wait` seconds; after that, the problem `not-yet` shows the current state. If the service's feed holds each
/// write by the time it is answered, `nameservice-position` names the position that the answer includes.
#[utoipa::path(
    get,
    path = "/v1/records/{*address}",
    tag = "records",
    params(AddressInPath, Parameters, ("If-None-Match" = Option<String>, Header, description = "Tags already seen")),
    responses(
        (status = OK, description = "The record", body = shapes::Record,
            headers(
                ("ETag", description = "Names this representation"),
                ("nameservice-position" = u64, description = "The position of the change feed that it includes, if \
                    the service knows it without a further request"),
            )),
        (status = NOT_MODIFIED, description = "One of the tags in `If-None-Match` is still current"),
        Rejections,
    ),
    security(("bearer" = [])),
)]
async fn record_get(
    State(names): State<Arc<dyn NameService>>,
    State(feed): State<Arc<dyn ChangeFeed>>,
    target: Target<Read>,
    deadline: Deadline,
    Query(parameters): Query<Parameters>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let concerns = parameters.concerns()?;
    let freshness = parameters.freshness(deadline)?;
    let read = || async { Ok(names.lookup(target.address()).await?.map(|record| target.shown(record))) };
    let found = freshness.read(feed.as_ref(), read, Option::as_ref).await?;
    let record = found.ok_or_else(|| target.unknown())?;
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
