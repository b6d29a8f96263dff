//! What must be the same in two answers, and what may differ.

use std::collections::BTreeMap;

use nameservice_tests::prelude::*;

use super::places::Request;

/// Members that each service fills by its own clock or counts in its own way. Whether they are there is compared.
const OWN: [&str; 8] =
    ["cursor", "position", "oldest", "occurred_at", "recorded_at", "created_at", "updated_at", "emitted_at"];
/// Members for people, and what a backend says of itself.
const LEFT_OUT: [&str; 3] = ["detail", "instance", "capabilities"];
/// Lists whose order is not defined; that of records is not in snapshots.
const SETS: [&str; 7] = ["missing", "dependents", "unknown", "changes", "records", "ledgers", "graph_sources"];
/// Headers whose values are compared. Of [`PRESENT`], only whether they are there.
const SAME: [&str; 6] =
    ["content-type", "location", "allow", "nameservice-unchanged", "cache-control", "www-authenticate"];
const PRESENT: [&str; 3] = ["etag", "x-request-id", "retry-after"];

/// A body less what may differ, and less these members.
pub(super) fn comparable(value: &Value, without: &[&str]) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, value)| {
                let name = name.as_str();
                // A list under such a name is another member: those that a rejection names.
                // How far a history has been read shows whether more may follow: each backend knows that in its own way.
                let is_end = name == "position" && members.len() == 2 && members.contains_key("changes");
                let is_end = is_end && members["changes"].as_array().is_some_and(Vec::is_empty);
                !(is_end || LEFT_OUT.contains(&name) || without.contains(&name) && value.is_number())
            });
            let members = kept.map(|(name, value)| match (name.as_str(), comparable(value, without)) {
                (own, value) if OWN.contains(&own) && !value.is_object() => (name.clone(), "(its own)".into()),
                (set, Value::Array(mut values)) if SETS.contains(&set) => {
                    values.sort_by_key(|value| match &value["address"] {
                        // Changes keep their order within a concern.
                        Value::String(address) => format!("{address} {}", value["concern"]),
                        _ => value.to_string(),
                    });
                    (name.clone(), values.into())
                }
                (_, value) => (name.clone(), value),
            });
            members.collect::<Object>().into()
        }
        Value::Array(values) => values.iter().map(|value| comparable(value, without)).collect(),
        // Numbers keep their value, not always their form.
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.as_i64().is_none() => whole(float).map_or_else(|| value.clone(), Value::from),
            _ => value.clone(),
        },
        other => other.clone(),
    }
}

/// A number with a fraction part of zero, as a whole number.
fn whole(float: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[allow(clippy::cast_possible_truncation, reason = "it has no fraction, and is below 2^53")]
    (float.fract() == 0.0 && float.abs() < EXACT).then_some(float as i64)
}

/// The first member in which two bodies differ.
fn first(path: &str, left: &Value, right: &Value) -> Option<String> {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let names: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
            names.into_iter().find_map(|name| {
                let path = format!("{path}/{name}");
                match (left.get(name), right.get(name)) {
                    (Some(left), Some(right)) => first(&path, left, right),
                    (left, right) => Some(format!("{path}: {} / {}", shown(left), shown(right))),
                }
            })
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let mut pairs = left.iter().zip(right).enumerate();
            pairs.find_map(|(at, (left, right))| first(&format!("{path}/{at}"), left, right))
        }
        _ if left == right => None,
        _ => Some(format!("{path}: {left} / {right}")),
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "(absent)".to_owned(), Value::to_string)
}

/// The last part of a problem's type.
pub(super) fn problem(answer: &Answer) -> &str {
    answer.body["type"].as_str().and_then(|kind| kind.rsplit('/').next()).unwrap_or_default()
}

/// In what two answers to the same request differ.
pub(super) fn difference(left: &Answer, right: &Answer, without: &[&str]) -> Option<String> {
    if left.status != right.status || problem(left) != problem(right) {
        let outcome = |answer: &Answer| format!("{} {}", answer.status.as_u16(), problem(answer));
        return Some(format!("status: {} / {}", outcome(left).trim(), outcome(right).trim()));
    }
    let value = |answer: &Answer, name| answer.header(name).map(str::to_owned);
    let same = SAME.into_iter().find(|name| value(left, name) != value(right, name));
    let present = PRESENT.into_iter().find(|name| value(left, name).is_some() != value(right, name).is_some());
    if let Some(name) = same.or(present) {
        return Some(format!("header {name}: {:?} / {:?}", value(left, name), value(right, name)));
    }
    first("", &comparable(&left.body, without), &comparable(&right.body, without))
}

/// The changes of a feed by record and concern, in their order.
pub(super) fn by_part(changes: &Value) -> Value {
    let mut parts: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for change in changes["changes"].as_array().into_iter().flatten() {
        let part = format!("{} {}", change["address"].as_str().unwrap(), change["concern"].as_str().unwrap());
        parts.entry(part).or_default().push(change.clone());
    }
    json!(parts)
}

/// In what two feeds differ.
pub(super) fn feed_difference(left: &Value, right: &Value, without: &[&str]) -> Option<String> {
    first("", &comparable(&by_part(left), without), &comparable(&by_part(right), without))
}

/// A difference without its values, so that different sequences that show the same can be recognised.
pub(super) fn kind_of(request: &Request, what: &str) -> String {
    let path = match what.split_once(": ") {
        Some(("status", _)) | None => what,
        Some((path, _)) => path,
    };
    let path: String =
        path.chars().map(|c| if c.is_ascii_digit() && what.starts_with('/') { '#' } else { c }).collect();
    format!("{}: {path}", request.route())
}
