//! A build without replicas has no upstream.

use axum::Router;
use serde_json::Value;

/// There is none.
#[derive(Clone, Debug)]
#[expect(missing_copy_implementations, reason = "as with replicas")]
pub enum Upstream {}

impl Upstream {
    #[cfg(feature = "graphql")]
    pub(crate) fn url(&self) -> &str {
        match *self {}
    }

    pub(crate) fn health(&self) -> (Value, Option<String>) {
        match *self {}
    }

    pub(crate) fn layer(&self, _: Router) -> Router {
        match *self {}
    }

    pub(crate) fn sample(&self) {
        match *self {}
    }
}
