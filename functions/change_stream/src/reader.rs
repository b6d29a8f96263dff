//! The stream of one reader: first what it has missed, read from the feed; then what the hub hands out.

use std::{collections::VecDeque, sync::Arc};

use axum::{body::Bytes, response::Response};
use futures_util::stream;
use nameservice_http::{
    Problem, Shutdown,
    hub::{Batch, End, Entry, Hub, Joined, Subscription},
    shapes::ProblemDocument,
};
use nameservice_model::{ChangeFeed, Error, Limit, Run, RunMemory, chain};
use serde_json::json;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout_at};

use crate::{
    Limits,
    projection::Projection,
    session::too_many_records,
    sse::{self, Text},
};

/// How many changes are read in one request.
pub(crate) const PAGE: Limit = match Limit::new(100) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};
/// How long a reader should wait before it reconnects.
const RETRY: Duration = Duration::from_secs(1);
/// The pauses after failures of the store double from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

pub(crate) struct Reader {
    feed: Arc<dyn ChangeFeed>,
    hub: Hub,
    projection: Projection,
    /// Everything up to here was sent, or is not for this reader.
    after: u64,
    /// What was read there before the stream began.
    first: Option<Run>,
    /// What was read and is not sent yet.
    backlog: VecDeque<Arc<Entry>>,
    /// The end of what was read.
    read_to: u64,
    subscription: Option<Subscription>,
    /// Whether a batch was taken and is not sent yet.
    is_writing: bool,
    has_begun: bool,
    last: Instant,
    limits: Limits,
}

/// The result of a step.
enum Step {
    Send(Bytes),
    /// Progress was made, but there is nothing to send.
    Nothing,
    /// The last frame.
    End(Bytes),
    /// The feed has failed for too long.
    Failed {
        problem: Box<ProblemDocument>,
        reason: String,
    },
}

impl Reader {
    pub(crate) fn new(
        feed: Arc<dyn ChangeFeed>,
        hub: Hub,
        projection: Projection,
        after: u64,
        first: Option<Run>,
        limits: Limits,
    ) -> Self {
        let last = Instant::now();
        let (backlog, subscription) = (VecDeque::new(), None);
        let (read_to, is_writing, has_begun) = (after, false, false);
        Self {
            feed,
            hub,
            projection,
            after,
            first,
            backlog,
            read_to,
            subscription,
            is_writing,
            has_begun,
            last,
            limits,
        }
    }

    /// Returns the answer. It is produced as fast as the reader takes it, and ends if the reader stops reading, and at this time; and whether that
    /// is as long as a stream may last.
    pub(crate) fn stream(self, request_id: String, shutdown: Shutdown, (over, is_whole): (Instant, bool)) -> Response {
        let frames = stream::unfold(Some(Box::new((self, None::<Instant>))), move |state| {
            let (shutdown, request_id) = (shutdown.clone(), request_id.clone());
            async move {
                let mut state = state?;
                let (reader, taken) = &mut *state;
                // The next frame is polled as soon as the last one was sent, which takes longer only if the reader does not read.
                if taken.is_some_and(|taken| taken.elapsed() > reader.limits.write_timeout) {
                    return None;
                }
                let step = tokio::select! {
                    biased;
                    () = shutdown.begun() => reader.close(),
                    () = sleep_until(over) => reader.expire(is_whole),
                    step = reader.next() => step,
                };
                let (frame, is_last) = match step {
                    Step::Send(frame) => (frame, false),
                    Step::Nothing => (Bytes::new(), false),
                    Step::End(frame) => (frame, true),
                    Step::Failed { problem, reason } => {
                        tracing::error!(request_id, error = reason, "a stream of changes has failed");
                        (ended("error", &json!(problem)), true)
                    }
                };
                *taken = Some(Instant::now());
                Some((frame, (!is_last).then_some(state)))
            }
        });
        sse::response(frames)
    }

    /// Ends a stream whose time is over. One of all records that had as much time as it may have (`is_whole`), and has not sent them, will not
    /// send them the next time, either.
    fn expire(&mut self, is_whole: bool) -> Step {
        match is_whole && self.projection.is_opening_of_all() {
            true => {
                let reason = "its time is over before all records were sent".to_owned();
                Step::Failed { problem: Box::new(too_many_records().document()), reason }
            }
            false => self.close(),
        }
    }

    /// Ends the stream with the latest id, so that the reader need not scan again what was not for it.
    fn close(&mut self) -> Step {
        if let Some(subscription) = self.subscription.as_ref().filter(|_| !self.is_writing) {
            self.after = self.after.max(subscription.position());
        }
        let mut text = Text::default();
        self.mark(&mut text, "reconnect");
        Step::End(text.into())
    }

    /// Works until there is something to send.
    async fn next(&mut self) -> Step {
        let mut failing: Option<(Instant, Duration)> = None;
        loop {
            if self.last.elapsed() >= self.limits.heartbeat {
                return self.send("still here");
            }
            match self.step().await {
                Ok(Step::Nothing) => failing = None,
                Ok(Step::Send(frame)) => {
                    self.last = Instant::now();
                    return Step::Send(frame);
                }
                Ok(end) => return end,
                Err(error) => {
                    let (since, pause) = failing.get_or_insert((Instant::now(), PAUSES.0));
                    if since.elapsed() + *pause >= self.limits.retry_for {
                        let reason = chain(&error).to_string();
                        return Step::Failed { problem: Box::new(Problem::from(error).document()), reason };
                    }
                    sleep(*pause).await;
                    *pause = PAUSES.1.min(*pause * 2);
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Step, Error> {
        if !self.has_begun {
            self.has_begun = true;
            let mut text = Text::default();
            text.retry(RETRY);
            self.mark(&mut text, "stream begins");
            return Ok(Step::Send(text.into()));
        }
        if self.projection.is_opening() {
            let mut text = self.projection.open().await?;
            if !self.projection.is_opening() {
                // From here on the reader can resume.
                self.mark(&mut text, "end of records, changes follow");
            }
            return Ok(if text.is_empty() { Step::Nothing } else { Step::Send(text.into()) });
        }
        match &mut self.subscription {
            None => self.read().await,
            Some(subscription) => {
                let silent_at = self.last + self.limits.heartbeat;
                match timeout_at(silent_at, subscription.next()).await {
                    Ok(Ok(batch)) => self.send_batch(&batch).await,
                    Ok(Err(end)) => Ok(self.ended(end)),
                    Err(_) => {
                        self.after = self.after.max(subscription.position());
                        Ok(self.send("still here"))
                    }
                }
            }
        }
    }

    /// Reads the feed, up to where the hub reads it for all readers.
    async fn read(&mut self) -> Result<Step, Error> {
        if !self.backlog.is_empty() {
            return self.send_backlog().await;
        }
        let run = match self.first.take() {
            Some(run) => run,
            None => self.feed.changes(self.after, PAGE).await?,
        };
        let changes = match run {
            Run::Gone { oldest } => return Ok(self.ended(End::Gone { oldest })),
            Run::Changes(changes) => changes,
        };
        let is_the_end = !RunMemory::may_continue(&changes, PAGE.get());
        self.read_to = changes.last().map_or(self.after, |last| last.position);
        self.backlog = self.projection.select(changes).await?;
        if !self.backlog.is_empty() {
            return Ok(Step::Nothing);
        }
        self.after = self.read_to;
        if is_the_end {
            let interest = self.projection.interest();
            if let Joined::Yes(subscription) = self.hub.subscribe(interest, self.after, self.limits.retry_for) {
                self.subscription = Some(subscription);
            }
        }
        Ok(Step::Nothing)
    }

    /// Sends part of the backlog: about as much as may wait for a reader.
    async fn send_backlog(&mut self) -> Result<Step, Error> {
        let mut bytes = 0;
        let fits = |entry: &&Arc<Entry>| {
            bytes += entry.json().len();
            bytes <= self.limits.buffer as usize
        };
        let count = self.backlog.iter().take_while(fits).count().max(1);
        let chunk: Vec<_> = self.backlog.iter().take(count).cloned().collect();
        let text = self.projection.text(&chunk).await?;
        self.backlog.drain(..count);
        self.after = match (self.backlog.is_empty(), chunk.last()) {
            (false, Some(last)) => last.change.position,
            _ => self.read_to,
        };
        Ok(Step::Send(text.into()))
    }

    async fn send_batch(&mut self, batch: &Batch) -> Result<Step, Error> {
        let projection = &self.projection;
        self.is_writing = true;
        let text = batch.text(async |entries| projection.text(entries).await.map(Bytes::from)).await;
        self.is_writing = false;
        match (text, batch.entries.last()) {
            (Ok(text), Some(last)) => {
                self.after = last.change.position;
                Ok(Step::Send(text))
            }
            (Ok(_), None) => Ok(Step::Nothing),
            // The batch is no longer in the queue, so it is read again from the feed.
            (Err(error), _) => {
                self.subscription = None;
                Err(error)
            }
        }
    }

    fn ended(&mut self, end: End) -> Step {
        match end {
            End::Lagging => {
                self.subscription = None;
                Step::Nothing
            }
            End::Gone { oldest } => Step::End(ended("expired", &json!({ "oldest": oldest }))),
            End::Failed(failed) => {
                Step::Failed { problem: Box::new(failed.problem.clone()), reason: failed.reason.clone() }
            }
        }
    }

    fn send(&mut self, comment: &str) -> Step {
        let mut text = Text::default();
        self.mark(&mut text, comment);
        self.last = Instant::now();
        Step::Send(text.into())
    }

    /// Adds a comment, and the position from which a reader that reconnects continues.
    fn mark(&self, text: &mut Text, comment: &str) {
        match (&self.projection, self.id()) {
            (Projection::Changes(_), Some(position)) => text.position(comment, position),
            // Fluree's peers know only the events of records. A reader that forgets the id has that of an earlier event, or is
            // sent all records again.
            (_, id) => text.comment(comment, id),
        }
    }

    /// The position from which a reader that reconnects continues; `None` while it would have to begin again.
    fn id(&self) -> Option<u64> {
        (!self.projection.is_opening()).then_some(self.after)
    }
}

fn ended(event: &str, data: &serde_json::Value) -> Bytes {
    let mut text = Text::default();
    text.event(event, None, &data.to_string());
    text.into()
}
