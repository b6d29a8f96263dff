//! Checks that `infra/` and the Rust code agree: on the tables, on functions, routes and scopes, and on what each function may do.

mod costs;
mod functions;
pub(crate) mod permissions;
mod snippets;
mod tables;
