//! Work under a lease that is kept.

use std::{
    borrow::Borrow,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use nameservice::{LeaseLost, Ran, hold_lease};
use nameservice_store::RetryPolicy;
use nameservice_tests::prelude::*;
use tokio::time::sleep;

const DB: &str = "mydb:main";

/// A ledger with a head at 1.
async fn ledger() -> Table {
    let table = Table::fresh().await;
    table.store.create_ledger(&Call::fresh(), &at(DB), Some(&new_head(1)), None).await.unwrap().applied();
    table
}

async fn acquire(store: &Store, holder: &str) -> Leased {
    store.acquire_lease(&Call::fresh(), &at(DB), &index_lock(holder, 300)).await.unwrap()
}

/// Lets the lease expire, and takes it for another holder. The keeper may refresh it in between: then it is done again.
async fn take_over(table: &Table, holder: &str) {
    for _ in 0..100 {
        let mut lease = table.row(DB, "status").await.unwrap()["lease"].clone();
        lease["M"]["expires_at"] = rows::n(1_700_000_000);
        table.set(DB, "status", "lease", lease).await;
        match acquire(&table.store, holder).await {
            Leased::Held(_) => return,
            Leased::Busy(_) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("the lease was refreshed each time");
}

#[tokio::test]
async fn work_under_a_lease_has_its_token_and_gives_the_lease_back() {
    let table = ledger().await;
    let store = &table.store;
    let ran = hold_lease(Arc::new(store.clone()), &at(DB), &index_lock("one", 1), |claim| async move {
        // Longer than the lease lasts without being refreshed.
        sleep(Duration::from_millis(2_300)).await;
        store.push_head(&Call::fresh(), &at(DB), &older(head(2)).under(claim).unwrap()).await.unwrap()
    })
    .await
    .unwrap();
    assert!(matches!(&ran, Ran::Done(outcome) if *outcome == updated(head(2))), "{ran:?}");
    let status = store.status(&at(DB)).await.unwrap().unwrap();
    assert_eq!(status.payload, Some(StatusPayload::state("ready")));
    acquire(store, "two").await.applied();
    let (db, request) = (at(DB), index_lock("one", 300));
    let ran = hold_lease(Arc::new(store.clone()), &db, &request, |_| async { panic!("must not run") }).await.unwrap();
    assert!(matches!(&ran, Ran::NotHeld(Leased::Busy(lease)) if lease.holder == "two"), "{ran:?}");
}

#[tokio::test]
async fn work_ends_when_its_lease_is_another_ones() {
    let table = ledger().await;
    let ran = hold_lease(Arc::new(table.store.clone()), &at(DB), &index_lock("one", 1), |_| async {
        take_over(&table, "two").await;
        sleep(Duration::from_secs(60)).await;
    })
    .await
    .unwrap();
    assert!(matches!(&ran, Ran::Lost(LeaseLost::Taken(Some(lease))) if lease.holder == "two"), "{ran:?}");
    assert!(matches!(acquire(&table.store, "three").await, Leased::Busy(lease) if lease.holder == "two"));
}

#[tokio::test]
async fn work_continues_while_the_store_is_silent_until_the_lease_has_expired() {
    let table = ledger().await.proxied().await;
    let policy = RetryPolicy { deadline: Duration::from_millis(200), ..RetryPolicy::default() };
    let store = table.store.clone().with_retry_policy(policy);
    let (ticks, beside) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    // A baseline: as many ticks as the machine allows.
    let clock = tokio::spawn(tick(beside.clone()));
    let began = Instant::now();
    let ran = hold_lease(Arc::new(store), &at(DB), &index_lock("one", 1), |_| async {
        table.proxy.on("UpdateItem", Fault::answer(400, "ThrottlingException").always());
        tick(&ticks).await
    })
    .await
    .unwrap();
    clock.abort();
    let (took, ticks, beside) = (began.elapsed(), ticks.load(Ordering::Relaxed), beside.load(Ordering::Relaxed));
    assert!(matches!(ran, Ran::<Infallible>::Lost(LeaseLost::Expired)), "{ran:?}");
    assert!(took.as_millis() >= 900, "the lease had not run out: {took:?}");
    // The release is tried once after the work, too.
    assert!(ticks * 2 > beside, "the work stood still while refreshes waited: {ticks} of {beside}");
}

/// Counts until it is stopped.
async fn tick(ticks: impl Borrow<AtomicUsize>) -> Infallible {
    loop {
        sleep(Duration::from_millis(50)).await;
        ticks.borrow().fetch_add(1, Ordering::Relaxed);
    }
}

// ---- many holders ----
