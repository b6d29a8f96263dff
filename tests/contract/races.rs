//! Many writers at the same time.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::future::join_all;
use nameservice_tests::{cids::id_of, prelude::*};
use rand::{Rng, RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::{Fixture, every_backend};

#[every_backend]
async fn of_all_pushes_that_expect_one_head_exactly_one_wins_each_t(ns: &Fixture) {
    const WRITERS: usize = 8;
    const LAST_T: i64 = 25;
    let db = at("mydb");
    ns.create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
    let wins = join_all((0..WRITERS).map(|writer| {
        let (ns, db) = (ns.shared(), db.clone());
        tokio::spawn(async move {
            let mut wins = Vec::new();
            let mut seen = ns.head(&db).await.unwrap().unwrap();
            while seen.v < LAST_T {
                let new = Head::new(seen.v + 1, id_of(&format!("{writer} at {}", seen.v + 1)));
                match ns.push_head(&Call::fresh(), &db, &cas(seen, new.clone())).await.unwrap() {
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
    assert_eq!(ns.head(&db).await.unwrap().unwrap().payload, by_t[&LAST_T]);
}

#[every_backend]
async fn of_all_creations_of_one_ledger_exactly_one_wins(ns: &Fixture) {
    for round in 0..20 {
        let db = at(&format!("db{round}"));
        let outcomes = join_all((0..6).map(|n| {
            let (ns, db) = (ns.shared(), db.clone());
            tokio::spawn(
                async move { ns.create_ledger(&Call::fresh(), &db, Some(&new_head(n + 1)), None).await.unwrap() },
            )
        }));
        let created = outcomes.await.into_iter().filter(|outcome| matches!(outcome, Ok(Created::Created(_)))).count();
        assert_eq!(created, 1);
    }
}

#[every_backend]
async fn one_call_that_arrives_several_times_concurrently_applies_once(ns: &Fixture) {
    let db = at("mydb");
    ns.create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
    for v in 1..20 {
        let call = Call::fresh();
        let outcomes = join_all((0..4).map(|_| {
            let (ns, db, call) = (ns.shared(), db.clone(), call.clone());
            let pushed = cas(Status::stored(v, None), status(v + 1, "x"));
            tokio::spawn(async move { ns.push_status(&call, &db, &pushed).await.unwrap() })
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

#[every_backend(AtomicReferences)]
async fn depending_on_a_record_and_retracting_it_never_both_succeed(ns: &Fixture) {
    const PAIRS: usize = 4;
    const ROUNDS: usize = 40;
    let (depended, retracted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // Who is first is up to the scheduler: repeated until each side was.
    for repetition in 0..20 {
        join_all((0..PAIRS).map(|pair| {
            let (depended, retracted, ns) = (depended.clone(), retracted.clone(), ns.shared());
            tokio::spawn(async move {
                let (db, search) = (at(&format!("db{repetition}-{pair}")), at(&format!("search{repetition}-{pair}")));
                ns.create_ledger(&Call::fresh(), &db, None, None).await.unwrap().applied();
                let publication = bm25(&search, json!({}), &[db.as_str()]);
                for round in 0..ROUNDS {
                    let (depend, retract) = (Call::fresh(), Call::fresh());
                    let depend = async {
                        // Head starts of different lengths let either side win.
                        for _ in 0..round % 4 {
                            ns.ping().await.unwrap();
                        }
                        ns.publish_graph_source(&depend, &publication).await.unwrap()
                    };
                    let retract = async { ns.retract(&retract, &db, None).await.unwrap() };
                    let (published, outcome) = if round % 2 == 0 {
                        tokio::join!(depend, retract)
                    } else {
                        let (outcome, published) = tokio::join!(retract, depend);
                        (published, outcome)
                    };
                    let record = ns.lookup(&db).await.unwrap().unwrap();
                    let dependent = ns.lookup(&search).await.unwrap();
                    match (published, outcome) {
                        (Published::Created(_), Retracted::HasDependents) => {
                            depended.fetch_add(1, Ordering::Relaxed);
                            assert_eq!((record.retracted, record.dependents), (false, 1));
                            assert_eq!(ns.dependents(&db).await.unwrap(), std::slice::from_ref(&search));
                            assert!(dependent.is_some());
                            assert_eq!(ns.purge(&Call::fresh(), &search).await.unwrap(), Purged::Purged);
                        }
                        (Published::MissingDependencies(missing), Retracted::Retracted(_)) => {
                            retracted.fetch_add(1, Ordering::Relaxed);
                            assert_eq!(missing, std::slice::from_ref(&db));
                            assert_eq!((record.retracted, record.dependents), (true, 0));
                            assert_eq!(dependent, None);
                            let restored = ns.restore(&Call::fresh(), &db).await.unwrap();
                            assert!(matches!(restored, Restored::Restored(_)), "{restored:?}");
                        }
                        other => panic!("{other:?}"),
                    }
                }
            })
        }))
        .await
        .into_iter()
        .for_each(Result::unwrap);
        if depended.load(Ordering::Relaxed) > 4 && retracted.load(Ordering::Relaxed) > 4 {
            break;
        }
    }
    assert_references(ns).await;
    let (depended, retracted) = (depended.load(Ordering::Relaxed), retracted.load(Ordering::Relaxed));
    assert!(depended > 4 && retracted > 4, "the race was one-sided: {depended} to {retracted}");
}

/// One step of a writer: any operation that touches references.
pub(crate) async fn anything_at_all(ns: &dyn Records, dice: &mut (impl Rng + Send)) {
    let ledgers = ["a:main", "b:main", "a:dev"];
    let sources = ["s1", "s2", "s3"];
    let call = Call::fresh();
    let ledger = at(ledgers.choose(dice).unwrap());
    let source = at(sources.choose(dice).unwrap());
    match dice.random_range(0..10) {
        0 => drop(ns.create_ledger(&call, &at("b:main"), Some(&new_head(1)), None).await.unwrap()),
        1 => drop(ns.create_ledger(&call, &at("a:main"), Some(&new_head(1)), None).await.unwrap()),
        2 => drop(ns.create_branch(&call, &at("a:dev"), &at("a:main"), None).await.unwrap()),
        3 => drop(ns.drop_branch(&call, &at("a:dev")).await.unwrap()),
        4 => drop(ns.retract(&call, if dice.random() { &ledger } else { &source }, None).await.unwrap()),
        5 => drop(ns.restore(&call, if dice.random() { &ledger } else { &source }).await.unwrap()),
        6 => drop(ns.purge(&call, if dice.random() { &ledger } else { &source }).await.unwrap()),
        _ => {
            let mut dependencies: Vec<&str> =
                ledgers.into_iter().chain(["s1"]).filter(|_| dice.random_bool(0.4)).collect();
            dependencies.retain(|target| at(target) != source);
            let publication = bm25(&source, json!({}), &dependencies);
            drop(ns.publish_graph_source(&call, &publication).await.unwrap());
        }
    }
}

/// Panics unless every count and every list of dependents agrees with the records themselves.
async fn assert_references(ns: &Fixture) {
    let page = ns.snapshot(at_most(1_000), None, &anything).await.unwrap();
    assert_eq!(page.cursor, None);
    let by_address: BTreeMap<Address, &Record> =
        page.items.iter().map(|record| (record.address.clone(), record)).collect();
    for record in &page.items {
        for target in &record.dependencies {
            let Some(target) = by_address.get(&at(target)) else { panic!("{target} is gone: {record:?}") };
            assert!(record.retracted || !target.retracted, "live, on what is retracted: {record:?}");
        }
        let depends = |other: &&Record| other.dependencies.iter().any(|target| target == record.address.as_str());
        let is_branch = |other: &&Record| {
            other.address.name() == record.address.name()
                && other.source_branch.as_deref() == Some(record.address.branch())
        };
        let (sources, branches) = (page.items.iter().filter(depends), page.items.iter().filter(is_branch));
        let mut dependents: Vec<Address> = sources.clone().chain(branches.clone()).map(|r| r.address.clone()).collect();
        assert_eq!(
            (record.dependents, record.branches),
            (sources.count() as i64, branches.count() as i64),
            "{record:?}"
        );
        let mut listed = ns.dependents(&record.address).await.unwrap();
        listed.sort();
        dependents.sort();
        assert_eq!(listed, dependents, "{}", record.address);
    }
}

#[every_backend(AtomicReferences)]
async fn references_and_counts_stay_exact_whatever_writers_do_concurrently(ns: &Fixture) {
    for seed in 0..4 {
        join_all((0..4).map(|writer| {
            let ns = ns.shared();
            tokio::spawn(async move {
                let mut dice = StdRng::seed_from_u64(seed * 100 + writer);
                for _ in 0..60 {
                    anything_at_all(&*ns, &mut dice).await;
                }
            })
        }))
        .await
        .into_iter()
        .for_each(Result::unwrap);
        assert_references(ns).await;
    }
}

#[every_backend(AtomicReferences)]
async fn the_count_of_branches_is_exact_after_many_came_and_went_concurrently(ns: &Fixture) {
    let source = at("mydb");
    ns.create_ledger(&Call::fresh(), &source, Some(&new_head(1)), None).await.unwrap().applied();
    join_all((0..6_usize).map(|writer| {
        let (ns, source) = (ns.shared(), source.clone());
        tokio::spawn(async move {
            for round in 0..20 {
                // Neighbouring writers share branches, so that they race to create and to drop them.
                let branch = source.with_branch(&format!("b{}", (writer + round) % 4)).unwrap();
                match (writer + round) % 3 {
                    0 => drop(ns.drop_branch(&Call::fresh(), &branch).await.unwrap()),
                    _ => drop(ns.create_branch(&Call::fresh(), &branch, &source, None).await.unwrap()),
                }
            }
        })
    }))
    .await
    .into_iter()
    .for_each(Result::unwrap);
    assert_references(ns).await;
    let branches = ns.lookup(&source).await.unwrap().unwrap().branches;
    assert!((0..=4).contains(&branches));
}
