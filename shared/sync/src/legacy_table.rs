//! Reads a table of an older layout.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use aws_sdk_dynamodb::{Client, types::AttributeValue, types::KeyType};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use nameservice_dynamo::{Item, RetryPolicy, Sender};
use nameservice_model::{Address, Error, Object, Record};
use tokio::sync::OnceCell;

use crate::{
    Found, Reading, Result, Source, SyncError,
    legacy::{keeps_addresses, read_row},
    older_record::VIRTUAL_GRAPH,
    report::Records,
};

/// The branch that an address without one means.
const MAIN: &str = "main";
const READ: &str = "read an older table";
/// How many rows one request asks for.
const PAGE: i32 = 500;
/// How many rows are looked up at a time.
const TOGETHER: usize = 16;

/// A table of an older layout: keyed by `ledger_alias` or by `pk`, without a sort key.
#[derive(Debug)]
pub struct LegacyTable {
    sender: Sender,
    prefix: Option<String>,
    key: OnceCell<String>,
    kept: Mutex<Records>,
    /// The keys of records that were found under another one than their addresses lead to.
    odd: Mutex<HashMap<Address, String>>,
}

impl LegacyTable {
    /// Returns the table of this name as a source.
    pub fn new(client: Client, table: &str, prefix: Option<String>) -> Self {
        let sender = Sender::new(client, table, RetryPolicy::default());
        Self { sender, prefix, key: OnceCell::new(), kept: Mutex::default(), odd: Mutex::default() }
    }

    /// Returns the name of the table's key; an error if it is not a table of an older layout.
    async fn key(&self) -> Result<&str> {
        let described = || async {
            let describe = || self.sender.client().describe_table().table_name(self.sender.table()).send();
            let described = self.sender.read(READ, describe).await.map_err(unreadable)?;
            let keys = described.table.and_then(|table| table.key_schema).unwrap_or_default();
            let name =
                |kind: KeyType| keys.iter().find(|key| key.key_type == kind).map(|key| key.attribute_name.clone());
            match (name(KeyType::Hash), name(KeyType::Range)) {
                (Some(hash), None) if matches!(hash.as_str(), "pk" | "ledger_alias") => Ok(hash),
                _ => Err(SyncError::Unsupported(format!(
                    "the table {} has today's layout, or another program's: an older one is keyed by `ledger_alias` or \
                     `pk` alone",
                    self.sender.table()
                ))),
            }
        };
        self.key.get_or_try_init(described).await.map(String::as_str)
    }

    fn found(&self, item: Item) -> Found {
        let place = || match item.get("pk").or_else(|| item.get("ledger_alias")) {
            Some(AttributeValue::S(key)) => key.clone(),
            _ => "a row without a key".to_owned(),
        };
        let name = place();
        let found = match serde_dynamo::from_item::<_, Object>(item) {
            Ok(row) => read_row(&row),
            Err(error) => Found::Unreadable { place: name.clone(), reason: error.to_string() },
        };
        if let Found::Record(record) = &found
            && !keys(&record.address).contains(&name)
        {
            self.odd.lock().unwrap_or_else(PoisonError::into_inner).insert(record.address.clone(), name);
        }
        found
    }

    async fn get(&self, address: &Address) -> Result<Option<Record>> {
        let key = self.key().await?;
        let odd = self.odd.lock().unwrap_or_else(PoisonError::into_inner).get(address).cloned();
        for text in keys(address).into_iter().chain(odd) {
            let get = || {
                let request = self.sender.client().get_item().table_name(self.sender.table()).consistent_read(true);
                request.key(key, AttributeValue::S(text.clone())).send()
            };
            let answer = self.sender.read(READ, get).await.map_err(unreadable)?;
            if let Some(Found::Record(record)) = answer.item.map(|item| self.found(item))
                && record.address == *address
            {
                return Ok(Some(*record));
            }
        }
        Ok(None)
    }
}

/// Returns the keys under which a record may be. Without a branch, `main` is meant.
fn keys(address: &Address) -> Vec<String> {
    let mut keys = vec![address.as_str().to_owned(), format!("{VIRTUAL_GRAPH}{address}")];
    if address.branch() == MAIN {
        keys.extend([address.name().to_owned(), format!("{VIRTUAL_GRAPH}{}", address.name())]);
    }
    keys
}

#[async_trait]
impl Source for LegacyTable {
    async fn read(&self) -> Result<Box<dyn Reading + '_>> {
        self.key().await?;
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Records::default();
        Ok(Box::new(Rows { table: self, after: None, is_over: false }))
    }

    async fn lookup_all(&self, addresses: &[Address]) -> Result<Option<Vec<Record>>> {
        let found = stream::iter(addresses.to_vec()).map(|address| async move { self.get(&address).await });
        let found: Vec<_> = found.buffered(TOGETHER).try_collect().await?;
        Ok(Some(found.into_iter().flatten().collect()))
    }

    fn finds(&self) -> bool {
        true
    }

    fn can_be_read_again(&self) -> bool {
        true
    }

    fn kept_addresses(&self) -> Records {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct Rows<'a> {
    table: &'a LegacyTable,
    after: Option<Item>,
    is_over: bool,
}

#[async_trait]
impl Reading for Rows<'_> {
    async fn next(&mut self) -> Result<Vec<Found>> {
        let sender = &self.table.sender;
        while !self.is_over {
            let scan = || {
                let request = sender.client().scan().table_name(sender.table()).consistent_read(true).limit(PAGE);
                request.set_exclusive_start_key(self.after.clone()).send()
            };
            let page = sender.read(READ, scan).await.map_err(unreadable)?;
            self.after = page.last_evaluated_key;
            self.is_over = self.after.is_none();
            let prefix = self.table.prefix.as_deref().unwrap_or_default();
            let mut found: Vec<Found> =
                page.items.unwrap_or_default().into_iter().map(|item| self.table.found(item)).collect();
            found.retain(
                |found| !matches!(found, Found::Record(record) if !record.address.as_str().starts_with(prefix)),
            );
            let mut kept = self.table.kept.lock().unwrap_or_else(PoisonError::into_inner);
            for found in &found {
                if let Found::Record(record) = found
                    && keeps_addresses(record)
                {
                    kept.add_address(&record.address);
                }
            }
            drop(kept);
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    fn position(&self) -> Option<u64> {
        None
    }
}

fn unreadable(error: nameservice_dynamo::Error) -> SyncError {
    use nameservice_dynamo::Error as Dynamo;
    SyncError::Source(match error {
        Dynamo::OutcomeUnknown { operation, source } | Dynamo::Unavailable { operation, source } => {
            Error::Unavailable { operation, source }
        }
        error => Error::Store { operation: READ, source: error.into() },
    })
}
