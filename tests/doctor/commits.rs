//! Fluree's commit log: rows that contradict the head or its history are deleted, and none is ever written.

use nameservice_tests::pump::deliveries;
use stream_consumer::Consumer;

use super::*;

/// Rows of the log that agree with heads of [`head`].
fn log(ts: impl IntoIterator<Item = i64>) -> Vec<Row> {
    ts.into_iter().map(|t| rows::commit_log(DB, &cid(t), t)).collect()
}

/// A commit that is not that of [`head`].
fn other(t: i64) -> ContentId {
    cid(1000 + t)
}

async fn logged(table: &Table) -> Vec<i64> {
    let rows = table.rows(DB).await;
    rows.keys().filter_map(|sk| sk.strip_prefix("commit#")).map(|t| t.parse().unwrap()).collect()
}

/// Sets the head as Fluree's own reset does: that leaves the log as it is.
async fn flurees_reset(table: &Table, t: i64) {
    table.set(DB, "head", "commit_id", rows::s(cid(t).as_str())).await;
    table.set(DB, "head", "commit_t", rows::n(t)).await;
}

/// Pushes as Fluree does: the head, then its row.
async fn flurees_push(table: &Table, id: &ContentId, t: i64) {
    assert!(Fluree::on(table).commit(DB, id, t).await);
    table.put(&[rows::commit_log(DB, id, t)]).await;
}

async fn our_push(table: &Table, id: ContentId, t: i64) {
    let push = HeadPush::monotonic(NewHead::new(id, t).unwrap());
    table.store.push_head(&Call::fresh(), &at(DB), &push).await.unwrap().applied();
}

/// Examines the table, comparing with the history too.
async fn examine_with_history(table: &Table, fix: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    table.store.examine_with_history(&table.feed, fix, &mut |finding| findings.push(finding)).await.unwrap();
    findings
}

fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.code).collect()
}

#[tokio::test]
async fn rows_above_the_head_that_flurees_own_reset_leaves_are_deleted() {
    let table = Table::fresh().await;
    ledger(&table, DB).await;
    for t in 2..=5 {
        assert!(Fluree::on(&table).commit(DB, &cid(t), t).await);
    }
    table.put(&log(1..=5)).await;
    assert_eq!(found(&table).await, [] as [&str; 0]);
    flurees_reset(&table, 3).await;
    mended(&table, &["mydb:main commits-above-head"]).await;
    assert_eq!(logged(&table).await, [1, 2, 3]);
}

#[tokio::test]
async fn more_rows_than_one_transaction_deletes_are_deleted_in_several() {
    let table = Table::fresh().await;
    ledger(&table, DB).await;
    table.put_many(&log(1..=250)).await;
    mended(&table, &["mydb:main commits-above-head"]).await;
    assert_eq!(logged(&table).await, [1]);
}

#[tokio::test]
async fn another_commit_at_the_heads_own_t_is_deleted() {
    let table = Table::fresh().await;
    ledger(&table, DB).await;
    table.put(&log([1])).await;
    flurees_push(&table, &other(2), 2).await;
    // Fluree's reset leaves the row, and we push another commit with the same `t`.
    flurees_reset(&table, 1).await;
    our_push(&table, cid(2), 2).await;
    mended(&table, &["mydb:main commit-not-head"]).await;
    assert_eq!(logged(&table).await, [1]);
}

#[tokio::test]
async fn a_log_of_an_earlier_life_that_a_creation_could_not_see_is_found() {
    let table = Table::fresh().await;
    // Only log rows are left of the earlier life, and the first ones have expired.
    table.put(&log(5..=7)).await;
    ledger(&table, DB).await;
    mended(&table, &["mydb:main commits-above-head"]).await;
    assert_eq!(logged(&table).await, [] as [i64; 0]);
}

#[tokio::test]
async fn a_log_beside_a_graph_source_is_deleted() {
    let table = Table::fresh().await;
    source(&table, DB, &[]).await;
    table.put(&log(1..=2)).await;
    mended(&table, &["mydb:main leftover-commits"]).await;
}

#[tokio::test]
async fn beside_a_head_that_cannot_be_read_nothing_is_concluded() {
    let table = Table::fresh().await;
    ledger(&table, DB).await;
    table.put(&log(1..=2)).await;
    table.set(DB, "head", "commit_t", rows::s("seven")).await;
    left_alone(&table, &["mydb:main attribute-malformed"]).await;
    assert_eq!(logged(&table).await, [1, 2]);
}

#[tokio::test]
async fn a_head_that_moves_meanwhile_keeps_its_rows() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, DB).await;
    table.put(&log(1..=2)).await;
    let direct = table.direct().clone();
    let push = move || {
        let (direct, db) = (direct.clone(), db.clone());
        async move { drop(direct.push_head(&Call::fresh(), &db, &older(head(2))).await.unwrap()) }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(push));
    let findings = examine(&table.store, true).await;
    assert_eq!((codes(&findings), &findings[0].fix), (vec!["commits-above-head"], &Fix::ChangedMeanwhile));
    assert_eq!(logged(&table).await, [1, 2]);
    assert_eq!(found(&table).await, [] as [&str; 0]);
}

/// A log without a gap up to the head, but with wrong rows, which Fluree's indexer would believe.
async fn with_a_log_of_rolled_back_commits() -> Table {
    let table = Table::with_stream().await;
    ledger(&table, DB).await;
    table.put(&log([1])).await;
    for t in 2..=5 {
        flurees_push(&table, &(if t <= 3 { cid(t) } else { other(t) }), t).await;
    }
    flurees_reset(&table, 3).await;
    for t in 4..=5 {
        our_push(&table, cid(t), t).await;
    }
    flurees_push(&table, &cid(6), 6).await;
    table
}

#[tokio::test]
async fn commits_that_the_history_contradicts_are_deleted() {
    let table = with_a_log_of_rolled_back_commits().await;
    assert_eq!(found(&table).await, [] as [&str; 0], "only the history shows it");
    assert_eq!(codes(&examine_with_history(&table, true).await), [] as [&str; 0], "a feed that lags shows nothing");
    pump(&table).await;
    let findings = examine_with_history(&table, false).await;
    assert_eq!((codes(&findings), &findings[0].fix), (vec!["commits-superseded"], &Fix::Possible));
    assert!(findings[0].what.starts_with("2 rows"), "{findings:?}");
    assert_eq!(logged(&table).await, [1, 2, 3, 4, 5, 6], "looking changes nothing");
    assert_eq!(examine_with_history(&table, true).await[0].fix, Fix::Done);
    assert_eq!(logged(&table).await, [1, 2, 3, 6]);
    assert_eq!(codes(&examine_with_history(&table, true).await), [] as [&str; 0]);
}

#[tokio::test]
async fn commits_that_were_rolled_back_are_deleted_where_the_new_heads_skip_them() {
    let table = Table::with_stream().await;
    ledger(&table, DB).await;
    table.put(&log([1])).await;
    flurees_push(&table, &other(2), 2).await;
    flurees_reset(&table, 1).await;
    our_push(&table, cid(3), 3).await;
    pump(&table).await;
    assert_eq!(codes(&examine_with_history(&table, true).await), ["commits-superseded"]);
    assert_eq!(logged(&table).await, [1]);
}

/// The feed shows such a head as reads did, at 0 or without its id: that took nothing back.
#[tokio::test]
async fn a_head_that_could_not_be_read_for_a_while_takes_no_commit_with_it() {
    for (attribute, wrong, right) in
        [("commit_t", rows::s("three"), rows::n(3)), ("commit_id", rows::n(3), rows::s(cid(3).as_str()))]
    {
        let table = Table::with_stream().await;
        ledger(&table, DB).await;
        table.put(&log([1])).await;
        for t in 2..=3 {
            flurees_push(&table, &cid(t), t).await;
        }
        table.set(DB, "head", attribute, wrong).await;
        table.set(DB, "head", attribute, right).await;
        let consumer = Consumer::new(table.store.clone(), table.feed.clone());
        let consumed = consumer.consume(&deliveries(&table).await).await;
        assert_eq!((consumed.failed, consumed.dead_letters), (None, 1));
        assert_eq!(codes(&examine_with_history(&table, true).await), [] as [&str; 0]);
        assert_eq!(logged(&table).await, [1, 2, 3]);
    }
}

#[tokio::test]
async fn a_log_that_the_history_agrees_with_is_left_alone_and_costs_three_requests_more() {
    let table = Table::with_stream().await;
    ledger(&table, DB).await;
    table.put(&log([1])).await;
    for t in 2..=4 {
        flurees_push(&table, &cid(t), t).await;
    }
    // The history does not have these: Fluree may also move its head over several commits in one step.
    assert!(Fluree::on(&table).commit(DB, &cid(9), 9).await);
    table.put(&log(5..=9)).await;
    ledger(&table, "unlogged").await;
    pump(&table).await;
    let table = table.proxied().await;
    let mut findings = Vec::new();
    table.store.examine_with_history(&table.feed, true, &mut |finding| findings.push(finding)).await.unwrap();
    assert_eq!(findings, []);
    assert_eq!(table.proxy.take_operations(), ["Scan", "Query", "GetItem", "Query"]);
    assert_eq!(logged(&table).await, (1..=9).collect::<Vec<_>>());
}

#[tokio::test]
async fn beside_a_head_that_moves_on_the_history_is_no_reason_to_delete() {
    let table = with_a_log_of_rolled_back_commits().await;
    pump(&table).await;
    let table = table.proxied().await;
    let direct = table.direct().clone();
    let push = move || {
        let direct = direct.clone();
        async move { drop(direct.push_head(&Call::fresh(), &at(DB), &older(head(7))).await.unwrap()) }
    };
    table.proxy.on("TransactWriteItems", Fault::none().before(push));
    let mut findings = Vec::new();
    table.store.examine_with_history(&table.feed, true, &mut |finding| findings.push(finding)).await.unwrap();
    assert_eq!((codes(&findings), &findings[0].fix), (vec!["commits-superseded"], &Fix::ChangedMeanwhile));
    assert_eq!(logged(&table).await.len(), 6);
}

#[tokio::test]
async fn a_history_that_lags_behind_the_head_is_no_reason_to_delete() {
    let table = Table::with_stream().await;
    ledger(&table, DB).await;
    table.put(&log([1])).await;
    for t in 2..=3 {
        flurees_push(&table, &other(t), t).await;
    }
    pump(&table).await;
    flurees_reset(&table, 1).await;
    for t in 2..=4 {
        flurees_push(&table, &cid(t), t).await;
    }
    assert_eq!(codes(&examine_with_history(&table, true).await), [] as [&str; 0], "the feed ends with another head");
    assert_eq!(logged(&table).await, [1, 2, 3, 4]);
    pump(&table).await;
    assert_eq!(codes(&examine_with_history(&table, true).await), [] as [&str; 0]);
}
