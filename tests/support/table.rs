//! A fresh table for one test.

use std::{collections::BTreeMap, ops::Deref};

use aws_sdk_dynamodb::{
    Client,
    types::{AttributeValue, PutRequest, WriteRequest},
};
use nameservice_dynamo::{Description, Index, Key, Projection, Sender};
use nameservice_feed::Feed;
use nameservice_store::{self as store, Store, schema};
use uuid::Uuid;

use crate::{
    engine,
    proxy::{Proxy, Remote},
    rows::{self, Row},
};

/// A table of its own for one test, and a store over it.
pub struct Table {
    /// A client that goes straight to the engine.
    pub client: Client,
    /// The engine.
    pub endpoint: String,
    /// The name of the table.
    pub name: String,
    /// The store over this table, straight to the engine.
    pub store: Store,
    /// The feed that belongs to it, straight to the engine.
    pub feed: Feed,
}

impl Table {
    /// A table and its feed's with the keys and indexes of `ensure_table`, for tests that read no stream. Streams make local engines slow:
    /// the embedded one scans all of their records with each write, and DynamoDB Local gets slower with each that was deleted.
    pub async fn fresh() -> Self {
        let table = Self::unmade();
        create(&table.client, &table.name, store::DESCRIPTION).await;
        create(&table.client, table.feed.table(), nameservice_feed::DESCRIPTION).await;
        table
    }

    /// A table and its feed's as `ensure_table` makes them, with a stream.
    pub async fn with_stream() -> Self {
        let table = Self::unmade();
        table.store.ensure_table().await.unwrap();
        table.feed.ensure_table().await.unwrap();
        table
    }

    /// A table as a Fluree server makes it: only the index by kind.
    pub async fn made_by_fluree() -> Self {
        /// A fact about another program: it does not follow from our description.
        const MADE_BY_FLUREE: Description = Description {
            partition_key: "pk",
            sort_key: Some("sk"),
            indexes: &[Index {
                name: "gsi1-kind",
                partition_key: Key::string("kind"),
                sort_key: Some(Key::string("pk")),
                projection: Projection::Include(&["name", "branch", "source_type", "dependencies", "retracted"]),
            }],
            ttl: None,
            stream: false,
        };
        let table = Self::unmade();
        create(&table.client, &table.name, MADE_BY_FLUREE).await;
        create(&table.client, table.feed.table(), nameservice_feed::DESCRIPTION).await;
        table
    }

    /// A store whose table does not exist yet.
    pub fn unmade() -> Self {
        let endpoint = engine::start();
        let client = engine::client(&endpoint);
        let name = format!("test-{}", Uuid::new_v4().simple());
        let store = Store::new(client.clone(), &name).with_retry_policy(engine::RETRIES);
        let feed = Feed::new(client.clone(), Feed::table_of(&name)).with_retry_policy(engine::RETRIES);
        Self { client, endpoint, name, store, feed }
    }

    /// This table with a proxy in front: its store's requests are counted, and can be made to fail.
    pub async fn proxied(self) -> Proxied {
        let proxy = Proxy::start(&self.endpoint).await;
        let client = engine::client(proxy.url());
        let store = Store::new(client.clone(), &self.name).with_retry_policy(engine::RETRIES);
        let feed = Feed::new(client, self.feed.table()).with_retry_policy(engine::RETRIES);
        Proxied { table: self, proxy, store, feed }
    }

    /// A raw row, `None` if there is none.
    pub async fn row(&self, pk: &str, sk: &str) -> Option<Row> {
        self.partition(pk).await.remove(sk)
    }

    /// All raw rows of a partition by sort key, but for the memory of the address, which outlives its records.
    pub async fn rows(&self, pk: &str) -> BTreeMap<String, Row> {
        let mut rows = self.partition(pk).await;
        rows.remove(schema::SK_CALLS);
        rows
    }

    /// All raw rows of a partition by sort key.
    async fn partition(&self, pk: &str) -> BTreeMap<String, Row> {
        let pages = self
            .client
            .query()
            .table_name(&self.name)
            .key_condition_expression("pk = :pk")
            .expression_attribute_values(":pk", AttributeValue::S(pk.into()))
            .consistent_read(true)
            .into_paginator()
            .items()
            .send()
            .collect::<Result<Vec<_>, _>>()
            .await
            .unwrap();
        pages.into_iter().map(|item| (item["sk"].as_s().unwrap().clone(), rows::from_item(&item))).collect()
    }

    /// Every raw row of the table, but for the memories of addresses.
    pub async fn all_rows(&self) -> Vec<Row> {
        let items = self
            .client
            .scan()
            .table_name(&self.name)
            .consistent_read(true)
            .into_paginator()
            .items()
            .send()
            .collect::<Result<Vec<_>, _>>()
            .await
            .unwrap();
        items.iter().map(rows::from_item).filter(|row| row["sk"] != rows::s(schema::SK_CALLS)).collect()
    }

    /// Puts rows as they are.
    pub async fn put(&self, rows: &[Row]) {
        for row in rows {
            self.client
                .put_item()
                .table_name(&self.name)
                .set_item(Some(rows::to_item(row)))
                .send()
                .await
                .unwrap_or_else(|error| panic!("{row:?}: {error:?}"));
        }
    }

    /// Puts many rows as they are, in batches.
    pub async fn put_many(&self, rows: &[Row]) {
        for chunk in rows.chunks(25) {
            let puts = chunk.iter().map(|row| {
                let put = PutRequest::builder().set_item(Some(rows::to_item(row))).build().unwrap();
                WriteRequest::builder().put_request(put).build()
            });
            let mut left = puts.collect::<Vec<_>>();
            while !left.is_empty() {
                let answer = self.client.batch_write_item().request_items(&self.name, left).send().await.unwrap();
                left = answer.unprocessed_items.unwrap_or_default().into_values().flatten().collect();
            }
        }
    }

    /// Sets one attribute (typed JSON) of a row, creating the row where it is missing.
    pub async fn set(&self, pk: &str, sk: &str, attribute: &str, value: serde_json::Value) {
        self.client
            .update_item()
            .table_name(&self.name)
            .key("pk", AttributeValue::S(pk.into()))
            .key("sk", AttributeValue::S(sk.into()))
            .update_expression("SET #a = :a")
            .expression_attribute_names("#a", attribute)
            .expression_attribute_values(":a", rows::to_attribute(&value))
            .send()
            .await
            .unwrap();
    }

    /// Deletes a row.
    pub async fn delete(&self, pk: &str, sk: &str) {
        self.client
            .delete_item()
            .table_name(&self.name)
            .key("pk", AttributeValue::S(pk.into()))
            .key("sk", AttributeValue::S(sk.into()))
            .send()
            .await
            .unwrap();
    }
}

/// Creates a table in one request: without a stream, and without expiry.
async fn create(client: &Client, name: &str, description: Description) {
    let sender = Sender::new(client.clone(), name, engine::RETRIES);
    assert!(sender.create_table(&Description { stream: false, ..description }).await.unwrap());
}

impl Drop for Table {
    fn drop(&mut self) {
        if engine::is_external() {
            for table in [self.name.as_str(), self.feed.table()] {
                let delete = self.client.delete_table().table_name(table);
                // Best effort: a leftover table does no harm.
                engine::runtime().spawn(async move { delete.send().await.ok() });
            }
        }
    }
}

/// A table with a proxy between it and the store. Stays on the thread of its test, as the proxy does.
pub struct Proxied<P = Proxy> {
    table: Table,
    /// The proxy, or its remote.
    pub proxy: P,
    /// The store over the same table, through the proxy.
    pub store: Store,
    /// The feed that belongs to it, through the proxy.
    pub feed: Feed,
}

impl Proxied {
    /// A fresh table behind a proxy.
    pub async fn fresh() -> Self {
        Table::fresh().await.proxied().await
    }

    /// A fresh table with a stream behind a proxy.
    pub async fn with_stream() -> Self {
        Table::with_stream().await.proxied().await
    }

    /// Splits it into what a task may have and what stays: the proxy, which ends when it is dropped.
    pub fn apart(self) -> (Proxied<Remote>, Proxy) {
        let Self { table, proxy, store, feed } = self;
        (Proxied { table, proxy: proxy.remote(), store, feed }, proxy)
    }
}

impl<P> Proxied<P> {
    /// The store that goes straight to the engine: for set-up, and for the other writers of a test.
    pub fn direct(&self) -> &Store {
        &self.table.store
    }

    /// The feed that goes straight to the engine.
    pub fn direct_feed(&self) -> &Feed {
        &self.table.feed
    }
}

impl<P> Deref for Proxied<P> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}
