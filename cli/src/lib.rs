//! The `nameservice` command: a service on one machine, and an operator's tool for any.

pub mod embedded;
