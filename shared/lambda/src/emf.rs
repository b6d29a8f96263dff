//! Metrics that CloudWatch extracts from the log: lines of the embedded metric format, under the names of docs/metrics.md. No
//! request to AWS is made. The metrics of a request or a batch are written at its end: a function handles one at a time.
//!
//! The crate `metrics_cloudwatch_embedded` makes every label a dimension, each combination of which is a metric to pay for, and
//! writes no `level` and no `timestamp`: Lambda takes a line that lacks either, or whose `timestamp` is not RFC 3339, for one of the
//! level INFO, and drops it if the log's level is higher
//! (<https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-log-level.html>).

use std::{
    collections::BTreeMap,
    io::{Write as _, stdout},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use jiff::Timestamp;
use metrics::{Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder};
use nameservice_dynamo::variable;
#[cfg(feature = "http")]
use nameservice_http::Answered;
use serde_json::{Map, Value, json};

/// The name of the deployment in its metrics; without it there are none.
const METRICS: &str = "NAMESERVICE_METRICS";
/// Lambda drops lines below this level, and may assign any level to a line without one.
const LOG_LEVEL: &str = "AWS_LAMBDA_LOG_LEVEL";
const NAMESPACE: &str = "Nameservice";
/// The dimension that every metric has.
const NAME: &str = "name";
#[cfg(feature = "http")]
const REQUESTS: Measure = Measure::sum("nameservice_requests_total").by("outcome");
#[cfg(feature = "http")]
const DURATION: Measure = Measure::values("nameservice_request_duration_seconds", "Seconds");
/// The maximum number of values of one metric in a line.
const MAX_VALUES: usize = 100;

/// The metrics that are written, of all that are measured: each combination of dimensions is a metric to pay for.
const MEASURES: &[Measure] = &[
    Measure::sum("nameservice_store_requests_total"),
    Measure::sum("nameservice_store_retries_total").by("reason"),
    Measure::sum("nameservice_store_capacity_units"),
    Measure::sum("nameservice_leases_total").by("outcome"),
    Measure::last("nameservice_feed_position", "None"),
    Measure::values("nameservice_feed_lag_seconds", "Seconds"),
    Measure::values("nameservice_feed_batch_changes", "Count"),
    Measure::sum("nameservice_feed_dead_letters_total"),
    Measure::sum("nameservice_feed_failures_total"),
    Measure::sum("nameservice_feed_rings_lost_total"),
    Measure::sum("nameservice_feed_notifications_lost_total"),
    Measure::last("nameservice_topic_position", "None"),
    Measure::last("nameservice_topic_lag_changes", "Count"),
    Measure::values("nameservice_topic_lag_seconds", "Seconds"),
    Measure::sum("nameservice_topic_messages_total").by("outcome"),
    Measure::sum("nameservice_projection_changes_total").by("projection"),
    Measure::sum("nameservice_search_documents_total").by("outcome"),
    Measure::last("nameservice_archive_position", "None"),
    Measure::sum("nameservice_archive_lost_changes_total"),
];

/// A metric as CloudWatch has it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measure {
    name: &'static str,
    unit: &'static str,
    /// The label that becomes a dimension besides the name of the deployment. Other labels are merged.
    by: Option<&'static str>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Sum,
    Values,
    Last,
}

impl Measure {
    const fn sum(name: &'static str) -> Self {
        Self { name, unit: "Count", by: None, kind: Kind::Sum }
    }

    const fn values(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, by: None, kind: Kind::Values }
    }

    const fn last(name: &'static str, unit: &'static str) -> Self {
        Self { name, unit, by: None, kind: Kind::Last }
    }

    const fn by(self, label: &'static str) -> Self {
        Self { by: Some(label), ..self }
    }
}

/// Writes the lines.
#[derive(Debug)]
pub(crate) struct Emf {
    name: String,
    level: String,
    gathered: Arc<Gathered>,
}

/// What this process writes; `None` if its environment asks for nothing.
static EMF: OnceLock<Option<Emf>> = OnceLock::new();

/// Returns the metrics that the environment asks for, and begins to measure.
pub(crate) fn of_environment() -> Option<&'static Emf> {
    let begin = || {
        let gathered = Arc::new(Gathered::default());
        let emf = Emf {
            name: variable(METRICS)?,
            level: variable(LOG_LEVEL).unwrap_or_else(|| "INFO".to_owned()),
            gathered: gathered.clone(),
        };
        // Fails only if the process already has a recorder: then that one gets the metrics.
        let _ = metrics::set_global_recorder(Gatherer(gathered));
        Some(emf)
    };
    EMF.get_or_init(begin).as_ref()
}

impl Emf {
    /// Writes what was measured since the last time.
    pub(crate) fn write(&self) {
        self.print(Vec::new(), Map::new());
    }

    /// Writes the line of a request, with what was measured during it.
    #[cfg(feature = "http")]
    pub(crate) fn write_request(&self, answered: &Answered) {
        let (metrics, members) = request(answered);
        self.print(metrics, members);
    }

    fn print(&self, metrics: Vec<(Measure, Value)>, members: Map<String, Value>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut log = stdout().lock();
        for line in self.lines(metrics, members, now.as_millis()) {
            // If the log is closed, the metrics are lost too.
            let _ = writeln!(log, "{line}");
        }
    }

    /// Returns one line for the given metrics and those without a further dimension, and one for each value of a dimension.
    fn lines(&self, metrics: Vec<(Measure, Value)>, members: Map<String, Value>, now_ms: u128) -> Vec<Value> {
        let (mut plain, mut lines) = (metrics, Vec::new());
        for (measure, label, value) in self.gathered.take() {
            match (measure.by, label) {
                (Some(by), Some(label)) => {
                    let dimension = Map::from_iter([(by.to_owned(), label.into())]);
                    lines.push(self.line(vec![(measure, value)], dimension, now_ms));
                }
                _ => plain.push((measure, value)),
            }
        }
        if !plain.is_empty() {
            lines.insert(0, self.line(plain, members, now_ms));
        }
        lines
    }

    fn line(&self, metrics: Vec<(Measure, Value)>, mut members: Map<String, Value>, now_ms: u128) -> Value {
        let mut directives: BTreeMap<Option<&str>, Vec<Value>> = BTreeMap::new();
        for (measure, value) in metrics {
            let metric = json!({ "Name": measure.name, "Unit": measure.unit });
            directives.entry(measure.by).or_default().push(metric);
            members.insert(measure.name.to_owned(), value);
        }
        let directives: Vec<Value> = directives
            .into_iter()
            .map(|(by, metrics)| {
                let dimensions: Vec<&str> = std::iter::once(NAME).chain(by).collect();
                json!({ "Namespace": NAMESPACE, "Dimensions": [dimensions], "Metrics": metrics })
            })
            .collect();
        let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let timestamp = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::MAX);
        members.insert("_aws".to_owned(), json!({ "Timestamp": now_ms, "CloudWatchMetrics": directives }));
        members.insert("timestamp".to_owned(), format!("{timestamp:.3}").into());
        members.insert("level".to_owned(), self.level.as_str().into());
        members.insert(NAME.to_owned(), self.name.as_str().into());
        Value::Object(members)
    }
}

/// Returns the metrics and members of a request's line. Members that are not dimensions cost nothing, and are searchable.
#[cfg(feature = "http")]
fn request(answered: &Answered) -> (Vec<(Measure, Value)>, Map<String, Value>) {
    let metrics = vec![(REQUESTS, 1.into()), (DURATION, answered.duration.as_secs_f64().into())];
    let mut members = Map::from_iter([
        ("operation".to_owned(), answered.operation.as_str().into()),
        ("outcome".to_owned(), answered.outcome.as_ref().into()),
    ]);
    let ids = [("trace_id", &answered.trace_id), ("call", &answered.call)];
    members.extend(ids.into_iter().filter_map(|(name, id)| Some((name.to_owned(), id.as_deref()?.into()))));
    (metrics, members)
}

/// The index of a metric in [`MEASURES`], and the value of its label.
type Series = (usize, Option<String>);

/// What was measured since the last line.
#[derive(Debug, Default)]
struct Gathered(Mutex<BTreeMap<Series, Vec<f64>>>);

impl Gathered {
    /// Returns the place of a metric, if it is among [`MEASURES`].
    fn place(self: &Arc<Self>, key: &Key) -> Option<Arc<Place>> {
        let index = MEASURES.iter().position(|measure| measure.name == key.name())?;
        let label = MEASURES[index].by.and_then(|by| key.labels().find(|label| label.key() == by));
        let label = label.map(|label| label.value().to_owned());
        Some(Arc::new(Place { gathered: self.clone(), index, label }))
    }

    fn take(&self) -> Vec<(Measure, Option<String>, Value)> {
        let gathered = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let value = |values: &[f64]| match values {
            [one] => json!(one),
            many => json!(many),
        };
        gathered.into_iter().map(|((index, label), values)| (MEASURES[index], label, value(&values))).collect()
    }
}

/// Collects the values of one metric with one label.
struct Place {
    gathered: Arc<Gathered>,
    index: usize,
    label: Option<String>,
}

impl Place {
    fn put(&self, value: f64) {
        let mut gathered = self.gathered.0.lock().unwrap_or_else(PoisonError::into_inner);
        let values = gathered.entry((self.index, self.label.clone())).or_default();
        match (MEASURES[self.index].kind, &mut values[..]) {
            (Kind::Sum, [sum]) => *sum += value,
            (Kind::Last, [last]) => *last = value,
            // A full line drops further values: the first ones represent all.
            (Kind::Values, full) if full.len() >= MAX_VALUES => {}
            _ => values.push(value),
        }
    }
}

impl CounterFn for Place {
    fn increment(&self, value: u64) {
        self.put(value as f64);
    }

    /// Ignored: no counter is set to an absolute value.
    fn absolute(&self, _value: u64) {}
}

impl GaugeFn for Place {
    /// Ignored: gauges are only set.
    fn increment(&self, _value: f64) {}

    fn decrement(&self, _value: f64) {}

    fn set(&self, value: f64) {
        self.put(value);
    }
}

impl HistogramFn for Place {
    fn record(&self, value: f64) {
        self.put(value);
    }
}

/// The recorder, which keeps the metrics of [`MEASURES`] and drops all others.
#[derive(Debug)]
struct Gatherer(Arc<Gathered>);

impl Recorder for Gatherer {
    fn describe_counter(&self, _: KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<metrics::Unit>, _: metrics::SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.0.place(key).map_or_else(Counter::noop, Counter::from_arc)
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.0.place(key).map_or_else(Gauge::noop, Gauge::from_arc)
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.place(key).map_or_else(Histogram::noop, Histogram::from_arc)
    }
}

#[cfg(test)]
mod tests {
    use metrics::{counter, gauge, histogram, with_local_recorder};

    use super::*;

    const NOW: u128 = 1_700_000_000_123;

    fn emf() -> Emf {
        Emf { name: "names".into(), level: "WARN".into(), gathered: Arc::default() }
    }

    /// Every line holds what it declares, under the documented names.
    fn check(lines: &[Value]) {
        let documented = include_str!("../../../docs/metrics.md");
        for line in lines {
            assert_eq!((&line["_aws"]["Timestamp"], &line["level"]), (&json!(NOW as u64), &json!("WARN")));
            // Without it Lambda would drop the line at this level.
            assert_eq!(line["timestamp"], json!("2023-11-14T22:13:20.123Z"));
            for directive in line["_aws"]["CloudWatchMetrics"].as_array().unwrap() {
                for dimension in directive["Dimensions"][0].as_array().unwrap() {
                    assert!(line[dimension.as_str().unwrap()].is_string(), "{dimension}");
                }
                for metric in directive["Metrics"].as_array().unwrap() {
                    let name = metric["Name"].as_str().unwrap();
                    assert!(line[name].is_number() || line[name].is_array(), "{name}");
                    assert!(documented.matches(&format!("| `{name}` |")).count() == 2, "{name} is in both tables");
                }
            }
        }
    }

    /// The words of a text that name metrics.
    #[cfg(feature = "http")]
    fn names(text: &str) -> std::collections::BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("nameservice_")).collect()
    }

    #[cfg(feature = "http")]
    #[test]
    fn what_functions_write_is_in_their_table_and_dashboard_and_alarms_ask_for_nothing_else() {
        let written: std::collections::BTreeSet<_> =
            MEASURES.iter().chain([&REQUESTS, &DURATION]).map(|measure| measure.name).collect();
        let page = include_str!("../../../docs/metrics.md");
        let (_, on_aws) = page.split_once("## On AWS").unwrap();
        let rows: Vec<&str> = on_aws.lines().filter(|line| line.starts_with("| `nameservice_")).collect();
        assert_eq!(rows.iter().flat_map(|row| names(row)).collect::<std::collections::BTreeSet<_>>(), written);
        for measure in MEASURES.iter().chain([&REQUESTS]) {
            let row = rows.iter().find(|row| row.starts_with(&format!("| `{}` |", measure.name))).unwrap();
            assert_eq!(row.contains(", `"), measure.by.is_some(), "{row}");
            assert!(measure.by.is_none_or(|by| row.contains(&format!("`{by}`"))), "{row}");
        }
        for asking in [
            include_str!("../../../infra/modules/nameservice/dashboard.tf"),
            include_str!("../../../infra/modules/nameservice/alarms.tf"),
        ] {
            let asked = names(asking);
            assert!(!asked.is_empty() && asked.is_subset(&written), "{asked:?}");
        }
    }

    #[test]
    fn what_a_batch_has_measured_is_one_line_and_one_more_for_each_value_of_a_dimension() {
        let emf = emf();
        with_local_recorder(&Gatherer(emf.gathered.clone()), || {
            for outcome in ["ok", "busy", "ok"] {
                counter!("nameservice_store_requests_total", "operation" => "append", "outcome" => outcome)
                    .increment(1);
            }
            histogram!("nameservice_store_capacity_units", "operation" => "append").record(4.0);
            histogram!("nameservice_store_capacity_units", "operation" => "read").record(0.5);
            counter!("nameservice_store_retries_total", "operation" => "append", "reason" => "throttled").increment(2);
            histogram!("nameservice_feed_lag_seconds").record(0.25);
            histogram!("nameservice_feed_lag_seconds").record(1.5);
            gauge!("nameservice_feed_position").set(7.0);
            gauge!("nameservice_feed_position").set(9.0);
            // Not in `MEASURES`: there would be too many.
            histogram!("nameservice_store_request_duration_seconds", "operation" => "read").record(0.1);
        });
        let lines = emf.lines(Vec::new(), Map::new(), NOW);
        check(&lines);
        let [batch, retries] = &lines[..] else { panic!("{lines:#?}") };
        assert_eq!(batch["nameservice_store_requests_total"], 3.0);
        assert_eq!(batch["nameservice_store_capacity_units"], 4.5);
        assert_eq!(batch["nameservice_feed_lag_seconds"], json!([0.25, 1.5]));
        assert_eq!(batch["nameservice_feed_position"], 9.0);
        assert_eq!(
            (&retries["nameservice_store_retries_total"], &retries["reason"]),
            (&json!(2.0), &json!("throttled"))
        );
        assert!(!lines.iter().any(|line| line.to_string().contains("duration")), "{lines:#?}");
        assert!(emf.lines(Vec::new(), Map::new(), NOW).is_empty(), "what was written is not written again");
    }

    #[test]
    fn a_line_holds_a_hundred_values_at_most() {
        let emf = emf();
        with_local_recorder(&Gatherer(emf.gathered.clone()), || {
            for n in 0..150 {
                histogram!("nameservice_feed_batch_changes").record(f64::from(n));
            }
        });
        let lines = emf.lines(Vec::new(), Map::new(), NOW);
        assert_eq!(lines[0]["nameservice_feed_batch_changes"].as_array().unwrap().len(), MAX_VALUES);
    }

    #[cfg(feature = "http")]
    #[test]
    fn the_line_of_a_request_has_what_it_has_measured_and_the_ids_of_its_trace() {
        let emf = emf();
        with_local_recorder(&Gatherer(emf.gathered.clone()), || {
            counter!("nameservice_store_requests_total", "operation" => "push", "outcome" => "ok").increment(1);
            counter!("nameservice_leases_total", "outcome" => "lost").increment(1);
        });
        let answered = Answered {
            operation: "PUT /v1/heads/{address}".into(),
            outcome: "outcome_unknown".into(),
            duration: std::time::Duration::from_micros(12_500),
            trace_id: None,
            call: Some("ab".into()),
        };
        let (metrics, members) = request(&answered);
        let lines = emf.lines(metrics, members, NOW);
        check(&lines);
        let [line, lost] = &lines[..] else { panic!("{lines:#?}") };
        assert_eq!((&line[REQUESTS.name], &line[DURATION.name]), (&json!(1), &json!(0.0125)));
        assert_eq!(
            (&line["outcome"], &line["operation"]),
            (&json!("outcome_unknown"), &json!("PUT /v1/heads/{address}"))
        );
        assert_eq!((&line["call"], line.get("trace_id")), (&json!("ab"), None));
        assert_eq!(line["nameservice_store_requests_total"], 1.0);
        assert_eq!((&lost["nameservice_leases_total"], &lost["outcome"]), (&json!(1.0), &json!("lost")));
    }
}
