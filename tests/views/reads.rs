//! Rows, ranges and indexes.

use super::*;

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
