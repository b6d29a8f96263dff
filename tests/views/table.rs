//! Tables as their description says, and what others lack.

use super::*;

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
    let missing = View::new(engine::client(&ground.endpoint), "no-such-table", &COUNTERS);
    assert!(matches!(missing.check_table().await, Err(Error::TableNotReady { .. })));
    assert!(matches!(missing.load::<Order>("ada").await, Err(Error::NotLoaded { .. })));
}

#[tokio::test]
async fn what_a_foreign_table_lacks_is_reported() {
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
async fn how_the_indexes_of_a_table_differ_is_reported() {
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
