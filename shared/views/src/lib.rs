//! Read models in DynamoDB: a table with a partition key, an optional sort key, indexes and expiring rows, and what a
//! projection does with it: load, save, count, delete, one row or many.
//!
//! A table is declared once, as a [`Description`]. From that it is created ([`View::ensure_table`]), checked
//! ([`View::check_table`]) and used. Rows are whatever [`serde`] can write and read as a map.
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
//! # What an answer means
//!
//! Requests that met a busy table or a broken connection are sent again, with growing random pauses, until the
//! [`RetryPolicy`] is out of patience. An [`Error`] says which operation on what did not come about, and keeps why:
//! [`Error::is_unavailable`] (nothing was done), [`Error::is_outcome_unknown`] (a write was sent and its answer was lost:
//! read again), [`Error::is_too_large`] (a row has at most 400 KB).
//!
//! | operation | sent again after a lost answer | because |
//! |---|---|---|
//! | `load…`, `query_index` | yes | it only reads |
//! | `save` with `Any` or `Overwrite`, `save_batch` | yes | the row is the same; of several writers the last wins |
//! | `save` with `Init` | yes | a row in the way that is exactly ours is ours |
//! | `delete`, `delete_batch` | yes | gone is gone |
//! | `count` | no | it would count twice |
//! | `transact` | yes | all attempts carry one token, by which DynamoDB knows a repetition |
//!
//! # Rows that expire
//!
//! DynamoDB deletes a row some time after its TTL, often hours later. [`View::alive_at`] gives the same view as of a
//! time: for it, rows past their TTL are gone already. It tells by the attribute, so an index must carry that.
//!
//! Every operation is logged with its table and id: done at `debug`, failed at `warn`.

mod batches;
mod error;
mod reads;
mod rows;
mod transactions;
mod writes;

pub use batches::{BatchFailure, FailedRow};
pub use error::{Error, Result, Source};
pub use nameservice_dynamo::{
    Backoff, Description, Index, Item, Key, KeyType, Lack, Projection, Report, RetryPolicy, endpoint_client,
    lambda_client, sdk_client,
};
pub use reads::{Continuation, Range, RangePage};
pub use rows::{KeyValue, RowKey, from_item, to_item};
pub use transactions::{Refused, Write};
pub use writes::SaveMode;

use nameservice_dynamo::Sender;

/// A read model over one table. Cheap to clone.
#[derive(Clone, Debug)]
pub struct View {
    sender: Sender,
    description: &'static Description,
    /// Rows whose TTL is not after this are gone, epoch seconds.
    alive_at: Option<i64>,
}

impl View {
    /// Over this table of this client. The client must not retry by itself: those of [`endpoint_client`],
    /// [`lambda_client`] and [`sdk_client`] do not.
    pub fn new(client: aws_sdk_dynamodb::Client, table: impl AsRef<str>, description: &'static Description) -> Self {
        let sender = Sender::new(client, table.as_ref(), RetryPolicy::default());
        Self { sender, description, alive_at: None }
    }

    /// The same with another patience.
    #[must_use]
    pub fn with_retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.sender.set_policy(policy);
        self
    }

    /// The same as of a time (epoch seconds): rows whose TTL has come are not loaded, and are not in the way of an
    /// [`SaveMode::Init`].
    #[must_use]
    pub fn alive_at(&self, epoch_s: i64) -> Self {
        Self { alive_at: Some(epoch_s), ..self.clone() }
    }

    /// The name of the table.
    pub fn table(&self) -> &str {
        self.sender.table()
    }

    /// Pauses as this view makes them between attempts: for callers that repeat a transaction.
    pub fn backoff(&self) -> Backoff {
        self.sender.backoff()
    }

    /// What the table looks like.
    pub fn description(&self) -> &'static Description {
        self.description
    }

    /// Creates the table as described (on demand, TTL, point-in-time recovery) and waits until it is active. One that
    /// exists is left as it is; the report says what it lacks.
    ///
    /// Needs `dynamodb:CreateTable`, `DescribeTable`, `UpdateTimeToLive`, `DescribeTimeToLive`,
    /// `UpdateContinuousBackups` and `DescribeContinuousBackups` on the table.
    pub async fn ensure_table(&self) -> Result<Report> {
        let found = self.sender.ensure_table(self.description).await;
        self.told("ensure", "", found.map_err(|source| Error::TableNotReady { table: self.table().into(), source }))
    }

    /// Says what the table lacks of its description; an error where there is none.
    pub async fn check_table(&self) -> Result<Report> {
        let found = self.sender.check_table(self.description).await;
        self.told("check", "", found.map_err(|source| Error::TableNotReady { table: self.table().into(), source }))
    }

    /// Logs how an operation ended.
    fn told<T>(&self, operation: &'static str, id: &str, result: Result<T>) -> Result<T> {
        match &result {
            Ok(_) => tracing::debug!(table = self.table(), id, operation, "done"),
            // Somebody was first: an answer, not a failure.
            Err(Error::AlreadyExists { .. }) => tracing::debug!(table = self.table(), id, operation, "there already"),
            Err(error) => {
                let cause = std::error::Error::source(error).map(nameservice_model::chain).unwrap_or_default();
                tracing::warn!(table = self.table(), id, operation, %error, cause, "failed");
            }
        }
        result
    }
}
