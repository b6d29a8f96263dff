//! Sends requests to DynamoDB, retries them, and determines what a lost answer means.
//!
//! Everything here applies to any table; what its items mean is up to the crates that build on this one. [`Sender`]
//! sends requests for one table until they are answered or the deadline of the [`RetryPolicy`] has passed, and never
//! mistakes a lost reply for a rejection: [`Attempts`] remembers lost replies. [`endpoint_client`], [`lambda_client`]
//! and [`sdk_client`] create clients that leave retries to it. [`Sender::ensure_table`] creates a table from its
//! [`Description`], or reports what an existing one lacks.

mod batches;
mod capacity;
mod connect;
mod error;
mod sending;
mod table;

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

pub use batches::{READ_BATCH, Unwritten, WRITE_BATCH};
pub use capacity::Metered;
pub use connect::{
    endpoint_client, endpoint_config, lambda_client, lambda_config, lambda_connector, lambda_credentials,
    open_connector, sdk_client, variable,
};
pub use error::{BoxError, Error, Outcome, Result};
pub use sending::{Attempts, Backoff, Busy, Conditional, Failed, Judged, Rejection, RetryPolicy, Sender};
pub use table::{Description, Index, Key, KeyType, Lack, Projection, Report, is_missing_table};

/// An item as the SDK represents it.
pub type Item = HashMap<String, AttributeValue>;

/// Returns the value of a number attribute if it is an integer.
pub fn as_integer(value: &AttributeValue) -> Option<i64> {
    let digits = value.as_n().ok()?;
    // Engines differ in how they write a number: `42`, `42.0`, `4.2E1`.
    digits.parse().ok().or_else(|| {
        let float: f64 = digits.parse().ok()?;
        (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
    })
}
