//! One round: everything runs and breaks for a minute or two, comes to rest, and is judged.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::{
    admins,
    faults::Striker,
    ground::{Ground, Kind},
    projections::Projections,
    readers::Readers,
    report::Report,
};
use crate::history::{
    clients::World,
    create, feed,
    judge::Judged,
    mix_of, names,
    replicas::{Known, is_ready, same_state, sessions},
    run,
};

/// Records that are retracted and restored.
const ADMINISTERED: usize = 2;
/// Every n-th of the rounds on each backend has positions that expire.
const EXPIRING: u64 = 3;

/// A round. The seed of the run and its number make it repeatable, as far as the scheduler allows.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) number: u64,
    /// The seed of this round alone.
    pub(super) seed: u64,
    pub(super) kind: Kind,
    /// Whether positions of the feed expire.
    pub(super) expires: bool,
    pub(super) length: Duration,
}

impl Round {
    pub(super) fn new(seed: u64, number: u64, length: Duration) -> Self {
        let seed =
            StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).random_range(0..u64::MAX / 2);
        let kind = if number.is_multiple_of(2) { Kind::Embedded } else { Kind::DynamoDb };
        Self { number, seed, kind, expires: number / 2 % EXPIRING == EXPIRING - 1, length }
    }

    /// Runs the round with data and logs in this directory. Panics at the first violation.
    pub(super) async fn run(self, library: Option<PathBuf>, directory: PathBuf) -> Report {
        let Self { number, seed, kind, expires, length } = self;
        let expires = expires && library.is_some();
        let (ground, proxies) = Ground::start(kind, expires, library.as_deref(), &directory).await;
        let (services, replicas, urls) = (ground.service_urls(), ground.replica_urls(), ground.urls());
        let service = services[0].clone();
        let own: Vec<String> = (0..replicas.len()).map(|n| format!("own{n}:main")).collect();
        let administered: Vec<String> = (0..ADMINISTERED).map(|n| format!("admin{n}:main")).collect();

        // The feed, from its first change on.
        let following = feed::Following::start(&service, seed, expires);
        create(&service, &own).await;
        create(&service, &administered).await;
        for url in &replicas {
            is_ready(url).await;
        }
        let readers = Readers::start(&services, &replicas);
        let projections = Projections::start(&ground).await;
        let known: Known = Arc::new(RwLock::new(own.clone()));
        let (stop_sessions, sessions) = sessions(&replicas, &known, seed);
        let stop = Arc::new(AtomicBool::new(false));
        let (mut pushing, mut administering) = (Vec::new(), Vec::new());
        for (n, record) in (0_u64..).zip(&administered) {
            let (urls, record, stop) = (urls.clone(), record.clone(), stop.clone());
            let push = admins::push(urls.clone(), record.clone(), seed + n, stop.clone());
            pushing.push(tokio::spawn(push));
            administering.push(tokio::spawn(admins::administer(urls, service.clone(), record, seed + 100 + n, stop)));
        }
        let striker = Striker::new(ground, seed, library.is_some(), expires);
        let striking = tokio::spawn(striker.run(stop.clone()));

        // Histories, each judged before the next.
        let mut random = StdRng::seed_from_u64(seed);
        let (mut judged, mut entries, mut latencies) = (Judged::default(), Vec::new(), Vec::new());
        let mut records: BTreeSet<String> = BTreeSet::new();
        let until = Instant::now() + length;
        for history in 0.. {
            if Instant::now() >= until {
                break;
            }
            let seed = random.random_range(0..u64::MAX / 2);
            let names = names(seed, history);
            create(&service, &names).await;
            known.write().unwrap().extend(names.clone());
            records.extend(names.clone());
            let mut world = World::new(urls.clone(), names, mix_of(seed));
            // The histories do not read from replicas, which may lag: sessions judge reads there.
            world.readable = urls[..=services.len()].to_vec();
            world.lease_seconds = (1, 120);
            let world = Arc::new(world);
            let (of_history, calls) = run(world.clone(), seed, true).await;
            judged.add(&of_history);
            entries.extend(calls);
            latencies.extend(world.recorder.take_latencies());
        }

        // Rest.
        stop.store(true, Ordering::SeqCst);
        stop_sessions.store(true, Ordering::SeqCst);
        let (ground, faults, memory) = striking.await.unwrap();
        let (mut reads, mut writes, mut pushes, mut calls) = (0, 0, Vec::new(), 0);
        for task in pushing {
            pushes.push(task.await.unwrap());
        }
        for task in administering {
            calls += task.await.unwrap();
        }
        for task in sessions {
            let (read, written) = task.await.unwrap();
            (reads, writes) = (reads + read, writes + written);
        }
        // Written last, so that everything else is in the feed once this is.
        let last = vec!["last:main".to_owned()];
        create(&service, &last).await;
        records.extend(last.clone());
        feed::caught_up(&service, &last).await;
        let seen = following.end().await;

        // Judgement.
        judged.all_are_decided();
        let records: Vec<String> = records.into_iter().collect();
        let changes = feed::judge(&service, &seen, &entries, &records, seed).await;
        for of_record in &pushes {
            calls += of_record.judge(&seen);
        }
        let end = seen.changes.last().and_then(|change| change["position"].as_u64()).unwrap_or(0);
        let events = readers.judge(&seen, end).await;
        let same = same_state(&service, &replicas, false).await;
        let rows = projections.judge(&service).await;
        drop((ground, proxies));
        latencies.sort_unstable();
        Report {
            number,
            kind,
            expires,
            judged,
            faults,
            changes,
            gaps: seen.gaps,
            events,
            reads,
            writes,
            calls,
            records: same * replicas.len(),
            rows,
            latencies,
            memory,
        }
    }
}
