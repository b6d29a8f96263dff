//! Locks: `flock` against other programs, and a queue for each lock file within this one.

use std::{
    fs::{File, OpenOptions, TryLockError},
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use nameservice_model::Result;
use tokio::{sync::Mutex as Queue, time::sleep};

use super::{Directory, LOCK};

/// How many queues of writers are remembered before those that nobody is in are dropped.
const QUEUES: usize = 1_024;

impl Directory {
    /// Opens and locks a lock file, unless another program holds the lock. Lock files are never deleted: that would let two
    /// writers in.
    fn lock_now(&self, key: &str) -> Result<Option<File>> {
        self.check(LOCK)?;
        let locked = || {
            let path = self.path(key)?;
            self.make_parents(&path)?;
            let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
            match file.try_lock() {
                Ok(()) => Ok(Some(file)),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(error),
            }
        };
        locked().map_err(|error| self.not_read(LOCK, error))
    }

    /// Locks a lock file, trying again until that succeeds. No thread is held meanwhile.
    pub(super) async fn locked(&self, key: &str) -> Result<File> {
        let delays = ExponentialBuilder::default().with_min_delay(Duration::from_millis(2));
        let mut delays = delays.with_max_delay(Duration::from_millis(100)).with_jitter().without_max_times().build();
        loop {
            let key = key.to_owned();
            if let Some(file) = self.run(LOCK, move |directory| directory.lock_now(&key)).await? {
                return Ok(file);
            }
            sleep(delays.next().unwrap_or_default()).await;
        }
    }

    pub(super) fn queue(&self, lock: &str) -> Arc<Queue<()>> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(lock).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.len() >= QUEUES && queues.len().is_power_of_two() {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::default();
        queues.insert(lock.to_owned(), Arc::downgrade(&queue));
        queue
    }
}
