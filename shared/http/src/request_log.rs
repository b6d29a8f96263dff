//! Logs one line and records a few metrics for each request of a server; and reports the requests of a function, whose log is
//! paid for by the byte.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{MatchedPath, Request},
    middleware::{Next, from_fn},
    response::Response,
};
use nameservice_model::RequestId;

use crate::{
    REQUEST_ID,
    meters::{self, InFlight, lease_counter, operation},
    problem::Rejected,
    trace::trace_id,
};

/// What extractors find out about a request, for its log line.
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

    /// The outcome of the request, for the metrics: that of a push, the problem it was answered with, or `ok`.
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

/// The id of the call that a request makes, for code that wraps the service: an extension of the request, set by its handler.
#[derive(Clone, Debug, Default)]
pub struct CallOf(Arc<OnceLock<RequestId>>);

impl CallOf {
    pub(crate) fn note(&self, id: &RequestId) {
        self.0.get_or_init(|| id.clone());
    }

    /// Returns the id; `None` if the request was rejected before it had one.
    pub fn id(&self) -> Option<&RequestId> {
        self.0.get()
    }
}

/// Logs every request that a finished service answers at the level info, and why it was rejected at debug; counts and
/// measures it. The recorder of the process has all of it after [`App::sample`](crate::App::sample).
pub fn log_requests(service: Router) -> Router {
    service.layer(from_fn(logged))
}

/// A request that was answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Its method and route, such as `PUT /v1/heads/{address}`; `none` if no route was found.
    pub operation: String,
    /// The outcome of a push, the name of the problem with underscores, or `ok`.
    pub outcome: Cow<'static, str>,
    /// From the request to its answer.
    pub duration: Duration,
    /// The trace that it belongs to, if the caller or the gateway has named one.
    pub trace_id: Option<String>,
    /// The id of the call of a write. The rows it writes have the id, and the consumer of the stream continues its trace.
    pub call: Option<String>,
}

/// Calls this for every request that a finished service answers.
pub fn report_requests(service: Router, report: impl Fn(&Answered) + Clone + Send + Sync + 'static) -> Router {
    service.layer(from_fn(move |mut request: Request, next: Next| {
        let report = report.clone();
        async move {
            let (begun, noted) = (Instant::now(), Noted::default());
            request.extensions_mut().insert(noted.clone());
            let operation = operation(request.method(), route(&request).as_ref().map(MatchedPath::as_str));
            let trace_id = trace_id(request.headers()).map(str::to_owned);
            let call = CallOf::default();
            if !request.method().is_safe() {
                request.extensions_mut().insert(call.clone());
            }
            let response = next.run(request).await;
            let (outcome, duration) = (noted.outcome_of(&response), begun.elapsed());
            if let Some(lease) = lease_counter(&operation, &outcome) {
                lease.increment(1);
            }
            let call = call.id().map(|id| id.as_str().to_owned());
            report(&Answered { operation, outcome, duration, trace_id, call });
            response
        }
    }))
}

/// Returns the route of a request as the router has it.
fn route(request: &Request) -> Option<MatchedPath> {
    request.extensions().get().cloned()
}

async fn logged(mut request: Request, next: Next) -> Response {
    let _in_flight = InFlight::begin();
    let begun = Instant::now();
    let noted = Noted::default();
    request.extensions_mut().insert(noted.clone());
    let method = request.method().clone();
    let route = route(&request);
    let route = route.as_ref().map(MatchedPath::as_str);
    let is_logged = tracing::enabled!(tracing::Level::INFO);
    let trace_id = if is_logged { trace_id(request.headers()).map(str::to_owned) } else { None };
    let response = next.run(request).await;
    let duration = begun.elapsed();
    meters::answered(&method, route, &noted.outcome_of(&response), duration);
    if !is_logged {
        return response;
    }
    let header = response.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let request_id = header.unwrap_or_default();
    let rejected = response.extensions().get::<Rejected>();
    tracing::info!(
        %method,
        route = route.unwrap_or("none").replace("{*", "{"),
        status = response.status().as_u16(),
        duration_ms = duration.as_micros() as f64 / 1000.0,
        principal = noted.0.principal.get(),
        record = noted.0.record.get(),
        problem = rejected.map(|rejected| rejected.slug),
        request_id,
        trace_id,
        "request"
    );
    if let Some(Rejected { slug, detail }) = rejected {
        tracing::debug!(request_id, problem = slug, detail, "rejected");
    }
    response
}
