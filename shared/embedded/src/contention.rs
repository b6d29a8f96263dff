//! Pushes that lost to others, on records with many writers.
//!
//! A writer that loses gets the stored value as its answer, and retries with it. If every writer of a record were
//! answered after each write, one of them would win the next round, and the answers to all others would be wasted. So
//! only one of the losers is answered immediately. The others are held, and every second write of the record releases the
//! one that has waited longest, with the value that is then stored. That way every writer succeeds sooner.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use nameservice_model::{Address, PushOutcome, Result, Write, Written};

use crate::{
    queue::Job,
    state::{Action, Command},
};

/// After this time without a write, a record is no longer contended: all its held pushes are answered.
const QUIET: Duration = Duration::from_millis(5);
/// One held push is released per this many writes of the record.
const WRITES: u32 = 2;
/// The longest time for which a push is held, however many are ahead of it.
const MAX_HELD: Duration = Duration::from_millis(100);

/// The pushes that are held.
#[derive(Default)]
pub(crate) struct Held(HashMap<Arc<str>, Losers>);

struct Losers {
    jobs: VecDeque<(Instant, Job)>,
    written: Instant,
    /// Writes since the last push was released.
    writes: u32,
}

impl Losers {
    /// Returns when the first of them is answered, whether or not the record is written.
    fn due(&self) -> Option<Instant> {
        let (since, _) = self.jobs.front()?;
        Some((*since + MAX_HELD).min(self.written + QUIET))
    }
}

/// Returns the record if a push of it was rejected because of the stored value.
pub(crate) fn lost<'a>(command: &'a Command, outcome: &Result<Option<Written>>) -> Option<&'a Address> {
    let is_conflict = matches!(
        outcome,
        Ok(Some(
            Written::Head(PushOutcome::Conflict { .. })
                | Written::Index(PushOutcome::Conflict { .. })
                | Written::Status(PushOutcome::Conflict { .. })
                | Written::Config(PushOutcome::Conflict { .. })
        ))
    );
    match &command.action {
        Action::Write(
            Write::PushHead { address, .. }
            | Write::PushIndex { address, .. }
            | Write::PushStatus { address, .. }
            | Write::PushConfig { address, .. },
        ) => Some(address).filter(|_| is_conflict),
        _ => None,
    }
}

impl Held {
    /// Returns whether pushes of a record are held.
    pub(crate) fn has(&self, address: &str) -> bool {
        self.0.contains_key(address)
    }

    /// Holds a push.
    pub(crate) fn put(&mut self, address: Arc<str>, job: Job, now: Instant) {
        let begin = || Losers { jobs: VecDeque::new(), written: now, writes: 0 };
        self.0.entry(address).or_insert_with(begin).jobs.push_back((now, job));
    }

    /// Notes a write of a record. At every second one, takes the push that has waited longest.
    pub(crate) fn next(&mut self, address: &str, now: Instant) -> Option<Job> {
        if self.0.is_empty() {
            return None;
        }
        let losers = self.0.get_mut(address)?;
        losers.written = now;
        losers.writes += 1;
        if losers.writes < WRITES {
            return None;
        }
        losers.writes = 0;
        let next = losers.jobs.pop_front();
        if losers.jobs.is_empty() {
            self.0.remove(address);
        }
        next.map(|(_, job)| job)
    }

    /// Returns when the next push is to be answered, whatever is written until then.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.values().filter_map(Losers::due).min()
    }

    /// Takes the pushes that are to be answered by now.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<Job> {
        let mut expired = Vec::new();
        self.0.retain(|_, losers| {
            while losers.due().is_some_and(|due| due <= now) {
                expired.extend(losers.jobs.pop_front().map(|(_, job)| job));
            }
            !losers.jobs.is_empty()
        });
        expired
    }

    /// Takes all pushes.
    pub(crate) fn all(&mut self) -> Vec<Job> {
        self.0.drain().flat_map(|(_, losers)| losers.jobs).map(|(_, job)| job).collect()
    }
}

#[cfg(test)]
mod tests {
    use nameservice_model::{Call, ContentId, HeadPush, NewHead};
    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn job(t: i64) -> Job {
        let push = HeadPush::monotonic(NewHead::new(ContentId::stored("bafy"), t).unwrap());
        let command = Command::new(&Call::fresh(), Write::PushHead { address: Address::parse("a").unwrap(), push });
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Job { command, answer: oneshot::channel().0, _place: place }
    }

    fn ts(jobs: impl IntoIterator<Item = Job>) -> Vec<i64> {
        let t = |job: Job| match job.command.action {
            Action::Write(Write::PushHead { push, .. }) => push.desired().t(),
            other => panic!("{other:?}"),
        };
        jobs.into_iter().map(t).collect()
    }

    #[test]
    fn every_second_write_lets_the_one_go_that_has_waited_longest() {
        let (mut held, now) = (Held::default(), Instant::now());
        assert!(!held.has("a:main") && held.due().is_none());
        for t in 1..=3 {
            held.put("a:main".into(), job(t), now);
        }
        assert!(ts(held.next("b:main", now)).is_empty());
        for t in 1..=3 {
            assert!(held.has("a:main"));
            assert!(ts(held.next("a:main", now)).is_empty());
            assert_eq!(ts(held.next("a:main", now)), [t]);
        }
        assert!(!held.has("a:main") && held.due().is_none());
    }

    #[test]
    fn all_go_once_the_record_is_quiet_and_none_waits_for_ever() {
        let (mut held, begun) = (Held::default(), Instant::now());
        for t in 1..=3 {
            held.put("a:main".into(), job(t), begun);
        }
        assert!(ts(held.next("a:main", begun + 3 * MS)).is_empty());
        assert_eq!(ts(held.next("a:main", begun + 4 * MS)), [1]);
        assert_eq!(held.due(), Some(begun + 4 * MS + QUIET));
        assert!(ts(held.expired(begun + 8 * MS)).is_empty());
        assert_eq!(ts(held.expired(begun + 4 * MS + QUIET)), [2, 3]);

        for t in 1..=50 {
            held.put("a:main".into(), job(t), begun);
        }
        // Written all the time, by writers that do not retry.
        for n in 0..20 {
            assert_eq!(held.next("a:main", begun + n * 5 * MS).is_some(), n % 2 == 1, "{n}");
        }
        let end = begun + MAX_HELD - MS;
        assert!(ts(held.expired(end)).is_empty());
        assert!(held.next("a:main", end).is_none());
        held.put("a:main".into(), job(51), end);
        assert_eq!(ts(held.expired(begun + MAX_HELD)), (11..=50).collect::<Vec<_>>());
        assert_eq!(ts(held.all()), [51]);
    }
}
