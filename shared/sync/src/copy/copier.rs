//! Copies records a page at a time: what needs what, and what the target has.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use nameservice_model::{Address, Backend, ChangedPart, ConcernKind, Error as BackendError, Record, RecordKind, chain};

use super::CopyOptions;
use crate::{
    Found, Result, Source, SyncError,
    bring::{self, Brought, REDACTED_CONFIG, Target},
    compare::{fingerprint, lookup},
    history::has_passed,
    judge::{Difference, Verdict, has_redacted_config, judge, worst},
    order::{Order, Work, needed},
    report::{Records, Report},
};

/// How many records are written at a time.
const TOGETHER: usize = 16;
/// How often a record is judged again if others write it meanwhile.
const ATTEMPTS: u32 = 8;
/// How many addresses are looked up in one request.
const LOOKED_UP: usize = 500;
/// A target that fails to take this many records, and has none of the source's, would take none at all.
const MAX_REJECTED: u64 = 20;
/// What to do about a record that Fluree could not use: [`CopyOptions::foreign`], by the name that the command line has for it.
const TO_ALLOW: &str = "to copy it all the same, allow it: `--allow-foreign`";
/// How many records of a dump may wait for others that come after them.
const MAX_WAITING: usize = 500;

/// Copies records a page at a time.
pub(crate) struct Copier<'a> {
    source: &'a dyn Source,
    target: &'a Arc<dyn Backend>,
    options: &'a CopyOptions,
    outcomes: Mutex<Report>,
    /// Records that were written before their turn because others need them, records that could not be written, and
    /// records that are reported as rejected: 16 bytes each.
    early: Mutex<HashSet<[u8; 16]>>,
    failed: Mutex<HashSet<[u8; 16]>>,
    rejected: Mutex<HashSet<[u8; 16]>>,
    /// Records of a source that cannot be searched, which need others that have not come yet.
    waiting: Mutex<Vec<Record>>,
    pub(super) written: AtomicU64,
    /// How many records the target has failed to take, and whether it has or takes any.
    errors: AtomicU64,
    has_some: AtomicBool,
    /// Whether it ends with an error if the target takes nothing.
    pub(super) gives_up: bool,
}

/// The outcome for a record.
enum Outcome {
    Same,
    /// Everything is the same or was written, except for these parts.
    Left(Vec<Difference>),
    /// Like `Left`, but the protection was not copied either, for this reason.
    Unprotected(String, Vec<Difference>),
    Rejected(String),
    /// The target failed to take it.
    Failed(String),
    /// Others wrote it at every attempt.
    Contended,
}

impl<'a> Copier<'a> {
    pub(crate) fn new(source: &'a dyn Source, target: &'a Arc<dyn Backend>, options: &'a CopyOptions) -> Self {
        let outcomes = Mutex::new(Report { dry_run: options.dry_run, ..Report::default() });
        Self {
            source,
            target,
            options,
            outcomes,
            early: Mutex::default(),
            failed: Mutex::default(),
            rejected: Mutex::default(),
            waiting: Mutex::default(),
            written: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            has_some: AtomicBool::new(false),
            gives_up: false,
        }
    }

    /// Returns the report, and the hashes of the addresses that it has as rejected.
    pub(crate) fn into_report(self) -> (Report, HashSet<[u8; 16]>) {
        (into_inner(self.outcomes), into_inner(self.rejected))
    }

    fn note(&self, note: impl FnOnce(&mut Report)) {
        note(&mut locked(&self.outcomes));
    }

    pub(crate) async fn page(&self, found: Vec<Found>) -> Result<()> {
        let mut records = std::mem::take(&mut *locked(&self.waiting));
        self.note(|report| records.extend(Found::records(found, &mut report.unreadable)));
        self.write(records, false).await
    }

    /// Copies the records whose needs never came.
    pub(super) async fn rest(&self) -> Result<()> {
        let records = std::mem::take(&mut *locked(&self.waiting));
        if records.is_empty() { Ok(()) } else { self.write(records, true).await }
    }

    async fn write(&self, records: Vec<Record>, is_last: bool) -> Result<()> {
        let mut at_target = self.look_up(records.iter().map(|record| record.address.clone()).collect()).await?;
        let work = records.into_iter().map(|record| {
            let at_target = at_target.remove(&record.address);
            Work::new(record, at_target, false)
        });
        let mut work: Vec<Work> = work.collect();
        self.add_needed(&mut work, is_last).await?;
        let mut order = Order::of(&work);
        let mut bare = HashSet::new();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < TOGETHER
                && let Some(i) = order.next()
            {
                let (work, is_bare) = (&work[i], bare.contains(&i));
                running.push(async move { (i, self.record(work, is_bare).await) });
            }
            if let Some((i, done)) = running.next().await {
                done?;
                order.done(i);
                continue;
            }
            let cycle = order.cycle();
            if cycle.is_empty() {
                return Ok(());
            }
            // A graph source that was published twice ends at its own `v`.
            let may_be_bare = |i: &usize| {
                !self.options.dry_run && work[*i].at_target.is_none() && work[*i].record.kind == RecordKind::GraphSource
            };
            let first = cycle.iter().copied().filter(may_be_bare).max_by_key(|i| work[*i].record.config.v);
            match first {
                Some(i) if bare.insert(i) && self.create_bare(&work[i].record).await? => order.is_there(i),
                // The target says what is wrong with it.
                first => order.release(first.unwrap_or(cycle[0])),
            }
        }
    }

    /// Creates a graph source of a cycle without its dependencies. Returns whether it is there.
    async fn create_bare(&self, record: &Record) -> Result<bool> {
        for attempt in 0..ATTEMPTS {
            match bring::create_bare(&Target::new(&**self.target).taking_foreign(self.options.foreign), record).await {
                Ok(Brought::Done) => return Ok(true),
                Ok(_) => break,
                Err(error) => {
                    if self.failed(error, attempt).await?.is_some() {
                        break;
                    }
                }
            }
        }
        // Another copy may have created it.
        Ok(self.target.lookup(&record.address).await.map_err(SyncError::Target)?.is_some())
    }

    /// Returns the target's records of these addresses.
    async fn look_up(&self, addresses: Vec<Address>) -> Result<HashMap<Address, Record>> {
        let mut at_target = HashMap::new();
        for addresses in addresses.chunks(LOOKED_UP) {
            at_target.extend(lookup(&**self.target, addresses.to_vec()).await?);
        }
        Ok(at_target)
    }

    /// Adds what the records need and the target lacks. Each record is looked up once, however many need it.
    async fn add_needed(&self, work: &mut Vec<Work>, is_last: bool) -> Result<()> {
        let mut known: HashSet<Address> = work.iter().map(|work| work.record.address.clone()).collect();
        let mut missing = HashSet::new();
        let mut begin = 0;
        while begin < work.len() {
            let mut wanted = Vec::new();
            for needed in work[begin..].iter().flat_map(Work::wants) {
                if !self.has_failed(&needed) && known.insert(needed.clone()) {
                    wanted.push(needed);
                }
            }
            begin = work.len();
            let at_target = self.look_up(wanted.clone()).await?;
            wanted.retain(|needed| !at_target.contains_key(needed));
            for wanted in wanted.chunks(LOOKED_UP) {
                match self.source.lookup_all(wanted).await? {
                    Some(found) => work.extend(found.into_iter().map(|record| Work::new(record, None, true))),
                    None => missing.extend(wanted.iter().cloned()),
                }
            }
        }
        if !missing.is_empty() && !is_last {
            self.wait(work, missing);
        }
        Ok(())
    }

    /// Puts aside the records that need others which a stream has not brought yet.
    fn wait(&self, work: &mut Vec<Work>, mut missing: HashSet<Address>) {
        let mut waiting = locked(&self.waiting);
        loop {
            let before = waiting.len();
            work.retain(|work| {
                let waits = waiting.len() < MAX_WAITING && work.wants().any(|needed| missing.contains(&needed));
                if waits {
                    missing.insert(work.record.address.clone());
                    waiting.push(work.record.clone());
                }
                !waits
            });
            if waiting.len() == before {
                return;
            }
        }
    }

    fn has_failed(&self, address: &Address) -> bool {
        locked(&self.failed).contains(&fingerprint(address))
    }

    /// Copies one record, and reports the outcome.
    async fn record(&self, work: &Work, is_bare: bool) -> Result<()> {
        let Work { record, at_target, is_early } = work;
        let address = &record.address;
        let known = (!is_bare).then_some(at_target.as_ref());
        let target = Target::new(&**self.target).taking_foreign(self.options.foreign);
        let (outcome, is_written) = self.bring(&target, record, known, is_bare).await?;
        let is_written = is_written || target.has_written();
        let print = fingerprint(address);
        match &outcome {
            Outcome::Rejected(_) | Outcome::Failed(_) | Outcome::Contended => drop(locked(&self.failed).insert(print)),
            _ => {
                locked(&self.failed).remove(&print);
                self.has_some.store(true, Ordering::Relaxed);
            }
        }
        // A record is counted as copied once, though it may be written before its turn and again.
        let was_early = match is_early {
            true => is_written && !locked(&self.early).insert(print),
            false => locked(&self.early).remove(&print),
        };
        if is_written {
            self.written.fetch_add(1, Ordering::Relaxed);
        }
        if is_written && !was_early {
            self.note(|report| report.copied.add_address(address));
        }
        match outcome {
            Outcome::Failed(reason) if self.takes_nothing().await? => {
                return Err(SyncError::Rejected { count: MAX_REJECTED, reason });
            }
            // The others are reported when it is the record's own turn.
            _ if *is_early => {}
            Outcome::Same if is_written || was_early => {}
            Outcome::Same => self.note(|report| report.already_there += 1),
            Outcome::Left(left) => self.left(address, &left),
            Outcome::Unprotected(reason, left) => {
                self.rejected(address, reason);
                self.left(address, &left);
            }
            Outcome::Contended => self.note(|report| {
                report.behind.add_reason(address, "other writers changed it at every attempt: copy it again");
            }),
            Outcome::Rejected(reason) | Outcome::Failed(reason) => self.rejected(address, reason),
        }
        Ok(())
    }

    fn rejected(&self, address: &Address, reason: String) {
        locked(&self.rejected).insert(fingerprint(address));
        self.note(|report| report.rejected.add_reason(address, reason));
    }

    /// Counts a record that the target has failed to take. Returns whether it has taken none of the first, and has nothing
    /// of the source.
    async fn takes_nothing(&self) -> Result<bool> {
        let count = self.errors.fetch_add(1, Ordering::Relaxed) + 1;
        let gives_up = self.gives_up && self.source.can_be_read_again() && !self.has_some.load(Ordering::Relaxed);
        if count != MAX_REJECTED || !gives_up {
            return Ok(false);
        }
        let mut reading = self.source.read().await?;
        loop {
            let found = reading.next().await?;
            if found.is_empty() {
                return Ok(true);
            }
            let records = found.iter().filter_map(|found| match found {
                Found::Record(record) => Some(&**record),
                Found::Unreadable { .. } => None,
            });
            let at_target = self.look_up(records.clone().map(|record| record.address.clone()).collect()).await?;
            let is_same = |record: &Record| {
                at_target.get(&record.address).is_some_and(|at_target| judge(record, at_target).is_empty())
            };
            if records.clone().any(is_same) {
                self.has_some.store(true, Ordering::Relaxed);
                return Ok(false);
            }
        }
    }

    fn left(&self, address: &Address, differences: &[Difference]) {
        self.note(|report| {
            let records: &mut Records = match worst(differences) {
                None => return,
                Some(Verdict::Diverged) => &mut report.diverged,
                Some(Verdict::Unknown) => return report.unknown.add_unknown(address, differences),
                Some(Verdict::Older | Verdict::Newer) => &mut report.newer_there,
            };
            records.add_differences(address, differences);
        });
    }

    /// Brings one record. `known` is the target's record, if it was read. Also returns whether the record was written, or
    /// would be, in addition to what the target knows.
    async fn bring(
        &self,
        target: &Target<'_>,
        record: &Record,
        known: Option<Option<&Record>>,
        is_bare: bool,
    ) -> Result<(Outcome, bool)> {
        let mut known = known.map(|at_target| at_target.cloned());
        // A part of a record that was created before it is written with the rest; a write of unknown outcome may have been applied.
        let mut is_written = is_bare;
        for attempt in 0..ATTEMPTS {
            let at_target = match known.take() {
                Some(at_target) => at_target,
                None => self.target.lookup(&record.address).await.map_err(SyncError::Target)?,
            };
            let (brought, left) = match at_target {
                None => {
                    let failed: Vec<Address> = needed(record).filter(|needed| self.has_failed(needed)).collect();
                    match (failed.is_empty(), self.options.dry_run) {
                        (false, _) => return Ok((needs(&failed), is_written)),
                        (true, true) if has_redacted_config(record) => {
                            return Ok((Outcome::Rejected(REDACTED_CONFIG.to_owned()), false));
                        }
                        (true, true) => return Ok((Outcome::Same, true)),
                        (true, false) => (bring::create(target, record).await, Vec::new()),
                    }
                }
                Some(at_target) => {
                    let mut differences = judge(record, &at_target);
                    if differences.is_empty() {
                        return Ok((Outcome::Same, is_written));
                    }
                    self.consult_history(record, &at_target, &mut differences).await;
                    let is_forced = self.options.force.iter().any(|glob| glob.matches(&record.address));
                    let is_hidden = has_redacted_config(record);
                    let takes = move |difference: &Difference| match difference.verdict {
                        _ if difference.is_of_identity() => false,
                        Verdict::Older => true,
                        // What is not known cannot be written, whatever is forced.
                        Verdict::Unknown if is_hidden => false,
                        _ => is_forced || (is_bare && difference.part == ChangedPart::Concern(ConcernKind::Config)),
                    };
                    if !differences.iter().any(takes) {
                        return Ok((Outcome::Left(differences), is_written));
                    }
                    let left = differences.iter().filter(|difference| !takes(difference)).cloned().collect();
                    if self.options.dry_run {
                        return Ok((Outcome::Left(left), true));
                    }
                    (bring::update(target, record, at_target, &differences, takes).await, left)
                }
            };
            let outcome = match brought {
                Ok(Brought::Done) => Outcome::Left(left),
                Ok(Brought::Unprotected(reason)) => Outcome::Unprotected(reason, left),
                Ok(Brought::Rejected(reason)) => Outcome::Rejected(reason),
                Ok(Brought::Needs(missing)) if attempt > 0 => needs(&missing),
                Ok(Brought::Needs(_) | Brought::Again) => continue,
                Err(error) => {
                    is_written |= matches!(error, BackendError::OutcomeUnknown { .. });
                    match self.failed(error, attempt).await? {
                        Some(outcome) => outcome,
                        None => continue,
                    }
                }
            };
            return Ok((outcome, is_written));
        }
        Ok((Outcome::Contended, is_written))
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
            error @ (BackendError::NotFluree { .. } | BackendError::NotFlureeName { .. }) => {
                Ok(Some(Outcome::Failed(format!("{}; {TO_ALLOW}", chain(&error)))))
            }
            error => Ok(Some(Outcome::Failed(chain(&error)))),
        }
    }

    /// Treats a value that the source had earlier as older, whatever its watermark.
    async fn consult_history(&self, record: &Record, at_target: &Record, differences: &mut [Difference]) {
        let Some(feed) = self.source.feed() else { return };
        for difference in differences.iter_mut().filter(|difference| difference.verdict != Verdict::Older) {
            let ChangedPart::Concern(concern @ (ConcernKind::Head | ConcernKind::Index)) = difference.part else {
                continue;
            };
            // An index at the same `t` can be replaced by a compare-and-set like any other; the rest needs a reset.
            let is_pushed = concern == ConcernKind::Index && record.index.v == at_target.index.v;
            if !is_pushed && !self.options.resets {
                continue;
            }
            match has_passed(feed, &record.address, concern, at_target).await {
                Ok(true) => difference.verdict = Verdict::Older,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, address = %record.address, "the history cannot be read"),
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn needs(missing: &[Address]) -> Outcome {
    let missing: Vec<_> = missing.iter().map(Address::as_str).collect();
    Outcome::Rejected(format!("it needs {}, which is missing or retracted there", missing.join(", ")))
}
