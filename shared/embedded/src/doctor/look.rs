//! Finds what is wrong with a log, in one read transaction.

use std::collections::{BTreeMap, HashMap};

use nameservice_model::{Address, Change, ChangeKind, ChangedPart, Finding, Fix, Observer, Progress, Severity};
use rusqlite::{Connection, Row};

use crate::{
    log::{Mark, identity_of, position_of, rows},
    state::{Memory, Record},
};

/// How many lines of SQLite's own report are shown.
const LINES: u32 = 20;
/// How many rows are read between two progress reports.
const OBSERVED: u64 = 1024;
pub(super) const RESTORE: &str = "stop the service and restore a backup";
/// The mend of what may be wrong only because other records are.
const BESIDE_DAMAGE: &str =
    "nothing yet: records that are damaged or missing may explain it. Mend the other findings first";

/// What was examined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Examined {
    /// Records.
    pub records: u64,
    /// Changes.
    pub changes: u64,
    /// The position of the last change.
    pub position: u64,
}

/// A finding, and its repair if there is a safe one.
pub(super) struct Problem {
    pub(super) finding: Finding,
    pub(super) repair: Option<Repair>,
}

pub(super) enum Repair {
    /// Build the index of the changes again.
    Reindex,
    /// Remove the changes up to this position: readers that have not read them begin again with a snapshot.
    DropChangesUpTo(u64),
    /// Remove what is remembered of an address.
    Forget(String),
    /// Store the record with its counts corrected.
    Put(Box<Record>),
}

/// Counts the rows that were read, for progress reports.
struct Rows<'a> {
    observe: Observer<'a>,
    read: u64,
    total: Option<u64>,
}

impl<'a> Rows<'a> {
    fn of(connection: &Connection, observe: Observer<'a>) -> Self {
        let count = "SELECT (SELECT count(*) FROM log) + (SELECT count(*) FROM tail) + (SELECT count(*) FROM records)";
        // A file that cannot be counted is examined all the same.
        Self { observe, read: 0, total: connection.query_row(count, [], |row| row.get(0)).ok() }
    }

    fn one_more(&mut self) {
        self.read += 1;
        if self.read.is_multiple_of(OBSERVED) {
            self.show();
        }
    }

    fn show(&self) {
        (self.observe)(Progress { done: self.read, total: self.total });
    }
}

/// The watermark of the last change of each part; `None` if that change deleted it.
type Last = HashMap<(String, ChangedPart), Option<i64>>;

/// `durable`: the last durable change, as the file beside the log names it.
pub(super) fn look(
    connection: &Connection,
    durable: Option<&Mark>,
    observe: Observer<'_>,
) -> rusqlite::Result<(Examined, Vec<Problem>)> {
    let mut examined = Examined::default();
    let mut problems = Vec::new();
    look_at_file(connection, "integrity_check", &mut problems)?;
    let mut read = Rows::of(connection, observe);
    let (identity, checked_after) = identity_of(connection)?.unzip();
    let checked_after = checked_after.unwrap_or(u64::MAX);
    let (oldest, last) = look_at_changes(connection, checked_after, &mut read, &mut examined, &mut problems)?;
    // Without its last change a log would have lost its position.
    for problem in &mut problems {
        if matches!(problem.repair, Some(Repair::DropChangesUpTo(position)) if position >= examined.position) {
            problem.repair = None;
            (problem.finding.fix, problem.finding.mend) = (Fix::ByHand, RESTORE.to_owned());
        }
    }
    if identity.is_some() {
        look_at_memories(connection, &mut problems)?;
    }
    let records = look_at_records(connection, checked_after > 0, &mut read, &mut examined, &mut problems)?;
    let identity = identity.unwrap_or_default();
    if let Some(durable) = durable
        && let Some(missing) = durable.missing_in(connection, &identity, position_of(connection, examined.position)?)?
    {
        let mend = "put back the files that were beside the log, or restore a backup; to continue with what is left, \
                    remove nameservice.log.durable";
        problems.push(Problem::new(super::ANSWERED_LOST, Severity::Error, missing, mend));
    }
    read.show();
    compare(&records, oldest, &last, &mut problems);
    recount(&records, &mut problems);
    Ok((examined, problems))
}

/// Runs a check of SQLite's own: `integrity_check`, or `quick_check`, which does not compare the index with the changes.
pub(super) fn look_at_file(connection: &Connection, check: &str, problems: &mut Vec<Problem>) -> rusqlite::Result<()> {
    let mut check = connection.prepare(&format!("PRAGMA {check}({LINES})"))?;
    let mut rows = check.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        if line == "ok" {
            continue;
        }
        let what = format!("SQLite's integrity check reports: {line}");
        problems.push(match line.contains("index log_by_address") {
            true => Problem::new("file-index-damaged", Severity::Error, what, "builds the index again")
                .repaired_by(Repair::Reindex),
            false => Problem::new(super::FILE_DAMAGED, Severity::Error, what, RESTORE),
        });
    }
    Ok(())
}

/// Reads all changes in order. Returns the first position after the last gap or unreadable change, and the last watermark of
/// each part since then.
fn look_at_changes(
    connection: &Connection,
    checked_after: u64,
    read: &mut Rows<'_>,
    examined: &mut Examined,
    problems: &mut Vec<Problem>,
) -> rusqlite::Result<(u64, Last)> {
    let (mut last, mut oldest, mut chain) = (Last::new(), 0, Chain::new(checked_after));
    let mut changes = connection.prepare("SELECT position, at, address, body FROM changes ORDER BY position")?;
    let mut rows = changes.query([])?;
    while let Some(row) = rows.next()? {
        let position: u64 = row.get(0)?;
        if !chain.continues_at(position) {
            last.clear();
            oldest = position;
        }
        examined.changes += 1;
        read.one_more();
        match chain.follow(position, row, problems) {
            Some(change) => {
                let watermark = (change.kind != ChangeKind::Purged).then_some(change.watermark);
                last.insert((change.address.to_string(), change.part), watermark);
            }
            None => {
                // What it has changed is not known.
                last.clear();
                oldest = position + 1;
            }
        }
    }
    examined.position = chain.position;
    Ok((oldest, last))
}

/// What is known of the changes before the next one.
pub(super) struct Chain {
    checked_after: u64,
    /// The position of the last one; 0 before the first.
    pub(super) position: u64,
    /// The checksum of all changes up to it, if it has one.
    sum: Option<u32>,
}

impl Chain {
    /// Returns what is known before the first change. Up to `checked_after`, changes have no checksums.
    pub(super) const fn new(checked_after: u64) -> Self {
        Self { checked_after, position: 0, sum: None }
    }

    /// Returns whether a change at this position directly follows the last one.
    const fn continues_at(&self, position: u64) -> bool {
        self.position > 0 && position == self.position + 1
    }

    /// Passes over a change that cannot be read.
    pub(super) const fn skip(&mut self, position: u64) {
        self.position = position;
        self.sum = None;
    }

    /// Examines the next change. Returns it if it can be read.
    pub(super) fn follow(&mut self, position: u64, row: &Row<'_>, problems: &mut Vec<Problem>) -> Option<Change> {
        const MEND: &str =
            "removes the changes up to there: readers that have not read them begin again with a snapshot";
        let unreadable = |what: String| {
            let unreadable = Problem::new(super::CHANGE_UNREADABLE, Severity::Error, what, MEND);
            unreadable.repaired_by(Repair::DropChangesUpTo(position))
        };
        let before = self.sum.filter(|_| self.continues_at(position));
        if self.position > 0 && !self.continues_at(position) {
            let what = format!("no changes between {} and {position}", self.position);
            let gap = Problem::new(super::LOG_GAP, Severity::Error, what, MEND);
            problems.push(gap.repaired_by(Repair::DropChangesUpTo(self.position)));
        }
        self.skip(position);
        let columns = || Ok::<_, rusqlite::Error>((row.get(1)?, row.get_ref(2)?.as_str()?, row.get_ref(3)?.as_blob()?));
        let (at, address, body) = match columns() {
            Ok(columns) => columns,
            // Damage has made a column something else, as text that is not UTF-8.
            Err(error) => {
                problems.push(unreadable(format!("change {position} cannot be read: {error}")));
                return None;
            }
        };
        let checked = rows::checked_change(position, at, address, body);
        let sums = rows::sums_of(body).filter(|_| position > self.checked_after);
        let unchained = match (before, sums) {
            (Some(before), Some((own, chain))) => rows::chained(before, own) != chain,
            _ => false,
        };
        self.sum = sums.map(|(_, chain)| chain);
        let unsealed = position > self.checked_after && matches!(checked, Ok((_, None)));
        match checked {
            Ok((change, _)) => {
                if unchained || unsealed {
                    let what = match unsealed {
                        true => format!("change {position} has no checksum"),
                        false => {
                            format!("change {position} does not match the checksum chain of the change before it")
                        }
                    };
                    problems.push(unreadable(what).at(address));
                }
                Some(change)
            }
            Err(error) => {
                problems.push(unreadable(error.to_string()).at(address));
                None
            }
        }
    }
}

fn look_at_records(
    connection: &Connection,
    may_be_former: bool,
    read: &mut Rows<'_>,
    examined: &mut Examined,
    problems: &mut Vec<Problem>,
) -> rusqlite::Result<BTreeMap<String, Record>> {
    let mut records = BTreeMap::new();
    let mut select = connection.prepare("SELECT id, body FROM records ORDER BY id")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        examined.records += 1;
        read.one_more();
        let id: u64 = row.get(0)?;
        let Some(record) = look_at_record(id, row, may_be_former, problems) else { continue };
        if id > examined.position {
            let what = format!("record {id} is newer than the last change, {}", examined.position);
            problems.push(Problem::new("position-behind", Severity::Error, what, RESTORE).at(&record.address));
        }
        if let Some(other) = records.insert(record.address.to_string(), record) {
            let what = format!("rows {} and {id} are of one address", other.id);
            problems.push(Problem::new("record-twice", Severity::Error, what, RESTORE).at(&other.address));
        }
    }
    Ok(records)
}

/// Examines the row of a record, its id and its body. Returns the record if it can be read.
pub(super) fn look_at_record(
    id: u64,
    row: &Row<'_>,
    may_be_former: bool,
    problems: &mut Vec<Problem>,
) -> Option<Record> {
    let unreadable = |what: String| Problem::new("record-unreadable", Severity::Error, what, RESTORE);
    let body = match row.get_ref(1).and_then(|body| Ok(body.as_blob()?)) {
        Ok(body) => body,
        Err(error) => {
            problems.push(unreadable(format!("record {id} cannot be read: {error}")));
            return None;
        }
    };
    match rows::checked_record(id, body) {
        Ok((record, is_checked)) if is_checked || may_be_former => Some(record),
        Ok((record, _)) => {
            problems.push(unreadable(format!("record {id} has no checksum")).at(&record.address));
            None
        }
        Err(error) => {
            problems.push(unreadable(error.to_string()));
            None
        }
    }
}

fn look_at_memories(connection: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<()> {
    let mut select = connection.prepare("SELECT address, body FROM memories")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        look_at_memory(&row.get::<_, String>(0)?, row, problems);
    }
    Ok(())
}

/// Examines the row of what is remembered of an address. Returns that if it can be read.
pub(super) fn look_at_memory(address: &str, row: &Row<'_>, problems: &mut Vec<Problem>) -> Option<Memory> {
    const MEND: &str = "forgets it: a request from before the purge of this address, if repeated, is a new one";
    let decoded = match row.get_ref(1).and_then(|body| Ok(body.as_blob()?)) {
        Ok(body) => rows::decode_memory(address, body).map_err(|error| error.to_string()),
        Err(error) => Err(format!("what is remembered of `{address}` cannot be read: {error}")),
    };
    decoded
        .map_err(|what| {
            let unreadable = Problem::new("memory-unreadable", Severity::Error, what, MEND);
            problems.push(unreadable.at(address).repaired_by(Repair::Forget(address.to_owned())));
        })
        .ok()
}

/// Compares the records with the last changes of their parts. A part that last changed before the oldest remaining
/// change does not occur in the changes; a record that was created since does.
fn compare(records: &BTreeMap<String, Record>, oldest: u64, last: &Last, problems: &mut Vec<Problem>) {
    let differs =
        |address: &str, what: String| Problem::new("state-unexplained", Severity::Error, what, RESTORE).at(address);
    for ((address, part), watermark) in last {
        let found = records.get(address).and_then(|record| rows::watermark_of(record, *part));
        if !rows::explains(*part, *watermark, found) {
            let shown =
                |watermark: Option<i64>| watermark.map_or("nothing".to_owned(), |watermark| watermark.to_string());
            let what =
                format!("the last change of {part} leaves {}, the record has {}", shown(*watermark), shown(found));
            problems.push(differs(address, what));
        }
    }
    for record in records.values().filter(|record| record.id >= oldest && oldest > 0) {
        if !last.contains_key(&(record.address.to_string(), ChangedPart::Meta)) {
            problems.push(differs(&record.address, format!("change {} did not create it", record.id)));
        }
    }
}

/// Counts branches and dependents again. A record that is damaged or missing may be one that a count is of, or that another refers
/// to: then no count is corrected, and nothing is said to be absent that only cannot be read.
fn recount(records: &BTreeMap<String, Record>, problems: &mut Vec<Problem>) {
    let is_left = |problem: &Problem| problem.finding.severity == Severity::Error && problem.repair.is_none();
    let are_all = !problems.iter().any(is_left);
    let mend = |mend| if are_all { mend } else { BESIDE_DAMAGE };
    let (mut branches, mut dependents): (HashMap<String, u32>, HashMap<String, u32>) = Default::default();
    for record in records.values() {
        for target in record.dependencies() {
            *dependents.entry(target.to_string()).or_default() += 1;
            if !records.contains_key(&**target) {
                let what = format!("it depends on `{target}`, which does not exist");
                let mend = mend("publish the graph source with dependencies that exist, or create that record");
                problems.push(Problem::new("reference-dangling", Severity::Warning, what, mend).at(&record.address));
            }
        }
        if let Some(parent) = record.parent() {
            *branches.entry(parent.to_string()).or_default() += 1;
            if !records.contains_key(parent.as_str()) {
                let what = format!("its source `{parent}` does not exist");
                let mend = mend("create that ledger, or purge the branch");
                problems.push(Problem::new("branch-orphaned", Severity::Warning, what, mend).at(&record.address));
            }
        }
    }
    let count = |counts: &HashMap<String, u32>, address: &Address| counts.get(address.as_str()).copied().unwrap_or(0);
    for record in records.values() {
        let address = record.model_address();
        let counted = (count(&branches, &address), count(&dependents, &address));
        if counted != (record.branches, record.dependents) {
            let what = format!(
                "it counts {} branches and {} dependents, and has {} and {}",
                record.branches, record.dependents, counted.0, counted.1
            );
            let mut corrected = record.clone();
            (corrected.branches, corrected.dependents) = counted;
            let mend = mend("sets the counts to match the records");
            let wrong = Problem::new(super::COUNT_WRONG, Severity::Error, what, mend).at(&record.address);
            problems.push(if are_all { wrong.repaired_by(Repair::Put(Box::new(corrected))) } else { wrong });
        }
    }
}
