//! The timing of reads: rests between rounds, and pauses between attempts.

use std::time::Duration;

use nameservice_feed::MAX_TRANSACTION;

/// Pauses between failed attempts: the first, and the longest. The number of attempts is not limited.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How eagerly the stream is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The pause after a read that found nothing.
    pub poll: Duration,
    /// The longest pause while nothing is found.
    pub max_idle: Duration,
    /// Whether a [`Nudge`](super::Nudge) ends that pause.
    pub nudged: bool,
    /// Whether the engine also serves the writers.
    pub shared: bool,
    /// How long the rest of the stream may take once the consumer is stopping.
    pub drain: Duration,
}

impl Pace {
    /// For an engine on this machine or near it.
    pub const NEAR: Self = Self {
        poll: Duration::from_millis(250),
        max_idle: MAX_IDLE,
        nudged: true,
        shared: true,
        drain: Duration::from_secs(5),
    };
    /// For AWS, where each read counts against a limit of five a second.
    pub const AWS: Self = Self { max_idle: Duration::from_secs(1), nudged: false, shared: false, ..Self::NEAR };
}

/// The pause after a round that found little is this many times as long as the round, within these bounds: on an engine
/// that also serves writers, reading should cost little compared with writing.
const REST_FACTOR: u32 = 4;
const MIN_REST: Duration = Duration::from_millis(10);
const MAX_REST: Duration = Duration::from_millis(250);
/// After a round that found as many records as fit a transaction of the feed, the next one begins immediately.
const FULL: usize = MAX_TRANSACTION;
/// The longest pause between reads that find nothing.
const MAX_IDLE: Duration = Duration::from_secs(2);

/// Decides when the stream is read next: a busy stream is read in large batches, an idle one seldom.
#[derive(Debug)]
pub(super) struct Rhythm {
    pace: Pace,
    idle: Duration,
}

/// A pause between two rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) length: Duration,
    /// Whether a [`Nudge`] ends it.
    pub(super) nudged: bool,
}

impl Rhythm {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, idle: pace.poll }
    }

    /// Returns the pause after a round that found this many records in this time; `None` for no pause.
    pub(super) fn after(&mut self, records: usize, took: Duration) -> Option<Rest> {
        if records == 0 {
            let length = self.idle;
            self.idle = (self.idle + self.pace.poll / 4).min(self.pace.max_idle);
            return Some(Rest { length, nudged: self.pace.nudged });
        }
        self.idle = self.pace.poll;
        let is_shared = self.pace.shared && records < FULL;
        is_shared.then(|| Rest { length: (took * REST_FACTOR).clamp(MIN_REST, MAX_REST), nudged: false })
    }
}

/// Growing pauses.
#[derive(Debug, Default)]
pub(super) struct Pauses(u32);

impl Pauses {
    pub(super) fn next(&mut self) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.0.min(10)).min(LONGEST_PAUSE);
        self.0 += 1;
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_engine_is_read_in_large_batches_and_an_idle_one_seldom() {
        let mut rhythm = Rhythm::new(Pace::NEAR);
        let millis = Duration::from_millis;
        assert_eq!(rhythm.after(5, millis(8)), Some(Rest { length: millis(32), nudged: false }));
        assert_eq!(rhythm.after(5, millis(1)).unwrap().length, MIN_REST);
        assert_eq!(rhythm.after(5, millis(500)).unwrap().length, MAX_REST);
        assert_eq!(rhythm.after(FULL, millis(8)), None);
        let idle: Vec<_> = (0..40).filter_map(|_| rhythm.after(0, millis(2))).collect();
        assert!(idle.iter().all(|rest| rest.nudged) && idle.is_sorted_by_key(|rest| rest.length));
        assert_eq!((idle[0].length, idle[39].length), (millis(250), MAX_IDLE));
        rhythm.after(1, millis(2));
        assert_eq!(rhythm.after(0, millis(2)).unwrap().length, millis(250));
        // In AWS, reading does not slow down the writers.
        assert_eq!(Rhythm::new(Pace::AWS).after(5, millis(8)), None);
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let mut pauses = Pauses::default();
        let first: Vec<_> = (0..3).map(|_| pauses.next().as_millis()).collect();
        assert_eq!(first, [100, 200, 400]);
        assert_eq!((0..50).map(|_| pauses.next()).max(), Some(LONGEST_PAUSE));
    }
}
