//! A build without replicas has no upstream.

use axum::Router;

/// There is none.
#[derive(Clone, Debug)]
#[expect(missing_copy_implementations, reason = "as with replicas")]
pub enum Upstream {}

impl Upstream {
    #[cfg(feature = "graphql")]
    pub(crate) fn url(&self) -> &str {
        match *self {}
    }

    pub(crate) fn layer(&self, _: Router) -> Router {
        match *self {}
    }

    pub(crate) fn sample(&self) {
        match *self {}
    }
}
