//! What a concern is to the paths that all concerns share: its attributes, its conditions, and what a failed condition means.
//!
//! [`Concern::judge`] says in Rust what [`Concern::plan`] says to DynamoDB.

use nameservice_model::{ConcernKind, ConcernState, ConcernValue, ContentId, Expected, Push, RecordKind};

use crate::{
    expressions::Expression,
    items::{self, Item, number, string},
    schema::value_of_concern,
};

/// A concern as it is stored.
pub(crate) trait Concern: Send + Sync + 'static {
    /// The data of its value.
    type Payload: Clone + Send + Sync;
    /// What a push brings.
    type New: Clone + Send + Sync;

    /// Which one it is.
    const KIND: ConcernKind;
    /// How errors name a push of it.
    const OPERATION: &'static str;

    /// The value that an item holds; of an empty item the unborn one.
    fn read(item: &Item) -> ConcernValue<Self::Payload>;

    /// What the item that rejected a push means for it.
    fn judge(item: &Item, push: &Push<Self::Payload, Self::New>) -> Judgement;

    /// The conditions and updates of a push. With `seen`, the push is known to be admissible on that very item: then
    /// the conditions hold exactly there, and what it counts is counted from there.
    fn plan(expression: &mut Expression, push: &Push<Self::Payload, Self::New>, seen: Option<&Item>);

    /// The condition that the concern is at a value.
    fn expect(expression: &mut Expression, expected: &ConcernValue<Self::Payload>);

    /// The same of an item.
    fn matches(item: &Item, expected: &ConcernValue<Self::Payload>) -> bool;

    /// The value that a push leaves on an item.
    fn written(item: &Item, push: &Push<Self::Payload, Self::New>) -> ConcernValue<Self::Payload>;

    /// The value that a push has left on an item that no other push of ours has written since. Fluree may have: it
    /// replaces values and leaves the ids of our calls.
    fn left_by(item: &Item, push: &Push<Self::Payload, Self::New>) -> ConcernValue<Self::Payload>;

    /// As much of the previous item as the expectation of a push says, for [`Concern::written`]; `None` where
    /// that is not enough.
    fn assumed_previous(_push: &Push<Self::Payload, Self::New>) -> Option<Item> {
        Some(Item::new())
    }

    /// Narrows a plan that has not seen the item until [`Concern::written`] on what this gives is what it leaves: a
    /// transaction does not answer with the items that it has written.
    fn constrain(_expression: &mut Expression, _push: &Push<Self::Payload, Self::New>) -> Item {
        Item::new()
    }

    /// The value as one of all concerns.
    fn state(value: ConcernValue<Self::Payload>) -> ConcernState;

    /// Sets the first value of a new record's item.
    fn preset(item: &mut Item, new: &Self::New);

    /// Whether two items hold the same, as far as a push that creates a ledger is concerned.
    fn same(a: &Item, b: &Item) -> bool;

    /// Whether the push cannot be planned without knowing the item.
    fn requires_read(_push: &Push<Self::Payload, Self::New>) -> bool {
        false
    }

    /// Whether the item shows that the record keeps this concern for itself.
    fn foreign(_item: &Item) -> bool {
        false
    }

    /// The same as a condition.
    fn not_foreign(_expression: &mut Expression) {}

    /// Whether a kind of record has this concern for pushes.
    fn belongs_to(_kind: RecordKind) -> bool {
        true
    }
}

/// What an item allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The value is stored already.
    Current,
    /// A push without an expectation brings nothing newer.
    Stale,
    /// The expectation does not hold.
    Conflict,
    /// The push can be applied.
    Admissible,
}

/// An id and a `t` as attributes: what heads and indexes have in common.
pub(super) struct RefAttributes {
    pub(super) id: &'static str,
    pub(super) t: &'static str,
}

impl RefAttributes {
    pub(super) fn preset(&self, item: &mut Item, id: &ContentId, t: i64) {
        item.insert(self.id.to_owned(), string(id.as_str()));
        item.insert(self.t.to_owned(), number(t));
    }

    pub(super) fn set(&self, expression: &mut Expression, id: &ContentId, t: i64) {
        expression.set(self.id, string(id.as_str()));
        expression.set(self.t, number(t));
    }

    pub(super) fn expect(&self, expression: &mut Expression, v: i64, id: Option<&ContentId>) {
        match id {
            Some(id) => {
                expression.equals(self.id, string(id.as_str()));
                expression.equals(self.t, number(v));
            }
            None => {
                expression.is(self.id, None);
                expression.equals_or_absent(self.t, number(0));
            }
        }
    }
}

/// A counter moves from the value that is expected to a higher one, or not at all.
pub(super) fn counter_judgement<C: Concern>(item: &Item, push: &Push<C::Payload, C::New>, new_v: i64) -> Judgement {
    match push.expected() {
        Expected::Value(expected) if C::matches(item, expected) && new_v > C::read(item).v => Judgement::Admissible,
        _ => Judgement::Conflict,
    }
}

/// The condition that attributes are as this item has them.
pub(crate) fn as_seen(expression: &mut Expression, item: &Item, attributes: &[&str]) {
    for attribute in attributes {
        expression.is(attribute, items::present(item, attribute).cloned());
    }
}

/// The condition that the value of a concern is as this item has it.
pub(crate) fn value_as_seen<C: Concern>(expression: &mut Expression, item: &Item) {
    as_seen(expression, item, &value_of_concern(C::KIND));
}
