//! Purging records, and the remains of interrupted purges.

use nameservice_model::{Address, Call, ConcernKind, Dropped, Purged, Result};

use crate::{
    Store, calls,
    client::{Attempts, Failed, MAX_PLANS, Outcome, Reject, contended, key_reused},
    commit_log::NO_COMMITS,
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems},
    records::{Part, rejected_at},
    references::{Dependent, References, counted, is_referenced, require_unreferenced},
    schema::*,
};

const PURGE: &str = "purge a record";
/// The actions of a purge beside those of the parent and of references: the meta item, the memory, the concerns.
const OWN_ACTIONS: usize = 2 + ConcernKind::ALL.len();

/// The outcome of purging a record, or of dropping a branch.
enum Ended {
    /// It was purged by this call.
    Purged {
        /// The record that it was branched from.
        parent: Option<Address>,
    },
    Unknown,
    NotABranch,
    HasDependents,
    Protected,
}

impl Store {
    pub(crate) async fn purge_record(&self, call: &Call, address: &Address) -> Result<Purged> {
        let mut attempts = Attempts::default();
        Ok(match self.end_record(call, address, false, &mut attempts).await? {
            Ended::Purged { .. } => Purged::Purged,
            Ended::HasDependents => Purged::HasDependents,
            Ended::Protected => Purged::Protected,
            Ended::Unknown | Ended::NotABranch => Purged::Unknown,
        })
    }

    pub(crate) async fn drop_branch_record(&self, call: &Call, address: &Address) -> Result<Dropped> {
        let mut attempts = Attempts::default();
        Ok(match self.end_record(call, address, true, &mut attempts).await? {
            Ended::Purged { parent } => {
                let parent = match parent {
                    Some(parent) => {
                        let key = Key::meta(&parent);
                        let read = self.get_item(PURGE, &key);
                        self.afterwards(PURGE, address, &mut attempts, read).await.unwrap_or_default()
                    }
                    None => Item::new(),
                };
                Dropped::Dropped { parent_branches: items::integer(&parent, ATTR_BRANCHES).unwrap_or(0) }
            }
            Ended::Unknown => Dropped::Unknown,
            Ended::NotABranch => Dropped::NotABranch,
            Ended::HasDependents => Dropped::HasDependents,
            Ended::Protected => Dropped::Protected,
        })
    }

    async fn end_record(
        &self,
        call: &Call,
        address: &Address,
        only_branches: bool,
        attempts: &mut Attempts,
    ) -> Result<Ended> {
        let id = &call.request_id;
        let mut purging = None;
        for _ in 0..MAX_PLANS {
            let found = self.look_up(PURGE, address, attempts).await?;
            let Some((meta, _)) = found.meta() else {
                return match only_branches {
                    true => self.drop_nothing(call, address, purging, attempts).await,
                    false => self.purge_nothing(call, address, &found, attempts).await,
                };
            };
            let parent = parent(address, meta);
            let obstacle = match only_branches && parent.is_none() {
                true => Some(Ended::NotABranch),
                false => held(meta),
            };
            let reuses_key = found.items.values().any(|item| items::reuses_key(item, id));
            if obstacle.is_some() || reuses_key {
                // Only here: otherwise the transaction finds out.
                let memory = self.memory(PURGE, address, attempts).await?;
                if let Some(ended) = ended_before(address, &memory, call) {
                    return Ok(ended);
                }
                if reuses_key || items::reuses_key(&memory, id) {
                    return Err(key_reused(PURGE, *attempts));
                }
                if let Some(obstacle) = obstacle {
                    return attempts.reject(PURGE, obstacle);
                }
            }
            if let Some(ended) = self.end_found(call, address, &found, parent.clone(), attempts).await? {
                return Ok(ended);
            }
            purging = parent;
        }
        Err(contended(PURGE, *attempts))
    }

    /// Purges the record that was read. Returns `None` if it has changed meanwhile.
    async fn end_found(
        &self,
        call: &Call,
        address: &Address,
        found: &RecordItems,
        parent: Option<Address>,
        attempts: &mut Attempts,
    ) -> Result<Option<Ended>> {
        let Some((meta, _)) = found.meta() else { return Ok(None) };
        let now = self.now_ms();
        let mut counted_at = parent.clone();
        let mut references = References::undo(&counted(meta));
        let later = references.limit(OWN_ACTIONS + usize::from(parent.is_some()));
        for _ in 0..MAX_PLANS {
            let mut actions = vec![
                (Part::Meta, delete_meta(address, meta)),
                (Part::Calls, calls::remember_end(address, found, call, now)),
            ];
            for concern in ConcernKind::ALL {
                let key = Key::new(address, sk_of(concern));
                actions.push((Part::Concern(concern), Expression::new().into_delete(&key)));
            }
            if let Some(parent) = &counted_at {
                actions.push((Part::Parent, uncount_branch(parent, now)));
            }
            actions.extend(references.actions(address, now));
            let failed = match self.transact(PURGE, actions, attempts).await? {
                Outcome::Applied(()) => {
                    self.undo_afterwards(PURGE, address, (Dependent::Purged, later), now, attempts).await;
                    let sweep = self.sweep_commits(PURGE, address, NO_COMMITS);
                    self.afterwards(PURGE, address, attempts, sweep).await;
                    return Ok(Some(Ended::Purged { parent }));
                }
                Outcome::Rejected(failed) => failed,
            };
            if let Some(Failed(Some(memory))) = rejected_at(&failed, &Part::Calls) {
                return match ended_before(address, memory, call) {
                    // An attempt whose answer was lost may have purged it just now.
                    Some(ended) => {
                        self.undo_afterwards(PURGE, address, (Dependent::Purged, later), now, attempts).await;
                        Ok(Some(ended))
                    }
                    None => Err(key_reused(PURGE, *attempts)),
                };
            }
            if rejected_at(&failed, &Part::Meta).is_some() {
                return Ok(None);
            }
            if rejected_at(&failed, &Part::Parent).is_some() {
                // The parent is gone, or never counted this branch.
                counted_at = None;
            }
            references.learn(&failed);
        }
        Err(contended(PURGE, *attempts))
    }

    /// Purges if there is no record: finishes an earlier purge.
    async fn purge_nothing(
        &self,
        call: &Call,
        address: &Address,
        found: &RecordItems,
        attempts: &mut Attempts,
    ) -> Result<Ended> {
        let memory = self.memory(PURGE, address, attempts).await?;
        // An attempt whose answer was lost has purged it, or another caller meanwhile.
        let purged = Ended::Purged { parent: None };
        if attempts.uncertain || items::remembers(&memory, &call.request_id) {
            let sweep = self.sweep(call, address, found);
            self.afterwards(PURGE, address, attempts, sweep).await;
            return Ok(purged);
        }
        // Nothing is purged under the key of another request, and there is no record either way.
        if items::reuses_key(&memory, &call.request_id) {
            return Ok(Ended::Unknown);
        }
        match self.within(PURGE, attempts, self.sweep(call, address, found)).await? {
            true => Ok(purged),
            false => Ok(Ended::Unknown),
        }
    }

    /// Drops a branch if there is no record. `dropping` is the parent of one that an attempt of this call may have
    /// dropped.
    async fn drop_nothing(
        &self,
        call: &Call,
        address: &Address,
        dropping: Option<Address>,
        attempts: &mut Attempts,
    ) -> Result<Ended> {
        let memory = self.memory(PURGE, address, attempts).await?;
        Ok(match ended_before(address, &memory, call) {
            Some(ended) => ended,
            None if attempts.uncertain && dropping.is_some() => Ended::Purged { parent: dropping },
            None => Ended::Unknown,
        })
    }

    /// Deletes the concern items and the commit log under an address without a record. Returns whether there were any. The call
    /// is remembered as every purge is: a late duplicate must not purge what is created here next.
    async fn sweep(&self, call: &Call, address: &Address, items: &RecordItems) -> Result<bool> {
        let remember = || calls::remember_sweep(address, call, self.now_ms());
        let has_orphans = !items.items.is_empty();
        if has_orphans {
            let mut still_none = Expression::new();
            still_none.not_exists(ATTR_KIND);
            let (memory, key) = remember();
            let mut actions: Vec<(Part, Action)> = vec![
                (Part::Meta, still_none.into_delete(&Key::meta(address))),
                (Part::Calls, memory.into_update(&key)),
            ];
            for concern in ConcernKind::ALL {
                let key = Key::new(address, sk_of(concern));
                actions.push((Part::Concern(concern), Expression::new().into_delete(&key)));
            }
            if let Outcome::Rejected(failed) = self.transact(PURGE, actions, &mut Attempts::default()).await? {
                let memory = rejected_at(&failed, &Part::Calls).and_then(|Failed(memory)| memory.as_ref());
                // If another attempt of the call has deleted them, what is here now was written since.
                if !memory.is_some_and(|memory| items::remembers(memory, &call.request_id)) {
                    // A record was created here meanwhile: its items are not orphans.
                    return Err(contended(PURGE, Attempts::default()));
                }
            }
        }
        let has_log = self.sweep_commits(PURGE, address, NO_COMMITS).await? > 0;
        if has_log && !has_orphans {
            let (memory, key) = remember();
            if let Err(error) = self.update(PURGE, memory, &key, &mut Attempts::default()).await {
                let error = nameservice_model::chain(&error);
                tracing::warn!(%address, error, "a purge of what was left of a commit log is not remembered");
            }
        }
        Ok(has_log || has_orphans)
    }
}

/// Returns the first outcome of a call that the memory of the address shows to be repeated.
fn ended_before(address: &Address, memory: &Item, call: &Call) -> Option<Ended> {
    items::remembers(memory, &call.request_id).then(|| Ended::Purged { parent: parent(address, memory) })
}

/// Returns what prevents the purge of a record with this meta item, if anything does.
fn held(meta: &Item) -> Option<Ended> {
    match (items::flag(meta, ATTR_PROTECTED), is_referenced(meta)) {
        (true, _) => Some(Ended::Protected),
        (false, true) => Some(Ended::HasDependents),
        (false, false) => None,
    }
}

/// Returns the record that a branch was created from, by its meta item or what the memory of its address keeps of it.
fn parent(address: &Address, meta: &Item) -> Option<Address> {
    address.with_branch(items::text(meta, ATTR_BP_SOURCE)?).ok().filter(|parent| parent != address)
}

fn delete_meta(address: &Address, seen: &Item) -> Action {
    let mut delete = Expression::new();
    delete.same_record(seen);
    delete.unprotected();
    require_unreferenced(&mut delete);
    // What this transaction uncounts is what was read: it must not have changed.
    for attribute in [ATTR_COUNTED, ATTR_BP_SOURCE] {
        delete.is(attribute, items::present(seen, attribute).cloned());
    }
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
