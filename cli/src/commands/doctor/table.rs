//! The checks of a table, its feed, and its queue of dead letters.

use jiff::Timestamp;
use nameservice::Place;
use nameservice_dynamo::endpoint_config;
use nameservice_model::{ChangeFeed, Error as StoreError, Finding, Severity};
use nameservice_store::doctor::{Examined, Written};

use super::Report;
use crate::{
    failure::Failure,
    output::Output,
    progress::{Bar, Unit},
    table::{Table, aws_config},
};

/// Runs all checks of a table.
pub(super) async fn check(table: &Table, fix: bool, report: &mut Report, output: Output) -> Result<(), Failure> {
    let bar = Bar::begin(output, Unit::Records, format!("examining {}", table.describe()));
    report.findings.extend(check_shape(table).await?);
    let has_feed = table.feed.check_table().await.is_ok();
    let examined = check_records(table, has_feed, fix, report, &bar).await?;
    if has_feed {
        report.findings.extend(check_feed(table, &examined.last_written).await?);
        report.findings.extend(check_dead_letters(table).await?);
    }
    Ok(())
}

/// A queue of SQS.
pub(super) struct Queue {
    client: aws_sdk_sqs::Client,
    url: String,
}

impl Queue {
    /// Returns the queue at a URL, with the credentials and the region of the table.
    pub(super) async fn open(url: &str, place: Option<&Place>) -> Result<Self, Failure> {
        let config = match place {
            Some(Place::DynamoDb { endpoint: Some(near), .. }) => endpoint_config(near),
            Some(Place::DynamoDb { region, .. }) => aws_config(region.as_deref()).await?,
            _ => aws_config(None).await?,
        };
        Ok(Self { client: aws_sdk_sqs::Client::new(&config), url: url.to_owned() })
    }
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

/// Checks for dead letters of the stream, if they are kept beside the feed.
async fn check_dead_letters(table: &Table) -> Result<Vec<Finding>, Failure> {
    let letters = table.feed.dead_letters().await.map_err(|source| unreadable(table.feed.table(), source))?;
    let Some(last) = letters.iter().max_by_key(|letter| letter.recorded_at) else { return Ok(Vec::new()) };
    let what = format!(
        "{} stream records are dead letters: the feed shows at most that something changed; the last one, {}: {}",
        letters.len(),
        last.recorded_at,
        last.reason
    );
    let mend = "fix the rows that they name, then delete those of `poison#0` in the feed's table";
    Ok(vec![Finding::new("dead-letters", Severity::Warning, what, mend)])
}

/// Checks for stream records that could not be read, if they are sent to a queue.
pub(super) async fn check_queue(queue: &Queue) -> Vec<Finding> {
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
