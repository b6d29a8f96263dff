//! `diff`: how a record changed between two positions of the feed.

use std::collections::BTreeMap;

use clap::Args;
use nameservice_api::changes::History;
use nameservice_model::{Address, is_redacted};
use serde_json::{Value, json};

use crate::{
    client::Request,
    failure::Failure,
    lists::{self, Column, FormatArgs},
    output,
    session::Session,
};

/// `diff`
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The record, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
    /// The earlier position of the feed, as `history` shows it
    pub from: u64,
    /// The later position [default: the last change of the record]
    pub to: Option<u64>,
    /// The format.
    #[command(flatten)]
    pub format: FormatArgs,
}

const COLUMNS: &[Column] = &[("concern", "/concern"), ("path", "/path"), ("before", "/before"), ("after", "/after")];
/// The maximum number of entries on a page of the service.
const MAX_PAGE: u64 = 1_000;
/// The parts of a record, in the order in which they are shown.
const CONCERNS: [&str; 5] = ["meta", "head", "index", "status", "config"];

pub(crate) async fn run(session: &Session, args: DiffArgs) -> Result<(), Failure> {
    let DiffArgs { address, from, to, format } = args;
    let format = format.wanted(session.output)?;
    if to.is_some_and(|to| to < from) {
        return Err(Failure::Usage("the earlier position comes first".into()));
    }
    let changes = history(session, &address).await?;
    let to = to.or_else(|| changes.iter().filter_map(|change| change["position"].as_u64()).max()).unwrap_or(from);
    let (before, after) = (State::at(&changes, from), State::at(&changes, to));
    let differences = differences(&before, &after);
    let document = || json!({"address": address.as_str(), "from": from, "to": to, "differences": differences});
    let words = || {
        let mut lines = vec![format!("{address}, position {from} to {to}")];
        if differences.is_empty() {
            lines.push("  no difference that the feed still holds".to_owned());
        }
        lines.extend(lines_of(&before, &after, &differences));
        lines.join("\n")
    };
    lists::print(format, COLUMNS, &differences, document, words)
}

/// All changes of a record that the feed still holds, oldest first.
async fn history(session: &Session, address: &Address) -> Result<Vec<Value>, Failure> {
    let (mut after, mut found) = (None, Vec::new());
    loop {
        let request = Request::get("history").at(address).query("after", after).query("limit", Some(MAX_PAGE));
        let page = session.send::<History>(request).await?;
        found.extend(page.json["changes"].as_array().into_iter().flatten().cloned());
        match page.position {
            Some(position) => after = Some(position),
            None => return Ok(found),
        }
    }
}

/// What is known of a record at a position.
struct State(BTreeMap<&'static str, Known>);

#[derive(Clone, Debug, PartialEq)]
enum Known {
    /// The value, and the position of the change that stored it; null if there is none.
    Value(Value, Option<u64>),
    /// The watermark of a value that was left out of the feed.
    Omitted(Value),
    /// The last change before the position is no longer in the feed. The watermark, if the next change shows it.
    Expired(Option<Value>),
}

impl State {
    fn at(changes: &[Value], position: u64) -> Self {
        Self(CONCERNS.into_iter().map(|concern| (concern, Known::at(changes, concern, position))).collect())
    }

    /// Returns the head or the index in words.
    fn reference(&self, concern: &str) -> String {
        match self.0.get(concern).map(Known::shown) {
            None | Some(Value::Null) => "nothing".to_owned(),
            Some(Value::Object(value)) => output::value(&json!({"id": value.get("id"), "t": value.get("t")})),
            Some(other) => output::text(&other),
        }
    }
}

impl Known {
    fn at(changes: &[Value], concern: &str, position: u64) -> Self {
        let of_concern = || changes.iter().filter(|change| change["concern"] == concern);
        let is_before = |change: &&Value| change["position"].as_u64().is_some_and(|at| at <= position);
        match (of_concern().rfind(is_before), of_concern().next()) {
            (Some(last), _) if last["payload_omitted"] == true => Self::Omitted(last["watermark"].clone()),
            (Some(last), _) => Self::Value(valued(last), last["position"].as_u64()),
            (None, Some(next)) if next["change"] == "created" => Self::Value(Value::Null, None),
            (None, Some(next)) => Self::Expired(next.get("previous").cloned()),
            (None, None) => Self::Expired(None),
        }
    }

    /// The value, or a placeholder for one that is not known.
    fn shown(&self) -> Value {
        match self {
            Self::Value(value, _) => value.clone(),
            Self::Omitted(watermark) => json!(format!("(left out of the feed, at {watermark})")),
            Self::Expired(Some(watermark)) => json!(format!("(no longer in the feed, at {watermark})")),
            Self::Expired(None) => json!("(no longer in the feed)"),
        }
    }
}

/// The value of a change, with its watermark if the payload does not contain that.
fn valued(change: &Value) -> Value {
    let payload = change.get("payload").cloned().unwrap_or_default();
    match change["concern"].as_str() {
        Some("status" | "config") if !payload.is_null() => json!({"v": change["watermark"], "payload": payload}),
        _ => payload,
    }
}

/// The members in which two states differ.
fn differences(before: &State, after: &State) -> Vec<Value> {
    let mut found = Vec::new();
    for concern in CONCERNS {
        let (Some(before), Some(after)) = (before.0.get(concern), after.0.get(concern)) else { continue };
        if before == after {
            continue;
        }
        let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
        members(&before.shown(), String::new(), &mut left);
        members(&after.shown(), String::new(), &mut right);
        let paths: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).collect();
        for path in paths {
            let (before, after) = (left.get(path), right.get(path));
            // Absent, and null, are both nothing.
            let is_nothing = |value: Option<&Value>| value.is_none_or(Value::is_null);
            if is_nothing(before) && is_nothing(after) {
                continue;
            }
            if before != after {
                found.push(json!({"concern": concern, "path": path, "before": before, "after": after}));
            } else if after.is_some_and(is_redacted) {
                // Different secrets look the same in the feed.
                let hidden =
                    json!({"concern": concern, "path": path, "before": before, "after": after, "unknown": true});
                found.push(hidden);
            }
        }
    }
    found
}

/// Collects the values that have no members of their own, by their paths.
fn members(value: &Value, path: String, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(object) if !object.is_empty() => {
            for (name, value) in object {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                members(value, below, found);
            }
        }
        Value::Null if path.is_empty() => {}
        value => drop(found.insert(path, value.clone())),
    }
}

/// Returns the differences in words: that of a head or an index in one line and as options take it, whichever of its id and its `t` differ.
fn lines_of(before: &State, after: &State, differences: &[Value]) -> Vec<String> {
    let mut lines = Vec::new();
    for difference in differences {
        let line = match (difference["concern"].as_str(), difference["path"].as_str()) {
            (Some(concern @ ("head" | "index")), Some("" | "id" | "t")) => {
                format!("  {concern}: {} -> {}", before.reference(concern), after.reference(concern))
            }
            _ => words_of(difference),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn words_of(difference: &Value) -> String {
    let side = |name: &str| match &difference[name] {
        Value::Null => "nothing".to_owned(),
        value => output::text(value),
    };
    let (concern, path) = (output::text(&difference["concern"]), output::text(&difference["path"]));
    let dot = if path.is_empty() { "" } else { "." };
    let doubt = if difference["unknown"] == true { " (secret: it may have changed)" } else { "" };
    format!("  {concern}{dot}{path}: {} -> {}{doubt}", side("before"), side("after"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(position: u64, concern: &str, kind: &str, watermark: i64, payload: Value) -> Value {
        json!({"position": position, "concern": concern, "change": kind, "watermark": watermark, "payload": payload})
    }

    fn found(changes: &[Value], from: u64, to: u64) -> Vec<String> {
        let (before, after) = (State::at(changes, from), State::at(changes, to));
        lines_of(&before, &after, &differences(&before, &after))
    }

    #[test]
    fn each_member_that_differs_is_a_line_with_both_values() {
        let changes = [
            change(1, "meta", "created", 0, json!({"retracted": false})),
            change(2, "status", "created", 1, json!({"state": "ready"})),
            change(5, "head", "created", 1, json!({"id": "bafy1", "t": 1})),
            change(7, "head", "updated", 2, json!({"id": "bafy2", "t": 2})),
            change(8, "status", "updated", 2, json!({"state": "error", "reason": {"code": 7}})),
        ];
        assert_eq!(found(&changes, 5, 5), [""; 0]);
        assert_eq!(found(&changes, 2, 5), ["  head: nothing -> bafy1@1"]);
        assert_eq!(
            found(&changes, 5, 8),
            [
                "  head: bafy1@1 -> bafy2@2",
                "  status.payload.reason.code: nothing -> 7",
                "  status.payload.state: ready -> error",
                "  status.v: 1 -> 2",
            ]
        );
    }

    #[test]
    fn secrets_are_not_taken_for_the_same() {
        let secret = |position, watermark, k: u8| {
            let payload = json!({"password": "[redacted]", "k": k});
            change(position, "config", "updated", watermark, payload)
        };
        let changes = [secret(1, 1, 1), secret(2, 2, 1), secret(3, 2, 2)];
        assert_eq!(found(&changes, 1, 1), [""; 0]);
        let doubtful = "  config.payload.password: [redacted] -> [redacted] (secret: it may have changed)";
        assert_eq!(found(&changes, 1, 2), [doubtful, "  config.v: 1 -> 2"]);
        // Purged and created again: the same watermark.
        assert_eq!(found(&changes, 2, 3), ["  config.payload.k: 1 -> 2", doubtful]);
    }

    #[test]
    fn what_the_feed_does_not_hold_any_more_is_not_taken_for_nothing() {
        let mut updated = change(9, "head", "updated", 6, json!({"id": "bafy6", "t": 6}));
        updated["previous"] = json!(5);
        let mut large = change(11, "config", "updated", 3, Value::Null);
        large["payload_omitted"] = json!(true);
        let changes = [updated, change(10, "config", "created", 1, json!({"a": 1})), large];
        let differences = found(&changes, 3, 11);
        assert!(
            differences.contains(&"  head: (no longer in the feed, at 5) -> bafy6@6".to_owned()),
            "{differences:?}"
        );
        assert!(
            differences.contains(&"  config: nothing -> (left out of the feed, at 3)".to_owned()),
            "{differences:?}"
        );
        assert!(differences.iter().all(|line| !line.contains("status")), "{differences:?}");
    }
}
