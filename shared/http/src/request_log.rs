//! One line in the log and a few numbers for each request, for a server. (Lambda has a log of its own, which is paid for
//! by the byte.)

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::Instant,
};

use axum::{
    Router,
    extract::{MatchedPath, Request},
    middleware::{Next, from_fn},
    response::Response,
};
use metrics::{counter, gauge, histogram};

use crate::{REQUEST_ID, problem::Rejected};

/// What extractors find out about a request, for its line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted(Arc<Notes>);

#[derive(Debug, Default)]
struct Notes {
    principal: OnceLock<String>,
    record: OnceLock<String>,
    outcome: OnceLock<&'static str>,
}

impl Noted {
    pub(crate) fn principal(&self, id: &str) {
        self.0.principal.get_or_init(|| id.to_owned());
    }

    pub(crate) fn record(&self, address: &str) {
        self.0.record.get_or_init(|| address.to_owned());
    }

    pub(crate) fn outcome(&self, outcome: &'static str) {
        self.0.outcome.get_or_init(|| outcome);
    }

    /// What came of the request, for the metrics: an outcome of a push, the problem it was answered with, or `ok`.
    fn outcome_of(&self, response: &Response) -> Cow<'static, str> {
        match (self.0.outcome.get(), response.extensions().get::<Rejected>()) {
            (_, Some(rejected)) => rejected.slug.replace('-', "_").into(),
            (Some(outcome), None) => (*outcome).into(),
            (None, None) if response.status().is_client_error() || response.status().is_server_error() => {
                "error".into()
            }
            (None, None) => "ok".into(),
        }
    }
}

/// A request that is being answered, until it is dropped: also where its caller goes away.
struct InFlight;

impl InFlight {
    const NAME: &str = "nameservice_requests_in_flight";

    fn begin() -> Self {
        gauge!(Self::NAME).increment(1);
        Self
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        gauge!(Self::NAME).decrement(1);
    }
}

/// Logs every request that a finished service answers at the level info, and why it was rejected at debug; counts and
/// measures it.
pub fn log_requests(service: Router) -> Router {
    service.layer(from_fn(logged))
}

async fn logged(mut request: Request, next: Next) -> Response {
    let _in_flight = InFlight::begin();
    let begun = Instant::now();
    let noted = Noted::default();
    request.extensions_mut().insert(noted.clone());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().replace("{*", "{"));
    let response = next.run(request).await;
    let duration = begun.elapsed();
    // A method that no route has is the caller's text, of which there is no end.
    let operation = route.as_ref().map_or_else(|| "none".to_owned(), |route| format!("{method} {route}"));
    counter!("nameservice_requests_total", "operation" => operation.clone(), "outcome" => noted.outcome_of(&response))
        .increment(1);
    histogram!("nameservice_request_duration_seconds", "operation" => operation).record(duration);
    if !tracing::enabled!(tracing::Level::INFO) {
        return response;
    }
    let header = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let request_id = header.unwrap_or_default();
    let rejected = response.extensions().get::<Rejected>();
    tracing::info!(
        %method,
        route = route.as_deref().unwrap_or("none"),
        status = response.status().as_u16(),
        duration_ms = duration.as_micros() as f64 / 1000.0,
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
