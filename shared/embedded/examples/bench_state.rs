//! Measures the embedded backend in its process: `cargo run --profile server -p nameservice-embedded --example bench_state`.
//!
//! Prints commands per second of the state machine alone on one core, pushes per second through the log with 1, 32 and
//! 128 writers (and concurrent reads), and memory use and start-up time with a million records. To run only one of the
//! three: `-- state`, `-- log` or `-- million [records]`.

#![allow(clippy::expect_used, reason = "a measurement that cannot be made ends")]

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use nameservice_embedded::{
    Embedded, Options,
    state::{Command, Now, State},
};
use nameservice_model::{Address, Call, ContentId, HeadPush, NameService as _, NewHead, RefPublisher as _, Write};

/// A content id of the usual length.
fn id(n: u64) -> ContentId {
    ContentId::stored(format!("bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgt{n:010}"))
}

fn address(n: u64) -> Result<Address, Box<dyn Error>> {
    Ok(Address::parse(&format!("tenant-{}/ledger-{n}:main", n % 1000))?)
}

fn create(n: u64) -> Result<Command, Box<dyn Error>> {
    let push = HeadPush::create(NewHead::new(id(n), 1)?);
    Ok(Command::new(&Call::fresh(), Write::PushHead { address: address(n)?, push }))
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Returns how long this thread was on a core: the machine may be busy with other work.
fn on_core() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(times.split_whitespace().next().and_then(|time| time.parse().ok()).unwrap_or(0))
}

/// Pushes through the state machine alone, beside a published state as the writer has one.
fn state(records: u64) -> Result<(), Box<dyn Error>> {
    const PUSHES: u64 = 400_000;
    /// The number of commands in a group.
    const GROUP: usize = 64;
    let (mut state, now) = (State::new(), Now::from_millis(1_700_000_000_000));
    for n in 0..records {
        let _ = state.apply(&create(n)?, now).outcome?;
    }
    let mut commands = Vec::new();
    for n in 0..PUSHES {
        let push = HeadPush::monotonic(NewHead::new(id(n), 2 + (n / records) as i64)?);
        // Spread over all records.
        let address = address(n * 7919 % records)?;
        commands.push(Command::new(&Call::fresh(), Write::PushHead { address, push }));
    }
    let begun = on_core();
    let (mut published, mut changes) = (state.clone(), 0);
    for group in commands.chunks(GROUP) {
        for command in group {
            let applied = state.apply(command, now);
            let _ = applied.outcome?;
            changes += applied.changes.len();
        }
        published = state.clone();
    }
    let took = on_core() - begun;
    println!(
        "state machine, {records} records: {:.0} pushes a second of one core ({changes} changes, position {})",
        PUSHES as f64 / took.as_secs_f64(),
        published.position(),
    );
    Ok(())
}

/// Runs closed-loop writers for some seconds, and optionally readers beside them.
async fn log(writers: u64, readers: u64) -> Result<(), Box<dyn Error>> {
    const SECONDS: u64 = 4;
    const RECORDS: u64 = 1_000;
    let directory = std::env::current_dir()?.join(format!("bench-{}", std::process::id()));
    let names = Embedded::open(&directory, Options::default())?;
    for n in 0..RECORDS {
        let _ = names.push_head(&Call::fresh(), &address(n)?, &HeadPush::create(NewHead::new(id(n), 1)?)).await?;
    }
    let (stop, next, done, read) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut tasks = Vec::new();
    for _ in 0..writers {
        let (names, stop, next, done) = (names.clone(), stop.clone(), next.clone(), done.clone());
        tasks.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let new = NewHead::new(id(n), 2 + n as i64).expect("a head");
                let address = address(n % RECORDS).expect("an address");
                let outcome = names.push_head(&Call::fresh(), &address, &HeadPush::monotonic(new)).await;
                if outcome.is_ok_and(|outcome| outcome.is_updated()) {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    for reader in 0..readers {
        let (names, stop, read) = (names.clone(), stop.clone(), read.clone());
        tasks.push(tokio::spawn(async move {
            let mut n = reader;
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..100 {
                    n += 1;
                    let address = address(n % RECORDS).expect("an address");
                    if names.lookup(&address).await.is_ok_and(|found| found.is_some()) {
                        read.fetch_add(1, Ordering::Relaxed);
                    }
                }
                tokio::task::yield_now().await;
            }
        }));
    }
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_secs(SECONDS)).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "log, {writers:>3} writers, {readers} readers: {:.0} pushes/s, {:.0} reads/s",
        done.load(Ordering::Relaxed) as f64 / seconds,
        read.load(Ordering::Relaxed) as f64 / seconds,
    );
    drop(names);
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

async fn million(records: u64) -> Result<(), Box<dyn Error>> {
    const WRITERS: u64 = 512;
    let directory = std::env::current_dir()?.join(format!("bench-million-{}", std::process::id()));
    let before = resident();
    let names = Embedded::open(&directory, Options::default())?;
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let names = names.clone();
        tasks.push(tokio::spawn(async move {
            let mut n = writer;
            while n < records {
                let push = HeadPush::create(NewHead::new(id(n), 1).expect("a head"));
                let outcome = names.push_head(&Call::fresh(), &address(n).expect("an address"), &push).await;
                assert!(outcome.is_ok_and(|outcome| outcome.is_updated()));
                n += WRITERS;
            }
        }));
    }
    for task in tasks {
        task.await?;
    }
    println!(
        "{records} records created in {:.1} s; resident {} MiB more than before",
        begun.elapsed().as_secs_f64(),
        resident() - before
    );
    drop(names);
    let size = std::fs::metadata(directory.join("nameservice.log.db"))?.len() / 1024 / 1024;
    // In a separate process, because the allocator of this one keeps its memory.
    let status = std::process::Command::new(std::env::current_exe()?).arg("start").arg(&directory).status()?;
    println!("file {size} MiB, {status}");
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

fn start(directory: &str) -> Result<(), Box<dyn Error>> {
    let before = resident();
    let begun = Instant::now();
    let names = Embedded::open_existing(directory, Options::default())?;
    println!(
        "started with {} records in {:.2} s; resident {} MiB more than before",
        names.view().len(),
        begun.elapsed().as_secs_f64(),
        resident() - before
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next();
    let argument = arguments.next();
    let wants = |part: &str| which.as_deref().is_none_or(|which| which == part);
    if which.as_deref() == Some("start") {
        return start(&argument.ok_or("start needs a directory")?);
    }
    if wants("state") {
        state(1_000)?;
        state(1_000_000)?;
    }
    if wants("log") {
        for writers in [1, 2, 8, 32, 128] {
            log(writers, 0).await?;
        }
        log(0, 2).await?;
        log(32, 2).await?;
    }
    if wants("million") {
        million(argument.map_or(Ok(1_000_000), |records| records.parse())?).await?;
    }
    Ok(())
}
