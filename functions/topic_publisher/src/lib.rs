//! The publisher of the topic: the feed → an SNS topic, at least once, sent in the order of each record's changes.
//!
//! The stream of the feed's table invokes it after each append. The event only shows that there is something: the publisher reads the
//! feed from a checkpoint of its own to the end, so that it continues where it was after a failure, however long that took. A schedule
//! invokes it, too, for what no longer has an event. The feed waits for none of this.
//!
//! What can never be published is a dead letter, and the next one follows: a change that the topic rejects because of what it is, with its
//! position and the reason, and changes that have left the feed, with the first and the last of their positions. Everything else that
//! fails is repeated: the invocation fails, and Lambda invokes the function again.

mod letters;
mod topic;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use lambda_runtime::{LambdaEvent, service_fn};
use metrics::{counter, gauge, histogram};
use nameservice_dynamo::{lambda_config, variable};
use nameservice_feed::Feed;
use nameservice_model::{BoxError, Change, Error, Limit, Run, chain};
use nameservice_store::Store;
use serde_json::Value;
use tokio::time::{Instant, sleep};

pub use letters::{DeadLetters, Letter, QueueOfDeadLetters};
pub use topic::{Published, Rejected, SnsTopic, Topic, cloud_event};

/// The ARN of the topic.
const TOPIC: &str = "NAMESERVICE_TOPIC_ARN";
/// The URL of the dead-letter queue.
const DEAD_LETTERS: &str = "NAMESERVICE_DEAD_LETTER_QUEUE_URL";
/// Names the checkpoint.
const SINK: &str = "topic";
/// How many changes are published before the checkpoint is saved: at most that many are published again after a failure.
const RUN: Limit = match Limit::new(100) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};
/// The part of an invocation in which nothing more is published: it is for the requests under way, the checkpoint and the answer.
const BEFORE_THE_END: Duration = Duration::from_secs(20);
/// How often, and after which backoff, changes are looked for that the feed counts and does not show yet.
const LOOKS: usize = 10;
const BACKOFF: Duration = Duration::from_millis(100);

/// Publishes the changes of a feed to a topic. Cheap to clone.
#[derive(Clone)]
pub struct TopicPublisher {
    feed: Feed,
    topic: Arc<dyn Topic>,
    dead_letters: Arc<dyn DeadLetters>,
}

/// What a publisher has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The position up to which everything was published or rejected.
    pub position: u64,
    /// How many messages were published.
    pub published: usize,
    /// How many are dead letters, since the topic rejects them permanently.
    pub rejected: usize,
}

/// The reason why not everything in the feed was published.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The feed cannot be read, or the checkpoint not be saved.
    #[error("the feed cannot be read, or the checkpoint not be saved")]
    Feed(#[from] Error),
    /// The topic does not take the next change now.
    #[error("the change at position {position} was not published")]
    NotPublished {
        /// Its position.
        position: u64,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// A dead letter could not be stored.
    #[error("the change at position {position} can never be published, and its dead letter could not be stored")]
    NoDeadLetter {
        /// The position.
        position: u64,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// The deadline has passed, or the last changes cannot be read yet. The next invocation continues.
    #[error("the feed continues after position {position}")]
    More {
        /// The position that was reached.
        position: u64,
    },
}

impl TopicPublisher {
    /// Creates a publisher of this feed.
    pub fn new(feed: Feed, topic: Arc<dyn Topic>, dead_letters: Arc<dyn DeadLetters>) -> Self {
        Self { feed, topic, dead_letters }
    }

    /// Publishes what follows the checkpoint, up to the end of the feed, or until this time. Without a checkpoint, it begins with the
    /// transaction that has appended the change at `first`, and does nothing if there is none.
    pub async fn catch_up(&self, first: Option<u64>, until: Option<Instant>) -> Result<Progress, Failure> {
        let position = match (self.feed.reached(SINK).await?, first) {
            (Some(reached), _) => reached,
            // Saved before anything is published: a later event begins later.
            (None, Some(first)) => self.feed.begin_sink(SINK, self.feed.before(first).await?).await?,
            (None, None) => return Ok(Progress::default()),
        };
        let mut progress = Progress { position, ..Progress::default() };
        let mut looks = 0;
        loop {
            if until.is_some_and(|until| Instant::now() >= until) || looks == LOOKS {
                return Err(Failure::More { position: progress.position });
            }
            let (run, end) = self.feed.run(progress.position, RUN).await?;
            let changes = match run {
                Run::Changes(changes) => changes,
                Run::Gone { oldest } => {
                    self.lose(oldest, &mut progress).await?;
                    continue;
                }
            };
            // If it fails, this is how far the topic is behind.
            behind(end, &progress);
            self.publish(&changes, until, &mut progress).await?;
            behind(end, &progress);
            if progress.position >= end {
                return Ok(progress);
            }
            // A transaction that is being applied hides its changes for a moment.
            if changes.is_empty() {
                looks += 1;
                sleep(BACKOFF).await;
            } else {
                looks = 0;
            }
        }
    }

    /// Publishes these changes, and saves the checkpoint after those that are done.
    async fn publish(
        &self,
        changes: &[Change],
        until: Option<Instant>,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        if changes.is_empty() {
            return Ok(());
        }
        let Published { done, rejected, error } = self.topic.publish(changes, until).await;
        let (mut done, mut stored) = (done.min(changes.len()), 0);
        let next = changes.get(done).map(|change| change.position);
        let mut failure = error.zip(next).map(|(source, position)| Failure::NotPublished { position, source });
        for Rejected { place, reason } in rejected {
            let Some(change) = changes.get(place).filter(|_| place < done) else { continue };
            let position = change.position;
            if until.is_some_and(|until| Instant::now() >= until) {
                (done, failure) = (place, None);
                break;
            }
            tracing::error!(position, reason, "the topic rejects a change permanently");
            if let Err(source) = self.dead_letters.store(Letter::Rejected { change, reason: &reason }).await {
                (done, failure) = (place, Some(Failure::NoDeadLetter { position, source }));
                break;
            }
            stored += 1;
        }
        if let Some(last) = changes.get(..done).and_then(<[Change]>::last) {
            progress.position = last.position;
            progress.published += done - stored;
            progress.rejected += stored;
            measure(last, done - stored, stored);
            if !self.feed.set_reached(SINK, progress.position).await? {
                // Another invocation is further on: what it has published is not published again.
                progress.position = progress.position.max(self.feed.reached(SINK).await?.unwrap_or_default());
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Continues with the oldest change that can be read. What was before it, or in the feed that was replaced, is a dead letter.
    async fn lose(&self, oldest: u64, progress: &mut Progress) -> Result<(), Failure> {
        let (reached, next) = (progress.position, oldest.saturating_sub(1));
        tracing::error!(reached, oldest, "what follows is no longer in the feed");
        let stored = self.dead_letters.store(Letter::Lost { reached, oldest }).await;
        stored.map_err(|source| Failure::NoDeadLetter { position: reached + 1, source })?;
        counter!("nameservice_topic_messages_total", "outcome" => "lost").increment(next.saturating_sub(reached));
        self.feed.reset_reached(SINK, next).await?;
        progress.position = next;
        Ok(())
    }
}

/// Records how many changes of the feed are not published.
fn behind(end: u64, progress: &Progress) {
    gauge!("nameservice_topic_lag_changes").set(end.saturating_sub(progress.position) as f64);
}

/// Records what has become of the messages of a run, the checkpoint, and how late the last change is.
fn measure(last: &Change, published: usize, rejected: usize) {
    counter!("nameservice_topic_messages_total", "outcome" => "published").increment(published as u64);
    if rejected > 0 {
        counter!("nameservice_topic_messages_total", "outcome" => "rejected").increment(rejected as u64);
    }
    gauge!("nameservice_topic_position").set(last.position as f64);
    let lag = Timestamp::now().duration_since(last.recorded_at).as_secs_f64();
    // Not negative, even if clocks differ.
    histogram!("nameservice_topic_lag_seconds").record(lag.max(0.0));
}

/// Returns the position of the first segment of an event of the stream of the feed's table; `None` if it has none.
pub fn first_of(event: &Value) -> Option<u64> {
    let records = event["Records"].as_array()?;
    let position = |record: &Value| record["dynamodb"]["Keys"]["position"]["S"].as_str()?.parse().ok();
    records.iter().filter_map(position).min()
}

/// Answers invocations until the runtime ends: the `main` of the function, over the feed, the topic and the queue that its environment
/// names.
pub async fn run(store: Store, feed: Feed) -> Result<(), lambda_runtime::Error> {
    let config = lambda_config();
    let topic = variable(TOPIC).ok_or_else(|| format!("{TOPIC} is not set"))?;
    let queue = variable(DEAD_LETTERS).ok_or_else(|| format!("{DEAD_LETTERS} is not set"))?;
    let topic = SnsTopic::new(aws_sdk_sns::Client::new(&config), topic, store.table());
    let dead_letters = QueueOfDeadLetters::new(aws_sdk_sqs::Client::new(&config), queue);
    let publisher = TopicPublisher::new(feed, Arc::new(topic), Arc::new(dead_letters));
    lambda_runtime::run(service_fn(async |event: LambdaEvent<Value>| {
        let deadline = UNIX_EPOCH + Duration::from_millis(event.context.deadline);
        let left = deadline.duration_since(SystemTime::now()).unwrap_or_default();
        let until = Instant::now() + left.saturating_sub(BEFORE_THE_END);
        let done = publisher.catch_up(first_of(&event.payload), Some(until)).await;
        nameservice_lambda::write_metrics();
        match done {
            Ok(Progress { position, published, rejected }) => {
                tracing::info!(position, published, rejected, "published");
                Ok(())
            }
            // The event is delivered again, for as long as the stream has it.
            Err(failure) => Err(lambda_runtime::Error::from(chain(&failure))),
        }
    }))
    .await
}
