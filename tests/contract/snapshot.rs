use std::collections::BTreeMap;

use nameservice_tests::prelude::*;

use super::{born, source, unborn};

async fn walk(store: &Store, limit: usize, visible: Visible<'_>) -> Vec<Record> {
    let (mut all, mut cursor): (Vec<Record>, Option<Cursor>) = (Vec::new(), None);
    for _ in 0..200 {
        let page = store.snapshot(limit, cursor.as_ref(), visible).await.unwrap();
        assert!(page.items.len() <= limit);
        all.extend(page.items);
        cursor = match page.cursor {
            Some(cursor) => Some(Cursor::decode(&cursor.encode()).unwrap()),
            None => return all,
        };
    }
    panic!("the snapshot has no end")
}

#[tokio::test]
async fn pages_of_every_size_hold_every_record_once_and_whole() {
    let table = Table::fresh().await;
    for n in 0..7 {
        born(&table.store, &format!("db{n}"), n + 1).await;
    }
    source(&table.store, "search", &["db1", "db2"]).await;
    table.put(&rows::ledger("theirs:main").commit(cid(9), 9).rows()).await;
    table.put(&(1..=9).map(|t| rows::commit_log("theirs:main", &cid(t), t)).collect::<Vec<_>>()).await;
    table.put(&[rows::ghost_meta("ghost:main")]).await;
    table.put(&rows::orphans("orphan:main", cid(1), 1)).await;
    let whole = walk(&table.store, 100, &anything).await;
    assert_eq!(whole.len(), 9);
    for limit in 1..=10 {
        let records = walk(&table.store, limit, &anything).await;
        assert_eq!(records.len(), 9, "in pages of {limit}");
        let by_address: BTreeMap<_, _> = records.into_iter().map(|record| (record.address.clone(), record)).collect();
        assert_eq!(by_address.len(), 9, "in pages of {limit}");
        for (address, record) in by_address {
            assert_eq!(table.store.lookup(&address).await.unwrap(), Some(record));
        }
    }
}

#[tokio::test]
async fn an_empty_table_has_an_empty_snapshot() {
    let table = Table::fresh().await;
    assert_eq!(walk(&table.store, 10, &anything).await, []);
}

#[tokio::test]
async fn only_what_the_caller_may_see_is_in_it_and_named_by_cursors() {
    let table = Table::fresh().await;
    for n in 0..6 {
        unborn(&table.store, &format!("db{n}")).await;
    }
    let visible = |address: &Address| address.name() > "db3";
    let mut names: Vec<_> = walk(&table.store, 1, &visible).await.into_iter().map(|record| record.address).collect();
    names.sort();
    assert_eq!(names, ["db4", "db5"].map(at));
    let page = table.store.snapshot(1, None, &visible).await.unwrap();
    assert!(page.cursor.is_none_or(|cursor| cursor.after() > "db3:main"), "a cursor never names the invisible");
}

#[tokio::test]
async fn commits_that_were_acknowledged_are_in_it() {
    let table = Table::fresh().await;
    let db = born(&table.store, "mydb", 1).await;
    for t in 2..10 {
        table.store.push_head(&Call::fresh(), &db, &older(head(t))).await.unwrap();
        assert_eq!(walk(&table.store, 10, &anything).await[0].head, Some(head(t)));
    }
}
