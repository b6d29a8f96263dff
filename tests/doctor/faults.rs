//! Repairs that fail, or whose answer is lost.

use super::*;

#[tokio::test]
async fn a_remedy_whose_answer_is_lost_is_applied_once() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &["mydb:main"])).await;
    table.proxy.on("TransactWriteItems", Fault::cut_reply());
    let findings = examine(&table.store, true).await;
    assert!(table.proxy.is_spent());
    assert_eq!((findings.len(), &findings[0].fix), (1, &Fix::Done), "{findings:?}");
    assert_eq!(record(&table, &db).await.dependents, 1);
    assert_references(&table.all_rows().await);
}

#[tokio::test]
async fn batches_that_come_back_in_part_are_read_whole() {
    let table = Proxied::fresh().await;
    ledger(&table, "mydb").await;
    source(&table, "search", &["mydb"]).await;
    table.proxy.on("BatchGetItem", Fault::partial_batch().times(2));
    assert_eq!(examine(&table.store, false).await, []);
    assert!(table.proxy.is_spent());
}

#[tokio::test]
async fn a_remedy_that_the_engine_rejects_is_reported_with_the_reason() {
    let table = Proxied::fresh().await;
    ledger(&table, "mydb").await;
    Fluree::on(&table).retract(DB).await;
    ledger(&table, "other").await;
    Fluree::on(&table).retract("other:main").await;
    table.proxy.on("TransactWriteItems", Fault::answer(400, "AccessDeniedException"));
    let findings = examine(&table.store, true).await;
    let failed = findings.iter().filter(|finding| matches!(finding.fix, Fix::Failed(_))).count();
    assert_eq!((findings.len(), failed), (2, 1), "{findings:?}");
}
