//! Random faults during a round.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nameservice_tests::{prelude::*, proxy::Remote, pump::deliveries};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use stream_consumer::Consumer;
use tokio::time::sleep;

use super::ground::{Ground, RETENTION_HOURS};
use crate::history::{RATE, create};

/// The most times that everything expires in a round: the clock has to stay within the 48 hours that the feed's guards last.
const EXPIRIES: u32 = 4;
/// How far ahead a step sets the clock at most, besides expiries.
const AHEAD_SECONDS: u64 = 300;
/// How many records are redelivered in a batch.
const BATCH: usize = 100;

/// How many times each kind of fault has struck.
pub(super) type Faults = BTreeMap<&'static str, u64>;

pub(super) const SERVICE_KILLED: &str = "services killed with -9";
pub(super) const REPLICA_KILLED: &str = "replicas killed with -9";
const LINK_CUT: &str = "links cut";
const LINK_SLOW: &str = "links slow";
const DISK_SLOW: &str = "disks slow";
const CLOCK_STEPPED: &str = "clock steps";
const STORM: &str = "storms of faults";
const REDELIVERED: &str = "batches redelivered";
pub(super) const EXPIRED: &str = "positions expired";

/// What can strike, each as often as it is listed.
const ALWAYS: [&str; 7] = [SERVICE_KILLED, REPLICA_KILLED, LINK_CUT, LINK_CUT, LINK_SLOW, STORM, STORM];
const WITH_THE_LIBRARY: [&str; 3] = [DISK_SLOW, CLOCK_STEPPED, CLOCK_STEPPED];

/// Strikes until it is stopped.
pub(super) struct Striker {
    ground: Ground,
    random: StdRng,
    kinds: Vec<&'static str>,
    /// How far the clock is ahead because of expiries.
    expired: Duration,
    expiries: u32,
    faults: Faults,
    memory: f64,
}

impl Striker {
    /// Creates a striker. `has_library` says whether disks and clocks can be changed, `expires` whether positions expire.
    pub(super) fn new(ground: Ground, seed: u64, has_library: bool, expires: bool) -> Self {
        let mut kinds = ALWAYS.to_vec();
        if has_library {
            kinds.extend(WITH_THE_LIBRARY);
        }
        if has_library && expires {
            kinds.extend([EXPIRED, EXPIRED]);
        }
        // The consumer of redeliveries runs by this process's clock, which differs from that of services whose positions expire.
        if ground.table.is_some() && !expires {
            kinds.push(REDELIVERED);
        }
        let random = StdRng::seed_from_u64(seed);
        Self { ground, random, kinds, expired: Duration::ZERO, expiries: 0, faults: Faults::new(), memory: 0.0 }
    }

    /// Returns the ground with nothing broken, the faults that struck, and the peak memory of the service in MiB.
    pub(super) async fn run(mut self, stop: Arc<AtomicBool>) -> (Ground, Faults, f64) {
        // The first fault is a kill, so that acknowledged writes have to outlive a process even in the shortest round.
        let mut next = SERVICE_KILLED;
        while !stop.load(Ordering::SeqCst) {
            let pause = self.millis(50, 800);
            sleep(pause).await;
            self.memory = self.memory.max(self.ground.memory());
            self.strike(next).await;
            next = *self.kinds.choose(&mut self.random).unwrap();
            // Nothing reads the log of the proxies: empties it.
            self.ground.proxies().for_each(|proxy| drop(proxy.take_requests()));
        }
        self.memory = self.memory.max(self.ground.memory());
        (self.ground, self.faults, self.memory)
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.random_range(from..to))
    }

    fn count(&mut self, kind: &'static str, times: u64) {
        *self.faults.entry(kind).or_default() += times;
    }

    async fn strike(&mut self, kind: &'static str) {
        let length = self.millis(100, 1_500);
        match kind {
            SERVICE_KILLED => {
                let which = self.random.random_range(0..self.ground.services.len());
                self.ground.services[which].kill_and_restart().await;
            }
            REPLICA_KILLED => {
                let which = self.random.random_range(0..self.ground.replicas.len());
                self.ground.replicas[which].kill_and_restart().await;
            }
            LINK_CUT => {
                let which = self.random.random_range(0..self.ground.links.len());
                self.ground.links[which].interrupt(length).await;
            }
            LINK_SLOW => {
                let (which, by) = (self.random.random_range(0..self.ground.links.len()), self.millis(1, 40));
                self.ground.links[which].slow(by);
                sleep(length).await;
                self.ground.links[which].slow(Duration::ZERO);
            }
            DISK_SLOW => {
                let by = self.millis(1, 60);
                self.ground.slow_disks(by);
                sleep(length).await;
                self.ground.slow_disks(Duration::ZERO);
            }
            CLOCK_STEPPED => {
                let ahead = Duration::from_secs(self.random.random_range(0..AHEAD_SECONDS));
                self.ground.of_services.step_clock(self.expired + ahead);
            }
            STORM => {
                let seed = self.random.random_range(0..u64::MAX);
                for (n, proxy) in (0_u64..).zip(self.ground.proxies()) {
                    proxy.strike_at_random(seed ^ n, RATE);
                }
                sleep(length).await;
                let tallies: Vec<_> = self.ground.proxies().map(Remote::stop_striking).collect();
                for (kind, times) in tallies.into_iter().flatten() {
                    self.count(kind, times);
                }
            }
            REDELIVERED => return self.redeliver().await,
            EXPIRED if self.expiries < EXPIRIES => {
                self.expiries += 1;
                let which = self.random.random_range(0..self.ground.links.len());
                let service = self.ground.services[0].url();
                self.ground.links[which].cut();
                sleep(length).await;
                self.expired += Duration::from_secs(2 * RETENTION_HOURS * 3_600);
                self.ground.of_services.step_clock(self.expired);
                create(&service, &[format!("later{}:main", self.expiries)]).await;
                sleep(length).await;
                self.ground.links[which].mend();
            }
            _ => return,
        }
        self.count(kind, 1);
    }

    /// Delivers the last part of the table's stream once more, to a separate consumer beside those of the services.
    async fn redeliver(&mut self) {
        let Some(table) = &self.ground.table else { return };
        let Ok(appended) = table.direct_feed().position().await else { return };
        let all = deliveries(table).await;
        // A mapping never skips what it has not delivered. Each change has its own delivery, so at least the first `appended` are done.
        let begin = self.random.random_range(0..=usize::try_from(appended).unwrap().min(all.len()));
        let consumer = Consumer::new(table.store.clone(), table.feed.clone());
        let mut batches = 0;
        for batch in all[begin..].chunks(BATCH) {
            batches += 1;
            let consumed = consumer.consume(batch).await;
            assert_eq!(consumed.dead_letters, 0, "{consumed:?}");
            if consumed.failed.is_some() {
                break;
            }
        }
        self.count(REDELIVERED, batches);
    }
}
