//! A fresh table for one test.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
};

use aws_sdk_dynamodb::{
    Client,
    types::{
        AttributeDefinition, AttributeValue, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection,
        ProjectionType, PutRequest, ScalarAttributeType, WriteRequest,
    },
};
use nameservice_feed::Feed;
use nameservice_store::{self as store, Store, schema};
use nameservice_views::{Description, Index, Key, KeyType as Typed, Projection as Projected};
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
        create(&table.client, &table.name, &store::DESCRIPTION).await;
        create(&table.client, table.feed.table(), &nameservice_feed::DESCRIPTION).await;
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
                projection: Projected::Include(&["name", "branch", "source_type", "dependencies", "retracted"]),
            }],
            ttl: None,
            stream: false,
        };
        let table = Self::unmade();
        create(&table.client, &table.name, &MADE_BY_FLUREE).await;
        create(&table.client, table.feed.table(), &nameservice_feed::DESCRIPTION).await;
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

/// Creates a table with these keys and indexes in one request: without a stream, and without expiry.
async fn create(client: &Client, name: &str, description: &Description) {
    let element = |key: &str, of| KeySchemaElement::builder().attribute_name(key).key_type(of).build().unwrap();
    let schema = |hash: &str, range: Option<&str>| {
        let range = range.map(|range| element(range, KeyType::Range));
        std::iter::once(element(hash, KeyType::Hash)).chain(range).collect::<Vec<_>>()
    };
    let mut attributes = BTreeSet::from([description.partition_key]);
    attributes.extend(description.sort_key);
    let mut request = client
        .create_table()
        .table_name(name)
        .set_key_schema(Some(schema(description.partition_key, description.sort_key)))
        .billing_mode(BillingMode::PayPerRequest);
    for index in description.indexes {
        let sort = index.sort_key.map(|key| key.name);
        assert!([Some(index.partition_key), index.sort_key].into_iter().flatten().all(|key| key.key_type == Typed::S));
        attributes.insert(index.partition_key.name);
        attributes.extend(sort);
        let projection = match index.projection {
            Projected::All => Projection::builder().projection_type(ProjectionType::All),
            Projected::KeysOnly => Projection::builder().projection_type(ProjectionType::KeysOnly),
            Projected::Include(attributes) => Projection::builder()
                .projection_type(ProjectionType::Include)
                .set_non_key_attributes(Some(attributes.iter().map(ToString::to_string).collect())),
        };
        let index = GlobalSecondaryIndex::builder()
            .index_name(index.name)
            .set_key_schema(Some(schema(index.partition_key.name, sort)))
            .projection(projection.build());
        request = request.global_secondary_indexes(index.build().unwrap());
    }
    let defined = attributes.into_iter().map(|name| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build().unwrap()
    });
    request.set_attribute_definitions(Some(defined.collect())).send().await.unwrap();
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
