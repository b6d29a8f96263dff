//! Creating ledgers and branches, and resetting heads.

use nameservice_model::{
    self as model, Address, BranchCreated, Call, ConcernKind, Created, Error, Head, Index, IndexRoot, NewHead,
    NewIndex, Record, RecordAttributes, RecordKind, RequestId, Reset, ResetTo, Result,
};

use crate::{
    Store,
    calls::first_head,
    client::{Attempts, Failed, MAX_PLANS, Outcome, Reject, contended, key_reused},
    concern::{ConfigConcern, HeadConcern, graphs_attribute},
    creation::NewLedger,
    expressions::{Expression, Key, unreadable},
    items::{self, Item, RecordItems, number, string},
    records::{Part, any_remembers, check_key, own, rejected_at},
    schema::*,
};

const CREATE: &str = "create a ledger";
const BRANCH: &str = "create a branch";
const RESET: &str = "reset a head";

impl Store {
    pub(crate) async fn create_ledger_record(&self, call: &Call, new: &model::NewLedger) -> Result<Created> {
        let address = &new.address;
        let mut ledger = NewLedger::new(address, &new.attributes(), call, self.now_ms());
        if let Some(head) = &new.head {
            ledger = ledger.with::<HeadConcern>(head);
        }
        if let Some(config) = &new.config {
            ledger = ledger.with::<ConfigConcern>(config);
        }
        let mut attempts = Attempts::default();
        match self.create(CREATE, call, address, &mut attempts, |orphans| ledger.actions(orphans)).await? {
            Outcome::Applied(()) => put_record(CREATE, &ledger.into_items()).map(Created::Created),
            Outcome::Rejected(failed) if any_remembers(&failed, call) => {
                put_record(CREATE, &ledger.into_items_before(&failed, call)).map(Created::Created)
            }
            Outcome::Rejected(failed) => {
                check_key(CREATE, own(&failed), call, attempts)?;
                attempts.reject(CREATE, Created::AlreadyExists)
            }
        }
    }

    pub(crate) async fn create_branch_record(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
    ) -> Result<BranchCreated> {
        let mut attempts = Attempts::default();
        for _ in 0..MAX_PLANS {
            let source_items = self.look_up(BRANCH, source, &mut attempts).await?;
            let start = match start_of(&source_items) {
                Ok(_) if branch == source => Err(BranchCreated::AlreadyExists),
                start => start,
            };
            let (source_meta, head) = match start {
                Ok(start) => start,
                Err(rejection) => {
                    return self.branch_before(call, branch, source, at, rejection, &mut attempts).await;
                }
            };
            let now = self.now_ms();
            let ledger = NewLedger::new(branch, &attributes_of_branch(source), call, now)
                .with::<HeadConcern>(at.unwrap_or(&head));
            let mut count = Expression::new();
            count.same_record(source_meta);
            count.live();
            if at.is_none() {
                // The source may be pushed to meanwhile, and not be reset: the head that was read stays in its past.
                count.is(ATTR_RESET, items::present(source_meta, ATTR_RESET).cloned());
            }
            count.count(ATTR_BRANCHES, unreadable(source_meta, ATTR_BRANCHES));
            count.touch(now);
            let count = (Part::Parent, count.into_update(&Key::meta(source)));
            // A Query may return the head as it was before a reset and the meta item after it, and Fluree's resets leave no trace there.
            let still = at.is_none().then(|| {
                let mut still = Expression::new();
                still.reaches(&head);
                (Part::ParentHead, still.into_check(&Key::new(source, sk_of(ConcernKind::Head))))
            });
            let actions = |orphans| {
                let mut actions = ledger.actions(orphans);
                actions.push(count.clone());
                actions.extend(still.clone());
                actions
            };
            let failed = match self.create(BRANCH, call, branch, &mut attempts, actions).await? {
                Outcome::Applied(()) => return put_record(BRANCH, &ledger.into_items()).map(BranchCreated::Created),
                Outcome::Rejected(failed) => failed,
            };
            if any_remembers(&failed, call) {
                return branched_before(branch, source, at, &failed, call, now).map(BranchCreated::Created);
            }
            check_key(BRANCH, own(&failed), call, attempts)?;
            if rejected_at(&failed, &Part::Meta).is_some() {
                return attempts.reject(BRANCH, BranchCreated::AlreadyExists);
            }
            // The source has changed: the next read shows how.
        }
        Err(contended(BRANCH, attempts))
    }

    /// Returns the outcome of a creation that its source rejects, unless this call has created the branch before.
    async fn branch_before(
        &self,
        call: &Call,
        branch: &Address,
        source: &Address,
        at: Option<&NewHead>,
        rejection: BranchCreated,
        attempts: &mut Attempts,
    ) -> Result<BranchCreated> {
        let there = self.look_up(BRANCH, branch, attempts).await?;
        let memory = self.memory(BRANCH, branch, attempts).await?;
        let concerns = there.items.values().filter(|item| items::sk(item) != SK_META);
        let known: Vec<_> = concerns.chain([&memory]).collect();
        if known.iter().any(|item| items::remembers(item, &call.request_id)) {
            let item = |sk| Failed(there.items.get(sk).cloned());
            let failed = [
                (Part::Calls, Failed(Some(memory))),
                (Part::Meta, item(SK_META)),
                (Part::Concern(ConcernKind::Head), item(sk_of(ConcernKind::Head))),
            ];
            return branched_before(branch, source, at, &failed, call, self.now_ms()).map(BranchCreated::Created);
        }
        if rejection != BranchCreated::UnknownSource
            && known.iter().any(|item| items::reuses_key(item, &call.request_id))
        {
            return Err(key_reused(BRANCH, *attempts));
        }
        attempts.reject(BRANCH, rejection)
    }

    /// Resets a ledger. Fluree's indexer trusts the commit log if it reaches the head without a gap, so no row may stay
    /// above the target. Rows are deleted before the reset, so that an interruption leaves a gap and no contradiction,
    /// and again after it, for commits that were pushed in between.
    pub(crate) async fn reset_head_record(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        let mut attempts = Attempts::default();
        for _ in 0..MAX_PLANS {
            let first = self.commits_above(RESET, address, to.head_t(), None);
            let mut log = self.within(RESET, &mut attempts, first).await?;
            let record = std::mem::take(&mut log.record);
            let meta = match resettable(&record, call) {
                Resettable::Yes(meta) => meta,
                Resettable::Before(reset) => return Ok(reset),
                Resettable::KeyReused => return Err(key_reused(RESET, attempts)),
                Resettable::No(rejection) => return attempts.reject(RESET, rejection),
            };
            // Nothing is deleted before the reset is known to be possible.
            self.clear_commits(RESET, address, to.head_t(), Some(log), &mut attempts).await?;
            if let Some(reset) = self.reset_refs(call, address, to, meta, &mut attempts).await? {
                let sweep = self.sweep_commits(RESET, address, to.head_t());
                self.afterwards(RESET, address, &mut attempts, sweep).await;
                return Ok(reset);
            }
        }
        Err(contended(RESET, attempts))
    }

    /// Resets the head and the index of the record with this meta item. Returns `None` if it has changed meanwhile.
    async fn reset_refs(
        &self,
        call: &Call,
        address: &Address,
        to: &ResetTo,
        meta: &Item,
        attempts: &mut Attempts,
    ) -> Result<Option<Reset>> {
        let now = self.now_ms();
        let mut reset = Expression::new();
        reset.same_record(meta);
        reset.live();
        reset.unprotected();
        reset.set(ATTR_RESET, string(call.request_id.as_str()));
        reset.touch(now);
        let mut head = Expression::new();
        head.put(ATTR_COMMIT_ID, to.head().map(|head| string(head.id().as_str())));
        head.set(ATTR_COMMIT_T, number(to.head_t()));
        let mut index = Expression::new();
        let id = to.index().map(|index| string(index.id().as_str()));
        index.put(ATTR_INDEX_ID, id.clone());
        index.set(ATTR_INDEX_T, number(to.index().map_or(0, NewIndex::t)));
        index.put(ATTR_REV, id.as_ref().map(|_| number(0)));
        index.put(ATTR_REV_ID, id);
        // Indexes of named graphs may lie beyond the target.
        index.set(ATTR_GRAPHS, graphs_attribute(&Default::default()));
        let mut actions = vec![(Part::Meta, reset.into_update(&Key::meta(address)))];
        for (concern, mut update) in [(ConcernKind::Head, head), (ConcernKind::Index, index)] {
            update.by_call(&call.request_id);
            update.touch(now);
            actions.push((Part::Concern(concern), update.into_update(&Key::new(address, sk_of(concern)))));
        }
        let done = Reset::Reset {
            head: to.head().map_or(Head::unborn(), NewHead::value),
            index: to.index().map_or(Index::unborn(), reset_index),
        };
        match self.transact(RESET, actions, attempts).await? {
            Outcome::Applied(()) => Ok(Some(done)),
            Outcome::Rejected(failed) if any_remembers(&failed, call) => Ok(Some(done)),
            Outcome::Rejected(failed) => {
                check_key(RESET, own(&failed), call, *attempts)?;
                Ok(None)
            }
        }
    }
}

/// Whether a record can be reset.
enum Resettable<'a> {
    /// It has this meta item.
    Yes(&'a Item),
    /// This call has reset it before. The record as it is now.
    Before(Reset),
    KeyReused,
    No(Reset),
}

fn resettable<'a>(items: &'a RecordItems, call: &Call) -> Resettable<'a> {
    let Some((meta, kind)) = items.meta() else { return Resettable::No(Reset::Unknown) };
    let [head, index] = [ConcernKind::Head, ConcernKind::Index].map(|concern| items.concern_or_empty(concern));
    let any = |known: fn(&Item, &RequestId) -> bool| [&head, &index].iter().any(|item| known(item, &call.request_id));
    if any(items::remembers) {
        return Resettable::Before(Reset::Reset { head: items::head(&head), index: items::index(&index) });
    }
    if any(items::reuses_key) {
        return Resettable::KeyReused;
    }
    match kind {
        RecordKind::Ledger if items::flag(meta, ATTR_RETRACTED) => Resettable::No(Reset::Retracted),
        RecordKind::Ledger if items::flag(meta, ATTR_PROTECTED) => Resettable::No(Reset::Protected),
        RecordKind::Ledger => Resettable::Yes(meta),
        kind => Resettable::No(Reset::WrongKind(kind)),
    }
}

/// Returns the meta item and the head of a branch's source, or why no branch can be created from it.
fn start_of(source: &RecordItems) -> Result<(&Item, NewHead), BranchCreated> {
    let Some((meta, RecordKind::Ledger)) = source.meta() else { return Err(BranchCreated::UnknownSource) };
    if items::flag(meta, ATTR_RETRACTED) {
        return Err(BranchCreated::UnknownSource);
    }
    let head = items::head(&source.concern_or_empty(ConcernKind::Head));
    NewHead::try_from(head).map(|head| (meta, head)).map_err(|_| BranchCreated::UnbornSource)
}

/// Returns the branch as this call has created it before. `failed` is what rejected the repetition. An error if the head
/// that it began with is not known any more.
fn branched_before(
    branch: &Address,
    source: &Address,
    at: Option<&NewHead>,
    failed: &[(Part, Failed)],
    call: &Call,
    now: i64,
) -> Result<Box<Record>> {
    let stored = |part: Part| rejected_at(failed, &part).and_then(|Failed(item)| item.as_ref());
    let by_memory = || {
        let memory = stored(Part::Calls)?;
        (items::text(memory, ATTR_LIFE) == Some(call.request_id.as_str())).then(|| items::head(memory))
    };
    let by_head =
        || first_head(stored(Part::Meta)?, stored(Part::Concern(ConcernKind::Head))?, call.request_id.as_str());
    let head = match at {
        Some(at) => Ok(at.clone()),
        None => {
            let unknown = || Error::OutcomeUnknown {
                operation: BRANCH,
                source: Some("the branch was created, and its head was pushed since".into()),
            };
            by_memory().or_else(by_head).and_then(|head| NewHead::try_from(head).ok()).ok_or_else(unknown)
        }
    }?;
    let ledger = NewLedger::new(branch, &attributes_of_branch(source), call, now).with::<HeadConcern>(&head);
    put_record(BRANCH, &ledger.into_items_before(failed, call))
}

/// Returns the attributes of a new branch of this ledger.
fn attributes_of_branch(source: &Address) -> RecordAttributes {
    RecordAttributes { source_branch: Some(source.branch().to_owned()), ..RecordAttributes::default() }
}

fn reset_index(index: &NewIndex) -> Index {
    Index::new(index.t(), IndexRoot { id: index.id().clone(), rev: 0, graphs: Default::default() })
}

/// Returns the record of the items that were put. They always make one: anything else would be a bug in
/// [`items::new_meta`].
fn put_record(operation: &'static str, items: &RecordItems) -> Result<Box<Record>> {
    let none = || Error::Store { operation, source: "the items of a new record do not form a record".into() };
    items.record().map(Box::new).ok_or_else(none)
}
