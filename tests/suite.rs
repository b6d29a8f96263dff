//! All tests of the nameservice that need an engine, in one binary: it links once.
//!
//! `contract` is what every engine must hold to. It runs on the embedded one, and on whatever
//! `NAMESERVICE_TEST_ENDPOINT` names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue has failed")]

mod alike;
mod archive;
mod attributes;
mod chaos;
mod contract;
mod copies;
mod doctor;
mod dynamodb;
mod events;
mod faults;
mod graphql;
mod history;
mod hostile;
mod infra;
mod lease_keeper;
mod library;
mod memory;
mod model;
mod planted;
mod projector;
mod properties;
mod replica_writes;
mod replicas;
mod requests;
mod routes;
mod search_index;
mod service;
mod soak;
mod stream;
mod views;
