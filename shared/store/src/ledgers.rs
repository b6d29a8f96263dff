//! Creating ledgers and branches, and resetting heads.

use nameservice_model::{
    Address, BranchCreated, Call, ConcernKind, Created, Error, Head, Index, IndexRoot, NewConfig, NewHead, NewIndex,
    Record, RecordKind, Reset, ResetTo, Result,
};

use crate::{
    Store,
    client::{Attempts, Failed, Outcome, Reject, contended},
    concern::{ConfigConcern, HeadConcern, graphs_attribute},
    creation::NewLedger,
    expressions::{Expression, Key},
    items::{self, RecordItems, number, string},
    records::{Part, any_remembers, check_key, rejected_at},
    schema::*,
};

const CREATE: &str = "create a ledger";
const BRANCH: &str = "create a branch";
const RESET: &str = "reset a head";

impl Store {
    pub(crate) async fn create_ledger_record(
        &self,
        call: &Call,
        address: &Address,
        head: Option<&NewHead>,
        config: Option<&NewConfig>,
    ) -> Result<Created> {
        let mut ledger = NewLedger::new(address, call, self.now_ms());
        if let Some(head) = head {
            ledger = ledger.with::<HeadConcern>(head);
        }
        if let Some(config) = config {
            ledger = ledger.with::<ConfigConcern>(config);
        }
        let mut attempts = Attempts::default();
        let created = self.create(CREATE, call, address, &mut attempts, |orphans| ledger.actions(orphans)).await?;
        let items = ledger.into_items();
        match created {
            Outcome::Applied(()) => put_record(CREATE, &items).map(Created::Created),
            Outcome::Rejected(failed) if any_remembers(&failed, call) => {
                put_record(CREATE, &items).map(Created::Created)
            }
            Outcome::Rejected(failed) => {
                check_key(CREATE, &failed, call, attempts)?;
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
        let source_items = self.read_record(BRANCH, source).await?;
        let Some(record) = source_items.record().filter(|record| !record.retracted) else {
            return Ok(BranchCreated::UnknownSource);
        };
        let Some(head) = record.head else { return Ok(BranchCreated::UnknownSource) };
        let Ok(head) = NewHead::try_from(head) else { return Ok(BranchCreated::UnbornSource) };
        if branch == source {
            return Ok(BranchCreated::AlreadyExists);
        }
        let now = self.now_ms();
        let ledger = NewLedger::new(branch, call, now).branch_of(source.branch());
        let ledger = ledger.with::<HeadConcern>(at.unwrap_or(&head));
        let mut count = Expression::new();
        count.kind_is(RecordKind::Ledger);
        count.live();
        count.add(ATTR_BRANCHES, 1);
        count.touch(now);
        let count = (Part::Parent, count.into_update(&Key::meta(source)));
        let actions = |orphans| {
            let mut actions = ledger.actions(orphans);
            actions.push(count.clone());
            actions
        };
        let mut attempts = Attempts::default();
        let created = self.create(BRANCH, call, branch, &mut attempts, actions).await?;
        let items = ledger.into_items();
        let failed = match created {
            Outcome::Applied(()) => return put_record(BRANCH, &items).map(BranchCreated::Created),
            Outcome::Rejected(failed) => failed,
        };
        if any_remembers(&failed, call) {
            return put_record(BRANCH, &items).map(BranchCreated::Created);
        }
        check_key(BRANCH, &failed, call, attempts)?;
        let rejection = match rejected_at(&failed, &Part::Meta) {
            Some(_) => BranchCreated::AlreadyExists,
            None => BranchCreated::UnknownSource,
        };
        attempts.reject(BRANCH, rejection)
    }

    /// Resets a ledger. Fluree's indexer trusts the commit log if it reaches the head without a gap, so no row may stay
    /// above the target. Rows are deleted before the reset, so that an interruption leaves a gap and no contradiction,
    /// and again after it, for commits that were pushed in between.
    pub(crate) async fn reset_head_record(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        let log = self.commits_above(RESET, address, to.head_t()).await?;
        // A protected record keeps its log too: the reset is going to be rejected.
        if !log.is_protected {
            self.delete_all(RESET, log.rows).await?;
        }
        let reset = self.reset_refs(call, address, to).await?;
        if matches!(reset, Reset::Reset { .. }) {
            self.sweep_commits(RESET, address, to.head_t()).await?;
        }
        Ok(reset)
    }

    async fn reset_refs(&self, call: &Call, address: &Address, to: &ResetTo) -> Result<Reset> {
        let now = self.now_ms();
        let mut check = Expression::new();
        check.kind_is(RecordKind::Ledger);
        check.live();
        check.unprotected();
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
        let mut actions = vec![(Part::Meta, check.into_check(&Key::meta(address)))];
        for (concern, mut update) in [(ConcernKind::Head, head), (ConcernKind::Index, index)] {
            update.by_call(&call.request_id);
            update.touch(now);
            actions.push((Part::Concern(concern), update.into_update(&Key::new(address, sk_of(concern)))));
        }
        let done = Reset::Reset {
            head: to.head().map_or(Head::unborn(), NewHead::value),
            index: to.index().map_or(Index::unborn(), reset_index),
        };
        let mut attempts = Attempts::default();
        let failed = match self.transact(RESET, actions, &mut attempts).await? {
            Outcome::Applied(()) => return Ok(done),
            Outcome::Rejected(failed) => failed,
        };
        if any_remembers(&failed, call) {
            return Ok(done);
        }
        check_key(RESET, &failed, call, attempts)?;
        let rejection = match rejected_at(&failed, &Part::Meta) {
            Some(Failed(meta)) => match meta.as_ref().and_then(|meta| Some((meta, items::kind(meta)?))) {
                None => Reset::Unknown,
                Some((meta, RecordKind::Ledger)) if items::flag(meta, ATTR_RETRACTED) => Reset::Retracted,
                Some((_, RecordKind::Ledger)) => Reset::Protected,
                Some((_, kind)) => Reset::WrongKind(kind),
            },
            None => return Err(contended(RESET, attempts)),
        };
        attempts.reject(RESET, rejection)
    }
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
