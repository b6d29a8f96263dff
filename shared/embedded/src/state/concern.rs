//! What the concerns have in common.

use nameservice_model::{ConcernKind, ConcernState, ConcernValue, Push, RecordKind, Result};
use serde_json::{Number, Value};

use super::record::Record;

/// A concern: how it is read, and what a push does to it.
pub(super) trait Concern {
    /// The payload of its value.
    type Payload: Clone + PartialEq;
    /// The new value of a push.
    type New;

    /// Which concern it is.
    const KIND: ConcernKind;
    /// The name of a push of it in errors.
    const OPERATION: &'static str;

    /// The value that a record shows.
    fn read(record: &Record) -> ConcernValue<Self::Payload>;

    /// Returns whether the record has the expected value.
    fn matches(record: &Record, expected: &ConcernValue<Self::Payload>) -> bool;

    /// Judges a push by the current value of the record.
    fn judge(record: &Record, push: &Push<Self::Payload, Self::New>) -> Judgement;

    /// Stores the new value of an admissible push. An error if a counter cannot grow, or the item would be too large.
    fn store(record: &mut Record, push: &Push<Self::Payload, Self::New>) -> Result<()>;

    /// Returns the value after an admissible push, as a transaction returns it.
    fn written(record: &Record, push: &Push<Self::Payload, Self::New>) -> ConcernValue<Self::Payload>;

    /// Returns the value that the push left on a record whose concern no other call has pushed since, as a transaction
    /// returns it.
    fn left_by(record: &Record, _push: &Push<Self::Payload, Self::New>) -> ConcernValue<Self::Payload> {
        Self::read(record)
    }

    /// Returns the value that the push left if others have written since; `None` if the expected value does not
    /// determine it.
    fn was_written(push: &Push<Self::Payload, Self::New>) -> Option<ConcernValue<Self::Payload>>;

    /// Returns the same as a transaction returns it: revisions are assumed to count from 0.
    fn was_committed(push: &Push<Self::Payload, Self::New>) -> ConcernValue<Self::Payload>;

    /// Returns whether two records have the same value, as far as a push that creates a ledger is concerned.
    fn is_same(a: &Record, b: &Record) -> bool;

    /// Returns whether records of this kind take pushes of it.
    fn belongs_to(kind: RecordKind) -> bool;

    /// Converts a value to one of any concern.
    fn state(value: ConcernValue<Self::Payload>) -> ConcernState;

    /// Converts a value back; `None` if it belongs to another concern.
    fn value(state: ConcernState) -> Option<ConcernValue<Self::Payload>>;
}

/// The judgement of a push by the current value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The value is stored already.
    AlreadyStored,
    /// A push without an expected value brings nothing newer.
    Stale,
    /// The expected value does not match.
    Conflict,
    /// It can be applied.
    Admissible,
}

/// Returns whether two JSON values are the same. Numbers are compared by value: `1` and `1.0` are one number.
pub(super) fn same_json(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_json(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same_json(a, b)))
        }
        _ => a == b,
    }
}

fn same_number(a: &Number, b: &Number) -> bool {
    a == b || ((a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_compared_by_value_and_everything_else_to_the_letter() {
        assert!(same_json(&json!({"a": [1, {"b": 2.0}]}), &json!({"a": [1.0, {"b": 2}]})));
        assert!(!same_json(&json!(u64::MAX), &json!(u64::MAX - 1)));
        assert!(!same_json(&json!({"a": 1}), &json!({"a": 1, "b": null})));
        assert!(!same_json(&json!([1]), &json!([1, 1])));
        assert!(!same_json(&json!("1"), &json!(1)));
    }
}
