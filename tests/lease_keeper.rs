//! Work under a lease that is kept: its rules of time on a virtual clock, over leases in memory; and what an engine adds to them.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use nameservice::{Acquired, LeaseKeeper, LeaseLost, Ran, hold_lease};
use nameservice_tests::{LONG, prelude::*};
use tokio::time::{Instant, advance, sleep, timeout};

const DB: &str = "mydb:main";
/// How long the leases in memory last without a refresh.
const TTL: u32 = 30;

/// The lease of one record, without a thread or a socket: only the clock of the test decides when something happens.
struct Leases {
    began: Instant,
    lease: Mutex<Option<Held>>,
    /// How a refresh is answered at this second.
    answers: fn(u64) -> Answers,
    /// The seconds at which a refresh was asked for.
    refreshes: Mutex<Vec<u64>>,
}

#[derive(PartialEq)]
enum Answers {
    Normally,
    WithAnError,
    Never,
}

impl Leases {
    fn that_answer(answers: fn(u64) -> Answers) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), lease: Mutex::default(), answers, refreshes: Mutex::default() })
    }

    fn seconds(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    fn grant(&self, holder: &str, ttl: u32, token: i64) -> Held {
        let now = self.seconds() as i64;
        let (name, holder, expires_at) = (LeaseName::INDEX, holder.to_owned(), now + i64::from(ttl));
        let lease = Lease { name, holder, target_t: None, acquired_at: now, expires_at, refreshed_at: None };
        let held = Held { lease, token };
        *self.lease.lock().unwrap() = Some(held.clone());
        held
    }

    fn refreshes(&self) -> Vec<u64> {
        self.refreshes.lock().unwrap().clone()
    }

    fn holder(&self) -> Option<String> {
        self.lease.lock().unwrap().as_ref().map(|held| held.lease.holder.clone())
    }
}

#[async_trait]
impl LeasePublisher for Leases {
    async fn acquire_lease(&self, _: &Call, _: &Address, request: &LeaseRequest) -> Result<Leased> {
        let current = self.lease.lock().unwrap().clone();
        Ok(match current {
            Some(held) => Leased::Busy(held.lease),
            None => Leased::Held(self.grant(request.holder(), request.ttl_seconds(), 1)),
        })
    }

    async fn refresh_lease(&self, _: &Call, _: &Address, request: &LeaseRequest, token: i64) -> Result<Leased> {
        let now = self.seconds();
        self.refreshes.lock().unwrap().push(now);
        match (self.answers)(now) {
            Answers::Normally => {}
            Answers::WithAnError => return Err(Error::Unavailable { operation: "refresh a lease", source: None }),
            Answers::Never => return pending().await,
        }
        let current = self.lease.lock().unwrap().clone();
        Ok(match current {
            Some(held) if held.token == token => {
                Leased::Held(self.grant(request.holder(), request.ttl_seconds(), token))
            }
            current => Leased::Lost { lease: current.map(|held| held.lease) },
        })
    }

    async fn release_lease(&self, _: &Call, _: &Address, claim: &LeaseClaim) -> Result<Released> {
        let mut lease = self.lease.lock().unwrap();
        if lease.as_ref().is_some_and(|held| held.token == claim.token) {
            *lease = None;
            return Ok(Released::Released);
        }
        Ok(Released::Lost { lease: lease.clone().map(|held| held.lease) })
    }
}

async fn hold<T, F: Future<Output = T>>(leases: &Arc<Leases>, work: impl FnOnce(LeaseClaim) -> F) -> Ran<T> {
    hold_lease(leases.clone(), &at(DB), &index_lock("one", TTL), work).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_refreshed_after_each_third_of_its_duration_and_released_after_the_work() {
    let leases = Leases::that_answer(|_| Answers::Normally);
    let ran = hold(&leases, |claim| async move {
        sleep(Duration::from_secs(95)).await;
        claim.token
    })
    .await;
    assert!(matches!(ran, Ran::Done(1)), "{ran:?}");
    assert_eq!(leases.refreshes(), (1..=9).map(|n| n * 10).collect::<Vec<_>>());
    assert_eq!((leases.seconds(), leases.holder()), (95, None));
}

#[tokio::test(start_paused = true)]
async fn work_ends_with_the_refresh_that_finds_another_holder() {
    let leases = Leases::that_answer(|_| Answers::Normally);
    let ran = hold(&leases, |_| async {
        sleep(Duration::from_secs(15)).await;
        leases.grant("two", TTL, 2);
        pending::<Infallible>().await
    })
    .await;
    assert!(matches!(&ran, Ran::Lost(LeaseLost::Taken(Some(lease))) if lease.holder == "two"), "{ran:?}");
    assert_eq!((leases.seconds(), leases.refreshes()), (20, vec![10, 20]));
    assert_eq!(leases.holder().as_deref(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_is_repeated_each_second_until_one_succeeds() {
    let leases = Leases::that_answer(|now| if now < 13 { Answers::WithAnError } else { Answers::Normally });
    let ran = hold(&leases, |_| sleep(Duration::from_secs(40))).await;
    assert!(matches!(ran, Ran::Done(())), "{ran:?}");
    assert_eq!(leases.refreshes(), [10, 11, 12, 13, 23, 33]);
}

#[tokio::test(start_paused = true)]
async fn work_continues_while_the_store_fails_or_is_silent_until_the_lease_has_expired() {
    type At = fn(u64) -> Answers;
    let cases: [(At, Vec<u64>); 2] = [(|_| Answers::WithAnError, (10..30).collect()), (|_| Answers::Never, vec![10])];
    for (answers, refreshes) in cases {
        let (leases, ticks) = (Leases::that_answer(answers), AtomicU64::new(0));
        let ran = hold(&leases, |_| async {
            loop {
                sleep(Duration::from_millis(900)).await;
                ticks.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await;
        assert!(matches!(ran, Ran::<Infallible>::Lost(LeaseLost::Expired)), "{ran:?}");
        assert_eq!((leases.seconds(), leases.refreshes()), (30, refreshes));
        assert_eq!(ticks.into_inner(), 33, "the work does not wait for refreshes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_suspended_for_longer_than_its_lease_has_lost_it_without_a_refresh() {
    let leases = Leases::that_answer(|_| Answers::Normally);
    let ran = hold(&leases, |_| async {
        advance(Duration::from_secs(40)).await;
        pending::<Infallible>().await
    })
    .await;
    assert!(matches!(ran, Ran::Lost(LeaseLost::Expired)), "{ran:?}");
    assert_eq!(leases.refreshes(), [0_u64; 0]);
}

/// A ledger with a head at 1.
async fn ledger() -> Table {
    let table = Table::fresh().await;
    table.store.create_ledger(&Call::fresh(), &at(DB), Some(&new_head(1)), None).await.unwrap().applied();
    table
}

async fn acquire(store: &Store, holder: &str) -> Leased {
    store.acquire_lease(&Call::fresh(), &at(DB), &index_lock(holder, 300)).await.unwrap()
}

async fn expires_at(table: &Table) -> i64 {
    let lease = table.row(DB, "status").await.unwrap()["lease"].clone();
    lease["M"]["expires_at"]["N"].as_str().unwrap().parse().unwrap()
}

async fn expire_at(table: &Table, seconds: i64) {
    let mut lease = table.row(DB, "status").await.unwrap()["lease"].clone();
    lease["M"]["expires_at"] = rows::n(seconds);
    table.set(DB, "status", "lease", lease).await;
}

#[tokio::test]
async fn work_under_a_lease_has_its_token_and_gives_the_lease_back() {
    let table = ledger().await;
    let store = &table.store;
    let ran = hold_lease(Arc::new(store.clone()), &at(DB), &index_lock("one", 300), |claim| async move {
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
async fn a_check_extends_the_stored_lease_or_finds_that_it_is_another_ones() {
    let table = ledger().await;
    let store = &table.store;
    let acquired = LeaseKeeper::acquire(Arc::new(store.clone()), at(DB), index_lock("one", 300)).await.unwrap();
    let Acquired::Held(mut keeper) = acquired else { panic!("{acquired:?}") };
    let (first, check) = (keeper.lease().expires_at, keeper.check());
    expire_at(&table, first - 100).await;
    let extended = async {
        check.notify_one();
        while expires_at(&table).await < first {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        lost = keeper.keep(|error| panic!("{error}")) => panic!("{lost}"),
        extended = timeout(LONG, extended) => extended.expect("the stored lease is extended"),
    }
    expire_at(&table, 1_700_000_000).await;
    acquire(store, "two").await.applied();
    check.notify_one();
    let lost = timeout(LONG, keeper.keep(|error| panic!("{error}"))).await.expect("the lease is found to be lost");
    assert!(matches!(&lost, LeaseLost::Taken(Some(lease)) if lease.holder == "two"), "{lost:?}");
    assert!(matches!(keeper.release().await.unwrap(), Released::Lost { .. }));
    assert!(matches!(acquire(store, "three").await, Leased::Busy(lease) if lease.holder == "two"));
}
