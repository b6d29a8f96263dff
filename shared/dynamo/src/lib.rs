//! How requests are sent to DynamoDB, repeated, and what a lost answer means.
//!
//! Everything here is about any table; what stands in one is for the crates that build on this. [`Sender`] sends
//! requests for one table until they are answered or the [`RetryPolicy`] is out of patience, and never takes a lost
//! answer for a "no": [`Attempts`] remembers one. [`endpoint_client`], [`lambda_client`] and [`sdk_client`] make
//! clients that leave repeating to it.

mod connect;
mod sending;

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

pub use connect::{endpoint_client, lambda_client, sdk_client};
pub use sending::{Attempts, Backoff, Failed, Judged, Refusal, Refusing, RetryPolicy, Sender};

/// An item as the SDK gives and takes it.
pub type Item = HashMap<String, AttributeValue>;
