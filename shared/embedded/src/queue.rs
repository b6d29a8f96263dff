//! The commands that wait for the writer.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use nameservice_model::{Result, Written};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::state::Command;

/// The most commands that are written together.
pub(crate) const MAX_GROUP: usize = 1024;

/// A command, and the channel for its outcome.
pub(crate) struct Job {
    pub(crate) command: Command,
    pub(crate) answer: oneshot::Sender<Result<Option<Written>>>,
    pub(crate) _place: OwnedSemaphorePermit,
}

impl Job {
    /// Answers the command. A caller that has gone away misses the outcome.
    pub(crate) fn answer(self, outcome: Result<Option<Written>>) {
        let _ = self.answer.send(outcome);
    }
}

/// The queue of jobs. It has many senders and one receiver, which is woken only once there are as many jobs as it
/// wants: a wake-up costs a system call.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    enough: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// The number of jobs that wakes the receiver; `None` while it is awake.
    wakes_at: Option<usize>,
    is_closed: bool,
}

/// The reason why a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// There are enough jobs, or no more will come.
    Enough,
    /// The time ran out.
    TimedOut,
    /// There are no jobs, and no more will come.
    Closed,
}

impl Queue {
    /// Adds a job. Returns whether there is still a receiver.
    pub(crate) fn send(&self, job: Job) -> bool {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return false;
        }
        waiting.jobs.push_back(job);
        if waiting.wakes_at.is_some_and(|wakes_at| waiting.jobs.len() >= wakes_at) {
            waiting.wakes_at = None;
            drop(waiting);
            self.enough.notify_one();
        }
        true
    }

    /// Accepts no more jobs. Those in the queue are still received.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        waiting.wakes_at = None;
        drop(waiting);
        self.enough.notify_one();
    }

    /// Waits for this many jobs, at most until the given time.
    pub(crate) fn wait(&self, count: usize, until: Option<Instant>) -> Waited {
        let mut waiting = self.lock();
        loop {
            match (waiting.jobs.len(), waiting.is_closed) {
                (0, true) => return Waited::Closed,
                (there, is_closed) if there >= count || is_closed => return Waited::Enough,
                _ => waiting.wakes_at = Some(count),
            }
            waiting = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.enough.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => {
                    waiting.wakes_at = None;
                    return Waited::TimedOut;
                }
                Some(left) => self.enough.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
    }

    /// Takes the first jobs, at most the given number.
    pub(crate) fn take(&self, at_most: usize) -> Vec<Job> {
        let mut waiting = self.lock();
        let count = at_most.min(waiting.jobs.len());
        waiting.jobs.drain(..count).collect()
    }

    /// Accepts no more jobs and drops those in the queue: the receiver has gone.
    pub(crate) fn abandon(&self) {
        self.close();
        self.lock().jobs.clear();
    }

    /// Returns the number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.lock().jobs.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A list of jobs is consistent even if a thread panicked while it held the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Duration};

    use nameservice_model::{Address, Call, Write};
    use tokio::sync::Semaphore;

    use super::*;

    fn job() -> Job {
        let action = Write::Restore { address: Address::parse("a").unwrap() };
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Job { command: Command::new(&Call::fresh(), action), answer: oneshot::channel().0, _place: place }
    }

    #[test]
    fn the_receiver_is_woken_by_as_many_as_it_waits_for() {
        let queue = Arc::new(Queue::default());
        let receiver = thread::spawn({
            let queue = queue.clone();
            move || (queue.wait(3, None), queue.take(2).len(), queue.len())
        });
        for _ in 0..3 {
            assert!(queue.send(job()));
        }
        assert_eq!(receiver.join().unwrap(), (Waited::Enough, 2, 1));
    }

    #[test]
    fn a_wait_for_more_ends_with_its_time_and_loses_nothing() {
        let queue = Queue::default();
        assert!(queue.send(job()));
        assert_eq!(queue.wait(2, Some(Instant::now() - Duration::from_secs(1))), Waited::TimedOut);
        assert_eq!(queue.wait(1, None), Waited::Enough);
        assert_eq!(queue.take(9).len(), 1);
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_takes_nothing() {
        let queue = Queue::default();
        assert!(queue.send(job()));
        queue.close();
        assert!(!queue.send(job()));
        assert_eq!((queue.wait(5, None), queue.take(9).len()), (Waited::Enough, 1));
        assert_eq!(queue.wait(1, None), Waited::Closed);
    }
}
