//! The nameservice on one DynamoDB table. Being written.
mod connect;
mod stub;
pub use connect::{endpoint_client, lambda_client, sdk_client};

/// The nameservice over one DynamoDB table. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    client: aws_sdk_dynamodb::Client,
    table: String,
}

/// What `ensure_table` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableReport {
    /// Whether this call created the table.
    pub created: bool,
    /// What an existing table lacks, in sentences for an operator.
    pub lacks: Vec<String>,
}

impl Store {
    /// The name of the table where none is configured.
    pub const DEFAULT_TABLE: &'static str = "fluree-nameservice";
    /// Over this table of this client.
    pub fn new(client: aws_sdk_dynamodb::Client, table: impl Into<String>) -> Self {
        Self { client, table: table.into() }
    }
    /// Creates the table, or checks the one that exists.
    pub async fn ensure_table(&self) -> nameservice_model::Result<TableReport> {
        let _ = (&self.client, &self.table);
        unimplemented!()
    }
}
