//! Traces of requests, sent to a collector over OTLP: `serve --otlp URL`.
//!
//! A request continues the trace that its `traceparent` names, or begins one. Spans carry operations, outcomes and durations, and
//! no payloads, tokens or addresses of records.
//!
//! A row of the table cannot hold the trace of its writer. It has the id of the call, from which a separate trace is derived
//! ([`RequestId::traceparent`]): the span of the write links to it, and the consumer of the stream continues it.

use std::{collections::HashMap, fmt, time::Duration};

use async_trait::async_trait;
use axum::{
    Router,
    extract::{MatchedPath, Request},
    middleware::{Next, from_fn},
    response::Response,
};
use bytes::Bytes;
use http::HeaderMap;
use nameservice_http::CallOf;
use nameservice_model::{RequestId, ShownUrl};
use opentelemetry::{
    Context, KeyValue,
    propagation::{Extractor, TextMapPropagator as _},
    trace::{TraceContextExt as _, TracerProvider as _},
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{SdkTracer, SdkTracerProvider},
};
#[cfg(feature = "dynamodb")]
use stream_consumer::Delivery;
use tokio::runtime::Handle;
#[cfg(feature = "dynamodb")]
use tracing::Span;
use tracing::{Instrument as _, field::Empty};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt as _};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, filter_fn},
    registry::LookupSpan,
};

use crate::failure::Failure;

/// The name of this program in traces, unless `OTEL_SERVICE_NAME` gives another one.
const SERVICE: &str = "nameservice";
/// The path at which collectors accept traces.
const PATH: &str = "/v1/traces";
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends traces to a collector. [`Traces::stop`] sends what was not sent yet.
pub struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").finish_non_exhaustive()
    }
}

impl Traces {
    /// Returns the exporter to the collector at this URL. Nothing is sent before there is a span.
    pub fn to(url: &str) -> Result<Self, Failure> {
        let unusable = |reason: String| Failure::Usage(format!("--otlp: `{}` cannot be used: {reason}", ShownUrl(url)));
        let parsed = reqwest::Url::parse(url).map_err(|error| unusable(error.to_string()))?;
        let endpoint = match parsed.path() {
            "" | "/" => format!("{}{PATH}", url.trim_end_matches('/')),
            _ => url.to_owned(),
        };
        let client = nameservice_client::http_client(url).map_err(|error| unusable(error.to_string()))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Sender { client, runtime: Handle::current() })
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        let resource = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
            Some(_) => resource,
            None => resource.with_service_name(SERVICE),
        };
        let provider =
            SdkTracerProvider::builder().with_resource(resource.build()).with_batch_exporter(exporter).build();
        let tracer = provider.tracer(SERVICE);
        Ok(Self { provider, tracer })
    }

    /// Returns the layer that exports this program's spans.
    pub fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    {
        let ours = filter_fn(|about| about.is_span() && about.target().starts_with("nameservice"));
        OpenTelemetryLayer::new(self.tracer.clone())
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(ours.with_max_level_hint(LevelFilter::DEBUG))
    }

    /// Sends what was not sent yet.
    pub async fn stop(self) {
        // The shutdown waits for the collector, so it must not run on an async worker thread.
        let stopped = tokio::task::spawn_blocking(move || self.provider.shutdown()).await;
        if let Ok(Err(error)) = stopped {
            tracing::warn!(%error, "some traces were not sent");
        }
    }
}

/// Sends on the program's runtime and with its TLS: the exporter calls it from a thread that has neither.
#[derive(Clone, Debug)]
struct Sender {
    client: reqwest::Client,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for Sender {
    async fn send_bytes(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let (parts, body) = request.into_parts();
            let sent = client.request(parts.method, parts.uri.to_string()).headers(parts.headers).body(body);
            let answer = sent.timeout(EXPORT_TIMEOUT).send().await?;
            let mut response = http::Response::builder().status(answer.status());
            if let Some(headers) = response.headers_mut() {
                headers.clone_from(answer.headers());
            }
            Ok::<_, HttpError>(response.body(answer.bytes().await?)?)
        });
        sent.await?
    }
}

/// Makes a span of every request that a finished service answers. With `is_continued`, a consumer reads the stream of the table:
/// then the span of a write links to the trace in which the consumer continues.
pub(crate) fn trace_requests(service: Router, is_continued: bool) -> Router {
    service.layer(from_fn(move |request: Request, next: Next| traced(request, next, is_continued)))
}

async fn traced(mut request: Request, next: Next, is_continued: bool) -> Response {
    let call = CallOf::default();
    if is_continued && !request.method().is_safe() {
        request.extensions_mut().insert(call.clone());
    }
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().replace("{*", "{"));
    let route = route.as_deref().unwrap_or("none");
    let method = request.method().as_str();
    let span = tracing::info_span!(
        "request",
        otel.name = format!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method,
        http.route = route,
        http.response.status_code = Empty,
        nameservice.call = Empty,
    );
    // Without a valid context the trace begins here.
    let _ = span.set_parent(TraceContextPropagator::new().extract(&Headers(request.headers())));
    let response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    if let Some(id) = call.id() {
        span.record("nameservice.call", id.as_str());
        if let Some(context) = context_of(id) {
            span.add_link(context.span().span_context().clone());
        }
    }
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}

/// The context of the trace that continues a call.
fn context_of(call: &RequestId) -> Option<Context> {
    let carrier = HashMap::from([("traceparent".to_owned(), call.traceparent()?)]);
    Some(TraceContextPropagator::new().extract(&carrier))
}

/// The spans of a batch of the stream, until it is dropped.
#[cfg(feature = "dynamodb")]
pub(crate) struct Consuming {
    /// The work for all of its records together.
    pub(crate) batch: Span,
    /// One for each record with the id of the call that wrote it, in the trace of that call.
    _records: Vec<Span>,
}

#[cfg(feature = "dynamodb")]
impl Consuming {
    pub(crate) fn begin(batch: &[Delivery]) -> Self {
        let span = tracing::debug_span!("consume", otel.kind = "consumer", messaging.batch.message_count = batch.len());
        if span.is_disabled() {
            return Self { batch: span, _records: Vec::new() };
        }
        let around = span.context();
        let record = |delivery: &Delivery| {
            let call = delivery.call()?;
            let context = context_of(&call)?;
            let record = tracing::debug_span!(
                parent: None,
                "record",
                otel.name = "append a change",
                otel.kind = "consumer",
                nameservice.call = call.as_str()
            );
            // Fails only if spans are not exported.
            let _ = record.set_parent(context);
            record.add_link(around.span().span_context().clone());
            Some(record)
        };
        let records = batch.iter().filter_map(record).collect();
        Self { batch: span, _records: records }
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}
