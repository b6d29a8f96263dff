//! Transactions of several operations (docs/specification.md, Operations), and pushes under a lease, which are transactions of
//! a single one.
//!
//! Operations on the same item are merged into one action. A rejected transaction returns the items whose conditions
//! failed; each operation is then judged like a single push, and planned again if its conditions were too strict.

use std::collections::BTreeMap;

use nameservice_model::{
    Address, Call, Committed, ConcernKind, ConcernState, Judgement, Lease, LeaseClaim, Operation, OperationOutcome,
    Push, PushOutcome, RecordKind, Result, is_held_until,
};

use crate::{
    Store,
    client::{Attempts, Failed, MAX_PLANS, Outcome, Reject, contended, limit_reached},
    concern::Concern,
    expressions::{Expression, Key},
    items::{self, Item},
    planned::{Planned, Pushing, planned},
    push::{revision_unknown, shows_record},
    records::check_key,
    schema::*,
};

/// What is known about an operation's item after the rejections so far.
#[derive(Clone, Debug)]
enum Stage {
    /// Nothing.
    Unseen,
    /// The stored item, to which the operation may be applied; empty if the record lacks it.
    Seen(Item),
    /// The stored item, which already has the value that the operation would write.
    Current(Item),
}

/// The result of a transaction for one operation.
enum Verdict<V> {
    /// It does not reject the transaction: it wrote nothing, or can be planned again.
    Passed,
    Updated {
        value: V,
        replayed: bool,
    },
    Stale {
        actual: V,
    },
    Conflict {
        actual: V,
    },
    Retracted,
    WrongKind(RecordKind),
    LeaseLost {
        lease: Option<Lease>,
    },
    Unknown,
}

impl<V> Verdict<V> {
    fn rejects(&self) -> bool {
        !matches!(self, Self::Passed | Self::Updated { .. })
    }
}

impl From<Verdict<ConcernState>> for OperationOutcome {
    fn from(verdict: Verdict<ConcernState>) -> Self {
        match verdict {
            Verdict::Passed => Self::Passed,
            Verdict::Updated { value, replayed } => Self::Updated { value, replayed },
            Verdict::Stale { actual } => Self::Stale { actual },
            Verdict::Conflict { actual } => Self::Conflict { actual: Some(actual) },
            Verdict::Retracted => Self::Retracted,
            Verdict::WrongKind(kind) => Self::WrongKind(kind),
            Verdict::LeaseLost { lease } => Self::LeaseLost { lease },
            Verdict::Unknown => Self::Unknown,
        }
    }
}

/// An operation of a transaction that is being planned.
struct Pending<'a, V> {
    address: &'a Address,
    concern: ConcernKind,
    /// The lease that it requires.
    lease: Option<&'a LeaseClaim>,
    planned: Box<dyn Planned<V> + 'a>,
    stage: Stage,
    /// The meta item of the record, if the operation's own item does not show by itself that it belongs to one.
    meta: Option<Item>,
    /// The item that the plan relies on to be stored, once there is a plan.
    found: Item,
}

impl<'a, V> Pending<'a, V> {
    fn new(
        address: &'a Address,
        concern: ConcernKind,
        lease: Option<&'a LeaseClaim>,
        planned: Box<dyn Planned<V> + 'a>,
    ) -> Self {
        Self { address, concern, lease, planned, stage: Stage::Unseen, meta: None, found: Item::new() }
    }

    fn key(&self) -> Key {
        Key::new(self.address, sk_of(self.concern))
    }

    /// Returns whether its item shows that it belongs to a record.
    fn accepts(&self, item: &Item) -> bool {
        self.lease_shows_kind() || shows_record(item)
    }

    /// Returns whether the lease shows that the record has this concern. It shows the record, and only ledgers have heads:
    /// a head item that we have not written may be left under a graph source.
    fn lease_shows_kind(&self) -> bool {
        self.lease.is_some() && self.concern != ConcernKind::Head
    }
}

/// Everything that a transaction does to one item.
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
    /// Commits operations. The caller has checked that they are about different concerns.
    pub(crate) async fn commit_operations(
        &self,
        name: &'static str,
        call: &Call,
        operations: &[Operation],
    ) -> Result<Committed> {
        let pending = operations.iter().map(|Operation { address, action, .. }| {
            Pending::new(address, action.concern(), action.lease(), planned(action))
        });
        let outcomes =
            |verdicts: Vec<Verdict<ConcernState>>| verdicts.into_iter().map(OperationOutcome::from).collect();
        Ok(match self.commit_pending(name, call, pending.collect()).await? {
            Outcome::Applied(verdicts) => Committed::Committed(outcomes(verdicts)),
            Outcome::Rejected(verdicts) => Committed::Rejected(outcomes(verdicts)),
        })
    }

    /// Applies a push under a lease: a transaction that also checks the token.
    pub(crate) async fn push_fenced<C: Concern>(
        &self,
        call: &Call,
        address: &Address,
        push: &Push<C::Payload, C::New>,
    ) -> Result<PushOutcome<C::Payload>> {
        let planned = Pushing::<C, _> { push, value: |value| value };
        let pending = Pending::new(address, C::KIND, push.lease(), Box::new(planned));
        let (Outcome::Applied(mut verdicts) | Outcome::Rejected(mut verdicts)) =
            self.commit_pending(C::OPERATION, call, vec![pending]).await?;
        Ok(match verdicts.pop() {
            Some(Verdict::Updated { value, replayed }) => PushOutcome::Updated { value, replayed },
            Some(Verdict::Stale { actual }) => PushOutcome::Stale { actual },
            Some(Verdict::Conflict { actual }) => PushOutcome::Conflict { actual: Some(actual) },
            Some(Verdict::Retracted) => PushOutcome::Retracted,
            Some(Verdict::WrongKind(kind)) => PushOutcome::WrongKind(kind),
            Some(Verdict::LeaseLost { lease }) => PushOutcome::LeaseLost { lease },
            Some(Verdict::Unknown) => PushOutcome::Unknown,
            // One operation has one verdict, and a push never merely passes.
            Some(Verdict::Passed) | None => return Err(contended(C::OPERATION, Attempts::default())),
        })
    }

    async fn commit_pending<V: Send>(
        &self,
        name: &'static str,
        call: &Call,
        mut pending: Vec<Pending<'_, V>>,
    ) -> Result<Outcome<Vec<Verdict<V>>, Vec<Verdict<V>>>> {
        let now = self.now_ms();
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
                Outcome::Applied(()) => return Ok(Outcome::Applied(pending.iter().map(done).collect())),
                Outcome::Rejected(failed) => failed,
            };
            let remembered = failed
                .iter()
                .any(|(_, Failed(item))| item.as_ref().is_some_and(|item| items::remembers(item, &call.request_id)));
            if remembered {
                let outcomes = pending.iter().map(|pending| repeated(name, pending, &failed, call, attempts));
                return Ok(Outcome::Applied(outcomes.collect::<Result<_>>()?));
            }
            // An item that is only read, for its lease too, remembers no key of this operation.
            let of_writes = |key: &Key| pending.iter().any(|pending| pending.planned.writes() && pending.key() == *key);
            let written = failed.iter().filter(|(key, _)| of_writes(key)).map(|(_, failed)| failed);
            check_key(name, written, call, attempts)?;
            let mut outcomes = Vec::with_capacity(pending.len());
            for pending in &mut pending {
                outcomes.push(self.judge_operation(name, pending, &failed, now, &mut attempts).await?);
            }
            if outcomes.iter().any(Verdict::rejects) {
                return attempts.reject(name, Outcome::Rejected(outcomes));
            }
            let limit = pending.iter().find_map(|pending| match &pending.stage {
                Stage::Seen(item) => pending.planned.limit(item),
                Stage::Unseen | Stage::Current(_) => None,
            });
            if let Some(counter) = limit {
                return Err(limit_reached(name, counter, attempts));
            }
        }
        Err(contended(name, attempts))
    }

    /// Returns what a rejected transaction means for one operation: [`Verdict::Passed`] if the operation is not a
    /// reason for the rejection. It may have to be planned again.
    async fn judge_operation<V: Send>(
        &self,
        name: &'static str,
        pending: &mut Pending<'_, V>,
        failed: &[(Key, Failed)],
        now: i64,
        attempts: &mut Attempts,
    ) -> Result<Verdict<V>> {
        let at = |key: Key| failed.iter().find(|(at, _)| *at == key).map(|(_, failed)| failed);
        let address = pending.address;
        let own = at(pending.key());
        // The status item can reject because of the lease or because of a status push.
        if let Some(claim) = pending.lease
            && let Some(Failed(status)) = at(Key::new(address, sk_of(ConcernKind::Status)))
        {
            let held = status.as_ref().and_then(items::held);
            let current = held.as_ref().is_some_and(|held| {
                held.token == claim.token
                    && held.lease.name == claim.name
                    && held.lease.holder == claim.holder
                    && is_held_until(held.lease.expires_at, now.div_euclid(1000))
            });
            if status.as_ref().is_some_and(|status| items::flag(status, ATTR_RETRACTED)) {
                return Ok(Verdict::Retracted);
            }
            if !current {
                let lost = Verdict::LeaseLost { lease: held.map(|held| held.lease) };
                if status.as_ref().is_some_and(items::is_ours) {
                    return Ok(lost);
                }
                return Ok(match self.look_up(name, address, attempts).await?.meta() {
                    None => Verdict::Unknown,
                    Some((meta, _)) if items::flag(meta, ATTR_RETRACTED) => Verdict::Retracted,
                    Some(_) => lost,
                });
            }
            // Another operation was rejected, or this one for another reason.
        }
        match own {
            None => {
                if at(Key::meta(address)).is_some() {
                    // The record has changed since the plan was made from its meta item.
                    (pending.stage, pending.meta) = (Stage::Unseen, None);
                }
                Ok(Verdict::Passed)
            }
            Some(Failed(Some(item))) if pending.accepts(item) => {
                pending.meta = None;
                Ok(judged(pending, item))
            }
            Some(Failed(_)) => {
                let items = self.look_up(name, address, attempts).await?;
                let Some((meta, kind)) = items.meta() else { return Ok(Verdict::Unknown) };
                if !concerns_of(kind).contains(&pending.concern) {
                    return Ok(Verdict::WrongKind(kind));
                }
                let item = items.concern_or_empty(pending.concern);
                if !item.is_empty() && pending.accepts(&item) {
                    (pending.stage, pending.meta) = (Stage::Unseen, None);
                    return Ok(Verdict::Passed);
                }
                if pending.planned.writes() && items::flag(meta, ATTR_RETRACTED) {
                    return Ok(Verdict::Retracted);
                }
                if !pending.planned.belongs_to(kind) {
                    return Ok(Verdict::WrongKind(kind));
                }
                pending.meta = Some(meta.clone());
                Ok(judged(pending, &item))
            }
        }
    }
}

/// Merges all operations into one action per item.
fn plan<V>(pending: &mut [Pending<'_, V>], call: &Call, now: i64) -> Slots {
    let mut slots = Slots::new();
    for pending in pending {
        let address = pending.address;
        if let Some(claim) = pending.lease {
            let expression = &mut slot(&mut slots, &Key::new(address, sk_of(ConcernKind::Status))).expression;
            expression.live();
            expression.lease_is(claim);
            expression.lease_outlives(now.div_euclid(1000));
        }
        // A current lease shows the record too. So a transaction has at most two actions for each operation.
        if let Some(meta) = pending.meta.as_ref().filter(|_| pending.lease.is_none()) {
            let expression = &mut slot(&mut slots, &Key::meta(address)).expression;
            expression.same_record(meta);
            if pending.planned.writes() {
                expression.live();
            }
        }
        let slot = slot(&mut slots, &pending.key());
        let expression = &mut slot.expression;
        match &pending.stage {
            Stage::Seen(item) if item.is_empty() => expression.not_exists(ATTR_PK),
            _ if pending.lease_shows_kind() || pending.meta.is_some() => expression.exists(ATTR_PK),
            _ => expression.exists(ATTR_REQUEST_IDS[0]),
        }
        let writes = pending.planned.writes() && !matches!(pending.stage, Stage::Current(_));
        if pending.planned.writes() {
            expression.live();
            pending.planned.not_foreign(expression);
        }
        pending.found = match &pending.stage {
            // A condition that always fails, so that the rejection returns the item.
            Stage::Unseen if pending.planned.requires_read() => {
                expression.not_exists(ATTR_PK);
                Item::new()
            }
            Stage::Unseen => pending.planned.plan(expression, None),
            Stage::Seen(item) => pending.planned.plan(expression, Some(item)),
            Stage::Current(item) => {
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

/// Returns the outcome of an operation of a committed transaction.
fn done<V>(pending: &Pending<'_, V>) -> Verdict<V> {
    match (&pending.stage, pending.planned.writes()) {
        (_, false) => Verdict::Passed,
        (Stage::Current(item), true) => Verdict::Updated { value: pending.planned.read(item), replayed: true },
        (_, true) => Verdict::Updated { value: pending.planned.written(&pending.found), replayed: false },
    }
}

/// Returns the outcome of an operation of a transaction that an earlier attempt, or an earlier call with the same
/// identity, has committed; an error if the value that it wrote cannot be known.
fn repeated<V>(
    name: &'static str,
    pending: &Pending<'_, V>,
    failed: &[(Key, Failed)],
    call: &Call,
    attempts: Attempts,
) -> Result<Verdict<V>> {
    let planned = &pending.planned;
    // An operation that this call found to be current has written nothing that could be recognised.
    if !planned.writes() || matches!(pending.stage, Stage::Current(_)) {
        return Ok(done(pending));
    }
    let seen = if let Stage::Seen(item) = &pending.stage { Some(item) } else { None };
    let item = failed.iter().find(|(key, _)| *key == pending.key()).and_then(|(_, Failed(item))| item.as_ref());
    if let Some(item) = item {
        if let Some(value) = planned.recalled(name, item, call, attempts, seen)? {
            return Ok(Verdict::Updated { value, replayed: !attempts.uncertain });
        }
        if planned.judge(item) == Judgement::Current {
            return Ok(Verdict::Updated { value: planned.read(item), replayed: true });
        }
    }
    // The item has forgotten the call, or had the value already when the transaction was committed. Both leave the pushed value,
    // of an index with a revision that is not known.
    match pending.concern {
        ConcernKind::Index => Err(revision_unknown(name)),
        _ => {
            let replayed = seen.is_none() || !attempts.uncertain;
            Ok(Verdict::Updated { value: planned.written(&pending.found), replayed })
        }
    }
}

fn judged<V>(pending: &mut Pending<'_, V>, item: &Item) -> Verdict<V> {
    if pending.planned.writes() && items::flag(item, ATTR_RETRACTED) {
        return Verdict::Retracted;
    }
    if pending.planned.foreign(item) {
        return Verdict::WrongKind(RecordKind::GraphSource);
    }
    let actual = pending.planned.read(item);
    match pending.planned.judge(item) {
        Judgement::Stale => Verdict::Stale { actual },
        Judgement::Conflict => Verdict::Conflict { actual },
        Judgement::Current => {
            pending.stage = Stage::Current(item.clone());
            Verdict::Passed
        }
        Judgement::Admissible => {
            pending.stage = Stage::Seen(item.clone());
            Verdict::Passed
        }
    }
}
