use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ConcernValue, ContentId, LeaseName};

/// A JSON object.
pub type Object = Map<String, Value>;

/// Where the latest commit is. The watermark is the commit's `t`.
pub type Head = ConcernValue<ContentId>;
/// Where the latest index is. The watermark is the `t` that it covers.
pub type Index = ConcernValue<IndexRoot>;
/// What state a record is in. Never unborn: it starts at v 1 in state `ready`.
pub type Status = ConcernValue<StatusPayload>;
/// How a record is configured. A ledger's may name its `default_context_id`; a graph source's is its own affair.
pub type Config = ConcernValue<Value>;

/// The longest state of a status, in bytes: it is the key of an index.
pub const MAX_STATE_BYTES: usize = 128;
/// The longest name of a named graph, in bytes: the most that an expression attribute name may have.
pub const MAX_GRAPH_NAME_BYTES: usize = 255;
/// How deep a payload may nest: DynamoDB allows 32 levels, of which the item and the attribute take two.
pub const MAX_PAYLOAD_DEPTH: usize = 30;

/// The payload of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexRoot {
    /// The index root (a ledger's) or the manifest (a graph source's).
    pub id: ContentId,
    /// How often this `t` was indexed again: 0 for the first index at it.
    pub rev: i64,
    /// The named graphs that are indexed by themselves; `None` for one that exists and has no index yet.
    pub graphs: BTreeMap<String, Option<GraphIndex>>,
}

/// The index of one named graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphIndex {
    /// Its index root.
    pub id: ContentId,
    /// The `t` that it covers.
    pub t: i64,
    /// How often this `t` was indexed again.
    pub rev: i64,
}

/// What a push brings for one named graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphPush {
    /// Its new index root.
    pub id: ContentId,
    /// The `t` that it covers, not below the stored one.
    pub t: i64,
    /// Its revision; left out, it is counted: one more than the stored one at the same `t`, else 0.
    pub rev: Option<i64>,
}

/// What an index push brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexUpdate {
    /// The index root.
    pub id: ContentId,
    /// The `t` that it covers.
    pub t: i64,
    /// The named graphs that this push sets; those it does not name keep theirs.
    pub graphs: BTreeMap<String, Option<GraphPush>>,
}

/// The payload of a status: a state and whatever the writer wishes to tell with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusPayload {
    /// `ready`, `indexing`, `reindexing`, `syncing`, `maintenance`, `retracted`, `error`, or a word of the writer's own.
    pub state: String,
    /// The rest of the object. On reading, a lease appears here under its name.
    #[serde(flatten)]
    pub meta: Object,
}

impl StatusPayload {
    /// The state of a new record.
    pub const READY: &'static str = "ready";
    /// The state of a soft-deleted record.
    pub const RETRACTED: &'static str = "retracted";

    /// A state without more to tell.
    pub fn state(state: impl Into<String>) -> Self {
        Self { state: state.into(), meta: Object::new() }
    }

    /// The same without members under the names of leases, which are not part of what status writers write.
    pub fn without_leases(mut self) -> Self {
        for name in LeaseName::ALL {
            self.meta.remove(name.as_str());
        }
        self
    }
}

/// Why a payload cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct InvalidPayload {
    /// Where in the payload, `a.b[0]`.
    pub path: String,
    /// What is wrong there.
    pub reason: String,
}

/// Checks a state: not blank, at most [`MAX_STATE_BYTES`].
pub fn check_state(state: &str) -> Result<(), InvalidPayload> {
    let reason = if state.trim().is_empty() {
        "is blank".to_owned()
    } else if state.len() > MAX_STATE_BYTES {
        format!("has {} bytes, {MAX_STATE_BYTES} are allowed", state.len())
    } else {
        return Ok(());
    };
    Err(InvalidPayload { path: "state".into(), reason })
}

/// Checks that DynamoDB can hold an object as a map: nesting, member names, and the range of its numbers
/// (<https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html>).
pub fn check_object(object: &Object) -> Result<(), InvalidPayload> {
    check_members(object, "", 1)
}

fn check_members(object: &Object, path: &str, depth: usize) -> Result<(), InvalidPayload> {
    object.iter().try_for_each(|(name, value)| {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if name.is_empty() {
            return Err(InvalidPayload { path, reason: "a member has an empty name".into() });
        }
        check_value(value, &path, depth)
    })
}

fn check_value(value: &Value, path: &str, depth: usize) -> Result<(), InvalidPayload> {
    let refuse = |reason: String| Err(InvalidPayload { path: path.to_owned(), reason });
    match value {
        Value::Array(_) | Value::Object(_) if depth >= MAX_PAYLOAD_DEPTH => {
            refuse(format!("nests deeper than {MAX_PAYLOAD_DEPTH} levels"))
        }
        Value::Array(values) => {
            values.iter().enumerate().try_for_each(|(i, value)| check_value(value, &format!("{path}[{i}]"), depth + 1))
        }
        Value::Object(object) => check_members(object, path, depth + 1),
        Value::Number(number) => match number.as_f64() {
            Some(n) if number.is_f64() && n != 0.0 && !(1e-130..=9.9e125).contains(&n.abs()) => {
                refuse(format!("{number} is outside the range of numbers that DynamoDB stores"))
            }
            _ => Ok(()),
        },
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Object {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn payloads_that_dynamodb_cannot_hold_are_refused_by_path() {
        let mut deep = json!(1);
        for _ in 0..MAX_PAYLOAD_DEPTH {
            deep = json!({ "a": deep });
        }
        assert!(check_object(&object(deep.clone())).is_ok());
        let deeper = check_object(&object(json!({ "a": deep }))).unwrap_err();
        assert!(deeper.to_string().contains("nests deeper"), "{deeper}");
        for (value, message) in [
            (json!({"a": {"": 1}}), "a.: a member has an empty name"),
            (json!({"a": [1, 1e200]}), "a[1]: 1e+200 is outside the range of numbers that DynamoDB stores"),
            (json!({"a": -1e-200}), "a: -1e-200 is outside the range of numbers that DynamoDB stores"),
        ] {
            assert_eq!(check_object(&object(value)).unwrap_err().to_string(), message);
        }
        assert!(check_object(&object(json!({"a": [1.5, 0.0, -0.0, 18446744073709551615u64, null, "", true]}))).is_ok());
    }

    #[test]
    fn states_are_bounded_because_they_key_an_index() {
        assert!(check_state("ready").is_ok());
        assert!(check_state(&"s".repeat(128)).is_ok());
        assert!(check_state(" ").is_err());
        assert!(check_state(&"s".repeat(129)).is_err());
    }
}
