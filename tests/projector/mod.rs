//! The read model of records in a table, behind the feed of another one.

use std::{collections::BTreeMap, time::Duration};

use nameservice_projector::{
    Over, Progress, Projection as _, Projector, RowWrite, Rows as _, TableRows,
    records::{By, RECORDS, RecordPages as _, RecordQuery, RecordRow, Records, table_of},
};
use nameservice_tests::{engine, prelude::*, proxy::Request, pump::pump};
use nameservice_views::{Range, RetryPolicy, View};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::time::Instant;

const NAMES: [&str; 7] = ["a:main", "a:dev", "b:main", "b/c:main", "s:main", "t:main", "u:main"];

/// A nameservice's tables, its rows, and the projector between them. Everything but `direct` goes through the proxy.
struct Ground {
    table: Proxied,
    rows: TableRows<RecordRow>,
    direct: TableRows<RecordRow>,
    projector: Projector<Records>,
}

impl Ground {
    async fn new() -> Self {
        let table = Proxied::with_stream().await;
        let name = table_of(&table.name);
        let direct = View::new(table.client.clone(), &name, &RECORDS).with_retry_policy(engine::RETRIES);
        assert!(direct.ensure_table().await.unwrap().created);
        // Requests give up early, so that the projector itself has to recover from failures.
        let short = RetryPolicy {
            deadline: Duration::from_millis(200),
            base: Duration::from_millis(5),
            cap: Duration::from_millis(20),
        };
        let view = View::new(engine::client(table.proxy.url()), &name, &RECORDS).with_retry_policy(short);
        let projector = view_projector::projector(table.store.clone(), table.feed.clone(), view.clone());
        Self { table, rows: TableRows::new(view), direct: TableRows::new(direct), projector }
    }

    /// Pumps all writes into the feed, and projects them into the rows.
    async fn settle(&self) -> Progress {
        pump(&self.table).await;
        let progress = self.projector.catch_up(None).await.unwrap();
        assert!(progress.is_complete);
        progress
    }

    async fn scanned(&self) -> BTreeMap<Address, RecordRow> {
        let page = self.table.direct().snapshot(Limit::MAX, None, &anything).await.unwrap();
        page.items.into_iter().filter_map(|record| Some((record.address.clone(), Records.row(&record)?))).collect()
    }

    async fn stored(&self) -> BTreeMap<Address, RecordRow> {
        self.direct.all().await.unwrap().into_iter().map(|(address, _, row)| (address, row)).collect()
    }
}

/// One random write, straight to the engine. Outcomes of any kind are fine.
async fn write(names: &Store, rng: &mut StdRng) {
    let call = Call::fresh();
    let address = at(NAMES[rng.random_range(0..NAMES.len())]);
    let t = rng.random_range(1..9);
    match rng.random_range(0..12) {
        0 | 1 => drop(names.create_ledger(&call, &address, None, None).await.unwrap()),
        2 | 3 => drop(names.push_head(&call, &address, &older(new_head(t))).await.unwrap()),
        4 => drop(names.push_index(&call, &address, &older(index(t))).await.unwrap()),
        5 => {
            let Some(expected) = names.status(&address).await.unwrap() else { return };
            let state = ["syncing", "error", "ready"][rng.random_range(0..3)].to_owned();
            let new = NewStatus::new(StatusPayload { state, meta: Object::new() }).unwrap();
            drop(names.push_status(&call, &address, &cas(expected, new)).await.unwrap());
        }
        6 => {
            let Some(expected) = names.config(&address).await.unwrap() else { return };
            let new = new_config(json!({ "index_threshold": t }));
            drop(names.push_config(&call, &address, &cas(expected, new)).await.unwrap());
        }
        7 => {
            let holder = format!("h{}", rng.random_range(0..2));
            drop(names.acquire_lease(&call, &address, &index_lock(&holder, 60)).await.unwrap());
        }
        8 => drop(names.retract(&call, &address, None).await.unwrap()),
        9 => drop(names.restore(&call, &address).await.unwrap()),
        10 => drop(names.purge(&call, &address).await.unwrap()),
        _ => drop(names.publish_graph_source(&call, &bm25(&address, json!({}), &[])).await.unwrap()),
    }
}

#[tokio::test]
async fn rows_are_what_a_scan_gives_after_any_history_with_faults() {
    for seed in 0..4 {
        let ground = Ground::new().await;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut failed = 0;
        for round in 0..8 {
            for _ in 0..12 {
                write(ground.table.direct(), &mut rng).await;
            }
            pump(&ground.table).await;
            ground.table.proxy.strike_at_random(seed * 100 + round, 0.35);
            let (one, other) = tokio::join!(ground.projector.catch_up(None), ground.projector.catch_up(None));
            let rebuilt = if round == 5 { Some(ground.projector.rebuild().await) } else { None };
            ground.table.proxy.stop_striking();
            failed += u32::from(one.is_err()) + u32::from(other.is_err());
            failed += u32::from(rebuilt.is_some_and(|rebuilt| rebuilt.is_err()));
        }
        ground.settle().await;
        assert_eq!(ground.stored().await, ground.scanned().await, "seed {seed}");
        let end = ground.table.feed.position().await.unwrap();
        assert_eq!(ground.rows.checkpoint().await.unwrap().map(|checkpoint| checkpoint.position), Some(end));
        println!("seed {seed}: {failed} of 17 calls were cut off");
    }
}

#[tokio::test]
async fn every_list_of_the_read_model_is_one_query_a_page() {
    let ground = Ground::new().await;
    let mut rng = StdRng::seed_from_u64(77);
    for _ in 0..120 {
        write(ground.table.direct(), &mut rng).await;
    }
    ground.settle().await;
    let scanned = ground.scanned().await;
    type Listed = fn(&RecordRow) -> bool;
    let lists: [(By, Listed); 7] = [
        (By::Kind(RecordKind::Ledger), |row| row.kind == RecordKind::Ledger),
        (By::Kind(RecordKind::GraphSource), |row| row.kind == RecordKind::GraphSource),
        (By::State("ready".to_owned()), |row| row.state == "ready"),
        (By::State("retracted".to_owned()), |row| row.state == "retracted"),
        (By::SourceType("f:Bm25Index".to_owned()), |row| row.source_type.as_deref() == Some("f:Bm25Index")),
        (By::Holder("h0".to_owned()), |row| row.holder.as_deref() == Some("h0")),
        (By::IndexDue, |row| row.due.is_some()),
    ];
    let mut listed = 0;
    for (by, is_listed) in lists {
        for prefix in ["", "a:", "b", "s:main"] {
            let wanted =
                |(address, row): &(&Address, &RecordRow)| address.as_str().starts_with(prefix) && is_listed(row);
            let expected: Vec<Address> = scanned.iter().filter(wanted).map(|(address, _)| address.clone()).collect();
            for limit in [1, 50] {
                let mut query =
                    RecordQuery { prefix: prefix.to_owned(), limit: at_most(limit), ..RecordQuery::new(by.clone()) };
                let mut found = Vec::new();
                loop {
                    ground.table.proxy.take_requests();
                    let page = ground.rows.records(&query, &anything).await.unwrap();
                    assert_eq!(ground.table.proxy.take_operations(), ["Query"]);
                    query.after = page.rows.last().map(|(address, _)| address.clone()).or(query.after);
                    found.extend(page.rows.into_iter().map(|(address, _)| address));
                    if !page.has_more {
                        break;
                    }
                }
                assert_eq!(found, expected, "{by:?} {prefix} {limit}");
                listed += found.len();
            }
        }
    }
    assert!(listed > 30, "{listed}");
}

fn operations(requests: &[Request]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request.operation.as_str()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn an_invocation_reads_each_record_once_and_writes_each_row_once() {
    let ground = Ground::new().await;
    ground.settle().await;
    let names = ground.table.direct();
    for name in ["a", "b", "c"] {
        let _ = names.create_ledger(&Call::fresh(), &at(name), Some(&new_head(1)), None).await.unwrap();
        for t in 2..5 {
            let _ = names.push_head(&Call::fresh(), &at(name), &older(new_head(t))).await.unwrap();
        }
    }
    pump(&ground.table).await;
    ground.table.proxy.take_requests();
    let until = Instant::now() + LONG;
    let progress = view_projector::project(&ground.projector, until).await.unwrap();
    assert_eq!((progress.rows, progress.is_complete, progress.rebuilt), (3, true, false));
    let requests = ground.table.proxy.take_requests();
    // The checkpoint, and the feed's counter before the changes and at their end; the changes; the records; the rows, and
    // the checkpoint.
    let expected = BTreeMap::from([("GetItem", 3), ("Query", 1), ("BatchGetItem", 1), ("PutItem", 4)]);
    assert_eq!(operations(&requests), expected);
    // The doorbell rings without a change.
    let progress = view_projector::project(&ground.projector, until).await.unwrap();
    assert_eq!((progress.rows, progress.changes), (0, 0));
    assert_eq!(operations(&ground.table.proxy.take_requests()), BTreeMap::from([("GetItem", 2)]));
}

#[tokio::test]
async fn an_invocation_that_has_no_time_left_is_repeated() {
    let ground = Ground::new().await;
    let _ = ground.table.direct().create_ledger(&Call::fresh(), &at("a"), None, None).await.unwrap();
    ground.settle().await;
    let _ = ground.table.direct().push_head(&Call::fresh(), &at("a"), &older(new_head(1))).await.unwrap();
    pump(&ground.table).await;
    assert!(view_projector::project(&ground.projector, Instant::now()).await.is_err(), "the queue rings again");
    assert_eq!(ground.stored().await[&at("a")].commit_t, 0);
    view_projector::project(&ground.projector, Instant::now() + LONG).await.unwrap();
    assert_eq!(ground.stored().await[&at("a")].commit_t, 1);
}

#[tokio::test]
async fn a_late_write_neither_moves_a_row_back_nor_brings_it_back() {
    let ground = Ground::new().await;
    let (names, db) = (ground.table.direct(), at("a"));
    let _ = names.create_ledger(&Call::fresh(), &db, Some(&new_head(1)), None).await.unwrap();
    ground.settle().await;
    let (_, version, row) = ground.direct.all().await.unwrap().remove(0);
    let late = RowWrite { address: db.clone(), version, row: Some(row) };
    let _ = names.push_head(&Call::fresh(), &db, &older(new_head(2))).await.unwrap();
    ground.settle().await;
    ground.rows.write(vec![late.clone()], Over::Older).await.unwrap();
    assert_eq!(ground.direct.get(&db).await.unwrap().unwrap().commit_t, 2);
    assert_eq!(names.purge(&Call::fresh(), &db).await.unwrap(), Purged::Purged);
    ground.settle().await;
    for over in [Over::Older, Over::SameOrOlder] {
        ground.rows.write(vec![late.clone()], over).await.unwrap();
        assert!(ground.direct.get(&db).await.unwrap().is_none());
    }
    let query = RecordQuery::new(By::Kind(RecordKind::Ledger));
    assert!(ground.direct.records(&query, &anything).await.unwrap().rows.is_empty());
    // What is left of it expires.
    #[derive(serde::Deserialize)]
    struct Left {
        address: String,
        ttl: Option<i64>,
    }
    let page = ground.direct.view().scan::<Left>(None).await.unwrap();
    let left: Vec<_> = page.rows.iter().filter(|left| left.address == db.as_str()).collect();
    assert!(matches!(left[..], [Left { ttl: Some(_), .. }]));
    // A new record of the same name has a row again.
    let _ = names.create_ledger(&Call::fresh(), &db, Some(&new_head(7)), None).await.unwrap();
    ground.settle().await;
    assert_eq!(ground.stored().await, ground.scanned().await);
}

#[tokio::test]
async fn a_range_has_a_prefix_or_what_it_comes_after() {
    let ground = Ground::new().await;
    let both = Range { after: Some("a".into()), ..Range::new().prefix("b") };
    assert!(ground.direct.view().query_index::<RecordRow>("by-kind", "ledger", &both).await.is_err());
}
