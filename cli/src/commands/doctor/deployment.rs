//! The smoke test of a deployment on AWS: every route, the way of a change through the feed, the event streams, and the alarms.

use std::time::{Duration, SystemTime};

use http::{Method, Request, header};
use nameservice_model::{BoxError, Finding, Severity, chain};
use nameservice_signer::Signer;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::{DoctorArgs, Report};
use crate::{failure::Failure, routes, table::aws_config};

/// How long one request may take: the gateway gives up after 30 seconds.
const TIMEOUT: Duration = Duration::from_secs(35);
/// How long a change may take into the feed: until then, and in a deployment that is well.
const ARRIVES_WITHIN: Duration = Duration::from_secs(90);
const WELL_WITHIN: Duration = Duration::from_secs(10);
/// The services that requests are signed for: the gateway, a function URL, CloudWatch.
const GATEWAY: &str = "execute-api";
const FUNCTION_URL: &str = "lambda";
const CLOUDWATCH: &str = "monitoring";
/// The alarms that every deployment with alarms has, by their names without the deployment's.
const ALARMS: [&str; 8] = [
    "consumer-errors",
    "dead-letters",
    "feed-conflicts",
    "feed-throttled",
    "iterator-age",
    "server-errors",
    "table-conflicts",
    "table-throttled",
];

/// A deployment, as one of its callers.
struct Deployment<'a> {
    url: &'a str,
    events: Option<&'a str>,
    name: &'a str,
    token: Option<&'a str>,
    config: aws_config::SdkConfig,
    http: reqwest::Client,
}

/// An answer, with its body if it is JSON.
struct Answer {
    status: u16,
    body: Value,
}

impl Answer {
    fn problem(&self) -> &str {
        self.body["type"].as_str().and_then(|kind| kind.rsplit('/').next()).unwrap_or_default()
    }

    /// What an operator reads of it.
    fn words(&self) -> String {
        let words = ["detail", "title", "message", "Message"].iter().find_map(|name| self.body[name].as_str());
        format!("{} {}", self.status, words.unwrap_or_default())
    }
}

/// Runs all checks of a deployment.
pub(super) async fn check(
    url: &str,
    token: Option<&str>,
    args: &DoctorArgs,
    report: &mut Report,
) -> Result<(), Failure> {
    let deployment = Deployment {
        url: url.trim_end_matches('/'),
        events: args.events_url.as_deref().map(|url| url.trim_end_matches('/')),
        name: &args.deployment_name,
        token,
        config: aws_config(None).await?,
        http: nameservice_client::http_client(url).map_err(|error| Failure::Usage(chain(&error).to_string()))?,
    };
    let address = format!("nameservice-doctor-{}", Uuid::new_v4().simple());
    deployment.check_routes(&address, report).await;
    deployment.check_change(&address, report).await;
    deployment.check_alarms(report).await;
    Ok(())
}

impl Deployment<'_> {
    async fn request(
        &self,
        service: &'static str,
        method: Method,
        url: &str,
        body: Option<&Value>,
    ) -> Result<reqwest::Response, BoxError> {
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let mut request = Request::builder().method(method).uri(url).header(header::CONTENT_TYPE, "application/json");
        if let (Some(token), GATEWAY | FUNCTION_URL) = (self.token, service) {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if service == CLOUDWATCH {
            request = request
                .header(header::CONTENT_TYPE, "application/x-amz-json-1.0")
                .header("x-amz-target", "GraniteServiceVersion20100801.DescribeAlarms");
        }
        let mut request = request.body(body)?;
        if self.token.is_none() || service == CLOUDWATCH {
            let signer = Signer::from_config(&self.config, service).ok_or(
                "there are no AWS credentials or no region: give a token (NAMESERVICE_TOKEN), or set AWS_PROFILE and AWS_REGION",
            )?;
            signer.sign(&mut request, SystemTime::now()).await?;
        }
        let request = reqwest::Request::try_from(request)?;
        Ok(self.http.execute(request).await?)
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer, BoxError> {
        let url = format!("{}{path}", self.url);
        let answer = timeout(TIMEOUT, async {
            let response = self.request(GATEWAY, method, &url, body).await?;
            let status = response.status().as_u16();
            Ok::<_, BoxError>(Answer {
                status,
                body: serde_json::from_slice(&response.bytes().await?).unwrap_or_default(),
            })
        });
        answer.await.map_err(|_| format!("no answer in {} seconds", TIMEOUT.as_secs()))?
    }

    /// Calls every route. No call changes anything: those that would are rejected, because the record does not exist or the
    /// body lacks what it needs.
    async fn check_routes(&self, address: &str, report: &mut Report) {
        let document = json!(routes::document());
        let paths = document["paths"].as_object().into_iter().flatten();
        let mut count = 0;
        for (path, item) in paths.filter(|(path, _)| !path.ends_with("/events")) {
            let operations = item.as_object().into_iter().flatten();
            for (method, _) in operations.filter(|(_, operation)| operation.get("operationId").is_some()) {
                let Ok(method) = method.to_uppercase().parse::<Method>() else { continue };
                let target = path.replace("refs/{address}", &format!("refs/{address}/commit"));
                let file = if path.starts_with("/console") { "app.js" } else { "docs.js" };
                let target = target.replace("{address}", address).replace("{file}", file);
                let body = (!matches!(method, Method::GET | Method::DELETE)).then(|| json!({}));
                count += 1;
                let finding = match self.call(method.clone(), &target, body.as_ref()).await {
                    Err(error) => Some((
                        "route-fails",
                        chain(error.as_ref()).to_string(),
                        "look at the gateway's log, and the function's",
                    )),
                    Ok(answer) if answer.problem() == "not-found" => {
                        Some(("route-missing", answer.words(), "deploy the function, and its route"))
                    }
                    // A part that is optional is answered with 501.
                    Ok(answer) if answer.status >= 500 && answer.status != 501 => {
                        Some(("route-fails", answer.words(), "look at the gateway's log, and the function's"))
                    }
                    Ok(answer) if matches!(answer.status, 401 | 403) && !path.contains("/fluree/") => Some((
                        "route-forbidden",
                        answer.words(),
                        "use a token, or credentials, that may do everything: scope nameservice:admin",
                    )),
                    Ok(_) => None,
                };
                if let Some((code, what, mend)) = finding {
                    report.findings.push(Finding::new(code, Severity::Error, format!("{method} {path}: {what}"), mend));
                }
            }
        }
        report.looked_at.push(format!("{count} routes of {}", self.url));
    }

    /// Creates a record, follows its creation through the feed and the event streams, and purges it.
    async fn check_change(&self, address: &str, report: &mut Report) {
        let snapshot = self.call(Method::GET, "/v1/snapshot?limit=1", None).await;
        let Some(position) = snapshot.ok().and_then(|answer| answer.body["position"].as_u64()) else {
            let mend = "the findings about routes have the reason";
            report.findings.push(Finding::new(
                "feed-unreadable",
                Severity::Error,
                "the end of the feed cannot be read",
                mend,
            ));
            return;
        };
        let begun = Instant::now();
        match self.call(Method::POST, "/v1/ledgers", Some(&json!({"address": address}))).await {
            Ok(answer) if answer.status == 201 => {}
            Ok(answer) => return report.findings.push(not_written(&answer.words())),
            Err(error) => return report.findings.push(not_written(&chain(error.as_ref()).to_string())),
        }
        let path = format!("/v1/changes?after={position}&address={address}&wait=20");
        let mut arrived = None;
        while arrived.is_none() && begun.elapsed() < ARRIVES_WITHIN {
            match self.call(Method::GET, &path, None).await {
                Ok(answer) if answer.body["changes"].as_array().is_some_and(|changes| !changes.is_empty()) => {
                    arrived = Some(begun.elapsed());
                }
                Ok(answer) if answer.status == 200 => {}
                _ => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
        match arrived {
            None => report.findings.push(Finding::new(
                "feed-late",
                Severity::Error,
                format!("a change was not in the feed after {} seconds", ARRIVES_WITHIN.as_secs()),
                "look at the log of stream_consumer, and at the mapping of the table's stream: its state and its last result",
            )),
            Some(after) => {
                report.looked_at.push(format!("the change feed: a change was there after {:.1} s", after.as_secs_f64()));
                if after > WELL_WITHIN {
                    let what = format!("a change took {:.1} s into the feed", after.as_secs_f64());
                    let mend = "the first one after a deployment may; look at the alarm on the iterator's age";
                    report.findings.push(Finding::new("feed-late", Severity::Warning, what, mend));
                }
            }
        }
        if let Some(events) = self.events {
            match self.follow(events, position, address).await {
                Ok(()) => report.looked_at.push(format!("the event streams at {events}")),
                Err(error) => report.findings.push(Finding::new(
                    "events-fail",
                    Severity::Error,
                    format!("the event streams at {events}: {}", chain(error.as_ref())),
                    "look at the log of change_stream, and at the permissions of its URL",
                )),
            }
        }
        match self.call(Method::DELETE, &format!("/v1/records/{address}"), None).await {
            Ok(answer) if answer.status < 300 => {}
            Ok(answer) => report.findings.push(left(address, &answer.words())),
            Err(error) => report.findings.push(left(address, &chain(error.as_ref()).to_string())),
        }
    }

    /// Waits until the event of the record's creation comes.
    async fn follow(&self, events: &str, position: u64, address: &str) -> Result<(), BoxError> {
        let url = format!("{events}/v1/events?after={position}&address={address}");
        let found = timeout(TIMEOUT, async {
            let mut response = self.request(FUNCTION_URL, Method::GET, &url, None).await?;
            if !response.status().is_success() {
                return Err(format!("the answer is {}", response.status()).into());
            }
            let mut text = Vec::new();
            while let Some(chunk) = response.chunk().await? {
                text.extend_from_slice(&chunk);
                if String::from_utf8_lossy(&text).contains("event: change") {
                    return Ok(());
                }
            }
            Err(BoxError::from("the stream ended without the change"))
        });
        found.await.map_err(|_| format!("no event in {} seconds", TIMEOUT.as_secs()))?
    }

    /// Checks that the deployment has its alarms, that they notify someone, and that none is raised.
    async fn check_alarms(&self, report: &mut Report) {
        let alarms = match self.alarms().await {
            Ok(alarms) => alarms,
            Err(error) => {
                let what = format!("the alarms cannot be read: {}", chain(error.as_ref()));
                let mend = "use credentials that may cloudwatch:DescribeAlarms, and the region of the deployment";
                return report.findings.push(Finding::new("alarms-unreadable", Severity::Warning, what, mend));
            }
        };
        report.looked_at.push(format!("{} alarms of {}", alarms.len(), self.name));
        let missing = missing(&alarms, self.name);
        if !missing.is_empty() {
            let what = format!("alarms are missing: {}", missing.join(", "));
            let mend = "apply with `alarms = true`, or name the deployment with --deployment-name";
            report.findings.push(Finding::new("alarms-missing", Severity::Warning, what, mend));
        }
        let silent = alarms.iter().filter(|alarm| alarm["AlarmActions"].as_array().is_none_or(Vec::is_empty)).count();
        if silent > 0 {
            let what = format!("{silent} alarms notify nobody");
            report.findings.push(Finding::new("alarms-silent", Severity::Note, what, "set `alarm_actions`"));
        }
        for alarm in alarms.iter().filter(|alarm| alarm["StateValue"] == "ALARM") {
            let words = |name: &str| alarm[name].as_str().unwrap_or_default().to_owned();
            let what = format!("{} is raised: {}", words("AlarmName"), words("StateReason"));
            report.findings.push(Finding::new("alarm-raised", Severity::Warning, what, words("AlarmDescription")));
        }
    }

    async fn alarms(&self) -> Result<Vec<Value>, BoxError> {
        let region = self.config.region().map(ToString::to_string).unwrap_or_default();
        let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
        let url = match self.config.endpoint_url() {
            Some(endpoint) => format!("{}/", endpoint.trim_end_matches('/')),
            None => format!("https://monitoring.{region}.amazonaws.com{suffix}/"),
        };
        let (mut alarms, mut next) = (Vec::new(), Value::Null);
        loop {
            let mut body = json!({"AlarmNamePrefix": format!("{}-", self.name), "MaxRecords": 100});
            if next.is_string() {
                body["NextToken"] = next;
            }
            let response = timeout(TIMEOUT, self.request(CLOUDWATCH, Method::POST, &url, Some(&body))).await??;
            let status = response.status();
            let mut answer: Value = serde_json::from_slice(&response.bytes().await?).unwrap_or_default();
            if !status.is_success() {
                return Err(Answer { status: status.as_u16(), body: answer }.words().into());
            }
            for kind in ["MetricAlarms", "CompositeAlarms"] {
                alarms.extend(answer[kind].as_array().cloned().unwrap_or_default());
            }
            next = answer["NextToken"].take();
            if !next.is_string() {
                return Ok(alarms);
            }
        }
    }
}

/// The alarms that are expected and not there.
fn missing(alarms: &[Value], name: &str) -> Vec<&'static str> {
    let there = |alarm: &&str| alarms.iter().any(|found| found["AlarmName"] == format!("{name}-{alarm}"));
    ALARMS.into_iter().filter(|alarm| !there(alarm)).collect()
}

fn not_written(why: &str) -> Finding {
    let what = format!("a record cannot be created: {why}");
    Finding::new("write-fails", Severity::Error, what, "look at the log of ledger_create")
}

fn left(address: &str, why: &str) -> Finding {
    let what = format!("the record of this test could not be purged: {why}");
    Finding::new("record-left", Severity::Warning, what, "purge it: `nameservice purge ADDRESS`").at(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_of_other_deployments_do_not_count() {
        let named = |name: &str| ALARMS.map(|alarm| json!({"AlarmName": format!("{name}-{alarm}")}));
        assert!(missing(&named("names"), "names").is_empty());
        assert_eq!(missing(&named("names-staging"), "names"), ALARMS);
        assert_eq!(missing(&named("names")[1..], "names"), [ALARMS[0]]);
    }

    /// The module has the alarms that are expected of it.
    #[test]
    fn the_alarms_are_those_of_the_module() {
        let module = include_str!("../../../../infra/modules/nameservice/alarms.tf");
        for alarm in ALARMS {
            let written = alarm.replace("table-", "${table}-").replace("feed-", "${table}-");
            assert!(module.contains(&format!("{alarm} = {{")) || module.contains(&written), "{alarm}");
        }
    }
}
