//! Sends requests: repeats them until an answer or a deadline, and never mistakes a lost reply for a rejection.

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    operation::{
        delete_item::DeleteItemError,
        put_item::PutItemError,
        transact_write_items::TransactWriteItemsError,
        update_item::{UpdateItemError, builders::UpdateItemFluentBuilder},
    },
    types::{CancellationReason, TransactWriteItem},
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use metrics::{counter, histogram};
use tokio::time::{Instant, sleep, timeout};

use crate::{BoxError, Error, Item, Metered, Outcome, Result, connect::ATTEMPT_TIMEOUT};

/// How long and how often requests are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// No attempt of a call begins later than this after its first, whatever the call sends. The default leaves time for
    /// a last attempt within the 29 s of an API gateway.
    pub deadline: Duration,
    /// The longest pause after the first failure. It doubles with each further failure.
    pub base: Duration,
    /// The longest pause after any failure. Each pause is drawn uniformly between zero and its maximum (full jitter).
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), base: Duration::from_millis(25), cap: Duration::from_secs(1) }
    }
}

/// Sends requests for one table.
#[derive(Clone, Debug)]
pub struct Sender {
    client: Client,
    table: Arc<str>,
    policy: RetryPolicy,
}

/// What is known about the attempts of one operation, over all the requests that it sends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    /// An attempt to write was sent and its answer never came: it may have been applied.
    pub uncertain: bool,
    /// The write is not idempotent.
    once: bool,
    /// When the first attempt began.
    begun: Option<Instant>,
}

impl Attempts {
    /// Returns the attempts of a write that may not be applied twice: it is repeated only while it was certainly not
    /// applied.
    pub fn once() -> Self {
        Self { once: true, ..Self::default() }
    }

    /// Returns a rejection as the outcome, unless an attempt of unknown outcome came before it: then it is unknown whether
    /// the rejection answers the call or its own earlier success.
    pub fn rejection<T>(self, operation: &'static str, outcome: T) -> Result<T> {
        if self.uncertain { Err(Error::OutcomeUnknown { operation, source: None }) } else { Ok(outcome) }
    }

    /// Returns an error as that of the operation. After an attempt of unknown outcome, every other error leaves the
    /// outcome unknown: what has failed since, however certainly, is not what that attempt did.
    fn failure(self, operation: &'static str, error: Error) -> Error {
        match error {
            Error::OutcomeUnknown { .. } => error,
            error if self.uncertain => Error::OutcomeUnknown { operation, source: Some(error.into()) },
            error => error,
        }
    }

    /// Returns when the operation began: now, unless it has sent something before.
    fn begin(&mut self) -> Instant {
        *self.begun.get_or_insert_with(Instant::now)
    }
}

/// A condition that did not hold.
#[derive(Debug)]
pub enum Rejection {
    /// The condition of a single write, with the stored item.
    Condition(Option<Item>),
    /// The conditions of a transaction: one entry per action, `Some` for each that failed.
    Cancelled(Vec<Option<Failed>>),
}

impl Rejection {
    /// Returns the stored item that rejected a single write, `None` if there is none.
    pub fn condition(self, operation: &'static str) -> Result<Option<Item>> {
        match self {
            Self::Condition(item) => Ok(item.filter(|item| !item.is_empty())),
            Self::Cancelled(_) => Err(Error::Failed { operation, source: "a single write was cancelled".into() }),
        }
    }
}

/// The item that failed an action's condition; `None` if there is no item.
#[derive(Debug, Default)]
pub struct Failed(pub Option<Item>);

/// What a failed attempt means.
enum Failure {
    Rejected(Rejection),
    /// Not applied, worth repeating.
    Busy(Busy),
    /// Perhaps applied, worth repeating.
    Lost,
    /// Repeating will not help.
    Fatal(Option<Error>),
}

/// The reason why a request that is worth repeating was not applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// The capacity of a partition, a table or the account was exceeded.
    Throttled,
    /// It conflicted with another transaction.
    Contended,
    /// Nothing listens at the endpoint.
    Unreachable,
}

/// The part of an operation's errors that is about conditions.
pub trait Conditional {
    /// Returns what this error says about conditions; `None` if it says nothing.
    fn judged(&self) -> Option<Judged> {
        None
    }
}

/// A rejected condition, or what else a cancelled transaction can mean.
pub enum Judged {
    /// A condition did not hold.
    Rejected(Rejection),
    /// It conflicted with other traffic: not applied, worth repeating.
    Busy(Busy),
    /// It can never be applied.
    Invalid {
        /// The message of the engine.
        message: String,
    },
}

macro_rules! rejected_by_condition {
    ($($error:ident),+ $(,)?) => {
        $(impl Conditional for $error {
            fn judged(&self) -> Option<Judged> {
                match self {
                    Self::ConditionalCheckFailedException(error) => {
                        Some(Judged::Rejected(Rejection::Condition(error.item().cloned())))
                    }
                    _ => None,
                }
            }
        })+
    };
}

rejected_by_condition!(PutItemError, UpdateItemError, DeleteItemError);

impl Conditional for TransactWriteItemsError {
    fn judged(&self) -> Option<Judged> {
        match self {
            Self::TransactionCanceledException(error) => Some(judge(error.cancellation_reasons())),
            _ => None,
        }
    }
}

macro_rules! never_rejected {
    ($($operation:ident::$error:ident),+ $(,)?) => {
        $(impl Conditional for aws_sdk_dynamodb::operation::$operation::$error {})+
    };
}

never_rejected!(
    query::QueryError,
    get_item::GetItemError,
    scan::ScanError,
    batch_get_item::BatchGetItemError,
    batch_write_item::BatchWriteItemError,
    create_table::CreateTableError,
    describe_table::DescribeTableError,
    describe_time_to_live::DescribeTimeToLiveError,
    update_time_to_live::UpdateTimeToLiveError,
    describe_continuous_backups::DescribeContinuousBackupsError,
    update_continuous_backups::UpdateContinuousBackupsError,
);

/// Judges a cancelled transaction by all its reasons. If any action conflicted with other traffic, the transaction is
/// repeated before failed conditions count, so that a rejection names all of them.
fn judge(reasons: &[CancellationReason]) -> Judged {
    let busy = reasons.iter().filter_map(|reason| match reason.code()? {
        "ThrottlingError" | "ProvisionedThroughputExceeded" => Some(Busy::Throttled),
        "TransactionConflict" => Some(Busy::Contended),
        _ => None,
    });
    // If there are both, waiting for capacity is the longer wait.
    if let Some(busy) = busy.min_by_key(|busy| *busy as u8) {
        return Judged::Busy(busy);
    }
    if let Some(reason) =
        reasons.iter().find(|reason| !matches!(reason.code().unwrap_or("None"), "None" | "ConditionalCheckFailed"))
    {
        let (code, message) = (reason.code().unwrap_or_default(), reason.message().unwrap_or_default());
        return Judged::Invalid { message: format!("{code}: {message}") };
    }
    let failed = reasons
        .iter()
        .map(|reason| (reason.code() == Some("ConditionalCheckFailed")).then(|| Failed(reason.item().cloned())));
    Judged::Rejected(Rejection::Cancelled(failed.collect()))
}

impl Sender {
    /// Returns a sender for a table. The client must have its own retries turned off.
    pub fn new(client: Client, table: &str, policy: RetryPolicy) -> Self {
        Self { client, table: table.into(), policy }
    }

    /// Returns the client, to build requests with.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the name of the table.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// Sets the retry policy.
    pub fn set_policy(&mut self, policy: RetryPolicy) {
        self.policy = policy;
    }

    /// Begins a series of attempts.
    pub fn backoff(&self) -> Backoff {
        Backoff::since(Instant::now(), self.policy)
    }

    /// Awaits another part of an operation, such as a read that its write depends on. It ends with the operation's
    /// deadline, and after an attempt of unknown outcome its failure leaves the outcome unknown. Otherwise its own
    /// result is returned.
    pub async fn within<T, E: Into<BoxError>>(
        &self,
        operation: &'static str,
        attempts: &mut Attempts,
        part: impl Future<Output = Result<T, E>>,
    ) -> Result<Result<T, E>> {
        let spent = attempts.begin().elapsed();
        // The last attempt may begin at the deadline.
        let left = self.policy.deadline.saturating_add(ATTEMPT_TIMEOUT).saturating_sub(spent);
        match timeout(left, part).await {
            Ok(Err(error)) if attempts.uncertain => {
                Err(Error::OutcomeUnknown { operation, source: Some(error.into()) })
            }
            Ok(done) => Ok(done),
            Err(elapsed) => {
                Err(attempts.failure(operation, Error::Unavailable { operation, source: Some(elapsed.into()) }))
            }
        }
    }

    /// Sends a read until it is answered.
    pub async fn read<O, E, F>(&self, operation: &'static str, attempt: impl Fn() -> F) -> Result<O>
    where
        F: Future<Output = Result<O, SdkError<E>>>,
        O: Metered,
        E: Conditional + ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let mut attempts = Attempts::default();
        match self.send(operation, &mut attempts, attempt).await {
            Ok(Outcome::Applied(output)) => Ok(output),
            // Reads carry no conditions.
            Ok(Outcome::Rejected(_)) => {
                Err(Error::Failed { operation, source: "a read was rejected by a condition".into() })
            }
            Err(Error::OutcomeUnknown { operation, source }) => Err(Error::Unavailable { operation, source }),
            Err(error) => Err(error),
        }
    }

    /// Sends a conditional update. A rejection contains the stored item, if the request asks for it.
    pub async fn update(
        &self,
        operation: &'static str,
        request: UpdateItemFluentBuilder,
        attempts: &mut Attempts,
    ) -> Result<Outcome<Item, Option<Item>>> {
        match self.send(operation, attempts, || request.clone().send()).await? {
            Outcome::Applied(output) => Ok(Outcome::Applied(output.attributes.unwrap_or_default())),
            Outcome::Rejected(rejection) => Ok(Outcome::Rejected(rejection.condition(operation)?)),
        }
    }

    /// Sends a transaction whose actions are labelled. A rejection names each action that failed.
    ///
    /// All attempts carry one token, so that the engine itself recognises a repetition: a rejection after a lost answer is
    /// then a rejection of the first attempt too.
    pub async fn transact<L>(
        &self,
        operation: &'static str,
        actions: Vec<(L, TransactWriteItem)>,
        attempts: &mut Attempts,
    ) -> Result<Outcome<(), Vec<(L, Failed)>>> {
        let (labels, items): (Vec<L>, Vec<_>) = actions.into_iter().unzip();
        let request = self
            .client
            .transact_write_items()
            .set_transact_items(Some(items))
            .client_request_token(uuid::Uuid::new_v4().to_string());
        match self.send(operation, attempts, || request.clone().send()).await? {
            Outcome::Applied(_) => Ok(Outcome::Applied(())),
            Outcome::Rejected(Rejection::Cancelled(reasons)) => {
                let failed = labels.into_iter().zip(reasons).filter_map(|(label, failed)| Some((label, failed?)));
                Ok(Outcome::Rejected(failed.collect()))
            }
            Outcome::Rejected(Rejection::Condition(_)) => {
                Err(Error::Failed { operation, source: "a transaction was rejected as a single write".into() })
            }
        }
    }

    /// Sends a write until it is answered.
    ///
    /// It is also sent again after a lost answer, unless the attempts are [`Attempts::once`].
    pub async fn send<O, E, F>(
        &self,
        operation: &'static str,
        attempts: &mut Attempts,
        attempt: impl Fn() -> F,
    ) -> Result<Outcome<O, Rejection>>
    where
        F: Future<Output = Result<O, SdkError<E>>>,
        O: Metered,
        E: Conditional + ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        // Held, not entered: nothing below creates spans, and an instrumented future would add a layer to those of all
        // callers.
        let _span =
            tracing::debug_span!("store", otel.name = operation, otel.kind = "client", db.system.name = "aws.dynamodb");
        let is_first = attempts.begun.is_none();
        let mut backoff = Backoff::since(attempts.begin(), self.policy);
        if !is_first && backoff.is_over() {
            let source = Some("the deadline of the operation has passed".into());
            return Err(attempts.failure(operation, Error::Unavailable { operation, source }));
        }
        loop {
            let begun = Instant::now();
            let attempted = attempt().await;
            histogram!("nameservice_store_request_duration_seconds", "operation" => operation).record(begun.elapsed());
            let counted = |outcome: &'static str| {
                counter!("nameservice_store_requests_total", "operation" => operation, "outcome" => outcome)
                    .increment(1);
            };
            let error = match attempted {
                Ok(output) => {
                    counted("ok");
                    if let Some(units) = output.units() {
                        histogram!("nameservice_store_capacity_units", "operation" => operation).record(units);
                    }
                    return Ok(Outcome::Applied(output));
                }
                Err(error) => error,
            };
            let failure = classify(&error);
            counted(match &failure {
                Failure::Rejected(_) => "condition_failed",
                Failure::Busy(_) => "busy",
                Failure::Lost => "lost",
                Failure::Fatal(_) => "failed",
            });
            let reason = match failure {
                Failure::Rejected(rejection) => return Ok(Outcome::Rejected(rejection)),
                Failure::Fatal(Some(known)) => return Err(attempts.failure(operation, known)),
                Failure::Fatal(None) => {
                    return Err(attempts.failure(operation, Error::Failed { operation, source: error.into() }));
                }
                Failure::Busy(Busy::Throttled) => "throttled",
                Failure::Busy(Busy::Contended) => "contended",
                Failure::Busy(Busy::Unreachable) => "unreachable",
                Failure::Lost => {
                    attempts.uncertain = true;
                    if attempts.once {
                        return Err(Error::OutcomeUnknown { operation, source: Some(error.into()) });
                    }
                    "lost"
                }
            };
            tracing::debug!(operation, attempt = backoff.attempts, %error, "repeating a request");
            if !backoff.pause().await {
                let source = Some(error.into());
                return Err(attempts.failure(operation, Error::Unavailable { operation, source }));
            }
            counter!("nameservice_store_retries_total", "operation" => operation, "reason" => reason).increment(1);
        }
    }
}

/// The delays between attempts: full jitter, doubling, until the deadline.
#[derive(Debug)]
pub struct Backoff {
    longest: ExponentialBackoff,
    policy: RetryPolicy,
    begun: Instant,
    attempts: u32,
}

impl Backoff {
    fn since(begun: Instant, policy: RetryPolicy) -> Self {
        let longest = ExponentialBuilder::default().with_min_delay(policy.base).with_max_delay(policy.cap);
        Self { longest: longest.without_max_times().build(), policy, begun, attempts: 0 }
    }

    fn is_over(&self) -> bool {
        self.begun.elapsed() > self.policy.deadline
    }

    /// Waits for the next attempt. Returns false once the deadline has passed.
    pub async fn pause(&mut self) -> bool {
        // The jitter of the library is added to a delay; full jitter draws from the whole delay.
        let delay = self.longest.next().unwrap_or(self.policy.cap).mul_f64(rand::random::<f64>());
        self.attempts += 1;
        if self.begun.elapsed() + delay > self.policy.deadline {
            return false;
        }
        sleep(delay).await;
        true
    }
}

/// What an error of the SDK means here: the one place that knows DynamoDB's error codes
/// (<https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html>).
fn classify<E>(error: &SdkError<E>) -> Failure
where
    E: Conditional + ProvideErrorMetadata,
{
    let service = match error {
        SdkError::ServiceError(context) => context,
        SdkError::ConstructionFailure(_) => return Failure::Fatal(None),
        // Nothing listens at the endpoint, so nothing was received.
        SdkError::DispatchFailure(failure) if failure.as_connector_error().is_some_and(is_rejected) => {
            return Failure::Busy(Busy::Unreachable);
        }
        // It is unknown whether the request arrived.
        _ => return Failure::Lost,
    };
    match service.err().judged() {
        Some(Judged::Rejected(rejection)) => return Failure::Rejected(rejection),
        Some(Judged::Busy(busy)) => return Failure::Busy(busy),
        Some(Judged::Invalid { message }) => return Failure::Fatal(invalid(&message)),
        None => {}
    }
    let status = service.raw().status().as_u16();
    match service.err().code().unwrap_or_default() {
        "ProvisionedThroughputExceededException" | "ThrottlingException" | "RequestLimitExceeded" => {
            Failure::Busy(Busy::Throttled)
        }
        "TransactionConflictException" | "TransactionInProgressException" | "ReplicatedWriteConflictException" => {
            Failure::Busy(Busy::Contended)
        }
        "ValidationException" => Failure::Fatal(invalid(service.err().message().unwrap_or_default())),
        _ if status >= 500 => Failure::Lost,
        _ => Failure::Fatal(None),
    }
}

fn is_rejected(error: &ConnectorError) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
            return true;
        }
        source = error.source();
    }
    false
}

/// The one validation error that depends on what callers send and that no earlier check can foresee exactly.
fn invalid(message: &str) -> Option<Error> {
    message.contains("Item size").then_some(Error::TooLarge)
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::operation::get_item::{GetItemError, GetItemOutput};

    use super::*;
    use crate::endpoint_client;

    /// Every attempt takes as long as a client waits for it.
    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends_one_attempt_after_its_deadline_at_the_latest() {
        let client = endpoint_client("http://127.0.0.1:1");
        let of_attempt = client.config().timeout_config().and_then(|timeouts| timeouts.operation_attempt_timeout());
        assert_eq!(of_attempt, Some(ATTEMPT_TIMEOUT));
        let policy = RetryPolicy::default();
        let lost = || async {
            sleep(ATTEMPT_TIMEOUT).await;
            Err::<GetItemOutput, SdkError<GetItemError>>(SdkError::timeout_error("no answer"))
        };
        let begun = Instant::now();
        let ended = Sender::new(client, "t", policy).read("read", lost).await;
        assert!(matches!(ended, Err(Error::Unavailable { .. })), "{ended:?}");
        let took = begun.elapsed();
        assert!(took > policy.deadline - policy.cap && took <= policy.deadline + ATTEMPT_TIMEOUT, "{took:?}");
    }
}
