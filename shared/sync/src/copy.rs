//! Copies records from one place to another.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, future::BoxFuture, stream};
use nameservice_model::{
    Address, AddressGlob, Backend, ChangedPart, ConcernKind, Error as BackendError, Record, chain,
};

use crate::{
    Found, Result, Source, SyncError,
    bring::{self, Brought},
    compare::{compare, lookup},
    history::has_passed,
    judge::{Difference, Verdict, judge, worst},
    report::{Records, Report},
};

/// How many records are written at a time.
const TOGETHER: usize = 16;
/// How often a record is judged again if others write it meanwhile.
const ATTEMPTS: u32 = 8;
/// The longest chain of dependencies between records.
const MAX_DEPTH: usize = 64;
/// A target that rejects this many records and takes none would reject them all.
const MAX_REJECTED: u64 = 20;

/// How to copy.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Write nothing, and report what would be written.
    pub dry_run: bool,
    /// For records whose addresses match one of these, also replace what is newer at the target or differs.
    pub force: Vec<AddressGlob>,
    /// Set a head or an index back if the source was set back from exactly that value. A reset compares nothing, so no
    /// other writer may write the same records at the target.
    pub resets: bool,
}

impl CopyOptions {
    /// Writes nothing, and reports what would be written.
    #[must_use]
    pub const fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Sets a head or an index back if the source was set back from exactly that value.
    #[must_use]
    pub const fn resets(mut self, resets: bool) -> Self {
        self.resets = resets;
        self
    }

    /// For records whose addresses match one of these, also replaces what is newer at the target or differs.
    #[must_use]
    pub fn force(mut self, force: Vec<AddressGlob>) -> Self {
        self.force = force;
        self
    }
}

/// The progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// How many records were read.
    pub read: u64,
    /// How many were written.
    pub written: u64,
    /// Whether the copy is done, and both sides are being compared.
    pub is_comparing: bool,
}

/// Receives the progress of a copy after each page.
pub type CopyObserver<'a> = &'a (dyn Fn(CopyProgress) + Send + Sync);

/// Copies what is missing or older at the target: branches after their sources, graph sources after their dependencies.
/// A copy can be interrupted at any point and repeated.
pub async fn copy(
    source: &dyn Source,
    target: &Arc<dyn Backend>,
    options: &CopyOptions,
    observe: CopyObserver<'_>,
) -> Result<Report> {
    let copier = Copier::new(source, target, options);
    let mut reading = source.read().await?;
    let position = reading.position();
    let mut read = 0;
    loop {
        let found = reading.next().await?;
        if found.is_empty() {
            break;
        }
        read += found.len() as u64;
        copier.page(found).await?;
        observe(CopyProgress { read, written: copier.written.load(Ordering::Relaxed), is_comparing: false });
    }
    drop(reading);
    let mut report = copier.into_report();
    report.position = position;
    report.kept_addresses = source.kept_addresses();
    if source.can_be_read_again() && !options.dry_run {
        observe(CopyProgress { read, written: report.copied.count, is_comparing: true });
        let compared = compare(source, target, None, false).await?;
        report.already_there = compared.same.saturating_sub(report.copied.count);
        report.newer_there = compared.newer_there;
        report.diverged = compared.diverged;
        report.unreadable = compared.unreadable;
        report.behind = compared.older_there;
        for missing in compared.missing_there.records {
            report.behind.add(missing);
        }
    }
    Ok(report)
}

/// Copies records one at a time or a page at a time.
pub(crate) struct Copier<'a> {
    source: &'a dyn Source,
    target: &'a Arc<dyn Backend>,
    options: &'a CopyOptions,
    outcomes: Mutex<Report>,
    written: AtomicU64,
    rejected: AtomicU64,
}

/// The outcome for a record.
enum Outcome {
    Same,
    /// Written, except for these parts.
    Written(Vec<Difference>),
    Left(Vec<Difference>),
    Rejected(String),
    /// Others wrote it at every attempt.
    Contended,
}

impl<'a> Copier<'a> {
    pub(crate) fn new(source: &'a dyn Source, target: &'a Arc<dyn Backend>, options: &'a CopyOptions) -> Self {
        let outcomes = Mutex::new(Report { dry_run: options.dry_run, ..Report::default() });
        Self { source, target, options, outcomes, written: AtomicU64::new(0), rejected: AtomicU64::new(0) }
    }

    pub(crate) fn into_report(self) -> Report {
        self.outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, note: impl FnOnce(&mut Report)) {
        note(&mut self.outcomes.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) async fn page(&self, found: Vec<Found>) -> Result<()> {
        let mut records = Vec::with_capacity(found.len());
        for found in found {
            match found {
                Found::Record(record) => records.push(*record),
                Found::Unreadable { place, reason } => self.note(|report| report.unreadable.add_reason(&place, reason)),
            }
        }
        let mut there = lookup(&**self.target, records.iter().map(|record| record.address.clone()).collect()).await?;
        let work: Vec<_> = records.into_iter().map(|record| (there.remove(&record.address), record)).collect();
        let mut done = stream::iter(work)
            .map(|(there, record)| async move { self.record(&record, Some(there), 0).await })
            .buffer_unordered(TOGETHER);
        while let Some(done) = done.next().await {
            done?;
        }
        Ok(())
    }

    /// Copies one record, and reports the outcome.
    async fn record(&self, record: &Record, there: Option<Option<Record>>, depth: usize) -> Result<()> {
        let outcome = self.bring(record, there, depth).await?;
        let address = &record.address;
        match outcome {
            Outcome::Same => self.note(|report| report.already_there += 1),
            Outcome::Written(left) => {
                self.written.fetch_add(1, Ordering::Relaxed);
                self.note(|report| report.copied.add_address(address));
                self.left(address, &left);
            }
            Outcome::Left(differences) => self.left(address, &differences),
            Outcome::Contended => self.note(|report| {
                report.behind.add_reason(address, "other writers changed it at every attempt: copy it again");
            }),
            Outcome::Rejected(reason) => {
                self.note(|report| report.rejected.add_reason(address, reason.clone()));
                let count = self.rejected.fetch_add(1, Ordering::Relaxed) + 1;
                if count >= MAX_REJECTED && self.written.load(Ordering::Relaxed) == 0 {
                    return Err(SyncError::Rejected { count, reason });
                }
            }
        }
        Ok(())
    }

    fn left(&self, address: &Address, differences: &[Difference]) {
        self.note(|report| {
            let records: &mut Records = match worst(differences) {
                None => return,
                Some(Verdict::Diverged) => &mut report.diverged,
                Some(_) => &mut report.newer_there,
            };
            records.add_differences(address, differences);
        });
    }

    async fn bring(&self, record: &Record, there: Option<Option<Record>>, depth: usize) -> Result<Outcome> {
        let mut known = there;
        for attempt in 0..ATTEMPTS {
            let there = match known.take() {
                Some(there) => there,
                None => self.target.lookup(&record.address).await.map_err(SyncError::Target)?,
            };
            let Some(there) = there else {
                if self.options.dry_run {
                    return Ok(Outcome::Written(Vec::new()));
                }
                self.bring_parents(record, depth).await?;
                match bring::create(&**self.target, record).await {
                    Ok(Brought::Done) => return Ok(Outcome::Written(Vec::new())),
                    Ok(Brought::Rejected(reason)) => return Ok(Outcome::Rejected(reason)),
                    Ok(Brought::Needs(missing)) if attempt > 0 => return Ok(needs(&missing)),
                    Ok(Brought::Needs(_) | Brought::Again) => {}
                    Err(error) => {
                        if let Some(outcome) = self.failed(error, attempt).await? {
                            return Ok(outcome);
                        }
                    }
                }
                continue;
            };
            let mut differences = judge(record, &there);
            if differences.is_empty() {
                return Ok(Outcome::Same);
            }
            self.consult_history(record, &there, &mut differences).await;
            let is_forced = self.options.force.iter().any(|glob| glob.matches(&record.address));
            let takes = move |difference: &Difference| {
                difference.part != ChangedPart::Meta && (is_forced || difference.verdict == Verdict::Older)
            };
            if !differences.iter().any(takes) {
                return Ok(Outcome::Left(differences));
            }
            let left = || differences.iter().filter(|difference| !takes(difference)).cloned().collect();
            if self.options.dry_run {
                return Ok(Outcome::Written(left()));
            }
            match bring::update(&**self.target, record, there, &differences, takes).await {
                Ok(Brought::Done) => return Ok(Outcome::Written(left())),
                Ok(Brought::Rejected(reason)) => return Ok(Outcome::Rejected(reason)),
                Ok(Brought::Needs(missing)) if attempt > 0 => return Ok(needs(&missing)),
                Ok(Brought::Needs(_)) => self.bring_parents(record, depth).await?,
                Ok(Brought::Again) => {}
                Err(error) => {
                    if let Some(outcome) = self.failed(error, attempt).await? {
                        return Ok(outcome);
                    }
                }
            }
        }
        Ok(Outcome::Contended)
    }

    /// Decides what an error of a write means: try again, leave this record, or give up.
    async fn failed(&self, error: BackendError, attempt: u32) -> Result<Option<Outcome>> {
        match error {
            // The stored record shows whether the write was applied.
            BackendError::OutcomeUnknown { .. } | BackendError::Unavailable { .. } if attempt + 1 < ATTEMPTS => {
                tokio::time::sleep(Duration::from_millis(50 << attempt.min(6))).await;
                Ok(None)
            }
            error @ (BackendError::OutcomeUnknown { .. } | BackendError::Unavailable { .. }) => {
                Err(SyncError::Target(error))
            }
            error => Ok(Some(Outcome::Rejected(chain(&error)))),
        }
    }

    /// Treats a value that the source had earlier as older, whatever its watermark.
    async fn consult_history(&self, record: &Record, there: &Record, differences: &mut [Difference]) {
        let Some(feed) = self.source.feed() else { return };
        for difference in differences.iter_mut().filter(|difference| difference.verdict != Verdict::Older) {
            let ChangedPart::Concern(concern @ (ConcernKind::Head | ConcernKind::Index)) = difference.part else {
                continue;
            };
            // An index at the same `t` can be replaced by a compare-and-set like any other; the rest needs a reset.
            let is_pushed = concern == ConcernKind::Index && record.index.v == there.index.v;
            if !is_pushed && !self.options.resets {
                continue;
            }
            match has_passed(feed, &record.address, concern, there).await {
                Ok(true) => difference.verdict = Verdict::Older,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, address = %record.address, "the history cannot be read"),
            }
        }
    }

    /// Copies the source of a branch and the dependencies of a graph source if the target lacks them.
    async fn bring_parents(&self, record: &Record, depth: usize) -> Result<()> {
        let branched = record.source_branch.as_deref().and_then(|branch| record.address.with_branch(branch).ok());
        let dependencies = record.dependencies.iter().filter_map(|text| Address::parse(text).ok());
        let needed: Vec<Address> =
            branched.into_iter().chain(dependencies).filter(|needed| *needed != record.address).collect();
        if needed.is_empty() || depth >= MAX_DEPTH {
            return Ok(());
        }
        let there = lookup(&**self.target, needed.clone()).await?;
        let missing: Vec<Address> = needed.into_iter().filter(|address| !there.contains_key(address)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        for parent in self.source.lookup_all(&missing).await?.unwrap_or_default() {
            self.parent(parent, depth + 1).await?;
        }
        Ok(())
    }

    /// Copies a parent. The future is boxed because it is recursive: parents have parents.
    fn parent(&self, parent: Record, depth: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // Other outcomes are reported when it is the parent's own turn.
            if let Outcome::Written(_) = self.bring(&parent, None, depth).await? {
                self.written.fetch_add(1, Ordering::Relaxed);
                self.note(|report| report.copied.add_address(&parent.address));
            }
            Ok(())
        })
    }
}

fn needs(missing: &[Address]) -> Outcome {
    let missing: Vec<_> = missing.iter().map(Address::as_str).collect();
    Outcome::Rejected(format!("it needs {}, which is missing or retracted there", missing.join(", ")))
}
