//! `GET /v1/search`: records that contain all words of a text.

#[cfg(feature = "lambda")]
mod deployed;

use std::sync::Arc;

use axum::{Extension, Json, extract::State};
use nameservice_http::{
    Problem, Route,
    extract::{Allowed, Query, Read},
    freshness::{Deadline, Freshness},
    page,
    shapes::{Hits, Kind},
};
use nameservice_model::{Capability, ChangeFeed, Error, Hit, NameService, SearchIndex, SearchQuery, SearchWords};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::routes;

#[cfg(feature = "lambda")]
pub use deployed::deployed;

nameservice_http::rejections!(READS; InvalidParameter InvalidCursor NotYet Unsupported);

const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 1000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Parameters {
    /// The words, separated by white space, at most 8. Each must occur in the address, the type, the state or a value of
    /// the configuration, ignoring case.
    #[param(max_length = 256, example = "tenant/a books")]
    q: String,
    /// Only this kind.
    #[param(inline)]
    kind: Option<Kind>,
    /// Only graph sources of this type.
    source_type: Option<String>,
    /// Only records in this state.
    state: Option<String>,
    /// The maximum number of entries.
    #[param(minimum = 1, maximum = 1000, default = 20)]
    limit: Option<u64>,
    /// The `cursor` of the previous page, to continue after it.
    cursor: Option<String>,
    /// The answer must include the change at this position of the feed.
    min_position: Option<u64>,
    /// How many seconds to wait until the answer is that fresh.
    #[param(minimum = 0, maximum = 20, default = 0)]
    wait: Option<u64>,
}

impl Parameters {
    fn into_query(self) -> Result<SearchQuery, Problem> {
        let words = SearchWords::parse(&self.q).map_err(|reason| Problem::invalid_parameter("q", reason))?;
        Ok(SearchQuery {
            words,
            kind: self.kind,
            source_type: self.source_type,
            state: self.state,
            limit: page::limit(self.limit, DEFAULT_LIMIT, MAX_LIMIT)?,
            cursor: page::search_cursor(self.cursor.as_deref())?,
        })
    }
}

/// Search records
///
/// The best hits come first. For each word, a match of the whole address is best, then of a whole segment, the beginning of a
/// segment, the beginning of a word in a segment, any part of the address; then of the type or state; last of the
/// configuration. Secret values are not searched.
///
/// A single machine (`serve`) and replicas answer from memory. On AWS an OpenSearch index answers if one is deployed: it follows
/// the feed within about a second, and knows no position, so `min_position` is `501 unsupported` there. Other backends have no
/// search (`501 unsupported`).
#[utoipa::path(
    get,
    path = "/v1/search",
    tag = "records",
    params(Parameters),
    responses((status = OK, description = "A page of hits, the best first", body = Hits), Rejections),
    security(("bearer" = [])),
)]
async fn search_get(
    State(names): State<Arc<dyn NameService>>,
    State(feed): State<Arc<dyn ChangeFeed>>,
    index: Option<Extension<Arc<dyn SearchIndex>>>,
    caller: Allowed<Read>,
    deadline: Deadline,
    Query(parameters): Query<Parameters>,
) -> Result<Json<Hits>, Problem> {
    let is_fresh = parameters.min_position.is_some();
    let freshness = Freshness::of_position(parameters.min_position, parameters.wait, deadline)?;
    let query = parameters.into_query()?;
    let visible = |address: &_| caller.sees(address);
    let found = match index {
        None => freshness.read(feed.as_ref(), || names.search(&query, &visible), |_| None).await?,
        Some(_) if is_fresh => {
            let reason = "this search follows the feed on its own and knows no position: search without min_position";
            return Err(unsupported(reason).into());
        }
        Some(Extension(index)) => index.search(&query, caller.within().as_ref(), &visible).await?,
    };
    let (hits, cursor) = page::fit(found.items, found.cursor, Hit::cursor, |hit| hit.into())?;
    Ok(Json(Hits { hits, cursor }))
}

/// Returns the route of this operation.
pub fn route() -> Route {
    Route::new().routes(routes!(search_get))
}

/// Returns the route, answered by an index beside the backend.
pub fn route_with(index: Arc<dyn SearchIndex>) -> Route {
    route().layer(Extension(index))
}

fn unsupported(reason: &str) -> Error {
    Error::Unsupported { capability: Capability::Search, reason: reason.to_owned() }
}
