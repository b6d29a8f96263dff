//! All tests of the nameservice that need an engine, in one binary: it links once.
//!
//! `contract` is what every engine must hold to. It runs on the embedded one, and on whatever
//! `NAMESERVICE_TEST_ENDPOINT` names.

mod contract;
mod faults;
mod properties;
mod races;
mod requests;
