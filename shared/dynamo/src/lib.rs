//! How requests are sent to DynamoDB, repeated, and what a lost answer means.
//!
//! Everything here is about any table; what its items mean is for the crates that build on this. [`Sender`] sends
//! requests for one table until they are answered or the deadline of the [`RetryPolicy`] has passed, and never takes a lost
//! reply for a rejection: [`Attempts`] remembers one. [`endpoint_client`], [`lambda_client`] and [`sdk_client`] make
//! clients that leave repeating to it. A [`Description`] says what a table looks like: [`Sender::ensure_table`] creates
//! it from that, and says what one that exists lacks.

mod batches;
mod capacity;
mod connect;
mod error;
mod sending;
mod table;

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

pub use batches::{Unwritten, WRITE_BATCH};
pub use capacity::Metered;
pub use connect::{
    endpoint_client, endpoint_config, lambda_client, lambda_config, lambda_connector, lambda_credentials, sdk_client,
    variable,
};
pub use error::{BoxError, Error, Outcome, Result};
pub use sending::{Attempts, Backoff, Busy, Conditional, Failed, Judged, Rejection, RetryPolicy, Sender};
pub use table::{Description, Index, Key, KeyType, Lack, Projection, Report, is_missing_table};

/// An item as the SDK gives and takes it.
pub type Item = HashMap<String, AttributeValue>;

/// The value of a number attribute, where it is a whole one.
pub fn as_integer(value: &AttributeValue) -> Option<i64> {
    let digits = value.as_n().ok()?;
    // Engines differ in how they write a number: `42`, `42.0`, `4.2E1`.
    digits.parse().ok().or_else(|| {
        let float: f64 = digits.parse().ok()?;
        (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
    })
}
