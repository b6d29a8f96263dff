//! `aws deadletters`: the messages that a sink could not process.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_sqs::{
    Client,
    types::{Message, MessageAttributeValue, MessageSystemAttributeName},
};
use clap::{Args, Subcommand};
use jiff::Timestamp;
use nameservice_model::{BoxError, Error as StoreError};
use serde_json::{Value, json};

use crate::{
    failure::Failure,
    output::{self, Output},
    table::aws_config,
};

/// How long messages are hidden from other consumers while a command reads them, in seconds. A command releases those that it
/// does not remove.
const HELD_SECONDS: i32 = 120;
/// How many consecutive empty answers mean that the queue is empty: each answer covers only some of its servers.
const EMPTY: usize = 3;
/// How much of a message is printed for a person.
const SHOWN_CHARS: usize = 100;

/// `aws deadletters`
#[derive(Debug, Subcommand)]
pub enum DeadLettersCommand {
    /// Print the messages of a queue of dead letters, with their reasons
    List(QueueArgs),
    /// Send messages back to the queue that they came from, and remove them here
    ///
    /// Each message is sent before it is removed. If the removal fails, the message is delivered twice, which sinks tolerate. The
    /// stream consumer's dead letters do not come from a queue: to replay one, write its concern once more with a new
    /// watermark, which makes a new change, and drop the message. Neither do those of the topic: the feed has their changes.
    Replay(ReplayArgs),
    /// Remove messages
    Drop(DropArgs),
}

/// The queue.
#[derive(Debug, Args)]
pub struct QueueArgs {
    /// The URL of the queue of dead letters, an output of the Terraform module
    #[arg(value_name = "QUEUE")]
    pub queue: String,
    /// Read at most this many messages
    #[arg(long, value_name = "N", default_value = "1000", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
}

/// `aws deadletters replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The queue.
    #[command(flatten)]
    pub queue: QueueArgs,
    /// Only the message with this id (repeatable) [default: all]
    #[arg(long, value_name = "ID")]
    pub id: Vec<String>,
    /// The URL of the queue that they came from
    #[arg(long, value_name = "QUEUE")]
    pub to: String,
}

/// `aws deadletters drop`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").args(["id", "all"]).required(true))]
pub struct DropArgs {
    /// The queue.
    #[command(flatten)]
    pub queue: QueueArgs,
    /// Only the message with this id (repeatable)
    #[arg(long, value_name = "ID")]
    pub id: Vec<String>,
    /// All messages
    #[arg(long)]
    pub all: bool,
}

pub(crate) async fn run(command: DeadLettersCommand, output: Output) -> Result<(), Failure> {
    let config = aws_config(None).await?;
    let client = Client::new(&config);
    match command {
        DeadLettersCommand::List(args) => {
            let held = Held::take(&client, &args).await?;
            let printed = held.messages.iter().try_for_each(|message| print(message, output));
            held.give_back(&[]).await?;
            printed
        }
        DeadLettersCommand::Replay(args) => {
            let held = Held::take(&client, &args.queue).await?;
            let (done, failed) = held.each(&args.id, async |message| held.replay(message, &args.to).await).await?;
            finish("replayed", &done, &args.id, failed, output)
        }
        DeadLettersCommand::Drop(args) => {
            let held = Held::take(&client, &args.queue).await?;
            let (done, failed) = held.each(&args.id, async |message| held.remove(message).await).await?;
            finish("dropped", &done, &args.id, failed, output)
        }
    }
}

/// Messages that are hidden from other consumers for a while.
struct Held<'a> {
    client: &'a Client,
    queue: &'a str,
    messages: Vec<Message>,
}

impl<'a> Held<'a> {
    /// Takes the messages of a queue, each once, until it seems empty.
    async fn take(client: &'a Client, args: &'a QueueArgs) -> Result<Self, Failure> {
        let (mut found, mut empty) = (BTreeMap::new(), 0);
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        while empty < EMPTY && found.len() < limit {
            let most = i32::try_from((limit - found.len()).min(10)).unwrap_or(10);
            let received = client
                .receive_message()
                .queue_url(&args.queue)
                .max_number_of_messages(most)
                .visibility_timeout(HELD_SECONDS)
                .message_attribute_names("All")
                .message_system_attribute_names(MessageSystemAttributeName::All)
                .send()
                .await
                .map_err(failed("read the dead letters"))?;
            let messages = received.messages.unwrap_or_default();
            let before = found.len();
            found.extend(messages.into_iter().map(|message| ((sent(&message), id(&message).to_owned()), message)));
            empty = if found.len() == before { empty + 1 } else { 0 };
        }
        Ok(Self { client, queue: &args.queue, messages: found.into_values().collect() })
    }

    /// Applies an action to each selected message until one fails, and releases the others. Returns the ids of the messages that
    /// were processed, and the failure.
    async fn each(
        &self,
        ids: &[String],
        action: impl AsyncFn(&Message) -> Result<(), Failure>,
    ) -> Result<(Vec<String>, Option<Failure>), Failure> {
        let (mut done, mut failed) = (Vec::new(), None);
        for message in self.messages.iter().filter(|message| is_meant(message, ids)) {
            if let Err(error) = action(message).await {
                failed = Some(error);
                break;
            }
            done.push(id(message).to_owned());
        }
        self.give_back(&done).await?;
        Ok((done, failed))
    }

    async fn replay(&self, message: &Message, to: &str) -> Result<(), Failure> {
        // Without the reason, which is not part of the original message.
        let attributes: HashMap<String, MessageAttributeValue> = message
            .message_attributes
            .iter()
            .flatten()
            .filter(|(name, _)| *name != "reason")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let request = self.client.send_message().queue_url(to).message_body(message.body().unwrap_or_default());
        let request = request.set_message_attributes(Some(attributes).filter(|attributes| !attributes.is_empty()));
        request.send().await.map_err(failed("send a dead letter again"))?;
        self.remove(message).await
    }

    async fn remove(&self, message: &Message) -> Result<(), Failure> {
        let handle = message.receipt_handle().unwrap_or_default();
        let request = self.client.delete_message().queue_url(self.queue).receipt_handle(handle);
        request.send().await.map(drop).map_err(failed("remove a dead letter"))
    }

    /// Makes the messages visible to others again, except for those that were removed.
    async fn give_back(&self, gone: &[String]) -> Result<(), Failure> {
        for message in self.messages.iter().filter(|message| !gone.iter().any(|gone| gone == id(message))) {
            let handle = message.receipt_handle().unwrap_or_default();
            let request = self.client.change_message_visibility().queue_url(self.queue).receipt_handle(handle);
            request.visibility_timeout(0).send().await.map_err(failed("return dead letters"))?;
        }
        Ok(())
    }
}

fn id(message: &Message) -> &str {
    message.message_id().unwrap_or_default()
}

fn is_meant(message: &Message, ids: &[String]) -> bool {
    ids.is_empty() || ids.iter().any(|wanted| wanted == id(message))
}

/// When it was sent, in milliseconds since the epoch.
fn sent(message: &Message) -> i64 {
    let sent = message.attributes().and_then(|attributes| attributes.get(&MessageSystemAttributeName::SentTimestamp));
    sent.and_then(|sent| sent.parse().ok()).unwrap_or_default()
}

/// The reason why it is a dead letter: in an attribute, or in the message itself, as the stream consumer writes it.
fn reason(message: &Message) -> Option<String> {
    let attribute = message.message_attributes().and_then(|attributes| attributes.get("reason"));
    let attribute = attribute.and_then(|value| value.string_value()).map(str::to_owned);
    attribute.or_else(|| {
        let body: Value = serde_json::from_str(message.body()?).ok()?;
        body["reason"].as_str().map(str::to_owned)
    })
}

fn print(message: &Message, output: Output) -> Result<(), Failure> {
    let sent = Timestamp::from_millisecond(sent(message)).unwrap_or(Timestamp::UNIX_EPOCH);
    let (reason, body) = (reason(message), message.body().unwrap_or_default());
    if output.is_json() {
        let document = json!({ "id": id(message), "sent_at": format!("{sent:.3}"), "reason": reason, "body": body });
        return output::print(&document.to_string());
    }
    let reason = reason.unwrap_or_else(|| "it failed too often".to_owned());
    let shown: String = body.chars().take(SHOWN_CHARS).collect();
    output::print(&format!("{}  {sent:.0}  {}\n    {}", id(message), output::clean(&reason), output::clean(&shown)))
}

fn finish(
    verb: &str,
    done: &[String],
    wanted: &[String],
    failed: Option<Failure>,
    output: Output,
) -> Result<(), Failure> {
    let missing: Vec<&String> = wanted.iter().filter(|wanted| !done.contains(wanted)).collect();
    if output.is_json() {
        output::print(&json!({ verb: done }).to_string())?;
    } else {
        output::print(&format!("{} {verb}", done.len()))?;
    }
    match (failed, missing.first()) {
        (Some(failed), _) => Err(failed),
        (None, Some(missing)) => Err(Failure::Usage(format!(
            "message {missing} is not visible in the queue: it was removed, or another program holds it; `aws deadletters list` shows the visible messages"
        ))),
        (None, None) => Ok(()),
    }
}

fn failed<E: Into<BoxError>>(operation: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| nameservice::Error::from(StoreError::Unavailable { operation, source: Some(error.into()) }).into()
}
