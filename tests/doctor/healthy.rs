//! Healthy tables: one scan, and no findings.

use super::*;

#[tokio::test]
async fn in_a_table_of_ours_nothing_is_found_by_one_scan() {
    let table = Proxied::fresh().await;
    let db = ledger(&table, "mydb").await;
    let dev = branch(&table, "mydb:dev", &db).await;
    let search = source(&table, "search", &["mydb", "mydb:dev"]).await;
    let gone = ledger(&table, "gone").await;
    retract(&table, &gone).await.applied();
    let back = ledger(&table, "back").await;
    retract(&table, &back).await.applied();
    table.store.restore(&Call::fresh(), &back).await.unwrap().applied();
    let request = index_lock("one", 300);
    table.store.acquire_lease(&Call::fresh(), &dev, &request).await.unwrap().applied();
    table
        .store
        .push_config(&Call::fresh(), &db, &cas(Config::unborn(), Config::new(1, json!({"a": 1}))))
        .await
        .unwrap()
        .applied();
    retract(&table, &search).await.applied();
    table.proxy.take_operations();
    let mut findings = Vec::new();
    let seen = std::sync::Mutex::new(Vec::new());
    let observe = |progress| seen.lock().unwrap().push(progress);
    let examined =
        table.store.examine_observed(None, true, &mut |finding| findings.push(finding), &observe).await.unwrap();
    assert_eq!(seen.into_inner().unwrap(), [Progress { done: 5, total: None }]);
    assert_eq!(findings, []);
    assert_eq!((examined.records, examined.items as usize), (5, table.all_rows().await.len()));
    assert_eq!(table.proxy.take_operations(), ["Scan", "BatchGetItem"]);
}

#[tokio::test]
async fn ordinary_rows_of_flurees_are_healthy() {
    let table = Table::fresh().await;
    table
        .put(&rows::ledger(DB).commit(cid(7), 7).index(index_cid(5), 5).context(id_of("context").as_str(), 3).rows())
        .await;
    table.put(&[rows::commit_log(DB, &cid(7), 7), rows::commit_log(DB, &cid(6), 6)]).await;
    table.put(&rows::ledger("nulls:main").nulls().rows()).await;
    table.put(&rows::meta_only("old:main")).await;
    table.put(&rows::graph_source("search:main", "f:Bm25Index", "{}", &[])).await;
    assert_eq!(found(&table).await, [] as [&str; 0]);
}

#[tokio::test]
async fn a_table_of_many_pages_is_read_to_its_end() {
    let table = Table::fresh().await;
    let filler = "x".repeat(30_000);
    let mut rows = Vec::new();
    for i in 0..60 {
        let mut ledger = rows::ledger(&format!("db{i}:main")).commit(cid(1), 1).rows();
        for row in &mut ledger {
            row.insert("status_meta".into(), json!({ "M": { "filler": rows::s(&*filler) } }));
        }
        rows.extend(ledger);
    }
    table.put_many(&rows).await;
    for i in [0, 31, 59] {
        Fluree::on(&table).retract(&format!("db{i}:main")).await;
    }
    mended(&table, &["db0:main marks-missing", "db31:main marks-missing", "db59:main marks-missing"]).await;
}
