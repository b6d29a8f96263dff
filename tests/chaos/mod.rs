//! Chaos: services, replicas, consumers, read models and clients run for hours under random faults, with every judge on.
//!
//! `cargo chaos --hours 8` runs rounds, each on new data and judged at its end: histories are linearizable; the feed is dense, in
//! commit order, complete and resumable; readers of events and replicas show the same; the reads of a client never go back; read
//! models match a scan; nothing is pushed to a retracted record. The first violation ends the run, which prints how to repeat its
//! round.

mod admins;
mod controls;
mod faults;
mod ground;
mod projections;
mod readers;
mod report;
mod round;

use std::{
    any::Any,
    env, fs,
    panic::AssertUnwindSafe,
    path::Path,
    str::FromStr,
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use nameservice_tests::{preload, seeds::SEED};

use self::{report::Total, round::Round};

/// `tests/chaos/main.rs` sets these.
const SECONDS: &str = "NAMESERVICE_CHAOS_SECONDS";
const ROUND: &str = "NAMESERVICE_CHAOS_ROUND";
const ROUND_SECONDS: &str = "NAMESERVICE_CHAOS_ROUND_SECONDS";
const DEFAULT_SECONDS: u64 = 30;
/// The longest round by default, in seconds. A short run is halved, for one round on each backend.
const LONGEST_ROUND: u64 = 90;

fn variable<T: FromStr>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half a minute; `cargo chaos` runs it for longer"]
async fn whatever_fails_meanwhile_every_round_is_judged_right() {
    let seed: u64 = variable(SEED).unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let seconds: u64 = variable(SECONDS).unwrap_or(DEFAULT_SECONDS);
    let length = variable(ROUND_SECONDS).unwrap_or((seconds / 2).clamp(1, LONGEST_ROUND));
    let only: Option<u64> = variable(ROUND);
    let directory = tempfile::tempdir().unwrap();
    let library = preload::compile(directory.path()).unwrap();
    if library.is_none() {
        println!("no C compiler `cc` found: disks are not slowed, clocks do not step, and positions do not expire");
    }
    println!("seed {seed}, rounds of {length} s");
    let (begun, mut total) = (Instant::now(), Total::default());
    for number in only.unwrap_or(0).. {
        let place = directory.path().join(format!("round-{number}"));
        fs::create_dir(&place).unwrap();
        let round = Round::new(seed, number, Duration::from_secs(length));
        let running = AssertUnwindSafe(round.run(library.clone(), place.clone())).catch_unwind();
        match running.await {
            Ok(report) => {
                println!("{}", report.line(seed));
                total.add(&report);
                // The directory of a round without a violation is of no use.
                let _ = fs::remove_dir_all(&place);
            }
            Err(panic) => {
                let kept = directory.keep().join(format!("round-{number}"));
                stop(&kept, seed, number, length, &message(&*panic));
            }
        }
        if only.is_some() || begun.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
    }
    println!("\n{}", total.table(begun.elapsed()));
    assert!(only.is_some() || total.kills() > 0, "nothing was killed: the rounds were too short");
}

/// Ends the run at a violation, and prints how to repeat it.
fn stop(kept: &Path, seed: u64, number: u64, length: u64, violation: &str) -> ! {
    let _ = fs::write(kept.join("violation.txt"), violation);
    panic!(
        "round {number} violates a promise:\n{violation}\n\nrepeat it: cargo chaos --seed {seed} --round {number} --round-seconds \
         {length}\nkept: {}",
        kept.display()
    )
}
