//! What the commands print: sentences and tables for people, the service's JSON for programs.

use std::{
    borrow::Cow,
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
};

use comfy_table::{Table, presets};
use jiff::Timestamp;
use nameservice_api::{
    Config, Head, Index, ProblemKind, Record, Status, changes::Change, leases::Lease, requests::HeadValue,
    transactions::OperationResult,
};
use nameservice_model::{Finding, Fix, chain};
use serde_json::{Value, json};
use tracing_subscriber::{EnvFilter, Layer as _, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::{
    commands::Operation,
    failure::Failure,
    options::{LogFormat, LogLevel},
    palette::Palette,
    traces::Traces,
};

/// Prints results.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
}

impl Output {
    /// For a program (`json`) or for a person.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether programs read it.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// Prints an answer only for programs.
    pub fn json_only(self, answer: &Value) -> Result<(), Failure> {
        if self.json { print(&format!("{answer:#}")) } else { Ok(()) }
    }

    /// Prints an answer of the service: unchanged for programs, or in the given words.
    pub fn answer(self, answer: &Value, words: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json { print(&format!("{answer:#}")) } else { print(&words()) }
    }
}

/// Prints to stdout, with a line end. Characters that a terminal would obey or hide are escaped.
pub fn print(text: &str) -> Result<(), Failure> {
    print_as_it_is(&visible(text))
}

/// Prints values that a program reads and in which nothing can be escaped, such as CSV. On a terminal they are escaped all the same.
pub fn print_values(text: &str) -> Result<(), Failure> {
    if io::stdout().is_terminal() { print(text) } else { print_as_it_is(text) }
}

fn print_as_it_is(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let text = text.trim_end_matches('\n');
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// Prints to stderr. If even that is closed, the text is lost.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", visible(text));
}

/// Prints why a command failed: as a problem document for a program, or in words.
pub fn report(failure: &Failure, json: bool) {
    if failure.is_silent() {
        return;
    }
    match failure.problem() {
        Some(problem) if json => note(&json!(problem).to_string()),
        None if json && matches!(failure, Failure::Usage(_)) => note(&usage(&failure.to_string())),
        _ => note(&words_of(failure, Palette::stderr())),
    }
}

/// Returns a mistake on the command line as a problem document.
pub fn usage(detail: &str) -> String {
    let detail = detail.trim().trim_start_matches("error: ");
    json!({"type": "about:blank", "title": "The command line cannot be used", "detail": detail}).to_string()
}

fn words_of(failure: &Failure, palette: Palette) -> String {
    let reason = match failure.problem() {
        // The service names its route, which a command does not have.
        Some(problem) if problem.kind() == Some(ProblemKind::Protected) => {
            let detail = problem.detail.split(" An administrator can unprotect it").next().unwrap_or_default();
            format!("{detail} An administrator can unprotect it: `nameservice unprotect`")
        }
        _ => chain(failure),
    };
    let reason: Vec<_> = reason.lines().map(str::trim).collect();
    let mut words = format!("{} {}", palette.bad("error:"), clean(&reason.join(" ")));
    let Some(problem) = failure.problem() else { return words };
    // Not repeated if a conflict says that this was found.
    if let Some(current) = failure.actual().map(value).filter(|current| !words.contains(current.as_str())) {
        let _ = write!(words, "\n  current: {current}");
    }
    for member in ["dependents", "missing", "field"] {
        let texts: Vec<_> = match problem.members.get(member) {
            Some(Value::Array(texts)) => texts.iter().map(text).collect(),
            Some(name) => vec![text(name)],
            None => Vec::new(),
        };
        // Not repeated if the detail names them all.
        if texts.iter().any(|text| !problem.detail.contains(text)) {
            let _ = write!(words, "\n  {member}: {}", texts.join(", "));
        }
    }
    let lease = problem.members.get("lease").filter(|lease| !lease.is_null());
    // The detail of `LeaseHeld` already names the holder.
    if let Some(lease) = lease.filter(|_| problem.kind() != Some(ProblemKind::LeaseHeld)) {
        let _ = write!(words, "\n  held: {}", lease_words(lease));
    }
    if problem.status == 401 {
        words.push_str("\n  give a token with --token or NAMESERVICE_TOKEN");
    }
    words
}

/// Starts the log on stderr. By default `serve` logs its requests, and other commands only warnings.
pub fn init_logging(serving: bool, level: Option<LogLevel>, format: LogFormat, traces: Option<&Traces>) {
    let default = if serving { "info" } else { "warn" };
    let of_environment = || std::env::var("RUST_LOG").ok().filter(|wanted| !wanted.is_empty());
    let wanted = level.map(|level| level.as_str().to_owned()).or_else(of_environment);
    // The engine warns about every failed condition, which is a normal outcome; the AWS configuration warns about every
    // place where it found nothing, even if it finds what it needs in the next one.
    let filter = EnvFilter::new(format!("dynoxide=error,aws_config=error,{}", wanted.as_deref().unwrap_or(default)));
    let log = fmt::layer().with_writer(io::stderr);
    let log = match format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().boxed(),
    };
    // Fails only if a log has already been installed.
    let _ = tracing_subscriber::registry().with(traces.map(Traces::layer)).with(log.with_filter(filter)).try_init();
}

/// Returns a head in words.
pub fn head(head: Option<&Head>) -> String {
    value(&json!(head))
}

/// Returns an index in words.
pub fn index(index: Option<&Index>) -> String {
    value(&json!(index))
}

/// Returns a status in words.
pub fn status(status: Option<&Status>) -> String {
    value(&json!(status))
}

/// Returns a configuration in words.
pub fn config(config: Option<&Config>) -> String {
    value(&json!(config))
}

/// Returns a requested head or index in words.
pub fn reference(value_wanted: &HeadValue) -> String {
    value(&json!(value_wanted))
}

/// Returns a value of a concern in words: a head or an index as the options take it, `ID@T` or `unborn`; a status or a configuration with
/// its version; or `no record`.
pub fn value(value: &Value) -> String {
    if value.is_null() {
        return "no record".into();
    }
    if let (Some(id), Some(t)) = (value.get("id"), value.get("t")) {
        let Some(id) = id.as_str() else { return "unborn".into() };
        let mut words = format!("{}@{t}", clean(id));
        if let Some(rev) = value.get("rev").and_then(Value::as_i64).filter(|rev| *rev > 0) {
            let _ = write!(words, " (rev {rev})");
        }
        return words;
    }
    match (value.get("v"), value.get("payload")) {
        (Some(v), None | Some(Value::Null)) => format!("nothing yet (v {v})"),
        (Some(v), Some(payload)) => {
            let (state, rest) = split_state(payload);
            match (state, rest) {
                (Some(state), None) => format!("{state} (v {v})"),
                (Some(state), Some(rest)) => format!("{state} {rest} (v {v})"),
                (None, _) => format!("{payload} (v {v})"),
            }
        }
        _ => value.to_string(),
    }
}

/// A change in one line: position, time, address, what changed and how, the watermark, and the new value.
pub fn change(change: &Change) -> String {
    change_line(&json!(change), Palette::stdout())
}

fn change_line(change: &Value, palette: Palette) -> String {
    let payload = change.get("payload").filter(|payload| !payload.is_null());
    let now = match (change["concern"].as_str(), payload) {
        _ if change["payload_omitted"] == true => "(left out of the feed: read the record)".to_owned(),
        (_, None) => String::new(),
        (Some("head" | "index"), Some(payload)) => value(payload),
        (Some("meta"), Some(_)) => kind(change),
        (_, Some(payload)) => match split_state(payload) {
            (Some(state), None) => state,
            (Some(state), Some(rest)) => format!("{state} {rest}"),
            (None, _) => payload.to_string(),
        },
    };
    let watermark = if change["concern"] == "meta" { "-".into() } else { text(&change["watermark"]) };
    let kind = format!("{:<9}", text(&change["change"]));
    let kind = match kind.trim_end() {
        "created" | "restored" => palette.good(&kind),
        "retracted" | "purged" => palette.bad(&kind),
        "reset" => palette.notable(&kind),
        _ => kind,
    };
    let line = format!(
        "{:>8}  {:<24}  {:<24}  {:<6}  {kind}  {watermark:>6}  {now}",
        text(&change["position"]),
        text(&change["occurred_at"]),
        text(&change["address"]),
        text(&change["concern"]),
    );
    line.trim_end().to_owned()
}

/// A lease in words: `index_lock, by indexer-7 until 2026-01-01T00:00:00Z, for t 42`.
pub fn lease(lease: &Lease) -> String {
    lease_words(&json!(lease))
}

fn lease_words(lease: &Value) -> String {
    let until = lease["expires_at"].as_i64().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let until = until.map_or_else(|| text(&lease["expires_at"]), |until| until.to_string());
    let mut words = format!("{}, by {} until {until}", text(&lease["name"]), text(&lease["holder"]));
    if let Some(t) = lease["target_t"].as_i64() {
        let _ = write!(words, ", for t {t}");
    }
    words
}

/// The outcomes of the operations of a transaction, one line each.
pub fn results(operations: &[Option<Operation>], results: &[OperationResult]) -> String {
    let mut table = plain_table();
    table.set_header(["OPERATION", "ADDRESS", "RESULT", "CURRENT"]);
    for (i, result) in results.iter().enumerate() {
        let (mut name, mut address) = ("-".to_owned(), "-".to_owned());
        if let Some(operation) = operations.get(i).and_then(Option::as_ref) {
            (name, address) = (clean(&operation.op), clean(&operation.address));
            if let Some(concern) = &operation.concern {
                let _ = write!(name, " {}", clean(concern));
            }
        }
        let current = match (result.value.as_ref().or(result.actual.as_ref()), &result.lease) {
            (_, Some(current)) => lease(current),
            (Some(current), None) => value(current),
            (None, None) => String::new(),
        };
        let replayed = if result.replayed { " before" } else { "" };
        table.add_row([name, address, format!("{}{replayed}", text(&json!(result.status))), current]);
    }
    lines(table)
}

/// The findings of the doctor, two lines each: what is wrong, and what is or should be done about it.
pub fn findings(findings: &[Finding]) -> String {
    let mut table = plain_table();
    table.set_header(["SEVERITY", "CODE", "ADDRESS", "FOUND"]);
    for finding in findings {
        let address = finding.address.as_deref().map_or_else(|| "-".into(), clean);
        table.add_row([finding.severity.as_str().to_owned(), finding.code.to_owned(), address, clean(&finding.what)]);
        let mend = clean(&finding.mend);
        let mend = match &finding.fix {
            Fix::ByHand => format!("by hand: {mend}"),
            Fix::Possible => format!("--fix: {mend}"),
            Fix::Done => format!("fixed: {mend}"),
            Fix::ChangedMeanwhile => format!("changed meanwhile, run again: {mend}"),
            Fix::Failed(reason) => format!("not fixed ({}): {mend}", clean(reason)),
        };
        table.add_row(["", "", "", &mend]);
    }
    lines(table)
}

/// A finding for programs.
pub fn finding(finding: &Finding) -> Value {
    let (fix, reason) = match &finding.fix {
        Fix::ByHand => ("by-hand", None),
        Fix::Possible => ("possible", None),
        Fix::Done => ("done", None),
        Fix::ChangedMeanwhile => ("changed-meanwhile", None),
        Fix::Failed(reason) => ("failed", Some(reason)),
    };
    let mut value = serde_json::json!({
        "code": finding.code,
        "severity": finding.severity.as_str(),
        "address": finding.address,
        "what": finding.what,
        "mend": finding.mend,
        "fix": fix,
    });
    if let Some(reason) = reason {
        value["reason"] = reason.as_str().into();
    }
    value
}

/// The state of a status payload, and its other members.
fn split_state(payload: &Value) -> (Option<String>, Option<Value>) {
    let mut rest = payload.clone();
    let state = rest.as_object_mut().and_then(|object| object.remove("state"));
    let rest = rest.as_object().is_some_and(|object| !object.is_empty()).then_some(rest);
    (state.as_ref().and_then(Value::as_str).map(clean), rest)
}

/// A whole record, in several lines.
pub fn record(record: &Record) -> String {
    record_rows(&json!(record))
}

fn record_rows(record: &Value) -> String {
    let mut table = plain_table();
    let mut row = |title: &str, words: String| {
        table.add_row([title.to_owned(), words]);
    };
    row("address", text(&record["address"]));
    row("kind", kind(record));
    for (member, title) in [("status", "status"), ("head", "head"), ("index", "index"), ("config", "config")] {
        if let Some(concern) = record.get(member) {
            row(title, value(concern));
        }
    }
    if let Some(graphs) = record["index"].get("graphs").and_then(Value::as_object) {
        for (name, graph) in graphs {
            let words = if graph.is_null() { "nothing yet".into() } else { value(graph) };
            row("", format!("graph {}: {words}", clean(name)));
        }
    }
    if let Some(Value::Array(dependencies)) = record.get("dependencies") {
        let dependencies: Vec<_> = dependencies.iter().map(text).collect();
        row("depends on", if dependencies.is_empty() { "nothing".into() } else { dependencies.join(", ") });
    }
    for (member, title) in [("source_branch", "branched from"), ("branches", "branches"), ("dependents", "dependents")]
    {
        match record.get(member) {
            Some(known) if *known != 0 => row(title, text(known)),
            _ => {}
        }
    }
    for (member, title) in [("created_at", "created"), ("updated_at", "updated")] {
        if let Some(time) = record.get(member) {
            row(title, text(time));
        }
    }
    lines(table)
}

/// Records, one line each, with the members that were read.
pub fn records(records: &[Value]) -> String {
    let full = records.iter().any(|record| record.get("status").is_some());
    let mut table = plain_table();
    if full {
        table.set_header(["ADDRESS", "KIND", "STATE", "HEAD", "INDEX", "UPDATED"]);
    } else {
        table.set_header(["ADDRESS", "KIND", "DEPENDS ON"]);
    }
    for record in records {
        let address = text(&record["address"]);
        if full {
            let state = text(&record["status"]["payload"]["state"]);
            let cells = [address, kind(record), state, reached(&record["head"]), reached(&record["index"])];
            table.add_row(cells.into_iter().chain([text(&record["updated_at"])]));
        } else {
            let dependencies: Vec<_> = record["dependencies"].as_array().into_iter().flatten().map(text).collect();
            table.add_row([address, kind(record), dependencies.join(", ")]);
        }
    }
    lines(table)
}

/// Hits of a search, one per line.
pub fn hits(hits: &[Value]) -> String {
    let mut table = plain_table();
    table.set_header(["ADDRESS", "KIND", "STATE", "FOUND IN"]);
    for hit in hits {
        let matched: Vec<_> = hit["matched"].as_array().into_iter().flatten().map(text).collect();
        table.add_row([text(&hit["address"]), kind(hit), text(&hit["state"]), matched.join(", ").replace('_', " ")]);
    }
    lines(table)
}

fn kind(record: &Value) -> String {
    let retracted = if record["retracted"] == true { ", retracted" } else { "" };
    let protected = if record["protected"] == true { ", protected" } else { "" };
    match record.get("source_type") {
        Some(source_type) => format!("graph source {}{retracted}{protected}", text(source_type)),
        None => format!("{}{retracted}{protected}", text(&record["kind"]).replace('_', " ")),
    }
}

/// How far a head or an index is: `t 5`. A line has no room for two ids, and no option takes a part of one.
fn reached(value: &Value) -> String {
    if value["id"].is_string() { format!("t {}", value["t"]) } else { "-".into() }
}

/// A member as text, without the quotes of JSON.
pub fn text(value: &Value) -> String {
    match value {
        Value::String(text) => clean(text),
        Value::Null => "-".into(),
        other => other.to_string(),
    }
}

/// Escapes characters that could control a terminal, or make it show another text than there is.
pub fn clean(text: &str) -> String {
    let misleads = |c: char| c.is_control() || is_hidden(c);
    if !text.chars().any(misleads) {
        return text.to_owned();
    }
    text.chars().map(|c| if misleads(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Whether a character is none to see, and may be in JSON as it is: DEL, the controls of eight bits, separators, and marks that
/// change the direction of a text.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    )
}

/// Escapes hidden characters as JSON does, so that a document stays the same for a program.
fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return text.into();
    }
    text.chars().map(|c| if is_hidden(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() }).collect()
}

/// A table with titles, flush left.
pub fn table<const N: usize>(titles: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = plain_table();
    table.set_header(titles);
    for row in rows {
        table.add_row(row);
    }
    lines(table)
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// A table flush left, without the padding behind its last column.
fn lines(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let (text, has_titles, palette) = (table.to_string(), table.header().is_some(), Palette::stdout());
    let lines = text.lines().map(str::trim_end).enumerate();
    let lines = lines.map(|(i, line)| if i == 0 && has_titles { palette.title(line) } else { line.to_owned() });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use nameservice_http::problem::ProblemDocument;
    use serde_json::json;

    use super::*;

    const ID: &str = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";

    #[test]
    fn what_a_terminal_would_obey_or_hide_is_escaped_and_json_stays_the_same() {
        let hostile = "a\u{9b}31m\u{7f}\u{202e}b\u{2066}\u{1b}[0mé漢👩‍👧";
        let shown = clean(hostile);
        assert_eq!(shown, "a\\u{9b}31m\\u{7f}\\u{202e}b\\u{2066}\\u{1b}[0mé漢👩‍👧");
        let document = json!({ "payload": hostile });
        let printed = visible(&document.to_string()).into_owned();
        assert!(!printed.chars().any(|c| c.is_control() || is_hidden(c)), "{printed}");
        assert_eq!(serde_json::from_str::<Value>(&printed).unwrap(), document);
    }

    #[test]
    fn values_are_shown_in_words() {
        for (concern, words) in [
            (json!(null), "no record".to_owned()),
            (json!({"id": ID, "t": 5}), format!("{ID}@5")),
            (json!({"id": ID, "t": 5, "rev": 2}), format!("{ID}@5 (rev 2)")),
            (json!({"id": null, "t": 0, "rev": 0}), "unborn".to_owned()),
            (json!({"v": 0, "payload": null}), "nothing yet (v 0)".to_owned()),
            (json!({"v": 1, "payload": {"state": "ready"}}), "ready (v 1)".to_owned()),
            (json!({"v": 2, "payload": {"state": "error", "m": "x"}}), r#"error {"m":"x"} (v 2)"#.to_owned()),
            (json!({"v": 3, "payload": {"a": 1}}), r#"{"a":1} (v 3)"#.to_owned()),
        ] {
            assert_eq!(value(&concern), words);
        }
    }

    #[test]
    fn a_rejection_shows_what_is_in_place_and_what_stands_in_the_way() {
        let problem: ProblemDocument = serde_json::from_value(json!({
            "type": "x/conflict", "title": "t", "status": 409, "detail": "not as expected",
            "actual": {"id": ID, "t": 7}, "dependents": ["a:main", "b:main"],
        }))
        .unwrap();
        let words = words_of(&Failure::Rejected(Box::new(problem)), Palette::PLAIN);
        assert_eq!(words, format!("error: not as expected\n  current: {ID}@7\n  dependents: a:main, b:main"));
    }

    #[test]
    fn a_change_is_a_line_whose_columns_stand_below_those_of_the_line_before() {
        let event = |concern: &str, watermark: i64, payload: Value| {
            change_line(
                &json!({
                    "position": 7, "address": "mydb:main", "kind": "ledger", "concern": concern, "change": "updated",
                    "watermark": watermark, "payload": payload, "occurred_at": "2026-01-01T00:00:00.123Z",
                }),
                Palette::PLAIN,
            )
        };
        let begin = "       7  2026-01-01T00:00:00.123Z  mydb:main                 ";
        for (line, end) in [
            (event("head", 5, json!({"id": ID, "t": 5})), format!("head    updated         5  {ID}@5")),
            (
                event("index", 5, json!({"id": ID, "t": 5, "rev": 2})),
                format!("index   updated         5  {ID}@5 (rev 2)"),
            ),
            (event("head", 0, json!({"id": null, "t": 0})), "head    updated         0  unborn".into()),
            (
                event("status", 3, json!({"state": "error", "m": "x"})),
                "status  updated         3  error {\"m\":\"x\"}".into(),
            ),
            (event("config", 2, json!({"a": 1})), "config  updated         2  {\"a\":1}".into()),
            (event("meta", 0, json!({"retracted": true})), "meta    updated         -  ledger".into()),
            (event("head", 0, json!(null)), "head    updated         0".into()),
        ] {
            assert_eq!(line, format!("{begin}{end}"));
        }
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(text(&json!("a\u{1b}[2J\n")), "a\\u{1b}[2J\\n");
    }

    #[test]
    fn lists_show_what_they_were_given() {
        let summary = json!({"address": "a:main", "kind": "ledger", "retracted": true});
        let listed = records(&[summary]);
        assert!(listed.contains("ADDRESS") && listed.contains("retracted"), "{listed}");
        let full = json!({
            "address": "b:main", "kind": "graph_source", "source_type": "f:Bm25Index", "retracted": false,
            "index": {"id": ID, "t": 5, "rev": 0}, "status": {"v": 1, "payload": {"state": "ready"}},
            "updated_at": "2026-01-01T00:00:00Z",
        });
        let listed = records(&[full]);
        assert!(listed.contains("  t 5  ") && listed.contains("graph source f:Bm25Index"), "{listed}");
    }
}
