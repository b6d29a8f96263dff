//! What a stream is for, and for how long.

use std::{sync::Arc, time::SystemTime};

use axum::{
    Extension,
    extract::{FromRef, FromRequestParts},
    http::{HeaderMap, HeaderName, request::Parts},
    response::Response,
};
use nameservice_http::{
    App, EndsBy, Problem, REQUEST_ID, Shutdown,
    extract::{Allowed, Read},
};
use nameservice_model::{ChangeFeed, Run};
use tokio::time::{Duration, Instant};

use crate::{Limits, follow::Follower, outlet, story::Story};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long before Lambda ends an invocation its stream ends by itself.
const BEFORE_THE_END: Duration = Duration::from_secs(10);

/// One reader's stream, before it begins.
pub(crate) struct Session {
    caller: Allowed<Read>,
    limits: Limits,
    headers: HeaderMap,
    ends_by: Option<SystemTime>,
    shutdown: Shutdown,
}

impl FromRequestParts<App> for Session {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = Allowed::from_request_parts(parts, app).await?;
        let Extension(limits) = Extension::<Limits>::from_request_parts(parts, app).await.map_err(Problem::internal)?;
        Ok(Self {
            caller,
            limits,
            headers: parts.headers.clone(),
            ends_by: parts.extensions.get().and_then(|EndsBy(end)| end.checked_sub(BEFORE_THE_END)),
            shutdown: Shutdown::from_ref(app),
        })
    }
}

impl Session {
    /// The position that the reader names; `None` where it names none. One that was never sent is refused.
    pub(crate) fn last_event_id(&self) -> Result<Option<u64>, Problem> {
        let mut values = self.headers.get_all(LAST_EVENT_ID).iter();
        let Some(value) = values.next().filter(|value| !value.is_empty()) else { return Ok(None) };
        let digits = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        match digits.and_then(|text| text.parse().ok()) {
            Some(position) if values.next().is_none() => Ok(Some(position)),
            _ => Err(Problem::invalid_parameter("Last-Event-ID", "is not an id that this service gave")),
        }
    }

    /// Begins to tell, after this position; `first` is what was found there.
    pub(crate) fn start(self, feed: Arc<dyn ChangeFeed>, story: Story, after: u64, first: Option<Run>) -> Response {
        let request_id = self.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
        let over = Instant::now() + self.left();
        let (outlet, response) = outlet::open(self.limits.buffer, self.limits.patience);
        let follower = Follower::new(feed, self.caller, story, after, first, outlet, self.limits, request_id);
        tokio::spawn(follower.run(self.shutdown, over));
        response
    }

    /// How long the stream may last.
    fn left(&self) -> Duration {
        let now = SystemTime::now();
        let ends = [self.caller.expires_at(), self.ends_by].into_iter().flatten();
        let left = ends.map(|end| end.duration_since(now).unwrap_or_default());
        left.fold(self.limits.lifetime, Duration::min)
    }
}
