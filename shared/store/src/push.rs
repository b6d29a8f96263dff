//! The one path by which a concern is read and pushed, whichever concern it is.
//!
//! A push is a single conditional update. What a rejection means is judged from the item that it returns:
//! [`Concern::plan`] expresses in conditions for DynamoDB what the model's `judge` of a push decides.

use nameservice_model::{
    Address, Call, ConcernValue, Error, Judgement, Push, PushOutcome, RecordAttributes, RecordKind, Result,
};

use crate::{
    Store,
    client::{Attempts, MAX_PLANS, Outcome, Reject, contended, key_reused, limit_reached},
    concern::Concern,
    creation::NewLedger,
    expressions::{Expression, Key},
    items::{self, Item, RecordItems},
    records::{Part, any_remembers, check_key, found, own},
    schema::*,
};

impl Store {
    /// Reads one concern; `None` if there is no record, or no such concern.
    pub(crate) async fn get<C: Concern>(&self, address: &Address) -> Result<Option<ConcernValue<C::Payload>>> {
        let items = self.read_record("read a concern", address).await?;
        let Some((_, kind)) = items.meta() else { return Ok(None) };
        let has = concerns_of(kind).contains(&C::KIND);
        Ok(has.then(|| C::read(&items.concern_or_empty(C::KIND))))
    }

    /// Pushes one concern.
    pub(crate) async fn push<C: Concern>(
        &self,
        call: &Call,
        address: &Address,
        push: &Push<C::Payload, C::New>,
    ) -> Result<PushOutcome<C::Payload>> {
        if push.creates() {
            return self.create_by_push::<C>(call, address, push.desired()).await;
        }
        if push.lease().is_some() {
            return self.push_fenced::<C>(call, address, push).await;
        }
        let key = Key::new(address, sk_of(C::KIND));
        let now = self.now_ms();
        let mut attempts = Attempts::default();
        let mut seen = None;
        for _ in 0..MAX_PLANS {
            let row = if seen.is_none() && C::requires_read(push) {
                let item = self.within(C::OPERATION, &mut attempts, self.get_item(C::OPERATION, &key)).await?;
                Some(item).filter(|item| !item.is_empty())
            } else {
                let mut expression = Expression::new();
                // Only a row that we have written shows alone that it belongs to a record.
                expression.exists(ATTR_REQUEST_IDS[0]);
                expression.live();
                C::not_foreign(&mut expression);
                C::plan(&mut expression, push, seen.as_ref());
                expression.by_call(&call.request_id);
                expression.touch(now);
                match self.update(C::OPERATION, expression, &key, &mut attempts).await? {
                    Outcome::Applied(item) => {
                        return Ok(PushOutcome::Updated { value: C::read(&item), replayed: false });
                    }
                    Outcome::Rejected(row) => row,
                }
            };
            match row.filter(shows_record) {
                Some(item) => match rejected::<C>(&item, call, push, attempts, seen.as_ref())? {
                    Some(outcome) => return Ok(outcome),
                    None => seen = Some(item),
                },
                None => match self.push_unclaimed_row::<C>(call, address, push, &mut attempts, now).await? {
                    Some(outcome) => return Ok(outcome),
                    None => seen = None,
                },
            }
        }
        Err(contended(C::OPERATION, attempts))
    }

    /// Handles a rejection without an item that shows its record: there is no such record, or one that others have
    /// created lacks this row, or has written it. Then a transaction that checks the record writes the row. Returns `None`
    /// if the row or the record has changed meanwhile.
    async fn push_unclaimed_row<C: Concern>(
        &self,
        call: &Call,
        address: &Address,
        push: &Push<C::Payload, C::New>,
        attempts: &mut Attempts,
        now: i64,
    ) -> Result<Option<PushOutcome<C::Payload>>> {
        let items = self.look_up(C::OPERATION, address, attempts).await?;
        let Some((meta, kind)) = items.meta() else {
            return attempts.reject(C::OPERATION, Some(PushOutcome::Unknown));
        };
        if !concerns_of(kind).contains(&C::KIND) {
            return attempts.reject(C::OPERATION, Some(PushOutcome::WrongKind(kind)));
        }
        let found = items.concern_or_empty(C::KIND);
        if items::is_ours(&found) {
            return Ok(None);
        }
        if items::flag(meta, ATTR_RETRACTED) {
            return attempts.reject(C::OPERATION, Some(PushOutcome::Retracted));
        }
        if !C::belongs_to(kind) {
            return attempts.reject(C::OPERATION, Some(PushOutcome::WrongKind(kind)));
        }
        if let Some(outcome) = rejected::<C>(&found, call, push, *attempts, None)? {
            return Ok(Some(outcome));
        }
        let mut check = Expression::new();
        check.same_record(meta);
        check.live();
        let mut row = Expression::new();
        if found.is_empty() {
            row.not_exists(ATTR_PK);
        } else {
            row.exists(ATTR_PK);
            row.live();
        }
        C::plan(&mut row, push, Some(&found));
        row.by_call(&call.request_id);
        row.touch(now);
        let actions = vec![
            (Part::Meta, check.into_check(&Key::meta(address))),
            (Part::Concern(C::KIND), row.into_update(&Key::new(address, sk_of(C::KIND)))),
        ];
        match self.transact(C::OPERATION, actions, attempts).await? {
            Outcome::Applied(()) => Ok(Some(PushOutcome::Updated { value: C::written(&found, push), replayed: false })),
            Outcome::Rejected(_) => Ok(None),
        }
    }

    /// Applies a push that expects no record: creates a ledger with the new value.
    async fn create_by_push<C: Concern>(
        &self,
        call: &Call,
        address: &Address,
        new: &C::New,
    ) -> Result<PushOutcome<C::Payload>> {
        let ledger = NewLedger::new(address, &RecordAttributes::default(), call, self.now_ms()).with::<C>(new);
        let mut attempts = Attempts::default();
        let created =
            self.create(C::OPERATION, call, address, &mut attempts, |orphans| ledger.actions(orphans)).await?;
        let asked = ledger.into_items().concern_or_empty(C::KIND);
        let failed = match created {
            Outcome::Applied(()) => return Ok(PushOutcome::Updated { value: C::read(&asked), replayed: false }),
            Outcome::Rejected(failed) => failed,
        };
        let found = found(&failed);
        let row = found.as_ref().map(|found| found.concern_or_empty(C::KIND)).unwrap_or_default();
        if any_remembers(&failed, call) {
            return Ok(PushOutcome::Updated { value: C::read(&asked), replayed: !attempts.uncertain });
        }
        check_key(C::OPERATION, own(&failed), call, attempts)?;
        // Otherwise a meta item of an unknown kind occupies the address. It is not a record, and cannot be replaced.
        let Some((meta, kind)) = found.as_ref().and_then(RecordItems::meta) else {
            return Err(contended(C::OPERATION, attempts));
        };
        if C::same(&row, &asked) && !items::flag(meta, ATTR_RETRACTED) && C::belongs_to(kind) {
            return Ok(PushOutcome::Updated { value: C::read(&row), replayed: true });
        }
        let rejection = if !C::belongs_to(kind) {
            PushOutcome::WrongKind(kind)
        } else if items::flag(meta, ATTR_RETRACTED) {
            PushOutcome::Retracted
        } else {
            PushOutcome::Conflict { actual: Some(C::read(&row)) }
        };
        attempts.reject(C::OPERATION, rejection)
    }
}

/// Returns the outcome of a rejected push; `None` if it may be planned again from the item. `planned` is the item that
/// the rejected plan was made for, if there was one.
fn rejected<C: Concern>(
    item: &Item,
    call: &Call,
    push: &Push<C::Payload, C::New>,
    attempts: Attempts,
    planned: Option<&Item>,
) -> Result<Option<PushOutcome<C::Payload>>> {
    if items::reuses_key(item, &call.request_id) {
        return Err(key_reused(C::OPERATION, attempts));
    }
    if let Some(value) = recalled::<C>(C::OPERATION, item, call, push, attempts, planned)? {
        return Ok(Some(PushOutcome::Updated { value, replayed: !attempts.uncertain }));
    }
    if items::flag(item, ATTR_RETRACTED) {
        return attempts.reject(C::OPERATION, Some(PushOutcome::Retracted));
    }
    if C::foreign(item) {
        return attempts.reject(C::OPERATION, Some(PushOutcome::WrongKind(RecordKind::GraphSource)));
    }
    let value = C::read(item);
    match C::judge(item, push) {
        Judgement::Current => Ok(Some(PushOutcome::Updated { value, replayed: true })),
        Judgement::Stale => attempts.reject(C::OPERATION, Some(PushOutcome::Stale { actual: value })),
        Judgement::Conflict => attempts.reject(C::OPERATION, Some(PushOutcome::Conflict { actual: Some(value) })),
        Judgement::Admissible => match C::limit(item, push) {
            Some(counter) => Err(limit_reached(C::OPERATION, counter, attempts)),
            None => Ok(None),
        },
    }
}

/// Returns the value that this call wrote, if the item remembers the call; an error if the value cannot be known. `planned` is
/// the item that the last plan was made for, if there was one.
pub(crate) fn recalled<C: Concern>(
    operation: &'static str,
    item: &Item,
    call: &Call,
    push: &Push<C::Payload, C::New>,
    attempts: Attempts,
    planned: Option<&Item>,
) -> Result<Option<ConcernValue<C::Payload>>> {
    if items::remembers(item, &call.request_id) {
        let value = if items::written_last_by(item, &call.request_id) {
            C::left_by(item, push)
        } else {
            // Others have written since. What this call wrote follows from the value that it was applied to. Without an attempt
            // of unknown outcome, no plan of this call was applied, but that of an earlier one with the same identity.
            let planned = planned.filter(|_| attempts.uncertain);
            match planned.cloned().or_else(|| C::assumed_previous(push)) {
                Some(before) => C::written(&before, push),
                None => return Err(revision_unknown(operation)),
            }
        };
        return Ok(Some(value));
    }
    Ok(None)
}

/// Returns the error for a call that was applied, with a revision that can no longer be known.
pub(crate) fn revision_unknown(operation: &'static str) -> Error {
    let source = Some("the write was applied, and its revision is no longer known".into());
    Error::OutcomeUnknown { operation, source }
}

/// Returns whether a row that rejected a push shows that it belongs to a record: we have written it, or marked it as
/// retracted.
pub(crate) fn shows_record(row: &Item) -> bool {
    items::is_ours(row) || items::flag(row, ATTR_RETRACTED)
}
