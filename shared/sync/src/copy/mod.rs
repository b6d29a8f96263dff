//! Copies records from one place to another.

mod copier;

use std::sync::{Arc, atomic::Ordering};

use nameservice_model::{AddressGlob, Backend};

use crate::{Result, Source, compare::compare_except, report::Report};

pub(crate) use copier::Copier;

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
    /// Also write ids that Fluree's engine cannot read, and names under which it would create no ledger, to a place that is shared
    /// with Fluree.
    pub foreign: bool,
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

    /// Also writes ids that Fluree's engine cannot read, and names under which it would create no ledger, to a place that is shared
    /// with Fluree.
    #[must_use]
    pub const fn foreign(mut self, foreign: bool) -> Self {
        self.foreign = foreign;
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
    let mut copier = Copier::new(source, target, options);
    copier.gives_up = true;
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
    copier.rest().await?;
    let (mut report, rejected) = copier.into_report();
    report.position = position;
    report.kept_addresses = source.kept_addresses();
    if source.can_be_read_again() && !options.dry_run {
        observe(CopyProgress { read, written: report.copied.count, is_comparing: true });
        // What was rejected has its reason: that it is behind would say to copy it again.
        let compared = compare_except(source, target, &rejected).await?;
        report.newer_there = compared.newer_there;
        report.diverged = compared.diverged;
        report.unknown = compared.unknown;
        report.unreadable = compared.unreadable;
        report.behind = compared.older_there;
        report.behind.append(compared.missing_there);
    }
    Ok(report)
}
