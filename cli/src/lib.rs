//! The `nameservice` command: the whole service on one machine, and an operator's tool for any.
//!
//! As a library it starts both in process, for tests: [`serve::start`],
//! [`consumer::start`] and [`embedded::Engine`].

pub mod args;
pub mod child;
pub mod client;
pub mod commands;
pub mod consumer;
pub mod embedded;
pub mod failure;
pub mod output;
pub mod routes;
pub mod serve;
pub mod target;
pub mod values;
