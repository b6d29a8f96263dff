//! Scrubs that `serve` makes of its own data, every day by default: every row of the file is read and compared with memory.
//!
//! They repair nothing. What is found degrades the health until a scrub finds nothing.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clap::Args;
use metrics::gauge;
use nameservice_embedded::{Embedded, Scrubbed};
use nameservice_model::{Finding, chain};

use crate::{
    failure::Failure,
    health::{Damage, Examination},
    prometheus, values,
};

/// The part of the period after which the first one begins, so that there is one of a service that is restarted every day.
const FIRST: u32 = 24;
/// How many times as long as it works a scrub rests: it takes a tenth of one core at most.
const REST: u32 = 9;
/// The longest wait after a scrub that has failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(15 * 60);

/// The scrubs that a service makes.
#[derive(Clone, Copy, Debug, Args)]
pub struct ScrubArgs {
    /// How often to compare all of the data directory with what is served from memory, at a low rate: 1d, 12h, or never
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = every)]
    pub scrub_every: Every,
}

/// How often something is done; `None` for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Every(pub Option<Duration>);

fn every(text: &str) -> Result<Every, String> {
    match text {
        "never" => Ok(Every(None)),
        text => values::period(text).map(|period| Every(Some(period))),
    }
}

impl ScrubArgs {
    /// Begins to scrub the data of a directory, if that is wanted.
    pub(crate) fn start(self, names: &Embedded, damage: &Damage) -> Result<Option<Scrubs>, Failure> {
        let Every(Some(every)) = self.scrub_every else { return Ok(None) };
        let started = Scrubs::start(names.clone(), damage.clone(), every);
        started.map(Some).map_err(|error| Failure::Usage(format!("--scrub-every: {error}")))
    }
}

/// The scrubs of a service.
pub(crate) struct Scrubs {
    thread: JoinHandle<()>,
    /// Dropped to stop.
    stop: SyncSender<()>,
    age: ScrubAge,
}

/// How long ago the last scrub ended that has read everything; before the first, the start of the service.
#[derive(Clone)]
pub(crate) struct ScrubAge(Arc<Mutex<Instant>>);

impl ScrubAge {
    /// Sets the gauge.
    pub(crate) fn sample(&self) {
        let at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gauge!("nameservice_scrub_age_seconds").set(at.elapsed().as_secs_f64());
    }

    fn begin(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl Scrubs {
    fn start(names: Embedded, damage: Damage, every: Duration) -> io::Result<Self> {
        let (stop, stopped) = mpsc::sync_channel(0);
        let age = ScrubAge(Arc::new(Mutex::new(Instant::now())));
        prometheus::begin();
        gauge!("nameservice_scrub_findings").set(0);
        gauge!("nameservice_scrub_work_seconds").set(0);
        let ended = age.clone();
        // On a thread of its own, since a timer in the runtime would cost every request: see `prometheus`.
        let thread = thread::Builder::new().name("scrubs".to_owned()).spawn(move || {
            let mut wait = every / FIRST;
            while !is_stopped(&stopped, wait) {
                let (begun, mut named) = (Instant::now(), 0);
                let mut rest = |worked: Duration, so_far: &Scrubbed| {
                    name(so_far, &mut named, &damage);
                    !is_stopped(&stopped, worked * REST)
                };
                wait = match names.scrub(&mut rest) {
                    Ok(scrubbed) if scrubbed.is_whole => {
                        name(&scrubbed, &mut named, &damage);
                        report(&scrubbed, begun.elapsed(), &damage);
                        ended.begin();
                        pause_after(scrubbed.found, every).saturating_sub(begun.elapsed())
                    }
                    // The service stops.
                    Ok(_) => every,
                    Err(error) => {
                        let wait = every.min(LONGEST_PAUSE);
                        let error = chain(&error);
                        tracing::warn!(
                            error,
                            "the data was not compared with memory; trying again in {} s",
                            wait.as_secs()
                        );
                        wait
                    }
                };
            }
        })?;
        Ok(Self { thread, stop, age })
    }

    pub(crate) fn age(&self) -> ScrubAge {
        self.age.clone()
    }

    /// Makes no further ones, and waits for the end of a step of one that has begun. Blocks.
    pub(crate) fn end(self) {
        drop(self.stop);
        // A thread that panicked has reported it on stderr.
        let _ = self.thread.join();
    }
}

/// Waits, and returns whether it was stopped meanwhile.
fn is_stopped(stopped: &Receiver<()>, wait: Duration) -> bool {
    stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout)
}

/// Returns how long after its beginning a scrub is followed by the next: soon, if it has found something that may be mended.
fn pause_after(found: u64, every: Duration) -> Duration {
    if found > 0 { every / FIRST } else { every }
}

/// Writes what a scrub has found to the log as soon as it is found, and to where health and metrics show it: it may not come to its end. `named`
/// is how many findings were written before.
fn name(scrubbed: &Scrubbed, named: &mut usize, damage: &Damage) {
    // One of a replica begins again with its data.
    *named = (*named).min(scrubbed.findings.len());
    if scrubbed.found == 0 {
        return;
    }
    damage.set(Examination::Scrub, true);
    gauge!("nameservice_scrub_findings").set(scrubbed.found as f64);
    for Finding { code, address, what, mend, .. } in scrubbed.findings.iter().skip(*named) {
        let address = address.as_deref().map(|address| format!(" (`{address}`)")).unwrap_or_default();
        tracing::error!("the data is damaged: {code}: {what}{address}; {mend}");
    }
    *named = scrubbed.findings.len();
}

/// Writes to the log, and to where health and metrics show it, what a whole scrub has found and cost.
fn report(scrubbed: &Scrubbed, took: Duration, damage: &Damage) {
    damage.set(Examination::Scrub, scrubbed.found > 0);
    gauge!("nameservice_scrub_findings").set(scrubbed.found as f64);
    gauge!("nameservice_scrub_work_seconds").set(scrubbed.worked.as_secs_f64());
    let &Scrubbed { records, changes, found, worked, .. } = scrubbed;
    let unnamed = found.saturating_sub(scrubbed.findings.len() as u64);
    if unnamed > 0 {
        tracing::error!("the data is damaged: there are {unnamed} more findings");
    }
    let (worked, took) = (worked.as_secs_f64(), took.as_secs_f64());
    tracing::info!(records, changes, found, "the data was compared with memory: {worked:.2} s of work in {took:.2} s");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_that_found_something_is_followed_by_another_soon() {
        let day = Duration::from_secs(24 * 3600);
        assert_eq!((pause_after(0, day), pause_after(1, day)), (day, Duration::from_secs(3600)));
    }

    #[test]
    fn what_is_found_is_shown_before_the_end_of_a_scrub_and_until_one_finds_nothing() {
        let (damage, mut named) = (Damage::default(), 0);
        let mut scrubbed = Scrubbed::default();
        name(&scrubbed, &mut named, &damage);
        assert!(damage.reason().is_none());
        scrubbed.found = 3;
        name(&scrubbed, &mut named, &damage);
        assert!(damage.reason().is_some());
        named = 3;
        name(&Scrubbed::default(), &mut named, &damage);
        assert_eq!(named, 0, "it has begun again");
        report(&Scrubbed::default(), Duration::ZERO, &damage);
        assert!(damage.reason().is_none());
    }

    #[test]
    fn a_period_may_be_never() {
        assert_eq!(every("never"), Ok(Every(None)));
        assert_eq!(every("1d"), Ok(Every(Some(Duration::from_secs(24 * 3600)))));
        for wrong in ["", "0s", "Never", "daily"] {
            assert!(every(wrong).is_err(), "{wrong}");
        }
    }
}
