//! Many clients that want one lease.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::join_all;
use nameservice_tests::cids::id_of;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::task::yield_now;

use super::*;

#[every_backend(Leases)]
async fn a_crashed_holder_is_replaced_when_its_lease_has_expired_and_not_before(ns: &Fixture) {
    ledger(ns).await;
    let outcome = ns.acquire_lease(&Call::fresh(), &at(DB), &for_seconds("crashed", 1)).await.unwrap();
    let Leased::Held(crashed) = outcome else { panic!("{outcome:?}") };
    let step = Duration::from_millis(100);
    let mut waited = Duration::ZERO;
    while acquire(ns, "next").await == Leased::Busy(crashed.lease.clone()) {
        ns.clock.advance(step);
        waited += step;
        assert!(waited <= Duration::from_secs(2) + step, "it never expires");
    }
    assert!(ns.clock.epoch_seconds() >= crashed.lease.expires_at && waited >= Duration::from_secs(1), "{waited:?}");
    assert_eq!(held(ns, "next").await.token, 3, "the loop took the second");
}

#[every_backend(Leases)]
async fn of_all_who_ask_concurrently_exactly_one_holds_it(ns: &Fixture) {
    ledger(ns).await;
    for token in 1..=10 {
        let outcomes = join_all((0..6).map(|n| {
            let ns = ns.shared();
            tokio::spawn(async move {
                ns.acquire_lease(&Call::fresh(), &at(DB), &wanted(&format!("holder {n}"))).await.unwrap()
            })
        }));
        let outcomes: Vec<Leased> = outcomes.await.into_iter().map(Result::unwrap).collect();
        let winners: Vec<&Held> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                Leased::Held(held) => Some(held),
                _ => None,
            })
            .collect();
        let [winner] = &winners[..] else { panic!("{outcomes:?}") };
        assert_eq!(winner.token, token);
        let busy = outcomes.iter().filter(|outcome| **outcome == Leased::Busy(winner.lease.clone())).count();
        assert_eq!(busy, 5, "{outcomes:?}");
        assert_eq!(release(ns, &winner.lease.holder, token).await, Released::Released);
    }
}

#[derive(Clone, Debug)]
struct Applied {
    token: i64,
    t: i64,
}

#[every_backend(Leases)]
async fn no_push_of_a_past_holder_is_ever_applied(ns: &Fixture) {
    const HOLDERS: u64 = 8;
    const ROUNDS: usize = 20;
    ns.create_ledger(&Call::fresh(), &at(DB), None, None).await.unwrap().applied();
    let (applied, taken) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let rejected = Arc::new(AtomicUsize::new(0));
    // Which holders meet is up to the scheduler: repeated until some were rejected.
    for repetition in 0..20 {
        join_all((0..HOLDERS).map(|n| {
            let (applied, taken, rejected) = (applied.clone(), taken.clone(), rejected.clone());
            let (ns, clock) = (ns.shared(), ns.clock.clone());
            tokio::spawn(async move {
                let mut dice = StdRng::seed_from_u64(repetition * HOLDERS + n);
                let holder = format!("holder {n}");
                for _ in 0..ROUNDS {
                    let outcome = ns.acquire_lease(&Call::fresh(), &at(DB), &for_seconds(&holder, 1)).await.unwrap();
                    let Leased::Held(held) = outcome else {
                        clock.advance(Duration::from_millis(dice.random_range(0..300)));
                        yield_now().await;
                        continue;
                    };
                    taken.lock().unwrap().push(held.token);
                    let mine = claim(&holder, held.token);
                    for _ in 0..dice.random_range(1..4) {
                        if dice.random_bool(0.3) {
                            clock.advance(Duration::from_millis(dice.random_range(800..2_500)));
                            yield_now().await;
                        }
                        let seen = ns.head(&at(DB)).await.unwrap().unwrap();
                        let new = Head::new(seen.v + 1, id_of(&format!("{} after {}", held.token, seen.v)));
                        let push = under(&mine, cas(seen, new.clone()));
                        match ns.push_head(&Call::fresh(), &at(DB), &push).await.unwrap() {
                            PushOutcome::Updated { value, replayed: false } => {
                                assert_eq!(value, new);
                                applied.lock().unwrap().push(Applied { token: held.token, t: new.v });
                            }
                            PushOutcome::LeaseLost { .. } => {
                                rejected.fetch_add(1, Ordering::Relaxed);
                            }
                            PushOutcome::Conflict { .. } => {}
                            other => panic!("{other:?}"),
                        }
                    }
                    // Some crash instead.
                    if dice.random_bool(0.6) {
                        let _ = ns.release_lease(&Call::fresh(), &at(DB), &mine).await.unwrap();
                    }
                }
            })
        }))
        .await
        .into_iter()
        .for_each(Result::unwrap);
        if rejected.load(Ordering::Relaxed) > 0 && taken.lock().unwrap().len() > 4 {
            break;
        }
    }

    let mut applied = applied.lock().unwrap().clone();
    applied.sort_by_key(|push| push.t);
    let (rejected, mut taken) = (rejected.load(Ordering::Relaxed), taken.lock().unwrap().clone());
    let last = ns.head(&at(DB)).await.unwrap().unwrap().v;
    assert_eq!(applied.iter().map(|push| push.t).collect::<Vec<_>>(), (1..=last).collect::<Vec<_>>());
    assert!(applied.is_sorted_by_key(|push| push.token), "a past holder has pushed: {applied:?}");
    taken.sort_unstable();
    assert_eq!(taken, (1..=taken.len() as i64).collect::<Vec<_>>(), "each token was given once");
    assert!(rejected > 0 && taken.len() > 4, "no holder was rejected: {rejected} of {} leases", taken.len());
}
