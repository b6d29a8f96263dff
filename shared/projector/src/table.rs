use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use nameservice_model::{Address, Error, Result};
use nameservice_views::{Age, Range, RowKey, View};
use serde::{Deserialize, Serialize};

use crate::{Checkpoint, Over, Row, RowWrite, Rows};

/// The attribute of a row with its version: a number.
pub const VERSION: &str = "version";
/// The key of the row with the checkpoint. No record has this key: an address has a `:` and no `#`.
pub const CHECKPOINT: &str = "#checkpoint";
/// How long the version of a removed row is kept: longer than a rebuild takes.
const REMOVED_FOR: Duration = Duration::from_secs(24 * 3600);
/// How many rows are written at the same time.
const TOGETHER: usize = 32;

/// Rows in a table of DynamoDB: one item per record, whose partition key is the address. The table has a TTL and no sort key.
#[derive(Clone)]
pub struct TableRows<R> {
    view: View,
    clock: Arc<dyn Fn() -> SystemTime + Send + Sync>,
    row: std::marker::PhantomData<fn() -> R>,
}

impl<R> std::fmt::Debug for TableRows<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TableRows").field("table", &self.view.table()).finish_non_exhaustive()
    }
}

/// A row as it is stored.
#[derive(Serialize)]
struct Stored<'a, R> {
    address: &'a str,
    version: u64,
    #[serde(flatten)]
    row: &'a R,
}

/// The tombstone of a removed row.
#[derive(Serialize)]
struct Removed<'a> {
    address: &'a str,
    version: u64,
    removed: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredCheckpoint {
    address: String,
    /// The position.
    version: u64,
    /// Epoch milliseconds.
    recorded_at: i64,
}

/// Any item of the table, without its row.
#[derive(Deserialize)]
struct Versioned {
    address: String,
    version: u64,
    #[serde(default)]
    removed: bool,
}

/// Any item of the table. `row` is `None` if it cannot be read as a row of this read model.
#[derive(Deserialize)]
struct Found<R> {
    #[serde(flatten)]
    versioned: Versioned,
    #[serde(flatten)]
    row: Option<R>,
}

impl<R> Found<R> {
    /// Returns the row with its address and version; `None` for tombstones and the checkpoint.
    fn into_row(self) -> Result<Option<(Address, u64, R)>> {
        let Versioned { address, version, removed } = self.versioned;
        match self.row {
            _ if removed || address == CHECKPOINT => Ok(None),
            Some(row) => Ok(Some((Address::stored(address), version, row))),
            None => {
                let source = format!("the row of {address} has another form: rebuild the read model").into();
                Err(Error::Store { operation: "read a row", source })
            }
        }
    }
}

impl<R: Row> TableRows<R> {
    /// Returns the rows of a view, whose partition key is `address`.
    pub fn new(view: View) -> Self {
        Self { view, clock: Arc::new(SystemTime::now), row: std::marker::PhantomData }
    }

    /// Returns the view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the row of a record, consistently.
    pub async fn get(&self, address: &Address) -> Result<Option<R>> {
        let found: Option<Found<R>> = self.view.load_one(&RowKey::new(address.as_str())).await?;
        Ok(found.map(Found::into_row).transpose()?.flatten().map(|(_, _, row)| row))
    }

    /// Returns every row with its version, by address.
    pub async fn all(&self) -> Result<Vec<(Address, u64, R)>> {
        let (mut all, mut next) = (Vec::new(), None);
        loop {
            let page = self.view.scan::<Found<R>>(next).await?;
            for found in page.rows {
                all.extend(found.into_row()?);
            }
            next = page.next;
            if next.is_none() {
                all.sort_by(|(one, ..), (other, ..)| one.cmp(other));
                return Ok(all);
            }
        }
    }

    /// Returns the rows that an index has under a value, whose addresses begin with `prefix` and follow `after`: at most
    /// `limit`, by address, and whether there may be more. One request; an index follows its table within about a second.
    pub async fn page(
        &self,
        (index, value): (&str, &str),
        prefix: &str,
        after: Option<&Address>,
        limit: usize,
    ) -> Result<(Vec<(Address, R)>, bool)> {
        let range = match after {
            Some(after) if after.as_str() >= prefix => Range::new().after(after.as_str()),
            _ if prefix.is_empty() => Range::new(),
            _ => Range::new().prefix(prefix),
        };
        let page = self.view.query_index::<Found<R>>(index, value, &range.limit(limit)).await?;
        let (mut rows, mut has_more) = (Vec::new(), page.next.is_some());
        for found in page.rows {
            let Some((address, _, row)) = found.into_row()? else { continue };
            if !address.as_str().starts_with(prefix) {
                has_more = false;
                break;
            }
            rows.push((address, row));
        }
        Ok((rows, has_more))
    }

    async fn put(&self, write: RowWrite<R>, age: Age) -> Result<()> {
        let RowWrite { address, version, row } = write;
        let address = address.as_str();
        match row {
            Some(row) => self.view.save_newer(&Stored { address, version, row: &row }, VERSION, age, None).await?,
            None => {
                let until = (self.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + REMOVED_FOR;
                let ttl = i64::try_from(until.as_secs()).unwrap_or(i64::MAX);
                self.view.save_newer(&Removed { address, version, removed: true }, VERSION, age, Some(ttl)).await?
            }
        };
        Ok(())
    }
}

#[async_trait]
impl<R: Row> Rows<R> for TableRows<R> {
    async fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        let stored: Option<StoredCheckpoint> = self.view.load_one(&RowKey::new(CHECKPOINT)).await?;
        let checkpoint = |stored: StoredCheckpoint| Checkpoint {
            position: stored.version,
            recorded_at: Timestamp::from_millisecond(stored.recorded_at).unwrap_or(Timestamp::UNIX_EPOCH),
        };
        Ok(stored.map(checkpoint))
    }

    async fn advance(&self, checkpoint: &Checkpoint) -> Result<()> {
        let (version, recorded_at) = (checkpoint.position, checkpoint.recorded_at.as_millisecond());
        let stored = StoredCheckpoint { address: CHECKPOINT.to_owned(), version, recorded_at };
        self.view.save_newer(&stored, VERSION, Age::Older, None).await?;
        Ok(())
    }

    async fn write(&self, writes: Vec<RowWrite<R>>, over: Over) -> Result<()> {
        let age = match over {
            Over::Older => Age::Older,
            Over::SameOrOlder => Age::SameOrOlder,
        };
        let puts = stream::iter(writes.into_iter().map(|write| self.put(write, age)));
        puts.buffer_unordered(TOGETHER).try_collect::<()>().await
    }

    async fn older_than(&self, version: u64) -> Result<Vec<Address>> {
        let mut next = None;
        loop {
            let page = self.view.scan::<Versioned>(next).await?;
            let older = page
                .rows
                .into_iter()
                .filter(|found| found.address != CHECKPOINT && !found.removed && found.version < version);
            let older: Vec<Address> = older.map(|found| Address::stored(found.address)).collect();
            next = page.next;
            if next.is_none() || !older.is_empty() {
                return Ok(older);
            }
        }
    }

    async fn clear(&self) -> Result<()> {
        // The checkpoint first: if this is interrupted, the rows are rebuilt.
        self.view.delete(&RowKey::new(CHECKPOINT)).await?;
        let mut next = None;
        loop {
            let page = self.view.scan::<Versioned>(next).await?;
            let keys: Vec<RowKey> = page.rows.into_iter().map(|found| RowKey::new(found.address)).collect();
            self.view.delete_batch(&keys).await.map_err(nameservice_views::Error::from)?;
            next = page.next;
            if next.is_none() {
                return Ok(());
            }
        }
    }
}
