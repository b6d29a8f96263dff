//! Transactions of several operations (docs/specification.md, Operations), and pushes under a lease, which are transactions of
//! one.
//!
//! Operations on the same item are merged into one action. A rejected transaction returns the items whose conditions failed;
//! each operation is then judged like a push of its own, and planned again where its plan was too narrow.

use std::collections::BTreeMap;

use nameservice_model::{
    Call, Committed, ConcernKind, ConcernState, Operation, OperationKind, OperationOutcome, Push, RecordKind, Result,
};

use crate::{
    Store,
    client::{Attempts, Failed, MAX_PLANS, contended},
    concern::{Concern, ConfigConcern, HeadConcern, IndexConcern, Judgement, StatusConcern, value_as_seen},
    expressions::{Expression, Key},
    items::{self, Item},
    records::check_key,
    schema::*,
};

/// An operation, whichever concern it is about.
trait Planned: Send + Sync {
    /// Adds its conditions and updates; gives what it counts on to have found.
    fn plan(&self, expression: &mut Expression, seen: Option<&Item>) -> Item;
    fn judge(&self, item: &Item) -> Judgement;
    fn read(&self, item: &Item) -> ConcernState;
    fn written(&self, found: &Item) -> ConcernState;
    /// The value that it has left on an item that no other push of ours has written since.
    fn left_by(&self, item: &Item) -> ConcernState;
    /// The condition that the concern is as it is on this item.
    fn unchanged(&self, expression: &mut Expression, item: &Item);
    /// Whether it cannot be planned without knowing the item.
    fn must_see(&self) -> bool;
    fn foreign(&self, item: &Item) -> bool;
    fn not_foreign(&self, expression: &mut Expression);
    fn belongs_to(&self, kind: RecordKind) -> bool;
    fn writes(&self) -> bool;
}

struct Pushing<'a, C: Concern>(&'a Push<C::Payload, C::New>);

impl<C: Concern> Planned for Pushing<'_, C> {
    fn plan(&self, expression: &mut Expression, seen: Option<&Item>) -> Item {
        C::plan(expression, self.0, seen);
        match seen {
            Some(item) => item.clone(),
            None => C::pin(expression, self.0),
        }
    }

    fn judge(&self, item: &Item) -> Judgement {
        C::judge(item, self.0)
    }

    fn read(&self, item: &Item) -> ConcernState {
        C::state(C::read(item))
    }

    fn written(&self, found: &Item) -> ConcernState {
        C::state(C::written(found, self.0))
    }

    fn left_by(&self, item: &Item) -> ConcernState {
        C::state(C::left_by(item, self.0))
    }

    fn unchanged(&self, expression: &mut Expression, item: &Item) {
        value_as_seen::<C>(expression, item);
    }

    fn must_see(&self) -> bool {
        C::must_see(self.0)
    }

    fn foreign(&self, item: &Item) -> bool {
        C::foreign(item)
    }

    fn not_foreign(&self, expression: &mut Expression) {
        C::not_foreign(expression);
    }

    fn belongs_to(&self, kind: RecordKind) -> bool {
        C::belongs_to(kind)
    }

    fn writes(&self) -> bool {
        true
    }
}

struct Checking<C: Concern>(nameservice_model::ConcernValue<C::Payload>);

impl<C: Concern> Planned for Checking<C> {
    fn plan(&self, expression: &mut Expression, seen: Option<&Item>) -> Item {
        match seen {
            // One value can be written in more ways than the expectation of it knows.
            Some(item) => self.unchanged(expression, item),
            None => C::expect(expression, &self.0),
        }
        seen.cloned().unwrap_or_default()
    }

    fn judge(&self, item: &Item) -> Judgement {
        if C::matches(item, &self.0) { Judgement::Admissible } else { Judgement::Conflict }
    }

    fn read(&self, item: &Item) -> ConcernState {
        C::state(C::read(item))
    }

    fn written(&self, found: &Item) -> ConcernState {
        self.read(found)
    }

    fn left_by(&self, item: &Item) -> ConcernState {
        self.read(item)
    }

    fn unchanged(&self, expression: &mut Expression, item: &Item) {
        value_as_seen::<C>(expression, item);
    }

    fn must_see(&self) -> bool {
        false
    }

    fn foreign(&self, _item: &Item) -> bool {
        false
    }

    fn not_foreign(&self, _expression: &mut Expression) {}

    fn belongs_to(&self, kind: RecordKind) -> bool {
        concerns_of(kind).contains(&C::KIND)
    }

    fn writes(&self) -> bool {
        false
    }
}

fn planned(operation: &OperationKind) -> Box<dyn Planned + '_> {
    match operation {
        OperationKind::PushHead(push) => Box::new(Pushing::<HeadConcern>(push)),
        OperationKind::PushIndex(push) => Box::new(Pushing::<IndexConcern>(push)),
        OperationKind::PushStatus(push) => Box::new(Pushing::<StatusConcern>(push)),
        OperationKind::PushConfig(push) => Box::new(Pushing::<ConfigConcern>(push)),
        OperationKind::Check(ConcernState::Head(value)) => Box::new(Checking::<HeadConcern>(value.clone())),
        OperationKind::Check(ConcernState::Index(value)) => Box::new(Checking::<IndexConcern>(value.clone())),
        OperationKind::Check(ConcernState::Status(value)) => Box::new(Checking::<StatusConcern>(value.clone())),
        OperationKind::Check(ConcernState::Config(value)) => Box::new(Checking::<ConfigConcern>(value.clone())),
    }
}

/// What is known of an operation's item, from refusal to refusal.
#[derive(Clone, Debug)]
enum Stage {
    /// Nothing.
    Unseen,
    /// It looks like this, and the operation may be applied to it.
    Seen(Item),
    /// It looks like this, and holds already what the operation would bring.
    InPlace(Item),
    /// The record is of this kind, and lacks the item.
    Missing(RecordKind),
}

struct Pending<'a> {
    operation: &'a Operation,
    planned: Box<dyn Planned + 'a>,
    stage: Stage,
    /// What the plan counts on to find, once it is made.
    found: Item,
}

impl Pending<'_> {
    fn key(&self) -> Key {
        Key::new(&self.operation.address, sk_of(self.operation.action.concern()))
    }

    fn lease(&self) -> Option<&nameservice_model::LeaseClaim> {
        self.operation.action.lease()
    }
}

/// All that is asked of one item.
#[derive(Default)]
struct Slot {
    expression: Expression,
    writes: bool,
}

/// Items by partition and sort key.
type Slots = BTreeMap<(String, String), Slot>;

fn slot<'a>(slots: &'a mut Slots, key: &Key) -> &'a mut Slot {
    slots.entry((key.pk.clone(), key.sk.clone())).or_default()
}

impl Store {
    /// Commits operations on different concerns. The caller has checked that they are.
    pub(crate) async fn commit_operations(
        &self,
        name: &'static str,
        call: &Call,
        operations: &[Operation],
    ) -> Result<Committed> {
        let now = self.now_ms();
        let mut pending: Vec<Pending<'_>> = operations
            .iter()
            .map(|operation| Pending {
                operation,
                planned: planned(&operation.action),
                stage: Stage::Unseen,
                found: Item::new(),
            })
            .collect();
        let mut attempts = Attempts::default();
        for _ in 0..MAX_PLANS {
            let slots = plan(&mut pending, call, now);
            let actions = slots
                .into_iter()
                .map(|((pk, sk), Slot { expression, writes })| {
                    let key = Key { pk, sk };
                    let action = if writes { expression.into_update(&key) } else { expression.into_check(&key) };
                    (key, action)
                })
                .collect();
            let failed = match self.transact(name, actions, &mut attempts).await? {
                Ok(()) => return Ok(Committed::Committed(pending.iter().map(done).collect())),
                Err(failed) => failed,
            };
            let remembered = failed
                .iter()
                .any(|(_, Failed(item))| item.as_ref().is_some_and(|item| items::remembers(item, &call.request_id)));
            if remembered {
                let outcomes = pending.iter().map(|pending| repeated(pending, &failed, call, attempts));
                return Ok(Committed::Committed(outcomes.collect()));
            }
            check_key(name, &failed, call, attempts)?;
            let mut outcomes = Vec::with_capacity(pending.len());
            for pending in &mut pending {
                outcomes.push(self.judge_operation(name, pending, &failed, now).await?);
            }
            if outcomes.iter().any(OperationOutcome::rejects) {
                return attempts.refuse(name, Committed::Rejected(outcomes));
            }
        }
        Err(contended(name, attempts))
    }

    /// What a refused transaction means for one operation; [`OperationOutcome::Passed`] where it does not stand in the
    /// way, perhaps after it is planned anew.
    async fn judge_operation(
        &self,
        name: &'static str,
        pending: &mut Pending<'_>,
        failed: &[(Key, Failed)],
        now: i64,
    ) -> Result<OperationOutcome> {
        let at = |key: Key| failed.iter().find(|(at, _)| *at == key).map(|(_, failed)| failed);
        let address = &pending.operation.address;
        let own = at(pending.key());
        // The status item refuses for the lease as well as for a status push.
        if let Some(claim) = pending.lease()
            && let Some(Failed(status)) = at(Key::new(address, sk_of(ConcernKind::Status)))
        {
            let held = status.as_ref().and_then(items::held);
            let current = held.as_ref().is_some_and(|held| {
                held.token == claim.token
                    && held.lease.name == claim.name
                    && held.lease.holder == claim.holder
                    && held.lease.expires_at > now.div_euclid(1000)
            });
            if let Some(status) = status {
                if items::flag(status, ATTR_RETRACTED) {
                    return Ok(OperationOutcome::Retracted);
                }
                if !current {
                    return Ok(OperationOutcome::LeaseLost { lease: held.map(|held| held.lease) });
                }
                // Another operation has refused, or this one for another reason.
            } else {
                let known = self.read_record(name, address).await?.meta().is_some();
                return Ok(if known { OperationOutcome::LeaseLost { lease: None } } else { OperationOutcome::Unknown });
            }
        }
        match own {
            None => {
                if at(Key::meta(address)).is_some() {
                    // The record has changed under a plan for its missing item.
                    pending.stage = Stage::Unseen;
                }
                Ok(OperationOutcome::Passed)
            }
            Some(Failed(Some(item))) => Ok(judged(pending, item, |item| Stage::Seen(item.clone()))),
            Some(Failed(None)) => {
                let items = self.read_record(name, address).await?;
                let Some((meta, kind)) = items.meta() else { return Ok(OperationOutcome::Unknown) };
                if !pending.planned.belongs_to(kind) {
                    return Ok(OperationOutcome::WrongKind(kind));
                }
                if pending.planned.writes() && items::flag(meta, ATTR_RETRACTED) {
                    return Ok(OperationOutcome::Retracted);
                }
                if items.concern(pending.operation.action.concern()).is_some() {
                    pending.stage = Stage::Unseen;
                    return Ok(OperationOutcome::Passed);
                }
                Ok(judged(pending, &Item::new(), |_| Stage::Missing(kind)))
            }
        }
    }
}

/// Merges all operations into one action an item.
fn plan(pending: &mut [Pending<'_>], call: &Call, now: i64) -> Slots {
    let mut slots = Slots::new();
    for pending in pending {
        let address = &pending.operation.address;
        if let Some(claim) = pending.lease() {
            let expression = &mut slot(&mut slots, &Key::new(address, sk_of(ConcernKind::Status))).expression;
            expression.live();
            expression.lease_is(claim);
            expression.lease_outlives(now.div_euclid(1000));
        }
        if let Stage::Missing(kind) = pending.stage {
            let expression = &mut slot(&mut slots, &Key::meta(address)).expression;
            expression.kind_is(kind);
            if pending.planned.writes() {
                expression.live();
            }
        }
        let slot = slot(&mut slots, &pending.key());
        let expression = &mut slot.expression;
        match &pending.stage {
            Stage::Missing(_) => expression.not_exists(ATTR_PK),
            _ => expression.exists(ATTR_PK),
        }
        let writes = pending.planned.writes() && !matches!(pending.stage, Stage::InPlace(_));
        if pending.planned.writes() {
            expression.live();
            pending.planned.not_foreign(expression);
        }
        pending.found = match &pending.stage {
            // What always refuses brings the item to look at.
            Stage::Unseen if pending.planned.must_see() => {
                expression.not_exists(ATTR_PK);
                Item::new()
            }
            Stage::Unseen => pending.planned.plan(expression, None),
            Stage::Seen(item) => pending.planned.plan(expression, Some(item)),
            Stage::Missing(_) => pending.planned.plan(expression, Some(&Item::new())),
            Stage::InPlace(item) => {
                pending.planned.unchanged(expression, item);
                item.clone()
            }
        };
        if writes {
            expression.by_call(&call.request_id);
            expression.touch(now);
            slot.writes = true;
        }
    }
    slots
}

/// The outcome of an operation of a committed transaction.
fn done(pending: &Pending<'_>) -> OperationOutcome {
    match (&pending.stage, pending.planned.writes()) {
        (_, false) => OperationOutcome::Passed,
        (Stage::InPlace(item), true) => OperationOutcome::Updated { value: pending.planned.read(item), replayed: true },
        (_, true) => OperationOutcome::Updated { value: pending.planned.written(&pending.found), replayed: false },
    }
}

/// The outcome of an operation of a transaction that an earlier attempt, or an earlier call of the same identity, had
/// committed.
fn repeated(pending: &Pending<'_>, failed: &[(Key, Failed)], call: &Call, attempts: Attempts) -> OperationOutcome {
    if !pending.planned.writes() {
        return OperationOutcome::Passed;
    }
    let item = failed.iter().find(|(key, _)| *key == pending.key()).and_then(|(_, Failed(item))| item.as_ref());
    let value = match item.filter(|item| items::written_last_by(item, &call.request_id)) {
        Some(item) => pending.planned.left_by(item),
        None => pending.planned.written(&pending.found),
    };
    OperationOutcome::Updated { value, replayed: !attempts.uncertain }
}

fn judged(pending: &mut Pending<'_>, item: &Item, admissible: impl FnOnce(&Item) -> Stage) -> OperationOutcome {
    if pending.planned.writes() && items::flag(item, ATTR_RETRACTED) {
        return OperationOutcome::Retracted;
    }
    if pending.planned.foreign(item) {
        return OperationOutcome::WrongKind(RecordKind::GraphSource);
    }
    let actual = pending.planned.read(item);
    match pending.planned.judge(item) {
        Judgement::Stale => OperationOutcome::Stale { actual },
        Judgement::Conflict => OperationOutcome::Conflict { actual: Some(actual) },
        Judgement::InPlace => {
            pending.stage = Stage::InPlace(item.clone());
            OperationOutcome::Passed
        }
        Judgement::Admissible => {
            pending.stage = admissible(item);
            OperationOutcome::Passed
        }
    }
}
