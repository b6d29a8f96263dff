//! Any concern of a record by its kind: reads, compare-and-set, and pushes that are repeated after conflicts.

use std::time::Duration;

use async_trait::async_trait;
use backon::{BackoffBuilder, ExponentialBuilder};
use nameservice_model::{
    Address, Call, ConcernKind, ConcernState, ConcernValue, ConfigPublisher, ConfigPush, Error, HeadPush, IndexPush,
    NewConcern, OperationOutcome, PushOutcome, RefPublisher, Result, StatusPublisher, StatusPush,
};

/// The outcome of a plain compare-and-set, which has only two.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub enum CasResult<T> {
    /// The new value is stored.
    Updated,
    /// The expected value did not match; nothing was written.
    Conflict {
        /// The stored value: `None` if it is not known, or there is no such record.
        actual: Option<ConcernValue<T>>,
    },
}

impl<T> From<PushOutcome<T>> for CasResult<T> {
    /// Every rejection is a conflict; only stale values and conflicts carry the stored value.
    fn from(outcome: PushOutcome<T>) -> Self {
        match outcome {
            PushOutcome::Updated { .. } => Self::Updated,
            PushOutcome::Stale { actual } => Self::Conflict { actual: Some(actual) },
            PushOutcome::Conflict { actual } => Self::Conflict { actual },
            _ => Self::Conflict { actual: None },
        }
    }
}

/// The longest pause between two attempts of [`push_with_retry`], before jitter.
const MAX_DELAY: Duration = Duration::from_secs(1);
/// The first pause, before jitter.
const MIN_DELAY: Duration = Duration::from_millis(20);

/// Reads and pushes any concern, named by its kind. Implemented by every backend that publishes heads, indexes,
/// statuses and configs.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), nameservice::Error> {
/// # let commit: nameservice::ContentId = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi".parse()?;
/// # let ns = nameservice::connect("memory:").await?;
/// use nameservice::{Address, Call, CasResult, ConcernKind, ConcernPublisher, NewHead, NewIndex, push_with_retry};
///
/// let (publisher, mydb): (_, Address) = (ns.backend(), "mydb".parse()?);
/// publisher.push_concern(&Call::fresh(), &mydb, None, &NewHead::new(commit.clone(), 1)?.into()).await?.updated()?;
/// let head = publisher.get_concern(&mydb, ConcernKind::Head).await?;
/// assert_eq!(head.map(|head| head.v()), Some(1));
/// # let root = commit.clone();
/// push_with_retry(&**publisher, &mydb, &NewIndex::new(root, 1)?.into(), 5).await?.updated()?;
/// // A plain compare-and-set has two results.
/// let pushed = ns.head("mydb")?.push(commit, 2).expect_unborn().await?;
/// assert!(matches!(CasResult::from(pushed), CasResult::Conflict { actual: Some(head) } if head.t() == 1));
/// # Ok(()) }
/// ```
#[async_trait]
pub trait ConcernPublisher: RefPublisher + StatusPublisher + ConfigPublisher {
    /// Returns the value of a concern; `None` if there is no record, or no such concern.
    async fn get_concern(&self, address: &Address, concern: ConcernKind) -> Result<Option<ConcernState>> {
        Ok(match concern {
            ConcernKind::Head => self.head(address).await?.map(ConcernState::Head),
            ConcernKind::Index => self.index(address).await?.map(ConcernState::Index),
            ConcernKind::Status => self.status(address).await?.map(ConcernState::Status),
            ConcernKind::Config => self.config(address).await?.map(ConcernState::Config),
        })
    }

    /// Pushes a concern with an expected value. `None` expects that there is no record: a push of a head or an index
    /// then creates a ledger; one of a status or a config does not.
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

/// Pushes a concern as a fast-forward: reads the current value, pushes with it as the expected value, and retries with
/// the value that a conflict returns for as long as the new value is newer than that. At most `max_retries` pushes are
/// sent, with growing pauses between them.
///
/// It is for values that do not depend on what is stored, such as an index, or a head that is copied with its history. Not
/// for a new commit: after a conflict it would be pushed on a head that it does not follow, and what the other writer has
/// committed would be in no history. Push that with [`expect`](crate::PushHead::expect), and make it anew after a conflict.
///
/// - A conflict with a value that is as new or newer is not retried: it is returned immediately.
/// - Out of retries, the outcome is a conflict with the current value.
/// - Every other outcome, and every error, is returned as it is: in particular [`Error::OutcomeUnknown`], after which
///   another attempt could mistake this call's own value for another writer's.
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use nameservice_model::{
        Config, ContentId, Expected, Head, Index, IndexRoot, NewConfig, NewHead, NewIndex, NewStatus, Object,
        RecordKind, Status, StatusPayload,
    };
    use serde_json::Value;
    use tokio::time::Instant;

    use super::*;

    fn id() -> ContentId {
        ContentId::parse("bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi").unwrap()
    }

    fn head(t: i64) -> Head {
        Head::new(t, id())
    }

    /// A head, a status and competing writers: before each push of a head, the next value of `faster` is written.
    #[derive(Default)]
    struct Fake {
        head: Mutex<Option<Head>>,
        status_v: Mutex<i64>,
        faster: Mutex<Vec<Head>>,
        busy: Mutex<usize>,
        pushes: Mutex<usize>,
    }

    #[async_trait]
    impl RefPublisher for Fake {
        async fn head(&self, _: &Address) -> Result<Option<Head>> {
            Ok(self.head.lock().unwrap().clone())
        }

        async fn index(&self, _: &Address) -> Result<Option<Index>> {
            Ok(None)
        }

        async fn push_head(&self, _: &Call, _: &Address, push: &HeadPush) -> Result<PushOutcome<ContentId>> {
            *self.pushes.lock().unwrap() += 1;
            let mut head = self.head.lock().unwrap();
            if let Some(faster) = self.faster.lock().unwrap().pop() {
                *head = Some(faster);
            }
            let matches = match push.expected() {
                Expected::Value(expected) => head.as_ref() == Some(expected) && push.desired().t() > expected.v,
                Expected::NoRecord => head.is_none(),
                Expected::Older => false,
            };
            if !matches {
                return Ok(PushOutcome::Conflict { actual: head.clone() });
            }
            let value = push.desired().value();
            *head = Some(value.clone());
            Ok(PushOutcome::Updated { value, replayed: false })
        }

        async fn push_index(&self, _: &Call, _: &Address, _: &IndexPush) -> Result<PushOutcome<IndexRoot>> {
            Err(Error::OutcomeUnknown { operation: "push an index", source: None })
        }
    }

    #[async_trait]
    impl StatusPublisher for Fake {
        async fn status(&self, _: &Address) -> Result<Option<Status>> {
            Ok(Some(Status::new(*self.status_v.lock().unwrap(), StatusPayload::state("ready"))))
        }

        async fn push_status(&self, _: &Call, _: &Address, push: &StatusPush) -> Result<PushOutcome<StatusPayload>> {
            *self.pushes.lock().unwrap() += 1;
            let (mut v, mut busy) = (self.status_v.lock().unwrap(), self.busy.lock().unwrap());
            if *busy > 0 {
                *busy -= 1;
                *v += 1;
                let actual = Some(Status::new(*v, StatusPayload::state("ready")));
                return Ok(PushOutcome::Conflict { actual });
            }
            *v = push.new_v();
            Ok(PushOutcome::Updated { value: push.new_value(), replayed: false })
        }
    }

    #[async_trait]
    impl ConfigPublisher for Fake {
        async fn config(&self, _: &Address) -> Result<Option<Config>> {
            Ok(None)
        }

        async fn push_config(&self, _: &Call, _: &Address, _: &ConfigPush) -> Result<PushOutcome<Value>> {
            Ok(PushOutcome::Unknown)
        }
    }

    async fn retry(fake: &Fake, new: impl Into<NewConcern>, max_retries: usize) -> Result<OperationOutcome> {
        push_with_retry(fake, &Address::parse("mydb").unwrap(), &new.into(), max_retries).await
    }

    fn new_head(t: i64) -> NewHead {
        NewHead::new(id(), t).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_value_is_fast_forwarded_over_whatever_came_in_between() {
        let fake = Fake { head: Some(head(1)).into(), faster: vec![head(3), head(2)].into(), ..Fake::default() };
        let outcome = retry(&fake, new_head(9), 10).await.unwrap();
        assert_eq!(outcome, OperationOutcome::Updated { value: head(9).into(), replayed: false });
        assert_eq!(*fake.pushes.lock().unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_has_been_overtaken_is_a_conflict_at_once() {
        for there in [head(9), head(10)] {
            let fake = Fake { head: Some(head(1)).into(), faster: vec![there.clone()].into(), ..Fake::default() };
            let begun = Instant::now();
            let outcome = retry(&fake, new_head(9), 10).await.unwrap();
            assert_eq!(outcome, OperationOutcome::Conflict { actual: Some(there.into()) });
            assert_eq!((*fake.pushes.lock().unwrap(), begun.elapsed()), (1, Duration::ZERO));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retries_are_bounded_with_growing_pauses_between_them() {
        let fake = Fake { status_v: 1.into(), busy: usize::MAX.into(), ..Fake::default() };
        let begun = Instant::now();
        let new = NewStatus::new(StatusPayload::state("error")).unwrap();
        let outcome = retry(&fake, new.clone(), 5).await.unwrap();
        assert!(matches!(outcome, OperationOutcome::Conflict { actual: Some(ConcernState::Status(_)) }), "{outcome:?}");
        assert_eq!(*fake.pushes.lock().unwrap(), 5);
        // Four pauses of 20, 40, 80 and 160 ms, each at most doubled by jitter.
        let paused = begun.elapsed();
        assert!((Duration::from_millis(300)..Duration::from_millis(610)).contains(&paused), "{paused:?}");
        // With no attempts allowed, nothing is sent.
        assert!(matches!(retry(&fake, new, 0).await.unwrap(), OperationOutcome::Conflict { .. }));
        assert_eq!(*fake.pushes.lock().unwrap(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_is_not_there_is_created_by_a_head_and_not_by_a_config() {
        let fake = Fake::default();
        let outcome = retry(&fake, new_head(1), 3).await.unwrap();
        assert_eq!(outcome, OperationOutcome::Updated { value: head(1).into(), replayed: false });
        let config = NewConfig::new(Object::new()).unwrap();
        assert_eq!(retry(&fake, config, 3).await.unwrap(), OperationOutcome::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_outcome_ends_the_retries() {
        let new = NewIndex::new(id(), 1).unwrap();
        assert!(matches!(retry(&Fake::default(), new, 3).await, Err(Error::OutcomeUnknown { .. })));
    }

    #[test]
    fn a_plain_result_has_the_stored_value_of_conflicts_and_stale_pushes_only() {
        let conflict = |actual| CasResult::Conflict { actual };
        for (outcome, result) in [
            (PushOutcome::Updated { value: head(2), replayed: true }, CasResult::Updated),
            (PushOutcome::Stale { actual: head(3) }, conflict(Some(head(3)))),
            (PushOutcome::Conflict { actual: Some(head(3)) }, conflict(Some(head(3)))),
            (PushOutcome::Conflict { actual: None }, conflict(None)),
            (PushOutcome::Unknown, conflict(None)),
            (PushOutcome::Retracted, conflict(None)),
            (PushOutcome::WrongKind(RecordKind::GraphSource), conflict(None)),
            (PushOutcome::LeaseLost { lease: None }, conflict(None)),
        ] {
            assert_eq!(CasResult::from(outcome), result);
        }
    }
}
