//! Metrics of requests as CloudWatch takes them from a log: one line of the embedded metric format for each request, under the
//! names of docs/metrics.md. No request to AWS is made, and nothing is buffered.

use std::{
    io::{Write as _, stdout},
    time::{SystemTime, UNIX_EPOCH},
};

use nameservice_dynamo::variable;
use nameservice_http::Answered;
use serde_json::{Value, json};

/// Names the deployment in its metrics; without it there are none.
const METRICS: &str = "NAMESERVICE_METRICS";
/// Lambda drops lines below this level, and lines without one may be taken for any.
const LOG_LEVEL: &str = "AWS_LAMBDA_LOG_LEVEL";
const NAMESPACE: &str = "Nameservice";
const REQUESTS: &str = "nameservice_requests_total";
const DURATION: &str = "nameservice_request_duration_seconds";

/// Writes a line for each request.
#[derive(Clone, Debug)]
pub(crate) struct Emf {
    name: String,
    level: String,
}

impl Emf {
    /// Returns what the environment asks for.
    pub(crate) fn of_environment() -> Option<Self> {
        Some(Self { name: variable(METRICS)?, level: variable(LOG_LEVEL).unwrap_or_else(|| "INFO".to_owned()) })
    }

    /// Writes the line of a request.
    pub(crate) fn write(&self, answered: &Answered) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = self.line(answered, since.as_millis());
        // A log that is closed takes no metrics either.
        let _ = writeln!(stdout().lock(), "{line}");
    }

    fn line(&self, answered: &Answered, now_ms: u128) -> Value {
        // What is no dimension is no metric to pay for, and can be searched all the same.
        let directive = |dimensions: &[&str], name: &str, unit: &str| {
            json!({
                "Namespace": NAMESPACE,
                "Dimensions": [dimensions],
                "Metrics": [{ "Name": name, "Unit": unit }],
            })
        };
        json!({
            "_aws": {
                "Timestamp": u64::try_from(now_ms).unwrap_or(u64::MAX),
                "CloudWatchMetrics": [
                    directive(&["name", "outcome"], REQUESTS, "Count"),
                    directive(&["name"], DURATION, "Seconds"),
                ],
            },
            "level": self.level,
            "name": self.name,
            "operation": answered.operation,
            "outcome": answered.outcome,
            "trace_id": answered.trace_id,
            REQUESTS: 1,
            DURATION: answered.duration.as_secs_f64(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_holds_every_metric_and_dimension_that_it_declares_under_the_documented_names() {
        let emf = Emf { name: "names".into(), level: "WARN".into() };
        let answered = Answered {
            operation: "PUT /v1/heads/{address}".into(),
            outcome: "outcome_unknown".into(),
            duration: Duration::from_micros(12_500),
            trace_id: None,
        };
        let line = emf.line(&answered, 1_700_000_000_123);
        assert_eq!(line["_aws"]["Timestamp"], 1_700_000_000_123_u64);
        let documented = include_str!("../../../docs/metrics.md");
        for directive in line["_aws"]["CloudWatchMetrics"].as_array().unwrap() {
            for dimension in directive["Dimensions"][0].as_array().unwrap() {
                assert!(line[dimension.as_str().unwrap()].is_string(), "{dimension}");
            }
            for metric in directive["Metrics"].as_array().unwrap() {
                let name = metric["Name"].as_str().unwrap();
                assert!(line[name].is_number(), "{name}");
                assert!(documented.contains(&format!("| `{name}` |")), "{name}");
            }
        }
        assert_eq!((&line[REQUESTS], &line[DURATION]), (&json!(1), &json!(0.0125)));
        assert_eq!((&line["outcome"], &line["level"]), (&json!("outcome_unknown"), &json!("WARN")));
    }
}
