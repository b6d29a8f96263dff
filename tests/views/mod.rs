//! The read-model store: tables are as declared, and nothing is lost, counted twice or assumed without a reply.

mod batches;
mod counts;
mod reads;
mod table;
mod transactions;
mod writes;

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use futures_util::future::join_all;
use nameservice_tests::{
    LONG, engine,
    proxy::{Fault, Proxy},
};
use nameservice_views::{
    Description, Error, Index, Item, Key, Lack, Projection, Range, Rejected, RetryPolicy, RowKey, SaveMode, Source,
    View, Write, from_item, to_item,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use serde_json::json;
use uuid::Uuid;

static ORDERS: Description = Description {
    partition_key: "customer",
    sort_key: Some("placed_at"),
    indexes: &[
        Index {
            name: "by-state",
            partition_key: Key::string("state"),
            sort_key: Some(Key::number("total")),
            projection: Projection::All,
        },
        Index {
            name: "by-total",
            partition_key: Key::number("total"),
            sort_key: None,
            projection: Projection::KeysOnly,
        },
        Index {
            name: "by-digest",
            partition_key: Key::bytes("digest"),
            sort_key: Some(Key::string("placed_at")),
            projection: Projection::Include(&["note"]),
        },
    ],
    ttl: Some("ttl"),
    stream: false,
};

static COUNTERS: Description =
    Description { partition_key: "name", sort_key: None, indexes: &[], ttl: None, stream: false };

/// The retry policy of views whose failures a test expects.
const IMPATIENT: RetryPolicy = RetryPolicy {
    deadline: Duration::from_millis(250),
    base: Duration::from_millis(5),
    cap: Duration::from_millis(20),
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    customer: String,
    placed_at: String,
    state: String,
    total: i64,
    note: String,
    digest: Bytes,
}

#[derive(Clone, Debug, PartialEq)]
struct Bytes(Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

fn order(customer: &str, placed_at: impl ToString) -> Order {
    Order {
        customer: customer.into(),
        placed_at: placed_at.to_string(),
        state: "open".into(),
        total: 7,
        note: "first".into(),
        digest: Bytes(vec![0, 255]),
    }
}

fn noted(customer: &str, placed_at: impl ToString, note: impl ToString) -> Order {
    Order { note: note.to_string(), ..order(customer, placed_at) }
}

fn key(order: &Order) -> RowKey {
    RowKey::sorted(&order.customer, &order.placed_at)
}

/// A table, and a view of it with a proxy in between.
struct Ground {
    endpoint: String,
    client: Client,
    /// Through the proxy.
    view: View,
    /// Straight to the engine.
    direct: View,
    proxy: Proxy,
}

impl Ground {
    async fn of(description: &'static Description) -> Self {
        let endpoint = engine::start();
        let client = engine::client(&endpoint);
        let name = format!("views-{}", Uuid::new_v4().simple());
        let view_of = |client| View::new(client, &name, description).with_retry_policy(engine::RETRIES);
        let direct = view_of(client.clone());
        assert!(direct.ensure_table().await.unwrap().created);
        let proxy = Proxy::start(&endpoint).await;
        let view = view_of(engine::client(proxy.url()));
        Self { endpoint, client, view, direct, proxy }
    }

    async fn save_all(&self, orders: &[Order]) {
        let rows: Vec<_> = orders.iter().map(|order| (order.clone(), None)).collect();
        self.direct.save_batch(&rows).await.unwrap();
    }

    async fn found(&self, order: &Order) -> Option<Order> {
        self.direct.load_one(&key(order)).await.unwrap()
    }

    async fn raw(&self, order: &Order) -> Option<Item> {
        let request = self.client.get_item().table_name(self.direct.table()).consistent_read(true);
        let request = request.key("customer", AttributeValue::S(order.customer.clone()));
        request.key("placed_at", AttributeValue::S(order.placed_at.clone())).send().await.unwrap().item
    }

    fn impatient(&self) -> View {
        self.view.clone().with_retry_policy(IMPATIENT)
    }
}

/// Asks an index until it has as many rows as it should: indexes follow their table.
async fn indexed<T: DeserializeOwned>(
    view: &View,
    index: &str,
    value: impl Into<nameservice_views::KeyValue> + Clone,
    range: &Range,
    count: usize,
) -> Vec<T> {
    let until = Instant::now() + LONG;
    while Instant::now() < until {
        let page = view.query_index::<T>(index, value.clone(), range).await.unwrap();
        if page.rows.len() == count {
            return page.rows;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{index} never had {count} rows");
}

/// What a table lacks, without point-in-time recovery, which engines for one machine do not have.
fn lacks(report: nameservice_views::Report) -> Vec<Lack> {
    report.lacks.into_iter().filter(|lack| *lack != Lack::Recovery).collect()
}
