//! Many items in few requests: batches of the size that DynamoDB allows, in parallel, without dropping an item.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::types::{AttributeValue, DeleteRequest, WriteRequest};
use futures_util::{StreamExt, TryStreamExt, stream};
use nameservice_dynamo::READ_BATCH;
use nameservice_model::{Address, ConcernKind, Error, RecordKind, Result};

use crate::{
    Store,
    client::of_table,
    expressions::Key,
    items::{self, Item, RecordItems},
    schema::*,
};

/// How many batches are in flight at the same time.
const PARALLEL: usize = 8;

/// A record to be read: its address, and its kind if it is known.
pub(crate) type Wanted = (Address, Option<RecordKind>);

impl Store {
    /// Reads records whole, consistently, in the order given, and stops once `budget` bytes have come (always after at
    /// least one batch). Records that no longer exist are left out. The second value is how many of `wanted` were read.
    pub(crate) async fn read_records(
        &self,
        operation: &'static str,
        wanted: &[Wanted],
        budget: usize,
    ) -> Result<(Vec<RecordItems>, usize)> {
        let reads = batches_of(wanted).into_iter().map(|batch| self.read_batch(operation, batch.to_vec()));
        let mut batches = stream::iter(reads.collect::<Vec<_>>()).buffered(PARALLEL);
        let (mut records, mut looked_at, mut bytes) = (Vec::new(), 0, 0);
        while let Some((found, count)) = batches.try_next().await? {
            looked_at += count;
            bytes += found.iter().map(RecordItems::weight).sum::<usize>();
            records.extend(found);
            if bytes >= budget {
                break;
            }
        }
        Ok((records, looked_at))
    }

    /// The second value is how many records were asked for.
    async fn read_batch(&self, operation: &'static str, batch: Vec<Wanted>) -> Result<(Vec<RecordItems>, usize)> {
        let keys = batch.iter().flat_map(|(address, kind)| record_keys(address, *kind)).collect();
        let mut found: HashMap<String, Vec<Item>> = HashMap::new();
        for item in self.get_all(operation, keys).await? {
            found.entry(items::pk(&item).to_owned()).or_default().push(item);
        }
        let in_order = batch.iter().filter_map(|(address, _)| found.remove(address.as_str()));
        Ok((in_order.map(RecordItems::new).collect(), batch.len()))
    }

    /// Reads the items of at most a hundred keys, consistently, with one BatchGetItem.
    pub(crate) async fn get_all(&self, operation: &'static str, keys: Vec<Key>) -> Result<Vec<Item>> {
        let keys = keys.iter().map(Key::item).collect();
        self.sender.read_batch(operation, keys, true).await.map_err(of_table)
    }

    /// Deletes items, batch by batch.
    pub(crate) async fn delete_all(&self, operation: &'static str, keys: Vec<Key>) -> Result<()> {
        let deletes = keys
            .iter()
            .map(|key| {
                let delete = DeleteRequest::builder().set_key(Some(key.item())).build()?;
                Ok(WriteRequest::builder().delete_request(delete).build())
            })
            .collect::<Result<Vec<_>, aws_sdk_dynamodb::error::BuildError>>()
            .map_err(|error| Error::Store { operation, source: error.into() })?;
        let unwritten = self.sender.write_all(operation, &[ATTR_PK, ATTR_SK], deletes).await;
        unwritten.into_iter().next().map_or(Ok(()), |unwritten| Err(of_table(unwritten.error)))
    }
}

/// Returns the keys of a record's items: those of its kind, or all if the kind is not known.
fn record_keys(address: &Address, kind: Option<RecordKind>) -> Vec<Key> {
    let concerns = kind.map_or(&ConcernKind::ALL[..], concerns_of);
    let concerns = concerns.iter().map(|concern| sk_of(*concern));
    std::iter::once(SK_META).chain(concerns).map(|sk| Key::new(address, sk)).collect()
}

/// Splits the records so that each batch has as many as fit the key limit of one request.
fn batches_of(wanted: &[Wanted]) -> Vec<&[Wanted]> {
    let (mut batches, mut start, mut keys) = (Vec::new(), 0, 0);
    for (i, (_, kind)) in wanted.iter().enumerate() {
        let more = 1 + kind.map_or(ConcernKind::ALL.len(), |kind| concerns_of(kind).len());
        if keys + more > READ_BATCH {
            batches.push(&wanted[start..i]);
            (start, keys) = (i, 0);
        }
        keys += more;
    }
    if start < wanted.len() {
        batches.push(&wanted[start..]);
    }
    batches
}

/// Returns a key for `ExclusiveStartKey`, which needs the keys of the index and those of the table.
pub(crate) fn start_key(hash: Option<(&str, &str)>, pk: &str, sk: &str) -> HashMap<String, AttributeValue> {
    let mut key = Key::new(pk, sk).item();
    if let Some((attribute, value)) = hash {
        key.insert(attribute.to_owned(), items::string(value));
    }
    key
}

/// Groups the items of a scan by record, in the order in which they came.
#[derive(Default)]
pub(crate) struct Assembly {
    current: Option<(String, BTreeMap<String, Item>)>,
}

impl Assembly {
    /// Adds the next item. Returns the previous record if this item begins another.
    pub(crate) fn push(&mut self, item: Item) -> Option<RecordItems> {
        let (pk, sk) = (items::pk(&item).to_owned(), items::sk(&item).to_owned());
        match &mut self.current {
            Some((current, rows)) if *current == pk => {
                rows.insert(sk, item);
                None
            }
            _ => {
                let before = self.finish();
                self.current = Some((pk, BTreeMap::from([(sk, item)])));
                before
            }
        }
    }

    /// Returns the last record.
    pub(crate) fn finish(&mut self) -> Option<RecordItems> {
        self.current.take().map(|(_, items)| RecordItems { items })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_as_many_records_as_fit_a_hundred_keys() {
        let wanted =
            |kind, n: usize| (0..n).map(move |i| (Address::stored(format!("{i}:main")), kind)).collect::<Vec<_>>();
        let sizes = |wanted: &[Wanted]| batches_of(wanted).iter().map(|batch| batch.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&wanted(Some(RecordKind::Ledger), 45)), [20, 20, 5]);
        assert_eq!(sizes(&wanted(Some(RecordKind::GraphSource), 45)), [25, 20]);
        assert_eq!(sizes(&wanted(None, 21)), [20, 1]);
        assert_eq!(sizes(&[]), Vec::<usize>::new());
    }
}
