//! A message of the queue: a change as the topic published it.

use nameservice_model::Address;
use serde::Deserialize;
use serde_json::Value;

/// A message of the queue, readable or not.
#[derive(Clone, Debug)]
pub struct Message {
    id: String,
    body: String,
}

/// What the topic wraps a message in, unless the subscription asks for raw ones.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Notification {
    message: String,
}

/// The members of a CloudEvent that are used.
#[derive(Deserialize)]
struct Event {
    data: Change,
}

#[derive(Deserialize)]
struct Change {
    address: String,
    position: u64,
}

impl Message {
    /// Returns the messages of an event of the queue.
    pub fn of_event(event: Value) -> Vec<Self> {
        let records = match event {
            Value::Object(mut members) => members.remove("Records"),
            _ => None,
        };
        let Some(Value::Array(records)) = records else {
            tracing::error!("an event without `Records`: nothing to index");
            return Vec::new();
        };
        let text = |record: &Value, name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let message = |record: &Value| Self { id: text(record, "messageId"), body: text(record, "body") };
        records.iter().map(message).collect()
    }

    /// Returns its id in the queue.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns its text.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// Returns the record that changed and the position of the change, or why the message cannot be read.
    pub fn change(&self) -> Result<(Address, u64), String> {
        let notification: Result<Notification, _> = serde_json::from_str(&self.body);
        let text = notification.as_ref().map_or(self.body.as_str(), |notification| notification.message.as_str());
        let Event { data } =
            serde_json::from_str(text).map_err(|error| format!("the message is not a change of the feed: {error}"))?;
        let address = Address::parse(&data.address).map_err(|error| error.to_string())?;
        match data.position {
            0 => Err("the message has the position 0, which no change has".to_owned()),
            position => Ok((address, position)),
        }
    }
}
