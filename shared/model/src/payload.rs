use std::{collections::BTreeMap, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ConcernValue, ContentId, InvalidAddress, InvalidContentId, is_lease_member};

/// A JSON object.
pub type Object = Map<String, Value>;

/// The latest commit. The watermark is the commit's `t`.
pub type Head = ConcernValue<ContentId>;
/// The latest index. The watermark is the `t` that it covers.
pub type Index = ConcernValue<IndexRoot>;
/// The state of a record. Never unborn: it starts at v 1 in state `ready`.
pub type Status = ConcernValue<StatusPayload>;
/// The configuration of a record. A ledger's may name its `default_context_id`; a graph source's is opaque.
pub type Config = ConcernValue<Value>;

/// The member of a config that keeps the storage addresses of an earlier layout, for which there are no content ids.
pub const LEGACY_ADDRESS: &str = "legacy_address";
/// The longest state of a status, in bytes: it is the key of an index.
pub const MAX_STATE_BYTES: usize = 128;
/// The longest name of a named graph, in bytes: the most that an expression attribute name may have.
pub const MAX_GRAPH_NAME_BYTES: usize = 255;
/// How deep a payload may nest: DynamoDB allows 32 levels, of which the item and the attribute take two.
pub const MAX_PAYLOAD_DEPTH: usize = 30;

impl Head {
    /// Returns the `t` of the commit; 0 without one.
    pub const fn t(&self) -> i64 {
        self.v
    }

    /// Returns the commit; `None` without one.
    pub const fn commit(&self) -> Option<&ContentId> {
        self.payload.as_ref()
    }
}

impl Index {
    /// Returns the `t` that the index covers; 0 without one.
    pub const fn t(&self) -> i64 {
        self.v
    }

    /// Returns the index root; `None` without an index.
    pub fn root(&self) -> Option<&ContentId> {
        self.payload.as_ref().map(|root| &root.id)
    }

    /// Returns the index of a named graph, if it has one of its own.
    pub fn graph(&self, name: &str) -> Option<&GraphIndex> {
        self.payload.as_ref()?.graphs.get(name)?.as_ref()
    }
}

impl Status {
    /// Returns the state; `None` if it was left out of an expected value.
    pub fn state(&self) -> Option<&str> {
        self.payload.as_ref().map(|payload| payload.state.as_str())
    }

    /// Returns a member of the metadata.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.payload.as_ref()?.meta.get(name)
    }
}

impl Config {
    /// Returns a member of the configuration.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.payload.as_ref()?.get(name)
    }
}

/// The payload of an index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexRoot {
    /// The index root (a ledger's) or the manifest (a graph source's).
    pub id: ContentId,
    /// How often this `t` was indexed again: 0 for the first index at it.
    pub rev: i64,
    /// The named graphs that have indexes of their own; `None` for one that exists and has no index yet.
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

/// The payload of a status: a state and the writer's metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusPayload {
    /// `ready`, `indexing`, `reindexing`, `syncing`, `maintenance`, `retracted`, `error`, or any other word that the
    /// writer chooses.
    pub state: String,
    /// The other members of the object. On reading, a lease appears here under its name.
    #[serde(flatten)]
    pub meta: Object,
}

impl StatusPayload {
    /// The state of a new record.
    pub const READY: &'static str = "ready";
    /// The state of a soft-deleted record.
    pub const RETRACTED: &'static str = "retracted";
    /// The member that holds the state.
    pub(crate) const STATE: &'static str = "state";

    /// Returns a state without metadata.
    pub fn state(state: impl Into<String>) -> Self {
        Self { state: state.into(), meta: Object::new() }
    }

    /// Removes the leases among the members: status writers do not write them.
    #[must_use]
    pub fn without_leases(mut self) -> Self {
        self.meta.retain(|name, value| !is_lease_member(name, value));
        self
    }

    /// Checks that the metadata of a new status has no member that the service itself shows there.
    pub(crate) fn check_meta(meta: &Object) -> Result<(), InvalidPayload> {
        if meta.contains_key(Self::STATE) {
            return Err(InvalidPayload::new(Self::STATE, "is not part of the metadata"));
        }
        match meta.iter().find(|(name, value)| is_lease_member(name, value)) {
            Some((name, _)) => {
                Err(InvalidPayload::new(name, "is a lease: leases are acquired and released at /v1/leases/{address}"))
            }
            None => Ok(()),
        }
    }
}

impl FromStr for StatusPayload {
    type Err = InvalidPayload;

    /// Returns this state without metadata, if a status push may set it.
    fn from_str(state: &str) -> Result<Self, InvalidPayload> {
        check_state(state)?;
        Ok(Self::state(state))
    }
}

/// The error for a value that cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct InvalidPayload {
    /// The member that is invalid, `a.b[0]`.
    pub path: String,
    /// What is wrong with it.
    pub reason: InvalidReason,
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidReason {
    /// It is not a content id.
    #[error(transparent)]
    ContentId(#[from] InvalidContentId),
    /// It is not an address.
    #[error(transparent)]
    Address(#[from] InvalidAddress),
    /// It breaks another rule.
    #[error("{0}")]
    Other(String),
}

impl From<&str> for InvalidReason {
    fn from(reason: &str) -> Self {
        Self::Other(reason.to_owned())
    }
}

impl From<String> for InvalidReason {
    fn from(reason: String) -> Self {
        Self::Other(reason)
    }
}

impl InvalidPayload {
    /// Returns the error for this member.
    pub fn new(path: impl Into<String>, reason: impl Into<InvalidReason>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }

    /// Returns the same error with a path that begins at an outer value.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        Self { path: format!("{outer}.{}", self.path), ..self }
    }
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
    Err(InvalidPayload::new("state", reason))
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
            return Err(InvalidPayload::new(path, "a member has an empty name"));
        }
        check_value(value, &path, depth)
    })
}

fn check_value(value: &Value, path: &str, depth: usize) -> Result<(), InvalidPayload> {
    let invalid = |reason: String| Err(InvalidPayload::new(path, reason));
    match value {
        Value::Array(_) | Value::Object(_) if depth >= MAX_PAYLOAD_DEPTH => {
            invalid(format!("nests deeper than {MAX_PAYLOAD_DEPTH} levels"))
        }
        Value::Array(values) => {
            values.iter().enumerate().try_for_each(|(i, value)| check_value(value, &format!("{path}[{i}]"), depth + 1))
        }
        Value::Object(object) => check_members(object, path, depth + 1),
        Value::Number(number) => match number.as_f64() {
            Some(n) if number.is_f64() && n != 0.0 && !(1e-130..=9.9e125).contains(&n.abs()) => {
                invalid(format!("{number} is outside the range of numbers that DynamoDB stores"))
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
    fn payloads_that_dynamodb_cannot_hold_are_rejected_by_path() {
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
