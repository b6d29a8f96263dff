//! `doctor`: looks over a table and a service, and mends what can be mended.
//!
//! A check is an async function that takes what it looks at and gives findings; [`examine`] is the list of them. What
//! cannot be looked at is a finding too, except that a table which cannot be read ends the command.

use nameservice_store::doctor::{Examined, Finding, Severity};
use serde_json::{Value, json};

use crate::{
    args::{DoctorArgs, TargetArgs},
    client::{Client, Request},
    failure::Failure,
    output::{self, Output},
    target::Table,
};

/// What there is to look at.
struct Patient {
    table: Option<Table>,
    service: Option<Client>,
    fix: bool,
}

/// What was found.
#[derive(Default)]
struct Report {
    findings: Vec<Finding>,
    /// What was looked at, a line each.
    looked_at: Vec<String>,
    examined: Option<Examined>,
}

pub(super) async fn run(target: &TargetArgs, args: &DoctorArgs, output: Output) -> Result<(), Failure> {
    let patient = admit(target, args).await?;
    let mut report = Report::default();
    let examined = examine(&patient, &mut report).await;
    // Joins the engine's threads, which must not be done on a thread that serves.
    let _ = tokio::task::spawn_blocking(move || drop(patient)).await;
    // What was found before the table could no longer be read is worth telling, too.
    if examined.is_ok() || !report.findings.is_empty() {
        report.print(output)?;
    }
    examined?;
    match report.findings.iter().filter(|finding| finding.is_open()).count() {
        0 => Ok(()),
        left => Err(Failure::Findings(left)),
    }
}

/// Unlike other commands, this one takes a table and a service at once; without a table, the service that others take.
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
            Some(only_service.client().await?)
        }
    };
    let table = match place {
        Some(place) => Some(Table::open(place, target.table.as_deref()).await?),
        None => None,
    };
    Ok(Patient { table, service, fix: args.fix })
}

/// All checks.
async fn examine(patient: &Patient, report: &mut Report) -> Result<(), Failure> {
    if let Some(service) = &patient.service {
        report.findings.extend(check_service(service).await);
        report.looked_at.push("the service".into());
    }
    match &patient.table {
        Some(table) => {
            report.findings.extend(check_shape(table).await?);
            check_records(table, patient.fix, report).await?;
        }
        None => report.looked_at.push("no table: name one with --data, --endpoint-url or --aws".into()),
    }
    Ok(())
}

/// Keys, indexes, stream, TTL and recovery of the table.
async fn check_shape(table: &Table) -> Result<Vec<Finding>, Failure> {
    let lacks = table.check().await?.lacks;
    let finding = |lack: String| {
        let mend = "change the table; `nameservice init` makes one, and schema.rs draws it, as it should be";
        Finding::general("table-lacks", Severity::Warning, format!("the table: {lack}"), mend.into())
    };
    Ok(lacks.into_iter().map(finding).collect())
}

/// Every record of the table.
async fn check_records(table: &Table, fix: bool, report: &mut Report) -> Result<(), Failure> {
    let findings = &mut report.findings;
    let examined = table.store.examine(fix, &mut |finding| findings.push(finding)).await;
    let examined = examined.map_err(|source| Failure::Table { table: table.store.table().into(), hint: "", source })?;
    let Examined { records, items } = examined;
    report.looked_at.push(format!("{}: {records} records in {items} items", table.describe()));
    report.examined = Some(examined);
    Ok(())
}

/// Whether the service answers, reaches its table, and is of this program's version.
async fn check_service(service: &Client) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |code, severity, what: String, mend: &str| {
        findings.push(Finding::general(code, severity, what, mend.to_owned()));
    };
    match service.send(Request::get("health").query("deep", Some(true))).await {
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
                format!("the service cannot serve: {}", output::chain(&failure)),
                "start it, or look at its log: it says what keeps it from its table",
            );
            if matches!(failure, Failure::Unreachable { .. } | Failure::NoAnswer(_)) {
                return findings;
            }
        }
    }
    match service.send(Request::get("openapi.json")).await {
        Ok(document) if document["openapi"].is_string() => {
            let (theirs, ours) = (&document["info"]["version"], env!("CARGO_PKG_VERSION"));
            if *theirs != ours {
                find(
                    "service-version",
                    Severity::Warning,
                    format!("the service is of version {}, this program of version {ours}", output::text(theirs)),
                    "use a program of the service's version, or deploy this one's",
                );
            }
        }
        Ok(_) => find(
            "service-openapi",
            Severity::Warning,
            "what the service serves at /v1/openapi.json is no OpenAPI document".into(),
            "is this the URL of a nameservice?",
        ),
        Err(failure) => find(
            "service-openapi",
            Severity::Warning,
            format!("the service does not show its OpenAPI document: {}", output::chain(&failure)),
            "deploy the function openapi_get, and its route",
        ),
    }
    findings
}

impl Report {
    fn print(&mut self, output: Output) -> Result<(), Failure> {
        // The worst first; within that, as they were found.
        self.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        let open = self.findings.iter().filter(|finding| finding.is_open()).count();
        let examined = self.examined.map(|Examined { records, items }| json!({"records": records, "items": items}));
        let findings: Vec<Value> = self.findings.iter().map(output::finding).collect();
        let answer = json!({"healthy": open == 0, "open": open, "examined": examined, "findings": findings});
        output.answer(&answer, || {
            let mut words: Vec<String> = self.looked_at.iter().map(|line| format!("looked at {line}")).collect();
            if self.findings.is_empty() {
                words.push("all is well".into());
            } else {
                words.push(output::findings(&self.findings));
            }
            words.join("\n")
        })
    }
}
