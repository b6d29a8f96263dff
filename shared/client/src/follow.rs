//! The change feed as it grows: over server-sent events, resumed where a stream ended; by long polls if events are not served.

use std::{fmt, time::Duration};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures_util::StreamExt as _;
use nameservice_api::{ProblemDocument, changes};
use nameservice_model::{
    AddressGlob, Change, ChangeEvent, ChangeFeed as _, ChangedPart, Error, RecordKind, Result, chain,
};
use serde::Deserialize;
use sse_stream::Sse;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    Client, Events, Request, RequestError, backend::MAX_PAGE, feed::is_usable, feed::unreadable, outcomes::invalid,
};

const OPERATION: &str = "follow changes";
/// The service writes at least every fifteen seconds.
const SILENCE: Duration = Duration::from_secs(50);
/// How long a new stream may take from the connection to its first block, with which the service begins.
const OPENING: Duration = Duration::from_secs(20);
/// How long a poll waits for a change: as long as a stream may be silent.
const POLL_SECONDS: u64 = 15;
/// Delays before a stream is opened again: the shortest, and the longest.
const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(5);

/// The changes that a reader wants. Each condition that is given must match; of several addresses or parts, any one.
#[derive(Clone, Debug, Default)]
pub struct ChangeFilter {
    /// Only changes of addresses that match one of these.
    pub addresses: Vec<AddressGlob>,
    /// Only changes of addresses that begin with this.
    pub prefix: Option<String>,
    /// Only changes of records of this kind.
    pub kind: Option<RecordKind>,
    /// Only changes of graph sources of this type.
    pub source_type: Option<String>,
    /// Only changes of these parts of a record.
    pub parts: Vec<ChangedPart>,
}

impl ChangeFilter {
    /// Adds the filter to a request for changes.
    pub fn apply(&self, request: Request) -> Request {
        request
            .queries("address", &self.addresses)
            // The service rejects an empty parameter as a client's mistake.
            .query("prefix", self.prefix.as_deref().filter(|prefix| !prefix.is_empty()))
            .query("kind", self.kind.map(RecordKind::as_str))
            .query("source_type", self.source_type.as_deref())
            .queries("concern", self.parts.iter().map(|part| part.as_str()))
    }
}

/// What happens to the connection while changes are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Connection {
    /// The service accepts the position: a stream was opened, or a poll answered.
    Up {
        /// The position.
        after: Option<u64>,
    },
    /// The connection failed for this reason, and is tried again until the service answers.
    Down(String),
}

/// The change feed from a position onwards, without an end.
pub struct Follow {
    client: Client,
    filter: ChangeFilter,
    /// Every change up to here was returned or filtered out; `None` until the service has reported its current position.
    after: Option<u64>,
    /// The position after which changes were missed at the last [`ChangeEvent::Gone`].
    gone_after: u64,
    source: Source,
    backoff: backon::ExponentialBackoff,
    polled: std::collections::VecDeque<Change>,
    /// Whether a stream was opened before.
    was_open: bool,
    /// Called whenever something is received from the service.
    on_contact: Option<OnContact>,
    /// Called with what happens to the connection.
    on_connection: Option<OnConnection>,
}

type OnContact = Box<dyn Fn(Option<u64>) + Send + Sync>;
type OnConnection = Box<dyn Fn(Connection) + Send + Sync>;

enum Source {
    Closed,
    Events {
        events: Events,
        /// When the next block must be here.
        until: Instant,
        /// Whether no block has arrived.
        is_silent: bool,
    },
    /// Events are not served, or something on the way keeps them back. Until a poll fails.
    Polls,
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow").field("after", &self.after).field("filter", &self.filter).finish_non_exhaustive()
    }
}

impl Client {
    /// Follows the change feed after a position; without one, from now on.
    pub fn follow(&self, filter: ChangeFilter, after: Option<u64>) -> Follow {
        Follow {
            client: self.clone(),
            filter,
            after,
            gone_after: 0,
            source: Source::Closed,
            backoff: backoff(),
            polled: Default::default(),
            was_open: false,
            on_contact: None,
            on_connection: None,
        }
    }
}

fn backoff() -> backon::ExponentialBackoff {
    let backoff = ExponentialBuilder::default().with_jitter().without_max_times();
    backoff.with_min_delay(MIN_DELAY).with_max_delay(MAX_DELAY).build()
}

#[derive(Deserialize)]
struct Expired {
    oldest: u64,
}

impl Follow {
    /// Calls this whenever something is received from the service: an event, a heartbeat, an answer, with the position
    /// of the feed that it names. Before a stream is opened again, the service is asked for its position.
    #[must_use]
    pub fn on_contact(mut self, call: impl Fn(Option<u64>) + Send + Sync + 'static) -> Self {
        self.on_contact = Some(Box::new(call));
        self
    }

    fn contact(&self, position: Option<u64>) {
        if let Some(call) = &self.on_contact {
            call(position);
        }
    }

    /// Calls this with what happens to the connection. A stream that ends as every stream does is no failure.
    #[must_use]
    pub fn on_connection(mut self, call: impl Fn(Connection) + Send + Sync + 'static) -> Self {
        self.on_connection = Some(Box::new(call));
        self
    }

    fn connection(&self, connection: Connection) {
        if let Some(call) = &self.on_connection {
            call(connection);
        }
    }

    /// Returns the position up to which everything was returned; `None` until the service has reported its current position.
    pub fn position(&self) -> Option<u64> {
        self.after
    }

    /// Returns the position after which changes were missed, if the last event was [`ChangeEvent::Gone`].
    pub fn gone_after(&self) -> u64 {
        self.gone_after
    }

    /// Waits for the next event. While the service cannot be reached, it waits on; it returns an error only if
    /// waiting does not help, such as a token that has expired.
    pub async fn next(&mut self) -> Result<ChangeEvent> {
        loop {
            if let Some(event) = self.step().await? {
                return Ok(event);
            }
        }
    }

    /// Waits for the next event, or for anything else that happens to the connection: then it returns `None`, and the
    /// [position](Self::position) may have moved.
    pub async fn step(&mut self) -> Result<Option<ChangeEvent>> {
        if let Some(change) = self.polled.pop_front() {
            self.after = Some(change.position);
            return Ok(Some(ChangeEvent::Change(Box::new(change))));
        }
        match &mut self.source {
            Source::Closed => self.open().await,
            Source::Polls => self.poll().await,
            Source::Events { events, until, is_silent } => {
                let is_silent = *is_silent;
                match timeout_at(*until, events.next()).await {
                    Ok(Some(Ok(event))) => self.read(event),
                    Ok(Some(Err(error))) => Ok(self.fail(format!("the stream broke off: {}", chain(&error))).await),
                    Ok(None) => Ok(self.close().await),
                    Err(_) if is_silent => self.fall_back().await,
                    Err(_) => Ok(self.fail("the service has fallen silent".to_owned()).await),
                }
            }
        }
    }

    /// Closes the stream, so that another is opened after a delay.
    async fn close(&mut self) -> Option<ChangeEvent> {
        self.source = Source::Closed;
        sleep(self.backoff.next().unwrap_or(MAX_DELAY)).await;
        None
    }

    /// Closes the stream after a failure.
    async fn fail(&mut self, reason: String) -> Option<ChangeEvent> {
        tracing::debug!(reason, "the changes cannot be followed");
        self.connection(Connection::Down(reason));
        self.close().await
    }

    /// Continues with polls: the stream brought nothing, though the service begins each with a block, so something on the
    /// way keeps back what it sends.
    async fn fall_back(&mut self) -> Result<Option<ChangeEvent>> {
        tracing::debug!("a stream of changes brought nothing: changes are polled");
        self.poll_from_here().await
    }

    async fn poll_from_here(&mut self) -> Result<Option<ChangeEvent>> {
        if self.after.is_none() {
            self.after = match self.client.position().await {
                Ok(position) => Some(position),
                Err(error @ Error::Unavailable { .. }) => return Ok(self.fail(chain(&error)).await),
                Err(error) => return Err(error),
            };
        }
        self.source = Source::Polls;
        Ok(None)
    }

    async fn open(&mut self) -> Result<Option<ChangeEvent>> {
        if self.was_open && self.on_contact.is_some() {
            match self.client.position().await {
                Ok(position) => self.contact(Some(position)),
                Err(error @ Error::Unavailable { .. }) => return Ok(self.fail(chain(&error)).await),
                Err(error) => return Err(error),
            }
        }
        self.was_open = true;
        let until = Instant::now() + OPENING;
        let request = self.filter.apply(Request::get("events")).resume(self.after);
        let Ok(opened) = timeout_at(until, self.client.events(&request)).await else { return self.fall_back().await };
        match opened {
            Ok(events) => {
                self.source = Source::Events { events, until, is_silent: true };
                self.connection(Connection::Up { after: self.after });
            }
            Err(error) if error.oldest().is_some() => return Ok(error.oldest().map(|oldest| self.skip_to(oldest))),
            Err(error) if error.is_transient() => return Ok(self.fail(chain(&error)).await),
            Err(error)
                if matches!(error, RequestError::BadAnswer(_)) || matches!(error.status(), Some(404 | 405 | 501)) =>
            {
                return self.poll_from_here().await;
            }
            Err(error) => return Err(error.into_model(OPERATION)),
        }
        Ok(None)
    }

    async fn poll(&mut self) -> Result<Option<ChangeEvent>> {
        let request = self.filter.apply(Request::get("changes")).query("after", self.after);
        let request = request.query("limit", Some(MAX_PAGE)).query("wait", Some(POLL_SECONDS));
        match self.client.page(&request).await {
            Ok(Ok((found, position))) => {
                self.backoff = backoff();
                self.connection(Connection::Up { after: self.after });
                self.contact(Some(found.last().map_or(position, |change| change.position)));
                if found.is_empty() {
                    self.after = Some(position);
                }
                self.polled.extend(found);
                Ok(None)
            }
            Ok(Err(oldest)) => Ok(Some(self.skip_to(oldest))),
            // The way to the service may be another one afterwards.
            Err(error @ Error::Unavailable { .. }) => Ok(self.fail(chain(&error)).await),
            Err(error) => Err(error),
        }
    }

    fn read(&mut self, event: Sse) -> Result<Option<ChangeEvent>> {
        let id: Option<u64> = event.id.as_deref().and_then(|id| id.parse().ok());
        self.contact(id);
        if let Source::Events { until, is_silent, .. } = &mut self.source {
            (*until, *is_silent) = (Instant::now() + SILENCE, false);
        }
        let data = event.data.as_deref().unwrap_or_default();
        let read = |error: serde_json::Error| unreadable(OPERATION, error);
        let found = match event.event.as_deref() {
            Some("change") => {
                let change: changes::Change = serde_json::from_str(data).map_err(read)?;
                match is_usable(&change) {
                    true => Some(ChangeEvent::Change(Box::new(change.try_into().map_err(invalid(OPERATION))?))),
                    false => None,
                }
            }
            Some("expired") => {
                let Expired { oldest } = serde_json::from_str(data).map_err(read)?;
                self.source = Source::Closed;
                return Ok(Some(self.skip_to(oldest)));
            }
            Some("error") => {
                tracing::debug!(data, "the service has ended the stream of changes");
                let detail = serde_json::from_str::<ProblemDocument>(data).map(|problem| problem.detail);
                self.connection(Connection::Down(format!("the service has failed: {}", detail.unwrap_or_default())));
                None
            }
            _ => None,
        };
        self.backoff = backoff();
        // Moved last, so that a change that was not returned is requested again.
        if id.is_some() {
            self.after = id;
        }
        Ok(found)
    }

    fn skip_to(&mut self, oldest: u64) -> ChangeEvent {
        self.gone_after = self.after.replace(oldest.saturating_sub(1)).unwrap_or_default();
        ChangeEvent::Gone { oldest }
    }
}
