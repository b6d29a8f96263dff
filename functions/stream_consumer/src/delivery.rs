//! A stream record as it was delivered.

use std::{borrow::Cow, collections::BTreeMap};

use aws_lambda_events::dynamodb::EventRecord;
use jiff::Timestamp;
use nameservice_model::RequestId;
use nameservice_store::{Difference, Identities, StreamRecord};
use serde_json::{
    json,
    value::{RawValue, to_raw_value},
};

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

/// A stream record, readable or not. It is parsed when it is read: as text it takes less memory.
#[derive(Clone, Debug)]
pub struct Delivery {
    event_id: String,
    sequence_number: String,
    written_at: Option<Timestamp>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// An entry of a Lambda event.
    Event(Box<RawValue>),
    /// A record that was read from the stream itself.
    Record(Box<StreamRecord>),
}

/// What a readable stream record says.
#[derive(Debug)]
pub struct Reading {
    /// About when it was written.
    pub written_at: Timestamp,
    /// The call that wrote it, if the record has its id.
    pub call: Option<RequestId>,
    /// What it says about the kind of the nameservice record.
    pub identities: Option<Identities>,
    /// The change that it describes, if it describes one, or why it cannot be read. The reason quotes no value of the record.
    pub difference: Result<Option<Difference>, String>,
    /// The change without a payload that takes its place, if it cannot be read and reads of the nameservice record show a change.
    pub without_payload: Option<Difference>,
}

impl From<&StreamRecord> for Reading {
    fn from(record: &StreamRecord) -> Self {
        match record.difference() {
            Ok(difference) => Self::of(record, Ok(difference), None),
            Err(reason) => Self::of(record, Err(reason.to_string()), record.without_payload()),
        }
    }
}

impl Reading {
    fn of(
        record: &StreamRecord,
        difference: Result<Option<Difference>, String>,
        without_payload: Option<Difference>,
    ) -> Self {
        let (call, identities) = (record.call(), record.identities());
        Self { written_at: record.written_at, call, identities, difference, without_payload }
    }
}

/// Members of a JSON object, as text.
type Members<'a> = BTreeMap<String, &'a RawValue>;

/// Returns the members of an object; none if it is anything else.
fn members(json: &RawValue) -> Members<'_> {
    serde_json::from_str(json.get()).unwrap_or_default()
}

/// Returns a member that is a text; empty if it is anything else.
fn text(members: &Members<'_>, name: &str) -> String {
    members.get(name).and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default()
}

impl Delivery {
    /// Wraps an entry of the `Records` of a Lambda event.
    pub fn from_event(entry: Box<RawValue>) -> Self {
        let record = members(&entry);
        let change = record.get("dynamodb").map(|change| members(change)).unwrap_or_default();
        let (event_id, sequence_number) = (text(&record, "eventID"), text(&change, "SequenceNumber"));
        let written_at = change.get("ApproximateCreationDateTime");
        let written_at = written_at.and_then(|seconds| serde_json::from_str::<f64>(seconds.get()).ok());
        let written_at = written_at.and_then(|seconds| Timestamp::from_second(seconds as i64).ok());
        Self { event_id, sequence_number, written_at, content: Content::Event(entry) }
    }

    /// Wraps a record that was read from the stream itself.
    pub fn from_stream(record: StreamRecord) -> Self {
        let (event_id, sequence_number) = (record.event_id.clone(), record.sequence_number.clone());
        let written_at = Some(record.written_at);
        Self { event_id, sequence_number, written_at, content: Content::Record(record.into()) }
    }

    /// Returns the id of the record, the same in every delivery.
    pub fn event_id(&self) -> &str {
        &self.event_id
    }

    /// Returns its sequence number in its shard.
    pub fn sequence_number(&self) -> &str {
        &self.sequence_number
    }

    /// Returns about when it was written, in whole seconds, if it says so.
    pub fn written_at(&self) -> Option<Timestamp> {
        self.written_at
    }

    /// Returns the whole record as JSON.
    pub fn json(&self) -> serde_json::Result<Cow<'_, RawValue>> {
        let record = match &self.content {
            Content::Event(entry) => return Ok(Cow::Borrowed(entry)),
            Content::Record(record) => record,
        };
        let image = |item: &nameservice_dynamo::Item| serde_dynamo::Item::from(item.clone());
        to_raw_value(&json!({
            "eventID": record.event_id,
            "dynamodb": {
                "ApproximateCreationDateTime": record.written_at.as_second(),
                "SequenceNumber": record.sequence_number,
                "Keys": image(&record.keys),
                "OldImage": image(&record.old),
                "NewImage": image(&record.new),
            }
        }))
        .map(Cow::Owned)
    }

    /// Returns what it says, or why it is no record of a DynamoDB stream.
    pub fn read(&self) -> Result<Reading, String> {
        Ok(Reading::from(self.record()?.as_ref()))
    }

    /// Returns what it says without what its items hold, which is not read, for this reason.
    pub fn read_without_payload(&self, reason: &str) -> Result<Reading, String> {
        let record = self.record()?;
        Ok(Reading::of(&record, Err(reason.to_owned()), record.unread()))
    }

    fn record(&self) -> Result<Cow<'_, StreamRecord>, String> {
        match &self.content {
            Content::Event(entry) => match self.parse(entry)? {
                _ if self.event_id.is_empty() => Err("the record has no `eventID`".to_owned()),
                record => Ok(Cow::Owned(record)),
            },
            Content::Record(record) => Ok(Cow::Borrowed(record)),
        }
    }

    /// Returns the call that wrote it, if the record has its id.
    pub fn call(&self) -> Option<RequestId> {
        match &self.content {
            Content::Event(entry) => self.parse(entry).ok()?.call(),
            Content::Record(record) => record.call(),
        }
    }

    fn parse(&self, entry: &RawValue) -> Result<StreamRecord, String> {
        let record: EventRecord = serde_json::from_str(entry.get())
            .map_err(|error| format!("the record is not one of a DynamoDB stream{}", unquoted(&error.to_string())))?;
        Ok(StreamRecord {
            event_id: self.event_id.clone(),
            sequence_number: self.sequence_number.clone(),
            written_at: Timestamp::from_second(record.change.approximate_creation_date_time.timestamp())
                .unwrap_or(Timestamp::UNIX_EPOCH),
            keys: record.change.keys.into(),
            old: record.change.old_image.into(),
            new: record.change.new_image.into(),
        })
    }
}
