//! `watch`, `changes` and `history`: the changes of the feed.

use std::time::Duration;

use clap::Args;
use futures_util::StreamExt as _;
use nameservice_api::ProblemDocument;
use nameservice_api::changes::{Change, Changes, History};
use nameservice_model::{Address, chain};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    client::Request,
    failure::Failure,
    lists::{CHANGES, Entries, Format, FormatArgs},
    options::{ArchiveArgs, ConcernArg, KindArg},
    output,
    session::Session,
    values::Beginning,
};

/// A filter of changes.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Only changes of these records. They may hold * and ?: NAME:* is all branches of a name [default: all records]
    #[arg(value_name = "ADDRESS")]
    pub addresses: Vec<String>,
    /// Only changes of records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
    /// Only changes of this kind of record
    #[arg(long, value_enum)]
    pub kind: Option<KindArg>,
    /// Only changes of graph sources of this type
    #[arg(long, value_name = "TYPE")]
    pub source_type: Option<String>,
    /// Only changes of this part of a record (repeatable)
    #[arg(long, value_enum)]
    pub concern: Vec<ConcernArg>,
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
    /// Where to begin: at a position, at the `start` of what the feed still holds, or `now`
    #[arg(long, value_name = "POSITION|start|now", default_value = "now", value_parser = Beginning::parse)]
    pub from: Beginning,
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
    #[arg(long, value_enum)]
    pub concern: Option<ConcernArg>,
    /// Only changes after this position
    #[arg(long, value_name = "POSITION")]
    pub after: Option<u64>,
    /// How many at most [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Print the oldest change first; by default, the newest is first
    #[arg(long)]
    pub oldest_first: bool,
    /// The format.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// A stream that is silent for this long is considered dead: the service sends something every fifteen seconds.
const SILENCE: Duration = Duration::from_secs(50);
/// Pauses before connecting again: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The maximum number of entries on a page of the service.
const MAX_PAGE: u64 = 1_000;

pub(crate) async fn watch(session: &Session, args: WatchArgs) -> Result<(), Failure> {
    let watching = Watching {
        session,
        filter: args.filter,
        after: match args.from {
            Beginning::Now => None,
            Beginning::Start => Some(0),
            Beginning::At(position) => Some(position.saturating_sub(1)),
        },
        anywhere: args.from == Beginning::Start,
        by_hand: matches!(args.from, Beginning::At(_)),
        is_down: false,
    };
    tokio::select! {
        ended = watching.run() => ended,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Failure::Watch),
    }
}

struct Watching<'a> {
    session: &'a Session,
    filter: FilterArgs,
    /// Everything up to here was printed or filtered out; `None` until the service has reported its current position.
    after: Option<u64>,
    /// Whether to begin anywhere: the command line does not ask for expired changes.
    anywhere: bool,
    /// Whether the position is from the command line, and nothing was read since.
    by_hand: bool,
    /// Whether it was reported that the service cannot be reached.
    is_down: bool,
}

#[derive(Deserialize)]
struct Expired {
    oldest: u64,
}

/// How a stream ended.
enum End {
    /// Regularly, as every stream does sooner or later.
    Over,
    /// Broken off.
    Broken(String),
    /// The feed no longer holds what follows.
    Gone(u64),
}

impl Watching<'_> {
    async fn run(mut self) -> Result<(), Failure> {
        let mut pause = FIRST_PAUSE;
        // An unreachable service is reported at once when the command starts.
        let mut has_begun = false;
        loop {
            let begun = Instant::now();
            let end = match self.follow(&mut has_begun).await {
                Ok(end) => end,
                Err(failure) => match gone(&failure) {
                    Some(oldest) => End::Gone(oldest),
                    None if has_begun && passes(&failure) => End::Broken(chain(&failure)),
                    None => return Err(failure),
                },
            };
            if begun.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            match end {
                End::Over => {}
                End::Broken(reason) if !self.is_down => {
                    self.is_down = true;
                    output::note(&format!("{reason}; trying again until it answers"));
                }
                End::Broken(_) => {}
                // A position from the command line that was never read is a mistake, rather than a feed that was reset.
                End::Gone(oldest) if self.by_hand && self.after.is_some_and(|after| oldest <= after) => {
                    return Err(Failure::BeyondEnd { position: self.after.unwrap_or_default() + 1, oldest });
                }
                End::Gone(oldest) => self.skip_to(oldest),
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Prints one stream to its end.
    async fn follow(&mut self, has_begun: &mut bool) -> Result<End, Failure> {
        let request = filtered(Request::get("events"), &self.filter).resume(self.after);
        let mut events = self.session.client.events(&request).await?;
        *has_begun = true;
        if std::mem::take(&mut self.is_down) {
            let from = self.after.map(|after| format!(", continuing after position {after}")).unwrap_or_default();
            output::note(&format!("connected again{from}"));
        }
        loop {
            let event = match timeout(SILENCE, events.next()).await {
                Err(_) => return Ok(End::Broken("the service has fallen silent".into())),
                Ok(None) => return Ok(End::Over),
                Ok(Some(Err(error))) => return Ok(End::Broken(format!("the stream broke off: {}", chain(&error)))),
                Ok(Some(Ok(event))) => event,
            };
            let data = event.data.as_deref().unwrap_or_default();
            match event.event.as_deref() {
                Some("change") => self.print(data)?,
                Some("expired") => {
                    let Expired { oldest } = parsed(data)?;
                    return Ok(End::Gone(oldest));
                }
                Some("error") => {
                    let problem: ProblemDocument = parsed(data)?;
                    return Ok(End::Broken(format!("the service has failed: {}", output::clean(&problem.detail))));
                }
                _ => {}
            }
            // Moved last, so that a change that was not printed is requested again.
            if let Some(id) = event.id.and_then(|id| id.parse().ok()) {
                self.after = Some(id);
                self.anywhere = false;
                self.by_hand = false;
            }
        }
    }

    fn print(&self, data: &str) -> Result<(), Failure> {
        if self.session.output.is_json() {
            return output::print(&parsed::<Value>(data)?.to_string());
        }
        output::print(&output::change(&parsed::<Change>(data)?))
    }

    fn skip_to(&mut self, oldest: u64) {
        let after = self.after.unwrap_or_default();
        if !self.anywhere {
            output::note(&if oldest > after + 1 {
                format!("positions {} to {} have expired; continuing at {oldest}", after + 1, oldest - 1)
            } else {
                format!("the feed was reset, and never reached position {after}; continuing at {oldest}")
            });
        }
        self.after = Some(oldest.saturating_sub(1));
    }
}

pub(crate) async fn changes(session: &Session, args: ChangesArgs) -> Result<(), Failure> {
    let mut after = args.after.unwrap_or_default();
    let mut found = Found::new(args.format.wanted(session.output)?);
    // Writes go on meanwhile: what comes after this position is not waited for.
    let end = position(session).await?;
    loop {
        let request = filtered(Request::get("changes"), &args.filter);
        let page = session.send::<Changes>(request.query("after", Some(after)).query("limit", Some(MAX_PAGE))).await;
        let page = match (page, args.after) {
            (Ok(page), _) => page,
            // Without `--after`, expired changes are not an error.
            (Err(failure), None) if found.is_none() && gone(&failure).is_some_and(|oldest| oldest > after + 1) => {
                after = gone(&failure).unwrap_or_default().saturating_sub(1);
                continue;
            }
            (Err(failure), Some(_)) if gone(&failure).is_some_and(|oldest| oldest <= after) => {
                let oldest = gone(&failure).unwrap_or_default();
                return Err(Failure::BeyondEnd { position: after.saturating_add(1), oldest });
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
    let (mut after, mut before) = (args.after, None);
    let mut found = Found::new(args.format.wanted(session.output)?);
    let mut left = args.limit.unwrap_or(u64::MAX);
    loop {
        let request = Request::get("history")
            .at(&args.address)
            .query("concern", args.concern.map(concern))
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

    fn is_none(&self) -> bool {
        self.is_none
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

fn filtered(request: Request, filter: &FilterArgs) -> Request {
    let kind = filter.kind.map(|kind| match kind {
        KindArg::Ledger => "ledger",
        KindArg::GraphSource => "graph_source",
    });
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    request
        .queries("address", &filter.addresses)
        .query("prefix", given(&filter.prefix))
        .query("kind", kind)
        .query("source_type", given(&filter.source_type))
        .queries("concern", filter.concern.iter().copied().map(concern))
}

fn concern(concern: ConcernArg) -> &'static str {
    match concern {
        ConcernArg::Meta => "meta",
        ConcernArg::Head => "head",
        ConcernArg::Index => "index",
        ConcernArg::Status => "status",
        ConcernArg::Config => "config",
    }
}

/// Whether a failure is likely to be transient.
fn passes(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable { .. } | Failure::NoAnswer(_) => true,
        Failure::Rejected(problem) => problem.status == 429 || problem.status >= 500,
        Failure::Answered { status, .. } => *status == 429 || *status >= 500,
        _ => false,
    }
}

/// Returns the oldest position that can still be read, from an answer that rejects another position.
fn gone(failure: &Failure) -> Option<u64> {
    failure.problem().filter(|problem| problem.status == 410)?.members.get("oldest")?.as_u64()
}

fn parsed<T: DeserializeOwned>(data: &str) -> Result<T, Failure> {
    serde_json::from_str(data).map_err(|error| Failure::BadAnswer(error.into()))
}
