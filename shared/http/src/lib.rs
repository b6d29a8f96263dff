//! What the rooms of the HTTP service share: state, authorization, extractors, problems, wire shapes, and the two
//! ways in (`serve_lambda` for a function, [`service()`] for a server or a test).
//!
//! A room is a crate under `functions/` with one door, `pub fn route() -> Route`. Whoever serves it passes the router
//! to [`service()`], which adds what every answer has.

mod app;
pub mod auth;
pub mod etag;
pub mod extract;
mod lambda;
mod openapi;
pub mod page;
pub mod problem;
pub mod refusals;
pub mod respond;
mod service;
pub mod shapes;
mod strict;
mod verifier;

pub use app::{App, Backend, Shutdown};
pub use auth::Auth;
pub use lambda::{
    behind_gateway, ends_by, serve_events, serve_function_url, serve_lambda, serve_streaming_url, serve_without_store,
};
pub use openapi::{AddressInPath, BEARER, IdempotencyKey, openapi};
pub use problem::Problem;
pub use service::{MAX_BODY_BYTES, REQUEST_ID, service};
pub use verifier::{InvalidKeys, Verifier};

/// The one door of a room: its routes, and what the OpenAPI document says of them.
pub type Route = utoipa_axum::router::OpenApiRouter<App>;
