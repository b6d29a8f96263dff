//! `doctor`: examines a table and a service, and repairs what can be repaired.
//!
//! A check is an async function that takes what it examines and returns findings; [`examine`] is the list of them. What
//! cannot be examined is a finding, too, except that a table that cannot be read ends the command.

#[cfg(feature = "dynamodb")]
mod deployment;
#[cfg(feature = "dynamodb")]
mod table;

use std::path::{Path, PathBuf};
#[cfg(all(feature = "files", feature = "migration"))]
use std::sync::Arc;

use clap::Args;
use nameservice::Place;
use nameservice_embedded::OpenError;
#[cfg(all(feature = "files", feature = "migration"))]
use nameservice_model::Backend;
use nameservice_model::{Finding, Severity};
use serde_json::{Value, json};

#[cfg(feature = "files")]
use crate::files::Stored;
#[cfg(feature = "migration")]
use crate::older::Older;
#[cfg(feature = "dynamodb")]
use crate::table::Table;
use crate::{
    client::{Client, Request},
    failure::Failure,
    options::{Missing, TargetArgs},
    output::{self, Output},
    progress::{Bar, Unit},
    target::Opened,
};

/// `doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Fix what can be fixed safely, even under live traffic
    #[arg(long)]
    pub fix: bool,
    /// The queue of stream records that could not be read
    #[cfg(feature = "dynamodb")]
    #[arg(long, value_name = "URL")]
    pub dead_letter_queue: Option<String>,
    /// Test a deployment on AWS by the URL of its API: every route, the way of a change through the feed, the alarms. Without a
    /// token, requests are signed with AWS credentials. Creates a record and purges it
    #[cfg(feature = "dynamodb")]
    #[arg(long, value_name = "URL", conflicts_with = "fix")]
    pub aws_deployment: Option<String>,
    /// The URL of the deployment's event streams, which are tested, too
    #[cfg(feature = "dynamodb")]
    #[arg(long, value_name = "URL", requires = "aws_deployment")]
    pub events_url: Option<String>,
    /// The deployment's name, with which the names of its alarms begin
    #[cfg(feature = "dynamodb")]
    #[arg(long, value_name = "NAME", default_value = "nameservice", requires = "aws_deployment")]
    pub deployment_name: String,
    /// Also report what is left to migrate of this older place: v1:TABLE, item:TABLE, file:///DIR, …
    #[cfg(feature = "migration")]
    #[arg(long, value_name = "PLACE")]
    pub legacy: Option<Place>,
}

/// What to examine.
struct Patient {
    data: Option<Data>,
    service: Option<Client>,
    #[cfg(feature = "dynamodb")]
    dead_letters: Option<table::Queue>,
    #[cfg(feature = "migration")]
    older: Option<Older>,
    fix: bool,
}

/// Data to examine.
enum Data {
    /// A directory of the embedded backend, which no other process may use meanwhile.
    Directory(PathBuf),
    #[cfg(feature = "dynamodb")]
    Table(Box<Table>),
    #[cfg(feature = "files")]
    Files(Stored),
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
    let mut report = Report::default();
    #[cfg(feature = "dynamodb")]
    if let Some(url) = &args.aws_deployment {
        deployment::check(url, target.token.as_deref(), args, &mut report).await?;
        return report.finish(output);
    }
    let patient = admit(target, args).await?;
    let examined = examine(&patient, &mut report, output).await;
    // If the table could not be read to its end, what was found before is still reported.
    if examined.is_err() && !report.findings.is_empty() {
        report.print(output)?;
    }
    examined?;
    report.finish(output)
}

/// Finds what to examine. Unlike other commands, this one takes a table and a service together; without a table, it takes the
/// same service as the others.
async fn admit(target: &TargetArgs, args: &DoctorArgs) -> Result<Patient, Failure> {
    let place = TargetArgs { url: None, ..target.clone() }.place()?;
    if place.is_none() && args.fix {
        return Err(Failure::Usage("which table? Give --endpoint-url URL, --aws or --data DIR".into()));
    }
    let service = match (&place, target.named_service()) {
        (Some(_), None) => None,
        _ => {
            let only_service = TargetArgs {
                url: target.named_service().map(str::to_owned),
                token: target.token.clone(),
                client_cert: target.client_cert.clone(),
                client_key: target.client_key.clone(),
                ..TargetArgs::default()
            };
            Some(only_service.client(Missing::Reject).await?)
        }
    };
    let data = match &place {
        Some(Place::Embedded(directory)) => Some(Data::Directory(directory.clone())),
        Some(place) => match Opened::open(place.clone(), Missing::Reject, None).await? {
            #[cfg(feature = "dynamodb")]
            Opened::Table(table) => Some(Data::Table(table)),
            #[cfg(feature = "files")]
            Opened::Files(stored) => Some(Data::Files(stored)),
            Opened::Embedded(_) => None,
        },
        None => None,
    };
    #[cfg(feature = "dynamodb")]
    let dead_letters = match &args.dead_letter_queue {
        Some(url) => Some(table::Queue::open(url, place.as_ref()).await?),
        None => None,
    };
    #[cfg(feature = "migration")]
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
    Ok(Patient {
        data,
        service,
        #[cfg(feature = "dynamodb")]
        dead_letters,
        #[cfg(feature = "migration")]
        older,
        fix: args.fix,
    })
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
        #[cfg(feature = "dynamodb")]
        Some(Data::Table(table)) => {
            table::check(table, patient.fix, report, output).await?;
        }
        #[cfg(feature = "files")]
        Some(Data::Files(stored)) => {
            let bar = Bar::begin(output, Unit::Records, format!("examining {}", stored.describe()));
            check_files(stored, patient.fix, report, &bar).await?;
        }
        None => report.looked_at.push("no table: name one with --data, --endpoint-url or --aws".into()),
    }
    #[cfg(feature = "migration")]
    if let (Some(older), Some(data)) = (&patient.older, &patient.data) {
        check_older(older, data, report, output).await?;
    }
    #[cfg(feature = "dynamodb")]
    if let Some(queue) = &patient.dead_letters {
        report.findings.extend(table::check_queue(queue).await);
        report.looked_at.push("the queue of dead letters".into());
    }
    Ok(())
}

/// Checks what is left to migrate of an older place.
#[cfg(feature = "migration")]
async fn check_older(older: &Older, data: &Data, report: &mut Report, output: Output) -> Result<(), Failure> {
    let (findings, records) = match data {
        Data::Table(table) => older.findings(&table.backend(), output).await?,
        Data::Files(stored) => {
            let names: Arc<dyn Backend> = Arc::new(stored.names.clone());
            older.findings(&names, output).await?
        }
        Data::Directory(directory) => {
            // A copy can be read while a service uses the directory.
            let parent = tempfile::tempdir().map_err(Failure::Copy)?;
            let copy = parent.path().join("data");
            copy_of(directory, &copy, output).await?;
            let opened = Opened::open(Place::Embedded(copy), Missing::Reject, None).await?;
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
    nameservice_embedded::copy_observed(directory, copy, &|progress| bar.show(progress)).await?;
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
#[cfg(feature = "files")]
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
    /// Prints the report; findings that are left are a failure.
    fn finish(mut self, output: Output) -> Result<(), Failure> {
        self.print(output)?;
        match self.findings.iter().filter(|finding| finding.is_open()).count() {
            0 => Ok(()),
            left => Err(Failure::Findings(left)),
        }
    }

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
