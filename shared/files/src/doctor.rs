//! Examines the files, and repairs what can be repaired safely.

use std::collections::{BTreeMap, HashMap, HashSet};

use nameservice_embedded::{Finding, Fix, Severity};
use nameservice_model::{Address, ContentId, FlureeContent, Observer, Progress, Record, RecordKind, Result, chain};

use crate::{
    Files,
    codec::{Main, Stored},
    commit_log::Flaws,
    names,
    scan::Pair,
    storage::{Entry, epoch_ms},
};

/// A younger staging file may be in use.
const STAGE_AGE_MS: i64 = 3_600_000;
/// How many records are read between two reports of the progress.
const OBSERVED: u64 = 64;

/// Every code of a finding about files, and what it means.
pub const CODES: &[(&str, &str)] = &[
    ("file-malformed", "a file cannot be read: Fluree's list of ledgers fails because of it"),
    ("file-misplaced", "a file holds a record whose file is another one"),
    ("file-empty", "a file is empty: Fluree treats it as absent"),
    ("file-former", "a file is in the format of an earlier version: it is read, and never rewritten"),
    ("name-collides", "two names differ only by case: on some file systems they are one file"),
    ("name-unlistable", "Fluree lists the record under another name, or not at all"),
    ("address-unusable", "a record of Fluree's has a name that only the library can read: lists leave it out"),
    ("id-unreadable", "a file names content by something that is not a content id: it is read as absent"),
    ("id-foreign", "a head or an index of a ledger has an id that Fluree's engine cannot read"),
    ("index-orphaned", "an index file has no main file beside it"),
    ("index-ahead", "an index is newer than the head"),
    ("commits-above-head", "lines of Fluree's commit log are above the head"),
    ("commit-not-head", "Fluree's commit log has another commit at the head's `t`"),
    ("commits-superseded", "Fluree's commit log names several commits at one `t`"),
    ("commits-unreadable", "Fluree's commit log cannot be read: Fluree follows the commits themselves"),
    ("stage-left", "a write was interrupted and has left its staging file"),
    ("count-wrong", "the number of branches is not that of the records made from it"),
    ("reference-dangling", "a graph source depends on a record that does not exist"),
    ("branch-orphaned", "the source of a branch does not exist"),
];

/// What was examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Examined {
    /// Records.
    pub records: u64,
    /// Files of all kinds.
    pub files: u64,
}

/// What the doctor keeps of a record.
struct Known {
    kind: RecordKind,
    source_branch: Option<String>,
    branches: i64,
    dependencies: Vec<String>,
}

struct Report<'a> {
    findings: &'a mut (dyn FnMut(Finding) + Send),
}

impl Report<'_> {
    fn add(&mut self, code: &'static str, severity: Severity, address: Option<&Address>, what: String, mend: &str) {
        let mut finding = Finding::new(code, severity, what, mend);
        finding.address = address.map(Address::to_string);
        (self.findings)(finding);
    }
}

impl Files {
    /// Examines all files and passes each finding to `found`. With `fix`, repairs what can be repaired safely: wrong counts
    /// of branches, lines of Fluree's commit logs that contradict their ledgers, and staging files that are no longer in use.
    /// Records are never removed or invented.
    pub async fn examine(&self, fix: bool, found: &mut (dyn FnMut(Finding) + Send)) -> Result<Examined> {
        self.examine_observed(fix, found, &|_| {}).await
    }

    /// Examines the files, and reports to `observe` how many records were read.
    pub async fn examine_observed(
        &self,
        fix: bool,
        found: &mut (dyn FnMut(Finding) + Send),
        observe: Observer<'_>,
    ) -> Result<Examined> {
        let entries = self.inner.storage.list(names::ROOT).await?;
        let mut report = Report { findings: found };
        let mut examined = Examined { files: entries.len() as u64, ..Examined::default() };
        self.examine_entries(&entries, fix, &mut report).await;
        let pairs = self.pairs(names::ROOT).await?;
        let logs: HashSet<&str> =
            entries.iter().map(|entry| &*entry.key).filter(|key| names::is_commits(key)).collect();
        let (mut known, mut read, mut logged) = (BTreeMap::new(), 0, Vec::new());
        let empty = entries.iter().filter(|entry| entry.is_empty && names::is_main(&entry.key));
        let mut unread: Vec<String> = empty.map(|entry| entry.key.clone()).collect();
        let total = Some(pairs.len() as u64);
        self.read_pairs(&pairs, |pair, found| {
            read += 1;
            if u64::is_multiple_of(read, OBSERVED) {
                observe(Progress { done: read, total });
            }
            match found {
                Ok(stored) => {
                    examined.records += 1;
                    self.examine_record(&pair.main.key, &stored, &mut report);
                    let record = stored.portable.record;
                    if record.kind == RecordKind::Ledger && logs.contains(&*names::commits_key(&record.address)) {
                        logged.push(record.address.clone());
                    }
                    known.insert(
                        record.address,
                        Known {
                            kind: record.kind,
                            source_branch: record.source_branch,
                            branches: record.branches,
                            dependencies: record.dependencies,
                        },
                    );
                }
                Err(reason) => {
                    self.unreadable(pair, &reason, &mut report);
                    unread.push(pair.main.key.clone());
                }
            }
        })
        .await?;
        observe(Progress { done: read, total });
        for address in logged {
            self.examine_log(&address, fix, &mut report).await?;
        }
        self.examine_references(&known, &unread, fix, &mut report).await;
        Ok(examined)
    }

    fn unreadable(&self, pair: &Pair, reason: &str, report: &mut Report<'_>) {
        let path = self.inner.storage.describe(&pair.main.key);
        let (code, mend) = match reason.starts_with("it holds") {
            true => ("file-misplaced", "move it to its place, or delete it: it is never found here"),
            false => ("file-malformed", "restore it from a backup, or move it out of the directory"),
        };
        report.add(code, Severity::Error, None, format!("{path}: {reason}"), mend);
    }

    async fn examine_entries(&self, entries: &[Entry], fix: bool, report: &mut Report<'_>) {
        let now = epoch_ms(self.now());
        let keys: HashMap<&str, &Entry> = entries.iter().map(|entry| (&*entry.key, entry)).collect();
        let mut folded = BTreeMap::<String, Vec<&str>>::new();
        for entry in entries {
            let path = || self.inner.storage.describe(&entry.key);
            let is_stage = entry.key.ends_with(".tmp") || entry.key.contains(".commits.jsonl.tmp.");
            if is_stage && now.saturating_sub(entry.modified) >= STAGE_AGE_MS {
                let mut finding = Finding::new(
                    "stage-left",
                    Severity::Warning,
                    format!("{} was left by a write that was interrupted", path()),
                    "delete it",
                );
                finding.fix = match fix {
                    false => Fix::Possible,
                    true => match self.inner.storage.delete(&entry.key).await {
                        Ok(()) => Fix::Done,
                        Err(error) => Fix::Failed(chain(&error)),
                    },
                };
                (report.findings)(finding);
            }
            if entry.is_empty && (names::is_main(&entry.key) || names::is_index(&entry.key)) {
                let what = format!("{} is empty", path());
                report.add("file-empty", Severity::Warning, None, what, "restore it from a backup, or delete it");
            }
            if names::is_index(&entry.key) && !keys.contains_key(&*names::main_of_index(&entry.key)) {
                let what = format!("{} belongs to no record", path());
                let mend = "delete it, unless a writer is just creating its record";
                report.add("index-orphaned", Severity::Warning, None, what, mend);
            }
            if names::is_main(&entry.key) {
                folded.entry(entry.key.to_lowercase()).or_default().push(&entry.key);
            }
        }
        for keys in folded.values().filter(|keys| keys.len() > 1) {
            let what = format!("{} differ only by case", keys.join(", "));
            let mend = "rename one of the records before the directory is moved to another file system";
            report.add("name-collides", Severity::Warning, None, what, mend);
        }
    }

    fn examine_record(&self, key: &str, stored: &Stored, report: &mut Report<'_>) {
        let path = || self.inner.storage.describe(key);
        let record = &stored.portable.record;
        let address = Some(&record.address);
        if let Some(former) = stored.former {
            let what = format!("{} is in {}", path(), former.describe());
            report.add("file-former", Severity::Warning, address, what, "migrate it with `nameservice copy`");
        }
        if !record.address.is_well_formed() {
            let what = format!(
                "{} holds `{}`, which is not a valid address: it can be read through the library, and is not listed",
                path(),
                record.address
            );
            let mend = "no action needed, or create the ledger again under a valid name with Fluree";
            report.add("address-unusable", Severity::Note, address, what, mend);
        }
        if record.address.branch().contains('/') {
            let what = format!("the branch of `{}` contains `/`: Fluree lists it under another name", record.address);
            report.add("name-unlistable", Severity::Note, address, what, "give the branch another name");
        }
        if let Some(head) = record.head.as_ref().filter(|head| record.index.v > head.v) {
            let what = format!("the index is at t {}, the head at t {}", record.index.v, head.v);
            let mend = "if the head was reset, reset the index too: `nameservice reset`";
            report.add("index-ahead", Severity::Warning, address, what, mend);
        }
        for (id, expected) in foreign_ids(record) {
            let what = format!(
                "`{id}` of `{}` is not the id of {}: Fluree fails on the ledger",
                record.address,
                expected.describe()
            );
            let mend = "no action needed, unless Fluree uses the ledger: then reset it to what Fluree has written, \
                        `nameservice reset`";
            // In files this service stores such an id only if an administrator allows it: nothing is left to do.
            report.add("id-foreign", Severity::Note, address, what, mend);
        }
        if let Main::Ledger(main) = &stored.main
            && stored.former.is_none()
        {
            let ids = [&main.commit_cid, &main.default_context_cid, &main.config_cid];
            for id in ids.into_iter().flatten().filter(|id| nameservice_model::ContentId::parse(id).is_err()) {
                let what = format!("{}: `{id}` is not a content id, and counts as absent", path());
                report.add("id-unreadable", Severity::Error, address, what, "write the content id that was meant");
            }
        }
    }

    /// Compares Fluree's commit log of a ledger with its head.
    async fn examine_log(&self, address: &Address, fix: bool, report: &mut Report<'_>) -> Result<()> {
        // The log first: Fluree appends a line after it has moved the head.
        let log = self.commit_log(address).await?;
        let head = self.load(address).await?.and_then(|stored| stored.portable.record.head);
        let (Some(log), Some(head)) = (log, head) else { return Ok(()) };
        let path = self.inner.storage.describe(&names::commits_key(address));
        let Some(log) = log else {
            let what = format!("{path} has a line that cannot be read");
            let mend = "nothing, or delete the file: Fluree does not use it";
            report.add("commits-unreadable", Severity::Note, Some(address), what, mend);
            return Ok(());
        };
        let flaws = Flaws::of(&log, &head);
        if flaws.is_none() {
            return Ok(());
        }
        let Flaws { above, is_not_head, superseded } = flaws;
        let t = head.v;
        let found = [
            (above > 0, "commits-above-head", format!("{path}: {above} lines are above the head at t {t}")),
            (is_not_head, "commit-not-head", format!("{path} has another commit than the head's at t {t}")),
            (superseded > 0, "commits-superseded", format!("{path}: {superseded} lines name several commits at one t")),
        ];
        let outcome = match fix {
            false => Fix::Possible,
            true => match self.mend_log(address).await {
                Ok(()) => Fix::Done,
                Err(error) => Fix::Failed(chain(&error)),
            },
        };
        for (_, code, what) in found.into_iter().filter(|(is_found, ..)| *is_found) {
            let mut finding = Finding::new(code, Severity::Error, what, "remove the lines");
            finding.address = Some(address.to_string());
            finding.fix = outcome.clone();
            (report.findings)(finding);
        }
        Ok(())
    }

    /// Removes the lines of a commit log that contradict the head as it is now.
    async fn mend_log(&self, address: &Address) -> Result<()> {
        let storage = &self.inner.storage;
        let _guard = storage.lock(&[names::main_key(address)], self.inner.timeout).await?;
        match self.load(address).await?.and_then(|stored| stored.portable.record.head) {
            Some(head) => self.clear_commits(address, &head).await,
            None => Ok(()),
        }
    }

    /// `unread`: the files of records that cannot be read. One may be of a branch: then the count of its source is left as it is.
    async fn examine_references(
        &self,
        known: &BTreeMap<Address, Known>,
        unread: &[String],
        fix: bool,
        report: &mut Report<'_>,
    ) {
        let mut counts = BTreeMap::<Address, i64>::new();
        for (address, record) in known {
            if let Some(source) = &record.source_branch {
                let parent = Address::stored(format!("{}:{source}", address.name()));
                match known.contains_key(&parent) {
                    true => *counts.entry(parent).or_default() += i64::from(parent_counts(address, source)),
                    false => {
                        let what = format!("`{address}` was made from `{parent}`, which does not exist");
                        report.add("branch-orphaned", Severity::Warning, Some(address), what, "purge it, or leave it");
                    }
                }
            }
            for target in &record.dependencies {
                let there = Address::parse(target).unwrap_or_else(|_| Address::stored(target.clone()));
                if !known.contains_key(&there) {
                    let what = format!("`{address}` depends on `{target}`, which does not exist");
                    let mend = "create it, or publish the graph source with other dependencies";
                    report.add("reference-dangling", Severity::Warning, Some(address), what, mend);
                }
            }
        }
        for (address, record) in known.iter().filter(|(_, record)| record.kind == RecordKind::Ledger) {
            let actual = counts.get(address).copied().unwrap_or(0);
            if actual == record.branches {
                continue;
            }
            let what = format!("`{address}` counts {} branches, and {actual} were made from it", record.branches);
            let branches = names::branches_prefix(address);
            let unread = unread.iter().find(|key| key.starts_with(&branches));
            let mend = match unread {
                Some(key) => format!("nothing yet: {} may be of a branch", self.inner.storage.describe(key)),
                None => "set the number to that of the records".to_owned(),
            };
            let mut finding = Finding::new("count-wrong", Severity::Error, what, mend);
            finding.address = Some(address.to_string());
            finding.fix = match fix {
                _ if unread.is_some() => Fix::ByHand,
                false => Fix::Possible,
                true => match self.recount(address).await {
                    Ok(()) => Fix::Done,
                    Err(error) => Fix::Failed(chain(&error)),
                },
            };
            (report.findings)(finding);
        }
    }
}

/// Returns the ids of a ledger that Fluree's engine cannot read. Text that is no content id is none for it.
fn foreign_ids(record: &Record) -> Vec<(&ContentId, FlureeContent)> {
    let head = record.head.as_ref().and_then(|head| head.payload.as_ref());
    let index = record.index.payload.as_ref().map(|root| &root.id);
    let ids = [(head, FlureeContent::Commit), (index, FlureeContent::IndexRoot)].into_iter();
    let ids = ids.filter(|_| record.kind == RecordKind::Ledger).filter_map(|(id, expected)| Some((id?, expected)));
    ids.filter(|(id, expected)| id.codec().is_some() && !expected.is_named_by(id)).collect()
}

/// Whether the source counts the record as a branch. A record that names itself as its source is not counted.
fn parent_counts(address: &Address, source: &str) -> bool {
    address.branch() != source
}
