//! Checks whether a value is in the history of a record. If so, a place that has it is behind, whatever the watermarks
//! say.

use nameservice_model::{
    Address, ChangeFeed, ChangePayload, ChangedPart, ConcernKind, Error, HistoryQuery, Limit, Record, is_redacted,
};
use serde_json::{Value, json};

/// How many entries of a history are read per request, and in how many requests at most.
const PAGE: Limit = match Limit::new(500) {
    Ok(limit) => limit,
    Err(_) => Limit::ONE,
};
const PAGES: usize = 20;

/// Returns whether the value of a concern at another place is an earlier value of the record according to the feed. A
/// value is not found if the feed no longer holds it, does not show payloads of its size, or shows it without its
/// secrets: different secrets would look like the same value.
pub(crate) async fn has_passed(
    feed: &dyn ChangeFeed,
    address: &Address,
    concern: ConcernKind,
    elsewhere: &Record,
) -> Result<bool, Error> {
    let Some((watermark, wanted)) = value(elsewhere, concern).filter(|(_, wanted)| !is_redacted(wanted)) else {
        return Ok(false);
    };
    let mut query = HistoryQuery {
        after: 0,
        part: Some(ChangedPart::Concern(concern)),
        limit: PAGE,
        before: None,
        newest_first: false,
    };
    let mut last_match = false;
    for _ in 0..PAGES {
        let history = feed.history(address, &query).await?;
        for change in &history.changes {
            // The last change is the current value: a match there is not an earlier value.
            if last_match {
                return Ok(true);
            }
            last_match = change.watermark == watermark && payload(concern, &change.payload) == wanted;
        }
        match history.more_after {
            Some(after) => query.after = after,
            None => break,
        }
    }
    Ok(false)
}

/// Returns the watermark and the content of a concern, in the form in which [`payload`] returns that of a change.
fn value(record: &Record, concern: ConcernKind) -> Option<(i64, Value)> {
    match concern {
        ConcernKind::Head => {
            let head = record.head.as_ref()?;
            Some((head.v, json!(head.payload.as_ref()?.as_str())))
        }
        ConcernKind::Index => Some((record.index.v, json!(record.index.payload.as_ref()?.id.as_str()))),
        ConcernKind::Status => {
            let status = crate::judge::payload(&record.status);
            let mut members = status.meta;
            members.insert("state".to_owned(), Value::String(status.state));
            Some((record.status.v, Value::Object(members)))
        }
        ConcernKind::Config => Some((record.config.v, record.config.payload.clone()?)),
    }
}

fn payload(concern: ConcernKind, payload: &ChangePayload) -> Value {
    let ChangePayload::Value(value) = payload else { return Value::Null };
    match (concern, value) {
        (ConcernKind::Head | ConcernKind::Index, value) => value["id"].clone(),
        (ConcernKind::Status, Value::Object(members)) => {
            let mut members = members.clone();
            members.retain(|name, value| !nameservice_model::is_lease_member(name, value));
            Value::Object(members)
        }
        (_, value) => value.clone(),
    }
}
