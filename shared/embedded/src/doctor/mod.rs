//! Examines a log: the file itself, the changes, and whether counts match the records.
//!
//! [`examine`] takes a directory that no process uses, and optionally repairs what can be repaired safely.
//! [`Embedded::examine`] examines one that is in use, and [`Embedded::scrub`] compares it with memory.

mod look;
mod scrub;

use std::path::Path;

use nameservice_model::{Finding, Fix, Observer, Result, Severity};
use rusqlite::{Connection, OpenFlags};

use self::look::{Problem, RESTORE, Repair, look, look_at_file};
pub use self::{look::Examined, scrub::Scrubbed};
use crate::{
    Embedded, OpenError,
    directory::Directory,
    feed::blocking,
    log::{Mark, Readers, connect, rows, torn_sector_safe, upstream_of},
};

const FILE_DAMAGED: &str = "file-damaged";
const LOG_GAP: &str = "log-gap";
const CHANGE_UNREADABLE: &str = "change-unreadable";
const ANSWERED_LOST: &str = "answered-lost";
const STATE_DIFFERS: &str = "state-differs";
/// The only error whose rows are those that were written.
const COUNT_WRONG: &str = "count-wrong";
/// What is found in replicas that are not damaged: they begin with a snapshot, whose records have no changes, and remove
/// changes by the times of their upstream.
const OF_REPLICAS: [&str; 3] = [LOG_GAP, "position-behind", "state-unexplained"];

/// Every code of a finding, and what it means.
pub const CODES: &[(&str, &str)] = &[
    (FILE_DAMAGED, "SQLite finds the file inconsistent"),
    ("file-index-damaged", "the index of the changes by address does not agree with the changes"),
    (LOG_GAP, "positions are missing between two changes"),
    (CHANGE_UNREADABLE, "a change cannot be read, or its checksum is wrong"),
    ("record-unreadable", "a record cannot be read, or its checksum is wrong"),
    ("memory-unreadable", "what is remembered of an address cannot be read, or its checksum is wrong"),
    (ANSWERED_LOST, "the log does not hold the last change that was answered"),
    ("record-twice", "two rows are of one address"),
    ("position-behind", "a record is newer than the last change"),
    ("state-unexplained", "the last change of a concern has another watermark than the record"),
    (STATE_DIFFERS, "a row is missing, or is not what the running service holds"),
    (COUNT_WRONG, "a count of branches or dependents is not what the records say"),
    ("reference-dangling", "a graph source depends on a record that does not exist"),
    ("branch-orphaned", "the source of a branch does not exist"),
];

/// Examines the log of a directory that no process uses, passes what it finds to `found`, and with `fix` repairs what
/// can be repaired safely.
///
/// Repairs set counts to what the records say if all of them can be read, rebuild the index by address, and remove the changes up to a gap or an
/// unreadable change, so that readers of the feed begin again with a snapshot; the last change is never removed. What is
/// remembered of an address is forgotten if it cannot be read. Everything else is left to the operator:
/// records are never removed or invented.
pub fn examine(directory: impl AsRef<Path>, fix: bool, found: &mut dyn FnMut(Finding)) -> Result<Examined, OpenError> {
    examine_observed(directory, fix, found, &|_| {})
}

/// Examines a directory, and passes the number of changes and records read to `observe`. SQLite's own check of the file comes
/// first, and does not report progress.
pub fn examine_observed(
    directory: impl AsRef<Path>,
    fix: bool,
    found: &mut dyn FnMut(Finding),
    observe: Observer<'_>,
) -> Result<Examined, OpenError> {
    let directory = Directory::existing(directory.as_ref())?;
    let path = directory.log();
    let failed = |source| OpenError::Sqlite { path: path.clone(), source };
    // Without a repair nothing is written, not even a checkpoint: what the write-ahead file holds stays there.
    let connection = match fix {
        true => connect(&torn_sector_safe(&path), OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI),
        false => connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY),
    };
    let connection = connection.map_err(failed)?;
    if let Some(upstream) = upstream_of(&connection).map_err(failed)? {
        return Err(OpenError::Replica { path: path.clone(), upstream });
    }
    let (examined, problems) = look(&connection, Mark::beside(&path).as_ref(), observe).map_err(failed)?;
    // A repair would overwrite what is still there of a write-ahead file that does not fit.
    let has_lost = problems.iter().any(|problem| problem.finding.code == ANSWERED_LOST);
    for mut problem in problems {
        if fix && let Some(repair) = &problem.repair {
            problem.finding.fix = match has_lost {
                true => Fix::Failed("nothing is repaired while changes that were answered are missing".to_owned()),
                false => match apply(&connection, repair) {
                    Ok(()) => Fix::Done,
                    Err(error) => Fix::Failed(error.to_string()),
                },
            };
        }
        found(problem.finding);
    }
    if fix && !has_lost {
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(failed)?;
    }
    Ok(examined)
}

impl Embedded {
    /// Examines the log while it is in use, as it is at one moment. Repairs nothing: a repair needs exclusive use of
    /// the directory. A nameservice in memory has no file to examine.
    pub async fn examine(&self) -> Result<(Examined, Vec<Finding>)> {
        let Some(readers) = self.readers() else { return Ok((Examined::default(), Vec::new())) };
        blocking(move || examine_with(&readers)).await
    }
}

fn examine_with(readers: &Readers) -> Result<(Examined, Vec<Finding>)> {
    // Before the log, which only grows: then it holds at least that.
    let durable = Mark::beside(readers.path());
    readers.read(|connection| {
        let transaction = connection.unchecked_transaction()?;
        let (examined, problems) = look(&transaction, durable.as_ref(), &|_| {})?;
        Ok((examined, problems.into_iter().map(|problem| problem.finding).collect()))
    })
}

/// Returns the findings that mean that the content of a log is damaged, as it is at one moment.
pub(crate) fn damage_of(connection: &Connection) -> rusqlite::Result<Vec<Finding>> {
    let transaction = connection.unchecked_transaction()?;
    let is_replica = upstream_of(&transaction)?.is_some();
    let (_, problems) = look(&transaction, None, &|_| {})?;
    let findings = problems.into_iter().map(|problem| problem.finding);
    Ok(findings
        .filter(|finding| finding.severity == Severity::Error && finding.code != COUNT_WRONG)
        .filter(|finding| !is_replica || !OF_REPLICAS.contains(&finding.code))
        .collect())
}

/// Returns what SQLite finds damaged in the pages of a file. A copy has pages of its own: it does not show what is missing.
pub(crate) fn damage_of_pages(connection: &Connection) -> rusqlite::Result<Vec<Finding>> {
    let mut problems = Vec::new();
    look_at_file(connection, "quick_check", &mut problems)?;
    Ok(problems.into_iter().map(|problem| problem.finding).collect())
}

/// Returns the finding for a file that SQLite cannot read.
pub(crate) fn unreadable_file(error: &rusqlite::Error) -> Finding {
    Problem::new(FILE_DAMAGED, Severity::Error, format!("SQLite cannot read it: {error}"), RESTORE).finding
}

/// Applies one repair, all of it or nothing.
fn apply(connection: &Connection, repair: &Repair) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let transaction = connection.unchecked_transaction()?;
    match repair {
        Repair::Reindex => {
            transaction.execute_batch("REINDEX log_by_address")?;
        }
        Repair::DropChangesUpTo(position) => {
            for table in ["log", "tail"] {
                transaction.execute(&format!("DELETE FROM {table} WHERE position <= ?1"), [position])?;
            }
        }
        Repair::Forget(address) => {
            transaction.execute("DELETE FROM memories WHERE address = ?1", [address])?;
        }
        Repair::Put(record) => {
            let body = rows::encode_record(record)?;
            transaction.execute("UPDATE records SET body = ?2 WHERE id = ?1", rusqlite::params![record.id, body])?;
        }
    }
    transaction.commit()?;
    Ok(())
}

impl Problem {
    fn new(code: &'static str, severity: Severity, what: String, mend: &str) -> Self {
        Self { finding: Finding::new(code, severity, what, mend), repair: None }
    }

    fn at(mut self, address: &str) -> Self {
        self.finding.address = Some(address.to_owned());
        self
    }

    fn repaired_by(mut self, repair: Repair) -> Self {
        self.finding.fix = Fix::Possible;
        self.repair = Some(repair);
        self
    }
}
