//! How fresh an answer must be, and how long its reader waits for it.

use std::time::{Duration, SystemTime};

use axum::{
    extract::FromRequestParts,
    http::{HeaderName, HeaderValue, Method, request::Parts},
    response::Response,
};
use nameservice_api as api;
use nameservice_model::{ChangeFeed, ConcernKind, ConcernState, Record, RecordKind, check_watermark};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{app::EndsBy, extract::TokenEnds, problem::Problem};

/// The longest wait, in seconds: a gateway gives up on an answer after 30.
pub const MAX_WAIT_SECONDS: u64 = 20;
/// The position of the change feed that an answer includes: everything up to it is in the answer.
pub const POSITION: HeaderName = HeaderName::from_static("nameservice-position");
/// Delays between two reads if the feed cannot be waited on: the first, and the longest.
const DELAYS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// The part of an invocation that is reserved for its answer.
const BEFORE_THE_END: Duration = Duration::from_secs(2);

/// When the runtime ends the request, and when its caller's token does, if that is known. It is extracted after the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline {
    /// When the runtime ends the request.
    runtime: Option<SystemTime>,
    /// When the caller's token ends.
    token: Option<SystemTime>,
}

impl<S: Sync> FromRequestParts<S> for Deadline {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let token = parts.extensions.get().and_then(|TokenEnds(end)| *end);
        Ok(Self { runtime: parts.extensions.get().map(|EndsBy(end)| *end), token })
    }
}

/// How fresh an answer must be.
#[derive(Clone, Debug)]
pub struct Freshness {
    position: Option<u64>,
    watermark: Option<(ConcernKind, i64)>,
    until: Instant,
    delay: Duration,
}

/// What a read found to be not fresh enough.
enum Older {
    Position(u64),
    Watermark,
}

impl Freshness {
    /// Returns what the query parameters `min_position` and `wait` ask for.
    pub fn of_position(min_position: Option<u64>, wait: Option<u64>, deadline: Deadline) -> Result<Self, Problem> {
        let wait = wait.unwrap_or(0);
        if wait > MAX_WAIT_SECONDS {
            return Err(Problem::invalid_parameter("wait", format!("must be between 0 and {MAX_WAIT_SECONDS}")));
        }
        let mut wait = Duration::from_secs(wait);
        if let Some(end) = deadline.token {
            wait = wait.min(end.duration_since(SystemTime::now()).unwrap_or_default());
        }
        if let Some(end) = deadline.runtime {
            let left = end.duration_since(SystemTime::now()).unwrap_or_default();
            wait = wait.min(left.saturating_sub(BEFORE_THE_END));
        }
        Ok(Self { position: min_position, watermark: None, until: Instant::now() + wait, delay: DELAYS.0 })
    }

    /// Adds what `min_t` or `min_v` asks for, of this concern.
    pub fn with_watermark(
        mut self,
        min_t: Option<i64>,
        min_v: Option<i64>,
        concern: Option<ConcernKind>,
    ) -> Result<Self, Problem> {
        use ConcernKind::{Config, Head, Index, Status};
        for (name, value) in [("min_t", min_t), ("min_v", min_v)] {
            if let Some(Err(reason)) = value.map(|value| check_watermark(name, value, 0)) {
                return Err(Problem::invalid_parameter(name, reason.reason));
            }
        }
        self.watermark = match (min_t, min_v, concern) {
            (None, None, None) => None,
            (None, None, Some(_)) => {
                return Err(Problem::invalid_parameter("concern", "goes with `min_t` or `min_v`"));
            }
            (Some(_), Some(_), _) => return Err(Problem::invalid_parameter("min_v", "`min_t` is given, too")),
            (Some(t), None, None) => Some((Head, t)),
            (Some(t), None, Some(concern @ (Head | Index))) => Some((concern, t)),
            (None, Some(v), Some(concern @ (Status | Config))) => Some((concern, v)),
            (None, Some(_), None) => {
                return Err(Problem::invalid_parameter("concern", "`min_v` needs `status` or `config`"));
            }
            (Some(_), None, Some(_)) => {
                return Err(Problem::invalid_parameter("concern", "`min_t` applies to `head` or `index`"));
            }
            (None, Some(_), Some(_)) => {
                return Err(Problem::invalid_parameter("concern", "`min_v` applies to `status` or `config`"));
            }
        };
        Ok(self)
    }

    /// Reads until the answer is fresh enough: at this position, or a record with this watermark. If that takes too long,
    /// the problem shows the current state.
    pub async fn read<T, F: Future<Output = nameservice_model::Result<T>>>(
        mut self,
        feed: &dyn ChangeFeed,
        mut read: impl FnMut() -> F,
        record: impl Fn(&T) -> Option<&Record>,
    ) -> Result<T, Problem> {
        loop {
            // Taken before the read, so that a change after it ends the wait.
            let is_asked = self.position.is_some() || (self.watermark.is_some() && feed.is_immediate());
            let position = if is_asked { Some(feed.position().await?) } else { None };
            let found = read().await?;
            if let (Some((ConcernKind::Head, _)), Some(RecordKind::GraphSource)) =
                (self.watermark, record(&found).map(|record| record.kind))
            {
                return Err(Problem::invalid_parameter(
                    "min_t",
                    "applies to heads; a graph source has no head: use concern=index",
                ));
            }
            let older = match (self.position, position) {
                (Some(wanted), Some(position)) if position < wanted => Older::Position(position),
                _ if self.is_older(record(&found)) => Older::Watermark,
                _ => return Ok(found),
            };
            if !self.wait(feed, position).await {
                return Err(self.not_yet(&older, record(&found)));
            }
        }
    }

    fn is_older(&self, record: Option<&Record>) -> bool {
        self.watermark.is_some_and(|(concern, wanted)| {
            record.and_then(|record| state(record, concern)).is_none_or(|state| state.v() < wanted)
        })
    }

    /// Waits for a change. Returns whether there is time left for another read.
    async fn wait(&mut self, feed: &dyn ChangeFeed, position: Option<u64>) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        match position.filter(|_| feed.is_immediate()) {
            // A failure shows in the next read.
            Some(position) => drop(timeout_at(self.until, feed.wait(position, left)).await),
            None => {
                sleep(self.delay.min(left)).await;
                self.delay = DELAYS.1.min(self.delay * 2);
            }
        }
        true
    }

    fn not_yet(&self, older: &Older, record: Option<&Record>) -> Problem {
        match (older, self.position, self.watermark) {
            (Older::Position(position), Some(wanted), _) => Problem::position_not_yet(wanted, *position),
            (_, _, Some((concern, wanted))) => {
                Problem::watermark_not_yet(concern, wanted, record.map(api::Record::from).as_ref())
            }
            _ => Problem::position_not_yet(0, 0),
        }
    }
}

fn state(record: &Record, concern: ConcernKind) -> Option<ConcernState> {
    Some(match concern {
        ConcernKind::Head => record.head.clone()?.into(),
        ConcernKind::Index => record.index.clone().into(),
        ConcernKind::Status => record.status.clone().into(),
        ConcernKind::Config => record.config.clone().into(),
    })
}

/// Adds to an answer the position of the feed that it includes, if the feed holds a write by the time it is answered. For
/// a read that is the position before it, for a write the one after it.
pub(crate) enum Positioned {
    Unknown,
    Read(u64),
    Write,
}

impl Positioned {
    pub(crate) async fn begin(feed: &dyn ChangeFeed, method: &Method) -> Self {
        match *method {
            _ if !feed.is_immediate() => Self::Unknown,
            Method::GET | Method::HEAD => feed.position().await.map_or(Self::Unknown, Self::Read),
            _ => Self::Write,
        }
    }

    pub(crate) async fn end(self, feed: &dyn ChangeFeed, response: &mut Response) {
        // A rejection that shows the stored value also shows it as of a position.
        if !matches!(response.status().as_u16(), 200..=399 | 409 | 410 | 422) {
            return;
        }
        let position = match self {
            Self::Unknown => return,
            Self::Read(position) => position,
            Self::Write => match feed.position().await {
                Ok(position) => position,
                Err(_) => return,
            },
        };
        // Unless the handler has set a more exact one.
        response.headers_mut().entry(POSITION).or_insert(HeaderValue::from(position));
    }
}
