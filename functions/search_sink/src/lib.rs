//! The search sink: messages of the topic, through a queue → documents of an OpenSearch index.
//!
//! A message names a record that has changed, and the position of the change in the feed. The sink reads the records of a batch,
//! each once, and writes their documents under those positions; the document of a record that is gone is deleted under its
//! position. So it does not matter how often or in which order messages are delivered.
//!
//! Each message has an outcome of its own. One that the index cannot accept now is reported as failed, and the queue delivers it
//! again. One that cannot be read, or that the index rejects permanently, goes to the dead letters with the reason; the others
//! are processed.

mod dead_letters;
mod message;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use lambda_runtime::{LambdaEvent, service_fn};
use metrics::counter;
use nameservice_dynamo::{lambda_config, variable};
use nameservice_feed::Feed;
use nameservice_model::{Address, NameService, Record, chain};
use nameservice_opensearch::{Action, Applied, Document, MAX_READ_AGE, OpenSearch, SEARCH_URL};
use nameservice_store::Store;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

pub use dead_letters::{DeadLetters, QueueOfDeadLetters};
pub use message::Message;

/// The URL of the dead-letter queue.
const SEARCH_DEAD_LETTERS: &str = "NAMESERVICE_SEARCH_DEAD_LETTER_QUEUE_URL";
/// The most bytes of documents in one request.
const MAX_REQUEST_BYTES: usize = 2 * 1024 * 1024;

/// Writes the documents of changed records.
pub struct Sink {
    names: Arc<dyn NameService>,
    index: OpenSearch,
    dead_letters: Arc<dyn DeadLetters>,
}

/// The messages that must be delivered again.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    batch_item_failures: Vec<Failure>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Failure {
    item_identifier: String,
}

impl Response {
    /// Returns the ids of the messages that must be delivered again.
    pub fn failed(&self) -> Vec<&str> {
        self.batch_item_failures.iter().map(|failure| failure.item_identifier.as_str()).collect()
    }
}

/// The messages about one record.
struct Changed<'a> {
    /// The last of their positions.
    position: u64,
    messages: Vec<&'a Message>,
}

impl Sink {
    /// Returns the sink of a nameservice into an index.
    pub fn new(names: Arc<dyn NameService>, index: OpenSearch, dead_letters: Arc<dyn DeadLetters>) -> Self {
        Self { names, index, dead_letters }
    }

    /// Answers an event of the queue with the messages that must be delivered again.
    pub async fn handle(&self, event: Value) -> Response {
        let messages = Message::of_event(event);
        let mut failed = BTreeSet::new();
        let mut changed: BTreeMap<Address, Changed<'_>> = BTreeMap::new();
        for message in &messages {
            match message.change() {
                Ok((address, position)) => {
                    let entry = changed.entry(address).or_insert(Changed { position, messages: Vec::new() });
                    entry.position = entry.position.max(position);
                    tracing::debug!(position, "taken");
                    entry.messages.push(message);
                }
                Err(reason) => self.to_dead_letters(&[message], &reason, &mut failed).await,
            }
        }
        let read_at = Instant::now();
        let addresses: Vec<Address> = changed.keys().cloned().collect();
        let records = match self.names.lookup_all(&addresses).await {
            Ok(records) => records,
            Err(error) => {
                tracing::error!(
                    error = chain(&error),
                    "the records of a batch cannot be read: it will be delivered again"
                );
                return answer(
                    messages.iter().filter(|message| message.change().is_ok()).chain(of(&messages, &failed)),
                );
            }
        };
        let records: BTreeMap<&Address, &Record> = records.iter().map(|record| (&record.address, record)).collect();
        let changed: Vec<(Address, Changed<'_>)> = changed.into_iter().collect();
        let actions: Vec<Action> = changed
            .iter()
            .map(|(address, changed)| match records.get(address) {
                Some(record) => Action::Index(Box::new(Document::of(record, changed.position))),
                None => Action::Delete { address: address.clone(), position: changed.position },
            })
            .collect();
        let mut done = 0;
        while done < actions.len() {
            let together = together(actions.get(done..).unwrap_or_default());
            let some = actions.get(done..done + together).unwrap_or_default();
            let applied = match read_at.elapsed() < MAX_READ_AGE {
                true => self.index.bulk(some).await.map_err(|error| chain(&error)),
                false => Err("the records were read too long ago".to_owned()),
            };
            let outcomes = match applied {
                Ok(outcomes) => outcomes,
                Err(reason) => {
                    tracing::error!(reason, "documents were not written: their messages will be delivered again");
                    some.iter().map(|_| Applied::Later(reason.clone())).collect()
                }
            };
            for ((address, changed), outcome) in changed.iter().skip(done).zip(outcomes) {
                measure(&outcome);
                match outcome {
                    Applied::Done => {}
                    Applied::Later(reason) => {
                        tracing::warn!(address = address.as_str(), reason, "not written yet");
                        failed.extend(changed.messages.iter().map(|message| message.id().to_owned()));
                    }
                    Applied::Rejected(reason) => self.to_dead_letters(&changed.messages, &reason, &mut failed).await,
                }
            }
            done += together;
        }
        tracing::info!(messages = messages.len(), records = actions.len(), failed = failed.len(), "indexed");
        answer(of(&messages, &failed))
    }

    /// Sends messages to the dead letters. One that cannot be sent there is delivered again.
    async fn to_dead_letters(&self, messages: &[&Message], reason: &str, failed: &mut BTreeSet<String>) {
        for message in messages {
            tracing::error!(id = message.id(), reason, "a message cannot be indexed");
            if let Err(error) = self.dead_letters.store(message, reason).await {
                tracing::error!(
                    error = chain(error.as_ref()),
                    "a dead letter could not be stored: its message will be delivered again"
                );
                failed.insert(message.id().to_owned());
            }
        }
    }
}

/// Counts the outcome of a document.
fn measure(outcome: &Applied) {
    let outcome = match outcome {
        Applied::Done => "written",
        Applied::Later(_) => "deferred",
        Applied::Rejected(_) => "rejected",
    };
    counter!("nameservice_search_documents_total", "outcome" => outcome).increment(1);
}

/// Returns how many of these actions fit one request, at least one.
fn together(actions: &[Action]) -> usize {
    let mut bytes = 0;
    let fits = actions.iter().take_while(|action| {
        bytes += match action {
            // A document is larger than its record: it contains parts of the address several times.
            Action::Index(document) => serde_json::to_string(document).map_or(0, |text| text.len()),
            Action::Delete { .. } => 0,
        };
        bytes <= MAX_REQUEST_BYTES
    });
    fits.count().max(1)
}

fn of<'a>(messages: &'a [Message], failed: &'a BTreeSet<String>) -> impl Iterator<Item = &'a Message> {
    messages.iter().filter(|message| failed.contains(message.id()))
}

fn answer<'a>(failed: impl Iterator<Item = &'a Message>) -> Response {
    let batch_item_failures = failed.map(|message| Failure { item_identifier: message.id().to_owned() }).collect();
    Response { batch_item_failures }
}

/// Answers invocations until the runtime ends: the `main` of the function, over the store and the index that its environment
/// names.
pub async fn run(store: Store, _: Feed) -> Result<(), lambda_runtime::Error> {
    let index = nameservice_opensearch::deployed()?.ok_or_else(|| format!("{SEARCH_URL} is not set"))?;
    let queue = variable(SEARCH_DEAD_LETTERS).ok_or_else(|| format!("{SEARCH_DEAD_LETTERS} is not set"))?;
    let dead_letters = QueueOfDeadLetters::new(aws_sdk_sqs::Client::new(&lambda_config()), queue);
    let sink = Sink::new(Arc::new(store), index, Arc::new(dead_letters));
    lambda_runtime::run(service_fn(async |event: LambdaEvent<Value>| {
        let answer = sink.handle(event.payload).await;
        nameservice_lambda::write_metrics();
        Ok::<_, lambda_runtime::Error>(answer)
    }))
    .await
}
