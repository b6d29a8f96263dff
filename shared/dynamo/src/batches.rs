//! Many reads or writes in few requests: batches of the size that DynamoDB allows, without dropping one.

use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, WriteRequest};
use futures_util::{StreamExt, stream};

use crate::{Attempts, Error, Item, Outcome, Result, Sender, table::code_of};

/// The most keys of one BatchGetItem.
pub const READ_BATCH: usize = 100;
/// The most requests of one BatchWriteItem.
pub const WRITE_BATCH: usize = 25;
/// How many batches are in flight at the same time.
const PARALLEL: usize = 8;

/// Writes of a batch that were not applied, or may not have been.
#[derive(Debug)]
pub struct Unwritten {
    /// The writes, by their positions in the call.
    pub positions: Vec<usize>,
    /// The cause.
    pub error: Error,
}

/// A write, with its position in the call.
type Numbered = (usize, WriteRequest);

impl Sender {
    /// Reads the items of at most [`READ_BATCH`] keys, no two of them alike, with one BatchGetItem, which is repeated for the keys that
    /// DynamoDB left unprocessed. Returns the items that exist, in no particular order.
    pub async fn read_batch(&self, operation: &'static str, keys: Vec<Item>, is_consistent: bool) -> Result<Vec<Item>> {
        let mut left = keys;
        let mut found = Vec::with_capacity(left.len());
        let mut backoff = self.backoff();
        while !left.is_empty() {
            let wanted = KeysAndAttributes::builder()
                .consistent_read(is_consistent)
                .set_keys(Some(std::mem::take(&mut left)))
                .build()
                .map_err(|error| Error::Failed { operation, source: error.into() })?;
            let request = self.client().batch_get_item().request_items(self.table(), wanted);
            let output = self.read(operation, || request.clone().send()).await?;
            found.extend(output.responses.unwrap_or_default().into_values().flatten());
            left = output.unprocessed_keys.unwrap_or_default().into_values().flat_map(|keys| keys.keys).collect();
            // An incomplete answer would be a wrong one: fail instead.
            if !left.is_empty() && !backoff.pause().await {
                return Err(Error::Unavailable { operation, source: Some("keys were left unprocessed".into()) });
            }
        }
        Ok(found)
    }

    /// Puts and deletes items, batch by batch, and repeats what DynamoDB leaves unprocessed. Returns what could not be
    /// written; everything else was.
    ///
    /// `keys` are the attributes of the table's key. No two writes may have the same one.
    pub async fn write_all(&self, operation: &'static str, keys: &[&str], writes: Vec<WriteRequest>) -> Vec<Unwritten> {
        let numbered: Vec<Numbered> = writes.into_iter().enumerate().collect();
        let batches: Vec<Vec<Numbered>> = numbered.chunks(WRITE_BATCH).map(<[Numbered]>::to_vec).collect();
        stream::iter(batches.into_iter().map(|batch| self.write_batch(operation, keys, batch)))
            .buffer_unordered(PARALLEL)
            .concat()
            .await
    }

    /// Sends one batch. A write that can never be applied fails the whole request: then each write is sent alone, so
    /// that the others do not fail with it.
    async fn write_batch(&self, operation: &'static str, keys: &[&str], batch: Vec<Numbered>) -> Vec<Unwritten> {
        let mut left = batch;
        match self.write_until_done(operation, keys, &mut left).await {
            Ok(()) => Vec::new(),
            Err(error) if left.len() > 1 && is_about_one_write(&error) => {
                let alone = left.into_iter().map(|write| async move {
                    let (position, mut write) = (write.0, vec![write]);
                    let done = self.write_until_done(operation, keys, &mut write).await;
                    done.err().map(|error| Unwritten { positions: vec![position], error })
                });
                stream::iter(alone.collect::<Vec<_>>())
                    .buffered(PARALLEL)
                    .filter_map(std::future::ready)
                    .collect()
                    .await
            }
            Err(error) => vec![Unwritten { positions: left.iter().map(|(position, _)| *position).collect(), error }],
        }
    }

    /// Sends writes until `left` is empty, and removes from it what was written.
    async fn write_until_done(&self, operation: &'static str, keys: &[&str], left: &mut Vec<Numbered>) -> Result<()> {
        let mut backoff = self.backoff();
        let mut attempts = Attempts::default();
        while !left.is_empty() {
            let writes = left.iter().map(|(_, write)| write.clone()).collect();
            let request = self.client().batch_write_item().request_items(self.table(), writes);
            let output = match self.send(operation, &mut attempts, || request.clone().send()).await? {
                Outcome::Applied(output) => output,
                Outcome::Rejected(_) => {
                    return Err(Error::Failed { operation, source: "a batch was rejected by a condition".into() });
                }
            };
            let unprocessed: Vec<WriteRequest> =
                output.unprocessed_items.unwrap_or_default().into_values().flatten().collect();
            let unprocessed: Vec<_> = unprocessed.iter().filter_map(|write| key_of(write, keys)).collect();
            left.retain(|(_, write)| key_of(write, keys).is_some_and(|key| unprocessed.contains(&key)));
            if !left.is_empty() && !backoff.pause().await {
                let source = Some("writes were left unprocessed".into());
                return Err(match attempts.uncertain {
                    true => Error::OutcomeUnknown { operation, source },
                    false => Error::Unavailable { operation, source },
                });
            }
        }
        Ok(())
    }
}

/// Returns the key of a write. Only keys are compared, as they are strings: DynamoDB returns numbers in another form
/// than they were sent.
fn key_of<'a>(write: &'a WriteRequest, keys: &[&str]) -> Option<Vec<&'a AttributeValue>> {
    let put = write.put_request().map(|put| put.item());
    let item: &Item = put.or_else(|| write.delete_request().map(|delete| delete.key()))?;
    keys.iter().map(|key| item.get(*key)).collect()
}

fn is_about_one_write(error: &Error) -> bool {
    matches!(error, Error::TooLarge) || code_of(error) == Some("ValidationException")
}
