//! Purging records, and the remains of interrupted purges.

use nameservice_model::{Address, Call, ConcernKind, Dropped, Purged, Result};

use crate::{
    Store,
    client::{Attempts, Failed, MAX_PLANS, Outcome, contended},
    commit_log::NO_COMMITS,
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems},
    records::{Part, rejected_at},
    references::{References, counted, is_referenced, require_unreferenced},
    schema::*,
};

const PURGE: &str = "purge a record";

/// The outcome of one attempt to purge a record as it was read.
enum Attempted {
    Purged,
    HasDependents,
    Protected,
    /// The record has changed meanwhile.
    Changed,
}

impl Store {
    pub(crate) async fn purge_record(&self, _call: &Call, address: &Address) -> Result<Purged> {
        let mut attempts = Attempts::default();
        for _ in 0..MAX_PLANS {
            let items = self.read_record(PURGE, address).await?;
            if items.meta().is_none() {
                return match self.sweep(address, &items).await? || attempts.uncertain {
                    true => Ok(Purged::Purged),
                    false => Ok(Purged::Unknown),
                };
            }
            match self.purge_found(address, &items, &mut attempts).await? {
                Attempted::Purged => return Ok(Purged::Purged),
                Attempted::HasDependents => return Ok(Purged::HasDependents),
                Attempted::Protected => return Ok(Purged::Protected),
                Attempted::Changed => {}
            }
        }
        Err(contended(PURGE, attempts))
    }

    pub(crate) async fn drop_branch_record(&self, _call: &Call, address: &Address) -> Result<Dropped> {
        let mut attempts = Attempts::default();
        let mut dropped_from = None;
        for _ in 0..MAX_PLANS {
            let items = self.read_record(PURGE, address).await?;
            let Some((meta, _)) = items.meta() else {
                return match dropped_from.filter(|_| attempts.uncertain) {
                    // It was dropped by an attempt whose answer was lost.
                    Some(parent) => self.dropped(&parent).await,
                    None => Ok(Dropped::Unknown),
                };
            };
            let Some(parent) = parent(address, meta) else { return Ok(Dropped::NotABranch) };
            dropped_from = Some(parent.clone());
            match self.purge_found(address, &items, &mut attempts).await? {
                Attempted::Purged => return self.dropped(&parent).await,
                Attempted::HasDependents => return Ok(Dropped::HasDependents),
                Attempted::Protected => return Ok(Dropped::Protected),
                Attempted::Changed => {}
            }
        }
        Err(contended(PURGE, attempts))
    }

    async fn dropped(&self, parent: &Address) -> Result<Dropped> {
        let parent = self.get_item(PURGE, &Key::meta(parent)).await?;
        Ok(Dropped::Dropped { parent_branches: items::integer(&parent, ATTR_BRANCHES).unwrap_or(0) })
    }

    /// Purges the record that was read.
    async fn purge_found(&self, address: &Address, items: &RecordItems, attempts: &mut Attempts) -> Result<Attempted> {
        let Some((meta, _)) = items.meta() else { return Ok(Attempted::Changed) };
        if let Some(held) = held(meta) {
            return Ok(held);
        }
        let now = self.now_ms();
        let mut parent = parent(address, meta);
        let mut references = References::undo(&counted(meta));
        for _ in 0..MAX_PLANS {
            let mut actions = vec![(Part::Meta, delete_meta(address, meta))];
            for concern in ConcernKind::ALL {
                let key = Key::new(address, sk_of(concern));
                actions.push((Part::Concern(concern), Expression::new().into_delete(&key)));
            }
            if let Some(parent) = &parent {
                actions.push((Part::Parent, uncount_branch(parent, now)));
            }
            actions.extend(references.actions(address, now));
            let failed = match self.transact(PURGE, actions, attempts).await? {
                Outcome::Applied(()) => {
                    self.sweep_commits(PURGE, address, NO_COMMITS).await?;
                    return Ok(Attempted::Purged);
                }
                Outcome::Rejected(failed) => failed,
            };
            if let Some(Failed(meta)) = rejected_at(&failed, &Part::Meta) {
                return Ok(meta.as_ref().and_then(held).unwrap_or(Attempted::Changed));
            }
            if rejected_at(&failed, &Part::Parent).is_some() {
                // The parent is gone, or never counted this branch.
                parent = None;
            }
            references.learn(&failed);
        }
        Err(contended(PURGE, *attempts))
    }

    /// Deletes the concern items and the commit log under an address without a record. Returns whether there were any.
    async fn sweep(&self, address: &Address, items: &RecordItems) -> Result<bool> {
        let orphans: Vec<&Item> = items.items.values().collect();
        if !orphans.is_empty() {
            let mut still_none = Expression::new();
            still_none.not_exists(ATTR_KIND);
            let mut actions: Vec<(Part, Action)> = vec![(Part::Meta, still_none.into_delete(&Key::meta(address)))];
            for concern in ConcernKind::ALL {
                let key = Key::new(address, sk_of(concern));
                actions.push((Part::Concern(concern), Expression::new().into_delete(&key)));
            }
            if let Outcome::Rejected(_) = self.transact(PURGE, actions, &mut Attempts::default()).await? {
                // A record was created here meanwhile: its items are not orphans.
                return Err(contended(PURGE, Attempts::default()));
            }
        }
        Ok(self.sweep_commits(PURGE, address, NO_COMMITS).await? > 0 || !orphans.is_empty())
    }
}

/// Returns what prevents the purge of a record with this meta item, if anything does.
fn held(meta: &Item) -> Option<Attempted> {
    match (items::flag(meta, ATTR_PROTECTED), is_referenced(meta)) {
        (true, _) => Some(Attempted::Protected),
        (false, true) => Some(Attempted::HasDependents),
        (false, false) => None,
    }
}

/// Returns the record that a branch was created from.
fn parent(address: &Address, meta: &Item) -> Option<Address> {
    address.with_branch(items::text(meta, ATTR_BP_SOURCE)?).ok().filter(|parent| parent != address)
}

fn delete_meta(address: &Address, seen: &Item) -> Action {
    let mut delete = Expression::new();
    delete.record_exists();
    delete.unprotected();
    require_unreferenced(&mut delete);
    // The references that this transaction uncounts are those that were read: they must not have changed.
    delete.is(ATTR_COUNTED, items::present(seen, ATTR_COUNTED).cloned());
    delete.into_delete(&Key::meta(address))
}

fn uncount_branch(parent: &Address, now: i64) -> Action {
    let mut uncount = Expression::new();
    uncount.record_exists();
    uncount.at_least(ATTR_BRANCHES, 1);
    uncount.add(ATTR_BRANCHES, -1);
    uncount.touch(now);
    uncount.into_update(&Key::meta(parent))
}
