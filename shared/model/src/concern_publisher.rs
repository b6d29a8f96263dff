use std::time::Duration;

use async_trait::async_trait;
use backon::{BackoffBuilder, ExponentialBuilder};

use crate::{
    Address, Call, ConcernKind, ConcernState, ConfigPublisher, ConfigPush, Error, HeadPush, IndexPush, NewConcern,
    OperationOutcome, RefPublisher, Result, StatusPublisher, StatusPush,
};

/// The longest pause between two attempts of [`push_with_retry`].
const MAX_DELAY: Duration = Duration::from_secs(1);
/// About the first pause.
const MIN_DELAY: Duration = Duration::from_millis(20);

/// Reads and pushes any concern, named by its kind. Every backend of heads, indexes, statuses and configs is one.
#[async_trait]
pub trait ConcernPublisher: RefPublisher + StatusPublisher + ConfigPublisher {
    /// Returns the value of a concern; `None` where there is no record, or no such concern.
    async fn get_concern(&self, address: &Address, concern: ConcernKind) -> Result<Option<ConcernState>> {
        Ok(match concern {
            ConcernKind::Head => self.head(address).await?.map(ConcernState::Head),
            ConcernKind::Index => self.index(address).await?.map(ConcernState::Index),
            ConcernKind::Status => self.status(address).await?.map(ConcernState::Status),
            ConcernKind::Config => self.config(address).await?.map(ConcernState::Config),
        })
    }

    /// Pushes a concern that is expected to have a value. `None` expects that there is no record: a head or an index
    /// creates a ledger then; a status or a config does not.
    async fn push_concern(
        &self,
        call: &Call,
        address: &Address,
        expected: Option<&ConcernState>,
        new: &NewConcern,
    ) -> Result<OperationOutcome> {
        Ok(match (new.clone(), expected.cloned()) {
            (NewConcern::Head(new), None) => self.push_head(call, address, &HeadPush::create(new)).await?.into(),
            (NewConcern::Index(new), None) => self.push_index(call, address, &IndexPush::create(new)).await?.into(),
            (NewConcern::Status(_) | NewConcern::Config(_), None) => {
                match self.get_concern(address, new.concern()).await? {
                    Some(actual) => OperationOutcome::Conflict { actual: Some(actual) },
                    None => OperationOutcome::Unknown,
                }
            }
            (NewConcern::Head(new), Some(ConcernState::Head(expected))) => {
                self.push_head(call, address, &HeadPush::cas(expected, new)).await?.into()
            }
            (NewConcern::Index(new), Some(ConcernState::Index(expected))) => {
                self.push_index(call, address, &IndexPush::cas(expected, new)).await?.into()
            }
            (NewConcern::Status(new), Some(ConcernState::Status(expected))) => {
                self.push_status(call, address, &StatusPush::cas(expected, new)).await?.into()
            }
            (NewConcern::Config(new), Some(ConcernState::Config(expected))) => {
                self.push_config(call, address, &ConfigPush::cas(expected, new)).await?.into()
            }
            (new, Some(expected)) => {
                let source = format!("a {} cannot replace a {}", new.concern(), expected.concern());
                return Err(Error::Store { operation: "push a concern", source: source.into() });
            }
        })
    }
}

impl<T: RefPublisher + StatusPublisher + ConfigPublisher + ?Sized> ConcernPublisher for T {}

/// Pushes a concern as a fast-forward: reads the current value, pushes on the expectation of it, and tries again from
/// what a conflict returns for as long as the new value is newer. At most `max_retries` pushes are sent, with growing
/// pauses between them.
///
/// - A conflict with a value that is as new or newer has diverged: it is returned at once.
/// - Out of retries, the outcome is a conflict with the current value.
/// - Every other outcome, and every error, is returned as it is: in particular [`Error::OutcomeUnknown`], after which
///   another attempt could mistake this call's own value for somebody else's.
pub async fn push_with_retry<P: ConcernPublisher + ?Sized>(
    publisher: &P,
    address: &Address,
    new: &NewConcern,
    max_retries: usize,
) -> Result<OperationOutcome> {
    let mut expected = publisher.get_concern(address, new.concern()).await?;
    let backoff = ExponentialBuilder::default().with_min_delay(MIN_DELAY).with_max_delay(MAX_DELAY).with_jitter();
    let mut delays = backoff.without_max_times().build();
    for attempt in 0..max_retries {
        if attempt > 0 {
            tokio::time::sleep(delays.next().unwrap_or(MAX_DELAY)).await;
        }
        match publisher.push_concern(&Call::fresh(), address, expected.as_ref(), new).await? {
            OperationOutcome::Conflict { actual } => {
                if let Some(actual) = &actual
                    && new.v_after(actual.v()) <= actual.v()
                {
                    return Ok(OperationOutcome::Conflict { actual: Some(actual.clone()) });
                }
                expected = actual;
            }
            outcome => return Ok(outcome),
        }
    }
    let actual = publisher.get_concern(address, new.concern()).await?;
    Ok(OperationOutcome::Conflict { actual })
}
