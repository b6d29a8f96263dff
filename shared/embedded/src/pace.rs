//! Decides when a group of writes begins.

use std::time::{Duration, Instant};

use crate::queue::MAX_GROUP;

/// The longest time for which a group waits for the writers that were just answered.
const MAX_GATHERING: Duration = Duration::from_millis(5);
/// After n vain waits in a row, 2ⁿ - 1 groups begin without a wait. This bounds n.
const MAX_MISSES: u32 = 6;
/// With each commit that takes longer than expected, the expected time rises by at most a quarter plus this.
const COMMIT_STEP: Duration = Duration::from_micros(20);

/// Decides when the next group begins. Writers that were answered together mostly return together: a short wait for
/// the last of them puts them into one group. Otherwise they would form two groups that wait for each other's sync.
pub(crate) struct Pace {
    /// How many writers were answered by the last group, or were waiting when it ended.
    expected: usize,
    ended: Instant,
    /// How long a commit takes if nothing delays it.
    commit: Duration,
    /// `misses`: how many waits in a row were in vain. `pass`: how many groups still begin without a wait.
    misses: u32,
    pass: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { expected: 0, ended: Instant::now(), commit: Duration::ZERO, misses: 0, pass: 0 }
    }
}

impl Pace {
    /// Returns for how many writers the next group waits, and until when.
    pub(crate) fn gathering(&mut self, now: Instant) -> Option<(usize, Instant)> {
        // Writers that have not returned by now will not.
        let is_over = now.duration_since(self.ended) > self.commit * 4;
        if self.expected < 2 || is_over {
            return None;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return None;
        }
        Some((self.expected.min(MAX_GROUP), now + (self.commit / 2).min(MAX_GATHERING)))
    }

    /// Notes whether a wait brought all the writers that it was for. After each vain wait, the next one comes later.
    pub(crate) fn gathered(&mut self, all: bool) {
        self.misses = if all { 0 } else { (self.misses + 1).min(MAX_MISSES) };
        self.pass = (1 << self.misses) - 1;
    }

    /// Notes the commit of a group, and how many writers were answered by it or are waiting already.
    pub(crate) fn ended(&mut self, begun: Instant, ended: Instant, expected: usize) {
        self.ended = ended;
        self.expected = expected;
        // It falls immediately and rises slowly: a busy processor or disk makes single commits take longer.
        let slower = self.commit + self.commit / 4 + COMMIT_STEP;
        self.commit = ended.duration_since(begun).min(slower);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Returns a pace with commits of a millisecond, the last of which ended now.
    fn pace(expected: usize, now: Instant) -> Pace {
        Pace { expected, ended: now, commit: MS, ..Pace::default() }
    }

    #[test]
    fn a_group_waits_for_those_who_were_answered_together_and_not_for_long() {
        let now = Instant::now();
        assert_eq!(pace(2, now).gathering(now + MS), Some((2, now + MS + MS / 2)));
        assert_eq!(pace(2, now).gathering(now + 5 * MS), None, "they do not return");
        assert_eq!(pace(1, now).gathering(now), None, "one alone waits for nobody");
    }

    #[test]
    fn waits_for_nothing_become_rare_until_one_is_not() {
        let now = Instant::now();
        let mut pace = pace(2, now);
        let waits =
            |pace: &mut Pace| (0..200).filter(|_| pace.gathering(now).map(|_| pace.gathered(false)).is_some()).count();
        assert!(waits(&mut pace) < 10);
        pace.gathered(true);
        assert!(pace.gathering(now).is_some() && pace.gathering(now).is_some());
    }

    #[test]
    fn a_commit_that_was_held_up_does_not_make_the_next_groups_wait_for_long() {
        let now = Instant::now();
        let mut pace = pace(2, now);
        pace.ended(now, now + 500 * MS, 2);
        assert!(pace.commit < MS * 3 / 2);
        pace.ended(now, now + MS / 10, 2);
        assert_eq!(pace.commit, MS / 10);
    }
}
