//! A stream record as it was delivered.

use std::collections::HashMap;

use aws_lambda_events::dynamodb::EventRecord;
use jiff::Timestamp;
use nameservice_model::RequestId;
use nameservice_store::{Difference, StreamRecord};
use serde_json::{Value, json};

const MAX_REASON_CHARS: usize = 500;

/// Returns the text of an error without the value that it quotes: the text is logged, and the value may be a secret.
fn unquoted(error: &str) -> String {
    const EXPECTED: &str = "expected ";
    let shown = match error.rfind(EXPECTED) {
        Some(expected) => &error[expected..],
        None if error.starts_with("missing field") => error,
        None => return String::new(),
    };
    format!(": {}", shown.chars().take(MAX_REASON_CHARS).collect::<String>())
}

/// A stream record, readable or not.
#[derive(Clone, Debug)]
pub struct Delivery {
    event_id: String,
    sequence_number: String,
    record: Result<StreamRecord, String>,
    /// The delivered record, if it was delivered as JSON.
    raw: Option<Value>,
}

impl Delivery {
    /// Parses an entry of the `Records` of a Lambda event.
    pub fn from_event(raw: Value) -> Self {
        let text = |pointer| raw.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (event_id, sequence_number) = (text("/eventID"), text("/dynamodb/SequenceNumber"));
        let record = match serde_json::from_value::<EventRecord>(raw.clone()) {
            Ok(_) if event_id.is_empty() => Err("the record has no `eventID`".to_owned()),
            Ok(record) => Ok(StreamRecord {
                event_id: event_id.clone(),
                sequence_number: sequence_number.clone(),
                written_at: Timestamp::from_second(record.change.approximate_creation_date_time.timestamp())
                    .unwrap_or(Timestamp::UNIX_EPOCH),
                keys: record.change.keys.into(),
                old: record.change.old_image.into(),
                new: record.change.new_image.into(),
            }),
            Err(error) => Err(format!("the record is not one of a DynamoDB stream{}", unquoted(&error.to_string()))),
        };
        Self { event_id, sequence_number, record, raw: Some(raw) }
    }

    /// Wraps a record that was read from the stream itself.
    pub fn from_stream(record: StreamRecord) -> Self {
        let (event_id, sequence_number) = (record.event_id.clone(), record.sequence_number.clone());
        Self { event_id, sequence_number, record: Ok(record), raw: None }
    }

    /// Returns the id of the record, the same in every delivery.
    pub fn event_id(&self) -> &str {
        &self.event_id
    }

    /// Returns its sequence number in its shard.
    pub fn sequence_number(&self) -> &str {
        &self.sequence_number
    }

    /// Returns the whole record as text.
    pub fn raw(&self) -> Value {
        match (&self.raw, &self.record) {
            (Some(raw), _) => raw.clone(),
            (None, Ok(record)) => {
                let image = |item: &HashMap<_, _>| serde_dynamo::Item::from(item.clone());
                json!({
                    "eventID": record.event_id,
                    "dynamodb": {
                        "ApproximateCreationDateTime": record.written_at.as_second(),
                        "SequenceNumber": record.sequence_number,
                        "Keys": image(&record.keys),
                        "OldImage": image(&record.old),
                        "NewImage": image(&record.new),
                    }
                })
            }
            (None, Err(_)) => Value::Null,
        }
    }

    /// Returns the call that wrote it, if the record has its id.
    pub fn call(&self) -> Option<RequestId> {
        self.record()?.call()
    }

    pub(crate) fn record(&self) -> Option<&StreamRecord> {
        self.record.as_ref().ok()
    }

    /// Returns the change that it describes, or why it cannot be read. The reason quotes no value of the record.
    pub fn difference(&self) -> Result<Option<Difference>, String> {
        self.record.as_ref().map_err(String::clone)?.difference().map_err(|reason| reason.to_string())
    }
}
