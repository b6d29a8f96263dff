//! The memory of an address: the last four calls that ended or began a record there, in a row that outlives the record.
//!
//! A purge writes the row in its own transaction, and every creation is conditional on it. So a late duplicate of either
//! is recognised after the record is gone, or another is there.

use nameservice_model::{Address, Call, ConcernKind, Head, RecordKind, Result};

use crate::{
    Store,
    client::Attempts,
    expressions::{Action, Expression, Key},
    items::{self, Item, RecordItems, number, string},
    schema::*,
};

/// How long the row is kept after the last purge.
const KEPT_SECONDS: i64 = 48 * 60 * 60;

impl Store {
    /// Reads the memory of an address, as a part of an operation; empty if there is none.
    pub(crate) async fn memory(
        &self,
        operation: &'static str,
        address: &Address,
        attempts: &mut Attempts,
    ) -> Result<Item> {
        self.within(operation, attempts, self.get_item(operation, &key(address))).await
    }
}

fn key(address: &Address) -> Key {
    Key::new(address, SK_CALLS)
}

/// Returns the condition of a creation: its call, or its key, has not begun or ended a record here before.
pub(crate) fn not_before(address: &Address, call: &Call) -> Action {
    let mut check = Expression::new();
    check.not_by_call(&call.request_id);
    check.into_check(&key(address))
}

/// Returns the condition that this very call has not begun or ended a record here before. Unlike that of a creation, it
/// allows another request under its key, which the record itself would remember.
pub(crate) fn not_this_one_before(address: &Address, call: &Call) -> Action {
    let mut check = Expression::new();
    check.not_this_call(&call.request_id);
    check.into_check(&key(address))
}

/// Returns the update that remembers a call that ends a record, and the call that has created the record.
pub(crate) fn remember_end(address: &Address, ended: &RecordItems, call: &Call, now: i64) -> Action {
    let nothing = Item::new();
    let meta = ended.items.get(SK_META).unwrap_or(&nothing);
    let mut calls = vec![call.request_id.as_str()];
    calls.extend(began(meta, ended));
    let mut update = Expression::new();
    update.not_by_call(&call.request_id);
    update.remember(&calls);
    for attribute in [ATTR_CREATED_AT, ATTR_BP_SOURCE, ATTR_LIFE] {
        update.put(attribute, items::present(meta, attribute).cloned());
    }
    // What a repeated creation of a branch is answered with.
    let head = items::text(meta, ATTR_LIFE)
        .filter(|_| items::present(meta, ATTR_BP_SOURCE).is_some())
        .and_then(|life| first_head(meta, ended.concern(ConcernKind::Head)?, life));
    update.put(ATTR_COMMIT_ID, head.as_ref().and_then(|head| head.payload.as_ref()).map(|id| string(id.as_str())));
    update.put(ATTR_COMMIT_T, head.map(|head| number(head.v)));
    update.set(ATTR_TTL, number(now.div_euclid(1000) + KEPT_SECONDS));
    update.touch(now);
    update.into_update(&key(address))
}

/// Returns the update, and its key, that remembers a call that has purged what was left without a record.
pub(crate) fn remember_sweep(address: &Address, call: &Call, now: i64) -> (Expression, Key) {
    let mut update = Expression::new();
    update.by_call(&call.request_id);
    update.set(ATTR_TTL, number(now.div_euclid(1000) + KEPT_SECONDS));
    update.touch(now);
    (update, key(address))
}

/// Returns the call that created a record. Records of earlier versions do not say which it was: it may be any that their
/// config and status remember. Of a graph source, the last publications too: they could create it again.
fn began<'a>(meta: &'a Item, items: &'a RecordItems) -> Vec<&'a str> {
    let life = items::text(meta, ATTR_LIFE);
    let rings: &[ConcernKind] = match (life, items::kind(meta)) {
        (Some(_), Some(RecordKind::GraphSource)) => &[ConcernKind::Config],
        (Some(_), _) => &[],
        (None, _) => &[ConcernKind::Config, ConcernKind::Status],
    };
    let remembered = rings.iter().filter_map(|concern| items.concern(*concern)).flat_map(items::calls);
    let mut calls = Vec::new();
    for call in life.into_iter().chain(remembered) {
        if !calls.contains(&call) && calls.len() < ATTR_REQUEST_IDS.len() - 1 {
            calls.push(call);
        }
    }
    calls
}

/// Returns the head that a record was created with by this call; `None` if it was written since. Fluree leaves the ids of
/// our calls, and sets the time of the write.
pub(crate) fn first_head(meta: &Item, head: &Item, creation: &str) -> Option<Head> {
    let created_at = items::integer(meta, ATTR_CREATED_AT)?;
    let written_at = items::integer(head, ATTR_UPDATED_AT_MS)?.div_euclid(1000);
    let is_first = items::text(head, ATTR_REQUEST_IDS[0]) == Some(creation) && written_at == created_at;
    is_first.then(|| items::head(head))
}
