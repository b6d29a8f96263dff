//! The interface of a concern to the code that all concerns share: its attributes, its conditions, and what a failed
//! condition means.
//!
//! [`Concern::plan`] expresses in conditions for DynamoDB what the model's `judge` of a push decides.

use nameservice_model::{ConcernKind, ConcernState, ConcernValue, ContentId, Expect, Judgement, Push, RecordKind};

use crate::{
    expressions::Expression,
    items::{self, Item, number, string},
    schema::value_of_concern,
};

/// A concern as it is stored.
pub(crate) trait Concern: Send + Sync + 'static {
    /// The data of its value.
    type Payload: Expect + Clone + Send + Sync;
    /// The new value of a push.
    type New: Clone + Send + Sync;

    /// Which concern it is.
    const KIND: ConcernKind;
    /// The name of a push of it in errors.
    const OPERATION: &'static str;

    /// Returns the value that an item holds; the unborn value for an empty item.
    fn read(item: &Item) -> ConcernValue<Self::Payload>;

    /// Judges a push by the item that rejected it.
    fn judge(item: &Item, push: &Push<Self::Payload, Self::New>) -> Judgement;

    /// Adds the conditions and updates of a push. With `seen`, the push is known to be admissible on that item: then
    /// the conditions hold for exactly that item, and counters continue from it.
    fn plan(expression: &mut Expression, push: &Push<Self::Payload, Self::New>, seen: Option<&Item>);

    /// Adds the condition that the concern has the expected value.
    fn expect(expression: &mut Expression, expected: &ConcernValue<Self::Payload>);

    /// Returns whether an item has the expected value.
    fn matches(item: &Item, expected: &ConcernValue<Self::Payload>) -> bool {
        Expect::is_expected(&Self::read(item), expected)
    }

    /// Returns the value of the item after the push.
    fn written(item: &Item, push: &Push<Self::Payload, Self::New>) -> ConcernValue<Self::Payload>;

    /// Returns the counter that an admissible push of this item would have to increment beyond its maximum.
    fn limit(item: &Item, push: &Push<Self::Payload, Self::New>) -> Option<&'static str>;

    /// Returns the value that a push left on an item that no other push of ours has written since. Fluree may have
    /// written it: it replaces values and leaves the ids of our calls.
    fn left_by(item: &Item, push: &Push<Self::Payload, Self::New>) -> ConcernValue<Self::Payload>;

    /// Returns what a push states about the previous item, for [`Concern::written`]; `None` if that is not enough.
    fn assumed_previous(_push: &Push<Self::Payload, Self::New>) -> Option<Item> {
        Some(Item::new())
    }

    /// Adds conditions to a plan that has not seen the item, so that [`Concern::written`] of the returned item is the
    /// value that the push stores. This is needed because a transaction does not return the items that it has written.
    fn constrain(_expression: &mut Expression, _push: &Push<Self::Payload, Self::New>) -> Item {
        Item::new()
    }

    /// Returns the value as one of any concern.
    fn state(value: ConcernValue<Self::Payload>) -> ConcernState;

    /// Sets the first value of a new record's item.
    fn preset(item: &mut Item, new: &Self::New);

    /// Returns whether two items have the same value, as far as a push that creates a ledger is concerned.
    fn same(a: &Item, b: &Item) -> bool;

    /// Returns whether the push cannot be planned without knowing the item.
    fn requires_read(_push: &Push<Self::Payload, Self::New>) -> bool {
        false
    }

    /// Returns whether the item shows that the record does not take pushes of this concern.
    fn foreign(_item: &Item) -> bool {
        false
    }

    /// Adds the same as a condition.
    fn not_foreign(_expression: &mut Expression) {}

    /// Returns whether a kind of record takes pushes of this concern.
    fn belongs_to(_kind: RecordKind) -> bool {
        true
    }
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

/// Adds the condition that attributes are unchanged since this item.
pub(crate) fn as_seen(expression: &mut Expression, item: &Item, attributes: &[&str]) {
    for attribute in attributes {
        expression.is(attribute, items::present(item, attribute).cloned());
    }
}

/// Adds the condition that the value of a concern is unchanged since this item.
pub(crate) fn value_as_seen<C: Concern>(expression: &mut Expression, item: &Item) {
    as_seen(expression, item, &value_of_concern(C::KIND));
}
