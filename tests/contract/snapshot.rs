use std::collections::BTreeMap;

use nameservice_tests::prelude::*;

use super::{Fixture, born, every_backend, source, unborn};

pub(crate) async fn walk(ns: &impl AsRecords, limit: usize, visible: Visible<'_>) -> Vec<Record> {
    let ns = ns.records();
    let (mut all, mut cursor): (Vec<Record>, Option<Cursor>) = (Vec::new(), None);
    for _ in 0..200 {
        let page = ns.snapshot(at_most(limit), cursor.as_ref(), visible).await.unwrap();
        assert!(page.items.len() <= limit);
        all.extend(page.items);
        cursor = match page.cursor {
            Some(cursor) => Some(Cursor::decode(&cursor.encode()).unwrap()),
            None => return all,
        };
    }
    panic!("the snapshot has no end")
}

#[every_backend]
async fn pages_of_every_size_hold_every_record_once_and_whole(ns: &Fixture) {
    for n in 0..7 {
        born(ns, &format!("db{n}"), n + 1).await;
    }
    source(ns, "search", &["db1", "db2"]).await;
    unborn(ns, "db1:dev").await;
    let whole = walk(ns, 100, &anything).await;
    assert_eq!(whole.len(), 9);
    for limit in 1..=10 {
        let records = walk(ns, limit, &anything).await;
        assert_eq!(records.len(), 9, "in pages of {limit}");
        let by_address: BTreeMap<_, _> = records.into_iter().map(|record| (record.address.clone(), record)).collect();
        assert_eq!(by_address.len(), 9, "in pages of {limit}");
        for (address, record) in by_address {
            assert_eq!(ns.lookup(&address).await.unwrap(), Some(record));
        }
    }
}

#[every_backend]
async fn an_empty_table_has_an_empty_snapshot(ns: &Fixture) {
    assert_eq!(walk(ns, 10, &anything).await, []);
}

#[every_backend]
async fn only_what_the_caller_may_see_is_in_it_and_named_by_cursors(ns: &Fixture) {
    for n in 0..6 {
        unborn(ns, &format!("db{n}")).await;
    }
    let visible = |address: &Address| address.name() > "db3";
    let mut names: Vec<_> = walk(ns, 1, &visible).await.into_iter().map(|record| record.address).collect();
    names.sort();
    assert_eq!(names, ["db4", "db5"].map(at));
    let page = ns.snapshot(at_most(1), None, &visible).await.unwrap();
    assert!(page.cursor.is_none_or(|cursor| cursor.after() > "db3:main"), "a cursor never names the invisible");
}

#[every_backend]
async fn commits_that_were_acknowledged_are_in_it(ns: &Fixture) {
    let db = born(ns, "mydb", 1).await;
    for t in 2..10 {
        ns.push_head(&Call::fresh(), &db, &older(head(t))).await.unwrap().applied();
        assert_eq!(walk(ns, 10, &anything).await[0].head, Some(head(t)));
    }
}
