//! The read-model store: what is declared is what there is, nothing is lost, counted twice or believed without an answer.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use futures_util::future::join_all;
use nameservice_tests::{
    engine,
    proxy::{Fault, Proxy},
};
use nameservice_views::{
    Description, Error, Index, Item, Key, Lack, Projection, Range, Refused, RetryPolicy, RowKey, SaveMode, Source,
    View, Write, endpoint_client, from_item, to_item,
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

/// So patient is a view whose failures a test wants to see.
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
        let client = endpoint_client(&endpoint);
        let name = format!("views-{}", Uuid::new_v4().simple());
        let direct = View::new(client.clone(), &name, description);
        assert!(direct.ensure_table().await.unwrap().created);
        let proxy = Proxy::start(&endpoint).await;
        let view = View::new(endpoint_client(proxy.url()), &name, description);
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
    for _ in 0..100 {
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

// The table.

#[tokio::test]
async fn a_table_made_from_its_description_lacks_nothing() {
    for description in [&ORDERS, &COUNTERS] {
        let ground = Ground::of(description).await;
        let again = ground.view.ensure_table().await.unwrap();
        assert!(!again.created);
        assert_eq!(lacks(again), []);
        assert_eq!(lacks(ground.view.check_table().await.unwrap()), []);
    }
}

#[tokio::test]
async fn a_table_that_is_missing_is_no_table_to_check() {
    let ground = Ground::of(&COUNTERS).await;
    let missing = View::new(endpoint_client(&ground.endpoint), "no-such-table", &COUNTERS);
    assert!(matches!(missing.check_table().await, Err(Error::TableNotReady { .. })));
    assert!(matches!(missing.load::<Order>("ada").await, Err(Error::NotLoaded { .. })));
}

#[tokio::test]
async fn a_foreign_table_is_told_what_it_lacks() {
    let counters = Ground::of(&COUNTERS).await;
    let mistaken = View::new(counters.client.clone(), counters.direct.table(), &ORDERS);
    let expected = "`customer` and `placed_at`".to_owned();
    let missing = |index| Lack::Index { index };
    assert_eq!(
        lacks(mistaken.check_table().await.unwrap()),
        [
            Lack::Keys { expected },
            missing("by-state"),
            missing("by-total"),
            missing("by-digest"),
            Lack::Ttl { attribute: "ttl" }
        ]
    );
}

#[tokio::test]
async fn a_table_whose_indexes_differ_is_told_how() {
    static WANTED: Description = Description {
        indexes: &[
            Index {
                name: "by-state",
                partition_key: Key::string("state"),
                sort_key: Some(Key::string("total")),
                projection: Projection::KeysOnly,
            },
            Index {
                name: "by-total",
                partition_key: Key::number("total"),
                sort_key: None,
                projection: Projection::All,
            },
            Index {
                name: "by-digest",
                partition_key: Key::bytes("digest"),
                sort_key: Some(Key::string("placed_at")),
                projection: Projection::Include(&["note", "state", "customer", "digest"]),
            },
        ],
        ttl: Some("ends_at"),
        stream: true,
        ..ORDERS
    };
    let orders = Ground::of(&ORDERS).await;
    let found = View::new(orders.client.clone(), orders.direct.table(), &WANTED).check_table().await.unwrap();
    assert_eq!(
        lacks(found),
        [
            Lack::IndexKeys { index: "by-state", expected: "`state` and `total`".into() },
            Lack::Projection { index: "by-total", missing: "all attributes".into() },
            Lack::Projection { index: "by-digest", missing: "state".into() },
            Lack::Stream,
            Lack::Ttl { attribute: "ends_at" },
        ]
    );
}

// Reading.

#[tokio::test]
async fn a_partition_is_loaded_whole_and_in_order() {
    let ground = Ground::of(&ORDERS).await;
    // Two megabytes: a page of DynamoDB holds one.
    let orders: Vec<_> = (0..40).map(|n| noted("ada", format!("{n:03}"), "x".repeat(50_000))).collect();
    let mut mixed = orders.clone();
    mixed.reverse();
    mixed.push(order("bob", "000"));
    ground.save_all(&mixed).await;
    assert_eq!(ground.view.load::<Order>("ada").await.unwrap(), orders);
    assert!(ground.proxy.count("Query") > 1);
    assert_eq!(ground.view.load::<Order>("nobody").await.unwrap(), []);
}

#[tokio::test]
async fn one_row_is_loaded_by_its_whole_key() {
    let ground = Ground::of(&ORDERS).await;
    ground.save_all(&[order("ada", 1), order("ada", 2)]).await;
    assert_eq!(ground.view.load_one(&RowKey::sorted("ada", "2")).await.unwrap(), Some(order("ada", 2)));
    assert_eq!(ground.view.load_one::<Order>(&RowKey::sorted("ada", "3")).await.unwrap(), None);
    assert!(matches!(ground.view.load_one::<Order>(&RowKey::new("ada")).await, Err(Error::NotLoaded { .. })));
}

#[tokio::test]
async fn a_row_of_another_shape_is_not_loaded() {
    #[derive(Debug, Deserialize)]
    struct Other {
        #[allow(dead_code, reason = "it is never there")]
        weight: u64,
    }
    let ground = Ground::of(&ORDERS).await;
    ground.save_all(&[order("ada", 1)]).await;
    let error = ground.view.load::<Other>("ada").await.unwrap_err();
    assert!(matches!(&error, Error::NotLoaded { id, .. } if id == "ada"), "{error}");
    assert!(!error.is_unavailable());
}

#[tokio::test]
async fn a_range_is_read_page_by_page_in_both_directions() {
    let ground = Ground::of(&ORDERS).await;
    let orders: Vec<_> = (0..7).map(|n| order("ada", n)).collect();
    ground.save_all(&orders).await;
    let after = Range::new().after("1").limit(2);
    let first = ground.view.load_range::<Order>("ada", &after).await.unwrap();
    assert_eq!((&first.rows[..], first.has_more()), (&orders[2..4], true));
    let second = ground.view.load_range::<Order>("ada", &after.clone().continued(first.next)).await.unwrap();
    assert_eq!((&second.rows[..], second.has_more()), (&orders[4..6], true));
    let third = ground.view.load_range::<Order>("ada", &after.continued(second.next)).await.unwrap();
    assert_eq!((&third.rows[..], third.has_more()), (&orders[6..], false));

    let down = ground.view.load_range::<Order>("ada", &Range::new().after("3").descending()).await.unwrap();
    assert_eq!(down.rows, orders[..3].iter().rev().cloned().collect::<Vec<_>>());
    let rest = ground.view.load_range::<Order>("ada", &Range::new().after("6")).await.unwrap();
    assert_eq!((rest.rows.len(), rest.has_more()), (0, false));
    let consistent = |range: Range| async move {
        ground.proxy.take_requests();
        ground.view.load_range::<Order>("ada", &range).await.unwrap();
        ground.proxy.take_requests()[0].body["ConsistentRead"] == json!(true)
    };
    assert!(consistent(Range::new()).await);
}

#[tokio::test]
async fn nothing_comes_after_anything_in_a_table_without_a_sort_key() {
    let ground = Ground::of(&COUNTERS).await;
    ground.view.count(&RowKey::new("visits"), "n", 1).await.unwrap();
    let page = ground.view.load_range::<serde_json::Value>("visits", &Range::new()).await.unwrap();
    assert_eq!(page.rows, [json!({"name": "visits", "n": 1})]);
    let after = ground.view.load_range::<serde_json::Value>("visits", &Range::new().after("a")).await;
    assert!(matches!(after, Err(Error::NotLoaded { .. })));
    let sorted = ground.view.load_one::<serde_json::Value>(&RowKey::sorted("visits", "a")).await;
    assert!(matches!(sorted, Err(Error::NotLoaded { .. })));
}

#[tokio::test]
async fn an_index_answers_with_what_its_projection_carries() {
    let ground = Ground::of(&ORDERS).await;
    let of = |n: i64, state: &str| Order { total: n, state: state.into(), ..order("ada", n) };
    let orders = [of(3, "open"), of(1, "open"), of(2, "sent"), of(20, "open")];
    ground.save_all(&orders).await;

    let open: Vec<Order> = indexed(&ground.view, "by-state", "open", &Range::new(), 3).await;
    assert_eq!(open, [orders[1].clone(), orders[0].clone(), orders[3].clone()]);
    let dear: Vec<Order> = indexed(&ground.view, "by-state", "open", &Range::new().after(2).descending(), 1).await;
    assert_eq!(dear, [orders[1].clone()]);
    let page = ground.view.query_index::<Order>("by-state", "open", &Range::new().limit(2)).await.unwrap();
    assert_eq!((page.rows.len(), page.has_more()), (2, true));
    let rest = Range::new().limit(2).continued(page.next);
    assert_eq!(ground.view.query_index::<Order>("by-state", "open", &rest).await.unwrap().rows, [orders[3].clone()]);

    let attributes = |item: &serde_json::Map<String, serde_json::Value>| item.keys().cloned().collect::<BTreeSet<_>>();
    let keys_only: Vec<serde_json::Map<_, _>> = indexed(&ground.view, "by-total", 20, &Range::new(), 1).await;
    assert_eq!(attributes(&keys_only[0]), ["customer", "placed_at", "total"].map(String::from).into());

    #[derive(Debug, PartialEq, Deserialize)]
    struct Noted {
        placed_at: String,
        note: String,
        state: Option<String>,
    }
    let included: Vec<Noted> = indexed(&ground.view, "by-digest", vec![0, 255], &Range::new().after("2"), 2).await;
    let noted = |placed_at: &str| Noted { placed_at: placed_at.into(), note: "first".into(), state: None };
    assert_eq!(included, [noted("20"), noted("3")]);
}

#[tokio::test]
async fn an_index_that_is_not_described_or_asked_with_another_type_is_an_error() {
    let ground = Ground::of(&ORDERS).await;
    let error = ground.view.query_index::<Order>("by-name", "x", &Range::new()).await.unwrap_err();
    assert!(matches!(&error, Error::NotLoaded { .. }), "{error}");
    let error = ground.view.query_index::<Order>("by-total", "x", &Range::new()).await.unwrap_err();
    assert!(matches!(&error, Error::NotLoaded { .. }), "{error}");
    assert_eq!(ground.proxy.take_operations(), Vec::<String>::new());
}

// Saving.

#[tokio::test]
async fn an_initial_save_leaves_what_is_there_and_others_replace_it() {
    let ground = Ground::of(&ORDERS).await;
    ground.view.save(&noted("ada", 1, "a"), SaveMode::Init, None).await.unwrap();
    let error = ground.view.save(&noted("ada", 1, "b"), SaveMode::Init, None).await.unwrap_err();
    assert!(matches!(&error, Error::AlreadyExists { key, .. } if *key == RowKey::sorted("ada", "1")), "{error}");
    assert_eq!(ground.found(&order("ada", 1)).await, Some(noted("ada", 1, "a")));
    // The same row again is no less refused: nothing was lost.
    let again = ground.view.save(&noted("ada", 1, "a"), SaveMode::Init, None).await;
    assert!(matches!(again, Err(Error::AlreadyExists { .. })));
    for mode in [SaveMode::Any, SaveMode::Overwrite] {
        let row = noted("ada", 1, format!("{mode:?}"));
        ground.view.save(&row, mode, None).await.unwrap();
        assert_eq!(ground.found(&row).await, Some(row));
    }
    ground.view.save(&order("ada", 2), SaveMode::Any, None).await.unwrap();
    assert_eq!(ground.view.load::<Order>("ada").await.unwrap().len(), 2);
}

#[tokio::test]
async fn of_many_initial_saves_exactly_one_is_first() {
    let ground = Ground::of(&ORDERS).await;
    let saves = (0..16).map(|n| {
        let view = &ground.direct;
        async move { view.save(&noted("ada", 1, n), SaveMode::Init, None).await }
    });
    let results = join_all(saves).await;
    let winners: Vec<_> = results.iter().enumerate().filter(|(_, result)| result.is_ok()).map(|(n, _)| n).collect();
    assert_eq!(winners.len(), 1);
    assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(Error::AlreadyExists { .. }))));
    assert_eq!(ground.found(&order("ada", 1)).await.unwrap().note, winners[0].to_string());
}

#[tokio::test]
async fn an_initial_save_whose_reply_is_lost_is_saved() {
    let ground = Ground::of(&ORDERS).await;
    for (n, fault) in [Fault::cut_reply(), Fault::done_but_answer(500, "InternalServerError"), Fault::cut_request()]
        .into_iter()
        .enumerate()
    {
        ground.proxy.on("PutItem", fault);
        // 1.50 and sets come back in another form than they were sent in.
        let row = json!({ "customer": "ada", "placed_at": n.to_string(), "price": 1.50, "list": [1.0, {"a": -0.25}] });
        ground.view.save(&row, SaveMode::Init, Some(1_900_000_000)).await.unwrap();
        assert!(ground.proxy.is_spent());
    }
    assert_eq!(ground.direct.load::<serde_json::Value>("ada").await.unwrap().len(), 3);
}

#[tokio::test]
async fn an_initial_save_that_finds_a_row_of_another_after_a_lost_reply_does_not_claim_to_know() {
    let ground = Ground::of(&ORDERS).await;
    let (ours, theirs) = (noted("ada", 1, "ours"), noted("ada", 1, "theirs"));
    let direct = ground.direct.clone();
    let (row, saved) = (theirs.clone(), direct.clone());
    ground.proxy.on(
        "PutItem",
        Fault::cut_request().before(move || {
            let (row, saved) = (row.clone(), saved.clone());
            async move { saved.save(&row, SaveMode::Init, None).await.unwrap() }
        }),
    );
    let error = ground.view.save(&ours, SaveMode::Init, None).await.unwrap_err();
    assert!(matches!(error, Error::NotSaved { .. }) && error.is_outcome_unknown(), "{error}");
    assert_eq!(ground.found(&ours).await, Some(theirs));
}

#[tokio::test]
async fn a_busy_table_is_asked_again_and_a_table_that_stays_busy_is_unavailable() {
    let ground = Ground::of(&ORDERS).await;
    for code in ["ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded"] {
        ground.proxy.on_each(&["PutItem", "Query", "DeleteItem"], Fault::answer(400, code).times(3));
        ground.view.save(&order("ada", code), SaveMode::Init, None).await.unwrap();
        assert!(ground.proxy.is_spent());
    }
    ground.proxy.on_each(&["PutItem", "Query"], Fault::answer(400, "ThrottlingException").always());
    let error = ground.impatient().save(&order("bob", 1), SaveMode::Init, None).await.unwrap_err();
    assert!(matches!(&error, Error::NotSaved { .. }) && error.is_unavailable(), "{error}");
    let error = ground.impatient().load::<Order>("ada").await.unwrap_err();
    assert!(matches!(&error, Error::NotLoaded { .. }) && error.is_unavailable(), "{error}");
    ground.proxy.disarm();
    ground.proxy.on("PutItem", Fault::cut_reply().always());
    let error = ground.impatient().save(&order("cid", 1), SaveMode::Any, None).await.unwrap_err();
    assert!(error.is_outcome_unknown() && !error.is_unavailable(), "{error}");
    assert_eq!(ground.found(&order("bob", 1)).await, None);
}

#[tokio::test]
async fn a_row_that_is_too_large_or_has_no_key_is_not_saved() {
    let ground = Ground::of(&ORDERS).await;
    let error = ground.view.save(&noted("ada", 1, "x".repeat(410 * 1024)), SaveMode::Any, None).await.unwrap_err();
    assert!(matches!(&error, Error::NotSaved { id, .. } if id == "ada 1") && error.is_too_large(), "{error}");
    for row in [
        json!({"customer": "ada"}),
        json!({"customer": "", "placed_at": "1"}),
        json!([1]),
        json!({"customer": 1, "placed_at": "1"}),
    ] {
        let error = ground.view.save(&row, SaveMode::Any, None).await.unwrap_err();
        assert!(matches!(&error, Error::NotSaved { .. }) && !error.is_too_large(), "{error}");
    }
}

// Expiry.

#[tokio::test]
async fn a_row_past_its_end_is_gone_for_those_who_say_what_time_it_is() {
    const NOON: i64 = 4_000_000_000;
    let ground = Ground::of(&ORDERS).await;
    ground.view.save(&order("ada", 1), SaveMode::Init, Some(NOON)).await.unwrap();
    ground.view.save_batch(&[(order("ada", 2), Some(NOON + 1)), (order("ada", 3), None)]).await.unwrap();
    assert_eq!(ground.raw(&order("ada", 1)).await.unwrap()["ttl"], AttributeValue::N(NOON.to_string()));
    assert_eq!(ground.raw(&order("ada", 2)).await.unwrap()["ttl"], AttributeValue::N((NOON + 1).to_string()));
    assert!(!ground.raw(&order("ada", 3)).await.unwrap().contains_key("ttl"));
    assert_eq!(ground.view.load::<Order>("ada").await.unwrap().len(), 3);
    indexed::<Order>(&ground.view, "by-state", "open", &Range::new(), 3).await;

    let placed = |rows: Vec<Order>| rows.into_iter().map(|row| row.placed_at).collect::<Vec<_>>();
    for (now, left) in [(NOON - 1, vec!["1", "2", "3"]), (NOON, vec!["2", "3"]), (NOON + 1, vec!["3"])] {
        let view = ground.view.alive_at(now);
        assert_eq!(placed(view.load("ada").await.unwrap()), left);
        assert_eq!(placed(view.load_range("ada", &Range::new()).await.unwrap().rows), left);
        assert_eq!(view.load_one::<Order>(&RowKey::sorted("ada", "1")).await.unwrap().is_some(), now < NOON);
        let open = view.query_index::<Order>("by-state", "open", &Range::new()).await.unwrap();
        assert_eq!(open.rows.len(), left.len());
    }

    let again = noted("ada", 1, "again");
    let refused = ground.view.save(&again, SaveMode::Init, None).await;
    assert!(matches!(refused, Err(Error::AlreadyExists { .. })));
    let refused = ground.view.alive_at(NOON - 1).save(&again, SaveMode::Init, None).await;
    assert!(matches!(refused, Err(Error::AlreadyExists { .. })));
    ground.view.alive_at(NOON).save(&again, SaveMode::Init, None).await.unwrap();
    assert_eq!(ground.found(&again).await, Some(again));
}

#[tokio::test]
async fn rows_of_a_table_without_ttl_do_not_expire() {
    let ground = Ground::of(&COUNTERS).await;
    let error = ground.view.save(&json!({"name": "visits"}), SaveMode::Any, Some(1)).await.unwrap_err();
    assert!(matches!(&error, Error::NotSaved { .. }), "{error}");
    ground.view.save(&json!({"name": "visits", "ttl": 1}), SaveMode::Any, None).await.unwrap();
    assert_eq!(ground.view.alive_at(9).load::<serde_json::Value>("visits").await.unwrap().len(), 1);
}

// Many rows.

#[tokio::test]
async fn a_batch_of_any_length_is_written_whole_in_requests_of_25() {
    let ground = Ground::of(&ORDERS).await;
    let rows: Vec<_> = (0..130).map(|n| (order("ada", format!("{n:03}")), None)).collect();
    ground.proxy.on("BatchWriteItem", Fault::partial_batch().times(4));
    ground.proxy.on("BatchWriteItem", Fault::untouched_batch().times(2));
    ground.proxy.on("BatchWriteItem", Fault::cut_reply());
    ground.proxy.on("BatchWriteItem", Fault::answer(400, "ProvisionedThroughputExceededException"));
    ground.view.save_batch(&rows).await.unwrap();
    assert!(ground.proxy.is_spent());
    for request in ground.proxy.take_requests() {
        assert!(request.body["RequestItems"][ground.view.table()].as_array().unwrap().len() <= 25);
    }
    let saved = ground.direct.load::<Order>("ada").await.unwrap();
    assert_eq!(saved, rows.iter().map(|(row, _)| row.clone()).collect::<Vec<_>>());

    ground.proxy.on("BatchWriteItem", Fault::partial_batch().times(3));
    let keys: Vec<_> = saved.iter().skip(1).map(key).collect();
    ground.view.delete_batch(&keys).await.unwrap();
    assert!(ground.proxy.is_spent());
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap(), saved[..1]);
    ground.view.delete_batch(&keys).await.unwrap();
    ground.proxy.take_requests();
    ground.view.save_batch::<Order>(&[]).await.unwrap();
    ground.view.delete_batch(&[]).await.unwrap();
    assert_eq!(ground.proxy.take_operations(), Vec::<String>::new());
}

#[tokio::test]
async fn rows_that_cannot_be_written_are_told_one_by_one_and_take_no_other_with_them() {
    let ground = Ground::of(&ORDERS).await;
    let mut rows: Vec<_> = (0..40).map(|n| (order("ada", format!("{n:02}")), None)).collect();
    rows[3].0.note = "x".repeat(410 * 1024);
    rows[11].0.placed_at = String::new();
    rows[30].0.state = String::new();
    let failure = ground.view.save_batch(&rows).await.unwrap_err();
    let told: Vec<_> = failure.failed.iter().map(|row| (row.position, row.key.clone())).collect();
    assert_eq!(
        told,
        [(3, Some(RowKey::sorted("ada", "03"))), (11, None), (30, Some(RowKey::sorted("ada", "30")))],
        "{failure}"
    );
    assert_eq!(failure.of, 40);
    assert!(matches!(*failure.failed[0].source, Source::TooLarge));
    assert!(Error::from(failure).is_too_large());
    let saved = ground.direct.load::<Order>("ada").await.unwrap();
    let fine = rows.iter().enumerate().filter(|(n, _)| ![3, 11, 30].contains(n)).map(|(_, (row, _))| row.clone());
    assert_eq!(saved, fine.collect::<Vec<_>>());

    let keys = [RowKey::sorted("ada", "00"), RowKey::new("ada"), RowKey::sorted("ada", "01")];
    let failure = ground.view.delete_batch(&keys).await.unwrap_err();
    assert_eq!(failure.failed.iter().map(|row| row.position).collect::<Vec<_>>(), [1]);
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap().len(), 35);
}

#[tokio::test]
async fn rows_that_stay_unprocessed_are_told_and_can_be_sent_again() {
    let ground = Ground::of(&ORDERS).await;
    let rows: Vec<_> = (0..50).map(|n| (order("ada", format!("{n:02}")), None)).collect();
    ground.proxy.on("BatchWriteItem", Fault::untouched_batch().skipping(1).always());
    let failure = ground.impatient().save_batch(&rows).await.unwrap_err();
    assert_eq!(failure.failed.len(), 25);
    let positions: BTreeSet<_> = failure.failed.iter().map(|row| row.position).collect();
    for (n, (row, _)) in rows.iter().enumerate() {
        assert_eq!(ground.found(row).await.is_none(), positions.contains(&n));
    }
    ground.proxy.disarm();
    let left: Vec<_> = positions.iter().map(|&n| rows[n].clone()).collect();
    assert!(Error::from(failure).is_unavailable());
    ground.view.save_batch(&left).await.unwrap();
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap().len(), 50);

    ground.proxy.on("BatchWriteItem", Fault::cut_reply().always());
    let failure = ground.impatient().delete_batch(&[key(&rows[0].0)]).await.unwrap_err();
    assert!(Error::from(failure).is_outcome_unknown());
}

#[tokio::test]
async fn of_rows_with_one_key_the_last_of_a_batch_is_saved() {
    let ground = Ground::of(&ORDERS).await;
    let rows = [noted("ada", 1, "a"), order("ada", 2), noted("ada", 1, "b")].map(|row| (row, None));
    ground.view.save_batch(&rows).await.unwrap();
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap(), [rows[2].0.clone(), rows[1].0.clone()]);
    let twice = [key(&rows[0].0), key(&rows[0].0)];
    ground.view.delete_batch(&twice).await.unwrap();
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap(), [rows[1].0.clone()]);
}

// Deleting.

#[tokio::test]
async fn what_is_deleted_is_gone_however_often() {
    let ground = Ground::of(&ORDERS).await;
    ground.save_all(&[order("ada", 1), order("ada", 2)]).await;
    ground.proxy.on("DeleteItem", Fault::cut_reply());
    for _ in 0..2 {
        ground.view.delete(&RowKey::sorted("ada", "1")).await.unwrap();
    }
    assert!(ground.proxy.is_spent());
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap(), [order("ada", 2)]);
    ground.proxy.on("DeleteItem", Fault::cut_reply().always());
    let error = ground.impatient().delete(&RowKey::sorted("ada", "2")).await.unwrap_err();
    assert!(matches!(&error, Error::NotDeleted { .. }) && error.is_outcome_unknown(), "{error}");
}

// Counting.

#[tokio::test]
async fn no_count_is_lost_among_many_at_once() {
    let ground = Ground::of(&COUNTERS).await;
    let (visits, view) = (RowKey::new("visits"), &ground.direct);
    let counts = (0..8).map(|_| async {
        let mut seen = Vec::new();
        for _ in 0..25 {
            seen.push(view.count(&visits, "size", 3).await.unwrap());
        }
        seen
    });
    let seen: BTreeSet<i64> = join_all(counts).await.into_iter().flatten().collect();
    assert_eq!(seen, (1..=200).map(|n| 3 * n).collect());
    assert_eq!(view.count(&visits, "size", -600).await.unwrap(), 0);
    // Of the field that was asked for, whatever else the row has.
    assert_eq!(view.count(&visits, "count", 5).await.unwrap(), 5);
}

#[tokio::test]
async fn a_count_whose_reply_is_lost_is_not_counted_twice() {
    let ground = Ground::of(&COUNTERS).await;
    let visits = RowKey::new("visits");
    let mut there = 0;
    for (fault, counted) in
        [(Fault::cut_reply(), 1), (Fault::done_but_answer(500, "InternalServerError"), 1), (Fault::cut_request(), 0)]
    {
        ground.proxy.on("UpdateItem", fault);
        let error = ground.view.count(&visits, "n", 1).await.unwrap_err();
        assert!(matches!(&error, Error::NotCounted { .. }) && error.is_outcome_unknown(), "{error}");
        there += counted;
        assert_eq!(ground.direct.count(&visits, "n", 0).await.unwrap(), there);
    }
    ground.proxy.on("UpdateItem", Fault::answer(400, "ThrottlingException").times(3));
    assert_eq!(ground.view.count(&visits, "n", 1).await.unwrap(), there + 1);
    assert!(ground.proxy.is_spent());
}

#[tokio::test]
async fn what_is_no_number_is_not_counted() {
    let ground = Ground::of(&COUNTERS).await;
    ground.view.save(&json!({"name": "visits", "n": "many"}), SaveMode::Any, None).await.unwrap();
    let error = ground.view.count(&RowKey::new("visits"), "n", 1).await.unwrap_err();
    assert!(matches!(&error, Error::NotCounted { field, .. } if field == "n"), "{error}");
    assert!(!error.is_outcome_unknown() && !error.is_unavailable());
}

// Transactions.

fn init(row: &Order) -> Write {
    Write::save(row, SaveMode::Init, None).unwrap()
}

fn advance(from: i64, to: i64) -> Write {
    let set = to_item(&json!({"size": to * 10, "by": "test"})).unwrap();
    Write::Advance { key: RowKey::sorted("counter", "n"), field: "n".into(), from, to, set }
}

async fn counter(ground: &Ground) -> Option<serde_json::Value> {
    ground.direct.load_one(&RowKey::sorted("counter", "n")).await.unwrap()
}

fn at(n: i64) -> serde_json::Value {
    json!({"customer": "counter", "placed_at": "n", "n": n, "size": n * 10, "by": "test"})
}

#[tokio::test]
async fn a_transaction_is_written_whole_or_not_at_all_and_says_what_stood_in_the_way() {
    let ground = Ground::of(&ORDERS).await;
    ground.view.transact(Vec::new()).await.unwrap().unwrap();
    ground.view.transact(vec![advance(0, 2), init(&order("ada", 1)), init(&order("ada", 2))]).await.unwrap().unwrap();
    assert_eq!(counter(&ground).await, Some(at(2)));
    assert_eq!(ground.direct.load::<Order>("ada").await.unwrap(), [order("ada", 1), order("ada", 2)]);

    let writes = vec![advance(0, 1), init(&order("ada", 3)), init(&noted("ada", 2, "again"))];
    let refused = ground.view.transact(writes).await.unwrap().unwrap_err();
    let [Refused { position: 0, item: Some(moved) }, Refused { position: 2, item: Some(there) }] = &refused[..] else {
        panic!("{refused:?}")
    };
    assert_eq!(from_item::<serde_json::Value>(moved.clone()).unwrap(), at(2));
    assert_eq!(from_item::<Order>(there.clone()).unwrap(), order("ada", 2));
    assert_eq!(ground.found(&order("ada", 3)).await, None);

    let absent =
        Write::Advance { key: RowKey::sorted("counter", "none"), field: "n".into(), from: 1, to: 2, set: Item::new() };
    let refused = ground.view.transact(vec![absent, init(&order("ada", 3))]).await.unwrap().unwrap_err();
    assert_eq!(refused, [Refused { position: 0, item: None }]);

    let over = Write::save(&noted("ada", 1, "over"), SaveMode::Any, Some(9)).unwrap();
    ground.view.transact(vec![advance(2, 3), over]).await.unwrap().unwrap();
    assert_eq!(ground.raw(&order("ada", 1)).await.unwrap()["ttl"], AttributeValue::N("9".into()));
    assert_eq!(counter(&ground).await, Some(at(3)));

    let twice = ground.view.transact(vec![init(&order("bob", 1)), init(&order("bob", 1))]).await;
    assert!(matches!(twice, Err(Error::NotWritten { .. })), "{twice:?}");
}

#[tokio::test]
async fn of_many_transactions_from_one_state_exactly_one_is_written() {
    let ground = Ground::of(&ORDERS).await;
    let appended = AtomicUsize::new(0);
    let writers = (0..6).map(|writer| {
        let (view, appended) = (&ground.direct, &appended);
        async move {
            let mut n = 0;
            while n < 12 {
                let row = noted("ada", format!("{:03}", n + 1), writer);
                match view.transact(vec![advance(n, n + 1), init(&row)]).await.unwrap() {
                    Ok(()) => {
                        appended.fetch_add(1, Ordering::Relaxed);
                        n += 1;
                    }
                    Err(refused) => {
                        let item = refused[0].item.clone().unwrap();
                        n = from_item::<serde_json::Value>(item).unwrap()["n"].as_i64().unwrap();
                    }
                }
            }
        }
    });
    join_all(writers).await;
    let rows = ground.direct.load::<Order>("ada").await.unwrap();
    let places: Vec<_> = rows.iter().map(|row| row.placed_at.parse::<usize>().unwrap()).collect();
    assert_eq!(places, (1..=appended.into_inner()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_transaction_whose_reply_is_lost_is_written_once() {
    let ground = Ground::of(&ORDERS).await;
    for (n, fault) in [Fault::cut_reply(), Fault::done_but_answer(500, "InternalServerError"), Fault::cut_request()]
        .into_iter()
        .enumerate()
    {
        let n = n as i64;
        ground.proxy.on("TransactWriteItems", fault);
        ground.view.transact(vec![advance(n, n + 1), init(&order("ada", n))]).await.unwrap().unwrap();
        assert!(ground.proxy.is_spent());
        assert_eq!(counter(&ground).await, Some(at(n + 1)));
    }
    ground.proxy.on("TransactWriteItems", Fault::cancelled(&["TransactionConflict", "None"]).times(3));
    ground.view.transact(vec![advance(3, 4), init(&order("ada", 3))]).await.unwrap().unwrap();
    assert!(ground.proxy.is_spent());
}

#[tokio::test]
async fn a_transaction_that_is_refused_after_a_lost_reply_does_not_claim_to_know() {
    let ground = Ground::of(&ORDERS).await;
    ground.proxy.forget_tokens();
    ground.proxy.on("TransactWriteItems", Fault::cut_reply());
    let error = ground.view.transact(vec![advance(0, 1), init(&order("ada", 1))]).await.unwrap_err();
    assert!(matches!(&error, Error::NotWritten { .. }) && error.is_outcome_unknown(), "{error}");
    assert_eq!(counter(&ground).await, Some(at(1)));
}
