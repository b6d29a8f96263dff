use std::{collections::HashMap, fmt, sync::Arc};

use aws_sdk_dynamodb::types::{DeleteRequest, PutRequest, WriteRequest};
use nameservice_dynamo::Item;
use nameservice_model::chain;
use serde::Serialize;

use crate::{
    Result, RowKey, View,
    error::{Source, broken},
};

const SAVE: &str = "save rows";
const DELETE: &str = "delete rows";

/// The rows of a batch that were not written. All others were.
#[derive(Clone, Debug)]
pub struct BatchFailure {
    /// The table.
    pub table: String,
    /// How many rows the call was about.
    pub of: usize,
    /// The rows that failed, by position.
    pub failed: Vec<FailedRow>,
}

/// A row of a batch that was not written.
#[derive(Clone, Debug)]
pub struct FailedRow {
    /// Its position in the call.
    pub position: usize,
    /// Its key; `None` if it has none.
    pub key: Option<RowKey>,
    /// The error. [`Source::OutcomeUnknown`] means that it may have been written.
    pub source: Arc<Source>,
}

impl fmt::Display for BatchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} rows were not written to {}", self.failed.len(), self.of, self.table)?;
        let Some(first) = self.failed.first() else { return Ok(()) };
        match &first.key {
            Some(key) => write!(f, "; `{key}`: {}", first.source),
            None => write!(f, "; row {}: {}", first.position, first.source),
        }
    }
}

impl std::error::Error for BatchFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.failed.first().map(|row| row.source.as_ref() as _)
    }
}

/// The request for one row.
struct Planned {
    position: usize,
    key: RowKey,
    write: WriteRequest,
}

impl View {
    /// Saves many rows (mode [`Any`](crate::SaveMode::Any)), each with its own TTL (epoch seconds): 25 per request, requests
    /// in parallel, unprocessed rows retried. Rows that fail are reported one by one and do not affect others. Of several rows
    /// with one key the last is saved.
    ///
    /// Needs `dynamodb:BatchWriteItem` on the table.
    pub async fn save_batch<T: Serialize>(&self, rows: &[(T, Option<i64>)]) -> Result<(), BatchFailure> {
        let plan = |(row, ttl): &(T, Option<i64>)| {
            let (key, item) = self.item(row, *ttl).map_err(|source| (None, source))?;
            let put = PutRequest::builder().set_item(Some(item)).build();
            let put = put.map_err(|error| (Some(key.clone()), broken(SAVE, error)))?;
            Ok((key, WriteRequest::builder().put_request(put).build()))
        };
        self.write_each("save batch", SAVE, rows.iter().map(plan)).await
    }

    /// Deletes many rows, as [`View::save_batch`] saves them. Deleting a missing row succeeds.
    ///
    /// Needs `dynamodb:BatchWriteItem` on the table.
    pub async fn delete_batch(&self, keys: &[RowKey]) -> Result<(), BatchFailure> {
        let plan = |key: &RowKey| {
            let delete = |item: Item| {
                let delete = DeleteRequest::builder().set_key(Some(item)).build();
                delete.map_err(|error| broken(DELETE, error))
            };
            let delete = key.item(self.description).and_then(delete).map_err(|source| (Some(key.clone()), source))?;
            Ok((key.clone(), WriteRequest::builder().delete_request(delete).build()))
        };
        self.write_each("delete batch", DELETE, keys.iter().map(plan)).await
    }

    async fn write_each(
        &self,
        name: &'static str,
        operation: &'static str,
        writes: impl ExactSizeIterator<Item = Result<(RowKey, WriteRequest), (Option<RowKey>, Source)>>,
    ) -> Result<(), BatchFailure> {
        let of = writes.len();
        let mut failed = Vec::new();
        // DynamoDB rejects a batch that has a key twice.
        let mut planned: HashMap<RowKey, Planned> = HashMap::new();
        for (position, write) in writes.enumerate() {
            match write {
                Ok((key, write)) => {
                    planned.insert(key.clone(), Planned { position, key, write });
                }
                Err((key, source)) => failed.push(FailedRow { position, key, source: Arc::new(source) }),
            }
        }
        let mut planned: Vec<Planned> = planned.into_values().collect();
        planned.sort_by_key(|planned| planned.position);
        let keys: Vec<&str> = self.description.keys().collect();
        let requests = planned.iter().map(|planned| planned.write.clone()).collect();
        for unwritten in self.sender.write_all(operation, &keys, requests).await {
            let source = Arc::new(unwritten.error);
            let rows = unwritten.positions.into_iter().filter_map(|position| planned.get(position));
            failed.extend(rows.map(|row| FailedRow {
                position: row.position,
                key: Some(row.key.clone()),
                source: source.clone(),
            }));
        }
        failed.sort_by_key(|row| row.position);
        if let Some(first) = failed.first() {
            let id = first.key.as_ref().map_or_else(|| format!("row {}", first.position), RowKey::to_string);
            let (failed, cause) = (failed.len(), chain(first.source.as_ref()));
            tracing::warn!(table = self.table(), operation = name, rows = of, failed, first = id, cause, "failed");
        }
        tracing::debug!(table = self.table(), operation = name, rows = of, failed = failed.len(), "done");
        match failed.is_empty() {
            true => Ok(()),
            false => Err(BatchFailure { table: self.table().to_owned(), of, failed }),
        }
    }
}
