use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use nameservice_model::{Backend, ConcernValue};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{Error, Result, builder::Future};

/// Delays between two reads if the feed does not show a write immediately: the first, and the longest.
const DELAYS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// A read of a concern that must be at least as fresh as given: awaited, it returns the value.
///
/// ```
/// # async fn example() -> Result<(), nameservice::Error> {
/// # let id = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
/// # let ns = nameservice::connect("memory:").await?;
/// # ns.create_ledger("mydb").head(id, 42).await?;
/// let head = ns.head("mydb")?.at_least(42).within(std::time::Duration::from_secs(10)).await?;
/// assert_eq!(head.t(), 42);
/// assert!(matches!(ns.head("mydb")?.at_least(43).await, Err(nameservice::Error::NotYet { wanted: 43, actual: Some(42) })));
/// # Ok(()) }
/// # #[cfg(feature = "embedded")]
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[must_use = "nothing is read before it is awaited"]
pub struct AtLeast<T> {
    backend: Arc<dyn Backend>,
    watermark: i64,
    read: Box<dyn Fn() -> Future<Option<T>> + Send + Sync>,
    within: Duration,
}

impl<T> fmt::Debug for AtLeast<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtLeast")
            .field("watermark", &self.watermark)
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}

impl<T> AtLeast<T> {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        watermark: i64,
        read: Box<dyn Fn() -> Future<Option<T>> + Send + Sync>,
    ) -> Self {
        Self { backend, watermark, read, within: Duration::ZERO }
    }

    /// Waits for up to this time; by default, the value must already be that fresh.
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }
}

impl<P: Send + 'static> AtLeast<ConcernValue<P>> {
    async fn run(self) -> Result<ConcernValue<P>> {
        let until = Instant::now() + self.within;
        let mut delay = DELAYS.0;
        loop {
            // Taken before the read, so that a change after it ends the wait.
            let position = if self.backend.is_immediate() { Some(self.backend.position().await?) } else { None };
            let found = (self.read)().await?;
            let actual = found.as_ref().map(|value| value.v);
            match found {
                Some(value) if value.v >= self.watermark => return Ok(value),
                _ if Instant::now() >= until => return Err(Error::NotYet { wanted: self.watermark, actual }),
                _ => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            match position {
                // A failure shows in the next read.
                Some(position) => drop(timeout_at(until, self.backend.wait(position, left)).await),
                None => {
                    sleep(delay.min(left)).await;
                    delay = DELAYS.1.min(delay * 2);
                }
            }
        }
    }
}

impl<P: Send + 'static> IntoFuture for AtLeast<ConcernValue<P>> {
    type Output = Result<ConcernValue<P>>;
    type IntoFuture = Future<ConcernValue<P>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}
