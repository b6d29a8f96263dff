//! The nameservice over HTTP, as a backend: a typed async client that implements the traits of `nameservice-model`.
//!
//! - Reads and writes are repeated with backoff until a deadline; a write is repeated under its `Idempotency-Key`, so that
//!   it is applied once. If its outcome stays unknown, the error is [`Error::OutcomeUnknown`](nameservice_model::Error).
//! - Conflicts, stale writes and unknown records are outcomes, as with every backend.
//! - [`Client::follow`] follows the change feed over server-sent events and resumes where a stream ended, by long polls
//!   if events are not served.
//! - [`doorbell`] has the channels and events of AppSync Events, for a reader that waits there, and on a ring reads the
//!   changes after its position.
//! - [`Client::send`] and [`Client::events`] are the layer below: requests and answers as `nameservice-api` has them.

mod backend;
mod client;
mod error;
mod feed;
mod follow;
mod outcomes;
mod request;
#[cfg(test)]
mod tests;
mod tls;
mod transport;

pub use client::{Client, ClientBuilder, Events, Retries};
pub use error::RequestError;
pub use follow::{ChangeFilter, Connection, Follow};
pub use nameservice_api::doorbell;
pub use nameservice_model::ChangeEvent;
pub use request::Request;
pub use transport::{Body, Http, Transport, TransportError, http_client};
