//! The function's index: the one that its environment names.

use std::sync::Arc;

use async_trait::async_trait;
use nameservice_http::Route;
use nameservice_model::{BoxError, Error, Hit, Page, SearchIndex, SearchQuery, Visible, Within};

use crate::{route_with, unsupported};

/// Stands in for the index if none is deployed.
struct NoIndex;

#[async_trait]
impl SearchIndex for NoIndex {
    async fn search(&self, _: &SearchQuery, _: Option<&Within>, _: Visible<'_>) -> Result<Page<Hit>, Error> {
        Err(unsupported(
            "this deployment has no search index: list records by prefix, or search in a replica of the service",
        ))
    }
}

/// Returns the route of the function, which has no store: answered by the index that its environment names, if it names one.
pub fn deployed() -> Result<Route, BoxError> {
    Ok(match nameservice_opensearch::deployed()? {
        Some(index) => route_with(Arc::new(index)),
        None => route_with(Arc::new(NoIndex)),
    })
}
