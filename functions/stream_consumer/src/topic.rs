//! Publishing changes to an SNS topic, as CloudEvents.

use async_trait::async_trait;
use aws_sdk_sns::types::{MessageAttributeValue, PublishBatchRequestEntry};
use cloudevents::{Event, EventBuilder, EventBuilderV10};
use nameservice_api::changes::Change as Shape;
use nameservice_feed::FEED_ID;
use nameservice_model::{BoxError, Change};

/// Limits of PublishBatch (<https://docs.aws.amazon.com/sns/latest/api/API_PublishBatch.html>): messages per
/// request, and bytes in total.
const MAX_BATCH: usize = 10;
const MAX_BATCH_BYTES: usize = 256 * 1024;

/// Publishes changes to subscribers.
#[async_trait]
pub trait Topic: Send + Sync {
    /// Publishes changes in order. Publishing a change again is harmless: it has the same id.
    async fn publish(&self, changes: &[Change]) -> Result<(), NotPublished>;

    /// Publishes changes with the context of the trace that each is part of, as `traceparent`: one for each change, or none.
    async fn publish_traced(&self, changes: &[Change], _contexts: &[Option<String>]) -> Result<(), NotPublished> {
        self.publish(changes).await
    }
}

/// The error if not all changes were published.
#[derive(Debug, thiserror::Error)]
#[error("only {published} changes were published")]
pub struct NotPublished {
    /// How many were published, counted from the first.
    pub published: usize,
    /// The reason why the next one was not.
    #[source]
    pub source: BoxError,
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

    async fn publish_batch(&self, batch: Vec<PublishBatchRequestEntry>) -> Result<(), NotPublished> {
        let request = self.client.publish_batch().topic_arn(&self.arn).set_publish_batch_request_entries(Some(batch));
        let output = match request.send().await {
            Ok(output) => output,
            Err(error) => return Err(NotPublished { published: 0, source: error.into() }),
        };
        // Entries are named by their index in the batch.
        let failures = output.failed().iter().map(|failure| (failure.id().parse().unwrap_or(0), failure));
        match failures.min_by_key(|(place, _)| *place) {
            None => Ok(()),
            Some((published, failure)) => {
                let reason = format!("{}: {}", failure.code(), failure.message().unwrap_or_default());
                Err(NotPublished { published, source: reason.into() })
            }
        }
    }
}

#[async_trait]
impl Topic for SnsTopic {
    async fn publish(&self, changes: &[Change]) -> Result<(), NotPublished> {
        self.publish_traced(changes, &[]).await
    }

    async fn publish_traced(&self, changes: &[Change], contexts: &[Option<String>]) -> Result<(), NotPublished> {
        let (mut published, mut batch, mut bytes) = (0, Vec::new(), 0);
        for (i, change) in changes.iter().enumerate() {
            let reject = |source: BoxError| NotPublished { published: i, source };
            let body = cloud_event(&self.source, change).and_then(|event| Ok(serde_json::to_string(&event)?));
            let body = body.map_err(reject)?;
            let attributes = attributes(change, contexts.get(i).and_then(Option::as_ref));
            let size = body.len() + attributes.iter().map(|(name, value)| name.len() + value.len() + 6).sum::<usize>();
            if batch.len() == MAX_BATCH || (bytes + size > MAX_BATCH_BYTES && !batch.is_empty()) {
                self.publish_next(&mut published, &mut batch).await?;
                bytes = 0;
            }
            bytes += size;
            batch.push(entry(batch.len(), body, attributes).map_err(reject)?);
        }
        if !batch.is_empty() {
            self.publish_next(&mut published, &mut batch).await?;
        }
        Ok(())
    }
}

impl SnsTopic {
    async fn publish_next(
        &self,
        published: &mut usize,
        batch: &mut Vec<PublishBatchRequestEntry>,
    ) -> Result<(), NotPublished> {
        let batch = std::mem::take(batch);
        let size = batch.len();
        self.publish_batch(batch)
            .await
            .map_err(|failed| NotPublished { published: *published + failed.published, source: failed.source })?;
        *published += size;
        Ok(())
    }
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

/// Returns the message attributes: those for filter policies, and the context of the trace. SNS rejects empty ones.
fn attributes(change: &Change, context: Option<&String>) -> Vec<(&'static str, String)> {
    let mut attributes = vec![
        ("address", change.address.as_str().to_owned()),
        ("name", change.address.name().to_owned()),
        ("branch", change.address.branch().to_owned()),
        ("kind", change.identity.kind.as_str().to_owned()),
        ("concern", change.part.as_str().to_owned()),
    ];
    attributes.extend(change.identity.source_type.clone().map(|source_type| ("source_type", source_type)));
    attributes.extend(context.map(|context| ("traceparent", context.clone())));
    attributes.retain(|(_, value)| !value.is_empty());
    attributes
}

fn entry(
    place: usize,
    body: String,
    attributes: Vec<(&'static str, String)>,
) -> Result<PublishBatchRequestEntry, BoxError> {
    let mut entry = PublishBatchRequestEntry::builder().id(place.to_string()).message(body);
    for (name, value) in attributes {
        let value = MessageAttributeValue::builder().data_type("String").string_value(value).build()?;
        entry = entry.message_attributes(name, value);
    }
    Ok(entry.build()?)
}
