//! Creating records: the items of a new one, and the one transaction that puts them.

use nameservice_model::{Address, Call, ConcernKind, RecordAttributes, RecordKind, Result};

use crate::{
    Store, calls,
    client::{Attempts, Failed, MAX_PLANS, Outcome, contended},
    commit_log::{NO_COMMITS, no_log},
    concern::Concern,
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems},
    records::{Part, any_remembers, rejected_at},
    schema::*,
};

/// A ledger that is about to be created.
pub(crate) struct NewLedger<'a> {
    address: &'a Address,
    call: &'a Call,
    items: Vec<Item>,
}

impl<'a> NewLedger<'a> {
    /// Returns a ledger with these attributes, and without data.
    pub(crate) fn new(address: &'a Address, attributes: &RecordAttributes, call: &'a Call, now: i64) -> Self {
        let concern = |concern| items::new_concern(address, concern, &call.request_id, now);
        let mut meta = items::new_meta(address, RecordKind::Ledger, &call.request_id, now);
        items::put_attributes(&mut meta, attributes);
        Self { address, call, items: std::iter::once(meta).chain(ConcernKind::ALL.map(concern)).collect() }
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

    /// Returns the actions of the transaction that creates it.
    pub(crate) fn actions(&self, orphans: Orphans) -> Vec<(Part, Action)> {
        let mut actions = put_new(self.address, &self.items, self.call, orphans);
        actions.push((Part::Log, no_log(self.address)));
        actions
    }

    pub(crate) fn into_items(self) -> RecordItems {
        RecordItems::new(self.items)
    }

    /// Returns the items as an earlier attempt has put them. `failed` is what rejected the repetition.
    pub(crate) fn into_items_before(self, failed: &[(Part, Failed)], call: &Call) -> RecordItems {
        as_put_before(self.into_items(), failed, call)
    }
}

/// What a creation does about concern items without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphans {
    /// They reject it. A rejection by an existing record then returns all items of that record.
    Reject,
    /// It overwrites them.
    Overwrite,
}

/// Sets the time of creation of items that an earlier attempt, or an earlier call with the same identity, has put: the
/// memory of the address has it if the record was purged since, and otherwise the record.
pub(crate) fn as_put_before(mut items: RecordItems, failed: &[(Part, Failed)], call: &Call) -> RecordItems {
    let at = |part: Part| rejected_at(failed, &part).and_then(|Failed(item)| item.as_ref());
    let memory = at(Part::Calls).filter(|memory| items::remembers(memory, &call.request_id));
    if let Some(created) = memory.or_else(|| at(Part::Meta)).and_then(|item| items::present(item, ATTR_CREATED_AT)) {
        items.patch(SK_META, |meta| {
            meta.insert(ATTR_CREATED_AT.to_owned(), created.clone());
        });
    }
    items
}

/// Returns puts of a new record's items, on the condition that there is no record, and that this call has not created one
/// before. The conditions recognise this call also in the items: that distinguishes a repetition that the engine has
/// forgotten from a record that another caller created.
pub(crate) fn put_new(address: &Address, all: &[Item], call: &Call, orphans: Orphans) -> Vec<(Part, Action)> {
    let mut actions: Vec<_> = all
        .iter()
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
        .collect();
    // A head that is left would take pushes under a record that has none.
    if !all.iter().any(|item| items::sk(item) == sk_of(ConcernKind::Head)) {
        let key = Key::new(address, sk_of(ConcernKind::Head));
        let mut condition = Expression::new();
        let head = match orphans {
            Orphans::Overwrite => condition.into_delete(&key),
            Orphans::Reject => {
                condition.not_exists(ATTR_PK);
                condition.into_check(&key)
            }
        };
        actions.push((Part::Concern(ConcernKind::Head), head));
    }
    actions.push((Part::Calls, calls::not_before(address, call)));
    actions
}

impl Store {
    /// Sends the transaction of a creation. A rejection names each action that failed.
    ///
    /// This is one request if nothing is stored under the address. Leftovers of an earlier record reject that request:
    /// they show that Fluree's commit log may have outlived its ledger, so it is swept while there is still no record,
    /// and the next transaction overwrites the items. An interruption in between leaves no record.
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
                let failed = match orphans {
                    Orphans::Reject => failed,
                    Orphans::Overwrite => self.with_record(operation, address, failed, attempts).await?,
                };
                return Ok(Outcome::Rejected(failed));
            }
            self.clear_commits(operation, address, NO_COMMITS, None, attempts).await?;
            orphans = Orphans::Overwrite;
        }
        Err(contended(operation, *attempts))
    }
}

impl Store {
    /// Adds the items of the record that rejected a creation over leftovers: the conditions on its concerns do not return
    /// them.
    async fn with_record(
        &self,
        operation: &'static str,
        address: &Address,
        mut failed: Vec<(Part, Failed)>,
        attempts: &mut Attempts,
    ) -> Result<Vec<(Part, Failed)>> {
        if rejected_at(&failed, &Part::Meta).is_none() {
            return Ok(failed);
        }
        let record = self.look_up(operation, address, attempts).await?;
        if record.meta().is_some() {
            failed.retain(|(part, _)| !matches!(part, Part::Meta | Part::Concern(_)));
            let part = |sk: &str| match sk {
                SK_META => Some(Part::Meta),
                sk => concern_of(sk).map(Part::Concern),
            };
            let items = record.items.into_iter().filter_map(|(sk, item)| Some((part(&sk)?, Failed(Some(item)))));
            failed.extend(items);
        }
        Ok(failed)
    }
}

/// Returns whether a creation was rejected only by leftovers of an earlier record.
fn by_leftovers_alone(failed: &[(Part, Failed)], call: &Call) -> bool {
    let reuses_key =
        |Failed(item): &Failed| item.as_ref().is_some_and(|item| items::reuses_key(item, &call.request_id));
    failed.iter().all(|(part, failed)| matches!(part, Part::Concern(_) | Part::Log) && !reuses_key(failed))
        && !any_remembers(failed, call)
}
