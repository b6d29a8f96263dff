//! `watch`, `changes` and `history`: the changes of the feed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clap::Args;
use nameservice_api::changes::{Change, Changes, History};
use nameservice_client::{ChangeEvent, ChangeFilter, Connection, Follow};
use nameservice_model::{Address, AddressGlob, ChangedPart, RecordKind, chain};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    client::Request,
    failure::Failure,
    lists::{CHANGES, Entries, Format, FormatArgs},
    options::{ArchiveArgs, changed_part, record_kind},
    output,
    session::Session,
    values::Beginning,
};

/// A filter of changes.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Only changes of these records. They may contain * and ?: NAME:* is all branches of a name [default: all records]
    #[arg(value_name = "ADDRESS")]
    pub addresses: Vec<String>,
    /// Only changes of records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
    /// Only changes of this kind of record
    #[arg(long, value_parser = record_kind())]
    pub kind: Option<RecordKind>,
    /// Only changes of graph sources of this type
    #[arg(long, value_name = "TYPE")]
    pub source_type: Option<String>,
    /// Only changes of this part of a record (repeatable)
    #[arg(long, value_parser = changed_part())]
    pub concern: Vec<ChangedPart>,
}

/// `watch`
#[derive(Debug, Args)]
pub struct WatchArgs {
    /// The filter.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// The archive of older changes.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Only what follows this position, the `start` of what the feed still holds, or `now`
    #[arg(long, value_name = "POSITION|start|now", default_value = "now", value_parser = Beginning::parse)]
    pub after: Beginning,
    /// End after so many changes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// `changes`
#[derive(Debug, Args)]
pub struct ChangesArgs {
    /// The filter.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// The archive of older changes.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Only what follows this position [default: all that the feed still holds, and the archive]
    #[arg(long, value_name = "POSITION")]
    pub after: Option<u64>,
    /// The format.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// `history`
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The record, NAME:BRANCH; NAME means NAME:main
    pub address: Address,
    /// The archive of older changes.
    #[command(flatten)]
    pub archive: ArchiveArgs,
    /// Only changes of this part of the record
    #[arg(long, value_parser = changed_part())]
    pub concern: Option<ChangedPart>,
    /// Only changes after this position
    #[arg(long, value_name = "POSITION")]
    pub after: Option<u64>,
    /// The maximum number [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Print the oldest change first; by default, the newest is first
    #[arg(long)]
    pub oldest_first: bool,
    /// The format.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// How long a `watch` waits after the service has failed, other than by being unavailable.
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of entries on a page of the service.
const MAX_PAGE: u64 = 1_000;

pub(crate) async fn watch(session: &Session, args: WatchArgs) -> Result<(), Failure> {
    // Following waits for a service that cannot be reached; one that cannot be reached at the start is reported.
    let position = position(session).await?;
    let mut left = args.count;
    let mut watching = Watching::new(session, args, position)?;
    let run = async {
        while left != Some(0) {
            output::print(&watching.next().await?)?;
            left = left.map(|left| left - 1);
        }
        Ok(())
    };
    tokio::select! {
        ended = run => ended,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Failure::Watch),
    }
}

struct Watching {
    follow: Follow,
    service: Arc<Service>,
    begins: Beginning,
    /// The end of the feed when it began.
    end: u64,
    is_json: bool,
}

/// What is known of the service that is watched.
#[derive(Default)]
struct Service {
    /// Whether it has accepted a position.
    has_accepted: AtomicBool,
    /// Whether it was reported that it cannot be reached.
    is_down: AtomicBool,
}

impl Service {
    /// Takes what has happened to the connection, and reports it once.
    fn hear(&self, connection: Connection) {
        match connection {
            Connection::Up { after } => {
                self.has_accepted.store(true, Ordering::Relaxed);
                if self.is_down.swap(false, Ordering::Relaxed) {
                    let from = after.map(|after| format!(", continuing after position {after}")).unwrap_or_default();
                    output::note(&format!("connected again{from}"));
                }
            }
            Connection::Down(reason) if !self.is_down.swap(true, Ordering::Relaxed) => {
                output::note(&format!("{}; trying again until it answers", output::clean(&reason)));
            }
            _ => {}
        }
    }
}

impl Watching {
    /// Begins at the position that the command line names; `now` is this position.
    fn new(session: &Session, args: WatchArgs, now: u64) -> Result<Self, Failure> {
        let after = match args.after {
            Beginning::Now => now,
            Beginning::Start => 0,
            Beginning::After(position) => position,
        };
        let service = Arc::new(Service::default());
        let heard = service.clone();
        let follow = session.client.follow(args.filter.parsed()?, Some(after));
        Ok(Self {
            follow: follow.on_connection(move |connection| heard.hear(connection)),
            service,
            begins: args.after,
            end: now,
            is_json: session.output.is_json(),
        })
    }

    /// Waits for the next change, and returns its line.
    async fn next(&mut self) -> Result<String, Failure> {
        loop {
            match self.follow.next().await {
                Ok(ChangeEvent::Change(change)) => {
                    let change = Change::from(&*change);
                    return Ok(if self.is_json { json!(change).to_string() } else { output::change(&change) });
                }
                Ok(ChangeEvent::Gone { oldest }) => {
                    let after = self.follow.gone_after();
                    match (self.begins, self.service.has_accepted.load(Ordering::Relaxed)) {
                        // A position from the command line is a mistake, rather than one of a feed that was reset.
                        (Beginning::After(after), false) if oldest <= after => {
                            return Err(Failure::BeyondEnd { after, end: self.end });
                        }
                        // The command line does not ask for expired changes.
                        (Beginning::Start, false) => {}
                        _ => output::note(&skipped(after, oldest)),
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    let failure = Failure::of_client(error);
                    if !passes(&failure) {
                        return Err(failure);
                    }
                    self.service.hear(Connection::Down(chain(&failure)));
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

/// What to say of changes that the feed does not hold, between the last that was read and the oldest that can be.
fn skipped(after: u64, oldest: u64) -> String {
    match oldest > after + 1 {
        true => format!("positions {} to {} have expired; continuing at {oldest}", after + 1, oldest - 1),
        false => format!("the feed was reset, and never reached position {after}; continuing at {oldest}"),
    }
}

pub(crate) async fn changes(session: &Session, args: ChangesArgs) -> Result<(), Failure> {
    let mut after = args.after.unwrap_or_default();
    let mut found = Found::new(args.format.wanted(session.output)?);
    // Writes continue meanwhile: what comes after this position is not waited for.
    let end = position(session).await?;
    let filter = args.filter.parsed()?;
    loop {
        let request = filter.apply(Request::get("changes"));
        let page = session.send::<Changes>(request.query("after", Some(after)).query("limit", Some(MAX_PAGE))).await;
        let page = match (page, args.after) {
            (Ok(page), _) => page,
            // Without `--after`, expired changes are not an error. A hole between changes is reported.
            (Err(failure), None) if gone(&failure).is_some_and(|oldest| oldest > after + 1) => {
                let oldest = gone(&failure).unwrap_or_default();
                if after > 0 {
                    output::note(&skipped(after, oldest));
                }
                after = oldest - 1;
                continue;
            }
            (Err(failure), _) if gone(&failure).is_some_and(|oldest| oldest <= after) => {
                return Err(Failure::BeyondEnd { after, end });
            }
            (Err(failure), _) => return Err(failure),
        };
        let more = found.take(&page.json, &page.changes)?;
        let position = page.position;
        if position >= end || (position <= after && !more) {
            return found.finish(Some(position));
        }
        after = position;
    }
}

/// Returns the position of the feed.
async fn position(session: &Session) -> Result<u64, Failure> {
    #[derive(Deserialize)]
    struct Compared {
        position: u64,
    }
    // A comparison of nothing reads nothing else.
    let request = Request::query_with("changes/compare", &json!({"subscriptions": {}}));
    Ok(session.send::<Compared>(request).await?.position)
}

pub(crate) async fn history(session: &Session, args: HistoryArgs) -> Result<(), Failure> {
    if let Some(after) = args.after {
        // The history of a record does not say where the feed ends.
        let request = Request::get("changes").query("after", Some(after)).query("limit", Some(1));
        match session.send::<Changes>(request).await {
            Err(failure) if gone(&failure).is_some_and(|oldest| oldest <= after) => {
                return Err(Failure::BeyondEnd { after, end: position(session).await? });
            }
            // Expired changes are not an error here, nor is a feed that the token does not cover.
            _ => {}
        }
    }
    let (mut after, mut before) = (args.after, None);
    let mut found = Found::new(args.format.wanted(session.output)?);
    let mut left = args.limit.unwrap_or(u64::MAX);
    loop {
        let request = Request::get("history")
            .at(&args.address)
            .query("concern", args.concern)
            .query("order", (!args.oldest_first).then_some("newest"))
            .query("after", after)
            .query("before", before)
            .query("limit", Some(left.min(MAX_PAGE)));
        let page = session.send::<History>(request).await?;
        found.take(&page.json, &page.changes)?;
        left = left.saturating_sub(page.changes.len() as u64);
        match page.position {
            Some(position) if left > 0 => match args.oldest_first {
                true => after = Some(position),
                false => before = Some(position),
            },
            _ => return found.finish(None),
        }
    }
}

/// The changes that were found: each is printed as it comes, also within a single document.
struct Found {
    format: Format,
    entries: Entries,
    is_none: bool,
}

impl Found {
    fn new(format: Format) -> Self {
        Self { format, entries: Entries::new(format, CHANGES), is_none: true }
    }

    /// Takes a page. True if there were any changes in it.
    fn take(&mut self, page: &Value, changes: &[Change]) -> Result<bool, Failure> {
        let any = !changes.is_empty();
        let is_first = self.is_none;
        self.is_none &= !any;
        let entries = page["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
        match self.format {
            Format::Json if any => {
                let lines: Vec<String> = entries.iter().map(Value::to_string).collect();
                let begin = if is_first { BEGIN } else { "," };
                output::print(&format!("{begin}{}", lines.join("\n,")))?;
            }
            Format::Json => {}
            Format::Table if any => {
                output::print(&changes.iter().map(output::change).collect::<Vec<_>>().join("\n"))?;
            }
            Format::Table => {}
            Format::Ndjson | Format::Csv => {
                self.entries.print(entries)?;
            }
        }
        Ok(any)
    }

    /// Prints the end of the document, if the format is a single one.
    fn finish(self, position: Option<u64>) -> Result<(), Failure> {
        if self.format != Format::Json {
            return Ok(());
        }
        let begin = if self.is_none { BEGIN } else { "" };
        let position = position.map(|position| format!(", \"position\": {position}")).unwrap_or_default();
        output::print(&format!("{begin}]{position}}}"))
    }
}

/// How a document of changes begins.
const BEGIN: &str = "{\"changes\": [\n";

impl FilterArgs {
    /// Returns the filter, if its addresses can be.
    fn parsed(self) -> Result<ChangeFilter, Failure> {
        let addresses = self.addresses.iter().map(|text| AddressGlob::parse(text)).collect::<Result<_, _>>();
        Ok(ChangeFilter {
            addresses: addresses.map_err(|invalid| Failure::Usage(invalid.to_string()))?,
            prefix: self.prefix,
            kind: self.kind,
            source_type: self.source_type,
            parts: self.concern,
        })
    }
}

/// Whether a failure of the service is likely to be transient.
fn passes(failure: &Failure) -> bool {
    match failure {
        Failure::Rejected(problem) => problem.status >= 500,
        Failure::Answered { status, .. } => *status >= 500,
        _ => false,
    }
}

/// Returns the oldest position that can still be read, from an answer that rejects another position.
fn gone(failure: &Failure) -> Option<u64> {
    failure.problem().filter(|problem| problem.status == 410)?.members.get("oldest")?.as_u64()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use axum::{
        Json, Router,
        body::{Body, Bytes},
        http::{StatusCode, header},
        response::IntoResponse as _,
        routing::get,
    };
    use futures_util::stream;

    use super::*;
    use crate::{client, output::Output};

    fn page(position: u64) -> Value {
        json!({ "position": position, "changes": [{
            "position": position, "address": "mydb:main", "kind": "ledger", "name": "mydb", "branch": "main",
            "concern": "head", "change": "updated", "watermark": 3, "occurred_at": "2026-01-01T00:00:00.000Z",
            "recorded_at": "2026-01-01T00:00:00.000Z",
        }] })
    }

    fn watching(router: Router) -> Watching {
        let session = Session { client: client::in_process(router).unwrap(), output: Output::new(true) };
        let filter = FilterArgs { addresses: vec![], prefix: None, kind: None, source_type: None, concern: vec![] };
        let args = WatchArgs { filter, archive: ArchiveArgs::default(), after: Beginning::Now, count: None };
        Watching::new(&session, args, 7).unwrap()
    }

    /// Streams of events are opened, and a proxy keeps back what comes over them.
    #[tokio::test(start_paused = true)]
    async fn a_watch_behind_a_proxy_that_buffers_prints_what_polls_bring() {
        for begun in ["", ": op"] {
            let events = async move || {
                let text = stream::once(async move { Ok::<_, Infallible>(Bytes::from(begun)) });
                let body = Body::from_stream(stream::StreamExt::chain(text, stream::pending()));
                ([(header::CONTENT_TYPE, "text/event-stream")], body)
            };
            let router =
                Router::new().route("/v1/events", get(events)).route("/v1/changes", get(async || Json(page(8))));
            let line: Value = serde_json::from_str(&watching(router).next().await.unwrap()).unwrap();
            assert_eq!(line, page(8)["changes"][0], "what the service has sent");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_outlasts_failures_of_the_service_and_ends_with_its_rejections() {
        let failures = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let events = async move || {
            let event = format!("id: 8\nevent: change\ndata: {}\n\n", page(8)["changes"][0]);
            match failures.fetch_add(1, Ordering::Relaxed) {
                0 => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                1 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
                2 => ([(header::CONTENT_TYPE, "text/event-stream")], event).into_response(),
                _ => StatusCode::UNAUTHORIZED.into_response(),
            }
        };
        let mut watching = watching(Router::new().route("/v1/events", get(events)));
        assert!(watching.next().await.unwrap().contains("\"position\":8"));
        let ended = watching.next().await;
        assert!(matches!(ended, Err(Failure::Answered { status: 401, .. })), "{ended:?}");
    }
}
