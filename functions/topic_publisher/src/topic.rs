//! An SNS topic, and its messages: CloudEvents with attributes to filter by.

use std::collections::{HashSet, VecDeque};

use async_trait::async_trait;
use aws_sdk_sns::{
    error::ProvideErrorMetadata,
    operation::publish_batch::PublishBatchError,
    types::{BatchResultErrorEntry, MessageAttributeValue, PublishBatchRequestEntry},
};
use cloudevents::{Event, EventBuilder, EventBuilderV10};
use futures_util::future::join_all;
use nameservice_api::changes::Change as Shape;
use nameservice_feed::FEED_ID;
use nameservice_lambda::queue_json;
use nameservice_model::{BoxError, Change, chain};
use tokio::time::Instant;

/// Limits of PublishBatch (<https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html>): messages per
/// request, and bytes in total.
const MAX_BATCH: usize = 10;
const MAX_BATCH_BYTES: usize = 256 * 1024;
/// How many requests are under way at the same time.
const AT_ONCE: usize = 10;

/// Codes of SNS for messages that it rejects because of what they are.
const ABOUT_MESSAGES: [&str; 4] =
    ["BatchRequestTooLong", "InvalidParameter", "InvalidParameterValue", "ParameterValueInvalid"];

/// Publishes changes to subscribers.
#[async_trait]
pub trait Topic: Send + Sync {
    /// Sends changes, those of a record in order. If one of a request fails, those after it in the request may arrive before it, and
    /// again after it. Publishing a change again is harmless: it has the same id. After `until`, no request is sent.
    async fn publish(&self, changes: &[Change], until: Option<Instant>) -> Published;
}

/// What has become of some changes.
#[derive(Debug, Default)]
pub struct Published {
    /// How many are done, counted from the first: they were published, or rejected permanently.
    pub done: usize,
    /// Those of them that were rejected permanently, in order.
    pub rejected: Vec<Rejected>,
    /// The reason why the next one was not published, if it failed. Those after it may have been published.
    pub error: Option<BoxError>,
}

impl Published {
    /// Records that a change failed, unless an earlier one did.
    fn stop_at(&mut self, place: usize, error: BoxError) {
        if place < self.done {
            (self.done, self.error) = (place, Some(error));
        }
    }
}

/// A change that the topic rejects because of what it is: it can never be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its index among the changes.
    pub place: usize,
    /// The topic's reason.
    pub reason: String,
}

/// An SNS topic.
pub struct SnsTopic {
    client: aws_sdk_sns::Client,
    arn: String,
    source: String,
}

impl SnsTopic {
    /// Creates the topic of this ARN, for the changes of this table.
    pub fn new(client: aws_sdk_sns::Client, arn: impl Into<String>, table: &str) -> Self {
        Self { client, arn: arn.into(), source: source_of(table) }
    }

    /// Publishes messages in one request, each under its place.
    async fn send(&self, messages: &[Message]) -> Sent {
        let entries = messages.iter().map(Message::entry).collect::<Result<Vec<_>, _>>();
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return Sent::Failed(error.into()),
        };
        let request = self.client.publish_batch().topic_arn(&self.arn).set_publish_batch_request_entries(Some(entries));
        match request.send().await {
            Ok(output) => Sent::Answered(output.failed.unwrap_or_default()),
            Err(error) if error.as_service_error().is_some_and(is_about_messages) => Sent::Rejected(chain(&error)),
            Err(error) => Sent::Failed(error.into()),
        }
    }
}

/// The outcome of a request.
enum Sent {
    /// It was answered; these of its messages were not published.
    Answered(Vec<BatchResultErrorEntry>),
    /// It was rejected as a whole because of its messages.
    Rejected(String),
    /// It failed, or was rejected for another reason.
    Failed(BoxError),
}

/// Returns whether a request was rejected because of what its messages are. Permissions, keys and the topic's name can be repaired.
fn is_about_messages(error: &PublishBatchError) -> bool {
    let is_about_topic = error.meta().message().is_some_and(|message| message.contains("TopicArn"));
    error.code().is_some_and(|code| ABOUT_MESSAGES.contains(&code)) && !is_about_topic
}

/// Returns whether a message of a request was rejected because of what it is. Missing permissions and keys are the sender's fault, too.
fn is_about_message(failure: &BatchResultErrorEntry) -> bool {
    failure.sender_fault() && ABOUT_MESSAGES.contains(&failure.code())
}

/// A message, and the index of its change.
struct Message {
    place: usize,
    body: String,
    attributes: Vec<(&'static str, String)>,
}

impl Message {
    fn of(source: &str, place: usize, change: &Change) -> Result<Self, BoxError> {
        // A subscribed queue would not get the message otherwise.
        let body = queue_json(serde_json::to_string(&cloud_event(source, change)?)?);
        Ok(Self { place, body, attributes: attributes(change) })
    }

    /// Returns how many bytes it takes of a request.
    fn size(&self) -> usize {
        self.body.len()
            + self.attributes.iter().map(|(name, value)| name.len() + value.len() + "String".len()).sum::<usize>()
    }

    fn entry(&self) -> Result<PublishBatchRequestEntry, aws_sdk_sns::error::BuildError> {
        let mut entry = PublishBatchRequestEntry::builder().id(self.place.to_string()).message(&self.body);
        for (name, value) in &self.attributes {
            let value = MessageAttributeValue::builder().data_type("String").string_value(value).build()?;
            entry = entry.message_attributes(*name, value);
        }
        entry.build()
    }
}

#[async_trait]
impl Topic for SnsTopic {
    async fn publish(&self, changes: &[Change], until: Option<Instant>) -> Published {
        let mut published = Published::default();
        // The requests that follow, each with at least one message.
        let mut requests: VecDeque<Vec<Message>> = VecDeque::new();
        let mut bytes = 0;
        for (place, change) in changes.iter().enumerate() {
            let message = match Message::of(&self.source, place, change) {
                Ok(message) => message,
                Err(source) => {
                    // Nothing that is stored now will make a message of it later.
                    published.rejected.push(Rejected { place, reason: chain(source.as_ref()) });
                    continue;
                }
            };
            bytes += message.size();
            match requests.back_mut() {
                Some(request) if request.len() < MAX_BATCH && bytes <= MAX_BATCH_BYTES => request.push(message),
                _ => {
                    bytes = message.size();
                    requests.push_back(vec![message]);
                }
            }
        }
        published.done = changes.len();
        while !requests.is_empty() && published.error.is_none() {
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            let wave = wave(&mut requests, changes);
            let sent = join_all(wave.iter().map(|request| self.send(request))).await;
            let mut again = Vec::new();
            for (mut request, sent) in wave.into_iter().zip(sent) {
                match sent {
                    Sent::Answered(failures) => {
                        for failure in failures {
                            // Under another id than those that were sent: which one failed is not known.
                            let place = failure
                                .id()
                                .parse()
                                .ok()
                                .filter(|place| request.iter().any(|sent| sent.place == *place));
                            let place = place.unwrap_or(request[0].place);
                            let reason = format!("{}: {}", failure.code(), failure.message().unwrap_or_default());
                            match is_about_message(&failure) {
                                true => published.rejected.push(Rejected { place, reason }),
                                false => published.stop_at(place, reason.into()),
                            }
                        }
                    }
                    // Which of them it is about is seen if each is sent alone.
                    Sent::Rejected(_) if request.len() > 1 => {
                        let second = request.split_off(request.len() / 2);
                        again.extend([request, second]);
                    }
                    Sent::Rejected(reason) => published.rejected.extend(
                        request.iter().map(|message| Rejected { place: message.place, reason: reason.clone() }),
                    ),
                    Sent::Failed(error) => published.stop_at(request[0].place, error),
                }
            }
            // Before the next ones of the same records.
            for request in again.into_iter().rev() {
                requests.push_front(request);
            }
        }
        // What is left after a failure was not sent, though its change may be before the one that failed.
        if let Some(first) = requests.front() {
            published.done = published.done.min(first[0].place);
        }
        published.rejected.retain(|rejected| rejected.place < published.done);
        published.rejected.sort_by_key(|rejected| rejected.place);
        published
    }
}

/// Takes the first requests that can be under way at the same time: no two of them have changes of the same record, so that each record's
/// changes arrive in order.
fn wave(requests: &mut VecDeque<Vec<Message>>, changes: &[Change]) -> Vec<Vec<Message>> {
    let (mut wave, mut records) = (Vec::new(), HashSet::new());
    while wave.len() < AT_ONCE
        && let Some(request) = requests.front()
    {
        let of_request: HashSet<&str> = request.iter().map(|message| changes[message.place].address.as_str()).collect();
        if !records.is_disjoint(&of_request) {
            break;
        }
        records.extend(of_request);
        wave.extend(requests.pop_front());
    }
    wave
}

/// Returns the CloudEvents source of a table, a URI reference.
fn source_of(table: &str) -> String {
    format!("/nameservice/{table}")
}

/// Converts a change to a CloudEvent 1.0 (<https://github.com/cloudevents/spec>).
pub fn cloud_event(source: &str, change: &Change) -> Result<Event, BoxError> {
    let event = EventBuilderV10::new()
        .id(format!("{FEED_ID}:{}", change.position))
        .source(source)
        .ty(format!("nameservice.{}.{}", change.part, change.kind))
        .subject(change.address.as_str())
        .time(change.occurred_at.to_string())
        .data("application/json", serde_json::to_value(Shape::from(change))?)
        .build()?;
    Ok(event)
}

/// Returns the message attributes, for filter policies. SNS rejects empty ones.
fn attributes(change: &Change) -> Vec<(&'static str, String)> {
    let mut attributes = vec![
        ("address", attribute(change.address.as_str())),
        ("name", attribute(change.address.name())),
        ("branch", attribute(change.address.branch())),
        ("kind", change.identity.kind.as_str().to_owned()),
        ("concern", change.part.as_str().to_owned()),
    ];
    attributes
        .extend(change.identity.source_type.as_deref().map(|source_type| ("source_type", attribute(source_type))));
    attributes.retain(|(_, value)| !value.is_empty());
    attributes
}

/// Returns a value as SNS accepts and filters it. SNS rejects characters above U+FFFF
/// (<https://docs.aws.amazon.com/sns/latest/dg/sns-message-attributes.html>), and does not deliver messages with quotes, backslashes or
/// control characters in an attribute to subscribers with a filter policy. A value with one of them is percent-encoded at these characters,
/// and at `%`.
fn attribute(value: &str) -> String {
    let is_plain = |c: char| c <= '\u{fffd}' && !c.is_control() && c != '"' && c != '\\';
    if value.chars().all(is_plain) {
        return value.to_owned();
    }
    let mut encoded = String::with_capacity(value.len() * 2);
    for c in value.chars() {
        match is_plain(c) && c != '%' {
            true => encoded.push(c),
            false => encoded.extend(c.to_string().bytes().map(|byte| format!("%{byte:02X}"))),
        }
    }
    encoded
}
