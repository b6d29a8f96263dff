use nameservice_tests::prelude::*;

use crate::contract::{born, found};

#[tokio::test]
async fn a_reset_fills_in_what_an_old_row_lacks() {
    let table = Table::fresh().await;
    table.put(&rows::meta_only("mydb:main")).await;
    let wanted = to_head(2);
    let outcome = table.store.reset_head(&Call::fresh(), &at("mydb"), &wanted).await.unwrap();
    assert_eq!(outcome, Reset::Reset { head: head(2), index: Index::unborn() });
    assert_eq!(found(&table.store, &at("mydb")).await.head, Some(head(2)));
}

fn log(ts: impl IntoIterator<Item = i64>) -> Vec<rows::Row> {
    ts.into_iter().map(|t| rows::commit_log("mydb:main", &cid(t), t)).collect()
}

async fn logged(table: &Table) -> Vec<String> {
    table.rows("mydb:main").await.into_keys().filter(|sk| sk.starts_with("commit#")).collect()
}

#[tokio::test]
async fn a_reset_leaves_no_row_of_flurees_commit_log_above_its_target() {
    let table = Proxied::fresh().await;
    let db = born(table.direct(), "mydb", 5).await;
    table.put(&log(1..=5)).await;
    table.proxy.take_operations();
    table.store.reset_head(&Call::fresh(), &db, &to_head(3)).await.unwrap().applied();
    assert_eq!(table.proxy.take_operations(), ["Query", "BatchWriteItem", "TransactWriteItems", "Query"]);
    let kept: Vec<_> = (1..=3).map(|t| format!("commit#{t:020}")).collect();
    assert_eq!(logged(&table).await, kept);
    // With no rows above the head, the log is queried and not written.
    table.store.reset_head(&Call::fresh(), &db, &to_head(3)).await.unwrap().applied();
    assert_eq!(table.proxy.take_operations(), ["Query", "TransactWriteItems", "Query"]);
}

#[tokio::test]
async fn a_reset_that_is_interrupted_leaves_a_gap_in_flurees_log_and_no_contradiction() {
    let table = Proxied::fresh().await;
    let db = born(table.direct(), "mydb", 5).await;
    table.put(&log(1..=5)).await;
    table.proxy.on("TransactWriteItems", Fault::answer(400, "AccessDeniedException").always());
    assert!(table.store.reset_head(&Call::fresh(), &db, &to_head(3)).await.is_err());
    assert_eq!(found(table.direct(), &db).await.head, Some(head(5)), "not reset");
    assert_eq!(logged(&table).await.len(), 3);
}

#[tokio::test]
async fn a_reset_of_a_protected_ledger_touches_neither_its_head_nor_flurees_log() {
    let table = Proxied::fresh().await;
    let db = born(table.direct(), "mydb", 5).await;
    table.put(&log(1..=5)).await;
    assert_eq!(table.direct().protect(&Call::fresh(), &db, true).await.unwrap(), Protection::Set);
    let before = table.rows("mydb:main").await;
    table.proxy.take_operations();
    assert_eq!(table.store.reset_head(&Call::fresh(), &db, &to_head(3)).await.unwrap(), Reset::Protected);
    assert_eq!(table.proxy.take_operations(), ["Query"]);
    assert_eq!(table.rows("mydb:main").await, before);
}

/// However long the log is, each page that was deleted stays deleted, so that a repeated reset ends.
#[tokio::test]
async fn a_reset_that_is_cut_off_in_a_long_log_is_shorter_when_it_is_repeated() {
    const ROWS: i64 = 1_200;
    let table = Proxied::fresh().await;
    let db = born(table.direct(), "mydb", ROWS).await;
    table.put_many(&log(1..=ROWS)).await;
    table.proxy.on("Query", Fault::none());
    table.proxy.on("Query", Fault::answer(400, "AccessDeniedException"));
    let call = Call::fresh();
    assert!(table.store.reset_head(&call, &db, &to_head(3)).await.is_err());
    let left = logged(&table).await;
    assert!((100..ROWS as usize).contains(&left.len()), "{}", left.len());
    assert_eq!(left.first().map(String::as_str), Some("commit#00000000000000000001"), "the newest are gone first");
    assert_eq!(found(table.direct(), &db).await.head, Some(head(ROWS)), "not reset");
    table.store.reset_head(&call, &db, &to_head(3)).await.unwrap().applied();
    assert_eq!(logged(&table).await.len(), 3);
}
