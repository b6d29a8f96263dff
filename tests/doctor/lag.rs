//! How far the feed lags behind the last writes.

use super::*;

fn now_ms() -> i64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_millis().try_into().unwrap()
}

/// Makes an item look as if it was written this many seconds ago.
async fn age(table: &Table, pk: &str, sk: &str, seconds: i64) {
    table.set(pk, sk, "updated_at_ms", rows::n(now_ms() - 1000 * seconds)).await;
}

/// Makes the feed, which is one segment, look as if it was recorded this many seconds ago.
async fn age_feed(table: &Table, seconds: i64) {
    let text = |text: &str| AttributeValue::S(text.into());
    let then = (now_ms() - 1000 * seconds).to_string();
    let update = table.client.update_item().table_name(table.feed.table());
    let last = format!("{:020}", table.feed.position().await.unwrap());
    let update = update.key("id", text("feed#0")).key("position", text(&last));
    let update = update.update_expression("SET recorded_at = :then");
    let then = AttributeValue::N(then);
    update.expression_attribute_values(":then", then).send().await.unwrap();
}

async fn last_written(table: &Table) -> Vec<Written> {
    table.store.examine(false, &mut |_| {}).await.unwrap().last_written
}

#[tokio::test]
async fn of_the_last_writes_those_are_reported_that_have_settled_youngest_first() {
    let table = Table::fresh().await;
    ledger(&table, "mydb").await;
    assert_eq!(last_written(&table).await, [], "a minute must pass");
    age(&table, DB, "head", 100).await;
    age(&table, DB, "status", 90).await;
    age(&table, DB, "index", 80).await;
    let reported = last_written(&table).await;
    let shown: Vec<_> = reported.iter().map(|written| (written.concern, written.watermark)).collect();
    assert_eq!(shown, [(ConcernKind::Status, 1), (ConcernKind::Head, 1)], "the unborn index has never been written");
    let mut many = Vec::new();
    for i in 0..40 {
        many.extend(rows::ledger(&format!("db{i}:main")).commit(cid(1), 1).rows());
    }
    table.put_many(&many).await;
    let reported = last_written(&table).await;
    assert_eq!((reported.len(), reported[0].concern), (20, ConcernKind::Status));
    assert!(reported.is_sorted_by_key(|written| -written.at_ms));
}

#[tokio::test]
async fn a_feed_lags_by_the_writes_that_it_does_not_hold() {
    let table = Table::with_stream().await;
    let db = ledger(&table, "mydb").await;
    ledger(&table, "other").await;
    for pk in [DB, "other:main"] {
        for sk in ["head", "status"] {
            age(&table, pk, sk, 300).await;
        }
    }
    let lag = table.feed.lag(&last_written(&table).await).await.unwrap();
    assert!(lag.is_empty && lag.missing.len() == 4, "{lag:?}");
    pump(&table).await;
    let lag = table.feed.lag(&last_written(&table).await).await.unwrap();
    assert_eq!(lag, Lag::default(), "older than the feed: nothing is concluded");
    age_feed(&table, 3_600).await;
    let lag = table.feed.lag(&last_written(&table).await).await.unwrap();
    assert_eq!(lag, Lag { looked_for: 4, ..Lag::default() });
    table.store.push_head(&Call::fresh(), &db, &older(head(2))).await.unwrap().applied();
    age(&table, DB, "head", 200).await;
    let request = index_lock("one", 300);
    table.store.acquire_lease(&Call::fresh(), &at("other"), &request).await.unwrap().applied();
    age(&table, "other:main", "status", 100).await;
    let lag = table.feed.lag(&last_written(&table).await).await.unwrap();
    let missing: Vec<_> = lag.missing.iter().map(|w| (w.address.as_str(), w.concern, w.watermark)).collect();
    assert_eq!(missing, [(DB, ConcernKind::Head, 2), ("other:main", ConcernKind::Status, 2)]);
    pump(&table).await;
    let lag = table.feed.lag(&last_written(&table).await).await.unwrap();
    assert_eq!((lag.looked_for, lag.missing), (4, Vec::new()));
}

#[tokio::test]
async fn an_old_table_with_a_new_feed_lags_behind_nothing() {
    let table = Table::fresh().await;
    table.put(&rows::ledger(DB).commit(cid(1), 1).rows()).await;
    let writes = last_written(&table).await;
    assert_eq!(writes.len(), 2);
    assert_eq!(table.feed.lag(&writes).await.unwrap(), Lag { is_empty: true, ..Lag::default() });
}
