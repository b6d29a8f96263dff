//! A feed whose rows have their first form is taken over.

use super::*;

/// Puts a feed of three changes as the first form of the rows had it.
async fn former(table: &Table) {
    let item = |attributes: Value| -> Item {
        let attributes = attributes.as_object().unwrap();
        attributes.iter().map(|(name, value)| (name.clone(), to_attribute(value))).collect()
    };
    let in_a_week = Timestamp::now().as_second() + 7 * 86_400;
    let soon = rows::n(in_a_week);
    for n in 1..=3 {
        let position = sort_key(n);
        let change = json!({
            "id": { "S": FEED_ID }, "position": { "S": position }, "first": { "N": "1" }, "address": { "S": "a:main" },
            "kind": { "S": "ledger" }, "name": { "S": "a" }, "branch": { "S": "main" }, "concern": { "S": "head" },
            "change": { "S": "updated" }, "watermark": { "N": n.to_string() }, "occurred_at": { "N": "1700000000000" },
            "recorded_at": { "N": "1700000000000" }, "ttl": soon,
        });
        give(table, item(change)).await;
        let seen = json!({
            "id": { "S": format!("seen#a:main {n}") }, "position": { "S": "-" }, "at": { "N": n.to_string() },
            "recorded_at": { "N": "1700000000000" }, "kind": { "S": "ledger" }, "ttl": soon,
        });
        give(table, item(seen)).await;
    }
    let counter = json!({
        "id": { "S": "counter#0" }, "position": { "S": "-" }, "n": { "N": "3" }, "first": { "N": "1" },
        "until": soon, "recorded_at": { "N": "1700000000000" },
    });
    give(table, item(counter)).await;
}

#[tokio::test]
async fn a_feed_of_the_first_form_is_taken_over_and_its_readers_begin_again() {
    let table = Table::fresh().await;
    former(&table).await;
    // Before anything is appended: a reader at the end waits, one behind it begins again.
    assert_eq!(table.feed.position().await.unwrap(), 3);
    assert_eq!(read(&table.feed, 3, 10).await, NOTHING);
    assert_eq!(gone(&table.feed, 1).await, 4);
    assert_eq!(table.feed.latest_identities().await.unwrap(), HashMap::new());

    assert_eq!(append(&table.feed, &entries(4..=5)).await, [5, 6]);
    for after in 0..=3 {
        assert_eq!(gone(&table.feed, after).await, 5, "{after}");
    }
    assert_eq!(read(&table.feed, 4, 10).await, [5, 6]);
    let other = Feed::new(table.client.clone(), table.feed.table());
    assert_eq!(append(&other, &entries(4..=6)).await, [5, 6, 7], "it is taken over once");
    let history = table.feed.history(&at("a:main"), &HistoryQuery::default()).await.unwrap();
    assert_eq!(history.changes.iter().map(|change| change.position).collect::<Vec<_>>(), [5, 6, 7]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_feed_is_taken_over_once_however_many_consumers_begin() {
    let table = Table::fresh().await;
    former(&table).await;
    let consumers = ["a:main", "b:main", "c:main"].map(|address| {
        let feed = Feed::new(table.client.clone(), table.feed.table());
        tokio::spawn(async move { append(&feed, &[entry_of(address, 9)]).await })
    });
    let mut positions = Vec::new();
    for consumer in consumers {
        positions.extend(consumer.await.unwrap());
    }
    positions.sort_unstable();
    assert_eq!(positions, [5, 6, 7]);
}

/// A consumer of the previous release can neither append changes that no reader would find, nor learn the feed's position.
#[tokio::test]
async fn a_consumer_of_the_first_form_cannot_read_the_counter_of_the_second() {
    let table = Table::fresh().await;
    for taken_over in [false, true] {
        if taken_over {
            table.feed.begin_epoch().await.unwrap();
        } else {
            append(&table.feed, &entries(1..=2)).await;
        }
        let counter = table.client.get_item().table_name(table.feed.table()).set_key(Some(key("counter#0", "-")));
        let counter = counter.send().await.unwrap().item.unwrap();
        assert!(counter["first"].is_s(), "it was a number: {counter:?}");
        assert!(counter["n"].is_n() && counter["form"].as_n().unwrap() == "2");
    }
}
