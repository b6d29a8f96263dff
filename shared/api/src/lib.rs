//! The JSON of the service in both directions: [`requests`], answers ([`Record`], the concerns, [`PushAnswer`]),
//! [`leases`], [`transactions`], the change feed ([`changes`]) and its [`doorbell`], [`problem`] documents, and the wire that Fluree's servers
//! and tools use ([`fluree`]).
//!
//! Conversions from and to the model are here, and with them every rule on the contents of a body; one that does not
//! hold is an [`Invalid`]. The feature `openapi` adds the schemas of the OpenAPI document.

mod answers;
pub mod changes;
mod check;
pub mod doorbell;
pub mod fluree;
mod from_model;
mod invalid;
pub mod json;
pub mod leases;
#[cfg(feature = "openapi")]
mod openapi;
pub mod problem;
mod records;
pub mod requests;
pub mod strict;
mod time;
mod to_model;
pub mod transactions;

/// The header of an answer to a retraction or restoration that changed nothing: the record was retracted, or live, already.
pub const UNCHANGED: &str = "nameservice-unchanged";

pub use answers::*;
pub use invalid::{Invalid, InvalidKind};
#[cfg(feature = "openapi")]
pub use openapi::map_of_nullable;
pub use problem::{ProblemDocument, ProblemKind};
pub use records::*;
pub use to_model::{InvalidAnswer, concern_state};
