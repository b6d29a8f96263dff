//! `list` and `snapshot`: all pages, read to the end.

use clap::{Args, ValueEnum};
use nameservice_api::{Listed, Status};
use nameservice_model::{Address, AddressGlob, Progress, RecordKind};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    client::Request,
    failure::Failure,
    lists::{self, Column, Format, FormatArgs, RECORDS, SUMMARIES},
    options::record_kind,
    output,
    progress::{Bar, Unit},
    session::Session,
    values,
};

/// `list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only records whose addresses match. They may contain * and ?: NAME:* is all branches of a name
    #[arg(value_name = "ADDRESS")]
    pub patterns: Vec<String>,
    /// Only records whose addresses begin with this
    #[arg(long)]
    pub prefix: Option<String>,
    /// Sort the records; by default, they are in the order of the index
    #[arg(long, value_enum)]
    pub sort: Option<SortArg>,
    /// Print only the number of records
    #[arg(long, conflicts_with_all = ["limit", "sort", "cursor"])]
    pub count: bool,
    /// Only this kind
    #[arg(long, value_parser = record_kind())]
    pub kind: Option<RecordKind>,
    /// Only the branches of this name
    #[arg(long, value_parser = values::name)]
    pub name: Option<String>,
    /// Only graph sources of this type
    #[arg(long, value_name = "TYPE")]
    pub source_type: Option<String>,
    /// Only records in this state
    #[arg(long)]
    pub state: Option<String>,
    /// Only retracted (or, with =false, only live) records
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub retracted: Option<bool>,
    /// Read only kinds and dependencies: state, head, index and times take many more reads of a table
    #[arg(long, conflicts_with = "count")]
    pub summary: bool,
    /// The maximum number of records [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "all")]
    pub limit: Option<u64>,
    /// Show all records (the default)
    #[arg(long)]
    pub all: bool,
    /// Continue where an earlier list (--json, --limit) ended
    #[arg(long)]
    pub cursor: Option<String>,
    /// The format.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The orders of a list.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SortArg {
    /// By address
    Address,
    /// By time of the last write, newest first
    Updated,
    /// By state
    State,
}

/// The maximum number of entries on a page of the service.
const MAX_PAGE: u64 = 1_000;

/// The combined entries of several pages.
pub(super) struct Pages {
    /// The entries as the service wrote them.
    pub(super) items: Vec<Value>,
    /// The cursor of the next page, if the limit was reached before the end.
    pub(super) cursor: Option<String>,
    /// The position of a snapshot.
    position: Option<u64>,
}

#[derive(Deserialize)]
struct Page {
    #[serde(alias = "branches")]
    records: Vec<Value>,
    cursor: Option<String>,
    position: Option<u64>,
}

/// How many entries to read.
#[derive(Clone, Copy, Default)]
pub(super) struct Limit {
    /// All if `None`.
    pub(super) records: Option<u64>,
    /// Whether some of what the service lists is not wanted: then pages are full, however few entries are.
    pub(super) is_filtered: bool,
}

/// Reads pages until there are as many wanted items, or no more.
pub(super) async fn follow(
    session: &Session,
    Limit { records: limit, is_filtered }: Limit,
    mut cursor: Option<String>,
    request: impl Fn() -> Request,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Pages, Failure> {
    let (mut items, mut read, mut bar) = (Vec::new(), 0, None);
    loop {
        let left = limit.map_or(MAX_PAGE, |limit| limit.saturating_sub(items.len() as u64));
        let page = async |size: u64| {
            let request = request().query("limit", Some(size)).query("cursor", cursor.as_deref());
            Ok::<_, Failure>(session.send::<Page>(request).await?.value)
        };
        let mut listed = page(if is_filtered { MAX_PAGE } else { left.min(MAX_PAGE) }).await?;
        if let Some(last) = last_of(&listed.records, left, &wanted)
            && last < listed.records.len()
        {
            // Up to the last requested record, for a cursor that continues right after it.
            listed = page(last as u64).await?;
        }
        let Page { records, cursor: next, position } = listed;
        read += records.len() as u64;
        items.extend(records.into_iter().filter(&wanted));
        cursor = next;
        let enough = limit.is_some_and(|limit| items.len() as u64 >= limit);
        if cursor.is_none() || enough {
            return Ok(Pages { items, cursor, position });
        }
        // The first page is quick, so progress is only shown from the second on.
        let bar = bar.get_or_insert_with(|| Bar::begin(session.output, Unit::Records, "reading"));
        bar.show(Progress { done: read, total: limit });
    }
}

/// Returns how many entries of a page hold this many wanted ones; `None` if the page does not have more.
fn last_of(records: &[Value], wanted_ones: u64, wanted: impl Fn(&Value) -> bool) -> Option<usize> {
    let index = usize::try_from(wanted_ones).ok()?.checked_sub(1)?;
    records.iter().enumerate().filter(|(_, record)| wanted(record)).nth(index).map(|(at, _)| at + 1)
}

pub(crate) async fn list(session: &Session, args: ListArgs) -> Result<(), Failure> {
    let format = args.format.wanted(session.output)?;
    if args.summary && matches!(args.sort, Some(SortArg::Updated | SortArg::State)) {
        let reason = "--summary reads neither states nor times, by which --sort could sort: leave one of them out";
        return Err(Failure::Usage(reason.into()));
    }
    // What is printed is the same in every format.
    let full = !args.summary && !args.count;
    let request = || {
        Request::get("records")
            .query("kind", args.kind)
            .query("prefix", args.prefix.as_deref().filter(|prefix| !prefix.is_empty()))
            .query("name", args.name.as_deref())
            .query("source_type", args.source_type.as_deref())
            .query("state", args.state.as_deref())
            .query("retracted", args.retracted)
            .query("view", full.then_some("full"))
    };
    let patterns = args.patterns.iter().map(|text| AddressGlob::parse(text)).collect::<Result<Vec<_>, _>>();
    let patterns = patterns.map_err(|error| Failure::Usage(error.to_string()))?;
    let wanted = |entry: &Value| {
        let Some(address) = entry["address"].as_str() else { return true };
        let matches = |glob: &AddressGlob| Address::parse(address).is_ok_and(|address| glob.matches(&address));
        patterns.is_empty() || patterns.iter().any(matches)
    };
    // To be sorted or counted, the list is read to its end first.
    let limit = args.limit.filter(|_| args.sort.is_none() && !args.count);
    // The service finds one name by itself; of the records of others, most may not match.
    let limit = Limit { records: limit, is_filtered: !patterns.is_empty() };
    let mut pages = follow(session, limit, args.cursor.clone(), request, wanted).await?;
    if args.count {
        let count = pages.items.len();
        return session.output.answer(&json!({"count": count}), || count.to_string());
    }
    if let Some(sort) = args.sort {
        sort_by(&mut pages.items, sort)?;
        pages.items.truncate(args.limit.and_then(|limit| limit.try_into().ok()).unwrap_or(usize::MAX));
    }
    show(format, if full { RECORDS } else { SUMMARIES }, pages)
}

/// Sorts by address, by state, or by time of the last write, newest first.
fn sort_by(items: &mut [Value], sort: SortArg) -> Result<(), Failure> {
    let key = |item: &Value| -> Result<(String, String), Failure> {
        let listed = Listed::deserialize(item).map_err(|error| Failure::BadAnswer(error.into()))?;
        Ok(match (sort, listed) {
            (SortArg::Updated, Listed::Full(record)) => (record.updated_at, record.address),
            (SortArg::State, Listed::Full(record)) => (state(record.status.as_ref()), record.address),
            (_, Listed::Full(record)) => (String::new(), record.address),
            (_, Listed::Summary(summary)) => (String::new(), summary.address),
        })
    };
    let mut failed = None;
    items.sort_by_cached_key(|item| {
        key(item).unwrap_or_else(|error| {
            failed = Some(error);
            Default::default()
        })
    });
    if matches!(sort, SortArg::Updated) {
        items.reverse();
    }
    failed.map_or(Ok(()), Err)
}

fn state(status: Option<&Status>) -> String {
    status.and_then(|status| status.payload.get("state")?.as_str()).unwrap_or_default().to_owned()
}

pub(crate) async fn snapshot(session: &Session, format: FormatArgs) -> Result<(), Failure> {
    let format = format.wanted(session.output)?;
    let pages = follow(session, Limit::default(), None, || Request::get("snapshot"), |_| true).await?;
    show(format, RECORDS, pages)
}

fn show(format: Format, columns: &'static [Column], pages: Pages) -> Result<(), Failure> {
    let Pages { items, cursor, position } = pages;
    let document = || {
        let mut answer = json!({"records": items});
        if let Some(cursor) = &cursor {
            answer["cursor"] = cursor.as_str().into();
        }
        if let Some(position) = position {
            answer["position"] = position.into();
        }
        answer
    };
    let words = || match (items.as_slice(), &cursor) {
        ([], _) => "no records".into(),
        (records, None) => output::records(records),
        (records, Some(cursor)) => format!("{}\n… and more: --cursor {cursor}", output::records(records)),
    };
    lists::print(format, columns, &items, document, words)?;
    // Formats of one line per record have no place for the cursor.
    if let (Some(cursor), Format::Ndjson | Format::Csv) = (&cursor, format) {
        output::note(&format!("… and more: --cursor {cursor}"));
    }
    Ok(())
}
