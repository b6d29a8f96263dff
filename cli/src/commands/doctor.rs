//! `doctor`: examines a table and a service, and repairs what can be repaired.
//!
//! A check is an async function that takes what it examines and returns findings; [`examine`] is the list of them. What
//! cannot be examined is a finding, too, except that a table that cannot be read ends the command.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use jiff::Timestamp;
use nameservice_dynamo::endpoint_config;
use nameservice_embedded::OpenError;
use nameservice_model::{Backend, ChangeFeed, Error as StoreError, Finding, Severity};
use nameservice_store::doctor::{Examined, Written};
use serde_json::{Value, json};

use crate::{
    client::{Client, Request},
    failure::Failure,
    files::{Missing, Stored},
    older::Older,
    options::TargetArgs,
    output::{self, Output},
    progress::{Bar, Unit},
    target::{Opened, Place, Table, TableOptions, aws_config},
};

/// `doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Fix what can be fixed safely, even under live traffic
    #[arg(long)]
    pub fix: bool,
    /// The queue of stream records that could not be read
    #[arg(long, value_name = "URL")]
    pub dead_letter_queue: Option<String>,
    /// Also report what is left to migrate of this older place: v1:TABLE, item:TABLE, file:///DIR, …
    #[arg(long, value_name = "PLACE")]
    pub legacy: Option<nameservice::Place>,
}

/// What to examine.
struct Patient {
    data: Option<Data>,
    service: Option<Client>,
    dead_letters: Option<Queue>,
    older: Option<Older>,
    fix: bool,
}

/// Data to examine.
enum Data {
    /// A directory of the embedded backend, which no other process may use meanwhile.
    Directory(PathBuf),
    Table(Box<Table>),
    Files(Stored),
}

/// A queue of SQS.
struct Queue {
    client: aws_sdk_sqs::Client,
    url: String,
}

/// What was found.
#[derive(Default)]
struct Report {
    findings: Vec<Finding>,
    /// What was examined, one line each.
    looked_at: Vec<String>,
    /// How many records, in how many items.
    examined: Option<(u64, u64)>,
}

pub(crate) async fn run(target: &TargetArgs, args: &DoctorArgs, output: Output) -> Result<(), Failure> {
    let patient = admit(target, args).await?;
    let mut report = Report::default();
    let examined = examine(&patient, &mut report, output).await;
    // If the table could not be read to its end, what was found before is still reported.
    if examined.is_ok() || !report.findings.is_empty() {
        report.print(output)?;
    }
    examined?;
    match report.findings.iter().filter(|finding| finding.is_open()).count() {
        0 => Ok(()),
        left => Err(Failure::Findings(left)),
    }
}

/// Finds what to examine. Unlike other commands, this one takes a table and a service together; without a table, it takes the
/// same service as the others.
async fn admit(target: &TargetArgs, args: &DoctorArgs) -> Result<Patient, Failure> {
    let place = TargetArgs { url: None, ..target.clone() }.place()?;
    if place.is_none() && (args.fix || target.table.is_some()) {
        return Err(Failure::Usage("which table? Give --endpoint-url URL, --aws or --data DIR".into()));
    }
    let service = match (&place, &target.url) {
        (Some(_), None) => None,
        _ => {
            let only_service =
                TargetArgs { url: target.url.clone(), token: target.token.clone(), ..TargetArgs::default() };
            Some(only_service.client(Missing::Reject).await?)
        }
    };
    let data = match place {
        Some(Place::Data(directory)) => Some(Data::Directory(directory)),
        Some(place) => match Opened::open(place, target.table_options(), Missing::Reject, None).await? {
            Opened::Table(table) => Some(Data::Table(table)),
            Opened::Files(stored) => Some(Data::Files(stored)),
            Opened::Embedded(_) => None,
        },
        None => None,
    };
    let dead_letters = match &args.dead_letter_queue {
        Some(url) => {
            let config = match &target.endpoint_url {
                Some(near) => endpoint_config(near),
                None => aws_config(target.region.as_deref()).await?,
            };
            Some(Queue { client: aws_sdk_sqs::Client::new(&config), url: url.clone() })
        }
        None => None,
    };
    let older = match &args.legacy {
        Some(_) if data.is_none() => {
            return Err(Failure::Usage(
                "--legacy goes with the data itself (--data, --endpoint-url, --aws or --at): a service may show the records \
                 of both"
                    .into(),
            ));
        }
        Some(place) => Some(Older::open(place).await?),
        None => None,
    };
    Ok(Patient { data, service, dead_letters, older, fix: args.fix })
}

/// Runs all checks.
async fn examine(patient: &Patient, report: &mut Report, output: Output) -> Result<(), Failure> {
    if let Some(service) = &patient.service {
        let _bar = Bar::begin(output, Unit::Records, "asking the service");
        report.findings.extend(check_service(service).await);
        report.looked_at.push("the service".into());
    }
    match &patient.data {
        Some(Data::Directory(directory)) => {
            check_log(directory, patient.fix, report, output).await?;
        }
        Some(Data::Table(table)) => {
            let bar = Bar::begin(output, Unit::Records, format!("examining {}", table.describe()));
            report.findings.extend(check_shape(table).await?);
            let has_feed = table.feed.check_table().await.is_ok();
            let examined = check_records(table, has_feed, patient.fix, report, &bar).await?;
            if has_feed {
                report.findings.extend(check_feed(table, &examined.last_written).await?);
                report.findings.extend(check_dead_letters(table).await?);
            }
        }
        Some(Data::Files(stored)) => {
            let bar = Bar::begin(output, Unit::Records, format!("examining {}", stored.describe()));
            check_files(stored, patient.fix, report, &bar).await?;
        }
        None => report.looked_at.push("no table: name one with --data, --endpoint-url or --aws".into()),
    }
    if let (Some(older), Some(data)) = (&patient.older, &patient.data) {
        check_older(older, data, report, output).await?;
    }
    if let Some(queue) = &patient.dead_letters {
        report.findings.extend(check_queue(queue).await);
        report.looked_at.push("the queue of dead letters".into());
    }
    Ok(())
}

/// Checks what is left to migrate of an older place.
async fn check_older(older: &Older, data: &Data, report: &mut Report, output: Output) -> Result<(), Failure> {
    let (findings, records) = match data {
        Data::Table(table) => {
            let names: Arc<dyn Backend> = Arc::new(nameservice::DynamoDb::new(table.store.clone(), table.feed.clone()));
            older.findings(&names, output).await?
        }
        Data::Files(stored) => {
            let names: Arc<dyn Backend> = Arc::new(stored.names.clone());
            older.findings(&names, output).await?
        }
        Data::Directory(directory) => {
            // A copy can be read while a service uses the directory.
            let parent = tempfile::tempdir().map_err(Failure::Copy)?;
            let copy = parent.path().join("data");
            copy_of(directory, &copy, output).await?;
            let opened = Opened::open(Place::Data(copy), TableOptions::default(), Missing::Reject, None).await?;
            let found = older.findings(&opened.backend(), output).await;
            // Dropping waits for the writer of the log, so it must not run on an async worker thread.
            let _ = tokio::task::spawn_blocking(move || drop((opened, parent))).await;
            found?
        }
    };
    report.findings.extend(findings);
    report.looked_at.push(format!("{}: {records} records", older.place()));
    Ok(())
}

/// Checks the log of the embedded backend, and every record in it. If a service uses the directory, a copy is examined.
async fn check_log(directory: &Path, fix: bool, report: &mut Report, output: Output) -> Result<(), Failure> {
    let (examined, is_copy) = match examine_log(directory, fix, report, output).await {
        Err(Failure::Open(OpenError::InUse { .. })) if !fix => {
            let parent = tempfile::tempdir().map_err(Failure::Copy)?;
            let copy = parent.path().join("data");
            copy_of(directory, &copy, output).await?;
            (examine_log(&copy, false, report, output).await?, true)
        }
        examined => (examined?, false),
    };
    let (records, changes) = (examined.records, examined.changes);
    let what = if is_copy { "a copy of the data in use in" } else { "data in" };
    report.looked_at.push(format!("{what} {}: {records} records, {changes} changes", directory.display()));
    report.examined = Some((records, changes));
    Ok(())
}

/// Copies data that is in use, to examine the copy.
async fn copy_of(directory: &Path, copy: &Path, output: Output) -> Result<(), Failure> {
    let bar = Bar::begin(output, Unit::Bytes, format!("copying {}", directory.display()));
    nameservice_embedded::backup_observed(directory, copy, &|progress| bar.show(progress)).await?;
    Ok(())
}

async fn examine_log(
    directory: &Path,
    fix: bool,
    report: &mut Report,
    output: Output,
) -> Result<nameservice_embedded::Examined, Failure> {
    let path = directory.to_owned();
    let bar = Bar::begin(output, Unit::Rows, format!("examining {}", directory.display()));
    let checked = tokio::task::spawn_blocking(move || {
        let mut findings = Vec::new();
        let mut found = |finding| findings.push(finding);
        let examined = nameservice_embedded::examine_observed(&path, fix, &mut found, &|progress| bar.show(progress))?;
        Ok::<_, OpenError>((examined, findings))
    });
    let (examined, findings) = checked.await.map_err(|error| OpenError::Thread(error.into()))??;
    report.findings.extend(findings);
    Ok(examined)
}

/// Checks the files of a directory or a bucket.
async fn check_files(stored: &Stored, fix: bool, report: &mut Report, bar: &Bar) -> Result<(), Failure> {
    let mut findings = Vec::new();
    let mut found = |finding| findings.push(finding);
    let examined = stored.names.examine_observed(fix, &mut found, &|progress| bar.show(progress)).await;
    let examined = examined.map_err(|source| Failure::Files(source.into()))?;
    report.findings.extend(findings);
    let (records, files) = (examined.records, examined.files);
    report.looked_at.push(format!("{}: {records} records in {files} files", stored.describe()));
    report.examined = Some((records, files));
    Ok(())
}

/// Checks keys, indexes, stream, TTL and recovery of the table.
async fn check_shape(table: &Table) -> Result<Vec<Finding>, Failure> {
    let lacks = table.check().await?.lacks;
    let finding = |lack: String| {
        let mend = "change the table; `nameservice init` creates one with the right layout";
        Finding::new("table-lacks", Severity::Warning, format!("the table: {lack}"), mend)
    };
    Ok(lacks.into_iter().map(finding).collect())
}

/// Checks every record of the table. With a feed, compares Fluree's commit logs with the history that it holds.
async fn check_records(
    table: &Table,
    has_feed: bool,
    fix: bool,
    report: &mut Report,
    bar: &Bar,
) -> Result<Examined, Failure> {
    let findings = &mut report.findings;
    let mut found = |finding| findings.push(finding);
    let feed = has_feed.then_some(&table.feed as &dyn ChangeFeed);
    let examined = table.store.examine_observed(feed, fix, &mut found, &|progress| bar.show(progress)).await;
    let examined = examined.map_err(|source| unreadable(table.store.table(), source))?;
    let Examined { records, items, .. } = &examined;
    report.looked_at.push(format!("{}: {records} records in {items} items", table.describe()));
    report.examined = Some((*records, *items));
    Ok(examined)
}

fn unreadable(table: &str, source: StoreError) -> Failure {
    Failure::Table { table: table.to_owned(), hint: "", source }
}

/// Checks that the last writes to the table that are at least a minute old are in the feed.
async fn check_feed(table: &Table, last_written: &[Written]) -> Result<Vec<Finding>, Failure> {
    let lag = table.feed.lag(last_written).await.map_err(|source| unreadable(table.feed.table(), source))?;
    let Some(longest) = lag.missing.first() else { return Ok(Vec::new()) };
    let (severity, mend) = (
        Severity::Error,
        "see that stream_consumer (or `nameservice serve`) runs: its mapping, its log, its iterator's age",
    );
    let (code, what) = if lag.is_empty {
        ("feed-empty", "the feed is empty, though the table was written to within a day".to_owned())
    } else {
        let age_s = Timestamp::now().as_millisecond().saturating_sub(longest.at_ms) / 1000;
        let (of, missing) = (lag.looked_for, lag.missing.len());
        let what = format!(
            "of the last {of} writes, the feed lacks {missing}: the {} of {} was written {age_s} s ago",
            longest.concern, longest.address,
        );
        ("feed-behind", what)
    };
    Ok(vec![Finding::new(code, severity, what, mend)])
}

/// Checks for stream records that could not be read, if they are kept beside the feed.
async fn check_dead_letters(table: &Table) -> Result<Vec<Finding>, Failure> {
    let letters = table.feed.dead_letters().await.map_err(|source| unreadable(table.feed.table(), source))?;
    let Some(last) = letters.iter().max_by_key(|letter| letter.recorded_at) else { return Ok(Vec::new()) };
    let what = format!(
        "{} stream records could not be read, and are not in the feed; the last one, {}: {}",
        letters.len(),
        last.recorded_at,
        last.reason
    );
    let mend = "fix the rows that they name, then delete those of `poison#0` in the feed's table";
    Ok(vec![Finding::new("dead-letters", Severity::Warning, what, mend)])
}

/// Checks for stream records that could not be read, if they are sent to a queue.
async fn check_queue(queue: &Queue) -> Vec<Finding> {
    use aws_sdk_sqs::types::QueueAttributeName::ApproximateNumberOfMessages;
    let asked = queue.client.get_queue_attributes().queue_url(&queue.url).attribute_names(ApproximateNumberOfMessages);
    let (severity, what, mend) = match asked.send().await {
        Ok(answer) => {
            let attributes = answer.attributes.unwrap_or_default();
            let waiting = attributes.get(&ApproximateNumberOfMessages).map_or("0", String::as_str);
            if waiting == "0" {
                return Vec::new();
            }
            let what = format!("about {waiting} messages wait in the queue of dead letters");
            (Severity::Warning, what, "read their reasons, fix the rows that they name, then delete them")
        }
        Err(error) => {
            let what = format!("cannot query the queue of dead letters: {}", nameservice_model::chain(&error));
            (Severity::Error, what, "see that the URL is right, and that sqs:GetQueueAttributes is allowed")
        }
    };
    vec![Finding::new("dead-letters", severity, what, mend)]
}

/// Checks that the service answers, reaches its table, and has this program's version.
async fn check_service(service: &Client) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |code, severity, what: String, mend: &str| {
        findings.push(Finding::new(code, severity, what, mend));
    };
    match send(service, Request::get("health").query("deep", Some(true))).await {
        Ok(health) if health["status"] == "ok" => {}
        Ok(health) => find(
            "service-unhealthy",
            Severity::Error,
            format!("the service answers for its health: {health}"),
            "is this the URL of a nameservice?",
        ),
        Err(failure) => {
            find(
                "service-unhealthy",
                Severity::Error,
                format!("the service cannot serve: {}", nameservice_model::chain(&failure)),
                "start it, or check its log for the reason why it cannot use its table",
            );
            if matches!(failure, Failure::Unreachable { .. } | Failure::NoAnswer(_)) {
                return findings;
            }
        }
    }
    match send(service, Request::get("openapi.json")).await {
        Ok(document) if document["openapi"].is_string() => {
            let (theirs, ours) = (&document["info"]["version"], env!("CARGO_PKG_VERSION"));
            if *theirs != ours {
                find(
                    "service-version",
                    Severity::Warning,
                    format!("the service has version {}, this program has version {ours}", output::text(theirs)),
                    "use a program of the service's version, or deploy this one's",
                );
            }
        }
        Ok(_) => find(
            "service-openapi",
            Severity::Warning,
            "what the service serves at /v1/openapi.json is not an OpenAPI document".into(),
            "is this the URL of a nameservice?",
        ),
        Err(failure) => find(
            "service-openapi",
            Severity::Warning,
            format!("the service does not show its OpenAPI document: {}", nameservice_model::chain(&failure)),
            "deploy the function openapi_get, and its route",
        ),
    }
    findings
}

impl Report {
    fn print(&mut self, output: Output) -> Result<(), Failure> {
        // The most severe first; otherwise in the order in which they were found.
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let open = self.findings.iter().filter(|finding| finding.is_open()).count();
        let examined = self.examined.map(|(records, items)| json!({"records": records, "items": items}));
        let findings: Vec<Value> = self.findings.iter().map(output::finding).collect();
        let answer = json!({"healthy": open == 0, "open": open, "examined": examined, "findings": findings});
        output.answer(&answer, || {
            let mut words: Vec<String> = self.looked_at.iter().map(|line| format!("looked at {line}")).collect();
            words.push(match (self.findings.is_empty(), self.examined) {
                (true, Some(_)) => "all is well".into(),
                (true, None) => "the service is well; no records were examined".into(),
                (false, _) => output::findings(&self.findings),
            });
            words.join("\n")
        })
    }
}

async fn send(service: &Client, request: Request) -> Result<Value, Failure> {
    Ok(service.send(&request).await?)
}
