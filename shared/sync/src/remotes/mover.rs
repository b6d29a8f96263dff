//! Moves records one way or the other, each judged by what both sides last had in common.

use std::sync::Arc;

use nameservice_model::{
    Address, Backend, ChangedPart, ConcernKind, Error as BackendError, Observer, Progress, Record, RecordKind, chain,
};

use super::{
    MoveOptions, Moved,
    sync_state::{RecordSyncState, SyncState},
    tracking::{Tracked, Tracking},
};
use crate::{
    BackendSource, Found, Result, Source as _, SyncError,
    bring::{self, Brought, REDACTED_CONFIG, Target},
    compare::lookup,
    history::has_passed,
    judge::{Difference, judge},
    report::{Entry, Records},
};

/// How many records are looked at together.
const PAGE: usize = 200;
/// How often a record is judged again if others write it meanwhile.
const ATTEMPTS: usize = 8;
/// The most rounds of moving records that wait for others.
const ROUNDS: usize = 16;

/// Which way values move.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Way {
    Pull,
    Push,
    Nowhere,
}

/// A run through all records.
pub(super) struct Mover<'a> {
    pub(super) local: &'a Arc<dyn Backend>,
    pub(super) remote: Option<&'a Arc<dyn Backend>>,
    pub(super) tracking: &'a Tracking,
    pub(super) name: &'a str,
    pub(super) options: &'a MoveOptions,
    pub(super) way: Way,
    /// Receives the number of records compared.
    pub(super) observe: Observer<'a>,
}

/// The outcome for one record.
enum Outcome {
    Settled,
    /// It needs these first.
    Waits(Vec<Address>),
}

impl Mover<'_> {
    pub(super) async fn run(&self, prefix: Option<&str>) -> Result<Moved> {
        let mut moved = Moved { dry_run: self.options.dry_run, ..Moved::default() };
        let mut waiting: Vec<(Address, Vec<Address>)> = Vec::new();
        let (mut after, mut compared) = (String::new(), 0);
        loop {
            let page = self.tracking.after(self.name, &after, PAGE)?;
            let Some((last, _)) = page.last() else { break };
            after = last.as_str().to_owned();
            compared += page.len() as u64;
            let locals = lookup(&**self.local, page.iter().map(|(address, _)| address.clone()).collect()).await?;
            for (address, tracked) in page {
                let local = locals.get(&address).cloned();
                if let Outcome::Waits(needed) = self.record(&address, tracked, local, &mut moved).await? {
                    waiting.push((address, needed));
                }
            }
            (self.observe)(Progress { done: compared, total: None });
        }
        self.untracked(prefix, &mut moved, &mut waiting).await?;
        // Records that wait for others are moved after them, such as a branch after its source.
        for _ in 0..ROUNDS {
            let before = waiting.len();
            for (address, _) in std::mem::take(&mut waiting) {
                let local = self.local.lookup(&address).await.map_err(SyncError::Source)?;
                let tracked = self.tracking.get(self.name, &address)?;
                if let Outcome::Waits(needed) = self.record(&address, tracked, local, &mut moved).await? {
                    waiting.push((address, needed));
                }
            }
            if waiting.is_empty() || waiting.len() == before {
                break;
            }
        }
        for (address, needed) in waiting {
            let needed: Vec<_> = needed.iter().map(Address::as_str).collect();
            moved
                .rejected
                .add_reason(&address, format!("it needs {}, which is missing or retracted", needed.join(", ")));
        }
        Ok(moved)
    }

    /// Handles local records of which the tracking knows nothing.
    async fn untracked(
        &self,
        prefix: Option<&str>,
        moved: &mut Moved,
        waiting: &mut Vec<(Address, Vec<Address>)>,
    ) -> Result<()> {
        let source = BackendSource::new(self.local.clone()).with_prefix(prefix.map(str::to_owned));
        let mut reading = source.read().await?;
        loop {
            let found = reading.next().await?;
            if found.is_empty() {
                return Ok(());
            }
            for found in found {
                let Found::Record(record) = found else { continue };
                let tracked = self.tracking.get(self.name, &record.address)?;
                if tracked != Tracked::default() {
                    continue;
                }
                let address = record.address.clone();
                if let Outcome::Waits(needed) = self.record(&address, tracked, Some(*record), moved).await? {
                    waiting.push((address, needed));
                }
            }
        }
    }

    async fn record(
        &self,
        address: &Address,
        tracked: Tracked,
        local: Option<Record>,
        moved: &mut Moved,
    ) -> Result<Outcome> {
        let mut local = local;
        let mut is_unknown_reported = false;
        for _ in 0..ATTEMPTS {
            let Tracked { theirs, base } = &tracked;
            let mut state = RecordSyncState::of(local.as_ref(), theirs.as_ref(), base.as_ref());
            if let (RecordSyncState::Both(concerns), Some(local), Some(theirs)) = (&mut state, &local, theirs) {
                self.decide(concerns, local, theirs).await?;
            }
            if state.is_up_to_date() {
                moved.up_to_date += u64::from(state != RecordSyncState::Neither);
                if self.way != Way::Nowhere && !self.options.dry_run && base != &local {
                    self.tracking.settle(self.name, address, theirs.as_ref(), local.as_ref())?;
                }
                return Ok(Outcome::Settled);
            }
            if !state.concerns(SyncState::Diverged).is_empty() || state == RecordSyncState::Incomparable {
                self.report(&mut moved.diverged, address, local.as_ref(), theirs.as_ref());
                return Ok(Outcome::Settled);
            }
            if !state.concerns(SyncState::Unknown).is_empty() && !std::mem::replace(&mut is_unknown_reported, true) {
                moved.unknown.add_reason(address, REDACTED_CONFIG);
            }
            let step = match (self.way, &state) {
                (_, RecordSyncState::PurgedHere) => {
                    moved.purged.add_reason(address, "it was purged here, and the remote has it");
                    return Ok(Outcome::Settled);
                }
                (_, RecordSyncState::PurgedThere) => {
                    moved.purged.add_reason(address, "the remote no longer has it, and it is here");
                    return Ok(Outcome::Settled);
                }
                (Way::Pull, RecordSyncState::New) => Step::Create,
                (Way::Push, RecordSyncState::Unpushed) => Step::Create,
                (Way::Pull, RecordSyncState::Both(_)) => Step::Move(state.concerns(SyncState::Behind)),
                (Way::Push, RecordSyncState::Both(_)) => Step::Move(state.concerns(SyncState::Ahead)),
                _ => Step::Move(Vec::new()),
            };
            // What the other way would move.
            let (behind, ahead) = (state.concerns(SyncState::Behind), state.concerns(SyncState::Ahead));
            let is_behind = !behind.is_empty() || state == RecordSyncState::New;
            let is_ahead = !ahead.is_empty() || state == RecordSyncState::Unpushed;
            if is_behind && self.way != Way::Pull {
                self.report(&mut moved.behind, address, local.as_ref(), theirs.as_ref());
            }
            if is_ahead && self.way != Way::Push {
                self.report(&mut moved.ahead, address, local.as_ref(), theirs.as_ref());
            }
            let concerns = match step {
                Step::Move(concerns) if concerns.is_empty() => return Ok(Outcome::Settled),
                _ if self.options.dry_run => {
                    self.report(&mut moved.moved, address, local.as_ref(), theirs.as_ref());
                    return Ok(Outcome::Settled);
                }
                Step::Create => ConcernKind::ALL.to_vec(),
                Step::Move(concerns) => concerns,
            };
            let brought = match self.way {
                Way::Push => self.bring_there(local.as_ref(), theirs.as_ref(), &concerns).await,
                _ => self.bring_here(theirs.as_ref(), local.as_ref(), &concerns).await,
            };
            match brought? {
                Ok(brought @ (Brought::Done | Brought::Unprotected(_))) => {
                    if let Brought::Unprotected(reason) = brought {
                        moved.rejected.add_reason(address, reason);
                    }
                    self.settled(address, &tracked, local.as_ref(), &concerns).await?;
                    self.report(&mut moved.moved, address, local.as_ref(), theirs.as_ref());
                    return Ok(Outcome::Settled);
                }
                Ok(Brought::Needs(needed)) => return Ok(Outcome::Waits(needed)),
                Ok(Brought::Rejected(reason)) => {
                    moved.rejected.add_reason(address, reason);
                    return Ok(Outcome::Settled);
                }
                // The remote has something that was not fetched.
                Ok(Brought::Again) if self.way == Way::Push => {
                    moved.overtaken.add_address(address);
                    return Ok(Outcome::Settled);
                }
                Ok(Brought::Again) => local = self.local.lookup(address).await.map_err(SyncError::Target)?,
                Err(error) => {
                    moved.rejected.add_reason(address, chain(&error));
                    return Ok(Outcome::Settled);
                }
            }
        }
        moved.overtaken.add_address(address);
        Ok(Outcome::Settled)
    }

    /// Decides about concerns that have diverged, from the histories of both sides or by watermark.
    async fn decide(&self, concerns: &mut [(ConcernKind, SyncState)], local: &Record, theirs: &Record) -> Result<()> {
        for (concern, state) in concerns.iter_mut().filter(|(_, state)| *state == SyncState::Diverged) {
            if let Some(remote) = self.remote {
                match has_passed(&**remote, &local.address, *concern, local).await {
                    Ok(true) => {
                        *state = SyncState::Behind;
                        continue;
                    }
                    Ok(false) => {}
                    Err(error) => tracing::debug!(%error, "the history of the remote cannot be read"),
                }
            }
            if has_passed(&**self.local, &local.address, *concern, theirs).await.unwrap_or(false) {
                *state = SyncState::Ahead;
            } else if self.options.by_watermark {
                *state = match watermark(local, *concern).cmp(&watermark(theirs, *concern)) {
                    std::cmp::Ordering::Less => SyncState::Behind,
                    std::cmp::Ordering::Greater => SyncState::Ahead,
                    std::cmp::Ordering::Equal => SyncState::Diverged,
                };
            }
        }
        Ok(())
    }

    /// Writes to the local side, on the condition that it still has what was read.
    async fn bring_here(
        &self,
        theirs: Option<&Record>,
        local: Option<&Record>,
        concerns: &[ConcernKind],
    ) -> Result<Result<Brought, BackendError>> {
        let Some(theirs) = theirs else { return Ok(Ok(Brought::Done)) };
        let Some(local) = local else {
            return written(bring::create(&Target::new(&**self.local), theirs).await, SyncError::Target);
        };
        if !self.options.resets
            && theirs.kind == RecordKind::Ledger
            && concerns.iter().any(|concern| is_set_back(theirs, local, *concern))
        {
            return Ok(Ok(Brought::Rejected("the remote was set back: pull it with --resets".to_owned())));
        }
        self.update(self.local, theirs, local, concerns, SyncError::Target).await
    }

    /// Writes to the remote, on the condition that it still has what was fetched.
    async fn bring_there(
        &self,
        local: Option<&Record>,
        theirs: Option<&Record>,
        concerns: &[ConcernKind],
    ) -> Result<Result<Brought, BackendError>> {
        let (Some(local), Some(remote)) = (local, self.remote) else { return Ok(Ok(Brought::Done)) };
        let Some(theirs) = theirs else {
            return written(bring::create(&Target::new(&**remote), local).await, SyncError::Target);
        };
        // A reset compares nothing, so it could overwrite a value that was not seen.
        if local.kind == RecordKind::Ledger && concerns.iter().any(|concern| is_set_back(local, theirs, *concern)) {
            return Ok(Ok(Brought::Rejected("it was set back here: reset it at the remote".to_owned())));
        }
        self.update(remote, local, theirs, concerns, SyncError::Target).await
    }

    async fn update(
        &self,
        to: &Arc<dyn Backend>,
        source: &Record,
        target: &Record,
        concerns: &[ConcernKind],
        error: impl FnOnce(BackendError) -> SyncError,
    ) -> Result<Result<Brought, BackendError>> {
        let differences = judge(source, target);
        let takes = |difference: &Difference| matches!(difference.part, ChangedPart::Concern(concern) if concerns.contains(&concern));
        written(bring::update(&Target::new(&**to), source, target.clone(), &differences, takes).await, error)
    }

    /// Notes that these concerns are the same on both sides.
    async fn settled(
        &self,
        address: &Address,
        tracked: &Tracked,
        local: Option<&Record>,
        concerns: &[ConcernKind],
    ) -> Result<()> {
        let (theirs, same) = match self.way {
            Way::Push => {
                let remote = match self.remote {
                    Some(remote) => remote.lookup(address).await.map_err(SyncError::Target)?,
                    None => None,
                };
                (remote, local.cloned())
            }
            _ => (tracked.theirs.clone(), tracked.theirs.clone()),
        };
        let base = match (&tracked.base, same) {
            (Some(base), Some(same)) => Some(with(base.clone(), &same, concerns)),
            (_, same) => same,
        };
        self.tracking.settle(self.name, address, theirs.as_ref(), base.as_ref())
    }

    fn report(&self, records: &mut Records, address: &Address, local: Option<&Record>, theirs: Option<&Record>) {
        match (local, theirs) {
            // The remote is the source of a pull, and the local side that of a push.
            (Some(local), Some(theirs)) if self.way == Way::Push => {
                records.add_differences(address, &judge(local, theirs))
            }
            (Some(local), Some(theirs)) => records.add_differences(address, &judge(theirs, local)),
            _ => records.add(Entry { address: address.to_string(), differences: Vec::new(), reason: None }),
        }
    }
}

enum Step {
    Create,
    Move(Vec<ConcernKind>),
}

/// An error that concerns one record is reported with it; one that concerns the place ends the run.
fn written(
    brought: Result<Brought, BackendError>,
    error: impl FnOnce(BackendError) -> SyncError,
) -> Result<Result<Brought, BackendError>> {
    match brought {
        Err(unusable @ BackendError::Unavailable { .. }) => Err(error(unusable)),
        brought => Ok(brought),
    }
}

/// Returns whether the source has a lower watermark of a concern that only a reset can set back.
fn is_set_back(source: &Record, target: &Record, concern: ConcernKind) -> bool {
    matches!(concern, ConcernKind::Head | ConcernKind::Index)
        && (watermark(source, concern) < watermark(target, concern)
            || (concern == ConcernKind::Head && watermark(source, concern) == watermark(target, concern)))
        && judge(source, target).iter().any(|difference| difference.part == ChangedPart::Concern(concern))
}

fn watermark(record: &Record, concern: ConcernKind) -> i64 {
    match concern {
        ConcernKind::Head => record.head.as_ref().map_or(0, |head| head.v),
        ConcernKind::Index => record.index.v,
        ConcernKind::Status => record.status.v,
        ConcernKind::Config => record.config.v,
    }
}

/// Returns a record with some concerns replaced by those of another.
fn with(mut base: Record, other: &Record, concerns: &[ConcernKind]) -> Record {
    for concern in concerns {
        match concern {
            ConcernKind::Head => base.head = other.head.clone(),
            ConcernKind::Index => base.index = other.index.clone(),
            ConcernKind::Status => {
                base.status = other.status.clone();
                base.retracted = other.retracted;
            }
            ConcernKind::Config => {
                base.config = other.config.clone();
                base.dependencies = other.dependencies.clone();
            }
        }
    }
    base
}
