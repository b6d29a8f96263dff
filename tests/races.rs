//! Many writers at the same time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::future::join_all;
use nameservice_tests::{cids::id_of, layout::assert_references, prelude::*};
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_all_pushes_that_expect_one_head_exactly_one_wins_each_t() {
    const WRITERS: usize = 8;
    const LAST_T: i64 = 25;
    let table = Table::without_stream().await;
    let db = at("mydb");
    table.store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
    let wins = join_all((0..WRITERS).map(|writer| {
        let (store, db) = (table.store.clone(), db.clone());
        tokio::spawn(async move {
            let mut wins = Vec::new();
            let mut seen = store.head(&db).await.unwrap().unwrap();
            while seen.v < LAST_T {
                let new = Head::new(seen.v + 1, id_of(&format!("{writer} at {}", seen.v + 1)));
                match store.push_head(&Call::fresh(), &db, &cas(seen, new.clone())).await.unwrap() {
                    PushOutcome::Updated { value, replayed: false } => {
                        assert_eq!(value, new);
                        wins.push(new.clone());
                        seen = new;
                    }
                    PushOutcome::Conflict { actual: Some(actual) } => seen = actual,
                    other => panic!("{other:?}"),
                }
            }
            wins
        })
    }))
    .await;
    let mut by_t = BTreeMap::new();
    for win in wins.into_iter().flat_map(Result::unwrap) {
        assert_eq!(by_t.insert(win.v, win.payload), None, "two winners at t {}", win.v);
    }
    assert_eq!(by_t.keys().copied().collect::<Vec<_>>(), (1..=LAST_T).collect::<Vec<_>>());
    assert_eq!(table.store.head(&db).await.unwrap().unwrap().payload, by_t[&LAST_T]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_all_creations_of_one_ledger_exactly_one_wins() {
    let table = Table::without_stream().await;
    for round in 0..20 {
        let db = at(&format!("db{round}"));
        let outcomes = join_all((0..6).map(|n| {
            let (store, db) = (table.store.clone(), db.clone());
            tokio::spawn(async move {
                store.create_ledger(&Call::fresh(), &db, Some(&new_head(n + 1)), None).await.unwrap()
            })
        }));
        let created = outcomes.await.into_iter().filter(|outcome| matches!(outcome, Ok(Created::Created(_)))).count();
        assert_eq!(created, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_call_that_arrives_several_times_at_once_applies_once() {
    let table = Table::without_stream().await;
    let db = at("mydb");
    table.store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
    for v in 1..20 {
        let call = Call::fresh();
        let outcomes = join_all((0..4).map(|_| {
            let (store, db, call) = (table.store.clone(), db.clone(), call.clone());
            let pushed = cas(Status::stored(v, None), status(v + 1, "x"));
            tokio::spawn(async move { store.push_status(&call, &db, &pushed).await.unwrap() })
        }));
        let mut first_times = 0;
        for outcome in outcomes.await {
            let PushOutcome::Updated { value, replayed } = outcome.unwrap() else { panic!("not updated") };
            assert_eq!(value, status(v + 1, "x"));
            first_times += usize::from(!replayed);
        }
        assert_eq!(first_times, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn depending_on_a_record_and_retracting_it_never_both_succeed() {
    const PAIRS: usize = 4;
    const ROUNDS: usize = 500;
    let (depended, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    join_all((0..PAIRS).map(|pair| {
        let (depended, refused) = (depended.clone(), refused.clone());
        tokio::spawn(async move {
            // The embedded engine serves one request at a time: an engine for each pair keeps all processors busy.
            let table = Table::without_stream().await;
            let store = &table.store;
            let (db, search) = (at(&format!("db{pair}")), at(&format!("search{pair}")));
            store.create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
            let publication = bm25(&search, json!({}), &[db.as_str()]);
            for round in 0..ROUNDS {
                let depend = async {
                    // A retraction reads before it writes: starts at different distances let either side win.
                    for _ in 0..round % 4 {
                        store.ping().await.unwrap();
                    }
                    store.publish_graph_source(&Call::fresh(), &publication).await.unwrap()
                };
                let call = Call::fresh();
                let (published, outcome) = tokio::join!(depend, store.retract(&call, &db, None));
                let outcome = outcome.unwrap();
                let record = store.lookup(&db).await.unwrap().unwrap();
                let dependent = store.lookup(&search).await.unwrap();
                match (published, outcome) {
                    (Published::Created(_), Retracted::HasDependents) => {
                        depended.fetch_add(1, Ordering::Relaxed);
                        assert_eq!((record.retracted, record.dependents), (false, 1));
                        assert_eq!(store.dependents(&db).await.unwrap(), std::slice::from_ref(&search));
                        assert!(dependent.is_some());
                        assert_eq!(store.purge(&Call::fresh(), &search).await.unwrap(), Purged::Purged);
                    }
                    (Published::MissingDependencies(missing), Retracted::Retracted(_)) => {
                        refused.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(missing, std::slice::from_ref(&db));
                        assert_eq!((record.retracted, record.dependents), (true, 0));
                        assert_eq!(dependent, None);
                        let restored = store.restore(&Call::fresh(), &db).await.unwrap();
                        assert!(matches!(restored, Restored::Restored(_)), "{restored:?}");
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_references(&table.all_rows().await);
        })
    }))
    .await
    .into_iter()
    .for_each(Result::unwrap);
    let (depended, refused) = (depended.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    println!("{depended} times the dependency was first, {refused} times the retraction");
    assert!(depended > 20 && refused > 20, "the race was one-sided: {depended} to {refused}");
}

/// One step of a writer who does anything that touches references.
pub(super) async fn anything_at_all(store: &Store, dice: &mut (impl Rng + Send)) {
    let ledgers = ["a:main", "b:main", "a:dev"];
    let sources = ["s1", "s2", "s3"];
    let call = Call::fresh();
    let ledger = at(ledgers.choose(dice).unwrap());
    let source = at(sources.choose(dice).unwrap());
    match dice.random_range(0..10) {
        0 => drop(store.create_ledger(&call, &at("b:main"), Some(&new_head(1)), None).await.unwrap()),
        1 => drop(store.create_ledger(&call, &at("a:main"), Some(&new_head(1)), None).await.unwrap()),
        2 => drop(store.create_branch(&call, &at("a:dev"), &at("a:main"), None).await.unwrap()),
        3 => drop(store.drop_branch(&call, &at("a:dev")).await.unwrap()),
        4 => drop(store.retract(&call, if dice.random() { &ledger } else { &source }, None).await.unwrap()),
        5 => drop(store.restore(&call, if dice.random() { &ledger } else { &source }).await.unwrap()),
        6 => drop(store.purge(&call, if dice.random() { &ledger } else { &source }).await.unwrap()),
        _ => {
            let mut dependencies: Vec<&str> =
                ledgers.into_iter().chain(["s1"]).filter(|_| dice.random_bool(0.4)).collect();
            dependencies.retain(|target| at(target) != source);
            let publication = bm25(&source, json!({}), &dependencies);
            drop(store.publish_graph_source(&call, &publication).await.unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_and_counts_stay_exact_whatever_writers_do_at_once() {
    for seed in 0..6 {
        let table = Arc::new(Table::without_stream().await);
        join_all((0..4).map(|writer| {
            let table = table.clone();
            tokio::spawn(async move {
                let mut dice = StdRng::seed_from_u64(seed * 100 + writer);
                for _ in 0..60 {
                    anything_at_all(&table.store, &mut dice).await;
                }
            })
        }))
        .await
        .into_iter()
        .for_each(Result::unwrap);
        assert_references(&table.all_rows().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_count_of_branches_is_exact_after_many_came_and_went_at_once() {
    let table = Arc::new(Table::without_stream().await);
    let source = at("mydb");
    table.store.create_ledger(&Call::fresh(), &source, Some(&new_head(1)), None).await.unwrap().applied();
    join_all((0..6_usize).map(|writer| {
        let (table, source) = (table.clone(), source.clone());
        tokio::spawn(async move {
            for round in 0..20 {
                // Neighbours share branches: they meet in creating and in dropping them.
                let branch = source.with_branch(&format!("b{}", (writer + round) % 4)).unwrap();
                match (writer + round) % 3 {
                    0 => drop(table.store.drop_branch(&Call::fresh(), &branch).await.unwrap()),
                    _ => drop(table.store.create_branch(&Call::fresh(), &branch, &source, None).await.unwrap()),
                }
            }
        })
    }))
    .await
    .into_iter()
    .for_each(Result::unwrap);
    assert_references(&table.all_rows().await);
    let branches = table.store.lookup(&source).await.unwrap().unwrap().branches;
    assert!((0..=4).contains(&branches));
}
