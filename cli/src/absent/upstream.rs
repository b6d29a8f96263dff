//! A build without replicas has no upstream.

use axum::Router;

/// There is none.
#[derive(Clone, Copy, Debug)]
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
