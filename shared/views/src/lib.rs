//! Read models in DynamoDB: tables with a partition key, an optional sort key, indexes and expiring rows, and the operations
//! that projections need: load, save, count, delete, one row or many.
//!
//! A table is declared once, as a [`Description`], from which it is created ([`View::ensure_table`]), checked
//! ([`View::check_table`]) and used. A row is any type that [`serde`] serializes as a map.
//!
//! ```no_run
//! use nameservice_views::{
//!     Description, Index, Key, Projection, Range, RowKey, SaveMode, View, endpoint_client,
//! };
//! use serde::{Deserialize, Serialize};
//!
//! static ORDERS: Description = Description {
//!     partition_key: "customer",
//!     sort_key: Some("placed_at"),
//!     indexes: &[Index {
//!         name: "by-state",
//!         partition_key: Key::string("state"),
//!         sort_key: Some(Key::number("total")),
//!         projection: Projection::All,
//!     }],
//!     ttl: Some("ttl"),
//!     stream: false,
//! };
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order {
//!     customer: String,
//!     placed_at: String,
//!     state: String,
//!     total: i64,
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let orders = View::new(endpoint_client("http://127.0.0.1:8000"), "orders", &ORDERS);
//! orders.ensure_table().await?;
//!
//! let order = Order { customer: "ada".into(), placed_at: "2026-11-21".into(), state: "open".into(), total: 7 };
//! orders.save(&order, SaveMode::Init, None).await?;
//! let key = RowKey::sorted("ada", "2026-11-21");
//! let total = orders.count(&key, "total", 5).await?;
//!
//! let of_ada: Vec<Order> = orders.load("ada").await?;
//! let since = Range::new().after("2026-11-01").limit(10);
//! let page = orders.load_range::<Order>("ada", &since).await?;
//! let dear = orders.query_index::<Order>("by-state", "open", &Range::new().descending()).await?;
//! # Ok(()) }
//! ```
//!
//! # Retries and outcomes
//!
//! Requests that meet a busy table or a broken connection are retried with jittered exponential backoff within the deadline
//! of the [`RetryPolicy`]. An [`Error`] names the operation and the row that failed and keeps its source:
//! [`Error::is_unavailable`] (nothing was written), [`Error::is_outcome_unknown`] (a write was sent and its reply was lost:
//! read again), [`Error::is_too_large`] (a row has at most 400 KB).
//!
//! | operation | retried after a lost reply | because |
//! |---|---|---|
//! | `load…`, `query_index`, `scan` | yes | it only reads |
//! | `save` with `Any` or `Overwrite`, `save_batch` | yes | the row is the same; of several writers the last wins |
//! | `save_newer` | yes | of several versions the newest wins |
//! | `save` with `Init` | yes | an existing row that is identical was written by this call |
//! | `delete`, `delete_batch` | yes | deleting is idempotent |
//! | `count` | no | it would count twice |
//! | `transact` | yes | all attempts carry one client request token |
//!
//! # Rows that expire
//!
//! DynamoDB deletes a row some time after its TTL, often hours later. [`View::alive_at`] returns the same view as of a
//! time, for which rows past their TTL do not exist. It reads the TTL attribute, so an index must project it.
//!
//! Every operation is logged with its table and id: success at `debug`, failure at `warn`.

mod batches;
mod error;
mod reads;
mod rows;
mod transactions;
mod writes;

pub use batches::{BatchFailure, FailedRow};
pub use error::{Error, Result, Source};
pub use nameservice_dynamo::{
    Backoff, Description, Index, Item, Key, KeyType, Lack, Outcome, Projection, Report, RetryPolicy, endpoint_client,
    lambda_client, sdk_client,
};
pub use reads::{Continuation, Range, RangePage};
pub use rows::{KeyValue, RowKey, from_item, to_item};
pub use transactions::{Rejected, Write};
pub use writes::{Age, SaveMode};

use nameservice_dynamo::Sender;

/// A read model over one table. Cheap to clone.
#[derive(Clone, Debug)]
pub struct View {
    sender: Sender,
    description: &'static Description,
    /// Rows whose TTL is not after this time (epoch seconds) count as missing.
    alive_at: Option<i64>,
}

impl View {
    /// Creates a view of a table. The client must have its own retries turned off, as the clients of
    /// [`endpoint_client`], [`lambda_client`] and [`sdk_client`] have.
    pub fn new(client: aws_sdk_dynamodb::Client, table: impl AsRef<str>, description: &'static Description) -> Self {
        let sender = Sender::new(client, table.as_ref(), RetryPolicy::default());
        Self { sender, description, alive_at: None }
    }

    /// Returns the same view with another retry policy.
    #[must_use]
    pub fn with_retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.sender.set_policy(policy);
        self
    }

    /// Returns the same view as of a time (epoch seconds): rows whose TTL has passed are not loaded, and do not fail a
    /// [`SaveMode::Init`].
    #[must_use]
    pub fn alive_at(&self, epoch_s: i64) -> Self {
        Self { alive_at: Some(epoch_s), ..self.clone() }
    }

    /// Returns the name of the table.
    pub fn table(&self) -> &str {
        self.sender.table()
    }

    /// Returns a backoff with this view's retry policy, for callers that repeat a transaction.
    pub fn backoff(&self) -> Backoff {
        self.sender.backoff()
    }

    /// Returns the declaration of the table.
    pub fn description(&self) -> &'static Description {
        self.description
    }

    /// Creates the table as described (on demand, TTL, point-in-time recovery) and waits until it is active. An
    /// existing table is not changed; the report lists what it lacks.
    ///
    /// Needs `dynamodb:CreateTable`, `DescribeTable`, `UpdateTimeToLive`, `DescribeTimeToLive`,
    /// `UpdateContinuousBackups` and `DescribeContinuousBackups` on the table.
    pub async fn ensure_table(&self) -> Result<Report> {
        let found = self.sender.ensure_table(self.description).await;
        self.logged("ensure", "", found.map_err(|source| Error::TableNotReady { table: self.table().into(), source }))
    }

    /// Reports what the table lacks of its description. Returns an error if there is no table.
    pub async fn check_table(&self) -> Result<Report> {
        let found = self.sender.check_table(self.description).await;
        self.logged("check", "", found.map_err(|source| Error::TableNotReady { table: self.table().into(), source }))
    }

    /// Logs the result of an operation.
    fn logged<T>(&self, operation: &'static str, id: &str, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) => tracing::debug!(table = self.table(), id, operation, "done"),
            // Another writer was first: an outcome, not a failure.
            Err(Error::AlreadyExists { .. }) => tracing::debug!(table = self.table(), id, operation, "there already"),
            Err(error) => {
                let cause = std::error::Error::source(error).map(nameservice_model::chain).unwrap_or_default();
                tracing::warn!(table = self.table(), id, operation, %error, cause, "failed");
            }
        }
        result
    }
}
