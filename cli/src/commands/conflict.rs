//! Explains conflicts: what was expected, and what is stored.

use nameservice_api::{ProblemKind, requests::HeadValue};
use serde_json::Value;

use crate::{failure::Failure, output};

/// What a push expected.
pub(super) enum Expectation {
    /// Any older value.
    Older,
    /// No record.
    NoRecord,
    /// A head or an index.
    Reference(HeadValue),
    /// A version.
    Version(i64),
}

impl Expectation {
    /// Explains a conflict with this expectation; returns other failures unchanged.
    pub(super) fn explain(&self, failure: Failure, new_t: Option<i64>) -> Failure {
        match failure {
            Failure::Rejected(problem) if problem.kind() == Some(ProblemKind::Conflict) => {
                let actual = problem.members.get("actual").unwrap_or(&Value::Null);
                let words = match (self.is(actual), new_t, actual["t"].as_i64()) {
                    (true, Some(new), Some(current)) => format!("new t {new} must be greater than current t {current}"),
                    _ => format!("expected {}, found {}", self.words(), found(actual)),
                };
                Failure::Conflict { words, problem }
            }
            other => other,
        }
    }

    fn is(&self, actual: &Value) -> bool {
        match self {
            Self::Older => true,
            Self::NoRecord => actual.is_null(),
            Self::Reference(HeadValue { id, t }) => {
                actual["id"].as_str() == id.as_deref() && actual["t"].as_i64() == Some(*t)
            }
            Self::Version(v) => actual["v"].as_i64() == Some(*v),
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Older => "an older value".into(),
            Self::NoRecord => "no record".into(),
            Self::Reference(value) => output::reference(value),
            Self::Version(v) => format!("v {v}"),
        }
    }
}

fn found(actual: &Value) -> String {
    match actual["v"].as_i64() {
        Some(v) => format!("v {v}"),
        None => output::value(actual),
    }
}

#[cfg(test)]
mod tests {
    use nameservice_api::ProblemDocument;
    use serde_json::json;

    use super::*;

    fn words(expectation: Expectation, new_t: Option<i64>, actual: Value) -> String {
        let problem: ProblemDocument = serde_json::from_value(json!({
            "type": ProblemKind::Conflict.type_uri(), "title": "t", "status": 409, "detail": "d", "actual": actual,
        }))
        .unwrap();
        expectation.explain(Failure::Rejected(Box::new(problem)), new_t).to_string()
    }

    #[test]
    fn a_conflict_names_what_was_expected_and_what_is_stored() {
        let reference = |id: Option<&str>, t| Expectation::Reference(HeadValue { id: id.map(Into::into), t });
        for (expectation, new_t, actual, expected) in [
            (reference(Some("bafy1"), 1), Some(2), json!({"id": "bafk2", "t": 2}), "expected bafy1@1, found bafk2@2"),
            (
                reference(Some("bafy1"), 2),
                Some(2),
                json!({"id": "bafy1", "t": 2}),
                "new t 2 must be greater than current t 2",
            ),
            (reference(None, 0), Some(1), json!({"id": "bafk2", "t": 2}), "expected unborn, found bafk2@2"),
            (reference(Some("bafy1"), 1), Some(2), json!({"id": null, "t": 0}), "expected bafy1@1, found unborn"),
            (Expectation::NoRecord, Some(1), json!({"id": "bafk2", "t": 2}), "expected no record, found bafk2@2"),
            (Expectation::Version(1), None, json!({"v": 2, "payload": {}}), "expected v 1, found v 2"),
        ] {
            assert_eq!(words(expectation, new_t, actual), format!("conflict, nothing written: {expected}"));
        }
    }
}
