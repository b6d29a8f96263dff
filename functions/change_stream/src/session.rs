//! One reader's stream: who reads, where it begins, and for how long it may last.

use std::{sync::Arc, time::SystemTime};

use axum::{
    Extension,
    extract::{FromRef, FromRequestParts},
    http::{HeaderMap, HeaderName, request::Parts},
    response::Response,
};
use nameservice_http::{
    App, EndsBy, Problem, REQUEST_ID, Shutdown,
    extract::{Allowed, Needs},
    hub::Hub,
};
use nameservice_model::{ChangeFeed, NameService, Run, chain};
use tokio::time::{Duration, Instant};

use crate::{Limits, projection::Projection, reader::Reader};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long before Lambda ends an invocation its stream ends.
const BEFORE_THE_END: Duration = Duration::from_secs(10);
/// How long a stream lasts on Lambda whose reader resumes where it was. Lambda does not see that a reader has left: until then an
/// abandoned stream takes its instance.
const RESUMED_AFTER: Duration = Duration::from_secs(90);

/// Returns the answer to a reader of more records than a stream can send.
pub(crate) fn too_many_records() -> Problem {
    Problem::answer_too_large(
        "a stream ends before it has sent all records, and its reader would only begin again: name the records, or read from a \
         replica (`nameservice serve --upstream URL`), which sends them from its memory",
    )
}

/// One reader's stream, before it begins.
pub(crate) struct Session<N> {
    pub(crate) caller: Allowed<N>,
    pub(crate) feed: Arc<dyn ChangeFeed>,
    hub: Hub,
    limits: Limits,
    headers: HeaderMap,
    ends_by: Option<SystemTime>,
    shutdown: Shutdown,
}

impl<N: Needs> FromRequestParts<App> for Session<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = Allowed::from_request_parts(parts, app).await?;
        let Extension(limits) = Extension::<Limits>::from_request_parts(parts, app).await.map_err(Problem::internal)?;
        Ok(Self {
            caller,
            feed: FromRef::from_ref(app),
            hub: FromRef::from_ref(app),
            limits,
            headers: parts.headers.clone(),
            ends_by: parts.extensions.get().and_then(|EndsBy(end)| end.checked_sub(BEFORE_THE_END)),
            shutdown: FromRef::from_ref(app),
        })
    }
}

impl<N: Needs> Session<N> {
    /// The position that the reader gives; `None` if it gives none. One that was never sent is rejected.
    pub(crate) fn last_event_id(&self) -> Result<Option<u64>, Problem> {
        let mut values = self.headers.get_all(LAST_EVENT_ID).iter();
        let Some(value) = values.next().filter(|value| !value.is_empty()) else { return Ok(None) };
        let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|text| text.parse().ok()) {
            Some(position) if values.next().is_none() => Ok(Some(position)),
            _ => Err(Problem::invalid_parameter("Last-Event-ID", "is not an id that this service issued")),
        }
    }

    /// Rejects a stream of all records if there are more than it can send. A store that cannot count them is no reason.
    pub(crate) async fn check_fits(&self, names: &dyn NameService) -> Result<(), Problem> {
        match names.approximate_count().await {
            Ok(Some(count)) if count > self.limits.records => Err(too_many_records()),
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "the records were not counted: a stream of them may end before its last one"
                );
                Ok(())
            }
        }
    }

    /// Begins the stream after this position; `first` is what was found there. Its reader resumes it by the last id.
    pub(crate) fn start(self, projection: Projection, after: u64, first: Option<Run>) -> Response {
        let longest = if self.ends_by.is_some() { RESUMED_AFTER } else { self.limits.lifetime };
        self.begin(projection, after, first, longest)
    }

    /// Begins a stream whose reader is sent everything once more when it ends, so that it lasts as long as it can.
    pub(crate) fn start_whole(self, projection: Projection, after: u64, first: Option<Run>) -> Response {
        let longest = self.limits.lifetime;
        self.begin(projection, after, first, longest)
    }

    fn begin(self, projection: Projection, after: u64, first: Option<Run>, longest: Duration) -> Response {
        let request_id = self.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
        let left = self.left(longest);
        // A token that ends before says nothing of how many records there are.
        let is_whole = self.caller.expires_at().is_none_or(|end| end > SystemTime::now() + left);
        let Self { feed, hub, limits, shutdown, .. } = self;
        let reader = Reader::new(feed, hub, projection, after, first, limits);
        reader.stream(request_id, shutdown, (Instant::now() + left, is_whole))
    }

    /// How long the stream may last: at most this long.
    fn left(&self, longest: Duration) -> Duration {
        let now = SystemTime::now();
        let ends = [self.caller.expires_at(), self.ends_by].into_iter().flatten();
        let left = ends.map(|end| end.duration_since(now).unwrap_or_default());
        left.fold(longest, Duration::min)
    }
}
