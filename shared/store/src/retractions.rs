//! Retracting and restoring.

use nameservice_model::{
    Address, Call, ConcernKind, ConcernValue, Error, MAX_WATERMARK, Object, RecordKind, Restored, Result, Retracted,
    Status, StatusPayload,
};
use serde_json::json;

use crate::{
    Store,
    client::{Attempts, MAX_PLANS, Outcome, Reject, contended, key_reused, limit_reached},
    concern::set_status,
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems, number, string},
    records::{Part, boolean},
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
            let mut items = self.look_up(RETRACT, address, &mut attempts).await?;
            let Some((meta, kind)) = items.meta() else { return attempts.reject(RETRACT, Retracted::Unknown) };
            // What happened to it since does not matter.
            if status_remembers(&items, call) {
                return outcome(RETRACT, &items, Retracted::Retracted);
            }
            check_status_key(RETRACT, &items, call, attempts)?;
            // Fluree marks only the meta: then the other marks still have to be set.
            if items::flag(meta, ATTR_RETRACTED) && unmarked(&items, kind).is_empty() {
                return outcome(RETRACT, &items, Retracted::Already);
            }
            if items::flag(meta, ATTR_PROTECTED) {
                return attempts.reject(RETRACT, Retracted::Protected);
            }
            if is_referenced(meta) {
                return attempts.reject(RETRACT, Retracted::HasDependents);
            }
            let now = self.now_ms();
            let Some(status) = retracted_status(&items, reason, now) else {
                return Err(limit_reached(RETRACT, ATTR_STATUS_V, attempts));
            };
            let mut retract = Expression::new();
            retract.same_record(meta);
            retract.unprotected();
            require_unreferenced(&mut retract);
            retract.set(ATTR_RETRACTED, boolean(true));
            retract.touch(now);
            let mut actions = vec![(Part::Meta, retract.into_update(&Key::meta(address)))];
            actions.extend(set_marks(address, kind, &items, &status, call, now));
            // What has changed meanwhile, the next read shows.
            if let Outcome::Applied(()) = self.transact(RETRACT, actions, &mut attempts).await? {
                for concern in concerns_of(kind) {
                    items.patch(sk_of(*concern), |item| mark_item(item, true, now));
                }
                items.patch(SK_META, |meta| mark_item(meta, true, now));
                items.patch(sk_of(ConcernKind::Status), |item| put_status(item, &status));
                return outcome(RETRACT, &items, Retracted::Retracted);
            }
        }
        Err(contended(RETRACT, attempts))
    }

    pub(crate) async fn restore_record(&self, call: &Call, address: &Address) -> Result<Restored> {
        let mut attempts = Attempts::default();
        for _ in 0..MAX_PLANS {
            let mut items = self.look_up(RESTORE, address, &mut attempts).await?;
            let Some((meta, kind)) = items.meta() else { return attempts.reject(RESTORE, Restored::Unknown) };
            // What happened to it since does not matter.
            if status_remembers(&items, call) {
                return outcome(RESTORE, &items, Restored::Restored);
            }
            check_status_key(RESTORE, &items, call, attempts)?;
            if !items::flag(meta, ATTR_RETRACTED) {
                return outcome(RESTORE, &items, Restored::NotRetracted);
            }
            let now = self.now_ms();
            let Some(v) = next_status_v(&items) else {
                return Err(limit_reached(RESTORE, ATTR_STATUS_V, attempts));
            };
            let mut restore = Expression::new();
            restore.same_record(meta);
            restore.retracted();
            restore.set(ATTR_RETRACTED, boolean(false));
            restore.touch(now);
            let mut actions = vec![(Part::Meta, restore.into_update(&Key::meta(address)))];
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

/// Fails if the status remembers another request under the key of this call.
fn check_status_key(operation: &'static str, items: &RecordItems, call: &Call, attempts: Attempts) -> Result<()> {
    match items.concern(ConcernKind::Status) {
        Some(item) if items::reuses_key(item, &call.request_id) => Err(key_reused(operation, attempts)),
        _ => Ok(()),
    }
}

/// Returns the `v` of the next status; `None` if there is none.
pub(crate) fn next_status_v(items: &RecordItems) -> Option<i64> {
    let v = items::status(&items.concern_or_empty(ConcernKind::Status)).v;
    (v < MAX_WATERMARK).then(|| v + 1)
}

/// Returns the status that shows a retraction; `None` if the status cannot have another.
pub(crate) fn retracted_status(items: &RecordItems, reason: Option<&str>, now: i64) -> Option<Status> {
    let v = next_status_v(items)?;
    let mut meta = Object::from_iter([("retracted_at".to_owned(), json!(now.div_euclid(1000)))]);
    if let Some(reason) = reason {
        meta.insert("reason".to_owned(), json!(reason));
    }
    Some(ConcernValue::new(v, StatusPayload { state: StatusPayload::RETRACTED.to_owned(), meta }))
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
