//! `copy`, `compare`, `export` and `import`: between two places.

mod args;

use std::path::Path;

use nameservice::{Nameservice, Place};
use nameservice_files::Options as FilesOptions;
use nameservice_model::{Address, Limit, ListQuery, Progress};
use nameservice_sync::{
    BackendSource, Comparison, CopyOptions, CopyProgress, DumpPlace, DumpSource, Mirrored, Report, Source,
    report::{Entry, Records},
};
use serde_json::{Value, json};

use super::counted;
use crate::{
    client::Credentials,
    connected::Connected,
    failure::Failure,
    older,
    options::{Missing, TargetArgs},
    output::{self, Output},
    progress::{self, Bar, Unit},
    shown_source::Shown,
};

pub use args::{CompareArgs, CopyArgs, ExportArgs, ImportArgs, TakeArgs, TokenArgs};

/// How many addresses of one outcome are printed for a person.
const SHOWN: usize = 20;

pub(crate) async fn copy(args: CopyArgs, target: &TargetArgs, output: Output) -> Result<(), Failure> {
    let CopyArgs { from, to, take, follow, tokens } = args;
    let own = target.credentials()?;
    let of = |token: Option<String>| own.clone().with_token(token.or_else(|| own.token.clone()));
    let (from_credentials, to_credentials) = (of(tokens.from_token), of(tokens.to_token));
    if let Place::Dump(file) = &to {
        if follow || !take.force.is_empty() || take.dry_run {
            return Err(Failure::Usage(
                "a dump is always written whole: --follow, --force and --dry-run do not go with it".into(),
            ));
        }
        let from = From::open(&from, take.prefix, from_credentials).await?;
        let exported = exported(&from, file, output).await;
        from.close().await;
        return exported;
    }
    let from = From::open(&from, take.prefix.clone(), from_credentials).await?;
    let to = Connected::open(&to, Missing::Create, to_credentials).await?;
    let options = options(&take);
    let done = match follow {
        true => followed(&from, &to, &options, take.prefix.as_deref(), output).await,
        false => copied(&from, &to, &options, output).await,
    };
    from.close().await;
    to.close().await;
    done
}

pub(crate) async fn compare(args: CompareArgs, target: &TargetArgs, output: Output) -> Result<(), Failure> {
    let CompareArgs { from, to, prefix, tokens } = args;
    if matches!(to, Place::Legacy { .. }) {
        return Err(Failure::Usage("name the older table first".into()));
    }
    if matches!((&from, &to), (Place::Dump(_), Place::Dump(_))) {
        return Err(Failure::Usage("two dumps cannot be compared: import one into a directory, embedded:DIR".into()));
    }
    // A dump can only be read in order, so it is the first place; records are looked up at the second.
    let is_turned = matches!(to, Place::Dump(_));
    let (first, second) = if is_turned { (to, from) } else { (from, to) };
    let (mut first_token, mut second_token) = (tokens.from_token, tokens.to_token);
    if is_turned {
        std::mem::swap(&mut first_token, &mut second_token);
    }
    let own = target.credentials()?;
    let of = |token: Option<String>| own.clone().with_token(token.or_else(|| own.token.clone()));
    let first = From::open(&first, prefix.clone(), of(first_token)).await?;
    let second = Connected::open(&second, Missing::Reject, of(second_token)).await?;
    let (bar, total) = first.bar("comparing", output).await;
    let source = Shown::new(&*first.source, &bar, total);
    let compared = nameservice_sync::compare(&source, second.backend(), prefix.as_deref(), true).await;
    drop(bar);
    first.close().await;
    second.close().await;
    let mut compared = compared?;
    if is_turned {
        compared = turned(compared);
    }
    output.answer(&json!(compared), || comparison_words(&compared))?;
    match compared.is_same() {
        true => Ok(()),
        false => Err(Failure::Differs("the places do not hold the same".into())),
    }
}

/// Swaps the two places of a comparison.
fn turned(compared: Comparison) -> Comparison {
    Comparison {
        missing_there: compared.only_there,
        only_there: compared.missing_there,
        older_there: compared.newer_there,
        newer_there: compared.older_there,
        ..compared
    }
}

pub(crate) async fn export(args: ExportArgs, target: &TargetArgs, output: Output) -> Result<(), Failure> {
    let from = From::open(&target.place_or_service()?, args.prefix, target.credentials()?).await?;
    let done = exported(&from, &args.file, output).await;
    from.close().await;
    done
}

pub(crate) async fn import(args: ImportArgs, target: &TargetArgs, output: Output) -> Result<(), Failure> {
    let from = From::open(&Place::Dump(args.file), args.take.prefix.clone(), Credentials::default()).await?;
    let to = Connected::open(&target.place_or_service()?, Missing::Create, target.credentials()?).await?;
    let done = copied(&from, &to, &options(&args.take), output).await;
    to.close().await;
    done
}

fn options(take: &TakeArgs) -> CopyOptions {
    CopyOptions::default()
        .dry_run(take.dry_run)
        .force(take.force.clone())
        .resets(take.resets)
        .foreign(take.allow_foreign)
}

fn dump_place(file: &Path) -> DumpPlace {
    match file.as_os_str() == "-" {
        true => DumpPlace::Stream,
        false => DumpPlace::File(file.to_owned()),
    }
}

/// The source of a copy.
struct From {
    source: Box<dyn Source>,
    names: Option<Connected>,
    prefix: Option<String>,
}

impl From {
    async fn open(place: &Place, prefix: Option<String>, credentials: Credentials) -> Result<Self, Failure> {
        if let Place::Dump(file) = place {
            let source = DumpSource::open(dump_place(file), prefix.clone()).await?;
            return Ok(Self { source: Box::new(source), names: None, prefix });
        }
        if matches!(place, Place::Legacy { .. }) {
            let source = nameservice::legacy_table(place, prefix.clone()).await?;
            return Ok(Self { source: Box::new(source), names: None, prefix });
        }
        if matches!(place, Place::Directory { .. } | Place::Bucket { .. }) {
            let files = nameservice::files(place, false, FilesOptions::default()).await?;
            let unreadable = older::unreadable(&files).await?;
            let names = Connected { names: Nameservice::over(files) };
            let source = BackendSource::new(names.backend().clone()).with_unreadable(unreadable);
            let source = Box::new(source.with_prefix(prefix.clone()));
            return Ok(Self { source, names: Some(names), prefix });
        }
        let names = Connected::open(place, Missing::Reject, credentials).await?;
        let others = nameservice::virtual_graphs(place).await?;
        let source = BackendSource::new(names.backend().clone()).with_others(others).with_prefix(prefix.clone());
        Ok(Self { source: Box::new(source), names: Some(names), prefix })
    }

    async fn close(self) {
        drop(self.source);
        if let Some(names) = self.names {
            names.close().await;
        }
    }

    /// Begins a progress bar. Also returns the number of records, which is only counted if the bar is shown.
    async fn bar(&self, what: &str, output: Output) -> (Bar, Option<u64>) {
        let bar = Bar::begin(output, Unit::Records, what);
        let total = match progress::is_wanted(output) {
            true => self.count().await,
            false => None,
        };
        (bar, total)
    }

    async fn count(&self) -> Option<u64> {
        let backend = self.names.as_ref()?.backend();
        let visible =
            |address: &Address| self.prefix.as_ref().is_none_or(|prefix| address.as_str().starts_with(prefix));
        let mut query = ListQuery { limit: Limit::new(1000).unwrap_or_default(), ..ListQuery::default() };
        let mut count = 0;
        loop {
            let page = backend.list(&query, &visible).await.ok()?;
            count += page.items.len() as u64;
            match page.cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Some(count),
            }
        }
    }
}

/// Shows the progress of a copy.
fn show(bar: &Bar, total: Option<u64>, CopyProgress { read, written, is_comparing, .. }: CopyProgress) {
    let more = match is_comparing {
        true => "; comparing both sides".to_owned(),
        false => format!("; {written} written"),
    };
    bar.show_with(Progress { done: read, total }, more);
}

async fn exported(from: &From, file: &Path, output: Output) -> Result<(), Failure> {
    let place = dump_place(file);
    let (bar, total) = from.bar("exporting", output).await;
    let exported = nameservice_sync::export(&*from.source, &place, &|progress| show(&bar, total, progress)).await?;
    drop(bar);
    let answer = json!(exported);
    let mut words = format!("wrote {} to {place}", counted(exported.records, "record"));
    words.push_str(&list_words("could not be read", &exported.unreadable));
    words.push_str(&list_words("written without the secrets of their configs", &exported.redacted));
    match place {
        // Stdout has the records.
        DumpPlace::Stream => output::note(&if output.is_json() { answer.to_string() } else { words }),
        DumpPlace::File(_) => output.answer(&answer, || words)?,
    }
    match (exported.unreadable.is_empty(), exported.redacted.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => Err(Failure::Differs("some records could not be read".into())),
        (true, false) => Err(Failure::Differs("the dump lacks secrets, so these records cannot be imported".into())),
    }
}

async fn copied(from: &From, to: &Connected, options: &CopyOptions, output: Output) -> Result<(), Failure> {
    let (bar, total) = from.bar("copying", output).await;
    let observe = |progress| show(&bar, total, progress);
    let report = nameservice_sync::copy(&*from.source, to.backend(), options, &observe).await?;
    drop(bar);
    output.answer(&json!(report), || report_words(&report))?;
    match report.is_complete() {
        true => Ok(()),
        false => Err(Failure::Differs("the target does not hold everything that the source holds".into())),
    }
}

async fn followed(
    from: &From,
    to: &Connected,
    options: &CopyOptions,
    prefix: Option<&str>,
    output: Output,
) -> Result<(), Failure> {
    let mut is_first = true;
    let mut failure = None;
    // Progress of the first copy; what follows is printed.
    let (bar, total) = from.bar("copying", output).await;
    let observe = |progress| show(&bar, total, progress);
    let print = |mirrored: Mirrored| {
        bar.end();
        let printed = print_mirrored(&mirrored, std::mem::take(&mut is_first), output);
        failure = printed.err();
        failure.is_none()
    };
    let following = nameservice_sync::mirror(&*from.source, to.backend(), options, prefix, &observe, print);
    tokio::select! {
        done = following => done?,
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Failure::Watch)?,
    }
    failure.map_or(Ok(()), Err)
}

fn print_mirrored(mirrored: &Mirrored, is_first: bool, output: Output) -> Result<(), Failure> {
    let Mirrored { position, report, purged } = mirrored;
    if output.is_json() {
        let purged: Vec<&str> = purged.iter().map(Address::as_str).collect();
        return output::print(&json!({"position": position, "report": report, "purged": purged}).to_string());
    }
    if is_first {
        return output::print(&format!("{}\nat position {position}", report_words(report)));
    }
    let mut words = format!("at position {position}: {} copied", report.copied.count);
    for (outcome, records) in left(report) {
        words.push_str(&list_words(outcome, records));
    }
    for address in purged {
        words.push_str(&format!("\n  {address} was purged at the source, and is left"));
    }
    output::print(&words)
}

fn left(report: &Report) -> [(&'static str, &Records); 6] {
    [
        ("newer at the target, left", &report.newer_there),
        ("different at the same watermark, left", &report.diverged),
        ("not comparable without their secrets, their configs left", &report.unknown),
        ("still behind: copy again", &report.behind),
        ("could not be read", &report.unreadable),
        ("rejected by the target", &report.rejected),
    ]
}

fn report_words(report: &Report) -> String {
    let verb = if report.dry_run { "would be copied" } else { "copied" };
    let mut words = format!("{} {verb}, {} already there", report.copied.count, report.already_there);
    if report.dry_run {
        words.push_str(&list_words("would be copied", &report.copied));
    }
    for (outcome, records) in left(report) {
        words.push_str(&list_words(outcome, records));
    }
    words.push_str(&list_words(
        "keep addresses or other values of the older layout, in their config",
        &report.kept_addresses,
    ));
    words
}

fn comparison_words(compared: &Comparison) -> String {
    let mut words = format!("{} the same", compared.same);
    for (outcome, records) in [
        ("only at the first", &compared.missing_there),
        ("only at the second", &compared.only_there),
        ("newer at the first", &compared.older_there),
        ("newer at the second", &compared.newer_there),
        ("different at the same watermark", &compared.diverged),
        ("not comparable without their secrets", &compared.unknown),
        ("could not be read", &compared.unreadable),
    ] {
        words.push_str(&list_words(outcome, records));
    }
    words
}

/// The number of records, and the first of them; empty if there are none.
pub(super) fn list_words(outcome: &str, records: &Records) -> String {
    if records.is_empty() {
        return String::new();
    }
    let mut words = format!("\n{} {outcome}:", records.count);
    for entry in records.records.iter().take(SHOWN) {
        words.push_str(&format!("\n  {}", entry_words(entry)));
    }
    let more = records.count.saturating_sub(records.records.len().min(SHOWN) as u64);
    if more > 0 {
        words.push_str(&format!("\n  and {more} more"));
    }
    words
}

fn entry_words(entry: &Entry) -> String {
    let mut words = output::clean(&entry.address);
    if let Some(reason) = &entry.reason {
        words.push_str(&format!(": {}", output::clean(reason)));
    }
    for part in &entry.differences {
        let value = |value: &Value| match (value.get("id"), value.get("graphs")) {
            (Some(_), None) => output::value(value),
            _ => output::clean(&value.to_string()),
        };
        words.push_str(&format!("\n    {}: {} and {}", part.concern, value(&part.source), value(&part.target)));
    }
    words
}
