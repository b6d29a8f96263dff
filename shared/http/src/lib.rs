//! What the handlers of the HTTP service share: state, authorization, extractors, problems, wire shapes.
//!
//! An operation is a crate under `functions/` with one `pub fn route() -> Route`. Its host (a Lambda function,
//! a server, a test) passes the router to [`service()`], which adds what every answer has.

mod app;
pub mod assets;
pub mod auth;
mod cors;
pub mod etag;
pub mod extract;
pub mod filter;
mod fresh_keys;
pub mod freshness;
pub mod hub;
mod key_set;
mod key_source;
mod meters;
mod openapi;
pub mod page;
mod path;
pub mod problem;
pub mod rejections;
mod request_log;
pub mod respond;
mod scope;
mod service;
mod signatures;
pub mod trace;
mod verifier;

/// The JSON of the wire.
pub use nameservice_api as shapes;

pub use app::{App, EndsBy, MountedAt, Shutdown, WholeAnswers};
pub use auth::{Auth, Authorizer, StaticToken};
pub use cors::{CorsLayer, InvalidOrigin, cors};
pub use key_set::InvalidKeys;
pub use key_source::{Fetch, KeyFile, KeySource, KeyUrl, NO_KEYS};
pub use openapi::{AddressInPath, AllowForeign, BEARER, IdempotencyKey, openapi};
pub use path::{escape_path, redirect};
pub use problem::{ForUpstream, Problem};
pub use request_log::{Answered, CallOf, log_requests, report_requests};
pub use service::{BODY_TIMEOUT, MAX_BODY_BYTES, REQUEST_ID, identified, service, whole_body};
pub use signatures::TOKEN_SIGNATURES;
pub use verifier::{Required, Verifier};

/// The routes of an operation, and what the OpenAPI document says of them.
pub type Route = utoipa_axum::router::OpenApiRouter<App>;
