//! One line in the log for each request, for a server. (Lambda has a log of its own, which is paid for by the byte.)

use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

use axum::{
    Router,
    extract::{MatchedPath, Request},
    middleware::{Next, from_fn},
    response::Response,
};

use crate::{REQUEST_ID, problem::Rejected};

/// What extractors find out about a request, for its line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted(Arc<Notes>);

#[derive(Debug, Default)]
struct Notes {
    principal: OnceLock<String>,
    record: OnceLock<String>,
}

impl Noted {
    pub(crate) fn principal(&self, id: &str) {
        self.0.principal.get_or_init(|| id.to_owned());
    }

    pub(crate) fn record(&self, address: &str) {
        self.0.record.get_or_init(|| address.to_owned());
    }
}

/// Logs every request that a finished service answers at the level info, and why it was rejected at debug.
pub fn log_requests(service: Router) -> Router {
    service.layer(from_fn(logged))
}

async fn logged(mut request: Request, next: Next) -> Response {
    if !tracing::enabled!(tracing::Level::INFO) {
        return next.run(request).await;
    }
    let begun = Instant::now();
    let noted = Noted::default();
    request.extensions_mut().insert(noted.clone());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().replace("{*", "{"));
    let response = next.run(request).await;
    let header = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let request_id = header.unwrap_or_default();
    let rejected = response.extensions().get::<Rejected>();
    tracing::info!(
        %method,
        route = route.as_deref().unwrap_or("none"),
        status = response.status().as_u16(),
        duration_ms = begun.elapsed().as_micros() as f64 / 1000.0,
        principal = noted.0.principal.get(),
        record = noted.0.record.get(),
        problem = rejected.map(|rejected| rejected.slug),
        request_id,
        "request"
    );
    if let Some(Rejected { slug, detail }) = rejected {
        tracing::debug!(request_id, problem = slug, detail, "rejected");
    }
    response
}
