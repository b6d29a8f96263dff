//! Retracting and restoring.

use nameservice_model::{
    Address, Call, ConcernKind, ConcernValue, Error, Object, RecordKind, Restored, Result, Retracted, Status,
    StatusPayload,
};
use serde_json::json;

use crate::{
    Store,
    client::{Attempts, Failed, MAX_PLANS, Outcome, Reject, contended, key_reused},
    concern::set_status,
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems, number, string},
    records::{Part, boolean, rejected_at},
    references::{is_referenced, require_unreferenced},
    schema::*,
};

const RETRACT: &str = "retract a record";
const RESTORE: &str = "restore a record";

impl Store {
    pub(crate) async fn retract_record(
        &self,
        call: &Call,
        address: &Address,
        reason: Option<&str>,
    ) -> Result<Retracted> {
        let mut attempts = Attempts::default();
        for _ in 0..MAX_PLANS {
            let mut items = self.read_record(RETRACT, address).await?;
            let Some((meta, kind)) = items.meta() else { return Ok(Retracted::Unknown) };
            // Fluree marks only the meta: then the other marks still have to be set.
            if items::flag(meta, ATTR_RETRACTED) && unmarked(&items, kind).is_empty() {
                let by_this_call = status_remembers(&items, call);
                return outcome(RETRACT, &items, if by_this_call { Retracted::Retracted } else { Retracted::Already });
            }
            if items::flag(meta, ATTR_PROTECTED) {
                return attempts.reject(RETRACT, Retracted::Protected);
            }
            if is_referenced(meta) {
                return Ok(Retracted::HasDependents);
            }
            check_status_key(RETRACT, &items, call, attempts)?;
            let now = self.now_ms();
            let mut retract = Expression::new();
            retract.record_exists();
            retract.unprotected();
            require_unreferenced(&mut retract);
            retract.set(ATTR_RETRACTED, boolean(true));
            retract.touch(now);
            let mut actions = vec![(Part::Meta, retract.into_update(&Key::meta(address)))];
            let status = retracted_status(&items, reason, now);
            actions.extend(set_marks(address, kind, &items, &status, call, now));
            match self.transact(RETRACT, actions, &mut attempts).await? {
                Outcome::Applied(()) => {
                    for concern in concerns_of(kind) {
                        items.patch(sk_of(*concern), |item| mark_item(item, true, now));
                    }
                    items.patch(SK_META, |meta| mark_item(meta, true, now));
                    items.patch(sk_of(ConcernKind::Status), |item| put_status(item, &status));
                    return outcome(RETRACT, &items, Retracted::Retracted);
                }
                Outcome::Rejected(failed) => {
                    // If the record was protected meanwhile, the next read shows that.
                    if let Some(Failed(Some(meta))) = rejected_at(&failed, &Part::Meta)
                        && !items::flag(meta, ATTR_PROTECTED)
                        && is_referenced(meta)
                    {
                        return Ok(Retracted::HasDependents);
                    }
                }
            }
        }
        Err(contended(RETRACT, attempts))
    }

    pub(crate) async fn restore_record(&self, call: &Call, address: &Address) -> Result<Restored> {
        let mut attempts = Attempts::default();
        for _ in 0..MAX_PLANS {
            let mut items = self.read_record(RESTORE, address).await?;
            let Some((meta, kind)) = items.meta() else { return Ok(Restored::Unknown) };
            if !items::flag(meta, ATTR_RETRACTED) {
                let by_this_call = status_remembers(&items, call);
                return outcome(
                    RESTORE,
                    &items,
                    if by_this_call { Restored::Restored } else { Restored::NotRetracted },
                );
            }
            check_status_key(RESTORE, &items, call, attempts)?;
            let now = self.now_ms();
            let mut restore = Expression::new();
            restore.record_exists();
            restore.retracted();
            restore.set(ATTR_RETRACTED, boolean(false));
            restore.touch(now);
            let mut actions = vec![(Part::Meta, restore.into_update(&Key::meta(address)))];
            let v = status_v(&items) + 1;
            let status = ConcernValue::new(v, StatusPayload::state(StatusPayload::READY));
            // A concern without a row has no mark to remove.
            let present =
                |concern: &&ConcernKind| **concern == ConcernKind::Status || items.concern(**concern).is_some();
            for concern in concerns_of(kind).iter().filter(present) {
                let mut unmark = Expression::new();
                unmark.remove(ATTR_RETRACTED);
                actions.push(concern_action(address, &items, *concern, unmark, &status, call, now));
            }
            if let Outcome::Applied(()) = self.transact(RESTORE, actions, &mut attempts).await? {
                items.patch(SK_META, |meta| mark_item(meta, false, now));
                items.patch(sk_of(ConcernKind::Status), |item| put_status(item, &status));
                return outcome(RESTORE, &items, Restored::Restored);
            }
        }
        Err(contended(RESTORE, attempts))
    }
}

/// Returns the concerns that lack the mark of a retraction, or the item to carry it.
pub(crate) fn unmarked(items: &RecordItems, kind: RecordKind) -> Vec<ConcernKind> {
    let marked = |concern: &ConcernKind| items.concern(*concern).is_some_and(|item| items::flag(item, ATTR_RETRACTED));
    concerns_of(kind).iter().copied().filter(|concern| !marked(concern)).collect()
}

/// Marks every concern of a record, and shows the retraction in its status.
pub(crate) fn set_marks(
    address: &Address,
    kind: RecordKind,
    items: &RecordItems,
    status: &Status,
    call: &Call,
    now: i64,
) -> Vec<(Part, Action)> {
    let mark = |concern: &ConcernKind| {
        let mut mark = Expression::new();
        mark.set(ATTR_RETRACTED, boolean(true));
        concern_action(address, items, *concern, mark, status, call, now)
    };
    concerns_of(kind).iter().map(mark).collect()
}

/// Changes the mark of a concern. For the status it also changes the state and increments the counter, on the condition
/// that the status is as it was read.
pub(crate) fn concern_action(
    address: &Address,
    items: &RecordItems,
    concern: ConcernKind,
    mut expression: Expression,
    status: &Status,
    call: &Call,
    now: i64,
) -> (Part, Action) {
    if concern == ConcernKind::Status {
        let seen = items.concern_or_empty(concern);
        expression.is(ATTR_STATUS_V, items::present(&seen, ATTR_STATUS_V).cloned());
        expression.is(ATTR_STATUS, items::present(&seen, ATTR_STATUS).cloned());
        set_status(&mut expression, status);
        expression.by_call(&call.request_id);
    }
    expression.touch(now);
    (Part::Concern(concern), expression.into_update(&Key::new(address, sk_of(concern))))
}

/// Returns whether the status shows that an earlier attempt of this call has done it.
fn status_remembers(items: &RecordItems, call: &Call) -> bool {
    items.concern(ConcernKind::Status).is_some_and(|item| items::remembers(item, &call.request_id))
}

/// Fails where the status remembers another request under the key of this call.
fn check_status_key(operation: &'static str, items: &RecordItems, call: &Call, attempts: Attempts) -> Result<()> {
    match items.concern(ConcernKind::Status) {
        Some(item) if items::reuses_key(item, &call.request_id) => Err(key_reused(operation, attempts)),
        _ => Ok(()),
    }
}

pub(crate) fn status_v(items: &RecordItems) -> i64 {
    items::status(&items.concern_or_empty(ConcernKind::Status)).v
}

pub(crate) fn retracted_status(items: &RecordItems, reason: Option<&str>, now: i64) -> Status {
    let mut meta = Object::from_iter([("retracted_at".to_owned(), json!(now.div_euclid(1000)))]);
    if let Some(reason) = reason {
        meta.insert("reason".to_owned(), json!(reason));
    }
    ConcernValue::new(status_v(items) + 1, StatusPayload { state: StatusPayload::RETRACTED.to_owned(), meta })
}

// These apply the transaction to the items that it was planned from.

fn mark_item(item: &mut Item, retracted: bool, now: i64) {
    item.insert(ATTR_RETRACTED.to_owned(), boolean(retracted));
    item.insert(ATTR_UPDATED_AT_MS.to_owned(), number(now));
}

fn put_status(item: &mut Item, status: &Status) {
    item.insert(ATTR_STATUS_V.to_owned(), number(status.v));
    if let Some(payload) = &status.payload {
        item.insert(ATTR_STATUS.to_owned(), string(&payload.state));
        item.insert(ATTR_STATUS_META.to_owned(), items::map(&payload.meta));
    }
}

/// Returns the record of these items as an outcome of the operation.
fn outcome<T>(
    operation: &'static str,
    items: &RecordItems,
    make: impl FnOnce(Box<nameservice_model::Record>) -> T,
) -> Result<T> {
    let record = items.record().ok_or(Error::Store { operation, source: "a record without a meta".into() })?;
    Ok(make(Box::new(record)))
}
