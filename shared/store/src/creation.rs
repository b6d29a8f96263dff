//! Creating records: what a new one is made of, and the one transaction that puts it.

use nameservice_model::{Address, Call, ConcernKind, RecordKind, Result};

use crate::{
    Store,
    client::{Attempts, Failed, MAX_PLANS, Outcome, contended},
    commit_log::{NO_COMMITS, no_log},
    concern::Concern,
    expressions::{Action, Expression},
    items::{self, Item, RecordItems, string},
    records::{Part, any_remembers},
    schema::*,
};

/// A ledger that is about to be created.
pub(crate) struct NewLedger<'a> {
    address: &'a Address,
    call: &'a Call,
    items: Vec<Item>,
}

impl<'a> NewLedger<'a> {
    /// A ledger without data.
    pub(crate) fn new(address: &'a Address, call: &'a Call, now: i64) -> Self {
        let concern = |concern| items::new_concern(address, concern, &call.request_id, now);
        let meta = items::new_meta(address, RecordKind::Ledger, now);
        Self { address, call, items: std::iter::once(meta).chain(ConcernKind::ALL.map(concern)).collect() }
    }

    /// Sets the branch that it is made from.
    pub(crate) fn branch_of(mut self, source: &str) -> Self {
        self.item(SK_META, |meta| {
            meta.insert(ATTR_BP_SOURCE.to_owned(), string(source));
        });
        self
    }

    /// Sets the first value of a concern.
    pub(crate) fn with<C: Concern>(mut self, new: &C::New) -> Self {
        self.item(sk_of(C::KIND), |item| C::preset(item, new));
        self
    }

    fn item(&mut self, sk: &str, change: impl FnOnce(&mut Item)) {
        if let Some(item) = self.items.iter_mut().find(|item| items::sk(item) == sk) {
            change(item);
        }
    }

    /// The actions of the transaction that creates it.
    pub(crate) fn actions(&self, orphans: Orphans) -> Vec<(Part, Action)> {
        let mut actions = put_new(&self.items, self.call, orphans);
        actions.push((Part::Log, no_log(self.address)));
        actions
    }

    pub(crate) fn into_items(self) -> RecordItems {
        RecordItems::new(self.items)
    }
}

/// What a creation does about concern items that lie under no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphans {
    /// Be rejected by them. A rejection by an existing record then brings back all of it.
    Reject,
    /// Put over them.
    Overwrite,
}

/// Puts of a new record's items, the meta where there is no record. Every condition also recognises this very call: a
/// repetition that the engine has forgotten is then distinguished from a record that another caller made.
pub(crate) fn put_new(all: &[Item], call: &Call, orphans: Orphans) -> Vec<(Part, Action)> {
    all.iter()
        .map(|item| {
            let mut condition = Expression::new();
            let part = match concern_of(items::sk(item)) {
                None => {
                    condition.not_exists(ATTR_KIND);
                    Part::Meta
                }
                Some(concern) => {
                    match orphans {
                        Orphans::Overwrite => condition.not_by_call(&call.request_id),
                        Orphans::Reject => condition.not_exists(ATTR_PK),
                    }
                    Part::Concern(concern)
                }
            };
            (part, condition.into_put(item.clone()))
        })
        .collect()
}

impl Store {
    /// Sends the transaction of a creation. A rejection names each action that failed.
    ///
    /// Over nothing this is one request. Leftovers of an earlier life reject the first one: they show that Fluree's
    /// commit log may have outlived its ledger, so it is swept while there is still no record, and the next transaction
    /// puts over the items. Whoever is interrupted in between has created nothing.
    pub(crate) async fn create(
        &self,
        operation: &'static str,
        call: &Call,
        address: &Address,
        attempts: &mut Attempts,
        actions: impl Fn(Orphans) -> Vec<(Part, Action)>,
    ) -> Result<Outcome<(), Vec<(Part, Failed)>>> {
        let mut orphans = Orphans::Reject;
        for _ in 0..MAX_PLANS {
            let failed = match self.transact(operation, actions(orphans), attempts).await? {
                Outcome::Applied(()) => return Ok(Outcome::Applied(())),
                Outcome::Rejected(failed) => failed,
            };
            if !by_leftovers_alone(&failed, call) {
                return Ok(Outcome::Rejected(failed));
            }
            self.sweep_commits(operation, address, NO_COMMITS).await?;
            orphans = Orphans::Overwrite;
        }
        Err(contended(operation, *attempts))
    }
}

/// Whether nothing rejects a creation but what an earlier life has left under no record.
fn by_leftovers_alone(failed: &[(Part, Failed)], call: &Call) -> bool {
    let reuses_key =
        |Failed(item): &Failed| item.as_ref().is_some_and(|item| items::reuses_key(item, &call.request_id));
    failed.iter().all(|(part, failed)| matches!(part, Part::Concern(_) | Part::Log) && !reuses_key(failed))
        && !any_remembers(failed, call)
}
