//! Following the feed for one reader.

use std::sync::Arc;

use nameservice_http::{
    Problem, Shutdown,
    extract::{Allowed, Read},
};
use nameservice_model::{ChangeFeed, Error, Limit, Run, chain};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use crate::{
    Limits,
    outlet::{Cut, Outlet},
    story::Story,
};

/// How many changes are read at once.
pub(crate) const PAGE: usize = 100;
/// How long a reader should wait before it comes back.
const RETRY: Duration = Duration::from_secs(1);
/// The pauses after failures of the store double from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Why nothing more is told.
pub(crate) enum Stop {
    /// The stream has ended, or nobody reads it.
    Over,
    /// The store has failed. It may yet come back.
    Failed(Error),
}

impl From<Cut> for Stop {
    fn from(_: Cut) -> Self {
        Self::Over
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(crate) struct Follower {
    feed: Arc<dyn ChangeFeed>,
    caller: Allowed<Read>,
    story: Story,
    /// Everything up to here was told, or is not for this reader.
    after: u64,
    /// What was found there before the stream began.
    first: Option<Run>,
    outlet: Outlet,
    limits: Limits,
    request_id: String,
}

impl Follower {
    #[allow(clippy::too_many_arguments, reason = "called once")]
    pub(crate) fn new(
        feed: Arc<dyn ChangeFeed>,
        caller: Allowed<Read>,
        story: Story,
        after: u64,
        first: Option<Run>,
        outlet: Outlet,
        limits: Limits,
        request_id: String,
    ) -> Self {
        Self { feed, caller, story, after, first, outlet, limits, request_id }
    }

    /// Tells until there is nobody to tell, or no time.
    pub(crate) async fn run(mut self, shutdown: Shutdown, over: Instant) {
        let gone = self.outlet.gone();
        let told = tokio::select! {
            () = self.tell() => false,
            () = gone => false,
            () = shutdown.begun() => true,
            () = sleep_until(over) => true,
        };
        if told {
            // The reader shall not have to look again through what was not for it. Whoever does not read, need not know.
            let id = self.id();
            let _ = timeout(Duration::ZERO, self.outlet.remark("come back", id)).await;
        }
    }

    async fn tell(&mut self) {
        if self.outlet.greet("here begins the stream", self.id(), RETRY).await.is_err() {
            return;
        }
        let mut failing: Option<(Instant, Duration)> = None;
        loop {
            match self.step().await {
                Ok(()) => failing = None,
                Err(Stop::Over) => return,
                Err(Stop::Failed(error)) => {
                    let (since, pause) = failing.get_or_insert((Instant::now(), PAUSES.0));
                    if since.elapsed() + *pause >= self.limits.retry_for {
                        return self.fail(error).await;
                    }
                    sleep(*pause).await;
                    *pause = PAUSES.1.min(*pause * 2);
                }
            }
            let silent = self.outlet.silence() >= self.limits.heartbeat;
            if silent && self.outlet.remark("still here", self.id()).await.is_err() {
                return;
            }
        }
    }

    /// One piece of the story: a page of records, of changes, or a wait for them.
    async fn step(&mut self) -> Result<(), Stop> {
        if self.story.is_opening() {
            self.story.open(&self.caller, &mut self.outlet).await?;
            if !self.story.is_opening() {
                // From here on the reader can come back.
                self.outlet.remark("these were the records, changes follow", self.id()).await?;
            }
            return Ok(());
        }
        let run = match self.first.take() {
            Some(run) => run,
            None => self.feed.changes(self.after, Limit::new(PAGE).unwrap_or_default()).await?,
        };
        match run {
            Run::Gone { oldest } => {
                self.outlet.tell("expired", None, json!({ "oldest": oldest }).to_string()).await?;
                Err(Stop::Over)
            }
            Run::Changes(changes) if changes.is_empty() => {
                let left = self.limits.heartbeat.saturating_sub(self.outlet.silence());
                Ok(self.feed.wait(self.after, left).await?)
            }
            Run::Changes(changes) => self.story.go_on(&changes, &self.caller, &mut self.outlet, &mut self.after).await,
        }
    }

    /// Where a reader that comes back goes on; `None` while that is the beginning.
    fn id(&self) -> Option<u64> {
        (!self.story.is_opening()).then_some(self.after)
    }

    async fn fail(&mut self, error: Error) {
        tracing::error!(request_id = self.request_id, error = chain(&error), "a stream of changes has failed");
        let problem = json!(Problem::from(error).document());
        // The end says so too.
        let _ = self.outlet.tell("error", None, problem.to_string()).await;
    }
}
