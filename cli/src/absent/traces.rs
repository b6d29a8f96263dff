//! A build without traces exports none.

#[cfg(feature = "serve")]
use axum::Router;
use tracing_subscriber::layer::Identity;

/// There is no exporter.
#[derive(Debug)]
pub enum Traces {}

impl Traces {
    /// Returns the layer that exports spans.
    pub fn layer(&self) -> Identity {
        match *self {}
    }

    /// Sends what was not sent yet.
    #[expect(clippy::unused_async, reason = "as with traces")]
    pub async fn stop(self) {
        match self {}
    }
}

#[cfg(feature = "serve")]
pub(crate) fn trace_requests(service: Router, _: bool) -> Router {
    service
}

/// The work for a batch of the stream.
#[cfg(feature = "dynamodb")]
pub(crate) struct Consuming {
    pub(crate) batch: tracing::Span,
}

#[cfg(feature = "dynamodb")]
impl Consuming {
    pub(crate) fn begin(batch: &[stream_consumer::Delivery]) -> Self {
        Self { batch: tracing::debug_span!("consume", messaging.batch.message_count = batch.len()) }
    }
}
