use serde_json::{Number, Value};

use crate::{
    ConcernValue, Config, ConfigPush, ContentId, Expected, Head, HeadPush, Index, IndexPush, IndexRoot, NewGraphIndex,
    Object, Status, StatusPayload, StatusPush, desired::DEFAULT_CONTEXT_ID,
};

/// The judgement of a push by the stored value.
///
/// This is the one rule of what a push does. A backend that has the value applies it; DynamoDB's has conditions that say
/// the same, and judges by this what a failed one means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The value is stored already.
    Current,
    /// A push without an expected value brings nothing newer.
    Stale,
    /// The expected value does not match.
    Conflict,
    /// The push can be applied.
    Admissible,
}

/// The data of a value that a push or a check can expect.
pub trait Expect: Sized {
    /// Returns whether the stored value is the expected one.
    fn is_expected(stored: &ConcernValue<Self>, expected: &ConcernValue<Self>) -> bool;
}

impl Expect for ContentId {
    fn is_expected(stored: &Head, expected: &Head) -> bool {
        stored == expected
    }
}

impl Expect for IndexRoot {
    /// Compares only the named graphs that the expected value names. A revision is not compared.
    fn is_expected(stored: &Index, expected: &Index) -> bool {
        stored.v == expected.v
            && match (&stored.payload, &expected.payload) {
                (Some(stored), Some(expected)) => {
                    let graph = |name| stored.graphs.get(name).and_then(Option::as_ref);
                    stored.id == expected.id
                        && expected.graphs.iter().all(|(name, expected)| graph(name) == expected.as_ref())
                }
                (None, None) => true,
                _ => false,
            }
    }
}

impl Expect for StatusPayload {
    /// Compares the counter, the state if a payload is given, and the metadata if there is any. Leases that were read with
    /// a status are not compared.
    fn is_expected(stored: &Status, expected: &Status) -> bool {
        let without_leases = |status: &Status| status.payload.clone().map(StatusPayload::without_leases);
        stored.v == expected.v
            && match (without_leases(stored), without_leases(expected)) {
                (Some(stored), Some(expected)) => {
                    expected.state == stored.state
                        && (expected.meta.is_empty() || same_members(&expected.meta, &stored.meta))
                }
                _ => true,
            }
    }
}

impl Expect for Value {
    /// Compares the counter, and the payload if one is given.
    fn is_expected(stored: &Config, expected: &Config) -> bool {
        stored.v == expected.v
            && expected.payload.as_ref().is_none_or(|expected| {
                same_members(&members(stored.payload.as_ref().unwrap_or(&Self::Null)), &members(expected))
            })
    }
}

/// Returns what is compared of a config: its members, and the default context only if it is a string.
fn members(payload: &Value) -> Object {
    let mut members = payload.as_object().cloned().unwrap_or_default();
    if members.get(DEFAULT_CONTEXT_ID).is_some_and(|context| !context.is_string()) {
        members.remove(DEFAULT_CONTEXT_ID);
    }
    members
}

impl HeadPush {
    /// Judges the push by the stored head.
    pub fn judge(&self, stored: &Head) -> Judgement {
        let new = self.desired();
        if stored.v == new.t() && stored.payload.as_ref() == Some(new.id()) {
            return Judgement::Current;
        }
        let is_newer = new.t() > stored.v;
        match self.expected() {
            Expected::Older if is_newer => Judgement::Admissible,
            Expected::Older => Judgement::Stale,
            Expected::Value(expected) if is_newer && ContentId::is_expected(stored, expected) => Judgement::Admissible,
            Expected::Value(_) | Expected::NoRecord => Judgement::Conflict,
        }
    }
}

impl IndexPush {
    /// Judges the push by the stored index.
    pub fn judge(&self, stored: &Index) -> Judgement {
        let new = self.desired();
        let root = stored.payload.as_ref();
        let is_current = |root: &IndexRoot| {
            let mut graphs = new.graphs().iter();
            stored.v == new.t()
                && root.id == *new.id()
                && graphs.all(|(name, pushed)| is_stored(root, name, pushed.as_ref()))
        };
        if root.is_some_and(is_current) {
            return Judgement::Current;
        }
        let (rejected, is_admissible) = match self.expected() {
            Expected::Older => (Judgement::Stale, new.t() > stored.v || (self.allows_equal() && new.t() == stored.v)),
            Expected::Value(expected) => {
                (Judgement::Conflict, new.t() >= stored.v && IndexRoot::is_expected(stored, expected))
            }
            Expected::NoRecord => (Judgement::Conflict, false),
        };
        // The watermark of a named graph only grows too.
        let graph = |name: &str| root.and_then(|root| root.graphs.get(name)).and_then(Option::as_ref);
        let grows = |(name, pushed): (&String, &Option<NewGraphIndex>)| {
            pushed.as_ref().is_none_or(|pushed| graph(name).is_none_or(|stored| pushed.t() >= stored.t))
        };
        if is_admissible && new.graphs().iter().all(grows) { Judgement::Admissible } else { rejected }
    }

    /// Returns the index that the push was applied to, as far as the revisions that it wrote depend on it; `None` if the push
    /// does not determine them all. Nothing is assumed of what it does not state; an expected `rev` that it states, which is not
    /// compared, is taken to be the stored one.
    pub fn assumed_previous(&self) -> Option<Index> {
        let (previous, is_whole) = match self.expected() {
            // An overwrite of any index adds 1 to a revision that the push does not state.
            Expected::Older if self.allows_equal() => return None,
            Expected::Older => (Index::unborn(), false),
            Expected::NoRecord => (Index::unborn(), true),
            Expected::Value(expected)
                if expected.payload.is_some() && expected.v == self.desired().t() && !self.is_rev_stated() =>
            {
                return None;
            }
            Expected::Value(expected) => (expected.clone(), expected.payload.is_none()),
        };
        let graphs = previous.payload.as_ref().map(|root| &root.graphs);
        // A named graph may be replaced at its own `t`, which adds 1 to its revision.
        let is_counted_from_any = |(name, pushed): (&String, &Option<NewGraphIndex>)| {
            pushed.as_ref().is_some_and(|pushed| pushed.rev().is_none())
                && !graphs.is_some_and(|graphs| graphs.contains_key(name))
        };
        let is_known = is_whole || !self.desired().graphs().iter().any(is_counted_from_any);
        is_known.then_some(previous)
    }
}

/// Returns whether a push would write the stored named graph. An absent one is not the same as one without an index.
fn is_stored(root: &IndexRoot, name: &str, pushed: Option<&NewGraphIndex>) -> bool {
    match (root.graphs.get(name), pushed) {
        (Some(None), None) => true,
        (Some(Some(stored)), Some(pushed)) => {
            stored.id == *pushed.id() && stored.t == pushed.t() && pushed.rev().is_none_or(|rev| rev == stored.rev)
        }
        _ => false,
    }
}

impl StatusPush {
    /// Judges the push by the stored status.
    pub fn judge(&self, stored: &Status) -> Judgement {
        counted(self.expected(), stored, self.new_v())
    }
}

impl ConfigPush {
    /// Judges the push by the stored config.
    pub fn judge(&self, stored: &Config) -> Judgement {
        counted(self.expected(), stored, self.new_v())
    }
}

/// Judges a push of a value with a counter, which only moves from the expected value to a higher one.
fn counted<E: Expect>(expected: &Expected<E>, stored: &ConcernValue<E>, new_v: i64) -> Judgement {
    match expected {
        Expected::Value(expected) if new_v > stored.v && E::is_expected(stored, expected) => Judgement::Admissible,
        _ => Judgement::Conflict,
    }
}

fn same_members(a: &Object, b: &Object) -> bool {
    a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same_json(a, b)))
}

/// Returns whether two JSON values are the same. Numbers are compared by value: `1` and `1.0` are one number.
fn same_json(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_json(a, b)),
        (Value::Object(a), Value::Object(b)) => same_members(a, b),
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
