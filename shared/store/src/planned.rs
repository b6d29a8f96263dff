//! Operations of a transaction, whichever concern they are about.

use nameservice_model::{Call, ConcernState, ConcernValue, Judgement, OperationKind, Push, RecordKind, Result};

use crate::{
    client::Attempts,
    concern::{Concern, ConfigConcern, HeadConcern, IndexConcern, StatusConcern, value_as_seen},
    expressions::Expression,
    items::Item,
    push::recalled,
    schema::*,
};

/// An operation, whichever concern it is about, with its values as `V`.
pub(crate) trait Planned<V>: Send + Sync {
    /// Adds its conditions and updates. Returns the item that the plan relies on to be stored.
    fn plan(&self, expression: &mut Expression, seen: Option<&Item>) -> Item;
    fn judge(&self, item: &Item) -> Judgement;
    fn read(&self, item: &Item) -> V;
    fn written(&self, found: &Item) -> V;
    /// Returns the value that it wrote, if the item remembers the call: see [`recalled`].
    fn recalled(
        &self,
        name: &'static str,
        item: &Item,
        call: &Call,
        attempts: Attempts,
        planned: Option<&Item>,
    ) -> Result<Option<V>>;
    /// Adds the condition that the concern is unchanged since this item.
    fn unchanged(&self, expression: &mut Expression, item: &Item);
    /// Returns the counter that it would have to increment beyond its maximum.
    fn limit(&self, item: &Item) -> Option<&'static str>;
    /// Returns whether it cannot be planned without knowing the item.
    fn requires_read(&self) -> bool;
    fn foreign(&self, item: &Item) -> bool;
    fn not_foreign(&self, expression: &mut Expression);
    fn belongs_to(&self, kind: RecordKind) -> bool;
    fn writes(&self) -> bool;
}

/// A push.
pub(crate) struct Pushing<'a, C: Concern, V> {
    pub(crate) push: &'a Push<C::Payload, C::New>,
    /// Returns a value of the concern as `V`.
    pub(crate) value: fn(ConcernValue<C::Payload>) -> V,
}

impl<C: Concern, V> Planned<V> for Pushing<'_, C, V> {
    fn plan(&self, expression: &mut Expression, seen: Option<&Item>) -> Item {
        C::plan(expression, self.push, seen);
        match seen {
            Some(item) => item.clone(),
            None => C::constrain(expression, self.push),
        }
    }

    fn judge(&self, item: &Item) -> Judgement {
        C::judge(item, self.push)
    }

    fn read(&self, item: &Item) -> V {
        (self.value)(C::read(item))
    }

    fn written(&self, found: &Item) -> V {
        (self.value)(C::written(found, self.push))
    }

    fn recalled(
        &self,
        name: &'static str,
        item: &Item,
        call: &Call,
        attempts: Attempts,
        planned: Option<&Item>,
    ) -> Result<Option<V>> {
        // A transaction does not return the items that it has written, and so no lease beside a status. Its repetition
        // must give the same answer.
        let mut item = item.clone();
        item.remove(ATTR_LEASE);
        Ok(recalled::<C>(name, &item, call, self.push, attempts, planned)?.map(self.value))
    }

    fn unchanged(&self, expression: &mut Expression, item: &Item) {
        value_as_seen::<C>(expression, item);
    }

    fn limit(&self, item: &Item) -> Option<&'static str> {
        C::limit(item, self.push)
    }

    fn requires_read(&self) -> bool {
        C::requires_read(self.push)
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

/// A check.
struct Checking<C: Concern>(ConcernValue<C::Payload>);

impl<C: Concern> Planned<ConcernState> for Checking<C> {
    fn plan(&self, expression: &mut Expression, seen: Option<&Item>) -> Item {
        match seen {
            // A value can be stored in more forms than the expected value matches.
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

    fn recalled(
        &self,
        _name: &'static str,
        _item: &Item,
        _call: &Call,
        _attempts: Attempts,
        _planned: Option<&Item>,
    ) -> Result<Option<ConcernState>> {
        Ok(None)
    }

    fn unchanged(&self, expression: &mut Expression, item: &Item) {
        value_as_seen::<C>(expression, item);
    }

    fn limit(&self, _item: &Item) -> Option<&'static str> {
        None
    }

    fn requires_read(&self) -> bool {
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

/// Returns an operation of a transaction with its values as those of any concern.
pub(crate) fn planned(operation: &OperationKind) -> Box<dyn Planned<ConcernState> + '_> {
    fn pushing<C: Concern>(push: &Push<C::Payload, C::New>) -> Box<dyn Planned<ConcernState> + '_> {
        Box::new(Pushing::<C, _> { push, value: C::state })
    }
    match operation {
        OperationKind::PushHead(push) => pushing::<HeadConcern>(push),
        OperationKind::PushIndex(push) => pushing::<IndexConcern>(push),
        OperationKind::PushStatus(push) => pushing::<StatusConcern>(push),
        OperationKind::PushConfig(push) => pushing::<ConfigConcern>(push),
        OperationKind::Check(ConcernState::Head(value)) => Box::new(Checking::<HeadConcern>(value.clone())),
        OperationKind::Check(ConcernState::Index(value)) => Box::new(Checking::<IndexConcern>(value.clone())),
        OperationKind::Check(ConcernState::Status(value)) => Box::new(Checking::<StatusConcern>(value.clone())),
        OperationKind::Check(ConcernState::Config(value)) => Box::new(Checking::<ConfigConcern>(value.clone())),
    }
}
